//! What comes with other bytes than its hash says: it is named, and wanted again a few times, so that neither a machine
//! that damages what it holds nor a sender that lies ends the whole transfer, or keeps it busy for ever (FILE-43).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use files_proto::content::chunk_count;
use files_proto::message::Message;
use files_proto::pack::Packed;
use files_proto::record::Chunk;
use files_proto::{EntryId, FailReason, Ranges};

use super::file::damaged_chunks_max;
use super::shared::Receiving;
use crate::limits::DAMAGED_ARRIVALS_MAX;
use crate::progress::{DamagedAt, Event};

impl Receiving {
    /// Wants a chunk again, or fails its file.
    pub(super) fn take_damaged(&self, chunk: &Chunk, bytes: u64) -> Result<(), &'static str> {
        let Some(file) = self.state().files.get(&chunk.entry).map(Arc::clone) else {
            return Ok(());
        };
        self.count_damaged()?;
        let is_in_it = file
            .target
            .size
            .is_none_or(|size| chunk.index < chunk_count(size));
        if !is_in_it || file.has(chunk.index) {
            // What was to come may be another one, which nobody would send again.
            return Err("a chunk that is not missing came, and does not have its address");
        }
        if file.may_come_again() {
            self.want_again(
                chunk.entry,
                chunk.index,
                file.target.path.display().to_string(),
                bytes,
            );
            return Ok(());
        }
        let text = match file.target.size {
            Some(_) => {
                "what came of it was damaged, again and again; have the memory of both machines checked"
            }
            None => {
                "a part of it came damaged, and what a program has written cannot be sent again; run both commands again"
            }
        };
        self.fail_file(&file, FailReason::Damaged, text, true);
        Ok(())
    }

    /// Wants a file of a pack again, or fails it; the others of the pack are whole.
    pub(super) fn take_damaged_whole(&self, packed: &Packed<'_>) -> Result<(), &'static str> {
        let (entry, bytes) = (packed.entry, packed.bytes.len() as u64);
        let mut state = self.state();
        let Some(small) = state.small.get_mut(&entry) else {
            drop(state);
            return self.take_damaged(&chunk_of(packed), bytes);
        };
        small.damaged_arrivals += 1;
        let path = small.path.display().to_string();
        let may_come_again = small.damaged_arrivals <= damaged_chunks_max(small.size);
        if !may_come_again {
            state.small.remove(&entry);
        }
        drop(state);
        self.count_damaged()?;
        if may_come_again {
            self.want_again(entry, 0, path, bytes);
        } else {
            let text = "it came damaged, again and again; have the memory of both machines checked";
            self.fail(entry, &path, FailReason::Damaged, text);
        }
        Ok(())
    }

    fn count_damaged(&self) -> Result<(), &'static str> {
        match self.damaged_arrivals.fetch_add(1, Ordering::Relaxed) {
            before if before < DAMAGED_ARRIVALS_MAX => Ok(()),
            _ => Err("more comes damaged than a transfer is gone on with"),
        }
    }

    fn want_again(&self, entry: EntryId, index: u64, path: String, bytes: u64) {
        self.progress.tell(Event::Damaged {
            path,
            bytes,
            at: DamagedAt::Arrival,
        });
        let chunks = Ranges::from_range(index..index + 1);
        self.outbox.push(&Message::Want { entry, chunks });
    }
}

/// A whole small file as the one chunk of its file.
pub(super) fn chunk_of(packed: &Packed<'_>) -> Chunk {
    Chunk {
        entry: packed.entry,
        index: 0,
        address: packed.root,
        only: true,
        hole: false,
    }
}
