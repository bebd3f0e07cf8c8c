//! What a program shows of a transfer while it runs, and how it ends one: counters that threads add to, and events.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use files_proto::EntryId;
use files_proto::message::Hindrance;

use crate::carrier::Carrier;
use crate::limits::FILES_IN_WORK_MAX;
use crate::waits::{Look, Wait, Waits};

/// Of one transfer; a clone is the same.
#[derive(Clone)]
pub struct Progress(Arc<Shared>);

struct Shared {
    on_event: Box<dyn Fn(Event) + Send + Sync>,
    counters: [AtomicU64; Counter::COUNT],
    manifest_complete: AtomicBool,
    cancelled: AtomicBool,
    waits: Waits,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    carrier: Option<Carrier>,
    path: Option<String>,
    /// In the order in which they were begun.
    in_work: Vec<(EntryId, FileInWork)>,
    /// The last look at the waits.
    look: Look,
    /// What the other end says that holds it up.
    other_end: Hindrance,
    is_receiver: bool,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    BytesTotal,
    BytesDone,
    BytesThere,
    BytesWire,
    BytesHashed,
    FilesTotal,
    FilesDone,
    FilesStored,
}

impl Counter {
    const COUNT: usize = 8;
}

/// Something that a user wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A file, directory or link is complete.
    Done {
        /// Below the destination.
        path: String,
        /// Its size.
        bytes: u64,
        /// What it took.
        how: How,
    },
    /// A name cannot be had at the destination.
    Renamed {
        /// As it was offered.
        from: String,
        /// As it is.
        to: String,
    },
    /// Something was left out, or failed; the rest goes on.
    Problem {
        /// What, as far as it is one file.
        path: String,
        /// Why.
        text: String,
    },
    /// Something of the transfer that is no failure, told once.
    Note {
        /// What.
        text: String,
    },
    /// Bytes of a file are not what they are to be, and come again. Where they cannot, [`Event::Problem`] tells it.
    Damaged {
        /// Below the destination.
        path: String,
        /// How many.
        bytes: u64,
        /// Where that was found.
        at: DamagedAt,
    },
    /// What was chosen to carry chunks from here on.
    Carrier {
        /// The protocol.
        carrier: Carrier,
        /// Why, with figures.
        reason: String,
    },
    /// What would be sent (dry run), or is offered (list).
    Offered {
        /// Below the destination.
        path: String,
        /// Its size.
        bytes: u64,
        /// Bytes that would be sent.
        missing: u64,
        /// What would become of it (dry run).
        would: Option<Would>,
    },
}

/// Where bytes were found to be damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DamagedAt {
    /// On the receiver's disk, in the part of a file that a transfer goes on with.
    Disk,
    /// Nobody knows where: all chunks are what they are said to be, and the whole does not have the sender's hash.
    Whole,
    /// When they arrived: as carriers are authenticated, one of the machines has damaged them.
    Arrival,
}

impl DamagedAt {
    /// Its name, for people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Whole => "whole",
            Self::Arrival => "arrival",
        }
    }
}

/// What a transfer would make of a file or link that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Would {
    /// It would take a free place.
    Store,
    /// It would take the place of another one.
    Overwrite,
    /// It would get the name that is told, because another one has its own, or the file system does not take that.
    Rename,
    /// It is there.
    Keep,
    /// It would be left out, because another one has its name.
    Skip,
    /// Another one has its name, and the user would be asked.
    Ask,
}

impl Would {
    /// Its name, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Overwrite => "overwrite",
            Self::Rename => "rename",
            Self::Keep => "keep",
            Self::Skip => "skip",
            Self::Ask => "ask",
        }
    }
}

/// What it took to have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// All of it came.
    Sent,
    /// Parts were there already.
    Resumed,
    /// It was there already.
    There,
    /// It was not to be had: a conflict.
    Skipped,
}

/// What holds a transfer up at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitedBy {
    /// Nothing yet, or the processors.
    #[default]
    Nothing,
    /// The path between the ends.
    Network,
    /// Reading or writing here.
    Disk,
    /// Reading or writing at the other end.
    Peer,
    /// The limit that the sender's user set.
    Limit,
}

impl LimitedBy {
    /// Its name, for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Network => "network",
            Self::Disk => "disk",
            Self::Peer => "peer",
            Self::Limit => "limit",
        }
    }

    /// As the other end is told.
    pub(crate) fn hindrance(self) -> Hindrance {
        match self {
            Self::Network => Hindrance::Network,
            Self::Disk => Hindrance::Disk,
            Self::Limit => Hindrance::Limit,
            Self::Nothing | Self::Peer => Hindrance::Nothing,
        }
    }
}

/// A file of more than one chunk that has begun to come, and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInWork {
    /// Below the destination.
    pub path: String,
    /// Bytes that the receiver has.
    pub bytes_done: u64,
    /// Its size; `None` of a pipe.
    pub bytes_total: Option<u64>,
}

impl FileInWork {
    /// One of this name and size, of which so much has come.
    #[must_use]
    pub fn new(path: String, bytes_done: u64, bytes_total: Option<u64>) -> Self {
        Self {
            path,
            bytes_done,
            bytes_total,
        }
    }
}

/// The state of a transfer; bytes are those of files, unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Of all files that are known so far.
    pub bytes_total: u64,
    /// That the receiver has, [`Self::bytes_there`] included.
    pub bytes_done: u64,
    /// That were there and are not sent.
    pub bytes_there: u64,
    /// Bytes of records on the network: compressed ones are fewer.
    pub bytes_wire: u64,
    /// Files that are known so far.
    pub files_total: u64,
    /// Files that are complete, or were left out.
    pub files_done: u64,
    /// At a receiver, files and links that have come and are in their places.
    pub files_stored: u64,
    /// Whether all files are known.
    pub manifest_complete: bool,
    /// What carries chunks.
    pub carrier: Option<Carrier>,
    /// The peer's address, and whether it is relayed.
    pub path: Option<String>,
    /// Files in work, in the order in which they were begun; of very many the first ones.
    pub in_work: Vec<FileInWork>,
    /// Since the last snapshot.
    pub limited_by: LimitedBy,
}

/// A thread that waits, until this is dropped.
pub(crate) struct Waiting {
    progress: Progress,
    wait: Wait,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.progress.0.waits.end(self.wait, Instant::now());
    }
}

impl Progress {
    /// Events are told by the transfer's threads, several at once: `on_event` is to return soon.
    pub fn new(on_event: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            on_event: Box::new(on_event),
            counters: Default::default(),
            manifest_complete: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            waits: Waits::default(),
            told: Mutex::default(),
        }))
    }

    /// The state at present.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let count = |counter| self.count(counter);
        let mut told = self.told();
        let carrier = told.carrier;
        let held = self.0.waits.look(&mut told.look, carrier, Instant::now());
        let mut snapshot = Snapshot {
            bytes_total: count(Counter::BytesTotal),
            bytes_done: count(Counter::BytesDone),
            bytes_there: count(Counter::BytesThere),
            bytes_wire: count(Counter::BytesWire),
            files_total: count(Counter::FilesTotal),
            files_done: count(Counter::FilesDone),
            files_stored: count(Counter::FilesStored),
            manifest_complete: self.0.manifest_complete.load(Ordering::Relaxed),
            carrier,
            path: told.path.clone(),
            in_work: told.in_work.iter().map(|(_, file)| file.clone()).collect(),
            limited_by: LimitedBy::Nothing,
        };
        let has_pipe = snapshot.in_work.iter().any(|file| file.bytes_total.is_none());
        let has_all_bytes = snapshot.manifest_complete
            && !has_pipe
            && snapshot.bytes_total > 0
            && snapshot.bytes_done >= snapshot.bytes_total
            && snapshot.files_done < snapshot.files_total;
        snapshot.limited_by = match (held, told.other_end) {
            // The disk of the receiver takes the last ones.
            _ if has_all_bytes && told.is_receiver => LimitedBy::Disk,
            _ if has_all_bytes => LimitedBy::Peer,
            // Only the other end knows why nothing comes, or nothing more is taken.
            (LimitedBy::Network, Hindrance::Disk) => LimitedBy::Peer,
            (LimitedBy::Network, Hindrance::Limit) => LimitedBy::Limit,
            _ => held,
        };
        snapshot
    }

    /// Ends the transfer; what the receiver has stays, and is not sent again by a later one.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn add(&self, counter: Counter, amount: u64) {
        self.0.counters[counter as usize].fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.0.counters[counter as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn complete_manifest(&self) {
        self.0.manifest_complete.store(true, Ordering::Relaxed);
    }

    /// This is the receiver's end.
    pub(crate) fn set_receiver(&self) {
        self.told().is_receiver = true;
    }

    pub(crate) fn set_path(&self, path: Option<String>) {
        self.told().path = path;
    }

    /// What carries chunks from the beginning.
    pub(crate) fn set_carrier(&self, carrier: Carrier) {
        self.told().carrier = Some(carrier);
    }

    /// What the other end says that holds it up.
    pub(crate) fn set_other_end(&self, held_by: Hindrance) {
        self.told().other_end = held_by;
    }

    /// A thread waits for something from here on.
    pub(crate) fn wait(&self, wait: Wait) -> Waiting {
        self.0.waits.begin(wait, Instant::now());
        Waiting {
            progress: self.clone(),
            wait,
        }
    }

    /// What holds this end up, by another one's looks than those of snapshots.
    pub(crate) fn held_by(&self, look: &mut Look) -> Hindrance {
        let carrier = self.told().carrier;
        self.0.waits.look(look, carrier, Instant::now()).hindrance()
    }

    /// A file begins to come, unless it has before.
    pub(crate) fn begin_file(&self, entry: EntryId, file: impl FnOnce() -> FileInWork) {
        let in_work = &mut self.told().in_work;
        let is_known = in_work.iter().any(|(other, _)| *other == entry);
        if !is_known && in_work.len() < FILES_IN_WORK_MAX {
            in_work.push((entry, file()));
        }
    }

    /// Changes what is told of a file that has begun.
    pub(crate) fn change_file(&self, entry: EntryId, change: impl FnOnce(&mut FileInWork)) {
        if let Some((_, file)) = self.told().in_work.iter_mut().find(|(other, _)| *other == entry) {
            change(file);
        }
    }

    /// A file has come to its end.
    pub(crate) fn end_file(&self, entry: EntryId) {
        self.told().in_work.retain(|(other, _)| *other != entry);
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Event::Carrier { carrier, .. } = &event {
            self.set_carrier(*carrier);
        }
        (self.0.on_event)(event);
    }
}

/// Tells nobody.
impl Default for Progress {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Progress").field(&self.snapshot()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// A look right after another one may see nothing, when this thread rests in between.
    fn wait_until(progress: &Progress, expected: LimitedBy) {
        let until = Instant::now() + Duration::from_secs(60);
        while progress.snapshot().limited_by != expected {
            assert!(Instant::now() < until, "not {expected:?}");
            thread::yield_now();
        }
    }

    /// FILE-41.
    #[test]
    fn what_the_other_end_is_held_up_by_is_why_the_network_takes_or_brings_nothing() {
        let progress = Progress::default();
        assert_eq!(progress.snapshot().limited_by, LimitedBy::Nothing);
        let waiting = progress.wait(Wait::Network(Carrier::Quic));
        for (other_end, expected) in [
            (Hindrance::Nothing, LimitedBy::Network),
            (Hindrance::Network, LimitedBy::Network),
            (Hindrance::Disk, LimitedBy::Peer),
            (Hindrance::Limit, LimitedBy::Limit),
        ] {
            progress.set_other_end(other_end);
            wait_until(&progress, expected);
        }
        drop(waiting);
        let _waiting = progress.wait(Wait::Disk);
        wait_until(&progress, LimitedBy::Disk);
        let (mut look, until) = (Look::default(), Instant::now() + Duration::from_secs(60));
        // The first look sees all that was before.
        progress.held_by(&mut look);
        while progress.held_by(&mut look) != Hindrance::Disk {
            assert!(Instant::now() < until, "the disk does not hold it up");
            thread::yield_now();
        }
    }

    #[test]
    fn the_last_files_wait_for_the_receivers_disk() {
        for (is_receiver, expected) in [(false, LimitedBy::Peer), (true, LimitedBy::Disk)] {
            let progress = Progress::default();
            if is_receiver {
                progress.set_receiver();
            }
            progress.add(Counter::BytesTotal, 5);
            progress.add(Counter::BytesDone, 5);
            progress.add(Counter::FilesTotal, 1);
            assert_eq!(progress.snapshot().limited_by, LimitedBy::Nothing);
            progress.complete_manifest();
            assert_eq!(progress.snapshot().limited_by, expected);
            progress.add(Counter::FilesDone, 1);
            assert_eq!(progress.snapshot().limited_by, LimitedBy::Nothing);
        }
    }

    #[test]
    fn files_in_work_are_told_in_their_order_and_bounded() {
        let progress = Progress::default();
        let file = |number: u64| FileInWork {
            path: number.to_string(),
            bytes_done: 0,
            bytes_total: Some(9),
        };
        for number in 0..=FILES_IN_WORK_MAX as u64 {
            progress.begin_file(number, || file(number));
        }
        progress.begin_file(1, || panic!("it has begun before"));
        progress.change_file(1, |file| file.bytes_done = 7);
        progress.end_file(0);
        let in_work = progress.snapshot().in_work;
        assert_eq!(in_work.len(), FILES_IN_WORK_MAX - 1);
        assert_eq!((in_work[0].path.as_str(), in_work[0].bytes_done), ("1", 7));
    }
}
