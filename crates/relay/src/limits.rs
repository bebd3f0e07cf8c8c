//! Every limit of this crate, with its unit and reason.

use std::time::Duration;

/// Flows of one worker: UDP peers, or connections with a UDP socket each. What is more is refused and counted.
pub const FLOWS_MAX: usize = 16_384;

/// Bytes of datagrams that wait for the connection of one flow: the first flight of QUIC or WireGuard, and more.
pub const HELD_BYTES_MAX: usize = 64 << 10;

/// Bytes of datagrams that wait at one worker altogether, so that forged sources cannot fill the memory.
pub const HELD_BYTES_ALL_MAX: usize = 16 << 20;

/// How long a flow whose connection failed waits until it opens the next one; it doubles up to the second.
pub const REOPEN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(8));

/// Messages of one receive, each of which may be a train.
pub const BATCH_SLOTS: usize = 64;

/// Batches in a row from one socket before the others get their turn.
pub const RECEIVES_PER_TURN: usize = 8;

/// Bytes that sockets which many share may queue, in each direction: 30 ms of 1 Gbit/s.
pub const SHARED_BUFFER_BYTES: usize = 4 << 20;

/// Bytes that the UDP socket of one connection may queue.
pub const FLOW_BUFFER_BYTES: usize = 1 << 20;

/// Most bytes of a train: a super-segment of TCP over IPv6 with its headers fits an IP packet.
pub const TRAIN_BYTES_MAX: usize = 65_535 - 60;

/// Longest wait of a worker for something to happen.
pub const WAIT_MAX: Duration = Duration::from_secs(60);

/// Longest wait for a worker's counters; one that has ended publishes none.
pub const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// How long a relay that ends waits until its peers have acknowledged that: a round trip of the longest paths.
pub const LINGER: Duration = Duration::from_millis(700);

/// Workers of a relay at most.
pub const WORKERS_MAX: usize = packet_io::RAW_GROUP_MAX;

const _: () = assert!(HELD_BYTES_MAX <= HELD_BYTES_ALL_MAX);
const _: () = assert!(TRAIN_BYTES_MAX <= packet::UDP_PAYLOAD_MAX);

/// Time until what a worker has told is told again where it still happens: once in a while, and no log is filled.
pub const TELL_AGAIN: Duration = Duration::from_secs(3_600);
