//! What the user's patterns have of what is offered: directories that are made for what is in them alone, and the one
//! file for standard output. Who wants nothing of it, or more than goes there, is told before the first byte.

use std::collections::HashMap;
use std::path::PathBuf;

use files_proto::message::Message;
use files_proto::{Entry, EntryId, Kind, SkipReason};

use super::plan::Planner;
use crate::destination::Kind as Found;
use crate::error::TransferError;

/// Of what was offered so far.
#[derive(Default)]
pub(super) struct Chosen {
    /// Whether anything was wanted, or refused.
    pub(super) has_some: bool,
    /// Directories that have not ended, and are made with the first that is wanted in them.
    waiting: HashMap<EntryId, (Entry, PathBuf)>,
    /// What goes to standard output.
    pub(super) output: Option<(Entry, PathBuf)>,
}

impl Planner<'_> {
    /// A directory of which the user wants what is in it, if anything.
    pub(super) fn wait_with_directory(&mut self, entry: Entry, path: PathBuf) {
        let Some(destination) = self.receiving.destination.as_ref().filter(|_| self.writes()) else {
            return self.plan_directory(&entry, path);
        };
        if matches!(destination.existing(&path), Ok(Some(found)) if found.kind == Found::Directory) {
            let rules = destination.rules(&path, true);
            self.receiving.state().manifest.set_rules(entry.id, rules);
        }
        self.chosen.waiting.insert(entry.id, (entry, path));
    }

    /// Something in this directory is wanted; `false` where it, or one above it, waited and cannot be made.
    pub(super) fn make_waiting(&mut self, directory: Option<EntryId>) -> bool {
        let waiting = directory.and_then(|directory| self.chosen.waiting.remove(&directory));
        let Some((entry, path)) = waiting else {
            return true;
        };
        if !self.make_waiting(entry.parent) {
            self.refuse_in_refused(&entry);
            return false;
        }
        let id = entry.id;
        self.plan_directory(&entry, path);
        let state = self.receiving.state();
        state
            .directories
            .get(&id)
            .is_some_and(|directory| directory.is_made)
    }

    /// An entry is wanted in a directory that cannot be made.
    pub(super) fn refuse_in_refused(&self, entry: &Entry) {
        if entry.kind != Kind::Directory {
            return self.receiving.skip(entry.id, SkipReason::Parent);
        }
        self.receiving.state().manifest.refuse_directory(entry.id);
        self.receiving.refuse_directory(entry.id, SkipReason::Parent);
    }

    /// A directory has ended; one that waits is not made any more.
    pub(super) fn end_directory(&mut self, entry: EntryId) {
        if self.chosen.waiting.remove(&entry).is_some() {
            // It is done when what is in it is.
            let reason = SkipReason::Filtered;
            self.receiving.outbox.push(&Message::Skip { entry, reason });
        }
    }

    /// What goes to standard output waits until it is known that it is all.
    pub(super) fn plan_output(&mut self, entry: Entry, path: PathBuf) -> Result<(), TransferError> {
        let is_file = matches!(entry.kind, Kind::File { .. } | Kind::Pipe);
        if !is_file || self.chosen.output.is_some() {
            return Err(TransferError::SeveralChosen);
        }
        self.chosen.output = Some((entry, path));
        Ok(())
    }

    /// All has been offered.
    pub(super) fn end_offer(&mut self) -> Result<(), TransferError> {
        if !self.chosen.has_some && !self.options.only.is_empty() {
            return Err(TransferError::NothingChosen(self.options.only.join(", ")));
        }
        self.begin_output();
        Ok(())
    }
}
