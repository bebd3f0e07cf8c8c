//! Sending what a program writes to our standard input (FILE-15): chunks in order on one QUIC stream, since nothing of
//! it can be read twice. Where it pauses and the receiver passes it on, what there is of a chunk is sent ahead
//! (FILE-39).

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use files_proto::content::{RootBuilder, chunk_address};
use files_proto::limits::CHUNK_BYTES;
use files_proto::message::Message;
use files_proto::record::{Body, Chunk, Piece, RecordHead};
use files_proto::{EntryId, FailReason};
use peer::SendStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Sending;
use crate::carrier::{Carrier, RecordSender};
use crate::error::TransferError;
use crate::limits::{CHUNKS_OWN_QUIC, PIPE_PAUSE, TURN};
use crate::pool::{Buffer, Pool, TransferMemory};
use crate::progress::{Counter, FileInWork};
use crate::source::Failure;
use crate::waits::Wait;

/// Chunks of the pipe in memory.
const BUFFERS: usize = 8;

/// Whether a transfer of this process has begun to read standard input: what another one would read is not the whole.
static IS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Whether a transfer of this process has begun to send standard input: no other one does then, and ends by
/// [`crate::TransferError::InputSpent`] where it is to.
pub fn is_stdin_spent() -> bool {
    IS_BEGUN.load(Ordering::SeqCst)
}

/// The caller sends standard input from here on, unless somebody has begun to before.
pub(super) fn begin() -> Result<(), TransferError> {
    match IS_BEGUN.swap(true, Ordering::SeqCst) {
        true => Err(TransferError::InputSpent),
        false => Ok(()),
    }
}

/// Sends standard input to its end.
pub(super) fn send(sending: &Sending, memory: &TransferMemory, entry: EntryId, stream: SendStream) {
    let pool = memory.pool(CHUNKS_OWN_QUIC, BUFFERS);
    let mut sender = RecordSender::Quic(stream);
    sending.progress.begin_file(entry, || FileInWork {
        path: "standard input".to_owned(),
        bytes_done: 0,
        bytes_total: None,
    });
    let sent = send_from(&mut Stdin(sending), sending, entry, &pool, |head, body| {
        sender.send(&head.encode(), body)
    });
    sending.progress.end_file(entry);
    match sent {
        Ok(()) => {
            // The connection may be gone, which is told by its end.
            let _ = sender.finish();
        }
        Err(error) => sending.fail(
            entry,
            Failure {
                reason: FailReason::Unreadable,
                text: format!("standard input: {error}"),
            },
        ),
    }
}

/// What a pipe is read from.
trait Input: Read {
    /// Whether something can be read, or the end has come, within this time.
    fn is_ready(&mut self, within: Duration) -> io::Result<bool>;
}

/// Standard input, which is not waited for once the transfer is over.
struct Stdin<'a>(&'a Sending);

impl Input for Stdin<'_> {
    fn is_ready(&mut self, within: Duration) -> io::Result<bool> {
        let (stdin, deadline) = (io::stdin(), Instant::now() + within);
        while !self.0.is_over() {
            let left = deadline.saturating_duration_since(Instant::now());
            let turn = Timespec {
                tv_sec: 0,
                tv_nsec: i64::try_from(left.min(TURN).as_nanos()).unwrap_or(0),
            };
            if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&turn)).is_ok_and(|ready| ready > 0) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl Read for Stdin<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while !self.is_ready(TURN)? {}
        // Past the buffer of the library, which polling does not know.
        Ok(rustix::io::read(io::stdin(), bytes)?)
    }
}

/// Sends chunks by `send`, one after the other.
struct Pipe<'a, S> {
    sending: &'a Sending,
    entry: EntryId,
    pool: &'a Pool,
    send: S,
    index: u64,
    /// Bytes of the chunk that is being read which were sent ahead.
    begun: usize,
}

/// Sends each chunk once it is full, or the end has come. The first one waits for the byte behind it: one that is alone
/// has another address (FILE-10).
fn send_from(
    input: &mut impl Input,
    sending: &Sending,
    entry: EntryId,
    pool: &Pool,
    send: impl FnMut(&RecordHead, Buffer) -> io::Result<()>,
) -> io::Result<()> {
    let chunk_bytes = CHUNK_BYTES as usize;
    let mut pipe = Pipe {
        sending,
        entry,
        pool,
        send,
        index: 0,
        begun: 0,
    };
    let mut builder = RootBuilder::default();
    let mut size = 0;
    let mut body = pool.take(chunk_bytes);
    let mut filled = 0;
    while !sending.is_over() {
        pipe.fill(input, &mut body, &mut filled)?;
        if filled == 0 {
            break;
        }
        body.set_length(filled);
        let is_full = filled == chunk_bytes;
        let mut next = None;
        if pipe.index == 0 && is_full {
            pipe.wait(input, &body)?;
            let mut behind = pool.take(chunk_bytes);
            let read = read(input, &mut behind)?;
            next = (read > 0).then_some((behind, read));
        }
        let only = pipe.index == 0 && next.is_none();
        let address = chunk_address(pipe.index, only, &body);
        builder.insert(pipe.index, address);
        let chunk = Chunk {
            entry,
            index: pipe.index,
            address,
            only,
            hole: false,
        };
        pipe.send(Body::Chunk(chunk), body)?;
        size += filled as u64;
        pipe.index += 1;
        pipe.begun = 0;
        sending.progress.add(Counter::BytesTotal, filled as u64);
        sending.progress.add(Counter::BytesDone, filled as u64);
        sending.progress.change_file(entry, |file| file.bytes_done = size);
        if only || !is_full {
            break;
        }
        (body, filled) = next.unwrap_or_else(|| (pool.take(chunk_bytes), 0));
    }
    if sending.is_over() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if let Some(root) = builder.root(pipe.index) {
        sending.outbox.push(&Message::FileEnd { entry, size, root });
    }
    Ok(())
}

impl<S: FnMut(&RecordHead, Buffer) -> io::Result<()>> Pipe<'_, S> {
    /// Reads behind what is `filled` until the buffer is full, or to the end.
    fn fill(&mut self, input: &mut impl Input, buffer: &mut [u8], filled: &mut usize) -> io::Result<()> {
        while *filled < buffer.len() {
            self.wait(input, &buffer[..*filled])?;
            let _waiting = self.sending.progress.wait(Wait::Disk);
            match read(input, &mut buffer[*filled..])? {
                0 => break,
                read => *filled += read,
            }
        }
        Ok(())
    }

    /// Before more is read: where it does not come at once, what there is of the chunk is sent ahead.
    fn wait(&mut self, input: &mut impl Input, chunk: &[u8]) -> io::Result<()> {
        let ahead = &chunk[self.begun..];
        let takes_pieces = self.sending.takes_pieces.load(Ordering::SeqCst);
        if ahead.is_empty() || !takes_pieces || input.is_ready(PIPE_PAUSE)? {
            return Ok(());
        }
        let piece = Piece {
            entry: self.entry,
            index: self.index,
            offset: self.begun as u32,
        };
        let mut body = self.pool.take(ahead.len());
        body.copy_from_slice(ahead);
        self.begun = chunk.len();
        self.send(Body::Piece(piece), body)
    }

    fn send(&mut self, body: Body, bytes: Buffer) -> io::Result<()> {
        let length = bytes.len();
        let head = RecordHead {
            body,
            compressed: false,
            stored_bytes: length as u32,
            raw_bytes: length as u32,
        };
        let sending = self.sending;
        if let Some(limit) = &sending.limit {
            let _waiting = sending.progress.wait(Wait::Limit);
            let end = Instant::now() + limit.grant(Instant::now(), length);
            while !sending.is_over() && Instant::now() < end {
                thread::sleep(end.saturating_duration_since(Instant::now()).min(TURN));
            }
        }
        sending.progress.add(Counter::BytesWire, length as u64);
        // A pipe is carried by QUIC.
        let _waiting = sending.progress.wait(Wait::Network(Carrier::Quic));
        (self.send)(&head, bytes)
    }
}

/// What is there, once something is; nothing at the end.
fn read(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use files_proto::message::Decoder;

    use super::*;

    impl Input for &[u8] {
        fn is_ready(&mut self, _: Duration) -> io::Result<bool> {
            Ok(true)
        }
    }

    impl Input for Slow<'_> {
        fn is_ready(&mut self, _: Duration) -> io::Result<bool> {
            Ok(true)
        }
    }

    /// FILE-15.
    #[test]
    fn a_pipe_is_cut_in_whole_chunks_whose_hash_is_told_at_its_end() {
        let chunk = CHUNK_BYTES as usize;
        for length in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let sending = Sending::new(Default::default());
            let pool = Pool::new(2);
            let mut sent = Vec::new();
            send_from(&mut &bytes[..], &sending, 7, &pool, |head, body| {
                let Body::Chunk(chunk) = head.body else {
                    panic!("{head:?}")
                };
                chunk.verify(&body).unwrap();
                assert_eq!(chunk.index * CHUNK_BYTES, sent.len() as u64);
                sent.extend_from_slice(&body);
                Ok(())
            })
            .unwrap();
            assert!(sent == bytes);
            let mut decoder = Decoder::default();
            decoder.push(&sending.outbox.take());
            let end = decoder.next_message().unwrap();
            let root = files_proto::content::root(&addresses(&bytes));
            assert_eq!(
                end,
                Some(Message::FileEnd {
                    entry: 7,
                    size: length as u64,
                    root
                })
            );
        }
    }

    /// A program that writes a little at a time: what it had written, and what of it had been sent, whenever more was
    /// asked of it.
    struct Slow<'a> {
        left: usize,
        sent: &'a Cell<usize>,
        asked: Vec<(usize, usize)>,
    }

    impl Read for Slow<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let written = self.asked.last().map_or(0, |(written, _)| *written);
            let read = bytes.len().min(self.left).min(100_003);
            self.left -= read;
            self.asked.push((written + read, self.sent.get()));
            Ok(read)
        }
    }

    /// FILE-15.
    #[test]
    fn a_chunk_leaves_once_it_is_full_and_the_first_one_with_the_byte_behind_it() {
        let chunk = CHUNK_BYTES as usize;
        let sending = Sending::new(Default::default());
        let sent = Cell::new(0);
        let mut slow = Slow {
            left: 3 * chunk + 5,
            sent: &sent,
            asked: Vec::new(),
        };
        send_from(&mut slow, &sending, 0, &Pool::new(2), |_, body| {
            sent.set(sent.get() + body.len());
            Ok(())
        })
        .unwrap();
        assert_eq!(sent.get(), 3 * chunk + 5);
        for pair in slow.asked.windows(2) {
            let (written, sent) = (pair[0].0, pair[1].1);
            let expected = match written {
                written if written <= chunk => 0,
                written => written / chunk * chunk,
            };
            assert!(sent >= expected, "{sent} bytes of {written} were sent");
        }
    }

    /// Parts that a program writes with a pause behind each, in which it is seen what has been sent of them.
    struct Pausing<'a> {
        parts: Vec<&'a [u8]>,
        has_paused: bool,
        sent: &'a Cell<usize>,
        seen: Vec<usize>,
    }

    impl Read for Pausing<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let Some(part) = self.parts.first_mut() else {
                return Ok(0);
            };
            let read = part.read(bytes)?;
            if part.is_empty() {
                self.parts.remove(0);
                self.has_paused = false;
            }
            self.seen.push(self.sent.get());
            Ok(read)
        }
    }

    impl Input for Pausing<'_> {
        fn is_ready(&mut self, within: Duration) -> io::Result<bool> {
            assert_eq!(within, PIPE_PAUSE);
            Ok(std::mem::replace(&mut self.has_paused, true) || self.parts.is_empty())
        }
    }

    /// FILE-39.
    #[test]
    fn what_was_written_before_a_pause_leaves_in_it_where_the_receiver_passes_it_on() {
        let chunk = CHUNK_BYTES as usize;
        let bytes: Vec<u8> = (0..2 * chunk + 9).map(|index| (index % 251) as u8).collect();
        let lengths = [5, 7, chunk - 12, 1, chunk - 3, 9, 2];
        for takes_pieces in [true, false] {
            let sending = Sending::new(Default::default());
            sending.takes_pieces.store(takes_pieces, Ordering::SeqCst);
            let mut rest = &bytes[..];
            let parts = lengths.map(|length| rest.split_off(..length).unwrap()).to_vec();
            let sent = Cell::new(0);
            let mut pausing = Pausing {
                parts,
                has_paused: true,
                sent: &sent,
                seen: Vec::new(),
            };
            let (mut whole, mut begun) = (Vec::new(), Vec::new());
            send_from(&mut pausing, &sending, 7, &Pool::new(3), |head, body| {
                match head.body {
                    Body::Chunk(chunk) => {
                        chunk.verify(&body).unwrap();
                        assert!(body.starts_with(&begun), "it has all of its pieces");
                        begun.clear();
                        whole.extend_from_slice(&body);
                    }
                    Body::Piece(piece) => {
                        assert_eq!((piece.entry, piece.index), (7, whole.len() as u64 / CHUNK_BYTES));
                        assert_eq!(piece.offset as usize, begun.len());
                        begun.extend_from_slice(&body);
                    }
                    body => panic!("{body:?}"),
                }
                sent.set(whole.len() + begun.len());
                Ok(())
            })
            .unwrap();
            assert!(whole == bytes);
            if takes_pieces {
                assert_eq!(pausing.seen[1..4], [5, 12, chunk], "all that was written before");
            } else {
                assert_eq!(pausing.seen[1..4], [0, 0, 0]);
            }
        }
    }

    fn addresses(bytes: &[u8]) -> Vec<[u8; 32]> {
        let only = bytes.len() as u64 <= CHUNK_BYTES;
        let chunks = bytes.chunks(CHUNK_BYTES as usize).zip(0..);
        chunks
            .map(|(chunk, index)| chunk_address(index, only, chunk))
            .collect()
    }
}
