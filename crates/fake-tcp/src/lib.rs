//! Datagrams in packets that look like an ordinary TCP connection (specs/fake-tcp.md), sans-IO.
//!
//! - [`segment`]: reads a received packet.
//! - [`headers`]: writes the IP and TCP headers of a packet or super-segment.
//! - [`profile`]: whom a connection looks like, and talks to.
//! - [`stack`]: one worker's connections: handshakes, sequence numbers, acknowledgements, timers, hostile packets.
//!
//! Nothing is retransmitted but the handshake and the end: a lost segment is a lost datagram. The crate reads no clock
//! and opens no socket; seeds and times are parameters. What it reads is hostile: memory and answers are bounded by
//! [`limits`], and nothing makes it panic.

mod connection;
pub mod headers;
mod icmp;
mod lengths;
pub mod limits;
pub mod profile;
mod seal;
mod secret;
pub mod segment;
mod sequence;
pub mod stack;
mod tuple;

pub use headers::Headers;
pub use profile::Profile;
pub use seal::{Key, Proof};
pub use sequence::Sequence;
pub use stack::{
    CloseReason, Config, ConnectError, ConnectionId, Counters, Data, Event, Refused, Stack, Transmit,
};
