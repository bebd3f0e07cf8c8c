//! Every bound of the runner, with its unit and its reason.

use std::time::Duration;

/// Directories of a destination whose descriptors are kept: files come in the order of a walk, from several threads.
pub const DIRECTORIES_OPEN_MAX: usize = 32;

/// File systems below a destination of which is kept what they do with names, of others it is found out for each
/// directory, and of which a directory is kept open to have their disks take what was written: beyond, one is put on
/// disk whenever another one takes its turn.
pub const MOUNTS_MAX: usize = 64;

/// Files of a transfer of which is kept that they have their places, which no other entry takes: 16 MiB. Beyond, names
/// alone tell.
pub const PLACES_MAX: usize = 1 << 20;

/// What a rate limit lets pass at once after a pause: small, so that the limit holds from the first second on.
pub const RATE_BURST: Duration = Duration::from_millis(50);

/// Bytes of sealed records that one write to a TCP socket takes: they stay in the processor's cache between both.
pub const TLS_WRITE_BYTES: usize = 128 << 10;

/// Bytes that one read from a TCP socket takes at most.
pub const TLS_READ_BYTES: usize = 256 << 10;

/// How long a TCP connection may take, and its TLS handshake after it; QUIC carries everything meanwhile.
pub const TCP_SETUP_TIME_MAX: Duration = Duration::from_secs(3);

/// How long a sender waits for the receiver's port to answer before it offers one of its own: longer than most round
/// trips, and no longer than a measurement of QUIC.
pub const TCP_PATIENCE: Duration = Duration::from_millis(500);

/// How long a user who asked for TCP waits before the sender says that there is none: both ends have tried by then, one
/// after the other.
pub const TCP_WAIT_MAX: Duration = Duration::from_secs(7);

/// How long what was sent on a TCP connection may stay unacknowledged before the connection is lost: longer than disks
/// stand still, which stops the receiver's reading.
pub const TCP_SILENCE_MAX: Duration = Duration::from_secs(20);

/// How long TCP may bring nothing of what it has, at least, before QUIC sends that as well: a few round trips, and
/// longer than most disks stand still.
pub const SILENCE_MIN: Duration = Duration::from_secs(1);

/// How long TCP gets nothing more after such a silence, once nothing is left under way on it.
pub const SILENCE_REST: Duration = Duration::from_secs(5);

/// How long nothing need be heard of a receiver, which has something to say each [`TURN`], before its silence about
/// chunks says nothing.
pub const HEARD_TIME_MAX: Duration = Duration::from_millis(500);

/// How long a TCP connection carries nothing before one end asks whether the other is there, and between questions.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(5);

/// How long a thread of a TCP connection waits for work before it looks whether the connection is still there.
pub const TCP_LOOK: Duration = Duration::from_secs(1);

/// Handshakes on one listener that may fail before it closes: strangers can reach the port.
pub const TCP_STRANGERS_MAX: usize = 64;

/// How often threads that wait look whether the transfer goes on, and counters are looked at.
pub const TURN: Duration = Duration::from_millis(50);

/// Bytes of messages that wait to be sent before the walk waits.
pub const CONTROL_QUEUE_BYTES: usize = 256 << 10;

/// Bytes that one read of the control stream takes.
pub const CONTROL_READ_BYTES: usize = 64 << 10;

/// Priority of the control stream over those of chunks: an answer must not wait for what it is about.
pub const CONTROL_PRIORITY: u8 = 200;

/// Priority of streams of chunks.
pub const CHUNK_PRIORITY: u8 = 100;

/// QUIC streams of chunks, each with a thread: while one reads and hashes the other sends.
pub const QUIC_STREAMS: usize = 2;

/// TCP connections unless the user says otherwise: each has a thread at both ends, which share the processors.
pub const TCP_CONNECTIONS: usize = 4;

/// The most of either that a user may ask for, and that a receiver takes.
pub const STREAMS_MAX: usize = 32;

/// The most files at once that a user may ask for: more are wanted by nobody, and each has two files open.
pub const PARALLEL_FILES_MAX: u16 = 64;

/// Carriers of one transfer: both kinds, the stream of a pipe, and the TCP connections that a receiver makes where the
/// sender's come late: those beyond what the sender wants end once they are there.
pub const LANES_MAX: usize = 2 * STREAMS_MAX + 1 + TCP_CONNECTIONS;

/// Chunks that QUIC may keep until they have arrived: 32 MiB, what its windows take.
pub const QUIC_BUFFERS: usize = 32;

/// Of these, chunks that QUIC has in any case: while one travels another one is read.
pub const CHUNKS_OWN_QUIC: usize = 2;

/// The one that TCP has in any case, which it copies.
pub const CHUNKS_OWN_TCP: usize = 1;

/// Chunks that all transfers of a program share beyond those: one that is alone has what QUIC may keep, and with the
/// own ones of 32 transfers they are less than 128 MiB.
pub const CHUNKS_SHARED: usize = QUIC_BUFFERS - CHUNKS_OWN_QUIC;
const _: () = assert!(CHUNKS_SHARED + 32 * (CHUNKS_OWN_QUIC + CHUNKS_OWN_TCP) < 128);

/// A carrier is measured for so long, unless [`TRIAL_BYTES`] have arrived before, or less than [`TRIAL_BYTES_MIN`].
pub const TRIAL_TIME: Duration = Duration::from_millis(500);

/// Both trials together are the first 64 MiB of a transfer, and what comes in [`TRIAL_TIME_MIN`] where that is more.
pub const TRIAL_BYTES: u64 = 32 << 20;

/// Where less is left, the other carrier is not tried any more: what it takes may come last.
pub const TRIAL_BYTES_LEFT_MIN: u64 = 2 * TRIAL_BYTES;

/// A fast carrier is measured for so long at least: both ends' looks are some milliseconds apart.
pub const TRIAL_TIME_MIN: Duration = Duration::from_millis(100);

/// Eight chunks: of fewer, when they happen to arrive says more than how fast they are.
pub const TRIAL_BYTES_MIN: u64 = 8 << 20;

/// How long a trial waits for those: the worse carrier is not to carry for longer.
pub const TRIAL_TIME_MAX: Duration = Duration::from_secs(3);

/// At the beginning of a trial a carrier's rate rises.
pub const TRIAL_SETTLING: Duration = Duration::from_millis(50);

/// Between two measurements: their trials cost what the worse carrier is worse.
pub const CHOICE_HYSTERESIS: Duration = Duration::from_secs(10);

/// Over which the present rate of a carrier is measured: disks stand still for a second now and then.
pub const CHOICE_WINDOW: Duration = Duration::from_secs(2);

/// Choices of carriers that a sender keeps in its state, by peer and addresses: 16 KiB.
pub const REMEMBERED_CHOICES_MAX: usize = 256;

/// How long a choice counts: networks change.
pub const REMEMBERED_TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Problems of single files that a report keeps; all are told as events.
pub const PROBLEMS_MAX: usize = 10_000;

/// How long the end that said the last word waits for the other one, which ends the connection having read it.
pub const FAREWELL_TIME_MAX: Duration = Duration::from_secs(2);

/// Files whose addresses a sender keeps in its state: 33 bytes for each MiB of them.
pub const CACHED_FILES_MAX: usize = 1_024;

/// Smaller files are hashed again: that takes a millisecond.
pub const CACHED_FILE_BYTES_MIN: u64 = 4 << 20;

/// How often addresses of files that are being sent are kept: what was read since is hashed again after a kill.
pub const CACHE_TURN: Duration = Duration::from_secs(5);

/// Bytes that were read after which they are kept before that: a tenth of a second of hashing.
pub const CACHE_TURN_BYTES: u64 = 64 << 20;

/// But no sooner than after one part in so many of all these files, as the addresses of all of them are written each
/// time: 33 bytes for each MiB.
pub const CACHE_TURN_PARTS: u64 = 64;

/// Chunks that wait for one before them on the way to standard output: all that are wanted at a time.
pub const ORDERED_CHUNKS: u64 = 16;

/// Bytes of one write to a file. A file system takes memory for a write as a whole, and large blocks of it are those
/// that a virtual machine's host has taken back: writes of 1 MiB took five times as long there as these.
pub const WRITE_BYTES: usize = 256 << 10;

/// Bytes that were written before the disk is told to take them, and may be lost by a power failure, with what came in
/// [`JOURNALS_TIME`]: disks work in pieces of this size at their full speed, and so begin while others come.
pub const WRITE_BACK_BYTES: u64 = 16 << 20;

/// How seldom journals are put on the disk, that say what of files is there: what has come since comes again after a
/// power cut, and a disk has enough to do with the files.
pub const JOURNALS_TIME: Duration = Duration::from_secs(1);

/// The same of small files, of which the whole file system is told: seldom, as that also writes what others wrote.
pub const WRITE_BACK_SMALL_BYTES: u64 = 256 << 20;

/// What a small file takes beside its bytes, in memory until it is on disk: an inode, a name and half a page.
pub const SMALL_FILE_BYTES: u64 = 4_096;

/// The most of all of them: writers wait then, and by that the sender.
pub const WRITE_BACK_BYTES_MAX: u64 = 512 << 20;

/// How long a transfer that was cancelled or failed waits for the disk to take what came of parts last, at most
/// [`WRITE_BACK_BYTES`] on a disk that keeps up: people who pressed Ctrl-C wait for it. One that does not keep up is
/// waited for until it has what it takes of one file at that moment: [`WRITE_BACK_BYTES_MAX`] at the worst, as the
/// kernel lets no process go before. Nor does it where the disk takes all small files at that moment, and with them
/// what other programs have written: the transfer has ended by then, and its process ends with that call.
pub const KEEP_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a pipe brings nothing more before what was read of a chunk is sent ahead of it, to a receiver that passes
/// it on: people who follow a log do not notice, and programs that write fast do not pause for so long.
pub const PIPE_PAUSE: Duration = Duration::from_millis(200);

/// Entries of a destination among which files that were moved are looked for, once in a transfer: a third of a second.
pub const ELSEWHERE_ENTRIES_MAX: usize = 65_536;

/// How long they are looked for at most, on a disk that is slow: what is not found is fetched.
pub const ELSEWHERE_TIME_MAX: Duration = Duration::from_secs(1);

/// Entries of a destination among which what a power cut left in doubt is looked for at the end of a transfer: some
/// seconds. Where there are more, the marker stays, and what is offered again is compared.
pub const DOUBT_ENTRIES_MAX: usize = 1 << 20;

/// How long that is looked for at most: the user waits for it, once after each power cut.
pub const DOUBT_TIME_MAX: Duration = Duration::from_secs(5);

/// A file that was changed so much later than the system's start is still taken for one of before: its clock may be set
/// by as much.
pub const BOOT_NS: i64 = 60_000_000_000;

/// How often the marker of a destination is tried for while another transfer removes it, a [`TURN`] apart: it takes
/// less than a millisecond.
pub const MARKER_TRIES_MAX: u32 = 100;

/// Chunks for which room is made on the disk at once, around the first that comes: 64 MiB, so that a file lies in few
/// pieces however its chunks come.
pub const PREALLOCATED_CHUNKS: u64 = 64;

/// Files whose parts are open because some of their chunks were here, and the others have not come: each has two files
/// open, of the 1,024 that a program has without asking. They are as much as a network keeps under way: 128 chunks.
pub const COMPARED_FILES_MAX: usize = 128;

/// Threads that put complete files on disk and in their places: what they wait for at once a disk does together.
pub const PLACING_THREADS: usize = 4;

/// Complete files that wait for those threads before carriers wait: each has two files open.
pub const PLACING_FILES_MAX: usize = 32;

/// Chunks of a file that may come damaged and are wanted again, and no more than twice as many as it has: a machine
/// that damages more is not to be trusted with the rest.
pub const DAMAGED_CHUNKS_MAX: u64 = 16;

/// The same of a whole transfer, which ends then: a sender that lies makes no work without end, and no list of wants.
pub const DAMAGED_ARRIVALS_MAX: u64 = 1_024;

// All of a file once, twice as much that came damaged, and once all of it whose root is another one (FILE-14).
const _: () = assert!(files_proto::limits::WANTED_TIMES_MAX == 4);

/// How long the sender may take to open the control stream, and either end for its HELLO after that.
pub const HELLO_TIME_MAX: Duration = Duration::from_secs(30);

/// How often an end judges what holds it up, and tells the other one where that has changed.
pub const HELD_TURN: Duration = Duration::from_millis(500);

/// Waits of all threads together that are less than this part of the time hold nothing up.
pub const HELD_SHARE: u32 = 4;

/// Files in work that are told of: as many as a user may have come at once.
pub const FILES_IN_WORK_MAX: usize = PARALLEL_FILES_MAX as usize;
