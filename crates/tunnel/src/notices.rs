//! The way of notices from the shards to the program: a bounded queue, and the bounds of what can come in numbers.
//!
//! Whoever floods a server or a client makes the same things happen again and again. The first notices of a window are
//! told, for all shards together, and the number of the others when it ends ([`Notice::HeldBack`]). A shard never
//! waits: what the queue does not take is counted, and that is told as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use packet::FewAtATime;

use crate::handle::{Notice, Repeated};
use crate::limits::{NOTICES_MAX, TOLD_IN_WINDOW, TOLD_WINDOW};

/// The shards' end; clones send to the same program.
#[derive(Clone, Debug)]
pub(crate) struct NoticeSender {
    queue: mpsc::SyncSender<Notice>,
    windows: Arc<Windows>,
}

/// The program's end.
#[derive(Debug)]
pub(crate) struct NoticeReceiver {
    queue: mpsc::Receiver<Notice>,
    windows: Arc<Windows>,
}

/// One for each kind, in the order of [`Repeated::ALL`].
#[derive(Debug)]
struct Windows(Mutex<[FewAtATime; Repeated::ALL.len()]>);

/// Both ends of a new way.
pub(crate) fn channel() -> (NoticeSender, NoticeReceiver) {
    let (sender, receiver) = mpsc::sync_channel(NOTICES_MAX);
    let windows = Repeated::ALL.map(|kind| FewAtATime::new(most(kind), TOLD_WINDOW));
    let windows = Arc::new(Windows(Mutex::new(windows)));
    let sender = NoticeSender {
        queue: sender,
        windows: Arc::clone(&windows),
    };
    let receiver = NoticeReceiver {
        queue: receiver,
        windows,
    };
    (sender, receiver)
}

/// How many are told in a window.
fn most(kind: Repeated) -> u32 {
    match kind {
        Repeated::TurnedAway | Repeated::Refused => TOLD_IN_WINDOW,
        Repeated::Exhausted | Repeated::OwnAddresses | Repeated::Trouble => 1,
        Repeated::Any => 0,
    }
}

impl NoticeSender {
    /// Tells the program.
    pub(crate) fn send(&self, notice: Notice) {
        if let Err(mpsc::TrySendError::Full(_)) = self.queue.try_send(notice) {
            self.windows.take(Instant::now(), Repeated::Any);
        }
    }

    /// Tells what can come in numbers, or counts it. Whether it is told.
    pub(crate) fn send_few(&self, now: Instant, kind: Repeated, notice: impl FnOnce() -> Notice) -> bool {
        let is_told = self.windows.take(now, kind);
        if is_told {
            self.send(notice());
        }
        is_told
    }
}

impl NoticeReceiver {
    /// The next notice; `None` once all senders are gone, or when `limit` passes.
    pub(crate) fn next(&self, limit: Duration) -> Option<Notice> {
        let end = Instant::now() + limit;
        loop {
            let now = Instant::now();
            if let Some(notice) = self.windows.held_back(now) {
                return Some(notice);
            }
            // A window begins with a notice, which interrupts the wait, or with a full queue.
            let window_end = self.windows.poll_timeout();
            let until = window_end.map_or(end, |due| due.min(end));
            match self.queue.recv_timeout(until.saturating_duration_since(now)) {
                Ok(notice) => return Some(notice),
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < end => {}
                // Nobody waits for the end of a window any more.
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return self.windows.held_back(now + TOLD_WINDOW);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => return None,
            }
        }
    }
}

impl Windows {
    fn lock(&self) -> MutexGuard<'_, [FewAtATime; Repeated::ALL.len()]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one more of this kind may be told.
    fn take(&self, now: Instant, kind: Repeated) -> bool {
        self.lock()[kind as usize].take(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lock().iter().filter_map(FewAtATime::poll_timeout).min()
    }

    /// A number that is to be told.
    fn held_back(&self, now: Instant) -> Option<Notice> {
        let mut windows = self.lock();
        let mut kinds = Repeated::ALL.into_iter().zip(windows.iter_mut());
        kinds.find_map(|(what, window)| {
            let count = window.take_held_back(now)?;
            Some(Notice::HeldBack { what, count })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning() -> Notice {
        Notice::Warning { text: String::new() }
    }

    fn all(receiver: &NoticeReceiver) -> Vec<Notice> {
        std::iter::from_fn(|| receiver.next(Duration::ZERO)).collect()
    }

    #[test]
    fn of_many_of_a_kind_a_few_are_told_and_the_number_of_the_others() {
        let (sender, receiver) = channel();
        // Its window has ended by now.
        let past = Instant::now() - TOLD_WINDOW;
        let told = |kind, of: u32| (0..of).filter(|_| sender.send_few(past, kind, warning)).count();
        let most = TOLD_IN_WINDOW as usize;
        assert_eq!(told(Repeated::TurnedAway, 100), most);
        assert_eq!(told(Repeated::Exhausted, 3), 1);
        assert_eq!(told(Repeated::Refused, 2), 2);
        let mut counted = Vec::new();
        for notice in all(&receiver) {
            if let Notice::HeldBack { what, count } = notice {
                counted.push((what, count));
            }
        }
        assert_eq!(
            counted,
            [
                (Repeated::TurnedAway, 100 - u64::from(TOLD_IN_WINDOW)),
                (Repeated::Exhausted, 2)
            ]
        );
        assert!(sender.send_few(Instant::now(), Repeated::Exhausted, warning));
    }

    #[test]
    fn a_window_that_goes_on_is_told_of_when_the_shards_have_ended() {
        let (sender, receiver) = channel();
        let now = Instant::now();
        for _ in 0..3 {
            sender.send_few(now, Repeated::Trouble, warning);
        }
        assert_eq!(all(&receiver), [warning()]);
        drop(sender);
        let held_back = Notice::HeldBack {
            what: Repeated::Trouble,
            count: 2,
        };
        assert_eq!(all(&receiver), [held_back]);
    }

    #[test]
    fn what_the_queue_does_not_take_is_counted() {
        let (sender, receiver) = channel();
        (0..NOTICES_MAX + 5).for_each(|_| sender.send(warning()));
        assert_eq!(all(&receiver), vec![warning(); NOTICES_MAX]);
        drop(sender);
        let held_back = Notice::HeldBack {
            what: Repeated::Any,
            count: 5,
        };
        assert_eq!(all(&receiver), [held_back]);
    }

    #[test]
    fn each_kind_has_its_own_window() {
        for (index, kind) in Repeated::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
