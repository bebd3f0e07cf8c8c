//! Every bound of the tunnel's pure part, with its unit and its reason.

use std::ops::Range;
use std::time::Duration;

/// A UDP session without traffic is closed after this; RFC 9298 section 3.1 says at least two minutes.
pub const UDP_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// A TCP connection of a server's that moves nothing is closed after this: as long as a NAT keeps it at least (RFC 5382,
/// REQ-5). Its target answers keep-alive probes, else it ends sooner.
pub const TCP_IDLE_TIMEOUT: Duration = Duration::from_secs((2 * 60 + 4) * 60);

/// Where all places for TCP connections are taken, the user who has most gives those up for its own new ones that have been
/// idle for so long: connections that people use move something sooner.
pub const TCP_YIELD_IDLE: Duration = Duration::from_secs(5 * 60);

/// Connections behind a cover that were recognised and not offered by QUIC so far, for one shard: QUIC offers them at once,
/// or not at all.
pub const EXPECTED_CONNECTIONS_MAX: usize = 64;

/// Datagrams that wait for one peer, in bytes: 6 ms at 2.5 Gbit/s.
pub const QUEUE_BYTES_MAX: usize = 2 << 20;

/// Datagrams of one peer, in bytes, above which its inner sockets are not read while QUIC still has something to send
/// at once: a batch of coalesced datagrams holds more than one flush sends, and what waits in a socket waits cheaper.
pub const QUEUE_INTAKE_BYTES: usize = 256 << 10;

/// How much of a peer's queue one flow may hold, in multiples of the room that is free: alone it takes three quarters, and
/// however many wait, one more finds room.
pub const FLOW_SHARES_OF_FREE_ROOM: usize = 3;

/// What a flow sends before the next one has its turn, in bytes: eight full packets, so that trains stay long; a millisecond
/// at 100 Mbit/s.
pub const FLOW_TURN_BYTES: usize = 12 << 10;

/// A delay in the queue above this, for [`STANDING_INTERVAL`], is too long for a flow that answers loss (RFC 8289 section
/// 4.3).
pub const STANDING_DELAY: Duration = Duration::from_millis(5);

/// About the longest round trip of ordinary paths (RFC 8289 section 4.2).
pub const STANDING_INTERVAL: Duration = Duration::from_millis(100);

/// Emptied flows of a peer whose memory is kept for the next ones, with at most [`SPARE_FLOW_ENTRIES`] datagrams of room.
pub const SPARE_FLOWS: usize = 64;

/// Datagrams that the memory of a spare flow has room for.
pub const SPARE_FLOW_ENTRIES: usize = 2_048;

/// A datagram that waited longer is worth nothing to those who use UDP.
pub const QUEUE_TIME_MAX: Duration = Duration::from_millis(50);

/// How long the last datagram of a flow may wait: most programs ask again after a second.
pub const ALONE_TIME_MAX: Duration = Duration::from_millis(500);

/// Round trips that the fragments of one payload may wait, where that is longer than [`QUEUE_TIME_MAX`]: a new
/// connection's window doubles with each, and the largest payload takes three of them.
pub const FRAGMENT_ROUND_TRIPS: u32 = 3;

/// Datagrams that wait for the tunnel to come up, in bytes, for all sessions of a client.
pub const WAITING_BYTES_MAX: usize = 1 << 20;

/// How long a datagram waits for the tunnel to come up.
pub const WAITING_TIME_MAX: Duration = Duration::from_secs(2);

/// Datagrams of one peer that overtook their request or wait for its target, in bytes. It holds before the token, too.
pub const EARLY_BYTES_MAX: usize = 64 << 10;

/// Bookkeeping of one datagram that waits so, besides its payload, in bytes: empty ones are bounded, too.
pub const HELD_ENTRY_BYTES: usize = 64;

/// How long a datagram waits for a request that it overtook, at least; a smoothed round trip where that is longer.
pub const EARLY_TIME_MIN: Duration = Duration::from_millis(100);

/// How long datagrams of a known request wait for its target to be resolved and opened.
pub const OPENING_TIME_MAX: Duration = Duration::from_secs(5);

/// UDP sessions of one client, and of one server. Beyond it the idlest one of the user who has most is evicted.
pub const UDP_SESSIONS_MAX: usize = 8_192;

/// A session whose request was refused answers its source with silence for this long, instead of asking again for
/// every datagram.
pub const REFUSED_HOLD: Duration = Duration::from_secs(5);

/// Former connections of a stripe that go on beside the present one, each after a GOAWAY of its server: an upgrade or two
/// while streams of an earlier one go on.
pub const FORMER_CONNECTIONS_MAX: usize = 4;

/// A UDP session that has moved takes what arrives on its former stream until nothing has come for so long: longer than
/// any round trip.
pub const MOVED_SESSION_QUIET: Duration = Duration::from_secs(2);

/// How often idle sessions and forgotten fragments are looked for.
pub const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Buckets of a histogram of times, by powers of two of a microsecond: the last but one ends at 16.8 s, beyond every
/// deadline of a handshake.
pub const TIME_BUCKETS: usize = 26;

/// Wrong tokens on one connection, after which it is closed.
pub const WRONG_TOKENS_PER_CONNECTION: u32 = 3;

/// Wrong tokens from one prefix (IPv4 /24, IPv6 /56) within [`WRONG_TOKENS_WINDOW`], after which its connections are
/// closed at their first wrong token.
pub const WRONG_TOKENS_PER_PREFIX: u32 = 30;

/// The time over which wrong tokens are counted.
pub const WRONG_TOKENS_WINDOW: Duration = Duration::from_secs(60);

/// Prefixes whose wrong tokens are remembered; the oldest goes first.
pub const WRONG_TOKEN_PREFIXES: usize = 4_096;

/// How long a request waits for the answer who asks: less than a client's attempt to connect lasts
/// ([`CONNECT_ATTEMPT`]), with a second for two round trips, and than a stranger's connection.
pub const AUTHORIZATION_TIME_MAX: Duration = Duration::from_secs(2);

/// Questions who asks that one connection may have open: all streams of a stranger.
pub const AUTHORIZATIONS_PER_CONNECTION: usize = quic::limits::UNAUTHENTICATED_STREAMS as usize;

/// Questions who asks that are open, at all shards together: those of 256 strangers with all their streams.
pub const AUTHORIZATIONS_WAITING_MAX: usize = 1_024;

/// One prefix (IPv4 /24, IPv6 /56) may have this part of a shard's open questions, also those of connections that are gone.
pub const AUTHORIZATIONS_PREFIX_PART: usize = 8;

/// Users that a shard remembers for `status`; one who is gone makes room for the next.
pub const USERS_SHOWN_MAX: usize = 1_024;

/// QUIC connections of one user: all that a shard takes, so that a sole user meets the server's bounds first.
pub const USER_CONNECTIONS_MAX: u64 = quic::limits::CONNECTIONS_MAX as u64;

/// UDP sessions, TCP connections and IP sessions of one user together: more than the server's own bounds let in, so that
/// a sole user meets those first.
pub const USER_SESSIONS_MAX: u64 = 65_536;

/// Bytes of one user in both directions: no bound, unless its grant has one.
pub const USER_BYTES_MAX: u64 = u64::MAX;

/// What a user who rests may take at once, as time at its rate: a train of a game or call passes at 2 Mbit/s, and a shard
/// that is late loses none of the user's rate.
pub const USER_BURST: Duration = Duration::from_millis(50);

/// Between two computations of what users may have of a server's line: some packets of the slowest line, and short against
/// what a queue of such a line holds.
pub const LINE_INTERVAL: Duration = Duration::from_millis(50);

/// The least share of a line, in bits per second: with fewer nobody could even begin.
pub const LINE_SHARE_MIN: u64 = 64_000;

/// How often those whom a user's rate holds up are looked at, at most: far below [`USER_BURST`], far above a turn.
pub const USER_PACING_INTERVAL: Duration = Duration::from_millis(1);

/// Bytes that one arena of queued datagrams holds: small enough to stay in the second-level cache.
pub const ARENA_BYTES: usize = 128 << 10;

/// Bytes of one read from a QUIC stream.
pub const STREAM_READ_BYTES: usize = 64 << 10;

/// What one service has given for its stream and QUIC has not taken, in bytes, with [`HELD_ENTRY_BYTES`] for each piece: one
/// read, so that an echo does not stop in the middle of it.
pub const SERVICE_OUTPUT_BYTES_MAX: usize = STREAM_READ_BYTES + 2 * HELD_ENTRY_BYTES;

/// Datagrams of all services of a shard that came since its last turn: one batch of received messages.
pub const SERVICE_DATAGRAMS_MAX: usize = 4_096;

/// Peers that are registered at a server's rendezvous: 4 MiB of table.
pub const RENDEZVOUS_PEERS_MAX: usize = 4_096;

/// Those of one user: its machines, with several programs each.
pub const RENDEZVOUS_PEERS_PER_USER_MAX: usize = 64;

/// Addresses of one peer: that from which the server sees it, and its own of both families on several interfaces.
pub const RENDEZVOUS_ADDRESSES_MAX: usize = 8;

/// Longest value of a message between client and rendezvous, in bytes: two keys and all addresses, with room for more.
pub const RENDEZVOUS_MESSAGE_BYTES_MAX: usize = 512;

/// Messages that wait for one peer whose connection does not take them; calls beyond it are refused as busy.
pub const RENDEZVOUS_WAITING_MAX: usize = 32;

/// Calls and answers of one peer at once: a program that connects to all its peers.
pub const RENDEZVOUS_CALLS_BURST: u32 = 64;

/// In which one more may follow.
pub const RENDEZVOUS_CALL_INTERVAL: Duration = Duration::from_millis(250);

/// Contexts of one bound socket, at either end: the peers that a program is connected to by the relay.
pub const RELAY_CONTEXTS_PER_SOCKET_MAX: usize = 64;

/// Contexts of all bound sockets of a server: 8,192 pairs, each with one at either socket.
pub const RELAY_CONTEXTS_MAX: usize = 16_384;

/// Payloads that wait for one shard's bound sockets, of all shards together, or that one shard has for all others at the
/// end of its turn, in bytes, with room for a prefix and [`HELD_ENTRY_BYTES`] for each: what arrives while a shard is busy
/// with one batch. What says that a registration has ended waits beyond it: no more than there were registrations.
pub const RELAY_WAITING_BYTES_MAX: usize = 8 << 20;

/// Those of one user: 16 sockets with as many as one may have. 16 users fill the server's.
pub const RELAY_CONTEXTS_PER_USER_MAX: usize = 1_024;

/// Contexts that a bound socket is asked for at once; more cost the socket. A program that changes all of them does so
/// four times. Each answer costs QUIC a search among those that were not acknowledged.
pub const RELAY_ASKED_BURST: u32 = 4 * RELAY_CONTEXTS_PER_SOCKET_MAX as u32;

/// In which one more may follow: five times as often as [`RENDEZVOUS_CALL_INTERVAL`], since others call, too.
pub const RELAY_ASKED_INTERVAL: Duration = Duration::from_millis(50);

/// Answers about contexts that QUIC has not taken, after which a request is broken off: its client asks and does not
/// listen.
pub const RELAY_ANSWERS_MAX: usize = 2 * RELAY_CONTEXTS_PER_SOCKET_MAX;

/// Numbers of invitations: at most five digits, for people to type, and none with so few that it looks unfinished.
pub const INVITATION_NUMBERS: Range<u32> = 1_000..100_000;

/// How long a number lets a guest in: long enough to tell it and to install a program.
pub const INVITATION_TIME_MAX: Duration = Duration::from_secs(600);

/// How long a guest may stay once it was registered, and how long a number is kept once a peer of a user was told whose
/// it is: transfers by it may take that long, and be gone on with.
pub const GUEST_TIME_MAX: Duration = Duration::from_secs(3_600);

/// Invitations and guests of one user.
pub const GUESTS_PER_USER_MAX: usize = 16;

/// Those of a server: with all of them one number of 387 is somebody's.
pub const GUESTS_MAX: usize = 256;

/// QUIC connections of one guest: one, and one that takes its place.
pub const GUEST_CONNECTIONS_MAX: u64 = 2;

/// Its registration and its bound socket, twice while a connection takes another one's place.
pub const GUEST_SESSIONS_MAX: u64 = 4;

/// Bytes of one guest in both directions: what peers relay is the exception.
pub const GUEST_BYTES_MAX: u64 = 1 << 30;

/// How fast a guest may be in each direction, in bits per second.
pub const GUEST_BITS_PER_SECOND: u64 = 20_000_000;

/// Copies that all sessions of one peer keep for repair, in bytes: a hundred busy flows of full packets in both directions.
/// Beyond it, payloads go without.
pub const REPAIR_BYTES_MAX: usize = 16 << 20;

/// A session with repair that sends, or hears, nothing for so long gives its copies back: the longest latency twice.
pub const REPAIR_REST: Duration = Duration::from_secs(1);

/// ICMP answers of one shard per second (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 f).
pub const ICMP_PER_SECOND: u32 = 100;

/// ICMP answers of one shard at once: a traceroute of thirty hops with three probes each.
pub const ICMP_BURST: u32 = 100;

/// Copies of one client's name that a server tells apart; of more, the earliest is found again.
pub const NAME_COPIES_MAX: usize = 8;

/// Leases that a server keeps, of clients that are there and of those that were: 100 bytes each.
pub const LEASES_MAX: usize = 16_384;

/// Who has this part of all leases gets none that clients of another user with fewer may come back to.
pub const LEASES_USER_PART: usize = 2;

/// Routes of a server that a client puts into its routing table.
pub const IP_ROUTES_MAX: usize = 1_024;

/// Routes that one warning names: as many as a line takes.
pub const ROUTES_TOLD_MAX: usize = 4;

/// Addresses that a client takes from its server: one of each version, and room for those that a server changes.
pub const CLIENT_ADDRESSES_MAX: usize = 8;

/// Changes of addresses, routes and name servers that a client follows at once: a server that starts anew makes two or
/// three.
pub const ASSIGNMENTS_BURST: u32 = 8;

/// In which a client follows one more change: each sets the device up and may be told.
pub const ASSIGNMENT_INTERVAL: Duration = Duration::from_secs(10);

/// Packets that one super-packet can become: the most that `packet` cuts it into.
pub const SUPER_PACKET_SEGMENTS_MAX: usize = 8_192;

/// How long an IP packet may wait for the path.
pub const PACKET_TIME_MAX: Duration = QUEUE_TIME_MAX;

/// The same where its sender answers loss, as TCP does: it would only send the packet again. Single drops keep its queue
/// short ([`STANDING_DELAY`]), and [`QUEUE_BYTES_MAX`] bounds it.
pub const CONTROLLED_TIME_MAX: Duration = Duration::from_millis(500);

/// Connections that a stripe gives up at most because a sibling is on the same shard of the server: with two shards
/// one in 64 clients still has both stripes on one.
pub const SPREAD_TRIES: u32 = 6;

/// How long after the start a stripe keeps its local traffic to itself although only siblings are up: what has moved
/// to a sibling comes from another port there, so it should not move because of a round trip's difference.
pub const STRIPE_GRACE: Duration = Duration::from_secs(1);

/// How long one attempt to reach a server lasts; the chosen one has as long again to show its token.
pub const CONNECT_ATTEMPT: Duration = Duration::from_secs(3);

/// Between two attempts of a race (RFC 8305 section 5, Connection Attempt Delay).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// From the first attempt over UDP to the first one in TCP's shape, or the other way round where that one worked last:
/// time for both versions of IP over the first ([`ATTEMPT_DELAY`]).
pub const CARRIER_DELAY: Duration = Duration::from_millis(300);

/// Attempts of a stripe that go on at once: two servers, each with two addresses of either version.
pub const ATTEMPTS_MAX: usize = 8;

/// Addresses that a stripe remembers because its server has taken the token there: home and mobile network, both with
/// IPv4 and IPv6.
pub const GOOD_ADDRESSES_MAX: usize = 4;

/// First pause between attempts; it doubles up to [`BACKOFF_MAX`], and every pause is jittered by half.
pub const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// First pause after the genuine site of a cover answered, of which at least half is waited (specs/qr1.md, QR1-19); it doubles
/// up to [`REDIRECTED_BACKOFF_MAX`].
pub const REDIRECTED_BACKOFF_MIN: Duration = Duration::from_secs(10);

/// Longest such pause.
pub const REDIRECTED_BACKOFF_MAX: Duration = Duration::from_secs(600);

/// How long a connection to the genuine site rests before it is closed, at least (QR1-19).
pub const REDIRECTED_REST_MIN: Duration = Duration::from_secs(5);

/// The same, at most.
pub const REDIRECTED_REST_MAX: Duration = Duration::from_secs(30);

/// Longest pause between attempts.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);

/// A connection that stood for less, from its first packet on, was of no use: after two of them in succession a pause
/// comes before the next one. Longer than a handshake and the first requests, shorter than any server is up.
pub const STAY_MIN: Duration = Duration::from_secs(10);

/// Warnings about a TUN device that are remembered, so that each is told once.
pub const SENTENCES_MAX: usize = 64;

/// Between two looks at whether a carrier carries what is wanted.
pub const CARRIER_WATCH_INTERVAL: Duration = Duration::from_millis(500);

/// How long a server's word counts that the path holds it back: it comes every second, and once it may be lost.
pub const HELD_BACK_FRESH: Duration = Duration::from_millis(2_500);

/// Looks of which all have to find that a carrier holds traffic back, before the other one is tried: three seconds.
pub const CARRIER_POOR_LOOKS: usize = 6;

/// Looks that show what a carrier on trial carries, over UDP and in TCP's shape; UDP that is throttled often is so only
/// after some seconds.
pub const CARRIER_TRIAL_LOOKS: [usize; 2] = [20, 6];

/// Looks until TCP's shape is left that carries no more. A server whose first challenge to the new path is lost sends three
/// times what it receives, until it gives the path up after three probe timeouts and begins again.
pub const CARRIER_TRIAL_LOOKS_MAX: usize = 16;

/// First looks of a trial that say nothing: QUIC seeks its rate.
pub const CARRIER_START_LOOKS: usize = 2;

/// Packets lost of a hundred at which a carrier is poor.
pub const CARRIER_POOR_LOSS_PERCENT: u64 = 2;

/// So many times less than the carrier carried before is poor.
pub const CARRIER_POOR_FALL: u64 = 4;

/// From a trial of a carrier that came to nothing, or from when it was left, to the next one; doubles each time.
pub const CARRIER_RETRY_MIN: Duration = Duration::from_secs(30);

/// The longest such time.
pub const CARRIER_RETRY_MAX: Duration = Duration::from_secs(3_600);

/// A client that moved to another address and hears nothing there for so long makes its connection anew;
/// [`MOVED_ROUND_TRIPS`] where they take longer.
pub const MOVED_SILENCE: Duration = Duration::from_millis(300);

/// The same in TCP's shape, where a handshake comes first: a SYN that is lost is repeated after a second
/// (specs/fake-tcp.md, FTCP-5).
pub const MOVED_SILENCE_TCP: Duration = Duration::from_millis(1_300);

/// A client of a front door, which can make no attempt at the same address beside its connection, gives it up only after
/// so long a silence: what a train spends in a tunnel.
pub const FRONT_DOOR_SILENCE: Duration = Duration::from_secs(15);

/// Round trips that an answer at a new address may take: a lost PING is repeated after about three.
pub const MOVED_ROUND_TRIPS: u32 = 4;

/// A path that acknowledges nothing for so long, while something is awaited, has died; [`PATH_SILENCE_PROBES`] where they
/// take longer.
pub const PATH_SILENCE: Duration = Duration::from_secs(3);

/// Probe timeouts without an answer after which a path has died.
pub const PATH_SILENCE_PROBES: u32 = 5;

/// A path that acknowledges nothing for so long, while something is awaited, has the server asked over the other carrier;
/// [`CARRIER_SILENCE_PROBES`] where they take longer. With a handshake the connection moves within two seconds.
pub const CARRIER_SILENCE: Duration = Duration::from_secs(1);

/// Bytes received between two looks at the path ([`PATH_WATCH_INTERVAL`]) that are traffic: more than the answer to a
/// probe.
pub const FLOWING_BYTES: u64 = 1_000;

/// Probe timeouts without an answer after which the server is asked over the other carrier.
pub const CARRIER_SILENCE_PROBES: u32 = 2;

/// The longest that a peer withholds an acknowledgement: QUIC's default (RFC 9000 section 18.2).
pub const ACKNOWLEDGEMENT_DELAY_MAX: Duration = Duration::from_millis(25);

/// Between two looks at whether a path has died.
pub const PATH_WATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Fields of a request to the local HTTP proxy; browsers send some twenty.
pub const HTTP_FIELDS_MAX: usize = 100;

/// A client's TUN that did not change for so long is told: path MTU discovery takes several round trips.
pub const TUN_SETTLED: Duration = Duration::from_millis(300);

/// Bytes of a DNS name in text form (RFC 1035 section 2.3.4: 255 on the wire).
pub const HOST_BYTES_MAX: usize = 253;

/// Bytes of a link: room for sixteen long host names; also bounds what is read from a link file.
pub const LINK_BYTES_MAX: usize = 8_192;

/// Servers in one link; a client tries them in turn.
pub const LINK_ENDPOINTS_MAX: usize = 16;

/// Characters of a link's name; it is shown on one line.
pub const LINK_NAME_CHARACTERS_MAX: usize = 64;

const _: () = assert!(USER_SESSIONS_MAX as usize >= UDP_SESSIONS_MAX + LEASES_MAX);
const _: () = assert!(AUTHORIZATION_TIME_MAX.as_millis() + 1_000 <= CONNECT_ATTEMPT.as_millis());
const _: () = assert!(AUTHORIZATION_TIME_MAX.as_millis() < quic::limits::AUTHENTICATION_DEADLINE.as_millis());
const _: () = assert!(WAITING_BYTES_MAX <= QUEUE_BYTES_MAX);
const _: () = assert!(RELAY_CONTEXTS_PER_SOCKET_MAX <= RELAY_CONTEXTS_PER_USER_MAX);
const _: () = assert!(RELAY_CONTEXTS_PER_USER_MAX <= RELAY_CONTEXTS_MAX);
const _: () = assert!(REPAIR_BYTES_MAX >= 8 * repair::limits::DECODER_BYTES_MAX);

// A connection to the genuine site is there for its least rest when the next attempt begins.
const _: () = assert!(REDIRECTED_BACKOFF_MIN.as_secs() >= 2 * REDIRECTED_REST_MIN.as_secs());
