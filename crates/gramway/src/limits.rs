//! Every bound of the program around the tunnel, with its unit and its reason.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes of UDP payload for QUIC packets: RFC 9000 section 14 demands 1,200; the IPv4 header leaves 65,507.
pub(crate) const UDP_PAYLOAD_BYTES: RangeInclusive<i64> = 1_200..=65_507;

/// Ports of one range of forwards: each port has a socket for every connection.
pub(crate) const FORWARD_RANGE_MAX: usize = 256;

/// Forwards that the line about a connection names one by one; of more it says how many, as of a range.
pub(crate) const FORWARDS_NAMED_MAX: usize = 16;

/// Connections to a server, and shards of one.
pub(crate) const CONNECTIONS: RangeInclusive<i64> = 1..=tunnel::limits::SHARDS_MAX as i64;

/// Slowest fixed rate, in bits per second: below it one full train takes seconds.
pub(crate) const FIXED_RATE_MIN: u64 = 1_000_000;

/// Fastest fixed rate, in bits per second: beyond every interface, catches a wrong suffix.
pub(crate) const FIXED_RATE_MAX: u64 = 1_000_000_000_000;

/// Socket buffers, in bytes: from less than the kernel's default to more than any path needs.
pub(crate) const SOCKET_BUFFER_BYTES: RangeInclusive<i64> = 65_536..=1_073_741_824;

/// Idle expiry of UDP sessions, in seconds, up to a day.
pub(crate) const UDP_IDLE_SECONDS: RangeInclusive<i64> = 1..=86_400;

/// Idle expiry of TCP connections, in seconds, up to a week.
pub(crate) const TCP_IDLE_SECONDS: RangeInclusive<i64> = 1..=604_800;

/// How far a client's clock may be off from a server's with a cover, in seconds (specs/qr1.md, QR1-9): below ten,
/// clocks that are kept right fail.
pub(crate) const COVER_WINDOW_SECONDS: RangeInclusive<i64> = 10..=600;

/// The same where nothing else is set.
pub(crate) const COVER_WINDOW_SECONDS_DEFAULT: u64 = 120;

/// Latency of repair, in milliseconds: what the protocol has (specs/repair.md, REPAIR-1).
pub(crate) const REPAIR_MILLISECONDS: RangeInclusive<u64> = 1..=500;

/// Clients with a TUN that share a state directory at a time.
pub(crate) const CLIENT_NAMES_MAX: usize = 16;

/// Characters of a word that is not shown in messages, because it may be a token, which has 43, or most of one.
pub(crate) const SECRET_CHARACTERS_MIN: usize = 32;

/// The first port that needs no privilege (`net.ipv4.ip_unprivileged_port_start` of the kernel, unless it is changed).
pub(crate) const FIRST_ORDINARY_PORT: u16 = 1_024;

/// Bytes of a config file: far beyond one with every key.
pub(crate) const CONFIG_FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a file with certificates to trust: room for all that browsers trust.
pub(crate) const ROOTS_FILE_BYTES_MAX: u64 = 1 << 20;

/// Port of a web site.
pub(crate) const HTTPS_PORT: u16 = 443;

/// Bytes of a file in the state directory: a certificate chain is the largest.
pub(crate) const STATE_FILE_BYTES_MAX: u64 = 1 << 16;

/// Characters of an unknown key that are compared with the known ones, which are shorter: the work grows with both.
pub(crate) const KEY_CHARACTERS_MAX: usize = 64;

/// Errors of a config file that are told: a screen of them.
pub(crate) const COMPLAINTS_MAX: usize = 20;

/// Edits between an unknown key and the suggested one; with more edits it is another word.
pub(crate) const SUGGESTION_EDITS_MAX: usize = 3;

/// Bytes of a Unix socket's path that every system takes (`sun_path` of 104 or 108 with its final zero).
pub(crate) const SOCKET_PATH_BYTES_MAX: usize = 100;

/// Connections to the admin API at a time, at each of its listeners: each has a thread.
pub(crate) const ADMIN_CONNECTIONS_MAX: usize = 32;

/// Pages and programs that listen to the counters: each is a connection; the rest are for single questions.
pub(crate) const ADMIN_LISTENERS_MAX: usize = 8;

/// Between two questions of the admin API to the threads that carry packets: as for metrics.
pub(crate) const ADMIN_PAUSE: Duration = METRICS_PAUSE;

/// How often those who listen get the counters.
pub(crate) const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// Peers in what they get: thousands would be megabytes each second.
pub(crate) const EVENT_PEERS_MAX: usize = 50;

/// Lines about what happened that are remembered: two screens of them.
pub(crate) const RECENT_EVENTS_MAX: usize = 64;

/// Seconds whose rates `top` remembers: as many as a wide terminal has columns.
pub(crate) const TOP_SAMPLES_MAX: usize = 240;

/// How long `top` waits for a key before it looks for new counters and signals.
pub(crate) const TOP_KEY_WAIT: Duration = Duration::from_millis(200);

/// Characters of a token of the admin API: a random one of ours has 43, and 22 of them are 128 bits.
pub(crate) const ADMIN_TOKEN_CHARACTERS_MIN: usize = 22;

/// Bytes of a request's head for metrics and the admin API: several times what Prometheus and browsers send.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 8_192;

/// Bytes of a request's body: a user's terms are far below a hundred.
pub(crate) const HTTP_BODY_BYTES_MAX: usize = 4_096;

/// Headers of such a request; browsers send about twenty.
pub(crate) const HTTP_HEADERS_MAX: usize = 64;

/// How long a request may take to arrive, and its answer to leave, each.
pub(crate) const HTTP_TRANSFER_LIMIT: Duration = Duration::from_secs(2);

/// Pause after a failed accept, such as one without a free file descriptor, and while there are too many connections.
pub(crate) const HTTP_ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Connections to the page of metrics at a time: each has a thread.
pub(crate) const METRICS_CONNECTIONS_MAX: usize = 16;

/// Pause after each request for metrics: whoever asks all the time takes at most ten snapshots a second of the threads
/// that carry packets.
pub(crate) const METRICS_PAUSE: Duration = Duration::from_millis(100);

/// How long `status` waits for one process: above the five seconds that a shard may take.
pub(crate) const STATUS_READ_LIMIT: Duration = Duration::from_secs(6);

/// Bytes of one process's counters: thousands of connections fit.
pub(crate) const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;

/// How often a server looks what users have moved and whether a command has changed them: changes hold within a second.
pub(crate) const USERS_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// How long a command waits until a running server knows what has changed. A server with a slower disk follows later.
pub(crate) const USERS_FOLLOW_LIMIT: Duration = Duration::from_secs(3);

/// How often a server looks whether its ordinary certificate was renewed: soon after whoever renews it.
pub(crate) const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How often a server records what users have used: a crash forgets as much, and less than ten seconds.
pub(crate) const USAGE_RECORD_INTERVAL: Duration = Duration::from_secs(5);

/// A store that takes longer to answer is told of: a disk takes milliseconds, and every look takes one answer.
pub(crate) const STORE_SLOW: Duration = Duration::from_secs(2);

/// A clock that differs by so much from the time that has passed since the last look has jumped: more than a clock is
/// slewed by, and less than matters for the end of a day.
pub(crate) const CLOCK_JUMP: Duration = Duration::from_secs(60);

/// Days whose use is remembered while it cannot be recorded, the last ones: no period of a quota is longer than these.
pub(crate) const UNRECORDED_DAYS_MAX: usize = 31;

/// How long a new server may take to say where it listens.
pub(crate) const LISTENING_LIMIT: Duration = Duration::from_secs(10);

/// How long the new process of an upgrade may take until it is ready, where nobody says otherwise; and how long it
/// waits for the former process.
pub(crate) const UPGRADE_LIMIT: Duration = Duration::from_secs(20);

/// Processes of one server that run at once, each of which took over the sockets of the one before: as many as their
/// connection IDs tell apart (`quic::Generation`).
pub(crate) const SERVER_PROCESSES_MAX: usize = 16;

/// How long it may take, in seconds, where somebody does: up to the start of a server with a huge database on a slow
/// disk.
pub(crate) const START_SECONDS: RangeInclusive<i64> = 1..=600;

/// How long the service manager may take to hear of it.
pub(crate) const MANAGER_PATIENCE: Duration = Duration::from_secs(5);

/// How long the launcher may take to start it.
pub(crate) const LAUNCH_LIMIT: Duration = Duration::from_secs(5);

/// How long a drain takes where neither settings nor whoever begins it say otherwise: clients leave within a second, so
/// that this is for what they have open.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(30);

/// How long a drain may take, in seconds, up to a day.
pub(crate) const DRAIN_SECONDS: RangeInclusive<i64> = 0..=86_400;

/// How long running transfers may go on after SIGTERM or SIGINT.
pub(crate) const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// How long closing connections may take after a second signal.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(1);

/// How long a client with `--exit-on-failure` tries to connect at first: five attempts of the longest kind.
pub(crate) const FIRST_CONNECTION_LIMIT: Duration = Duration::from_secs(15);

/// How much a server tells: what its owner should know, who comes and goes, and from where.
pub(crate) const VERBOSE: RangeInclusive<i64> = 0..=2;

/// How long a client with several servers is without a connection before it goes on with the next one: longer than the
/// restart of a server takes, and a path that is found dead and left.
pub(crate) const FAILOVER_AFTER: Duration = Duration::from_secs(10);

const _: () = assert!(HOOK_TIME_MAX.as_millis() < tunnel_proto::limits::AUTHORIZATION_TIME_MAX.as_millis());
const _: () =
    assert!(FIRST_CONNECTION_LIMIT.as_secs() == 5 * tunnel_proto::limits::CONNECT_ATTEMPT.as_secs());

/// Threads that ask an authentication hook: a slow one holds up few.
pub(crate) const HOOK_ASKERS: usize = 4;

/// Questions that wait for them; beyond it clients try again.
pub(crate) const HOOK_QUESTIONS_MAX: usize = 256;

/// How long a hook may take: within what a request waits for ([`tunnel_proto::limits::AUTHORIZATION_TIME_MAX`]).
pub(crate) const HOOK_TIME_MAX: Duration = Duration::from_millis(1_800);

/// Bytes of a hook's answer.
pub(crate) const HOOK_ANSWER_BYTES_MAX: u64 = 16 << 10;

/// Answers of a hook that are kept.
pub(crate) const HOOK_ANSWERS_KEPT: usize = 4_096;

/// Users of a hook that are known at a time: whoever has no connection makes room for another.
pub(crate) const HOOK_ACCOUNTS_MAX: usize = 4_096;

/// Characters of a name that a hook gives.
pub(crate) const HOOK_NAME_CHARACTERS_MAX: usize = 64;

/// How long an answer of a hook holds.
pub(crate) const HOOK_FRESH: Duration = Duration::from_secs(60);

/// How often the log says at most that a hook does not answer, which a stranger's token may cause.
pub(crate) const HOOK_TROUBLE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a hook's yes holds where it does not answer any more.
pub(crate) const HOOK_STALE: Duration = Duration::from_secs(3_600);

/// Addresses of a peer that are tried: as many as one attempt of crate `peer` takes.
pub(crate) const PEER_ADDRESSES_MAX: usize = 8;

/// Seconds that `gramway peer` waits for an answer unless told otherwise: several repeats of a lost first packet.
pub(crate) const PEER_TIMEOUT_S: u32 = 10;

/// How long `gramway peer listen` waits for its rendezvous before it says that it still waits.
pub(crate) const PEER_REGISTRATION_PATIENCE: Duration = Duration::from_secs(10);

/// Pings that `gramway peer ping` sends unless told otherwise.
pub(crate) const PEER_PINGS: u32 = 4;

/// Pings of one run: a time is kept for each.
pub(crate) const PEER_PINGS_MAX: u32 = 1_000_000;

/// How long the last ping waits for its answer: longer than any path that people would use.
pub(crate) const PEER_PING_WAIT: Duration = Duration::from_secs(3);

/// Between two attempts to connect again to a peer whose connection has ended while it is pinged.
pub(crate) const PEER_AGAIN_PAUSE: Duration = Duration::from_millis(500);

/// Bytes of a ping that is answered.
pub(crate) const PEER_PING_BYTES_MAX: usize = 64;

/// Connections that `gramway peer listen` serves at a time, each until both of its threads have ended; one more is
/// closed.
pub(crate) const PEER_CONNECTIONS_MAX: usize = 64;

/// Bytes of standard input that are sent at once.
pub(crate) const PEER_CHUNK_BYTES: usize = 64 << 10;

/// Chunks of standard input, and ends of connections, that wait for the pipe that has them.
pub(crate) const PEER_INPUT_CHUNKS: usize = 4;

/// How long a pipe that has sent everything waits for the end of the answer without a word.
pub(crate) const PEER_ANSWER_SILENCE_MAX: Duration = Duration::from_secs(2);

/// How often `gramway peer ping` and `pipe` look at what the network says of addresses, while nobody has answered.
pub(crate) const PEER_ATTEMPTS_TURN: Duration = Duration::from_millis(50);

/// Receivers of one `gramway send`, each with a code of its own: as many guests as a server lets one user invite.
pub(crate) const TRANSFER_RECEIVERS_MAX: u16 = 16;

/// Seconds that `gramway receive` waits for the sender unless told otherwise.
pub(crate) const TRANSFER_TIMEOUT_S: u32 = 30;

/// Seconds that a code is valid which nobody has proved to know: as long as a server keeps its number.
pub(crate) const TRANSFER_INVITATION_S: u32 = 600;

/// How long a server may take to give numbers for codes, and a network that has just come up to take an announcement.
pub(crate) const TRANSFER_PATIENCE: Duration = Duration::from_secs(20);

/// How long a receiver tries to meet the sender before it says what it waits for.
pub(crate) const TRANSFER_SILENCE_MAX: Duration = Duration::from_secs(3);

/// How long the server of a link is asked whose a number is, before the local network is asked as well.
pub(crate) const TRANSFER_FIND_TIME_MAX: Duration = Duration::from_secs(3);

/// Before it is asked again: a sender may need that long to be there.
pub(crate) const TRANSFER_FIND_PAUSE: Duration = Duration::from_millis(500);

/// How long a sender waits for a receiver whose connection broke: a laptop that is carried home. As long as its number
/// is kept at the server, at least.
pub(crate) const TRANSFER_RETURN_TIME_MAX: Duration = Duration::from_secs(3_600);
const _: () = assert!(TRANSFER_RETURN_TIME_MAX.as_secs() >= tunnel_proto::limits::GUEST_TIME_MAX.as_secs());

/// How long a sender waits for a receiver that has everything to come again and say that its disk has it: one that
/// lives does so at once.
pub(crate) const TRANSFER_CONFIRM_TIME_MAX: Duration = Duration::from_secs(60);

/// A transfer that has been relayed for so long stays so in all likelihood: direct paths open sooner.
pub(crate) const TRANSFER_RELAYED_TIME: Duration = Duration::from_secs(5);

/// Connections of one transfer that may break one after another, and bring nothing, before a receiver gives up.
pub(crate) const TRANSFER_BREAKS_MAX: u32 = 100;

/// How often threads look whether the user has ended the program, and a sender is tried that is not there yet.
pub(crate) const TRANSFER_TURN: Duration = Duration::from_millis(100);

/// How long the proof of a code may take: six packets across the worst path.
pub(crate) const TRANSFER_PROOF_TIME_MAX: Duration = Duration::from_secs(20);

/// How long a receiver waits for it: the sender may be busy with a stranger or two first.
pub(crate) const TRANSFER_PROOF_WAIT_MAX: Duration = TRANSFER_PROOF_TIME_MAX.saturating_mul(3);

/// How long the first frame of a proof may take after the number of the code: they leave together.
pub(crate) const TRANSFER_START_TIME_MAX: Duration = Duration::from_secs(3);

/// Bytes of the proof that are read at once: its frames are shorter.
pub(crate) const TRANSFER_PROOF_BYTES_MAX: usize = 128;

/// How often a code may be tried without being proved wrong: each costs a key exchange, and says nothing of the code.
pub(crate) const TRANSFER_ATTEMPTS_MAX: u32 = 100;

/// Transfers of a sender at a time, to peers that it knows or that have proved to know a code.
pub(crate) const TRANSFER_GUESTS_MAX: usize = 32;

/// Those to one peer: who lists and receives at once, or has lost a connection that this end has not.
pub(crate) const TRANSFER_OF_PEER_MAX: usize = 4;

/// Connections at a time that have not proved to know a code: each has a thread. A proof takes three round trips, in
/// which as many would have to come to keep an honest one out.
pub(crate) const TRANSFER_STRANGERS_MAX: usize = 32;

/// Before a receiver comes again that was one too many.
pub(crate) const TRANSFER_BUSY_PAUSE: Duration = Duration::from_secs(2);

/// How long a peer that comes again may take to answer on the connection of its former transfer: longer than a round
/// trip whose packets are lost once.
pub(crate) const TRANSFER_PRESENCE_TIME_MAX: Duration = Duration::from_secs(2);

/// Least rate that a user may set as the limit, in bytes a second: with less, nothing would seem to happen.
pub(crate) const TRANSFER_RATE_MIN: u64 = 1_000;

/// Seconds that a user may let either end wait, up to a day.
pub(crate) const TRANSFER_SECONDS: RangeInclusive<i64> = 1..=86_400;

/// How often a bar is drawn.
pub(crate) const TRANSFER_BAR_TURN: Duration = Duration::from_millis(200);

/// Files in work that have a bar each, so that a transfer takes a few lines of a terminal.
pub(crate) const TRANSFER_FILE_BARS_MAX: usize = 3;

/// The time over which the rate that is shown is taken.
pub(crate) const TRANSFER_RATE_SPAN: Duration = Duration::from_secs(5);

/// How often a line of JSON tells how far a transfer is.
pub(crate) const TRANSFER_JSON_TURN: Duration = Duration::from_secs(1);

/// How long an end that leaves waits for its last packets, and for the other's.
pub(crate) const PEER_GOODBYE_MAX: Duration = Duration::from_secs(2);
