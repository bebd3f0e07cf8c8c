//! What was written and is not on disk yet, bounded: a thread has the disk take it while others write on, and where the
//! disk is too slow for that the writers wait, and by that the sender.
//!
//! A file with a part is written to the disk by itself. Small files have their places by then, and are too many for
//! that: of those the file system is asked for all at once, and seldom, as it then writes what others wrote, too.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use files_proto::EntryId;

use super::file::Incoming;
use crate::limits::{
    KEEP_TIME_MAX, SMALL_FILE_BYTES, TURN, WRITE_BACK_BYTES, WRITE_BACK_BYTES_MAX, WRITE_BACK_SMALL_BYTES,
};

#[derive(Default)]
pub(super) struct WriteBack {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Of files with parts.
    bytes: u64,
    files: BTreeMap<EntryId, Arc<Incoming>>,
    /// Of small files.
    small_bytes: u64,
    is_over: bool,
}

impl State {
    fn is_due(&self) -> bool {
        self.bytes >= WRITE_BACK_BYTES || self.small_bytes >= WRITE_BACK_SMALL_BYTES
    }
}

impl WriteBack {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes of a file were written; waits where there are too many.
    pub(super) fn wrote(&self, file: &Arc<Incoming>, bytes: u64) {
        let mut state = self.state();
        state.bytes += bytes;
        state
            .files
            .entry(file.target.entry)
            .or_insert_with(|| Arc::clone(file));
        drop(state);
        self.wait();
    }

    /// A small file of so many bytes has its place.
    pub(super) fn wrote_small(&self, bytes: u64) {
        let mut state = self.state();
        state.small_bytes += bytes + SMALL_FILE_BYTES;
        if state.is_due() {
            self.changed.notify_all();
        }
    }

    /// Has the disk take what is due, and waits where there is too much.
    pub(super) fn wait(&self) {
        let state = self.state();
        if !state.is_due() {
            return;
        }
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| {
            state.bytes + state.small_bytes > WRITE_BACK_BYTES_MAX && !state.is_over
        });
        drop(waited);
    }

    /// The thread that has the disk take it, until the end; `failed` is told of files that it does not take, and
    /// `sync` has it take everything.
    pub(super) fn run(&self, failed: impl Fn(&Arc<Incoming>, &io::Error), sync: impl Fn()) {
        loop {
            let mut state = self
                .changed
                .wait_while(self.state(), |state| !state.is_due() && !state.is_over)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let bytes = state.bytes;
            let small_bytes = match state.small_bytes {
                few if few < WRITE_BACK_SMALL_BYTES => 0,
                many => many,
            };
            let files = std::mem::take(&mut state.files);
            drop(state);
            for file in files.into_values() {
                // A disk tells of a failure once, to whoever asks.
                if let Err(error) = file.sync() {
                    failed(&file, &error);
                }
            }
            if small_bytes > 0 {
                sync();
            }
            let mut state = self.state();
            state.bytes -= bytes;
            state.small_bytes -= small_bytes;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Lets everybody go.
    pub(super) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// After the end of a transfer that has something left to do: has the disk take what came of parts since, so that
    /// it need not come again after another start of the machine either. Where somebody `hurries`, waits for
    /// [`KEEP_TIME_MAX`] at most; a disk that is slower goes on by itself, as long as the program lives.
    pub(super) fn keep_parts(&self, hurries: impl Fn() -> bool) {
        let files = std::mem::take(&mut self.state().files);
        let (tell, told) = mpsc::channel();
        let sync = move || {
            for file in files.into_values() {
                // What it does not take comes again.
                let _ = file.sync_for_good();
            }
            // It may have taken longer.
            let _ = tell.send(());
        };
        if thread::Builder::new().spawn(sync).is_err() {
            return;
        }
        let mut waited = Duration::ZERO;
        while waited < KEEP_TIME_MAX && told.recv_timeout(TURN) == Err(RecvTimeoutError::Timeout) {
            if hurries() {
                waited += TURN;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::file::{Output, Part, Target};
    use super::*;
    use crate::destination::Destination;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn who_writes_small_files_waits_for_a_disk_that_is_behind_and_goes_on_with_it() {
        let (asked, asks) = mpsc::channel();
        let (let_go, held) = mpsc::channel::<()>();
        let (told, ended) = mpsc::channel();
        let write_back = WriteBack::default();
        let write_back = &write_back;
        thread::scope(|scope| {
            scope.spawn(move || {
                write_back.run(
                    |_, error| panic!("{error}"),
                    || {
                        asked.send(()).unwrap();
                        held.recv().unwrap();
                    },
                );
            });
            write_back.wrote_small(WRITE_BACK_SMALL_BYTES / 2);
            write_back.wait();
            assert!(asks.try_recv().is_err(), "it is not due");
            write_back.wrote_small(WRITE_BACK_SMALL_BYTES / 2);
            // Due, and not too much.
            write_back.wait();
            asks.recv_timeout(LIMIT).unwrap();
            // Files without bytes are something as well.
            for _ in 0..WRITE_BACK_BYTES_MAX / SMALL_FILE_BYTES {
                write_back.wrote_small(0);
            }
            scope.spawn(move || {
                write_back.wait();
                told.send(()).unwrap();
            });
            assert!(ended.try_recv().is_err(), "nothing was taken so far");
            let_go.send(()).unwrap();
            // What came meanwhile is taken next.
            asks.recv_timeout(LIMIT).unwrap();
            let_go.send(()).unwrap();
            ended.recv_timeout(LIMIT).unwrap();
            write_back.end();
        });
    }

    #[test]
    fn parts_are_put_on_disk_while_others_are_written_and_the_end_lets_everybody_go() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let target = Target {
            entry: 7,
            path: PathBuf::from("file"),
            part: PathBuf::from("part"),
            journal: PathBuf::from("journal"),
            size: Some(1 << 20),
            mode: 0o644,
            modified: 0,
            attributes: Vec::new(),
            replaces: false,
        };
        let file = Incoming::new(
            target,
            Output::Part(Part::new(&destination, None)),
            &BTreeMap::new(),
        );
        let (file, write_back) = (Arc::new(file), WriteBack::default());
        thread::scope(|scope| {
            scope.spawn(|| write_back.run(|_, error| panic!("{error}"), || panic!("no small ones")));
            // They return, because the thread takes them.
            for _ in 0..10 {
                write_back.wrote(&file, WRITE_BACK_BYTES_MAX);
            }
            write_back.end();
        });
        // Nobody takes this any more, and nobody waits.
        write_back.wrote(&file, 2 * WRITE_BACK_BYTES_MAX);
        assert_eq!(write_back.state().files.len(), 1);
    }
}
