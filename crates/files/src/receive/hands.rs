//! Whether what takes the bytes, a disk or a pipe, holds up the threads of carriers: what does not arrive then says
//! nothing about the network.

use std::sync::atomic::{AtomicU64, Ordering};

/// The records that those threads have in hands.
#[derive(Default)]
pub(super) struct Hands {
    taken: AtomicU64,
    done: AtomicU64,
}

impl Hands {
    /// Works on a record.
    pub(super) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        self.taken.fetch_add(1, Ordering::SeqCst);
        let result = work();
        self.done.fetch_add(1, Ordering::SeqCst);
        result
    }

    /// Whether there is work, and none was done since the look before, which left `done`.
    pub(super) fn are_held(&self, done: &mut u64) -> bool {
        let now = self.done.load(Ordering::SeqCst);
        let before = std::mem::replace(done, now);
        now == before && self.taken.load(Ordering::SeqCst) > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_are_held_while_work_is_not_done() {
        let (hands, mut done) = (Hands::default(), 0);
        assert!(!hands.are_held(&mut done), "there is no work");
        hands.work(|| {
            assert!(hands.are_held(&mut done));
            hands.work(|| ());
            assert!(!hands.are_held(&mut done), "one of both was done");
            assert!(hands.are_held(&mut done));
        });
        assert!(!hands.are_held(&mut done) && !hands.are_held(&mut done));
    }
}
