//! Every bound of the front door, with its unit and its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes of a ClientHello message at most (QR1-6): a browser's with a post-quantum share has 1.8 KB.
pub const HELLO_BYTES_MAX: usize = 16 << 10;

/// Largest UDP payload that is read, in bytes: what one IPv4 packet holds.
pub const UDP_PAYLOAD_MAX: usize = packet::UDP_PAYLOAD_MAX;

/// Bytes of a connection ID in QUIC version 1 (RFC 9000 section 17.2).
pub const CONNECTION_ID_BYTES_MAX: usize = 20;

/// Bytes of the destination connection ID that a client begins with, at least (RFC 9000 section 7.2).
pub const FIRST_ID_BYTES_MIN: usize = 8;

/// Bytes of a datagram with an Initial of a client, at least (RFC 9000 section 14.1).
pub const INITIAL_DATAGRAM_BYTES_MIN: usize = 1_200;

/// Initials that a hello may come in (QR1-6): a browser's takes two.
pub const HELLO_INITIALS_MAX: usize = 4;

/// Pieces of a hello that may wait with gaps between them: a browser cuts each of two packets into up to twelve.
pub const HELLO_PIECES_MAX: usize = 64;

/// Keys that a server answers to at once (QR1-1): the present and the previous one.
pub const SERVER_KEYS_MAX: usize = 2;

/// Handshakes that are taken over and filtered at once, in a shard: more than begin in [`HANDSHAKE_GUARD_TIME`] with a
/// link.
pub const HANDSHAKES_MAX: usize = 1_024;

/// How long Initials of a handshake are filtered: longer than QUIC reads any, which it does until the handshake is
/// complete or given up.
pub const HANDSHAKE_GUARD_TIME: Duration = Duration::from_secs(10);

/// How far a client's clock may be off (QR1-9).
pub const CLOCK_WINDOW: Duration = Duration::from_secs(120);

/// The same where a server's owner allows more, at most (QR1-9).
pub const CLOCK_WINDOW_MAX: Duration = Duration::from_secs(600);

/// Tags of accepted hellos that are remembered (QR1-10): 27 a second over four windows of ten minutes, or 136 over four
/// of two; some 3 MB.
pub const REPLAY_TAGS_MAX: usize = 65_536;

/// Length of the file of a replay window, in bytes: all tags, and as many that were appended since it was written.
pub const REPLAY_FILE_BYTES_MAX: usize = 2 * REPLAY_TAGS_MAX * 24 + 64;

/// Strangers' flows to the cover, in all shards (QR1-25); each has a socket and some 300 bytes here.
pub const FLOWS_MAX: usize = 4_096;

/// A flow ends after so long a silence while its client has sent nothing but its first flight (QR1-25).
pub const FLOW_IDLE_TIME_AT_FIRST: Duration = Duration::from_secs(15);

/// The same of a client that was heard after an answer (QR1-25): longer than QUIC servers keep idle connections.
pub const FLOW_IDLE_TIME: Duration = Duration::from_secs(180);

/// Flows that begin in a second, in all shards: each costs a socket. What comes beyond it is dropped.
pub const NEW_FLOWS_PER_SECOND: u32 = 1_000;

/// The same from one prefix (IPv4 /24, IPv6 /56): a large household that opens a browser.
pub const NEW_FLOWS_PER_PREFIX_PER_SECOND: u32 = 64;

/// Hellos that are begun to be read in a second, in all shards (QR1-12): each costs some 0.2 ms.
pub const HELLOS_PER_SECOND: u32 = 500;

/// The same from one prefix (QR1-12).
pub const HELLOS_PER_PREFIX_PER_SECOND: u32 = 32;

/// How long datagrams of an incomplete hello wait (QR1-13): packets of one flight are closer together.
pub const HELLO_HOLD_TIME: Duration = Duration::from_millis(5);

/// How long an incomplete hello is read on after that (QR1-13): until a client repeats what was lost.
pub const HELLO_READING_TIME: Duration = Duration::from_secs(1);

/// How long the replay window and its file may take; beyond that the connection is the cover's.
pub const RECORD_TIME_MAX: Duration = Duration::from_millis(500);

/// How long a cover's answer to a hello is waited for at most (QR1-29): a cover that takes longer is far away.
pub const COVER_DELAY_MAX: Duration = Duration::from_millis(400);

/// Bytes of datagrams that wait, in all shards: more than the hellos of [`HELLO_READING_TIME`] in two datagrams each.
pub const HELD_BYTES_MAX: usize = 2 << 20;

/// Bytes of one of them: an Ethernet frame's worth, with jumbo frames.
pub const HELD_DATAGRAM_BYTES_MAX: usize = 9_000;

/// Datagrams of one client that wait for its take-over.
pub const FLOW_DATAGRAMS_HELD_MAX: usize = 16;

/// Datagrams of the cover that wait meanwhile: what it sends to an address that is not proved.
pub const FLOW_ANSWERS_HELD_MAX: usize = 16;

/// How much more is sent to an address that is not proved than came from it (QR1-24; RFC 9000 section 8.1).
pub const AMPLIFICATION_MAX: u64 = 3;

/// Bytes of a cover's first datagram to such an address, whatever came from it: some servers make the challenge to a
/// client that has moved as long as a handshake's packets, against RFC 9000 section 8.2.1.
pub const FIRST_ANSWER_BYTES_MAX: usize = 1_500;

const _: () = assert!(HELD_BYTES_MAX >= HELLOS_PER_SECOND as usize * 2 * 1_500);
const _: () = assert!(FLOW_DATAGRAMS_HELD_MAX > HELLO_INITIALS_MAX);

/// Bytes of each CRYPTO stream that a cover may send while it is examined: several times what long certificate chains
/// take.
pub const FLIGHT_BYTES_MAX: u64 = 64 << 10;

/// Pieces of such a stream that wait for others.
pub const FLIGHT_PIECES_MAX: usize = 64;

/// Packets of one level, and datagrams in all, that are looked at in one visit to a cover.
pub const FLIGHT_PACKETS_MAX: usize = 128;

/// Versions that a cover may list.
pub const VERSIONS_MAX: usize = 64;

/// How long a visit to a cover may take.
pub const VISIT_TIME_MAX: Duration = Duration::from_secs(10);

/// A hello that gets no answer is repeated after so long, then after twice that time: RFC 9002 section 6.2.2 has three
/// times a round trip of a third of a second.
pub const HELLO_REPEAT: Duration = Duration::from_secs(1);

/// How often a hello is repeated.
pub const HELLO_REPEATS_MAX: u32 = 2;

/// Where a cover sends nothing for so long in the middle of its flight, it may wait for acknowledgements.
pub const FLIGHT_QUIET: Duration = Duration::from_millis(150);

/// What a cover sends of its own accord behind its handshake comes within this time, and before its timers fire.
pub const FLIGHT_SETTLED: Duration = Duration::from_millis(50);

/// Bytes of the connection IDs of a server with a cover: what finds the shard takes eight.
pub const COVER_ID_BYTES: RangeInclusive<usize> = 8..=CONNECTION_ID_BYTES_MAX;

/// A cover that is further away delays strangers by more than a network of its own would.
pub const COVER_ROUND_TRIP_FAR: Duration = Duration::from_millis(40);

/// Bytes of a cover's Certificate message that one of ours can have, too: from a certificate with little but the proof
/// to several times what a browser meets.
pub const COVER_CERTIFICATE_BYTES: RangeInclusive<usize> = 480..=32 << 10;

// A visit lasts until its last hello had its time.
const _: () = assert!(HELLO_REPEAT.as_secs() * ((2 << HELLO_REPEATS_MAX) - 1) < VISIT_TIME_MAX.as_secs());
