//! Messages and streams between peers that know each other by public keys (`specs/peer.md`), sans-IO, over [`quic`].
//!
//! This crate does no I/O, reads no clock (`now` is a parameter) and takes its randomness as a seed. [`Peers`] is one
//! socket's peers: batches go in, GSO trains come out, events tell what happened. Each message that [`Peers::send`]
//! takes has a [`Ticket`], which ends exactly once: the peer has the message, its deadline passed, or it was dropped
//! for a [`DropReason`] that is counted.
//!
//! A message that fits one packet travels in a DATAGRAM frame, is acknowledged and repeated by this crate, and delays
//! no other; a longer one has a stream of its own. QUIC decides when packets leave.

mod attempt;
mod check;
mod delivery;
mod error;
mod event;
pub mod frame;
mod id;
mod incoming;
mod lazy;
pub mod limits;
mod paths;
mod payloads;
mod peer;
mod peers;
mod race;
mod receiver;
mod sender;
mod window;

pub use attempt::{AddressSource, Attempt, AttemptState};
pub use check::Meeting;
pub use delivery::{Delivery, DropReason, Order, Outcome, Received, Reliability, Ticket};
pub use error::{ConnectError, Failure, ParseIdError, SendError};
pub use event::Event;
pub use id::PeerId;
pub use paths::is_relayed;
pub use peers::{Parameters, PathStats, PeerKey, Peers, Refusals, code};
pub use quic::{
    CloseReason, Congestion, Counters, Direction, KeyIdentity, LimitedBy, Outbox, Read, StreamError, StreamId,
};
pub use receiver::ReceiveCounters;
pub use sender::SendCounters;

/// Readers of bytes from outside, for fuzzing; not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::check::fuzz as peer_check;
    pub use crate::check::fuzz_seeds as peer_check_seeds;
}
