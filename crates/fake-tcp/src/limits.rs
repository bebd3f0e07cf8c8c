//! Every bound of this crate: those that a specification or the kernel fixes first, then those we chose.

use std::time::Duration;

/// Bytes of an IP packet, and so of a super-segment with its headers (RFC 791; Linux `GSO_LEGACY_MAX_SIZE`).
pub const PACKET_BYTES_MAX: usize = 65_535;

/// Largest window scale (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

/// Bytes of TCP options at most: the data offset has four bits (RFC 9293 section 3.1).
pub const OPTION_BYTES_MAX: usize = 40;

/// Bytes of options in what we write: the salt and the tag of a hello (FTCP-24). Those of a SYN have 20.
pub const WRITTEN_OPTION_BYTES_MAX: usize = 4 + SALT_BYTES + TAG_BYTES;

/// Bytes of a tag of AES-GCM (NIST SP 800-38D section 5.2.1.2).
pub const TAG_BYTES: usize = 16;

/// Bytes of headers in what we write: IPv6, TCP and options.
pub const HEADER_BYTES_MAX: usize = 40 + 20 + WRITTEN_OPTION_BYTES_MAX;

/// Bytes of the length before a datagram (FTCP-21): more than any segment has.
pub const LENGTH_BYTES: usize = 2;

/// Bytes of the key that two ends have in common (FTCP-24).
pub const KEY_BYTES: usize = 32;

/// Bytes of the salt that each end adds for a connection: it never comes twice by chance.
pub const SALT_BYTES: usize = 16;

/// Bytes behind what was received up to which data still counts as late (FTCP-10). 16 MiB are 13 ms of
/// reordering at 10 Gbit/s; the smaller, the less a guesser hits.
pub const REORDER_BYTES_MAX: u32 = 16 << 20;

/// Received bytes after which an acknowledgement is sent (FTCP-12).
pub const UNACKNOWLEDGED_BYTES_MAX: u32 = 256 << 10;

/// How long received data may wait for an acknowledgement (FTCP-12); half of the second that the rule allows, the rest
/// is for timers of a busy machine.
pub const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(500);

/// Time between answers to segments outside of the window, for each connection (FTCP-15; Linux
/// `tcp_invalid_ratelimit`).
pub const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);

/// Time between answers to keep-alives of one connection (FTCP-13).
pub const KEEP_ALIVE_ANSWER_INTERVAL: Duration = Duration::from_millis(100);

/// Time until the first repetition of a SYN, SYN-ACK or FIN; it doubles with each (RFC 6298 section 2.1).
pub const RETRANSMISSION_TIME: Duration = Duration::from_secs(1);

/// SYNs, SYN-ACKs or FINs that are sent at most: at 0, 1 and 3 s, given up after 7 s.
pub const TRANSMISSIONS_MAX: u8 = 3;

/// Time between keep-alives that nobody answered (FTCP-13).
pub const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Keep-alives without an answer after which a connection is given up.
pub const PROBES_MAX: u8 = 3;

/// Time between probes of a window that is half full (FTCP-11): once a round trip of a near peer.
pub const WINDOW_PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// How long the addresses of a connection that ended are kept from those of the next (FTCP-17).
pub const QUARANTINE_TIME: Duration = Duration::from_secs(3);

/// How long a router's word about the MTU counts (RFC 1191 section 6.3).
pub const PATH_MTU_TIME: Duration = Duration::from_secs(600);

/// Connections of one worker, those that ended and are in quarantine included.
pub const CONNECTIONS_MAX: usize = 65_536;

/// Bytes that a connection takes at most, in all tables of a stack together, each of which may be half empty. With a
/// key it has some 2 KiB more, those of two expanded keys.
pub const CONNECTION_BYTES_MAX: usize = 1_152;

/// Connections that one customer's network ([`packet::customer_prefix`]) may have accepted at one worker.
pub const PREFIX_CONNECTIONS_MAX: u32 = 4_096;

/// Connections in quarantine; when there are more, the latest have none.
pub const QUARANTINED_MAX: usize = 4_096;

/// Half-open connections from which on a listener answers by SYN cookies, without keeping anything.
pub const HALF_OPEN_MAX: usize = 512;

/// SYN-ACKs of a listener in a second, to all and to one customer's network. A flood from forged addresses is
/// answered by no more packets than these.
pub const SYN_ANSWERS: (u32, u32) = (20_000, 2_000);

/// RSTs in a second for packets of no connection, to all and to one customer's network.
pub const RESETS: (u32, u32) = (1_000, 50);

/// Datagrams with lengths that a segment is read for (FTCP-21): of 64 bytes, as many as fill the longest. One that has
/// more is dropped: a single packet should not become tens of thousands.
pub const DATAGRAMS_OF_SEGMENT_MAX: usize = 1_024;

/// Segments without data that wait for [`crate::Stack::poll_segment`]. What exceeds it is lost, as on the way.
pub const WAITING_SEGMENTS_MAX: usize = 4_096;

/// Events that wait for [`crate::Stack::poll_event`]: two for each connection.
pub const WAITING_EVENTS_MAX: usize = 2 * CONNECTIONS_MAX;

/// How long a SYN cookie is valid at least; at most twice as long.
pub const COOKIE_SLOT: Duration = Duration::from_secs(64);

const _: () = assert!(HALF_OPEN_MAX + QUARANTINED_MAX < CONNECTIONS_MAX);
const _: () = assert!(PREFIX_CONNECTIONS_MAX as usize <= CONNECTIONS_MAX / 4);
