//! Every limit of this crate, with its unit and reason; those that the system or QUIC fixes apart from those we chose.

use std::time::Duration;

// Fixed by the system or by QUIC.

/// Longest path of a socket, in bytes: `sun_path` less the closing zero byte that other programs rely on.
pub const PATH_BYTES_MAX: usize = if cfg!(any(target_os = "linux", target_os = "android")) {
    107
} else {
    103
};

/// Longest datagram that QUIC can announce, in bytes (RFC 9000 section 18.2, `max_udp_payload_size`).
pub const DATAGRAM_BYTES_MAX: u16 = 65_527;

/// Shortest datagram size that QUIC can do with, in bytes (RFC 9000 section 14).
pub const DATAGRAM_BYTES_MIN: u16 = 1_200;

/// Length of the connection IDs that both sides choose, in bytes: noq's default.
pub(crate) const CONNECTION_ID_BYTES: usize = 8;

/// Longest connection ID of a long header, in bytes (RFC 9000 section 17.2).
pub(crate) const CONNECTION_ID_BYTES_MAX: usize = 20;

// Chosen.

/// Datagram size by default, in bytes: with the kernel's own 320 bytes it fills one 32 KiB allocation.
///
/// Medians of 16 alternated runs (messages: 7) of the example `measure` for 16,064 / 32,448 / 65,216 bytes, two cores
/// of an AMD EPYC: 1.8 / 2.1 / 2.1 GB/s in one QUIC stream, 1.5 / 1.4 / 1.4 GB/s in 1 MiB messages, 1.33 / 1.29 / 1.36
/// million messages a second in one stream, 7.2 / 6.4 / 7.4 thousand calls a second one at a time and 120 / 111 / 127
/// thousand 32 at a time, the last four rows within the scatter of their runs. So it is the smallest with the full rate
/// of a stream, and a receive batch of 32 stays at 1 MiB.
pub const DATAGRAM_BYTES_DEFAULT: u16 = 32_448;

/// Permission bits of the socket file by default: its owner alone may connect.
pub const MODE_DEFAULT: u32 = 0o600;

/// Connections that may wait to be accepted, by default; the kernel caps it at `net.core.somaxconn` (4,096).
pub const BACKLOG_DEFAULT: u32 = 1_024;

/// Most clients at once by default: far below the usual limit on open files of a service (65,536), and with
/// [`CONNECTION_WINDOW_BYTES`] and [`STREAMS_MAX`] the bound on what all clients together can make a server hold.
pub const PEERS_MAX_DEFAULT: usize = 4_096;

/// Streams that a peer may have open in each direction.
pub const STREAMS_MAX: u32 = 16_384;

/// Bytes that a peer may send on one stream beyond what was read: 32 datagrams of the default size.
pub const STREAM_WINDOW_BYTES: u32 = 1 << 20;

/// Bytes that a peer may send on all its streams beyond what was read.
pub const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Bytes that a connection holds until the peer acknowledges them.
pub const SEND_WINDOW_BYTES: u32 = 16 << 20;

/// Bytes of unreliable datagrams that wait for the application, in each direction.
pub(crate) const DATAGRAM_QUEUE_BYTES: usize = 1 << 20;

/// Kernel memory asked for per direction of a socket, in bytes; an unprivileged process gets at most
/// `net.core.wmem_max`. It covers a few bursts of ten datagrams, so that both sides work at the same time.
pub(crate) const SOCKET_BUFFER_BYTES: usize = 2 << 20;

/// Pieces of one stream that noq holds unread before it gives the connection up ("too many gaps", though there is
/// none): it merges the pieces of sparse packets only.
const STREAM_PIECES_MAX: u32 = 1_024;

/// Packets with a shorter payload, in bytes, are made sparse on receipt. Those that stay as they are fill a stream's
/// window with half of the pieces that noq allows.
pub(crate) const SPARSE_PAYLOAD_BYTES: usize = (2 * STREAM_WINDOW_BYTES / STREAM_PIECES_MAX) as usize;

/// Datagrams that must fit a socket's buffer at once; the datagram size shrinks where they do not.
pub(crate) const DATAGRAMS_BUFFERED_MIN: usize = 2;

/// Most datagrams of one send: what noq hands over at once.
pub(crate) const SEGMENTS_MAX: usize = 10;

/// How long a server waits for the first datagram of a client that it accepted.
pub(crate) const SILENT_PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection attempt takes at most by default, the wait for room in the backlog included.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// First pause before another attempt to enter a full backlog; it doubles up to [`BACKLOG_PAUSE_MAX`].
pub(crate) const BACKLOG_PAUSE: Duration = Duration::from_millis(1);

/// Longest pause between two attempts to enter a full backlog.
pub(crate) const BACKLOG_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Pause of accepting when the process or the system has no file descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Clients accepted before established ones are served again.
pub(crate) const ACCEPTS_PER_TURN: usize = 16;

/// QUIC connections that one socket may carry: one, and one more for a client that starts again.
pub(crate) const CONNECTIONS_PER_PEER: usize = 2;

/// Datagrams of one peer that are received before the next peer's turn.
pub(crate) const RECEIVE_BATCH: usize = 32;

/// Rounds of the drivers in one turn before other tasks run; two suffice unless they wake each other.
pub(crate) const DRIVER_ROUNDS_MAX: usize = 8;

/// Longest spin that can be asked for.
pub const SPIN_MAX: Duration = Duration::from_micros(1_000);

/// Shortest spin that is worth its first look at the socket.
pub(crate) const SPIN_MIN: Duration = Duration::from_micros(5);

/// The round trip assumed before one was measured.
pub(crate) const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(5);

/// Longest handshake message, in bytes: transport parameters are about 100 bytes long.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 4_096;

/// Longest text of a refusal or of a closing reason, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 256;

/// Longest datagram that closes a connection in a peer's place, in bytes: it has a place in every receive buffer.
pub(crate) const CLOSING_BYTES_MAX: usize = DATAGRAM_BYTES_MIN as usize;

/// Bytes kept of the last long-header datagram of a peer, in which its last packet is looked for.
pub(crate) const HANDSHAKE_DATAGRAM_BYTES_KEPT: usize = 4_096;

/// Bytes kept of the last short-header datagram of a peer: first byte, connection ID, packet number.
pub(crate) const SHORT_HEADER_BYTES: usize = 1 + CONNECTION_ID_BYTES + 4;

const _: () = assert!(STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
const _: () =
    assert!(DATAGRAM_BYTES_DEFAULT <= DATAGRAM_BYTES_MAX && DATAGRAM_BYTES_DEFAULT >= DATAGRAM_BYTES_MIN);
const _: () =
    assert!(HANDSHAKE_DATAGRAM_BYTES_KEPT > REASON_BYTES_MAX + 2 * (1 + CONNECTION_ID_BYTES_MAX) + 32);
