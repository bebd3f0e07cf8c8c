//! Chunks to standard output: they come in any order, within a window, and leave in theirs.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use crate::limits::ORDERED_CHUNKS;

/// What waits for those before it.
pub(super) struct Ordered(Mutex<State>);

struct State {
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
    output: Box<dyn Write + Send>,
}

impl Ordered {
    pub(super) fn new(output: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(State {
            next: 0,
            waiting: BTreeMap::new(),
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
        state.output.write_all(bytes)?;
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
