//! What a program shows of a transfer while it runs, and how it ends one: counters that threads add to, and events.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::carrier::Carrier;

/// Of one transfer; a clone is the same.
#[derive(Clone)]
pub struct Progress(Arc<Shared>);

struct Shared {
    on_event: Box<dyn Fn(Event) + Send + Sync>,
    counters: [AtomicU64; Counter::COUNT],
    manifest_complete: AtomicBool,
    cancelled: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    carrier: Option<Carrier>,
    path: Option<String>,
    current: Option<String>,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    BytesTotal,
    BytesDone,
    BytesThere,
    BytesWire,
    FilesTotal,
    FilesDone,
    WaitsNetwork,
    WaitsDisk,
    WaitsPeer,
    WaitsLimit,
}

impl Counter {
    const COUNT: usize = 10;
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
    /// What carries chunks from here on.
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
    },
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
    /// Nothing yet, or nothing more than the others.
    #[default]
    Nothing,
    /// The path, or what this end does to send on it.
    Network,
    /// Reading or writing here.
    Disk,
    /// The other end, or the path to it.
    Peer,
    /// The limit that the user set.
    Limit,
}

impl LimitedBy {
    /// Its name, for people.
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
    /// Whether all files are known.
    pub manifest_complete: bool,
    /// What carries chunks.
    pub carrier: Option<Carrier>,
    /// The peer's address, and whether it is relayed.
    pub path: Option<String>,
    /// The file that was begun last.
    pub current: Option<String>,
    /// Since the last snapshot.
    pub limited_by: LimitedBy,
}

impl Progress {
    /// Events are told by the transfer's threads, several at once: `on_event` is to return soon.
    pub fn new(on_event: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            on_event: Box::new(on_event),
            counters: Default::default(),
            manifest_complete: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            told: Mutex::default(),
        }))
    }

    /// The state at present.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let count = |counter: Counter| self.0.counters[counter as usize].load(Ordering::Relaxed);
        let waited = |counter: Counter| self.0.counters[counter as usize].swap(0, Ordering::Relaxed);
        let waits = [
            (waited(Counter::WaitsNetwork), LimitedBy::Network),
            (waited(Counter::WaitsDisk), LimitedBy::Disk),
            (waited(Counter::WaitsPeer), LimitedBy::Peer),
            (waited(Counter::WaitsLimit), LimitedBy::Limit),
        ];
        let longest = waits.into_iter().max_by_key(|(waited, _)| *waited);
        let limited_by = longest.filter(|(waited, _)| *waited > 0).map(|(_, by)| by);
        let told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            bytes_total: count(Counter::BytesTotal),
            bytes_done: count(Counter::BytesDone),
            bytes_there: count(Counter::BytesThere),
            bytes_wire: count(Counter::BytesWire),
            files_total: count(Counter::FilesTotal),
            files_done: count(Counter::FilesDone),
            manifest_complete: self.0.manifest_complete.load(Ordering::Relaxed),
            carrier: told.carrier,
            path: told.path.clone(),
            current: told.current.clone(),
            limited_by: limited_by.unwrap_or_default(),
        }
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

    pub(crate) fn complete_manifest(&self) {
        self.0.manifest_complete.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_path(&self, path: Option<String>) {
        self.told(|told| told.path = path);
    }

    pub(crate) fn set_current(&self, path: &str) {
        self.told(|told| told.current = Some(path.to_owned()));
    }

    fn told(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.0.told.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Event::Carrier { carrier, .. } = &event {
            self.told(|told| told.carrier = Some(*carrier));
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
    use super::*;

    #[test]
    fn what_was_waited_for_longest_since_the_last_look_is_the_limit() {
        let progress = Progress::default();
        assert_eq!(progress.snapshot().limited_by, LimitedBy::Nothing);
        progress.add(Counter::WaitsDisk, 5);
        progress.add(Counter::WaitsNetwork, 7);
        progress.add(Counter::BytesDone, 3);
        assert_eq!(progress.snapshot().limited_by, LimitedBy::Network);
        progress.add(Counter::WaitsDisk, 1);
        let snapshot = progress.snapshot();
        assert_eq!((snapshot.limited_by, snapshot.bytes_done), (LimitedBy::Disk, 3));
    }
}
