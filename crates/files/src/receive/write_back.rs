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
use std::time::{Duration, Instant};

use files_proto::EntryId;

use super::file::Incoming;
use crate::limits::{
    JOURNALS_TIME, KEEP_TIME_MAX, SMALL_FILE_BYTES, TURN, WRITE_BACK_BYTES, WRITE_BACK_BYTES_MAX,
    WRITE_BACK_SMALL_BYTES,
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
    /// Open ones that the disk has taken: that their journals say so is not on it.
    taken: BTreeMap<EntryId, Arc<Incoming>>,
    /// Of small files.
    small_bytes: u64,
    is_over: bool,
}

impl State {
    fn is_due(&self) -> bool {
        self.bytes >= WRITE_BACK_BYTES || self.small_bytes >= WRITE_BACK_SMALL_BYTES
    }

    /// All of which the disk is to have the part and the journal: first those of which it has the part.
    fn take_parts(&mut self) -> Vec<Arc<Incoming>> {
        let files = std::mem::take(&mut self.files);
        let mut taken = std::mem::take(&mut self.taken);
        taken.retain(|entry, _| !files.contains_key(entry));
        taken.into_values().chain(files.into_values()).collect()
    }
}

impl WriteBack {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.state().is_over
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
    /// `sync` has it take everything, and waits for it until it is told that this is over.
    pub(super) fn run(&self, failed: impl Fn(&Arc<Incoming>, &io::Error), sync: impl Fn(&dyn Fn() -> bool)) {
        self.run_by(
            Incoming::sync,
            (Incoming::sync_journal, JOURNALS_TIME),
            failed,
            sync,
        );
    }

    /// The same, where `take` has the disk take one file, and `record` its journal, of all so seldom.
    fn run_by(
        &self,
        take: impl Fn(&Incoming) -> io::Result<()>,
        (record, pause): (impl Fn(&Incoming) -> io::Result<()>, Duration),
        failed: impl Fn(&Arc<Incoming>, &io::Error),
        sync: impl Fn(&dyn Fn() -> bool),
    ) {
        let mut recorded_at = Instant::now();
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
            let mut files = std::mem::take(&mut state.files);
            drop(state);
            // At the end somebody waits, and `keep_parts` is to have the rest.
            while !self.is_over()
                && let Some((entry, file)) = files.pop_first()
            {
                match take(&file) {
                    Ok(()) => {
                        self.state().taken.insert(entry, file);
                    }
                    // A disk tells of a failure once, to whoever asks.
                    Err(error) => failed(&file, &error),
                }
            }
            if recorded_at.elapsed() >= pause {
                self.record(&record);
                recorded_at = Instant::now();
            }
            if small_bytes > 0 && !self.is_over() {
                sync(&|| self.is_over());
            }
            let mut state = self.state();
            state.files.append(&mut files);
            state.taken.retain(|_, file| file.is_open());
            state.bytes -= bytes;
            state.small_bytes -= small_bytes;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Has the disk take what the journals say of files that it has taken. What it does not take comes again.
    fn record(&self, record: impl Fn(&Incoming) -> io::Result<()>) {
        while !self.is_over()
            && let Some((_, file)) = { self.state().taken.pop_first() }
        {
            let _ = record(&file);
        }
    }

    /// Lets everybody go.
    pub(super) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// After the end of a transfer that has something left to do: has the disk take what came of parts since, and what
    /// their journals say, so that it need not come again after another start of the machine either. Where somebody
    /// `hurries`, returns after [`KEEP_TIME_MAX`] at most; a disk that is slower goes on by itself, as long as the
    /// program lives. Its end waits for the one file that the disk is taking then, which no system call gives up.
    pub(super) fn keep_parts(&self, hurries: impl Fn() -> bool) {
        let files = self.state().take_parts();
        let (tell, told) = mpsc::channel();
        let sync = move || {
            for file in files {
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
    use std::cell::Cell;
    use std::path::PathBuf;

    use files_proto::FailReason;
    use files_proto::content::chunk_address;
    use files_proto::journal::Reader;

    use super::super::file::{Output, Part, Target};
    use super::super::synced::Synced;
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
                    |_| {
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

    /// One of two chunks.
    fn file(destination: &Arc<Destination>, entry: EntryId) -> Arc<Incoming> {
        let target = Target {
            entry,
            path: PathBuf::from(format!("file-{entry}")),
            part: PathBuf::from(format!("part-{entry}")),
            journal: PathBuf::from(format!("journal-{entry}")),
            size: Some(2 << 20),
            mode: 0o644,
            modified: 0,
            attributes: Vec::new(),
            replaces: false,
        };
        let output = Output::Part(Part::new(destination, None));
        Arc::new(Incoming::new(target, output, &BTreeMap::new()))
    }

    #[test]
    fn the_end_waits_for_one_file_at_most_and_all_are_kept_with_their_journals() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let write_back = WriteBack::default();
        let bytes = vec![7; 1 << 20];
        let files = [1, 2, 3].map(|entry| file(&destination, entry));
        for file in &files {
            file.take(&bytes, 0, chunk_address(0, false, &bytes)).unwrap();
            write_back.wrote(file, WRITE_BACK_BYTES);
        }
        write_back.wrote_small(WRITE_BACK_SMALL_BYTES);
        let took = Cell::new(0);
        let take = |_: &Incoming| {
            took.set(took.get() + 1);
            // As by Ctrl-C, while the disk takes the second.
            if took.get() == 2 {
                write_back.end();
            }
            Ok(())
        };
        let no_small = |_: &dyn Fn() -> bool| panic!("somebody waits");
        let no_journal = |_: &Incoming| panic!("somebody waits");
        write_back.run_by(
            take,
            (no_journal, Duration::ZERO),
            |_, error| panic!("{error}"),
            no_small,
        );
        assert_eq!(took.get(), 2);
        // A file that has come to its end meanwhile needs nothing.
        files[0].abandon(FailReason::Other);
        write_back.keep_parts(|| false);
        // After another start of the machine.
        let kept = [2, 3].map(|entry| {
            let mut reader = Reader::new([9; 16]);
            let journal = directory.path().join(format!("journal-{entry}"));
            reader.push(&std::fs::read(journal).unwrap());
            reader.finish().unwrap().chunks.len()
        });
        assert_eq!(kept, [1, 1]);
    }

    #[test]
    fn a_power_cut_takes_nothing_of_what_was_on_the_disk_a_while_ago() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let write_back = WriteBack::default();
        let bytes = vec![7; 1 << 20];
        let file = file(&destination, 1);
        file.take(&bytes, 0, chunk_address(0, false, &bytes)).unwrap();
        write_back.wrote(&file, WRITE_BACK_BYTES);
        let kept = Cell::new(None);
        let record = |file: &Incoming| {
            file.sync_journal()?;
            // After another start of the machine, at this moment.
            let mut reader = Reader::new([9; 16]);
            reader.push(&std::fs::read(directory.path().join("journal-1")).unwrap());
            kept.set(Some(reader.finish().unwrap().chunks.len()));
            write_back.end();
            Ok(())
        };
        let no_small = |_: &dyn Fn() -> bool| panic!("there are none");
        write_back.run_by(
            Incoming::sync,
            (record, Duration::ZERO),
            |_, error| panic!("{error}"),
            no_small,
        );
        assert_eq!(kept.get(), Some(1));
        assert!(write_back.state().taken.is_empty());
    }

    #[test]
    fn the_end_does_not_wait_for_a_disk_that_is_to_take_everything() {
        let (write_back, synced) = (WriteBack::default(), Arc::new(Synced::default()));
        let (asked, asks) = mpsc::channel();
        let (let_go, held) = mpsc::channel::<()>();
        let held = Cell::new(Some(held));
        write_back.wrote_small(WRITE_BACK_SMALL_BYTES);
        let write_back = &write_back;
        thread::scope(|scope| {
            scope.spawn(move || {
                let sync = |is_over: &dyn Fn() -> bool| {
                    let (asked, held) = (asked.clone(), held.take());
                    let stands = move || {
                        asked.send(()).unwrap();
                        // Until the end of this test.
                        let _ = held.unwrap().recv();
                        Ok(())
                    };
                    assert!(synced.ask_until(is_over, stands).is_none());
                };
                write_back.run(|_, error| panic!("{error}"), sync);
            });
            asks.recv_timeout(LIMIT).unwrap();
            // As by Ctrl-C.
            write_back.end();
        });
        drop(let_go);
    }

    #[test]
    fn files_that_the_disk_has_and_that_have_come_to_their_end_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let write_back = WriteBack::default();
        let files = [1, 2].map(|entry| file(&destination, entry));
        for file in &files {
            file.open().unwrap();
            write_back.wrote(file, WRITE_BACK_BYTES);
        }
        files[0].abandon(FailReason::Other);
        let take = |_: &Incoming| Ok(());
        thread::scope(|scope| {
            scope.spawn(|| {
                let (failed, no_small) = (
                    |_: &Arc<Incoming>, error: &io::Error| panic!("{error}"),
                    |_: &dyn Fn() -> bool| panic!("no small ones"),
                );
                write_back.run_by(take, (take, LIMIT), failed, no_small);
            });
            let state = write_back.state();
            let waited = write_back
                .changed
                .wait_timeout_while(state, LIMIT, |state| state.bytes > 0);
            let taken: Vec<EntryId> = waited.unwrap().0.taken.keys().copied().collect();
            write_back.end();
            assert_eq!(taken, [2]);
        });
    }

    #[test]
    fn parts_are_put_on_disk_while_others_are_written_and_the_end_lets_everybody_go() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let (file, write_back) = (file(&destination, 7), WriteBack::default());
        thread::scope(|scope| {
            scope.spawn(|| write_back.run(|_, error| panic!("{error}"), |_| panic!("no small ones")));
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
