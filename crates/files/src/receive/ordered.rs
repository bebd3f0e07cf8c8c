//! Chunks to standard output: they come in any order, within a window, and leave in theirs. Those of a slow pipe leave
//! piece by piece before they are whole (FILE-39).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use files_proto::limits::CHUNK_BYTES;

use crate::limits::ORDERED_CHUNKS;

/// What waits for those before it.
pub(super) struct Ordered(Mutex<State>);

struct State {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    /// What of the next chunk was written before it came.
    begun: Vec<u8>,
    output: Box<dyn Write + Send>,
}

impl Ordered {
    pub(super) fn new(output: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(State {
            next: 0,
            waiting: BTreeMap::new(),
            begun: Vec::new(),
            output: Box::new(output),
        }))
    }

    /// Takes a chunk; writes it and those behind it where it is the next one. Who reads them is not to wait for another
    /// chunk: a buffer of lines would keep the end of this one.
    pub(super) fn write(&self, index: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if index < state.next {
            return Ok(());
        }
        if index > state.next {
            if index - state.next > ORDERED_CHUNKS {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a chunk came that was not wanted yet",
                ));
            }
            state.waiting.insert(index, bytes.to_vec());
            return Ok(());
        }
        let begun = std::mem::take(&mut state.begun);
        let rest = bytes.strip_prefix(&begun[..]).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a chunk is another one than its pieces, which have left",
            )
        })?;
        state.output.write_all(rest)?;
        state.next += 1;
        loop {
            let next = state.next;
            let Some(bytes) = state.waiting.remove(&next) else {
                return state.output.flush();
            };
            state.output.write_all(&bytes)?;
            state.next += 1;
        }
    }

    /// Writes a piece of the next chunk, which begins where the one before it ended; `false` where it does not.
    pub(super) fn begin(&self, index: u64, offset: u32, bytes: &[u8]) -> io::Result<bool> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length = state.begun.len();
        if index != state.next || offset as usize != length || length + bytes.len() > CHUNK_BYTES as usize {
            return Ok(false);
        }
        state.output.write_all(bytes)?;
        state.begun.extend_from_slice(bytes);
        state.output.flush().map(|()| true)
    }

    /// The chunk after the last one that was written.
    pub(super) fn next(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .output
            .flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::LineWriter;
    use std::sync::mpsc;

    use super::*;

    struct Told(mpsc::Sender<Vec<u8>>);

    impl Write for Told {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn chunks_leave_in_their_order_and_once() {
        let (told, written) = mpsc::channel();
        let ordered = Ordered::new(Told(told));
        for index in [2, 0, 2, 0, 1, 3, 1] {
            ordered.write(index, &[index as u8]).unwrap();
        }
        assert_eq!(ordered.next(), 4);
        assert!(ordered.write(5 + ORDERED_CHUNKS, &[0]).is_err());
        drop(ordered);
        assert_eq!(written.iter().flatten().collect::<Vec<u8>>(), [0, 1, 2, 3]);
    }

    /// FILE-39.
    #[test]
    fn pieces_leave_at_once_and_of_their_chunk_only_the_rest() {
        let (told, written) = mpsc::channel();
        let ordered = Ordered::new(LineWriter::new(Told(told)));
        let come = || written.try_iter().flatten().collect::<Vec<u8>>();
        assert!(ordered.begin(0, 0, b"a li").unwrap());
        assert_eq!(come(), b"a li");
        for (index, offset) in [(0, 0), (0, 5), (1, 0), (1, 4)] {
            assert!(!ordered.begin(index, offset, b"x").unwrap(), "{index} {offset}");
        }
        assert!(ordered.begin(0, 4, b"ne\n").unwrap());
        ordered.write(0, b"a line\nand more").unwrap();
        assert_eq!(come(), b"ne\nand more");
        assert!(ordered.begin(1, 0, b"of").unwrap());
        assert!(ordered.write(1, b"other").is_err(), "that has left");
    }

    #[test]
    fn the_end_of_a_chunk_leaves_with_it_also_where_it_is_no_whole_line() {
        let (told, written) = mpsc::channel();
        let ordered = Ordered::new(LineWriter::new(Told(told)));
        ordered.write(0, b"a line\nand a part").unwrap();
        assert_eq!(
            written.try_iter().flatten().collect::<Vec<u8>>(),
            b"a line\nand a part"
        );
    }
}
