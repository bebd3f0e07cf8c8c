//! Sending what a program writes to our standard input (FILE-15): chunks in order on one QUIC stream, since nothing of
//! it can be read twice.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use files_proto::content::{RootBuilder, chunk_address};
use files_proto::limits::CHUNK_BYTES;
use files_proto::message::Message;
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{EntryId, FailReason};
use peer::SendStream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Sending;
use crate::carrier::RecordSender;
use crate::error::TransferError;
use crate::limits::TURN;
use crate::pool::{Buffer, Pool};
use crate::progress::Counter;
use crate::source::Failure;

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
pub(super) fn send(sending: &Sending, entry: EntryId, stream: SendStream) {
    let pool = Pool::new(BUFFERS, CHUNK_BYTES as usize);
    let mut sender = RecordSender::Quic(stream);
    let sent = send_from(&mut Stdin(sending), sending, entry, &pool, |head, body| {
        sender.send(&head.encode(), body)
    });
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

/// Standard input, which is not waited for once the transfer is over.
struct Stdin<'a>(&'a Sending);

impl Read for Stdin<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let turn = Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(TURN.as_nanos()).unwrap_or(0),
        };
        let stdin = io::stdin();
        while !self.0.is_over() {
            if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&turn)).is_ok_and(|ready| ready > 0) {
                // Past the buffer of the library, which polling does not know.
                return Ok(rustix::io::read(&stdin, bytes)?);
            }
        }
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

/// Sends each chunk once it is full, or the end has come. The first one waits for the byte behind it: one that is alone
/// has another address (FILE-10).
fn send_from(
    input: &mut impl Read,
    sending: &Sending,
    entry: EntryId,
    pool: &Pool,
    mut send: impl FnMut(&RecordHead, Buffer) -> io::Result<()>,
) -> io::Result<()> {
    let chunk_bytes = CHUNK_BYTES as usize;
    let mut builder = RootBuilder::default();
    let mut size = 0;
    let mut index = 0;
    let mut body = pool.take(chunk_bytes);
    let mut filled = 0;
    while !sending.is_over() {
        fill(input, &mut body, &mut filled)?;
        if filled == 0 {
            break;
        }
        body.set_length(filled);
        let is_full = filled == chunk_bytes;
        let mut next = None;
        if index == 0 && is_full {
            let mut behind = pool.take(chunk_bytes);
            let read = read(input, &mut behind)?;
            next = (read > 0).then_some((behind, read));
        }
        let only = index == 0 && next.is_none();
        let address = chunk_address(index, only, &body);
        builder.insert(index, address);
        let length = filled;
        let chunk = Chunk {
            entry,
            index,
            address,
            only,
            hole: false,
        };
        let head = RecordHead {
            body: Body::Chunk(chunk),
            compressed: false,
            stored_bytes: length as u32,
            raw_bytes: length as u32,
        };
        if let Some(limit) = &sending.limit {
            let end = Instant::now() + limit.grant(Instant::now(), length);
            while !sending.is_over() && Instant::now() < end {
                thread::sleep(end.saturating_duration_since(Instant::now()).min(TURN));
            }
        }
        send(&head, body)?;
        size += length as u64;
        index += 1;
        sending.progress.add(Counter::BytesTotal, length as u64);
        sending.progress.add(Counter::BytesDone, length as u64);
        sending.progress.add(Counter::BytesWire, length as u64);
        if only || !is_full {
            break;
        }
        (body, filled) = next.unwrap_or_else(|| (pool.take(chunk_bytes), 0));
    }
    if sending.is_over() {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if let Some(root) = builder.root(index) {
        sending.outbox.push(&Message::FileEnd { entry, size, root });
    }
    Ok(())
}

/// Reads behind what is `filled` until the buffer is full, or to the end.
fn fill(input: &mut impl Read, buffer: &mut [u8], filled: &mut usize) -> io::Result<()> {
    while *filled < buffer.len() {
        match read(input, &mut buffer[*filled..])? {
            0 => break,
            read => *filled += read,
        }
    }
    Ok(())
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

    /// FILE-15.
    #[test]
    fn a_pipe_is_cut_in_whole_chunks_whose_hash_is_told_at_its_end() {
        let chunk = CHUNK_BYTES as usize;
        for length in [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let sending = Sending::new(Default::default());
            let pool = Pool::new(2, chunk);
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
        send_from(&mut slow, &sending, 0, &Pool::new(2, chunk), |_, body| {
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

    fn addresses(bytes: &[u8]) -> Vec<[u8; 32]> {
        let only = bytes.len() as u64 <= CHUNK_BYTES;
        let chunks = bytes.chunks(CHUNK_BYTES as usize).zip(0..);
        chunks
            .map(|(chunk, index)| chunk_address(index, only, chunk))
            .collect()
    }
}
