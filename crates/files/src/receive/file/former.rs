//! The part of a file as it was before its source changed. What did not change of it is gone on with at its place, so
//! that no byte is written or has to have room twice. Until the sender has told what that is, the part and its journal
//! stay as they are: whatever ends the transfer before takes nothing away (FILE-29, FILE-35).

use std::fs::File;
use std::io;
use std::sync::Arc;

use files_proto::content::Address;

use super::super::journal_file::JournalFile;
use super::{Incoming, Opened, Output, ended};

/// One that nobody else writes as long as this is there.
pub(in super::super) struct Former {
    pub(in super::super) file: File,
    /// Of its journal, so many bytes count.
    journal_bytes: u64,
}

impl Incoming {
    /// Whether it is to be found out what of the part is the file's.
    pub(super) fn is_undecided(&self) -> bool {
        let Output::Part(part) = &self.output else {
            return false;
        };
        matches!(&*part.opened(), Opened::Former)
    }

    /// The part of the file as it was, where it is to be found out what of it is the file's.
    pub(in super::super) fn former(&self) -> io::Result<Option<Former>> {
        let Output::Part(part) = &self.output else {
            return Ok(None);
        };
        if !self.is_undecided() {
            return Ok(None);
        }
        let claimed = part.destination.claim(&self.target.part)?;
        let journal = JournalFile::read(&part.destination, &self.target.journal);
        if let (Some(file), Some(journal)) = (claimed, journal) {
            return Ok(Some(Former {
                file,
                journal_bytes: journal.valid_bytes,
            }));
        }
        let mut open = part.opened();
        if matches!(&*open, Opened::Former) {
            // It has been removed since: the file comes from its start.
            *open = Opened::NotYet;
        }
        Ok(None)
    }

    /// Goes on with a former part, of which these chunks are the file's.
    pub(in super::super) fn go_on_with(&self, former: Former, there: &[(u64, Address)]) -> io::Result<()> {
        let (Output::Part(part), Some(size)) = (&self.output, self.target.size) else {
            return Ok(());
        };
        let Former { file, journal_bytes } = former;
        // The journal is to say so. A disk tells of failures here.
        file.sync_data()?;
        let mut open = part.opened();
        if !matches!(&*open, Opened::Former) {
            return Err(ended());
        }
        let mut journal = JournalFile::go_on(&part.destination, &self.target.journal, journal_bytes)?;
        journal.change_source(size, self.target.modified, there)?;
        // What the former journal claims may be behind the end. Where this fails, the sizes tell.
        file.set_len(size)?;
        let mut state = self.state();
        state.know(Some(size), there.iter().copied());
        state.journal = Some(journal);
        drop(state);
        let file = Arc::new(file);
        part.begin_room(&file);
        *open = Opened::Open(file);
        Ok(())
    }
}
