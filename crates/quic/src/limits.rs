//! Every bound of a shard's QUIC, with its unit and its reason.

use std::time::Duration;

/// Smallest UDP payload that every QUIC path carries, in bytes (RFC 9000 section 14).
pub const UDP_PAYLOAD_MIN: u16 = 1_200;

/// UDP payload of a browser's first packets over IPv4 and IPv6, in bytes; of its Initial packets, too.
pub const BROWSER_PAYLOADS: [u16; 2] = [1_250, 1_230];

/// Largest UDP payload that we ever send or take, in bytes: what one IPv4 packet holds.
pub const UDP_PAYLOAD_MAX: u16 = packet::UDP_PAYLOAD_MAX as u16;

/// Bytes of our connection IDs where nothing else is asked for: uniform and long enough that collisions do not happen.
pub const CONNECTION_ID_BYTES: usize = 8;

/// Bytes of a connection ID at most (RFC 9000 section 17.2).
pub const CONNECTION_ID_BYTES_MAX: usize = 20;

/// A handshake that is not complete after this is given up: three times what one with two lost packets takes at 300 ms.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(3);

/// A Retry token proves an address for so long, by the system's clock: longer than a machine that is overloaded stands
/// still between a Retry and its answer, and no time in which addresses change hands.
pub const RETRY_TOKEN_LIFETIME: Duration = Duration::from_secs(120);

/// A peer without a valid token is closed after this.
pub const AUTHENTICATION_DEADLINE: Duration = Duration::from_secs(10);

/// Request streams that a peer may have open before its token was seen.
pub const UNAUTHENTICATED_STREAMS: u32 = 4;

/// Bytes of stream data that a peer may send before its token was seen.
pub const UNAUTHENTICATED_CREDIT_BYTES: u32 = 64 << 10;

/// Bytes on streams after which a peer that still has no more than that credit wants more: so few that the rest lasts
/// until more has been granted, also where the round trip is long.
pub const CREDIT_WANTED_BYTES: u32 = UNAUTHENTICATED_CREDIT_BYTES / 8;

/// What a peer without a valid token may keep in memory by packets of streams and handshakes, in bytes: its handshake, and
/// its credit twice, in packets of ordinary size. What comes beyond it is dropped.
pub const STRANGER_BYTES_MAX: usize = 128 << 10;

/// The same for all of them together, in bytes: 24 KiB for each of [`STRANGERS_MAX`]. Beyond it the one that keeps the most
/// is ended.
pub const STRANGERS_BYTES_MAX: usize = 24 << 20;

/// What a packet that is kept costs besides its bytes, in bytes: the allocator's header and the reference count.
pub const KEPT_PACKET_BYTES: usize = 64;

/// What a frame costs that is kept apart from others, in bytes: its entry in a heap that may have grown to twice its size.
pub const KEPT_FRAME_BYTES: usize = 128;

/// Connection IDs of authenticated peers that are remembered, by shard; 64 KiB. The packets of one that had to make room
/// are copied once more.
pub const TRUSTED_IDS_MAX: usize = 8_192;

/// What limits the rate of a peer is judged over at least so much time, and over two round trips: what a program can act
/// on, and not what the turns of single trains are.
pub const CONGESTION_SPAN_MIN: Duration = Duration::from_millis(100);

/// The path begins to limit the rate where this many attempts to send were held back for each one that found nothing.
pub const CONGESTION_HELD_BACK_SHARE: u64 = 4;

/// Unidirectional streams of a peer: HTTP/3's control and two QPACK streams, and room for unknown types that are
/// refused (RFC 9114 section 6.2 asks for at least three).
pub const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// Request streams that an authenticated peer may have open: UDP sessions and TCP connections together.
pub const AUTHENTICATED_STREAMS: u32 = 16_384;

/// Request streams that an authenticated peer may have open at first; doubled whenever half of them are. quinn-proto
/// makes room for all that are allowed: 16,384 cost 1.4 MB for each connection.
pub const AUTHENTICATED_STREAMS_AT_FIRST: u32 = 256;

/// Bidirectional and unidirectional streams that an end among peers may have open before it has opened one: quinn-proto
/// keeps up to 68 bytes for each, also of a peer that never uses them. Its tables hold three and seven streams in half of
/// the memory that four and eight take.
pub const PEER_STREAMS_UNUSED: [u32; 2] = [3, 4];

/// The same from the first one on; doubled whenever half of them are open.
pub const PEER_STREAMS_AT_FIRST: u32 = 32;

/// Streams of each direction that an end among peers may have open: a message that fits no packet takes one.
pub const PEER_STREAMS: u32 = 1_024;

/// Bytes in flight between peers on a local path, where the round trip tells little of queues: a millisecond of what a
/// processor carries, so that a small message does not wait behind more. A tunnel's flows have senders of their own that
/// answer delay.
pub const PEER_LOCAL_WINDOW_BYTES: u64 = 3 << 19;

/// Receive window of one stream, in bytes: what arrives at 100 Mbit/s while a packet that was lost twice on a path of
/// 250 ms is repeated; a lost packet is noticed half a round trip late, and everything after it waits here.
pub const STREAM_WINDOW_BYTES: u32 = 16 << 20;

/// The same at most, of peers whose program asks for more ([`crate::PeerParameters::stream_window_bytes`]): what
/// arrives at 1 Gbit/s while a packet is repeated on a path of 200 ms, twice over.
pub const STREAM_WINDOW_BYTES_MAX: u32 = 64 << 20;

/// Receive window of a connection, in bytes, whose streams have windows of so many, with so many stalled readers.
#[must_use]
pub const fn connection_window_bytes(stream_window_bytes: u32, standing_readers: u32) -> u32 {
    (2 + standing_readers) * stream_window_bytes
}

/// Receive window of an authenticated connection, in bytes, while all its streams are read: what two of them fill.
pub const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;

/// Most streams with a stalled reader for which the connection's window grows, by a stream's window each, so that the others
/// go on. It never shrinks: a peer that has used credit which is withdrawn would be blocked.
pub const STANDING_READERS_MAX: u32 = 4;

/// Receive window of a connection at most, in bytes: what its peer can pin.
pub const CONNECTION_WINDOW_BYTES_MAX: u32 =
    CONNECTION_WINDOW_BYTES + STANDING_READERS_MAX * STREAM_WINDOW_BYTES;

/// Unacknowledged stream bytes that we keep for retransmission, per connection; of peers as many as a stream's window.
pub const SEND_WINDOW_BYTES: u64 = 16 << 20;

/// The same beyond it, of what does not wait for the rest.
pub const WRITE_AHEAD_BYTES: u64 = 4 << 10;

/// Datagrams inside quinn-proto towards the caller, in bytes with 32 bytes of bookkeeping each. We drain after every
/// received message of at most 64 KiB; the shortest DATAGRAM frame takes two bytes, so this never overflows.
pub const DATAGRAM_RECEIVE_BYTES: usize = (64 << 10) / 2 * 32 + (64 << 10) + 1;

/// Datagrams inside quinn-proto towards the network, in bytes with 32 bytes of bookkeeping each: one train, whatever
/// the size of its datagrams.
pub const DATAGRAM_SEND_BYTES: usize = 4 << 20;

/// Trains that one connection sends before the driver looks at its sockets again.
pub const TRAINS_PER_FLUSH: usize = 4;

/// Trains in an outbox: what goes into one sendmmsg call.
pub const OUTBOX_TRAINS: usize = 16;

/// How long a path is taken to carry small packets only after larger ones were lost alone (RFC 8899 section 4.3): overload at
/// a receiver may look the same, and a look costs a few probes.
pub const BLACK_HOLE_COOLDOWN: Duration = Duration::from_secs(5);

/// A connection without traffic is given up after this.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Shortest that peers may choose: below it, a processor that is busy would end connections.
pub const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// Least pause before the end of a connection is said again to a peer that does not answer; one and a half round trips
/// are added, and it doubles with each time.
pub const CLOSE_REPEAT_MIN: Duration = Duration::from_millis(1);

/// A client sends a keep-alive after this much silence: below common NAT timeouts for UDP.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Reordering that is not yet loss, in packets: one full train (RFC 9002 section 6.1.1 allows more than three).
pub const PACKET_THRESHOLD: u32 = 64;

/// Reordering that is not yet loss, in round trips (RFC 9002 section 6.1.2 recommends 9/8).
pub const TIME_THRESHOLD: f32 = 1.5;

/// Round trip assumed before the first measurement: a lost first packet is repeated after three of it, where RFC 9002
/// section 6.2.2 would wait a second; a handshake answers for its own congestion.
pub const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(100);

/// Records of departures that a connection's congestion controller keeps: two seconds of trains at 8,000 a second.
pub const DEPARTURES_MAX: usize = 16_384;

/// How long such a record is kept where nothing was heard of its packets: longer than the longest round trip.
pub const DEPARTURE_MEMORY: Duration = Duration::from_secs(5);

/// Connections without a valid token from one prefix (IPv4 /24, IPv6 /56); addresses that have not answered a Retry get
/// half of it.
pub const STRANGERS_PER_PREFIX: usize = 64;

/// Connections without a valid token altogether; addresses that have not answered a Retry get half of it.
pub const STRANGERS_MAX: usize = 1_024;

/// Part of [`STRANGERS_MAX`] that only prefixes have from which a valid token came within [`KNOWN_PREFIX_TIME`].
pub const STRANGERS_RESERVED: usize = STRANGERS_MAX / 4;

/// How long it is remembered that a valid token came from a prefix: whoever works every day finds room every morning.
pub const KNOWN_PREFIX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Prefixes of which that is remembered; the one that showed a token longest ago goes first.
pub const KNOWN_PREFIXES_MAX: usize = 1_024;

/// New connections that wait for the caller's decision: more than come in a second without proof of their address. They
/// count as connections without a token, too.
pub const UNDECIDED_MAX: usize = STRANGERS_MAX / 4;

/// First datagrams of new connections that wait for the caller's decision, in bytes: [`UNDECIDED_MAX`] of ordinary size.
pub const UNDECIDED_BYTES_MAX: usize = 512 << 10;

/// A new connection that was not decided on is ignored after this: room for a question to another machine, and less than a
/// client waits before it gives up.
pub const UNDECIDED_TIME_MAX: Duration = Duration::from_secs(2);

/// A timer of a peer's connection that is overdue by more than this shows that the process was stopped, or whoever drives it:
/// longer than a busy machine is late.
pub const STOPPED_TIME: Duration = Duration::from_secs(1);

/// How long after a stop what is read may have waited since before: longer than it takes to empty the socket.
pub const RESUMED_TIME: Duration = Duration::from_millis(100);

/// How long the rest of a new connection's first flight is dropped after the caller did not accept it: longer than a flight
/// takes to arrive, and shorter than a client waits before it repeats it.
pub const TURNED_DOWN_TIME: Duration = Duration::from_millis(200);

/// New connections that were not accepted and whose first flights are dropped; the oldest goes first.
pub const TURNED_DOWN_MAX: usize = 256;

/// Answers to new connections that wait for the next flush; beyond it they are left out, as any packet may be lost.
pub const ANSWERS_MAX: usize = 64;

/// New connections per second above which addresses are validated by Retry first (RFC 9000 section 8.1.2).
pub const RETRY_ABOVE_PER_SECOND: u32 = 200;

/// Stateless resets per second: all clients of a full server hear within 16 s that it restarted.
pub const RESETS_PER_SECOND: u32 = 1_024;

/// Stateless resets per second towards one prefix (IPv4 /24, IPv6 /56).
pub const RESETS_PER_PREFIX_PER_SECOND: u32 = 64;

/// Connections, authenticated or not.
pub const CONNECTIONS_MAX: usize = 16_384;

/// Initial packets of one connection that wait while it is being accepted, in bytes.
pub const INCOMING_BUFFER_BYTES: u64 = 64 << 10;

/// Age at which a server behind a cover makes a new key for its certificates.
pub const CERTIFICATE_KEY_TIME: Duration = Duration::from_secs(60 * 60);

/// Bytes of a Certificate message that a server behind a cover sends at most.
pub const CERTIFICATE_MESSAGE_BYTES_MAX: usize = *reality::limits::COVER_CERTIFICATE_BYTES.end();

/// Reasons under which a classifier's drops are counted: more than anybody reads.
pub const CLASSIFIER_REASONS_MAX: usize = 32;

/// Handshake bytes that a peer may send out of order, per packet space (RFC 9000 section 7.5 asks for 4,096).
pub const CRYPTO_BUFFER_BYTES: usize = 16 << 10;

/// Characters of a peer's reason for the end of a connection that are kept: a line of a log, whatever the peer sends.
pub const CLOSE_REASON_CHARACTERS_MAX: usize = 200;

/// Packets, and time, after which a peer acknowledges at the latest in the `throughput` profile: rarely, because datagrams
/// are not repeated, and often enough for a pacer at 250 Mbit/s.
pub const ACKNOWLEDGED_THROUGHPUT: (u32, Duration) = (63, Duration::from_millis(2));

/// The same in the `latency` profile: a queue of two milliseconds is seen at once.
pub const ACKNOWLEDGED_LATENCY: (u32, Duration) = (3, Duration::from_millis(1));

const _: () = assert!(STRANGER_BYTES_MAX >= 2 * UNAUTHENTICATED_CREDIT_BYTES as usize);
const _: () = assert!(UNAUTHENTICATED_CREDIT_BYTES <= STREAM_WINDOW_BYTES);
const _: () = assert!(AUTHENTICATED_STREAMS_AT_FIRST <= AUTHENTICATED_STREAMS);
const _: () = assert!(PEER_STREAMS_UNUSED[1] <= PEER_STREAMS_AT_FIRST);
const _: () = assert!(PEER_STREAMS_AT_FIRST <= PEER_STREAMS);
const _: () = assert!(UNDECIDED_MAX * 1_500 <= UNDECIDED_BYTES_MAX);
const _: () = assert!(UNDECIDED_MAX >= RETRY_ABOVE_PER_SECOND as usize);
const _: () = assert!(HANDSHAKE_TIME_MAX.as_millis() <= AUTHENTICATION_DEADLINE.as_millis());
const _: () = assert!(STREAM_WINDOW_BYTES as u64 == SEND_WINDOW_BYTES);
const _: () = assert!(STREAM_WINDOW_BYTES <= STREAM_WINDOW_BYTES_MAX);
const _: () = assert!(connection_window_bytes(STREAM_WINDOW_BYTES, 0) == CONNECTION_WINDOW_BYTES);
const _: () = assert!(
    connection_window_bytes(STREAM_WINDOW_BYTES, STANDING_READERS_MAX) == CONNECTION_WINDOW_BYTES_MAX
);
const _: () = assert!(DATAGRAM_SEND_BYTES >= 64 * 65_535 / 64 * 33);
const _: () = assert!(CONNECTION_WINDOW_BYTES_MAX <= 96 << 20);
