//! Every bound of the front door, with its unit and its reason.

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
