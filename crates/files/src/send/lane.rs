//! The thread of one carrier: takes a job, reads, hashes, compresses and sends it, and takes the next one. Several of
//! them keep disk, processors and network busy at the same time without handing bytes from thread to thread.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use files_proto::compress::{Compression, Effort, Policy};
use files_proto::content::{chunk_address, chunk_count, chunk_length};
use files_proto::limits::{CHUNK_BYTES, PACK_BYTES_MAX};
use files_proto::message::Message;
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{EntryId, pack};

use super::Sending;
use super::desk::{Desk, End, Job, Lane, Next, Step};
use crate::carrier::RecordSender;
use crate::limits::{QUIC_BUFFERS, TCP_LOOK};
use crate::options::Compress;
use crate::pool::{Buffer, Pool};
use crate::progress::{Counter, Event, FileInWork, Waiting};
use crate::source::{Failure, Source};
use crate::waits::Wait;

/// One carrier and what its thread needs.
pub(super) struct LaneThread<'a> {
    pub(super) number: Lane,
    pub(super) sender: RecordSender,
    pub(super) sending: &'a Sending,
    /// Buffers of all carriers of this kind.
    pub(super) pool: Pool,
    pub(super) compression: Compressing,
}

/// Compresses bodies, or leaves them.
pub(super) struct Compressing {
    policy: Policy,
    compression: Compression,
    effort: Effort,
    /// How long the body in hand was compressed, where it was.
    compressed_for: Option<Duration>,
    compressed: Vec<u8>,
    /// How long the body in hand waited for a buffer, because the carrier still had those of former ones.
    waited_for_buffer: Duration,
    /// Bytes that the carrier has taken one after the other as fast as they are compressed.
    unhindered_bytes: usize,
}

impl Compressing {
    pub(super) fn new(compress: Compress) -> Self {
        Self {
            policy: match compress {
                Compress::Auto => Policy::auto(),
                Compress::No => Policy::never(),
            },
            compression: Compression::new(),
            effort: Effort::default(),
            compressed_for: None,
            compressed: Vec::new(),
            waited_for_buffer: Duration::ZERO,
            unhindered_bytes: 0,
        }
    }

    /// Compresses `buffer` in its place, where that is worth it; whether it was.
    fn compress(&mut self, buffer: &mut Buffer) -> bool {
        if !self.policy.tries(self.unhindered_bytes < UNHINDERED_BYTES) {
            return false;
        }
        let began = Instant::now();
        self.compressed.clear();
        self.compression.set_effort(&self.effort);
        let shrank = self.compression.compress(buffer, &mut self.compressed);
        self.policy.tried(shrank);
        if shrank {
            self.compressed_for = Some(began.elapsed());
            buffer.set_length(self.compressed.len());
            buffer.copy_from_slice(&self.compressed);
        }
        shrank
    }

    /// The carrier has taken a body, for which it let us wait so long.
    fn sent(&mut self, bytes: usize, waited: Duration) {
        let waited = waited + std::mem::take(&mut self.waited_for_buffer);
        if let Some(compressed_for) = self.compressed_for.take() {
            self.effort.left(compressed_for, waited);
        }
        let share = bytes.max(SMALL_BODY_BYTES) as f64 / CHUNK_BYTES as f64;
        let is_slow = waited >= SLOW_CHUNK.mul_f64(share);
        self.unhindered_bytes = match is_slow {
            true => 0,
            false => self.unhindered_bytes.saturating_add(bytes),
        };
    }
}

/// Where a chunk takes a carrier longer than this, compressing it takes less.
const SLOW_CHUNK: Duration = Duration::from_millis(3);

/// A body that is smaller, e.g. the head of a hole, is judged as one of this size: a call takes its time.
const SMALL_BODY_BYTES: usize = CHUNK_BYTES as usize / 16;

/// What a carrier takes at once without having sent it: QUIC's buffers, of which a thread has half. Only beyond that
/// its haste says something of the network.
const UNHINDERED_BYTES: usize = QUIC_BUFFERS / 2 * CHUNK_BYTES as usize;

/// Why a job was not sent: the carrier is gone, and the thread ends.
struct CarrierLost;

impl From<io::Error> for CarrierLost {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl LaneThread<'_> {
    /// Works until the transfer is over or the carrier fails; what was under way on it is left to the others then.
    pub(super) fn run(mut self) {
        let carrier = self.sender.carrier();
        loop {
            let job = match self.desk().next_within(TCP_LOOK, self.number, carrier) {
                Next::Job(job) => job,
                Next::Nothing if self.sender.is_lost() => {
                    self.desk().lose(self.number);
                    return;
                }
                Next::Nothing => continue,
                Next::Over => break,
            };
            let worked = match job {
                Job::Send { source, index } => self.send_chunk(&source, index),
                Job::Hash { source, index } => {
                    let mut buffer = self.pool.take(length_of(&source, index));
                    self.read_chunk(&source, index, &mut buffer);
                    Ok(())
                }
                Job::Pack(sources) => self.send_pack(&sources),
            };
            if worked.is_err() {
                self.desk().lose(self.number);
                return;
            }
        }
        // The transfer is over; the other end may be gone.
        let _ = self.sender.finish();
    }

    fn desk(&self) -> &Desk {
        &self.sending.desk
    }

    /// A buffer for a body, once the carrier has one.
    fn take_buffer(&mut self, length: usize) -> Buffer {
        let began = Instant::now();
        let waiting = self.wait(Wait::Network(self.sender.carrier()));
        let buffer = self.pool.take(length);
        drop(waiting);
        self.compression.waited_for_buffer = began.elapsed();
        buffer
    }

    fn send_chunk(&mut self, source: &Source, index: u64) -> Result<(), CarrierLost> {
        let mut buffer = self.take_buffer(length_of(source, index));
        let Some((hole, address)) = self.read_chunk(source, index, &mut buffer) else {
            return Ok(());
        };
        self.sending.begin_file(source);
        let chunk = Chunk {
            entry: source.entry,
            index,
            address,
            only: chunk_count(source.stamp.size) == 1,
            hole,
        };
        if hole {
            let raw_bytes = buffer.len() as u32;
            buffer.set_length(0);
            let head = RecordHead {
                body: Body::Chunk(chunk),
                compressed: false,
                stored_bytes: 0,
                raw_bytes,
            };
            return self.send(&head, buffer);
        }
        self.send_body(Body::Chunk(chunk), buffer)
    }

    /// Reads a chunk and tells its address; whether it is a hole. `None` where the file has failed by that.
    fn read_chunk(&mut self, source: &Source, index: u64, buffer: &mut Buffer) -> Option<(bool, [u8; 32])> {
        let waiting = self.wait(Wait::Disk);
        let hole = source.is_hole(index * CHUNK_BYTES, buffer.len() as u64);
        if hole {
            buffer.fill(0);
        } else if let Err(failure) = source.read(index * CHUNK_BYTES, buffer) {
            self.desk().put_down(source.entry);
            self.sending.fail(source.entry, failure);
            return None;
        }
        drop(waiting);
        self.sending
            .progress
            .add(Counter::BytesHashed, buffer.len() as u64);
        let address = chunk_address(index, chunk_count(source.stamp.size) == 1, buffer);
        let step = self.desk().read(source.entry, index, address);
        self.sending.go_on(source.entry, step);
        Some((hole, address))
    }

    fn send_pack(&mut self, sources: &[Arc<Source>]) -> Result<(), CarrierLost> {
        let mut builder = pack::Builder::default();
        let mut bytes = Vec::new();
        for source in sources {
            bytes.clear();
            let waiting = self.wait(Wait::Disk);
            let read = source.read_whole(&mut bytes);
            drop(waiting);
            self.sending
                .progress
                .add(Counter::BytesHashed, bytes.len() as u64);
            if let Err(failure) = read {
                self.sending.fail(source.entry, failure);
            } else if !builder.push(source.entry, &bytes) {
                self.send_packed(&mut builder)?;
                builder.push(source.entry, &bytes);
            }
        }
        self.send_packed(&mut builder)
    }

    fn send_packed(&mut self, builder: &mut pack::Builder) -> Result<(), CarrierLost> {
        if builder.is_empty() {
            return Ok(());
        }
        let mut body = Vec::with_capacity(builder.length());
        builder.finish(&mut body);
        let mut buffer = self.take_buffer(PACK_BYTES_MAX);
        buffer.set_length(body.len());
        buffer.copy_from_slice(&body);
        self.send_body(Body::Pack, buffer)
    }

    fn send_body(&mut self, body: Body, mut buffer: Buffer) -> Result<(), CarrierLost> {
        let raw_bytes = buffer.len() as u32;
        let compressed = self.compression.compress(&mut buffer);
        let head = RecordHead {
            body,
            compressed,
            stored_bytes: buffer.len() as u32,
            raw_bytes,
        };
        self.send(&head, buffer)
    }

    fn send(&mut self, head: &RecordHead, body: Buffer) -> Result<(), CarrierLost> {
        let head = head.encode();
        let bytes = head.len() + body.len();
        if let Some(limit) = &self.sending.limit {
            let _waiting = self.wait(Wait::Limit);
            let began = Instant::now();
            let pause = limit.grant(began, bytes);
            let end = began + pause;
            while !self.sending.is_over() {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                thread::sleep(left.min(crate::limits::TURN));
            }
            if self.sending.is_over() {
                limit.give_back(bytes);
                return Err(CarrierLost);
            }
        }
        let began = Instant::now();
        let waiting = self.wait(Wait::Network(self.sender.carrier()));
        self.sender.send(&head, body)?;
        drop(waiting);
        self.compression.sent(bytes, began.elapsed());
        self.sending.progress.add(Counter::BytesWire, bytes as u64);
        Ok(())
    }

    fn wait(&self, wait: Wait) -> Waiting {
        self.sending.progress.wait(wait)
    }
}

fn length_of(source: &Source, index: u64) -> usize {
    usize::try_from(chunk_length(source.stamp.size, index)).unwrap_or(0)
}

impl Sending {
    /// A chunk of a file leaves, which may be its first one.
    fn begin_file(&self, source: &Source) {
        let bytes_total = source.stamp.size;
        if bytes_total <= CHUNK_BYTES {
            return;
        }
        self.progress.begin_file(source.entry, || FileInWork {
            path: source.name.clone(),
            bytes_done: self.desk.counted(source.entry).unwrap_or(0),
            bytes_total: Some(bytes_total),
        });
        // It may have come to its end meanwhile, and ends once.
        if self.desk.counted(source.entry).is_none() {
            self.progress.end_file(source.entry);
        }
    }

    /// The receiver has more of a file.
    pub(super) fn change_file(&self, entry: EntryId) {
        let counted = self.desk.counted(entry);
        self.progress.change_file(entry, |file| {
            file.bytes_done = counted.unwrap_or(file.bytes_done);
        });
    }

    /// Nothing more comes of a file; the rest goes on.
    pub(super) fn fail(&self, entry: EntryId, failure: Failure) {
        let Failure { reason, text } = failure;
        let telling = self.telling();
        let Ok(Some(ended)) = self.desk.end(entry, End::Failed) else {
            return;
        };
        self.outbox.push(&Message::Failed {
            entry,
            reason,
            text: text.clone(),
        });
        drop(telling);
        self.progress.end_file(entry);
        self.progress.add(Counter::FilesDone, 1);
        self.problem(ended.name, text);
    }

    /// For the report, and for people at once.
    pub(super) fn problem(&self, path: String, text: String) {
        let mut problems = self
            .problems
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if problems.len() < crate::limits::PROBLEMS_MAX {
            problems.push((path.clone(), text.clone()));
        }
        drop(problems);
        self.progress.tell(Event::Problem { path, text });
    }

    /// Does what is left to do for a file after a step.
    pub(super) fn go_on(&self, entry: EntryId, step: Step) {
        match step {
            Step::More => {}
            Step::Answer { addresses } => {
                for (part, addresses) in addresses.chunks(files_proto::limits::HASHES_MAX).enumerate() {
                    self.outbox.push(&Message::Hashes {
                        entry,
                        first: (part * files_proto::limits::HASHES_MAX) as u64,
                        addresses: addresses.to_vec(),
                    });
                }
                let next = self.desk.completion(entry);
                self.go_on(entry, next);
            }
            Step::Complete { root } => {
                let Some(source) = self.desk.source(entry) else {
                    return;
                };
                if let Err(failure) = source.check_unchanged() {
                    return self.fail(entry, failure);
                }
                if let Some(cache) = &self.cache {
                    cache.keep(&source.stamp, &self.desk.addresses(entry));
                }
                // It is opened again should a chunk have to go again.
                source.close();
                let size = source.stamp.size;
                self.outbox.push(&Message::FileEnd { entry, size, root });
            }
            Step::Changed => self.fail(
                entry,
                Failure {
                    reason: files_proto::FailReason::Changed,
                    text: "it changed while it was read".to_owned(),
                },
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = CHUNK_BYTES as usize;

    fn text() -> Buffer {
        let mut buffer = Pool::new(1).take(CHUNK);
        buffer.fill(b'a');
        buffer
    }

    #[test]
    fn a_carrier_that_takes_a_little_at_once_is_not_taken_for_a_fast_one() {
        let mut compressing = Compressing::new(Compress::Auto);
        for _ in 0..UNHINDERED_BYTES / CHUNK {
            assert!(compressing.compress(&mut text()));
            compressing.sent(CHUNK, Duration::ZERO);
        }
        assert!(!compressing.compress(&mut text()), "so much it has sent");
        compressing.sent(64, SLOW_CHUNK / 100);
        assert!(!compressing.compress(&mut text()), "a hole");
        compressing.sent(CHUNK, SLOW_CHUNK);
        assert!(compressing.compress(&mut text()));
        compressing.sent(CHUNK, Duration::ZERO);
        assert!(compressing.compress(&mut text()));
    }

    #[test]
    fn who_waits_for_a_buffer_waits_for_the_network() {
        let mut compressing = Compressing::new(Compress::Auto);
        compressing.sent(UNHINDERED_BYTES, Duration::ZERO);
        assert!(!compressing.compress(&mut text()));
        compressing.waited_for_buffer = SLOW_CHUNK;
        compressing.sent(CHUNK, Duration::ZERO);
        assert!(compressing.compress(&mut text()));
    }
}
