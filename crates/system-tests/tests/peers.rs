//! Peers behind routers, with a Gramway server as rendezvous and relay: [`world`] has the networks, [`pairs`] which
//! kinds of routers can be opened for each other, [`nested`] routers behind routers and peers behind the same one,
//! [`blocked`] networks that let no UDP through, [`moves`] what becomes of connections when routers and addresses
//! change, [`suspended`] when a program is stopped, [`program`] what the program
//! tells between routers, and [`six`] peers with IPv6. [`table`] says how each pair met, and how soon.

mod blocked;
mod moves;
mod nested;
mod pairs;
mod program;
mod six;
mod suspended;
mod table;
pub(crate) mod world;
