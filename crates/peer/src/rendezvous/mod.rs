//! How peers behind routers are met: a Gramway server that both reach (`specs/rendezvous.md`).
//!
//! [`Rendezvous`] says which server. [`registration`] keeps a connection to it, over the endpoint's own socket, so that
//! the server sees the address that routers give to the peers' packets, or in TCP's shape where UDP is blocked
//! ([`ways`]); [`meetings`] carries out what it says.

mod inbox;
mod link;
mod local;
mod meetings;
mod questions;
mod registration;
mod ways;
mod whereabouts;

pub use link::{Rendezvous, RendezvousCarrier};
pub(crate) use local::{addresses_of, source_towards};
pub(crate) use meetings::Meetings;
pub(crate) use registration::Resolution;
pub(crate) use ways::SocketChange;
