//! Every bound of the driver, with its unit and its reason.

use std::time::Duration;

/// Bytes of trains that wait for the sibling that has their connection in TCP's shape, for each shard: as much as a
/// socket's buffer holds. What exceeds it is lost, as on the way.
pub const HANDED_TRAIN_BYTES_MAX: usize = 1 << 20;

/// Shards of one process: an index of a connection ID names no more, and more cores than this share better elsewhere.
pub const SHARDS_MAX: usize = 16;

/// Messages that wait for one shard from the others.
pub const HANDOVER_MESSAGES_MAX: usize = 1_024;

/// What waits for one shard from the others, in bytes: as much as waits for a peer.
pub const HANDOVER_BYTES_MAX: usize = tunnel_proto::limits::QUEUE_BYTES_MAX;

/// Receive buffer asked for on UDP sockets, at a server's sockets towards targets as they need it, in bytes: what
/// arrives at 2.5 Gbit/s while the thread waits 10 ms for a core, about doubled for the kernel's bookkeeping per
/// datagram.
pub const SOCKET_RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// Send buffer asked for on UDP sockets, in bytes: several full trains.
pub const SOCKET_SEND_BUFFER_BYTES: usize = 4 << 20;

/// A receive that brings this part of what the buffer of a socket towards a target holds has it grow.
pub const UPSTREAM_BUFFER_BUSY_PART: usize = 4;

/// How much larger it then is: three steps from the kernel's default of 208 KiB to 8 MiB.
pub const UPSTREAM_BUFFER_GROWTH: usize = 8;

/// What all buffers of such sockets that grew may hold is this part of the memory from which the kernel holds UDP back
/// (`net.ipv4.udp_mem`): the rest is for sockets with the default, the outer sockets, and other programs.
pub const UPSTREAM_BUFFERS_PRESSURE_PART: usize = 2;

/// How much of it the buffers of one user on a shard may hold, in multiples of what is left: alone they take three
/// quarters, and another user always finds some.
pub const UPSTREAM_BUFFERS_SHARES_OF_REST: usize = 3;

/// The same in bytes where the kernel does not tell, as in a network namespace: that of a machine with 1 GiB.
pub const UPSTREAM_BUFFERS_BYTES_UNKNOWN: usize = 64 << 20;

/// Bytes of a page of memory, at least.
pub const PAGE_BYTES_MIN: usize = 4 << 10;

/// Flushes of at most [`quic::limits::OUTBOX_TRAINS`] trains in one turn.
pub const FLUSHES_PER_TURN: usize = 4;

/// Messages received from the outer socket with one call, 64 KiB each.
pub const OUTER_RECEIVE_SLOTS: usize = 8;

/// Messages received from an inner socket with one call, 64 KiB of address space each.
pub const INNER_RECEIVE_SLOTS: usize = 64;

/// What all inner sockets may cost one turn of a server's shard while several users wait, in bytes of payload that
/// cost as much: some three milliseconds of a saturated shard. Then packets from clients have their turn.
pub const INNER_TURN_BYTES: usize = 1 << 20;

/// What one call for an inner socket costs, in bytes of payload that cost as much: about as much as a full datagram on
/// its way through QUIC.
pub const INNER_CALL_BYTES: usize = 1 << 10;

/// What each message costs besides its payload, in the same measure: a third of a full datagram's way.
pub const INNER_MESSAGE_BYTES: usize = 512;

/// Most datagrams of one send to an inner socket. An ordinary receiver's buffer of 208 KiB takes about 90 datagrams of
/// 1,150 bytes, and a burst of 60 overflowed it while it waited for a core.
pub const INNER_TRAIN_SEGMENTS: usize = 16;

/// Datagrams collected for inner sockets before they are sent: below what a stock receive buffer takes.
pub const INNER_BURST_DATAGRAMS: usize = 48;

/// A yield between two bursts that took no longer let a receiver drain its buffer.
pub const YIELD_SHORT: Duration = Duration::from_micros(500);

/// After a longer yield, so many times its length passes without any: yields then cost a fifth of the time at most.
pub const YIELD_REST: u32 = 4;

/// Datagrams of one inner batch that are queued before QUIC may send.
pub const INTAKE_DATAGRAMS: usize = 256;

/// Bytes that one read from a TCP socket takes: below the size from which allocators map and unmap pages each time.
pub const TCP_READ_BYTES: usize = 64 << 10;

/// Bytes that one turn moves from QUIC to a TCP socket.
pub const TCP_WRITE_BYTES: usize = 256 << 10;

/// Pieces of one vectored write to a TCP socket.
pub const TCP_WRITE_PIECES: usize = 256;

/// TCP connections of one client, and of one server, where the user who has most gives up some for those of others.
pub const TCP_CONNECTIONS_MAX: usize = 4_096;

/// Associations of SOCKS5 for UDP of one shard, each with a socket and a connection: a program has one, or one for each
/// of its sockets.
pub const ASSOCIATIONS_PER_SHARD: usize = 512;

/// Sessions of one association, by the program's port and the target. Beyond it the port with most loses its idlest.
pub const ASSOCIATION_SESSIONS_MAX: usize = 1_024;

/// Descriptors of one shard that belong to no request: a client's listeners, connections that have no target yet,
/// associations, and the sockets that answers of a transparent proxy leave by, one for a UDP session at most.
pub const SOURCES_MAX: usize =
    2 * (TCP_CONNECTIONS_MAX + ASSOCIATIONS_PER_SHARD) + tunnel_proto::limits::UDP_SESSIONS_MAX;

/// How long a listener rests that could not accept a connection, for want of descriptors or memory: watched on, it
/// would be ready at once, again and again.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(500);

/// Bytes that a local program may send until it has named its target: the header of an HTTP request, with room.
pub const NEGOTIATION_BYTES_MAX: usize = 16 << 10;

/// Bytes that one read takes from a connection that has no target.
pub const NEGOTIATION_READ_BYTES: usize = 4 << 10;

/// How long a local program may take to name its target.
pub const NEGOTIATION_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a local program that got no connection may take to read why, and to close.
pub const FAREWELL_TIME_MAX: Duration = Duration::from_secs(5);

/// Reads of one turn that discard what a local program sends that got no connection.
pub const FAREWELL_READS_PER_TURN: usize = 64;

/// How long a TCP connection to a target may take to open, for each address.
pub const TCP_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a TCP connection to a target may be silent before the kernel probes it. A target that has vanished gives
/// its place back after [`TCP_KEEP_ALIVE_PROBES`] intervals more.
pub const TCP_KEEP_ALIVE_IDLE: Duration = Duration::from_secs(60);

/// Between two such probes.
pub const TCP_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Probes without an answer that end the connection.
pub const TCP_KEEP_ALIVE_PROBES: u32 = 4;

/// How long an address of a target may stay silent before the next one is tried beside it (RFC 8305 section 5,
/// Connection Attempt Delay).
pub const CONNECTION_ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Targets of one shard whose next address is due within [`CONNECTION_ATTEMPT_DELAY`]; beyond it, an address is tried
/// when the one before has failed.
pub const ATTEMPTS_DUE_MAX: usize = TCP_CONNECTIONS_MAX;

/// How often it is seen whether a UDP target's address has answered. One that was asked before the last look, so at
/// least this long ago, is left for the next one: longer than nearly all round trips, because what answers later is
/// not heard.
pub const UDP_TARGET_SILENCE: Duration = Duration::from_secs(1);

/// Sessions of one shard that are looked at within [`UDP_TARGET_SILENCE`]; beyond it, they stay at their first address.
pub const UPSTREAMS_DUE_MAX: usize = tunnel_proto::limits::UDP_SESSIONS_MAX;

/// How long a new local TCP connection waits for the tunnel.
pub const TCP_WAIT_FOR_TUNNEL: Duration = Duration::from_secs(5);

/// Names of one shard that are being resolved at a time: each has a socket for either IP version, and three where no
/// answer comes.
pub const RESOLUTIONS_PER_SHARD: usize = 512;

/// Questions that wait for the resolving thread to take them up.
pub const RESOLUTIONS_MAX: usize = 4_096;

/// How long a name may take, all tries included: less than a connection, so that its limit is never the one that ends
/// a resolution.
pub const RESOLUTION_TIME_MAX: Duration = Duration::from_secs(8);

/// How long one name server may take to answer before the next try, which takes another one where there are several.
/// `timeout` in `/etc/resolv.conf` can make it shorter.
pub const RESOLUTION_TRY_TIME: Duration = Duration::from_secs(2);

/// Tries after the first one: they fill the time that a name may take.
pub const RESOLUTION_RETRIES: u32 = 3;

/// How long a request waits for its name's addresses: the resolver has answered by then.
pub const RESOLUTION_WAIT: Duration = Duration::from_secs(9);

/// Where name servers listen (RFC 1035 section 4.2).
pub const NAME_SERVER_PORT: u16 = 53;

/// Answers that are kept, each for its TTL.
pub const NAMES_CACHED_MAX: u64 = 4_096;

/// How long a name that does not exist stays so: a server whose name has just been made is found soon.
pub const NAME_ABSENT_TIME_MAX: Duration = Duration::from_secs(10);

/// Between two looks at whether `/etc/resolv.conf` and `/etc/hosts` have changed.
pub const NAME_SOURCES_INTERVAL: Duration = Duration::from_secs(1);

/// Addresses of one name that are tried.
pub const ADDRESSES_PER_NAME: usize = 8;

/// Jobs that wait for one thread of the host: leases to write; addresses, routes, MTU and name servers to set; ways to
/// the server to find.
pub const HOST_JOBS_MAX: usize = 8;

/// One lease in the file that keeps them, in bytes: its JSON takes at most 158 with its comma.
pub const LEASE_BYTES: usize = 160;

/// Bytes of the longest file of leases that is read.
pub const LEASES_FILE_BYTES_MAX: usize = tunnel_proto::limits::LEASES_MAX * LEASE_BYTES;

/// How often leases that changed are written at most.
pub const LEASES_WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// When leases that could not be written are tried again: a full disk is seldom cleared in less.
pub const LEASES_RETRY: Duration = Duration::from_secs(10);

/// Questions of clients that a server's name server has open, each with a socket: what a busy second of many clients
/// brings.
pub const NAME_QUESTIONS_MAX: usize = 1_024;

/// Of these, those of one client: a browser asks dozens at once.
pub const NAME_QUESTIONS_PER_CLIENT: usize = 128;

/// TCP connections of clients to a server's name server: long answers only come over them.
pub const NAME_STREAMS_MAX: usize = 128;

/// Of these, those of one client.
pub const NAME_STREAMS_PER_CLIENT: usize = 8;

/// Connections to one address of a server's name server that wait for its thread to take them.
pub const NAME_STREAMS_WAITING: u32 = 64;

/// How long such a connection may be idle, and how long an answer may take to be read (RFC 7766 section 6.2.3).
pub const NAME_STREAM_IDLE: Duration = Duration::from_secs(10);

/// Longest question and answer by UDP, in bytes: what clients ask for at most (RFC 6891 section 6.2.5). A longer answer
/// has to be asked for by TCP.
pub const NAME_DATAGRAM_BYTES_MAX: usize = 4_096;

/// How long a server's name server waits after a socket's error, so that one that stays does not keep it busy.
pub const NAME_SOCKET_PAUSE: Duration = Duration::from_millis(10);

/// Name servers of the system that questions are passed on to: as many as the C library asks.
pub const SYSTEM_NAME_SERVERS_MAX: usize = 3;

/// How often it is looked whether the machine's name servers are still those that were set.
pub const NAMES_WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// How long after it has set name servers a client looks at them. Where they were refused or changed it waits twice as
/// long before it sets them again, and doubles that each time, up to [`NAMES_RETRY_MAX`].
pub const NAMES_RETRY_MIN: Duration = Duration::from_secs(1);

/// The longest wait: somebody else means to have other ones, and has been told of.
pub const NAMES_RETRY_MAX: Duration = Duration::from_secs(60);

/// The discard port: nothing is sent to it where the kernel is asked for a route.
pub const ANY_PORT: u16 = 9;

/// How long a cover's addresses are used before its name is resolved again.
pub const COVER_RESOLUTION_INTERVAL: Duration = Duration::from_secs(300);

/// How long after a failure that is tried again; then twice as long each time, up to [`COVER_RESOLUTION_INTERVAL`].
pub const COVER_RESOLUTION_RETRY: Duration = Duration::from_secs(5);

/// How long after it was found well a cover is looked at again, about: sites renew certificates every few weeks, and
/// software seldom.
pub const COVER_LOOK_INTERVAL: Duration = Duration::from_secs(4 * 3_600);

/// A cover that left a stranger's first datagram unanswered for so long is looked at: longer than clients repeat it.
pub const COVER_UNANSWERED_TIME: Duration = Duration::from_secs(10);

/// And then not again for so long, because strangers may send what no site answers.
pub const COVER_DOUBT_INTERVAL: Duration = Duration::from_secs(600);

/// How long after a look a silent cover is looked at again; then twice as long each time.
pub const COVER_SILENCE_RETRY: Duration = Duration::from_secs(10);

/// And at most so long.
pub const COVER_SILENCE_RETRY_MAX: Duration = Duration::from_secs(600);

const _: () = assert!(COVER_SILENCE_RETRY_MAX.as_secs() < COVER_LOOK_INTERVAL.as_secs());

/// TCP connections of strangers that go on to a cover, each with two descriptors.
pub const COVER_STREAMS_MAX: usize = 1_024;

/// Those of one network: several browsers behind one address, with six connections each.
pub const COVER_STREAMS_PER_PREFIX: usize = 64;

/// TCP connections that wait until they are accepted.
pub const COVER_STREAMS_WAITING: i32 = 1_024;

/// Bytes that wait in one direction of such a connection, besides those in the kernel.
pub const COVER_STREAM_BUFFER_BYTES: usize = 16 << 10;

/// How long each address of a cover has to accept a TCP connection.
pub const COVER_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long such a connection may move nothing: web servers close theirs before.
pub const COVER_STREAM_IDLE: Duration = Duration::from_secs(600);

/// Notices that wait for the program to read them; more are left out and counted.
pub const NOTICES_MAX: usize = 256;

/// Notices of a kind that strangers or local programs can cause at will are bounded in this time; the rest are counted.
/// Long enough that a flood takes a line or two of each screen.
pub const TOLD_WINDOW: Duration = Duration::from_secs(10);

/// Notices within it that name something different each time, as clients and targets: as many as a screen takes.
pub const TOLD_IN_WINDOW: u32 = 8;

/// Connections that are traced at a time: qlog is for a few that are looked into.
pub const QLOG_TRACES_MAX: usize = 32;

/// Bytes of a trace that wait for the thread that writes them: 30 ms of a gigabit a second, with 200 bytes a packet.
pub const QLOG_WAITING_BYTES_MAX: usize = 1 << 20;

/// Bytes of a trace until its connection's user is known: a handshake and its retransmissions.
pub const QLOG_UNDECIDED_BYTES_MAX: usize = 64 << 10;

/// How often traces are written at least, so that a file can be read while its connection lives.
pub const QLOG_INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of a file with a trace: readers in a browser become slow beyond it.
pub const QLOG_FILE_BYTES_MAX: usize = 16 << 20;

/// Files with traces in a directory: 256 MiB in all. The oldest ones make room.
pub const QLOG_FILES_MAX: usize = 16;

// A record, and the one that describes its trace, fit into one file.
const _: () = assert!(2 * QLOG_WAITING_BYTES_MAX < QLOG_FILE_BYTES_MAX);
const _: () = assert!(tunnel_proto::limits::STREAM_READ_BYTES <= TCP_WRITE_BYTES);
// Memory of the cover's connections: 32 MiB.
const _: () = assert!(2 * COVER_STREAMS_MAX * COVER_STREAM_BUFFER_BYTES <= 32 << 20);
const _: () = assert!(COVER_STREAMS_PER_PREFIX * 4 <= COVER_STREAMS_MAX);
const _: () = assert!(INNER_TRAIN_SEGMENTS <= packet::TRAIN_SEGMENTS_MAX);
const _: () = assert!(
    RESOLUTION_TRY_TIME.as_millis() * (RESOLUTION_RETRIES as u128 + 1) <= RESOLUTION_TIME_MAX.as_millis()
);
// One client leaves room for several others.
const _: () = assert!(NAME_QUESTIONS_PER_CLIENT * 4 <= NAME_QUESTIONS_MAX);
const _: () = assert!(NAME_STREAMS_PER_CLIENT * 4 <= NAME_STREAMS_MAX);
const _: () = assert!(RESOLUTION_TIME_MAX.as_millis() < RESOLUTION_WAIT.as_millis());
const _: () = assert!(RESOLUTION_WAIT.as_millis() < TCP_CONNECT_TIMEOUT.as_millis());

/// How long a server's own addresses are remembered for the target rules.
pub const OWN_ADDRESSES_AGE: Duration = Duration::from_secs(10);

/// Until the kernel is asked for them again after it did not answer; all targets are closed meanwhile.
pub const OWN_ADDRESSES_RETRY: Duration = Duration::from_secs(1);

/// Names and addresses of a server that the target rules know: as many as a link names.
pub const PUBLIC_HOSTS_MAX: usize = 16;

/// How often their addresses are looked up: a name that moves, or could not be resolved at the start, is known soon.
pub const PUBLIC_NAMES_INTERVAL: Duration = Duration::from_secs(30);

/// Between two questions for the NAT64 translators of a server's network.
pub const NAT64_DISCOVERY_INTERVAL: Duration = Duration::from_secs(600);

/// A server whose port is reported closed, and that was not heard for so long, is given up before the idle timeout.
pub const REFUSED_SILENCE: Duration = Duration::from_secs(1);

/// The least MTU of IPv6, in bytes (RFC 8200 section 5).
pub const IPV6_MTU_MIN: u32 = packet::limits::IPV6_MTU_MIN as u32;

/// Packets and super-packets read from the TUN device in one turn.
pub const TUN_READS_PER_TURN: usize = 64;

/// Bytes read from the TUN device in one turn, about: what stays in the second-level cache until it is sealed.
pub const TUN_READ_BYTES_PER_TURN: usize = 256 << 10;

/// Short packets, and super-packets that are given up, read from the TUN device in one turn while it overflows.
pub const SHED_READS_PER_TURN: usize = 512;

/// Bytes of a packet that is kept then: those of a flow that is no flood come one by one, and the kernel joins floods.
pub const SHED_PACKET_BYTES: usize = 2_048;

/// Between two looks at whether the TUN device overflows.
pub const SHED_LOOK: Duration = Duration::from_millis(100);

/// How long it counts as overflowing after that, or after a datagram was given up.
pub const SHED_TIME: Duration = Duration::from_millis(500);

/// Packets and super-packets that wait in the TUN device for a shard: bursts, because whoever sends them is held up by
/// nothing but loss.
pub const TUN_QUEUE_PACKETS: u32 = 1_024;

/// How often a TUN device's MTU is held against what the paths carry.
pub const MTU_INTERVAL: Duration = Duration::from_millis(100);

/// Leases that `status` lists: more than people read.
pub const LEASES_SHOWN_MAX: usize = 256;

/// How often a client looks at slow things: path MTU, connections that wait for the tunnel.
pub const TICK: Duration = Duration::from_millis(500);

/// Ports at which a server listens for its clients.
pub const CLIENT_LISTENERS_MAX: usize = 256;

/// Of these, those of one user.
pub const CLIENT_LISTENERS_PER_USER: usize = 32;

/// Requests that wait for a connection at one such port: the connections that are taken within one round trip.
pub const LISTENER_REQUESTS_MAX: usize = 64;

/// Requests that a client has waiting at first; doubled each time when connections have used all of them up.
pub const LISTENER_REQUESTS_FIRST: usize = 4;

const _: () = assert!(LISTENER_REQUESTS_FIRST <= LISTENER_REQUESTS_MAX);

/// How long a port stays open for which no request waits: a client that has lost its connection is back by then, or its
/// place is another's.
pub const LISTENER_REST: Duration = Duration::from_secs(10);

/// How long a client waits before it asks again for a port that the server refused.
pub const LISTENER_RETRY: Duration = Duration::from_secs(5);

/// Connections taken from one listener in one turn.
pub const ACCEPTS_PER_TURN: usize = 64;

/// How long the program waits for a shard's counters.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// How long after it was refused a client asks the host again for addresses or routes; then twice as long each time.
pub const HOST_RETRY: Duration = Duration::from_secs(1);

/// And at most so long.
pub const HOST_RETRY_MAX: Duration = Duration::from_secs(60);

/// Addresses at which a client with a default route has met its server, and which stay outside the tunnel; beyond that
/// the oldest goes back into it.
pub const MET_ADDRESSES_MAX: usize = 16;

/// How long a client waits before it asks again for an IP session that was refused for the time being, or ended by the
/// server.
pub const IP_RETRY: Duration = Duration::from_secs(5);

// One network has room at each shard for the questions of one connection.
const _: () = assert!(
    tunnel_proto::limits::AUTHORIZATIONS_PER_CONNECTION
        <= tunnel_proto::limits::AUTHORIZATIONS_WAITING_MAX
            / SHARDS_MAX
            / tunnel_proto::limits::AUTHORIZATIONS_PREFIX_PART
);

/// Visits to a site that is to be a cover, as a client with X25519MLKEM768 makes them: enough for a median.
pub(crate) const COVER_VISITS: usize = 3;

/// After so long no further address of such a site is examined.
pub(crate) const COVER_EXAMINATION_TIME: Duration = Duration::from_secs(15);

/// Questions for the versions of such a site, for the round trip to it.
pub(crate) const COVER_VERSION_PROBES: usize = 5;

/// How long an answer to one of them is waited for: several times round the world.
pub(crate) const COVER_PROBE_TIME: Duration = Duration::from_secs(1);

/// Buffer asked for where a process hands datagrams back to the one whose sockets it took over, in bytes: some
/// milliseconds of all that its connections carry.
pub(crate) const HANDED_BACK_BUFFER_BYTES: usize = 4 << 20;
