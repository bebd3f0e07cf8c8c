//! Buffers of one chunk each, a bounded number for all transfers of a program: whoever takes one waits until somebody
//! gives one back, so that a slow path or disk holds up reading, and memory stays bounded at any speed and with any
//! number of receivers. Each carrier of a transfer has a few of its own, by which it goes on whatever others hold; the
//! rest is divided among the transfers that have any.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use files_proto::limits::CHUNK_BYTES;

use crate::limits::CHUNKS_SHARED;

/// The memory for chunks that transfers share which are given a clone of it.
#[derive(Clone)]
pub struct ChunkMemory(Arc<Shared>);

struct Shared {
    /// Buffers that are nobody's own.
    shared: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Vec<u8>>,
    /// Buffers on loan to each transfer, its carriers' own ones not counted, by its number; none where it has none.
    of_transfers: BTreeMap<u64, usize>,
    transfers: u64,
}

impl Default for ChunkMemory {
    fn default() -> Self {
        Self::new(CHUNKS_SHARED)
    }
}

impl fmt::Debug for ChunkMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ChunkMemory").finish_non_exhaustive()
    }
}

impl ChunkMemory {
    fn new(shared: usize) -> Self {
        Self(Arc::new(Shared {
            shared,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of one transfer.
    pub(crate) fn transfer(&self) -> TransferMemory {
        let mut state = self.state();
        state.transfers += 1;
        TransferMemory {
            memory: self.clone(),
            number: state.transfers,
        }
    }
}

/// What a transfer has of it; a clone is the same.
#[derive(Clone)]
pub(crate) struct TransferMemory {
    memory: ChunkMemory,
    number: u64,
}

impl TransferMemory {
    /// The buffers of one of its carriers: `own` at least, 1 or more, and `most` at most.
    pub(crate) fn pool(&self, own: usize, most: usize) -> Pool {
        Pool(Arc::new(OfCarrier {
            transfer: self.clone(),
            own: own.max(1),
            most,
            lent: Mutex::default(),
        }))
    }
}

/// Lends buffers to a carrier; a clone is the same pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<OfCarrier>);

struct OfCarrier {
    transfer: TransferMemory,
    own: usize,
    most: usize,
    /// Locked after the memory's state.
    lent: Mutex<usize>,
}

impl OfCarrier {
    fn lent(&self) -> MutexGuard<'_, usize> {
        self.lent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more may be lent, which is counted then.
    fn lend(&self, state: &mut State) -> bool {
        let mut lent = self.lent();
        if *lent >= self.own {
            let number = self.transfer.number;
            let has = state.of_transfers.get(&number).copied().unwrap_or(0);
            let others = state.of_transfers.len() - usize::from(has > 0);
            let shared = self.transfer.memory.0.shared;
            let are_gone = state.of_transfers.values().sum::<usize>() >= shared;
            if *lent >= self.most || are_gone || has >= shared / (others + 1) {
                return false;
            }
            state.of_transfers.insert(number, has + 1);
        }
        *lent += 1;
        true
    }

    fn take_back(&self, state: &mut State, bytes: Vec<u8>) {
        let mut lent = self.lent();
        *lent -= 1;
        let number = self.transfer.number;
        if *lent >= self.own
            && let Some(has) = state.of_transfers.get_mut(&number)
        {
            *has -= 1;
            if *has == 0 {
                state.of_transfers.remove(&number);
            }
        }
        if state.free.len() < self.transfer.memory.0.shared {
            state.free.push(bytes);
        }
    }
}

impl Pool {
    /// One of its own, for tests: `count` buffers.
    #[cfg(test)]
    pub(crate) fn new(count: usize) -> Self {
        ChunkMemory::new(0).transfer().pool(count, count)
    }

    /// A buffer of `length` bytes, at most those of a chunk, with whatever is in it; waits for one. Those of a carrier
    /// come back at the latest when that ends.
    pub(crate) fn take(&self, length: usize) -> Buffer {
        let memory = &self.0.transfer.memory;
        let mut state = memory.state();
        while !self.0.lend(&mut state) {
            let waited = memory.0.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = state.free.pop();
        drop(state);
        self.buffer(bytes, length)
    }

    /// The same, where there is one.
    #[cfg(test)]
    fn try_take(&self) -> Option<Buffer> {
        let mut state = self.0.transfer.memory.state();
        let is_lent = self.0.lend(&mut state);
        drop(state);
        is_lent.then(|| self.buffer(None, 0))
    }

    fn buffer(&self, bytes: Option<Vec<u8>>, length: usize) -> Buffer {
        let bytes = bytes.unwrap_or_else(|| vec![0; CHUNK_BYTES as usize]);
        Buffer {
            length: length.min(bytes.len()),
            bytes,
            pool: self.clone(),
        }
    }
}

/// A buffer on loan; dropped, it goes back.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
    pool: Pool,
}

impl Buffer {
    /// Makes it shorter or longer, as far as it goes.
    pub(crate) fn set_length(&mut self, length: usize) {
        self.length = length.min(self.bytes.len());
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let memory = &self.pool.0.transfer.memory;
        self.pool.0.take_back(&mut memory.state(), bytes);
        // Whose turn it is depends on what all have.
        memory.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::iter::from_fn;
    use std::sync::mpsc;
    use std::thread;

    use bytes::Bytes;

    use super::*;
    use crate::limits::{CHUNKS_OWN_QUIC, CHUNKS_OWN_TCP, QUIC_BUFFERS, TCP_CONNECTIONS};

    #[test]
    fn who_takes_one_too_many_waits_for_one_that_comes_back_by_the_network_as_well() {
        let pool = Pool::new(2);
        let first = pool.take(8);
        let second = Bytes::from_owner(pool.take(3));
        assert_eq!((first.len(), second.len()), (8, 3));
        let (told, taken) = mpsc::channel();
        let waiting = pool.clone();
        let waiter = thread::spawn(move || {
            let buffer = waiting.take(5);
            told.send(()).unwrap();
            buffer.len()
        });
        assert!(taken.try_recv().is_err());
        drop(second.slice(1..));
        drop(second);
        assert_eq!(waiter.join().unwrap(), 5);
        drop(first);
    }

    /// All that a carrier gets while nothing comes back.
    fn fill(pool: &Pool) -> Vec<Buffer> {
        from_fn(|| pool.try_take()).collect()
    }

    #[test]
    fn a_transfer_that_is_alone_has_all_and_any_number_of_them_has_no_more_than_is_bounded() {
        let memory = ChunkMemory::default();
        let carriers = || {
            let transfer = memory.transfer();
            let quic = transfer.pool(CHUNKS_OWN_QUIC, QUIC_BUFFERS);
            [quic, transfer.pool(CHUNKS_OWN_TCP, TCP_CONNECTIONS)]
        };
        let alone = carriers();
        assert_eq!(fill(&alone[0]).len(), QUIC_BUFFERS);
        // Each receiver stands still with all that it was lent.
        let all: Vec<_> = (0..32).map(|_| carriers()).collect();
        let held: Vec<_> = all.iter().flatten().map(fill).collect();
        let own = all.len() * (CHUNKS_OWN_QUIC + CHUNKS_OWN_TCP);
        let total: usize = held.iter().map(Vec::len).sum();
        assert!(total <= CHUNKS_SHARED + own, "{total}");
        assert!(held.iter().step_by(2).all(|held| held.len() >= CHUNKS_OWN_QUIC));
        assert!(
            held.iter()
                .skip(1)
                .step_by(2)
                .all(|held| held.len() >= CHUNKS_OWN_TCP)
        );
        drop(held);
        assert_eq!(fill(&alone[0]).len(), QUIC_BUFFERS, "all came back");
        assert!(memory.state().free.len() <= CHUNKS_SHARED, "and no more is kept");
    }

    #[test]
    fn who_came_first_gives_back_before_it_gets_more() {
        let memory = ChunkMemory::new(8);
        let [first, second] = [(); 2].map(|()| memory.transfer().pool(1, 9));
        let mut of_first = fill(&first);
        assert_eq!(of_first.len(), 9);
        let mut of_second = fill(&second);
        assert_eq!(of_second.len(), 1, "its own one");
        of_first.truncate(7);
        of_second.extend(fill(&second));
        assert_eq!(of_second.len(), 3);
        of_first.truncate(6);
        assert!(first.try_take().is_none(), "it has more than its half still");
        of_second.extend(fill(&second));
        assert_eq!(of_second.len(), 4);
        drop(of_second);
        assert_eq!(fill(&first).len(), 3);
    }
}
