//! Every bound of this crate that concerns IP packets and turns: those that a specification or the kernel fixes first,
//! then those we chose.

/// Bytes of the longest IP packet that we handle: the IPv4 total length (RFC 791) and, beside it, IPv6 without
/// jumbograms.
pub const IP_PACKET_BYTES_MAX: usize = 65_535;

/// Bytes of an ICMPv4 error with its IP header (RFC 1812 section 4.3.2.3).
pub const ICMP_V4_BYTES_MAX: usize = 576;

/// Bytes of an ICMPv6 error with its IP header: the minimum IPv6 MTU (RFC 4443 section 2.4 c).
pub const ICMP_V6_BYTES_MAX: usize = 1_280;

/// Bytes of the least packet that every IPv4 link carries (RFC 791); no smaller MTU is reported.
pub const IPV4_MTU_MIN: usize = 68;

/// Bytes of the least packet that every IPv6 link carries (RFC 8200 section 5); no smaller MTU is reported.
pub const IPV6_MTU_MIN: usize = 1_280;

/// Least TCP payload per segment of a super-packet, in bytes. Linux keeps 48 bytes for options and payload
/// (`TCP_MIN_SND_MSS`), of which options take at most 40. Bounds the segments of one super-packet to 8,192;
/// smaller ones are not joined, either.
pub const TCP_SEGMENT_BYTES_MIN: usize = 8;

/// Most datagrams of a UDP super-packet that is taken apart: what Linux lets a sender ask for (`UDP_MAX_SEGMENTS`).
pub const UDP_SEGMENTS_MAX: usize = 128;

/// Most datagrams that are put into one UDP super-packet: every kernel since UDP_SEGMENT exists accepts them.
pub const UDP_COALESCE_MAX: usize = 64;

/// IPv6 extension headers walked before the upper-layer protocol; RFC 8200 section 4.1 names seven, one of them twice.
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Hop limit of the ICMP errors that we originate: the recommended default (RFC 1700).
pub const ICMP_HOP_LIMIT: u8 = 64;

/// Super-packets that a coalescer holds at a time. One batch of received trains rarely has more flows.
pub const COALESCE_ENTRIES_MAX: usize = 64;

/// Bytes that a coalescer holds at a time, so that what was copied in is still in the cache when it is written out.
pub const COALESCE_BYTES_MAX: usize = 1 << 20;

/// Buckets by which a coalescer finds the latest super-packet of a flow: four for each entry keep collisions rare.
pub const COALESCE_BUCKETS: usize = 256;

/// What an owner spends before the next one has its turn, in bytes: one train of QUIC packets.
pub const TURN_BYTES: usize = 64 << 10;

/// The most that an owner can owe to others who wait, in bytes: two milliseconds of a saturated shard. It bounds how
/// long an owner that was alone waits for one that has just come.
pub const TURN_DEBT_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(COALESCE_BUCKETS.is_power_of_two() && COALESCE_BUCKETS >= COALESCE_ENTRIES_MAX);
const _: () = assert!(COALESCE_ENTRIES_MAX < u8::MAX as usize, "a bucket is one byte");
const _: () = assert!(
    COALESCE_ENTRIES_MAX * (IP_PACKET_BYTES_MAX + 40) <= 4_200_000,
    "buffers that a coalescer keeps between batches, each for the longest IPv6 packet"
);
