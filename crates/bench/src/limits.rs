//! Every bound and every chosen size of the benchmarks, with its unit and its reason.

use std::time::Duration;

/// Socket buffers of our own generator, sink and relay, in bytes: what `iperf3 -w 4M` has, so that both generators
/// meet the same kernel.
pub const LOAD_BUFFER_BYTES: usize = 4 << 20;

/// Receive slots per recvmmsg of sink and relay: enough to empty a busy socket in one call, while the slots of a
/// batch (64 KiB each) stay in the cache.
pub const RECEIVE_SLOTS: usize = 16;

/// Bytes per receive slot: the longest coalesced message.
pub const RECEIVE_SLOT_BYTES: usize = 65_536;

/// Slots for traffic that arrives as single datagrams (a relay's ingress from iperf3).
pub const RELAY_SLOTS: usize = 64;

/// Flows that one generator makes at most, and whose numbers a sink keeps; bounds the sink's memory.
pub const FLOWS_MAX: usize = 1_024;

/// Sources that a relay tells apart at most: one socket each.
pub const RELAY_SOURCES_MAX: usize = 1_024;

/// How far a paced generator may fall behind and still catch up. A longer pause is lost time, not a burst.
pub const CATCH_UP_MAX: Duration = Duration::from_millis(5);

/// Shortest sleep of a paced generator: shorter ones cost more CPU than they give evenness.
pub const PACING_STEP: Duration = Duration::from_micros(100);

/// Segments per send of a paced generator, so that a slow rate is not one burst per sleep.
pub const PACED_TRAIN_SEGMENTS: usize = 16;

/// How long loops that wait for packets sleep before they look at their stop flag.
pub const STOP_CHECK: Duration = Duration::from_millis(50);

/// For the rest of a TCP stream to arrive at its sink, on a busy machine.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// A child process that has not said that it is ready by then has failed.
pub const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// A child process that has not ended so long after it was asked to is killed.
pub const END_TIMEOUT: Duration = Duration::from_secs(15);

/// A tunnel that has not ended so long after it was told to is killed.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// An echo that takes longer is counted as lost.
pub const ECHO_TIMEOUT: Duration = Duration::from_millis(500);

/// Pause between echoes, so that each finds an idle path.
pub const ECHO_GAP: Duration = Duration::from_micros(500);

/// Bytes per read and write of the TCP source and sink.
pub const TCP_CHUNK_BYTES: usize = 128 << 10;

/// Largest answer of `gramway status --json` that is read, in bytes.
pub const STATUS_BYTES_MAX: u64 = 16 << 20;

/// Clients of `bench scale` at most. Their engines are in this process, too: 300 KiB each, mostly for datagrams on
/// their way.
pub const SCALE_CLIENTS_MAX: usize = 2_000;

/// Users of `bench scale`, who share the clients evenly.
pub const SCALE_USERS: usize = 1_000;

/// Flows of `bench scale` at most, at both ends.
pub const SCALE_FLOWS_MAX: usize = 10_000;

/// Datagrams that a client of `bench scale` sends at once: less than a full train, as a busy flow gives in a turn.
pub const SCALE_BURST: usize = 32;

/// Payload bytes of these datagrams.
pub const SCALE_PAYLOAD_BYTES: usize = 1_150;

/// Datagrams of every flow before the measured ones.
pub const SCALE_WARM_UPS: usize = 2;

/// A windowed generator takes datagrams for lost when nothing has arrived for so long.
pub const WINDOW_PATIENCE: Duration = Duration::from_millis(20);

/// Different packets of a flood of handshakes; each takes some 0.2 ms to make.
pub const SPOOFED_PACKETS: u32 = 1_024;

/// For one handshake of `bench front-door`, losses included.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

/// For one visit at a web site.
pub const VISIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two visits: a server lets in so and so many new addresses of a network in a second, and no more.
pub const VISIT_PAUSE: Duration = Duration::from_millis(25);

/// Messages of `bench peers` under way on a connection: a few milliseconds of what a processor carries.
pub const PEERS_MESSAGES_IN_FLIGHT: usize = 4_096;

/// Bytes of `bench peers` under way on a connection: what an endpoint of `peer` takes at most.
pub const PEERS_BYTES_IN_FLIGHT: usize = 16 << 20;

/// Clients of `bench peers` at one server, each with an endpoint of its own.
pub const PEERS_CLIENTS: usize = 100;

/// Messages under way on each of their connections: all of them together have as many as one client alone, and half.
pub const PEERS_FAN_MESSAGES_IN_FLIGHT: usize = 64;

/// Connections of `bench peers` that are made at a time: enough to keep two processors busy.
pub const PEERS_HANDSHAKES_AT_A_TIME: usize = 8;

/// Idle connections of `bench peers` whose memory is measured.
pub const PEERS_IDLE: usize = 1_000;

/// A transfer of Gramway's in `bench files` that takes longer has failed.
pub const FILES_TIME_MAX: Duration = Duration::from_secs(600);

/// A rival's transfer that takes longer is stopped: what has come meanwhile tells its rate. Some wait for ever for an end
/// that was cut, and some take hours for many files on a line with delay.
pub const FILES_RIVAL_TIME_MAX: Duration = Duration::from_secs(60);

/// For a program of `bench files` to be ready.
pub const FILES_START_TIMEOUT: Duration = Duration::from_secs(20);

/// For a sender of `bench files` that reads and hashes all of its files first.
pub const FILES_HASH_TIMEOUT: Duration = Duration::from_secs(300);

/// For a sender of `bench files` to end once the receiver has.
pub const FILES_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two looks whether a transfer of `bench files` has ended: a hundredth of the shortest.
pub const FILES_LOOK: Duration = Duration::from_millis(5);

/// Of these looks, every so many-th is also for memory: each reads a few files of /proc, and peaks stay.
pub const FILES_PEAK_LOOKS: u32 = 4;

/// Bytes over the wire that prove that new data comes: more than lists of files and hashes of 8 GiB take.
pub const FILES_FIRST_BYTES: u64 = 1 << 20;

/// Seconds that iperf3 measures a link for `bench files`: two hundred round trips.
pub const FILES_TCP_SECONDS: u32 = 20;

/// Bytes of files that `bench files` writes and compares at a time.
pub const FILES_BLOCK_BYTES: usize = 1 << 20;
