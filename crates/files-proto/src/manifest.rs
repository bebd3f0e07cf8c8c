//! The receiver's account of what is offered: every ENTRY has its turn, its parent and a safe name, and what is neither
//! stored nor skipped is bounded, whatever the sender does (FILE-6 to FILE-9).
//!
//! Directories end when the sender says so and everything in them is done: only then they get their times, which each
//! file in them would change.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::content::chunk_count;
use crate::entry::{Entry, EntryId, Kind};
use crate::limits::{CHUNKS_OPEN_MAX, DEPTH_MAX, ENTRIES_OPEN_BYTES_MAX, ENTRIES_OPEN_MAX};
use crate::name::{NameError, NameTable, Rules};
use crate::reason::SkipReason;

/// Entries that were offered and are not done.
#[derive(Debug)]
pub struct Manifest {
    names: NameTable,
    next: EntryId,
    bytes: u64,
    complete: bool,
    open: BTreeMap<EntryId, Open>,
    open_bytes: usize,
    open_chunks: u64,
    /// Directories that have ended, and everything in them is done.
    finished: Vec<EntryId>,
    scratch: Vec<u8>,
}

/// An entry that is not done.
#[derive(Debug)]
struct Open {
    parent: Option<EntryId>,
    kept_bytes: usize,
    chunks: u64,
    /// Of directories.
    directory: Option<Directory>,
}

#[derive(Debug)]
struct Directory {
    /// Its name at the receiver.
    name: Vec<u8>,
    depth: usize,
    /// Entries in it that are not done.
    pending: usize,
    /// Directories in it that have not ended.
    unended: usize,
    ended: bool,
    refused: bool,
}

/// An entry that has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offered {
    /// What is offered.
    pub entry: Entry,
    /// Its path below the destination, component by component, each of them safe.
    pub path: Vec<Vec<u8>>,
    /// Whether its last component is not the name that was offered, which people are told.
    pub renamed: bool,
}

/// An entry that is not stored, and must be skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is offered.
    pub entry: Entry,
    /// What the sender is told.
    pub reason: SkipReason,
    /// What is wrong with its name, if that is the reason.
    pub error: Option<NameError>,
}

/// A manifest that no sender of this version makes: the transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ManifestError {
    /// A number that is not the next one.
    #[error("the other end offered entry {offered} where {expected} was next: end the transfer")]
    Order {
        /// The number.
        offered: EntryId,
        /// The one that was next.
        expected: EntryId,
    },
    /// A parent or directory that is none, or has ended.
    #[error(
        "the other end named entry {0} as a directory, which it is not, or which has ended: end the transfer"
    )]
    NoDirectory(EntryId),
    /// More than [`DEPTH_MAX`] directories in each other.
    #[error("the other end offered directories deeper than {DEPTH_MAX}: end the transfer")]
    Depth,
    /// More than [`ENTRIES_OPEN_MAX`] entries or [`ENTRIES_OPEN_BYTES_MAX`] bytes that are not done.
    #[error("the other end offered more than {ENTRIES_OPEN_MAX} entries at once: end the transfer")]
    TooMany,
    /// More than [`CHUNKS_OPEN_MAX`] chunks of files that are not done.
    #[error("the other end offered files of more than {} TiB at once: end the transfer", CHUNKS_OPEN_MAX >> 20)]
    TooMuch,
    /// More names than are remembered.
    #[error(transparent)]
    Names(#[from] NameError),
    /// Something was offered behind the end, or directories have not ended there, or its numbers are wrong.
    #[error("the other end ended its offer in the middle: end the transfer")]
    End,
    /// A message about an entry that was never offered.
    #[error("the other end told of entry {0}, which it has not offered: end the transfer")]
    NotOffered(EntryId),
}

impl Manifest {
    /// Nothing offered yet; `rules` are those of the destination's file system.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            names: NameTable::new(rules),
            next: 0,
            bytes: 0,
            complete: false,
            open: BTreeMap::new(),
            open_bytes: 0,
            open_chunks: 0,
            finished: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// An ENTRY came: it is open until [`Manifest::finish`], also where it is refused.
    ///
    /// # Errors
    /// The transfer ends.
    pub fn handle_entry(&mut self, entry: Entry) -> Result<Result<Offered, Refused>, ManifestError> {
        if self.complete {
            return Err(ManifestError::End);
        }
        if entry.id != self.next {
            return Err(ManifestError::Order {
                offered: entry.id,
                expected: self.next,
            });
        }
        self.scratch.clear();
        entry.write(&mut self.scratch);
        let kept_bytes = self.scratch.len();
        if self.open.len() == ENTRIES_OPEN_MAX || self.open_bytes + kept_bytes > ENTRIES_OPEN_BYTES_MAX {
            return Err(ManifestError::TooMany);
        }
        let chunks = chunk_count(entry.size());
        if self.open_chunks + chunks > CHUNKS_OPEN_MAX {
            return Err(ManifestError::TooMuch);
        }
        let (depth, parent_refused) = match entry.parent {
            None => (0, false),
            Some(parent) => {
                let directory = self.directory(parent)?;
                (directory.depth + 1, directory.refused)
            }
        };
        if depth > DEPTH_MAX {
            return Err(ManifestError::Depth);
        }
        let name = match self.names.insert(entry.parent, &entry.name) {
            Err(error @ (NameError::TooMany | NameError::Repeated)) => return Err(error.into()),
            name => name,
        };
        self.next += 1;
        self.bytes = self.bytes.saturating_add(entry.size());
        if entry.kind == Kind::Directory {
            // A new one has those of the one that it is in.
            self.names.set_rules(entry.id, self.names.rules(entry.parent));
        }
        let directory = (entry.kind == Kind::Directory).then(|| Directory {
            name: name
                .as_ref()
                .map_or_else(|_| Vec::new(), |safe| safe.name.clone()),
            depth,
            pending: 0,
            unended: 0,
            ended: false,
            refused: parent_refused || name.is_err(),
        });
        if let Some(parent) = entry.parent {
            let is_directory = directory.is_some();
            let parent = self.directory(parent)?;
            parent.pending += 1;
            parent.unended += usize::from(is_directory);
        }
        self.open_bytes += kept_bytes;
        self.open_chunks += chunks;
        self.open.insert(
            entry.id,
            Open {
                parent: entry.parent,
                kept_bytes,
                chunks,
                directory,
            },
        );
        Ok(match name {
            _ if parent_refused => Err(Refused {
                entry,
                reason: SkipReason::Parent,
                error: None,
            }),
            Err(error) => Err(Refused {
                entry,
                reason: SkipReason::UnsafeName,
                error: Some(error),
            }),
            Ok(safe) => {
                let mut path = self.path_of(entry.parent);
                path.push(safe.name);
                Ok(Offered {
                    entry,
                    path,
                    renamed: safe.renamed,
                })
            }
        })
    }

    /// A DIRECTORY_END came.
    ///
    /// # Errors
    /// The transfer ends.
    pub fn handle_directory_end(&mut self, entry: EntryId) -> Result<(), ManifestError> {
        let directory = self.directory(entry)?;
        if directory.unended > 0 {
            return Err(ManifestError::End);
        }
        directory.ended = true;
        let is_finished = directory.pending == 0;
        let parent = self.open.get(&entry).and_then(|open| open.parent);
        if let Some(parent) = parent {
            self.directory(parent)?.unended -= 1;
        }
        if is_finished {
            self.finished.push(entry);
        }
        Ok(())
    }

    /// An OFFER_END came.
    ///
    /// # Errors
    /// The transfer ends.
    pub fn handle_offer_end(&mut self, entries: u64, bytes: u64) -> Result<(), ManifestError> {
        let unended = self
            .open
            .values()
            .any(|open| open.directory.as_ref().is_some_and(|directory| !directory.ended));
        if self.complete || unended || (entries, bytes) != (self.next, self.bytes) {
            return Err(ManifestError::End);
        }
        self.complete = true;
        Ok(())
    }

    /// The receiver does not store this directory, so nothing in it.
    pub fn refuse_directory(&mut self, entry: EntryId) {
        if let Some(directory) = self.open.get_mut(&entry).and_then(|open| open.directory.as_mut()) {
            directory.refused = true;
        }
    }

    /// What the receiver's file system does with names in this directory, in which nothing has been offered yet, where
    /// that is another than in the one that it is in.
    pub fn set_rules(&mut self, entry: EntryId, rules: Rules) {
        if self.directory(entry).is_ok() {
            self.names.set_rules(entry, rules);
        }
    }

    /// Whether no other entry of its directory has `name`, and it is one: an open entry may be stored under it
    /// (FILE-22).
    #[must_use]
    pub fn is_free(&self, entry: EntryId, name: &[u8]) -> bool {
        self.open
            .get(&entry)
            .is_some_and(|open| self.names.is_free(open.parent, name))
    }

    /// Takes `name` for an open entry that is stored under another name than the one it was given, because of what is
    /// on the disk; `false` where another entry of its directory has that name, or it is no name (FILE-22).
    pub fn reserve(&mut self, entry: EntryId, name: &[u8]) -> bool {
        self.open
            .get(&entry)
            .is_some_and(|open| self.names.reserve(open.parent, name))
    }

    /// The next directory that has ended and in which everything is done: it gets its mode and times, and then
    /// [`Manifest::finish`].
    pub fn poll_finished_directory(&mut self) -> Option<EntryId> {
        self.finished.pop()
    }

    /// An entry is stored, skipped or failed; of a directory, after [`Manifest::poll_finished_directory`] gave it.
    /// What is done already stays so.
    pub fn finish(&mut self, entry: EntryId) {
        let Some(open) = self.open.remove(&entry) else {
            return;
        };
        self.open_bytes -= open.kept_bytes;
        self.open_chunks -= open.chunks;
        if open.directory.is_some() {
            self.names.end(entry);
        }
        if let Some(parent) = open.parent
            && let Some(directory) = self
                .open
                .get_mut(&parent)
                .and_then(|open| open.directory.as_mut())
        {
            directory.pending -= 1;
            if directory.ended && directory.pending == 0 {
                self.finished.push(parent);
            }
        }
    }

    /// Whether an entry is open: what comes of one that is done has crossed with its end, and is passed over.
    ///
    /// # Errors
    /// It was never offered: the transfer ends.
    pub fn is_open(&self, entry: EntryId) -> Result<bool, ManifestError> {
        if entry >= self.next {
            return Err(ManifestError::NotOffered(entry));
        }
        Ok(self.open.contains_key(&entry))
    }

    /// Whether everything has been offered and is done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.complete && self.open.is_empty()
    }

    /// How many entries are open.
    #[must_use]
    pub fn open_entries(&self) -> usize {
        self.open.len()
    }

    /// A directory that has not ended.
    fn directory(&mut self, entry: EntryId) -> Result<&mut Directory, ManifestError> {
        self.open
            .get_mut(&entry)
            .and_then(|open| open.directory.as_mut())
            .filter(|directory| !directory.ended)
            .ok_or(ManifestError::NoDirectory(entry))
    }

    /// The path of an open directory below the destination, component by component.
    #[must_use]
    pub fn path_of(&self, mut parent: Option<EntryId>) -> Vec<Vec<u8>> {
        let mut path = Vec::new();
        while let Some(open) = parent.and_then(|parent| self.open.get(&parent)) {
            path.extend(open.directory.as_ref().map(|directory| directory.name.clone()));
            parent = open.parent;
        }
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests;
