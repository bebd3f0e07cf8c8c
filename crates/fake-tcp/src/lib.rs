//! Datagrams in packets that look like an ordinary TCP connection (specs/fake-tcp.md), sans-IO.
//!
//! - [`segment`]: reads a received packet.
//! - [`headers`]: writes the IP and TCP headers of a packet or super-segment.
//! - [`profile`]: whom a connection looks like, and talks to.
//!
//! Nothing is retransmitted but the handshake and the end: a lost segment is a lost datagram. The crate reads no clock
//! and opens no socket; seeds and times are parameters. What it reads is hostile: memory and answers are bounded by
//! [`limits`], and nothing makes it panic.

#[allow(dead_code, reason = "connections write them, the next change")]
pub mod headers;
#[allow(dead_code, reason = "the stack reads them, one of the next changes")]
mod icmp;
pub mod limits;
#[allow(dead_code, reason = "connections write options, the next change")]
pub mod profile;
#[allow(dead_code, reason = "the stack has them, one of the next changes")]
mod secret;
pub mod segment;
#[allow(dead_code, reason = "connections count, the next change")]
mod sequence;
#[allow(dead_code, reason = "connections have them, the next change")]
mod tuple;

pub use headers::Headers;
pub use profile::Profile;
pub use sequence::Sequence;
