//! What a file system says of everything that it was to put on disk. It tells of a failure once to each open file, to
//! whoever asks first, so that what one was told is remembered for all who ask afterwards: who says that everything is
//! on disk does not say so past an error that another one has heard (FILE-42).

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::limits::TURN;

#[derive(Default)]
pub(super) struct Synced(Mutex<Option<Failure>>);

struct Failure {
    kind: io::ErrorKind,
    code: Option<i32>,
    text: String,
}

impl Synced {
    /// Asks on a thread of its own, as a disk may take long for what other programs have written as well; `None` where
    /// nobody waits for the answer any more, and the disk goes on by itself.
    pub(super) fn ask_until(
        self: &Arc<Self>,
        is_over: impl Fn() -> bool,
        sync: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Option<io::Result<()>> {
        let (tell, told) = mpsc::channel();
        let synced = Arc::clone(self);
        // Who asked may have gone.
        let ask = move || drop(tell.send(synced.ask(sync)));
        if let Err(error) = thread::Builder::new().name("syncing".to_owned()).spawn(ask) {
            return Some(Err(error));
        }
        loop {
            match told.recv_timeout(TURN) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) if is_over() => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Some(Err(io::Error::other("the disk was not asked to its end")));
                }
            }
        }
    }

    /// Asks by `sync`, one after another; after a failure it fails for good.
    fn ask(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_none() {
            *failed = sync().err().map(|error| Failure {
                kind: error.kind(),
                code: error.raw_os_error(),
                text: error.to_string(),
            });
        }
        match &*failed {
            None => Ok(()),
            Some(Failure { code: Some(code), .. }) => Err(io::Error::from_raw_os_error(*code)),
            Some(Failure { kind, text, .. }) => Err(io::Error::new(*kind, text.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FILE-42: the disk tells the first who asks, and that one has not passed it on when the last one asks.
    #[test]
    fn a_failure_that_another_thread_is_told_of_is_the_last_ones_as_well() {
        let synced = &Synced::default();
        let (told, asked) = mpsc::channel();
        let (let_go, held) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                synced.ask(|| {
                    told.send(()).unwrap();
                    held.recv().unwrap();
                    Err(io::Error::from_raw_os_error(5))
                })
            });
            asked.recv().unwrap();
            let last = scope.spawn(move || synced.ask(|| Ok(())));
            let_go.send(()).unwrap();
            assert!(first.join().unwrap().is_err());
            assert_eq!(last.join().unwrap().unwrap_err().raw_os_error(), Some(5));
        });
        assert!(synced.ask(|| Ok(())).is_err());
    }

    #[test]
    fn who_asks_hears_the_answer_and_waits_no_longer_than_it_is_worth_to_them() {
        let synced = Arc::new(Synced::default());
        let answer = synced.ask_until(|| false, || Ok(()));
        assert!(matches!(answer, Some(Ok(()))), "{answer:?}");
        let (let_go, held) = mpsc::channel::<()>();
        let (asked, asks) = mpsc::channel();
        let stands = move || {
            asked.send(()).unwrap();
            let _ = held.recv();
            Err(io::Error::from_raw_os_error(5))
        };
        assert!(synced.ask_until(|| true, stands).is_none());
        asks.recv().unwrap();
        drop(let_go);
        // What the disk says all the same is everybody's.
        let answer = synced.ask_until(|| false, || Ok(()));
        assert!(matches!(answer, Some(Err(_))), "{answer:?}");
    }
}
