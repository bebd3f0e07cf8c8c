//! Pure building blocks of the packet path: ECN codepoints, QUIC varints, paths and customers' prefixes, trains
//! of equal-sized datagrams; IP headers, checksums, ICMP errors, and the kernel's super-packets taken apart and put
//! together.
//!
//! This crate does no I/O, reads no clock and holds no lock. All lengths in a packet are checked before use: hostile
//! input is an error, never a panic.
//!
//! - [`ip`]: reading a packet, its flow, its hop limit.
//! - [`checksum`]: the Internet checksum, complete and partial.
//! - [`icmp`], [`mss`]: telling an inner sender what fits and what failed.
//! - [`Turns`]: fair turns of owners who share a thread.
//! - [`vnet`], [`segmentation`], [`coalesce`]: super-packets of a TUN device with `IFF_VNET_HDR`.

mod carrier_kind;
pub mod checksum;
pub mod coalesce;
mod ecn;
mod few_at_a_time;
mod histogram;
pub mod icmp;
pub mod ip;
pub mod limits;
pub mod mss;
mod path;
mod prefix;
pub mod segmentation;
mod segments;
#[cfg(test)]
mod test_packets;
mod train;
mod transport;
mod turns;
pub mod varint;
pub mod vnet;
mod wire;

pub use carrier_kind::CarrierKind;
pub use ecn::Ecn;
pub use few_at_a_time::FewAtATime;
pub use histogram::Histogram;
pub use path::Path;
pub use prefix::{PrefixBudget, customer_prefix};
pub use segments::{Segments, segments};
pub use train::{Refused, Train, TrainLimits};
pub use turns::{OwnerKey, Turns};

/// Largest UDP payload that an IPv4 packet can carry, in bytes: 65,535 minus the IP and UDP headers (RFC 768).
pub const UDP_PAYLOAD_MAX: usize = 65_507;

/// Most segments that every Linux kernel with UDP_SEGMENT accepts in one send.
pub const TRAIN_SEGMENTS_MAX: usize = 64;
