//! Buffers of one chunk each, a fixed number for a transfer: whoever takes one waits until somebody gives one back, so
//! that a slow path or disk holds up reading and memory stays bounded at any speed.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Lends buffers; a clone is the same pool.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    buffer_bytes: usize,
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    free: Vec<Vec<u8>>,
    /// Buffers that may still be made.
    unmade: usize,
}

impl Pool {
    /// `count` buffers of `buffer_bytes`, made when they are first needed.
    pub(crate) fn new(count: usize, buffer_bytes: usize) -> Self {
        let state = State {
            free: Vec::new(),
            unmade: count,
        };
        Self(Arc::new(Shared {
            buffer_bytes,
            state: Mutex::new(state),
            returned: Condvar::new(),
        }))
    }

    /// A buffer of `length` bytes, at most what each has, with whatever is in it; waits for one. Those of a carrier
    /// come back at the latest when that ends.
    pub(crate) fn take(&self, length: usize) -> Buffer {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(bytes) = state.free.pop() {
                return self.buffer(bytes, length);
            }
            if state.unmade > 0 {
                state.unmade -= 1;
                drop(state);
                return self.buffer(vec![0; self.0.buffer_bytes], length);
            }
            state = self
                .0
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn buffer(&self, bytes: Vec<u8>, length: usize) -> Buffer {
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
        let mut state = self.pool.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free.push(bytes);
        drop(state);
        self.pool.0.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use bytes::Bytes;

    use super::*;

    #[test]
    fn who_takes_one_too_many_waits_for_one_that_comes_back_by_the_network_as_well() {
        let pool = Pool::new(2, 8);
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
}
