//! A client, a server behind a front door, and the cover, on virtual time and a link in memory: whom the client finds, and
//! what strangers and watchers see.

mod meeting;
mod silence;
mod sizes;
pub(crate) mod wire;
mod world;
