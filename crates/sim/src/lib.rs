//! A deterministic network in virtual time: a clock that moves only when told, links that delay, lose, reorder,
//! duplicate, refuse and queue, and a network of nodes joined by them.
//!
//! Everything random comes from a seed, and equal seeds give equal runs. The wall clock is read once, to have an
//! [`std::time::Instant`] to count from; no result depends on it.

mod clock;
mod link;
mod network;
mod seeds;

pub use clock::Clock;
pub use link::{Link, LinkConfig, LinkCounts, Packet, Policer};
pub use network::{Delivery, Event, Network};
pub use seeds::{for_each_seed, seeds};
