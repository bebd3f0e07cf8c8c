//! Every limit of this crate, with its unit and reason; those that the kernel fixes apart from those we chose.

use std::time::Duration;

// Fixed by the kernel or a protocol.

/// MTU where the kernel does not tell that of an interface, in bytes: Ethernet's.
pub(crate) const ETHERNET_MTU: u32 = 1_500;

/// IP headers without options and extensions, in bytes.
pub(crate) const IPV4_HEADER_BYTES: u32 = 20;
pub(crate) const IPV6_HEADER_BYTES: u32 = 40;

/// Largest receive slot that is of use, in bytes: an IP packet, which a coalesced buffer never exceeds, behind what
/// stands before it on a raw socket.
pub const SLOT_BYTES_MAX: usize = 65_536 + 64;

/// Most bytes of one GSO train: an IPv4 packet minus its headers.
pub const TRAIN_BYTES_MAX: usize = packet::UDP_PAYLOAD_MAX;

/// Bytes of the `virtio_net_hdr` before each packet of a TUN device (virtio 1.2, section 5.1.6, without `num_buffers`).
pub const VNET_HEADER_BYTES: usize = packet::vnet::VNET_HEADER_BYTES;

/// Most bytes that one read of a TUN device gives: the header, and what the length field of an IPv4 header holds.
pub const TUN_READ_BYTES_MAX: usize = VNET_HEADER_BYTES + 65_535;

/// Most queues of a TUN device (`MAX_TAP_QUEUES` of the kernel).
pub const TUN_QUEUES_MAX: usize = 256;

/// Most bytes before the payload of a raw socket's packet: its `virtio_net_hdr`, 14 of Ethernet, 40 of IP, 60 of TCP.
pub const RAW_HEAD_BYTES_MAX: usize = VNET_HEADER_BYTES + 14 + 40 + 60;

/// Most bytes of one TCP super-segment's payload: an IPv6 packet whose length field holds TCP's longest header too; an
/// IPv4 packet holds its own header instead, which is not longer than the rest of TCP's.
pub const SUPER_SEGMENT_BYTES_MAX: usize = 65_535 - 20 - 60;

/// Most sockets of one group of packet sockets (`PACKET_FANOUT_MAX` of kernels before 5.11).
pub const RAW_GROUP_MAX: usize = 256;

/// Bytes of the longest answer about a neighbour, a neighbour advertisement with some options.
pub(crate) const NEIGHBOUR_ANSWER_BYTES: usize = 256;

/// Most packets that one look for a neighbour's answer reads: on a busy link others talk as well.
pub(crate) const NEIGHBOUR_LOOKS: usize = 64;

/// Most bytes of an interface's name (`IFNAMSIZ` without its zero).
pub(crate) const INTERFACE_NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// Bytes of the longest socket address used here, `sockaddr_in6`, rounded up to its alignment.
pub(crate) const NAME_BYTES: usize = 32;

/// Bytes for control messages of one datagram. The most that can arrive together are segment size (24), traffic
/// class and type of service (24 each), IPv6 and IPv4 packet information (40, 32) and the drop count (24).
pub(crate) const CONTROL_BYTES: usize = 192;

// Chosen.

/// Buckets of a histogram of datagrams in a call, by powers of two: the last but one ends at 1,024; full calls with
/// coalesced messages have more.
pub const BATCH_BUCKETS: usize = 12;

/// Receive buffer asked for by default, in bytes: 30 ms at 2 Gbit/s, while the thread does other work.
pub const RECEIVE_BUFFER_BYTES_DEFAULT: usize = 8 << 20;

/// Send buffer asked for by default, in bytes: two dozen full trains; more would only add delay.
pub const SEND_BUFFER_BYTES_DEFAULT: usize = 2 << 20;

/// Most kernel messages of one `sendmmsg` call: two trains' worth when each segment has to go alone, and small
/// enough that the arrays (about 300 bytes per message) stay in the cache.
pub(crate) const SEND_UNITS_MAX: usize = 128;

/// Most messages of one call on a Unix SEQPACKET socket: a receiver's batch of 32 slots; the arrays (2.5 KiB) are
/// written for each call.
pub const SEQPACKET_BATCH_MAX: usize = 32;

/// How long a path goes without GSO once the kernel refused a train whose segments it took one by one. Routes and
/// devices seldom change back sooner, and a retry costs one failed call.
pub const GSO_BACKOFF: Duration = Duration::from_secs(60);

/// Most paths of one socket that are remembered as being without GSO; the oldest is forgotten first and costs one
/// failed call when it is used again. Each is looked up linearly, only while there is any.
pub(crate) const STEPPED_DOWN_PATHS_MAX: usize = 64;

/// Slots of one batch that are lent out before its owner should copy, 16 MiB: pieces of streams behind a gap pin the
/// slot that they came in until the gap is filled.
pub(crate) const LENT_SLOTS_MAX: usize = 256;

/// Lent slots that a receive looks at: more than it can lend itself, in the batch of a QUIC socket, so that those which
/// came back are found.
pub(crate) const LENT_LOOKS: usize = 16;

/// Most events that one wait returns; the rest comes with the next one.
pub(crate) const EVENTS_MAX: usize = 256;

/// What UDP super-packets that wait in one queue of a TUN device may amount to, in units of 4 KiB: 2 MiB, what a shard
/// carries in some 5 ms, and half of 1,024 places, however small they are.
pub const TUN_FLOOD_UNITS_MAX: u32 = 512;

/// How many places a reordered datagram falls back at most, in a faulty socket.
pub(crate) const REORDER_SPAN: u64 = 3;

/// Most calls that a delayed datagram waits in a faulty socket.
pub(crate) const DELAY_CALLS_MAX: u64 = 4;

/// Slots of the batch by which a faulty socket reads the real one.
pub(crate) const FAULTY_BATCH_SLOTS: usize = 8;

/// Most datagrams that a faulty socket holds back per direction; those beyond it wait in the kernel.
pub(crate) const FAULTY_HELD_MAX: usize = 4096;

const _: () = assert!(CONTROL_BYTES >= 24 + 24 + 24 + 40 + 32 + 24);
// A transparent socket has one IP version: segment size, traffic class, packet information, the address that the
// datagram is for, and the drop count.
const _: () = assert!(CONTROL_BYTES >= 24 + 24 + 40 + 48 + 24);
const _: () = assert!(TRAIN_BYTES_MAX < SLOT_BYTES_MAX);

/// A message between processes, in bytes. The kernel's default buffer of a Unix socket has twice as much room.
pub const LANE_MESSAGE_BYTES_MAX: usize = 96 << 10;

/// Descriptors that travel with one message, of which the kernel allows 253 (`SCM_MAX_FD`).
pub const LANE_DESCRIPTORS_MAX: usize = 128;
