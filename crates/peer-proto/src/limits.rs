//! Every bound of messages between peers, with its unit and its reason.

use std::time::Duration;

// Given by specs/peer.md.

/// Characters of a peer ID: 32 bytes in base32.
pub const PEER_ID_CHARACTERS: usize = 52;

/// Application protocol (PEER-2).
pub const PROTOCOL: &[u8] = b"gramway-peer/1";

/// Numbers that a receiver remembers: 8 KiB where all of them have gaps, and half a second of full packets at 1.5
/// Gbit/s.
pub const WINDOW_NUMBERS: u64 = 65_536;

/// Ordered channels of one connection and direction.
pub const CHANNELS_MAX: usize = 256;

/// Keys of latest values of one connection and direction: 300 KiB at the receiver.
pub const KEYS_MAX: usize = 4_096;

/// Ranges of an ACK besides the first: it stays below 600 bytes.
pub const ACK_RANGES_MAX: usize = 64;

/// How long an acknowledgement waits for more to acknowledge.
pub const ACK_DELAY: Duration = Duration::from_millis(2);

/// Frames after which an acknowledgement waits no longer.
pub const ACK_AFTER: u32 = 64;

/// Credit before the first acknowledgement: what 64 KiB of room takes of the smallest full packets.
pub const FIRST_CREDIT: u64 = 64;

/// Longest message, in bytes, unless configured otherwise.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

// Chosen.

/// Bytes of messages that wait or are under way to one peer: 100 ms at 1 Gbit/s. One longer message is taken
/// besides.
pub const SEND_BYTES_MAX: usize = 16 << 20;

/// What a message costs in [`SEND_BYTES_MAX`] and [`RECEIVE_BYTES_MAX`] besides its body, in bytes: its entries in
/// our tables.
pub const MESSAGE_COST_BYTES: usize = 128;

/// Bytes of received messages that the program has not read, that wait for others, or that are incomplete, of one
/// peer: each of the first two and the third for themselves. One message may go beyond it. A peer takes no more than
/// what is left of [`ENDPOINT_RECEIVE_BYTES_MAX`], so that some is left for every other.
pub const RECEIVE_BYTES_MAX: usize = 16 << 20;

/// The same of all peers of a socket together, those whose connections have ended included: sixteen peers whose
/// messages nobody reads.
pub const ENDPOINT_RECEIVE_BYTES_MAX: usize = 256 << 20;

/// What a peer may take beyond both when its connection ends, in bytes: complete messages that waited in QUIC for room.
/// It was in memory before. It is more than the windows of any endpoint hold: the largest that a stream may have, and
/// those that an engine gives while its readers stand still, which connections between peers never have.
pub const REST_BYTES_MAX: usize = RECEIVE_BYTES_MAX
    + quic::limits::connection_window_bytes(
        quic::limits::STREAM_WINDOW_BYTES_MAX,
        quic::limits::STANDING_READERS_MAX,
    ) as usize;

/// What each peer may take beyond it, in bytes: messages of the first credit. A peer that the program has not accepted
/// yet takes no more than this in any case.
pub const RECEIVE_BYTES_RESERVED: usize = 64 << 10;

/// What QUIC may keep of peers that connected to us, together, in bytes: streams that nobody has read, and messages
/// that wait for room. One that sends more than [`quic::limits::CREDIT_WANTED_BYTES`] on streams has a whole window of
/// it ([`WINDOW_BYTES`]) until its connection has ended and all that came is read: 128 of them. The others have a
/// stranger's 64 KiB.
pub const ACCEPTED_WINDOW_BYTES_MAX: usize = 4 << 30;

/// What QUIC may keep of one peer, in bytes, unless its streams have larger windows
/// ([`crate::Parameters::stream_window_bytes`]). It is more than the sender of messages has under way
/// ([`SEND_BYTES_MAX`], and a stream's window of a longer one), so that messages which wait for others leave room for
/// those.
pub const WINDOW_BYTES: usize = quic::limits::CONNECTION_WINDOW_BYTES as usize;

/// How long an incomplete message stands still at least before an end that is short of room refuses it: as long as a
/// connection lives in silence.
pub const STALLED_TIME: Duration = quic::limits::IDLE_TIMEOUT;

/// A message of which fewer bytes came within that time stands still: 17 kbit/s.
pub const STALLED_BYTES: usize = 64 << 10;

/// Longest body that is always copied out of its packet, in bytes: to copy it costs less than to keep the packet.
pub const COPIED_BYTES_MAX: usize = 256;

/// Ended messages that stay in the queues of a sender beyond as many as live, so that taking them out costs little.
pub const STALE_MAX: usize = 1_024;

/// How long it is remembered what the interface towards an address carries: a route that changes is known to the next
/// connections after that, and the others find what passes.
pub const PAYLOAD_TIME: Duration = Duration::from_secs(1);

/// Addresses of which that is remembered; beyond it all are forgotten.
pub const PAYLOADS_MAX: usize = 1_024;

/// Addresses that a program names for one connection attempt.
pub const ADDRESSES_MAX: usize = 8;

/// Addresses of one connection attempt: the program's, and those that a rendezvous or checks name.
pub const CANDIDATES_MAX: usize = 24;

/// How long an address of a peer waits for the one before it: the pace of ICE (RFC 8445 section 14.2). RFC 8305 has
/// 250 ms, for servers whose addresses mostly work; those of peers behind routers mostly do not.
pub const CANDIDATE_INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of a check: a STUN header, and MESSAGE-INTEGRITY-SHA256 (RFC 8489 section 14.6).
pub const CHECK_BYTES: usize = 56;

/// When checks are sent to the addresses of a peer that is about to connect: its first packets come within two round
/// trips, and a router's mapping outlives the last check by far (RFC 4787 section 4.3 asks for two minutes).
pub const CHECK_DELAYS: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_millis(50),
    Duration::from_millis(150),
    Duration::from_millis(300),
    Duration::from_millis(600),
    Duration::from_millis(1_200),
    Duration::from_millis(2_400),
];

/// Peers that checks go to at the same time; calls beyond it are not answered.
pub const CHECKED_PEERS_MAX: usize = 64;

/// Peers whose addresses are remembered after the last check, so that what connects late still has several paths.
pub const MET_PEERS_MAX: usize = 256;

/// How long: as long as a caller waits for addresses.
pub const MET_TIME: Duration = Duration::from_secs(10);

/// Peers that are being connected and whose checks are looked for; those beyond it are connected by known addresses
/// alone.
pub const MEETINGS_MAX: usize = 256;

/// Bytes of a check of a path: with the number of the request (PEER-18).
pub const PATH_CHECK_BYTES: usize = 68;

/// Requests of a peer that are told from repeats: five rounds to all paths.
pub const PATH_CHECK_WINDOW: u32 = 128;

/// Addresses of one connection: as many as of its attempt.
pub const PATHS_MAX: usize = CANDIDATES_MAX;

/// Answers to checks that wait for the next flush, of one connection.
pub const PATH_ANSWERS_MAX: usize = 32;

/// How long direct addresses have before a relayed one is begun: a direct path over 100 ms is ready sooner, and a pair
/// that needs the relay still meets within a second.
pub const RELAY_DELAY: Duration = Duration::from_millis(400);

/// Pause after the first search for a better path, in which routers on both sides open; it doubles up to the longest.
pub const SEARCH_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between searches: 24 checks of 68 bytes.
pub const SEARCH_PAUSE_MAX: Duration = Duration::from_secs(30);

/// How long a relayed connection is searched for a direct path, after its beginning and after each new address.
pub const SEARCH_TIME_MAX: Duration = Duration::from_secs(600);

/// How long nothing comes on a path where an answer is due before it is in doubt, or three round trips. A processor
/// that is busy holds an answer back for some 100 ms.
pub const SILENCE_MIN: Duration = Duration::from_millis(500);

/// The same in round trips.
pub const SILENCE_ROUND_TRIPS: u32 = 3;

/// Pause after the first checks of a path in doubt; it doubles up to the longest.
pub const DOUBT_PAUSE: Duration = Duration::from_millis(100);

/// Longest pause between checks of a path in doubt: the connection ends after 30 seconds (RFC 9000 section 10.1).
pub const DOUBT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A path in doubt has this long to answer, or two round trips, before another one that has answered takes its place.
pub const DOUBT_TIME_MIN: Duration = Duration::from_millis(250);

/// A path that was left is taken again after as many answered checks in a row more as it was left lately, at most.
pub const FALLS_MAX: u32 = 3;

/// A path that was used this long without a doubt is as good as one that was never left.
pub const FALLS_FORGOTTEN: Duration = Duration::from_secs(60);

/// A path in doubt for so long that no other one takes its place has the peers met again; the pause doubles up to the
/// longest.
pub const MEETING_PAUSE: Duration = Duration::from_secs(1);

/// Longest pause between two meetings of a connection.
pub const MEETING_PAUSE_MAX: Duration = Duration::from_secs(16);

/// Longest head of a MESSAGE on a stream, in bytes: type, five fields of at most eight bytes, length.
pub const STREAM_HEAD_BYTES_MAX: usize = 1 + 6 * 8;

/// Bytes from which several frames are cut, so that one allocation serves many messages.
pub const ARENA_BYTES: usize = 16 << 10;

/// Bytes that an incomplete message reserves beyond what has come: whoever announces much gets no memory for words.
pub const RESERVE_BYTES_MAX: usize = 256 << 10;

/// A message counts as lost when one that was sent later is acknowledged and this many eighths of a round trip
/// passed, plus [`ACK_DELAY`]: QUIC's own threshold here is 1.5 round trips.
pub const LOSS_ROUND_TRIP_EIGHTHS: u32 = 12;

/// Shortest time to declare a message lost: an acknowledgement on a busy machine is late by a scheduler's slice.
pub const LOSS_TIME_MIN: Duration = Duration::from_millis(10);

/// Added to two round trips where nothing sent later is acknowledged: a peer's late acknowledgement.
pub const PROBE_SLACK: Duration = Duration::from_millis(50);

/// Doublings of the probe timeout while nothing is acknowledged, up to 8 times: QUIC's congestion control bounds what
/// leaves.
pub const PROBE_DOUBLINGS_MAX: u32 = 3;

const _: () = assert!(FIRST_CREDIT as usize * 1_024 <= RECEIVE_BYTES_RESERVED);
const _: () = assert!(RECEIVE_BYTES_RESERVED <= RECEIVE_BYTES_MAX);
const _: () = assert!(RECEIVE_BYTES_MAX <= ENDPOINT_RECEIVE_BYTES_MAX);
const _: () = assert!(SEND_BYTES_MAX + quic::limits::STREAM_WINDOW_BYTES as usize <= WINDOW_BYTES);
const _: () = assert!(ACK_AFTER as u64 <= FIRST_CREDIT);
