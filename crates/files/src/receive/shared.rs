//! What all threads of a receiver share: files under way, directories that are not complete, and what is to be
//! acknowledged.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use files_proto::limits::RANGES_MAX;
use files_proto::manifest::Manifest;
use files_proto::message::{Message, Totals};
use files_proto::name::Rules;
use files_proto::{Attribute, EntryId, FailReason, Ranges, SkipReason};

use super::doubt::Doubt;
use super::file::Incoming;
use super::hands::Hands;
use super::placing::Placing;
use super::synced::Synced;
use super::write_back::WriteBack;
use crate::carrier::Sockets;
use crate::carrier::tcp::Listening;
use crate::control::{Bell, Outbox};
use crate::destination::{self, Destination};
use crate::error::TransferError;
use crate::limits::{COMPARED_FILES_MAX, PLACES_MAX, PROBLEMS_MAX, TURN};
use crate::progress::{Counter, Event, How, Progress};

pub(super) struct Receiving {
    /// `None` for standard output, or where nothing is written.
    pub(super) destination: Option<Arc<Destination>>,
    /// What power cuts may have taken, and may take.
    pub(super) doubt: Doubt,
    pub(super) outbox: Outbox,
    pub(super) progress: Progress,
    pub(super) write_back: WriteBack,
    /// What the disk has said so far.
    pub(super) synced: Arc<Synced>,
    pub(super) placing: Placing,
    /// Something has come for the thread that hears the sender.
    pub(super) bell: Bell,
    /// Takes TCP connections.
    pub(super) listening: Listening,
    pub(super) state: Mutex<State>,
    /// A file has come to its end.
    pub(super) ended: Condvar,
    /// What ends the whole transfer.
    pub(super) fatal: Mutex<Option<TransferError>>,
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) lanes: AtomicUsize,
    pub(super) sockets: Sockets,
    /// Of the threads of carriers.
    pub(super) hands: Hands,
    pub(super) bytes_sent: AtomicU64,
    pub(super) chunks_sent: AtomicU64,
    /// Chunks and small files that came with other bytes than they should.
    pub(super) damaged_arrivals: AtomicU64,
}

pub(super) struct State {
    pub(super) files: HashMap<EntryId, Arc<Incoming>>,
    /// Files that come whole, in packs.
    pub(super) small: HashMap<EntryId, Small>,
    pub(super) manifest: Manifest,
    pub(super) directories: HashMap<EntryId, Directory>,
    pub(super) turns: Turns,
    /// Files whose addresses were compared, and of whose parts something was taken or read: they are open until the
    /// rest has come.
    compared: HashSet<EntryId>,
    /// What has its place, by [`destination::Existing::identity`].
    places: HashSet<u64>,
    acks: BTreeMap<EntryId, Ranges>,
    stored: Ranges,
    pub(super) totals: Totals,
    pub(super) problems: Vec<(String, String)>,
}

impl State {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            files: HashMap::new(),
            small: HashMap::new(),
            manifest: Manifest::new(rules),
            directories: HashMap::new(),
            turns: Turns::default(),
            compared: HashSet::new(),
            places: HashSet::new(),
            acks: BTreeMap::new(),
            stored: Ranges::new(),
            totals: Totals::default(),
            problems: Vec::new(),
        }
    }

    /// Whether a file may come now; otherwise it waits for its turn, or has come to its end.
    pub(super) fn begin_turn(&mut self, file: &Arc<Incoming>) -> bool {
        self.files.contains_key(&file.target.entry) && self.turns.begin(file)
    }

    /// A file that is not under way any more: the one whose turn it is then.
    fn end_turn(&mut self, entry: EntryId) -> Option<Arc<Incoming>> {
        self.compared.remove(&entry);
        let Self { turns, files, .. } = self;
        turns.end(entry, |next| files.contains_key(&next))
    }

    /// Takes a place for an entry; `false` where another entry of this transfer has it, by a name that the file system
    /// takes for the same (FILE-22).
    pub(super) fn take_place(&mut self, identity: u64) -> bool {
        let is_free = !self.places.contains(&identity);
        if is_free && self.places.len() < PLACES_MAX {
            self.places.insert(identity);
        }
        is_free
    }
}

/// Which files may come, where the user allows only so many at once.
#[derive(Default)]
pub(super) struct Turns {
    pub(super) max: Option<usize>,
    coming: HashSet<EntryId>,
    /// Some may have failed meanwhile.
    waiting: VecDeque<Arc<Incoming>>,
}

impl Turns {
    /// Whether it is a file's turn; otherwise it waits for it.
    fn begin(&mut self, file: &Arc<Incoming>) -> bool {
        let entry = file.target.entry;
        if self.max.is_none_or(|max| self.coming.len() < max) || self.coming.contains(&entry) {
            self.coming.insert(entry);
            return true;
        }
        self.waiting.push_back(Arc::clone(file));
        false
    }

    /// A file has come to its end: the next one that `is_there`, whose turn it is.
    fn end(&mut self, entry: EntryId, is_there: impl Fn(EntryId) -> bool) -> Option<Arc<Incoming>> {
        if !self.coming.remove(&entry) {
            return None;
        }
        let next =
            std::iter::from_fn(|| self.waiting.pop_front()).find(|file| is_there(file.target.entry))?;
        self.coming.insert(next.target.entry);
        Some(next)
    }
}

/// A small file that is wanted.
#[derive(Debug)]
pub(super) struct Small {
    pub(super) path: PathBuf,
    pub(super) part: PathBuf,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: i64,
    pub(super) attributes: Vec<Attribute>,
    /// Whether it takes the place of what is there.
    pub(super) replaces: bool,
    /// How often it came with other bytes than it should.
    pub(super) damaged_arrivals: u64,
}

/// A directory that has not ended, or in which something is missing.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) modified: i64,
    /// Whether it is there to be written to.
    pub(super) is_made: bool,
    /// Whether it was not there before, or an earlier transfer left it unfinished: others keep their modes.
    pub(super) is_new: bool,
    pub(super) attributes: Vec<Attribute>,
}

impl Receiving {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Ends the whole transfer.
    pub(super) fn end_by(&self, error: TransferError) {
        self.fatal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.bell.ring();
    }

    /// What is to be acknowledged, as messages.
    pub(super) fn write_acks(&self, out: &mut Vec<u8>) {
        let mut state = self.state();
        let acks = std::mem::take(&mut state.acks);
        let mut stored = std::mem::take(&mut state.stored);
        drop(state);
        for (entry, mut chunks) in acks {
            while !chunks.is_empty() {
                let chunks = chunks.split_first(RANGES_MAX);
                Message::Ack { entry, chunks }.encode(out);
            }
        }
        while !stored.is_empty() {
            let entries = stored.split_first(RANGES_MAX);
            Message::Stored { entries }.encode(out);
        }
    }

    pub(super) fn acknowledge(&self, file: &Incoming, index: u64) {
        file.acknowledge(index, || {
            let mut state = self.state();
            let chunks = state.acks.entry(file.target.entry).or_default();
            chunks.insert(index..index + 1);
        });
        self.outbox.poke();
    }

    /// What has not been said of a file whose chunks are to come again: behind WANT it would be of those.
    pub(super) fn unacknowledge(&self, file: &Incoming) {
        self.state().acks.remove(&file.target.entry);
    }

    /// A file is about to get its place.
    pub(super) fn take_place(&self, file: &File) {
        if let Some(identity) = destination::identity_of(file) {
            self.state().take_place(identity);
        }
    }

    /// An entry is complete in its place.
    pub(super) fn stored(&self, entry: EntryId, path: String, bytes: u64, how: How) {
        let mut state = self.state();
        state.stored.insert(entry..entry + 1);
        state.totals.stored += 1;
        // Before the sender can know of it, and say that everything is done.
        state.manifest.finish(entry);
        drop(state);
        self.progress.add(Counter::FilesStored, 1);
        self.progress.add(Counter::FilesDone, 1);
        self.progress.tell(Event::Done { path, bytes, how });
        self.finish_directories();
        self.outbox.poke();
    }

    /// An entry is not wanted, or cannot be stored (FILE-45).
    pub(super) fn skip(&self, entry: EntryId, reason: SkipReason) {
        self.count_skipped(reason);
        self.finish(entry);
        self.outbox.push(&Message::Skip { entry, reason });
    }

    /// A directory is not stored, and is open until all in it has been told.
    pub(super) fn refuse_directory(&self, entry: EntryId, reason: SkipReason) {
        if reason.is_failure() {
            self.count_skipped(reason);
        }
        self.outbox.push(&Message::Skip { entry, reason });
    }

    fn count_skipped(&self, reason: SkipReason) {
        let mut state = self.state();
        match reason.is_failure() {
            true => state.totals.failed += 1,
            false => state.totals.skipped += 1,
        }
    }

    /// An entry cannot be stored; the rest goes on.
    pub(super) fn fail(&self, entry: EntryId, path: &str, reason: FailReason, text: &str) {
        self.state().totals.failed += 1;
        self.finish(entry);
        self.outbox.push(&Message::Failed {
            entry,
            reason,
            text: text.to_owned(),
        });
        self.problem(path.to_owned(), text.to_owned());
        self.progress.add(Counter::FilesDone, 1);
    }

    pub(super) fn problem(&self, path: String, text: String) {
        let mut state = self.state();
        if state.problems.len() < PROBLEMS_MAX {
            state.problems.push((path.clone(), text.clone()));
        }
        drop(state);
        self.progress.tell(Event::Problem { path, text });
    }

    /// A file has come to its end, and another one gets its turn.
    pub(super) fn end_turn(&self, entry: EntryId) {
        self.progress.end_file(entry);
        let next = self.state().end_turn(entry);
        self.ended.notify_all();
        if let Some(next) = next {
            self.want(&next);
        }
    }

    /// Waits until there are few compared files whose parts are open, or the transfer is over.
    pub(super) fn wait_for_compared(&self) {
        let mut state = self.state();
        while state.compared.len() >= COMPARED_FILES_MAX && !self.is_over() {
            // The end of the transfer tells nobody.
            let waited = self.ended.wait_timeout(state, TURN);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What is here of a file has been taken; the rest is to come, where it has not come to its end meanwhile.
    pub(super) fn end_comparison(&self, file: &Incoming) {
        let is_open = file.is_open();
        let mut state = self.state();
        if is_open && state.files.contains_key(&file.target.entry) {
            state.compared.insert(file.target.entry);
        }
    }

    /// A file cannot be written; at the end of the transfer that says nothing about it.
    pub(super) fn fail_write(&self, file: &Incoming, error: &io::Error) {
        if !self.is_over() {
            let text = match file.is_passed_on() {
                true => output_sentence(error),
                false => sentence(error),
            };
            self.fail_file(file, reason_of(error), &text, true);
        }
    }

    /// A file that is under way has failed here or there.
    pub(super) fn fail_file(&self, file: &Incoming, reason: FailReason, text: &str, tell: bool) {
        let target = &file.target;
        if self.state().files.remove(&target.entry).is_none() {
            return;
        }
        file.abandon(reason);
        let path = target.path.display().to_string();
        match tell {
            true => self.fail(target.entry, &path, reason, text),
            false => {
                self.state().totals.failed += 1;
                self.problem(path, text.to_owned());
                self.progress.add(Counter::FilesDone, 1);
                self.finish(target.entry);
            }
        }
        self.end_turn(target.entry);
    }

    /// An entry has come to its end; so have directories in which it was the last one.
    pub(super) fn finish(&self, entry: EntryId) {
        self.state().manifest.finish(entry);
        self.finish_directories();
    }

    /// Gives directories that have ended, and in which everything is done, their attributes, modes and times.
    pub(super) fn finish_directories(&self) {
        loop {
            let mut state = self.state();
            let Some(entry) = state.manifest.poll_finished_directory() else {
                return;
            };
            let directory = state.directories.remove(&entry);
            drop(state);
            if let (Some(directory), Some(destination)) = (directory, &self.destination)
                && directory.is_made
            {
                let mode = directory.is_new.then_some(directory.mode);
                let given = destination.give_attributes(&directory.path, &directory.attributes);
                let finished = given
                    .and_then(|()| destination.finish_directory(&directory.path, mode, directory.modified));
                let mut state = self.state();
                state.manifest.finish(entry);
                state.stored.insert(entry..entry + 1);
                state.totals.stored += 1;
                drop(state);
                if let Err(error) = finished {
                    // What is in it is complete.
                    let text = format!("its mode or time cannot be set: {error}");
                    self.problem(directory.path.display().to_string(), text);
                }
                self.outbox.poke();
            }
            self.state().manifest.finish(entry);
        }
    }
}

/// What kind of failure it is to the sender.
pub(super) fn reason_of(error: &io::Error) -> FailReason {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailReason::NoSpace,
        io::ErrorKind::ReadOnlyFilesystem => FailReason::ReadOnly,
        io::ErrorKind::PermissionDenied => FailReason::Denied,
        io::ErrorKind::FileTooLarge => FailReason::Limit,
        _ => FailReason::Other,
    }
}

/// Of standard output, for people.
fn output_sentence(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "no space is left where standard output leads".to_owned(),
        io::ErrorKind::BrokenPipe => "the program that read standard output has ended".to_owned(),
        _ => format!("standard output cannot be written: {error}"),
    }
}

/// What to do about it, for people.
pub(super) fn sentence(error: &io::Error) -> String {
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return "a symbolic link is there, which is not followed; move it away, or receive into the directory that it leads to"
            .to_owned();
    }
    match error.kind() {
        io::ErrorKind::StorageFull => match error.get_ref() {
            Some(figures) => {
                format!(
                    "no space is left for it at the destination: {figures}; free some and transfer it again"
                )
            }
            None => {
                "no space is left at the destination; free some and transfer it again to go on".to_owned()
            }
        },
        io::ErrorKind::QuotaExceeded => {
            "the quota at the destination is used up; free some and transfer it again to go on".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => "the destination is on a read-only file system".to_owned(),
        io::ErrorKind::PermissionDenied => format!("the destination does not let us write: {error}"),
        io::ErrorKind::WouldBlock => {
            "another receive is writing this file; transfer it again when that has ended".to_owned()
        }
        io::ErrorKind::AlreadyExists => {
            "another file was made in its place meanwhile; transfer it again".to_owned()
        }
        io::ErrorKind::NotADirectory => {
            "a file is there, where a directory belongs; move it away and transfer it again".to_owned()
        }
        io::ErrorKind::Unsupported if error.get_ref().is_some() => error.to_string(),
        io::ErrorKind::FileTooLarge => "the destination's file system takes no file of this size".to_owned(),
        _ => format!("it cannot be written: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::file::{Output, Part, Target};
    use super::*;

    #[test]
    fn files_get_their_turns_in_their_order_and_those_that_failed_meanwhile_get_none() {
        let destination = Arc::new(Destination::open(Path::new("/")).unwrap());
        let file = |entry| {
            let target = Target {
                entry,
                path: PathBuf::from("file"),
                part: PathBuf::from("part"),
                journal: PathBuf::from("journal"),
                size: Some(2 << 20),
                mode: 0o644,
                modified: 0,
                attributes: Vec::new(),
                replaces: false,
            };
            let output = Output::Part(Part::new(&destination, None));
            Arc::new(Incoming::new(target, output, &BTreeMap::new()))
        };
        let mut state = State::new(Rules::default());
        state.turns.max = Some(2);
        let files: Vec<_> = (0..7).map(file).collect();
        for file in &files {
            state.files.insert(file.target.entry, Arc::clone(file));
        }
        let begun: Vec<_> = files.iter().map(|file| state.begin_turn(file)).collect();
        assert_eq!(begun, [true, true, false, false, false, false, false]);
        assert!(state.begin_turn(&files[0]), "it has its turn");
        let mut end = |entry| {
            state.files.remove(&entry);
            let next = state.end_turn(entry)?;
            // Nobody takes the turn of one that has not begun.
            assert_eq!(state.turns.coming.len(), 2);
            assert!(state.begin_turn(&next));
            Some(next.target.entry)
        };
        assert_eq!([end(3), end(2)], [None, None], "they had no turn");
        assert_eq!([end(1), end(0)], [Some(4), Some(5)]);
        assert_eq!([end(6), end(4), end(5)], [None, None, None]);
        assert!(!state.begin_turn(&files[6]), "it has come to its end");
        assert!(state.turns.coming.is_empty() && state.turns.waiting.is_empty());
    }
}
