//! Peers behind routers, with a Gramway server as rendezvous and relay: [`world`] has the networks, [`pairs`] which
//! kinds of routers can be opened for each other, and [`moves`] what becomes of connections when routers and
//! addresses change.

mod moves;
mod pairs;
mod world;
