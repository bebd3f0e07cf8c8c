//! Where peers behind routers find each other (`specs/rendezvous.md`): a service of the server.
//!
//! `message` has what both ends say, `path` how a client proves who it is, `table` who is there and who calls whom,
//! for all shards of a server. `service` is the server's end of a request, [`Membership`] the client's. `sockets` has the
//! bound sockets by which the server relays between peers; their requests are in `engine/bound`. `guests` lets in who has no link.

mod guests;
mod membership;
mod message;
mod path;
mod service;
pub(crate) mod sockets;
mod table;

pub use guests::Guests;
pub(crate) use guests::guest_token;
pub use membership::Membership;
#[doc(hidden)]
pub use message::fuzz as fuzz_message;
pub use message::{Message, Reason};
#[doc(hidden)]
pub use path::fuzz as fuzz_path;
pub use path::{PROTOCOL, RegistrationPath, statement};
pub use sockets::Relay;
pub use table::{Rendezvous, WakeShard};

/// Who is there: an Ed25519 public key, the `PeerId` of `specs/peer.md`.
pub type PeerKeyBytes = [u8; 32];
