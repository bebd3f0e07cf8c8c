//! Which of many things are to be looked at: wakers on any thread add indices, one task takes them all.
//!
//! A [`Token`] is on the list at most once. The task parks by leaving its waker, which only succeeds while the list is
//! empty, so nothing added before or after is missed; while it works no waker is left, and adding costs no wake-up.

use std::sync::Arc;
use std::task::{Wake, Waker};

#[cfg(irpc_uds_loom)]
use loom::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
#[cfg(not(irpc_uds_loom))]
use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

/// The indices to look at and, while the task sleeps, its waker.
#[derive(Debug, Default)]
struct State {
    indices: Vec<usize>,
    parked: Option<Waker>,
}

/// The list that tokens join.
#[derive(Debug)]
pub(crate) struct ReadyList {
    state: Mutex<State>,
}

impl ReadyList {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::default()),
        })
    }

    /// Moves all indices to the end of `indices`. Whoever takes one calls [`Token::taken`] before looking.
    pub(crate) fn take_into(&self, indices: &mut impl Extend<usize>) {
        let mut state = self
            .state
            .lock()
            .expect("nothing panics while it holds this lock");
        indices.extend(state.indices.drain(..));
    }

    /// Leaves `waker` to be woken by the next index; false, and nothing left, if there is one already.
    pub(crate) fn park(&self, waker: &Waker) -> bool {
        let mut state = self
            .state
            .lock()
            .expect("nothing panics while it holds this lock");
        let empty = state.indices.is_empty();
        state.parked = empty.then(|| waker.clone());
        empty
    }

    fn push(&self, index: usize) {
        let parked = {
            let mut state = self
                .state
                .lock()
                .expect("nothing panics while it holds this lock");
            state.indices.push(index);
            state.parked.take()
        };
        if let Some(waker) = parked {
            waker.wake();
        }
    }
}

/// One thing that can be put on a list; its waker does that.
#[derive(Debug)]
pub(crate) struct Token {
    list: Arc<ReadyList>,
    index: usize,
    listed: AtomicBool,
}

impl Token {
    pub(crate) fn new(list: &Arc<ReadyList>, index: usize) -> Arc<Self> {
        Arc::new(Self {
            list: list.clone(),
            index,
            listed: AtomicBool::new(false),
        })
    }

    /// Puts it on the list unless it is there.
    pub(crate) fn mark(&self) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.list.push(self.index);
        }
    }

    /// It was taken from the list: the next mark lists it again.
    pub(crate) fn taken(&self) {
        self.listed.store(false, Ordering::Release);
    }
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.mark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.mark();
    }
}

#[cfg(all(test, not(irpc_uds_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_token_is_listed_once_until_it_is_taken() {
        let list = ReadyList::new();
        let token = Token::new(&list, 7);
        token.mark();
        token.mark();
        let mut taken = Vec::new();
        list.take_into(&mut taken);
        assert_eq!(taken, [7]);
        token.mark();
        list.take_into(&mut taken);
        assert_eq!(
            taken,
            [7],
            "marked while it was being looked at, but not yet taken"
        );
        token.taken();
        token.mark();
        list.take_into(&mut taken);
        assert_eq!(taken, [7, 7]);
    }

    #[test]
    fn only_an_empty_list_parks_and_only_the_first_mark_wakes() {
        let list = ReadyList::new();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(woken.clone());
        let (first, second) = (Token::new(&list, 0), Token::new(&list, 1));
        first.mark();
        assert!(!list.park(&waker));
        list.take_into(&mut Vec::new());
        first.taken();
        assert!(list.park(&waker));
        first.mark();
        second.mark();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}

#[cfg(all(test, irpc_uds_loom))]
mod interleavings {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use std::sync::Arc as StdArc;

    /// Two threads make something to do and mark it, each twice; the task that takes and parks must see all of it.
    #[test]
    fn no_mark_is_lost() {
        loom::model(|| {
            let list = ReadyList::new();
            let work = StdArc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let tokens = [Token::new(&list, 0), Token::new(&list, 1)];
            let wake_count = StdArc::new(AtomicUsize::new(0));
            struct Counting(StdArc<AtomicUsize>);
            impl Wake for Counting {
                fn wake(self: StdArc<Self>) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                    loom::thread::yield_now();
                }
            }
            let waker = Waker::from(StdArc::new(Counting(wake_count.clone())));
            let threads: Vec<_> = (0..2)
                .map(|index| {
                    let (work, token) = (work.clone(), tokens[index].clone());
                    loom::thread::spawn(move || {
                        work[index].fetch_add(1, Ordering::SeqCst);
                        token.mark();
                    })
                })
                .collect();
            let mut done = [0; 2];
            let mut parked_at = None;
            while done.iter().sum::<usize>() < 2 {
                if let Some(count) = parked_at {
                    if wake_count.load(Ordering::SeqCst) == count {
                        loom::thread::yield_now();
                        continue;
                    }
                    parked_at = None;
                }
                let mut indices = Vec::new();
                list.take_into(&mut indices);
                for index in indices {
                    tokens[index].taken();
                    done[index] += work[index].swap(0, Ordering::SeqCst);
                }
                let before = wake_count.load(Ordering::SeqCst);
                if done.iter().sum::<usize>() < 2 && list.park(&waker) {
                    parked_at = Some(before);
                }
            }
            for thread in threads {
                thread.join().expect("it only marks");
            }
        });
    }
}
