//! Processes that have the same sockets for a while: the one whose sockets a process took over, and the one that takes
//! over its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::connection_id::Generation;

/// Says of nobody's IDs that they are a relative's.
const NOBODY: u8 = u8::MAX;

/// The relatives of a process, shared by the classifiers of all its shards; by default it has none.
#[derive(Clone, Debug, Default)]
pub struct Kin(Arc<Relatives>);

#[derive(Debug)]
struct Relatives {
    has_predecessor: AtomicBool,
    successor: AtomicU8,
}

impl Default for Relatives {
    fn default() -> Self {
        Self {
            has_predecessor: AtomicBool::new(false),
            successor: AtomicU8::new(NOBODY),
        }
    }
}

impl Kin {
    /// Whether the process lives whose sockets this one took over.
    pub(crate) fn has_predecessor(&self) -> bool {
        self.0.has_predecessor.load(Ordering::Relaxed)
    }

    /// Who takes over the sockets of this process.
    pub(crate) fn successor(&self) -> Option<Generation> {
        let number = self.0.successor.load(Ordering::Relaxed);
        (number != NOBODY).then(|| Generation::new(number))
    }

    pub(crate) fn is_alone(&self) -> bool {
        !self.has_predecessor() && self.successor().is_none()
    }

    /// Segments of other processes than this one and its successor are given to
    /// [`crate::Receiver::predecessor_datagrams`] while there is one; once it has ended, they may be answered.
    pub fn set_predecessor(&self, lives: bool) {
        self.0.has_predecessor.store(lives, Ordering::Relaxed);
    }

    /// Its segments are dropped from here on, which it receives as well; `None`: it did not come about.
    pub fn set_successor(&self, generation: Option<Generation>) {
        let number = generation.map_or(NOBODY, Generation::number);
        self.0.successor.store(number, Ordering::Relaxed);
    }
}
