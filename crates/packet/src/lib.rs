//! Pure building blocks of the packet path: ECN codepoints, QUIC varints, trains of equal-sized datagrams.
//!
//! This crate does no I/O, reads no clock and holds no lock.

mod ecn;
mod segments;
mod train;
pub mod varint;

pub use ecn::Ecn;
pub use segments::{Segments, segments};
pub use train::{Refused, Train, TrainLimits};

/// Largest UDP payload that an IPv4 packet can carry, in bytes: 65,535 minus the IP and UDP headers (RFC 768).
pub const UDP_PAYLOAD_MAX: usize = 65_507;

/// Most segments that every Linux kernel with UDP_SEGMENT accepts in one send.
pub const TRAIN_SEGMENTS_MAX: usize = 64;
