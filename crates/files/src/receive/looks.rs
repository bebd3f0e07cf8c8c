//! What a list or a dry run tells of an entry: whether it would be sent, what of it, and where it would be stored. What
//! the run would fail by and is known already is told as that; nothing is written.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files_proto::content::chunk_length;
use files_proto::limits::PACKED_FILE_BYTES_MAX;
use files_proto::{Entry, SkipReason};

use super::compare::Question;
use super::conflicts::Unsure;
use super::kept::{Kept, kept};
use super::place::{Look, Tried};
use super::plan::{Planner, target};
use super::shared::{reason_of, sentence};
use crate::destination::Destination;
use crate::progress::{Event, Would};
use crate::room::There;

impl Planner<'_> {
    /// Only tells of it.
    pub(super) fn offer(&self, entry: &Entry, path: &Path, missing: u64, would: Option<Would>) {
        self.receiving.progress.tell(Event::Offered {
            path: path.display().to_string(),
            bytes: entry.size(),
            missing,
            would,
        });
        self.receiving.skip(entry.id, SkipReason::DryRun);
    }

    /// The same where the destination is not there so far.
    pub(super) fn look_at_nothing(&self, entry: &Entry, path: &Path) {
        if self.refuse_link(entry, path) {
            return;
        }
        let would = match is_renamed(entry, path) {
            true => Would::Rename,
            false => Would::Store,
        };
        self.offer(entry, path, entry.size(), Some(would));
    }

    /// Tells what would become of an entry that would be sent, at least in part.
    pub(super) fn look(&mut self, destination: &Destination, entry: &Entry, look: Look) {
        if self.refuse_link(entry, &look.path) {
            return;
        }
        let path = look.path.display().to_string();
        let checked = destination.check_place(&look.path);
        if let Err(error) = checked.and_then(|()| self.offer_missing(destination, entry, look)) {
            let reason = reason_of(&error);
            self.receiving.fail(entry.id, &path, reason, &sentence(&error));
        }
    }

    /// Tells what would be sent of a file: what neither its part nor another file here has.
    fn offer_missing(&mut self, destination: &Destination, entry: &Entry, look: Look) -> io::Result<()> {
        let Look {
            path,
            candidate,
            would,
        } = look;
        let size = entry.size();
        if size <= PACKED_FILE_BYTES_MAX {
            self.offer(entry, &path, size, Some(would));
            return Ok(());
        }
        let target = target(entry, path.clone());
        let part = destination.read(&target.part).ok();
        let kept = match &part {
            Some(part) => kept(destination, &target, part, size, &self.receiving.progress),
            None => Kept::Nothing,
        };
        let there = There {
            part: part.as_ref(),
            is_replaced: matches!(would, Would::Overwrite),
        };
        let room = destination.check_room(&path, there, entry.disk_bytes_min.min(size))?;
        // Of files that a dry run has looked at, so that it knows what would not fit.
        if let Some(room) = room {
            room.keep();
        }
        let mut known = BTreeMap::new();
        // What the run would look at, and no more.
        let paths: Vec<PathBuf> = match kept {
            Kept::Same { journal, is_damaged } if !is_damaged && !self.options.checksum => {
                known = journal.chunks;
                candidate.into_iter().collect()
            }
            Kept::Same { .. } | Kept::Other => [target.part].into_iter().chain(candidate).collect(),
            Kept::Nothing => candidate
                .or_else(|| self.elsewhere.find(destination, size, entry.modified_ns))
                .into_iter()
                .collect(),
        };
        let Some(candidate) = paths.first().cloned() else {
            let there: u64 = known.keys().map(|index| chunk_length(size, *index)).sum();
            self.offer(entry, &path, size.saturating_sub(there), Some(would));
            return Ok(());
        };
        self.ask(entry.id, size, Question::Missing { known, paths, would });
        self.unsure.insert(
            entry.id,
            Unsure {
                entry: entry.clone(),
                path,
                candidate,
                tried: Tried::default(),
            },
        );
        Ok(())
    }
}

/// Whether an entry is to have another name at `path` than the one that was offered.
pub(super) fn is_renamed(entry: &Entry, path: &Path) -> bool {
    path.file_name().unwrap_or_default().as_bytes() != entry.name
}
