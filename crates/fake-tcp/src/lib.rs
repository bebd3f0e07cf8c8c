//! Datagrams in packets that look like an ordinary TCP connection (specs/fake-tcp.md), sans-IO.
//!
//! - [`segment`]: reads a received packet.
//! - [`profile`]: whom a connection looks like, and talks to.
//!
//! Nothing is retransmitted but the handshake and the end: a lost segment is a lost datagram. The crate reads no clock
//! and opens no socket; seeds and times are parameters. What it reads is hostile: memory and answers are bounded by
//! [`limits`], and nothing makes it panic.

pub mod limits;
#[allow(dead_code, reason = "connections write options, one of the next changes")]
pub mod profile;
pub mod segment;
#[allow(dead_code, reason = "connections count, one of the next changes")]
mod sequence;

pub use profile::Profile;
pub use sequence::Sequence;
