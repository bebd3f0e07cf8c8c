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

#[allow(dead_code, reason = "the stack has them, the next change")]
mod connection;
#[allow(dead_code, reason = "the stack takes segments back, the next change")]
pub mod headers;
#[allow(dead_code, reason = "the stack reads them, the next change")]
mod icmp;
pub mod limits;
pub mod profile;
#[allow(dead_code, reason = "the stack has them, the next change")]
mod secret;
pub mod segment;
mod sequence;
#[allow(dead_code, reason = "the stack gives them, the next change")]
pub mod stack;
#[allow(dead_code, reason = "the stack has them, the next change")]
mod tuple;

pub use headers::Headers;
pub use profile::Profile;
pub use sequence::Sequence;
pub use stack::{CloseReason, Config, ConnectError, ConnectionId, Counters, Data, Event, Refused, Transmit};
