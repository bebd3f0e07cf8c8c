//! The file beside a part that says which chunks are in it (FILE-25 to FILE-27): read when a transfer goes on, appended
//! to while chunks come.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use files_proto::content::Address;
use files_proto::journal::{Header, Journal, Reader, Record};

use crate::destination::Destination;
use crate::processor::boot_id;

/// One that is written.
#[derive(Debug)]
pub(super) struct JournalFile {
    file: File,
    /// Chunks that were recorded while the disk takes those before, which are not known to be on it.
    meanwhile: Option<Vec<(u64, Address)>>,
}

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

impl JournalFile {
    /// A new one in place of what is there.
    pub(super) fn create(
        destination: &Destination,
        path: &Path,
        size: u64,
        modified_ns: i64,
    ) -> io::Result<Self> {
        destination.remove(path)?;
        let mut journal = Self {
            file: destination.create(path)?,
            meanwhile: None,
        };
        let boot = boot_id();
        journal.append(&[Record::Header(Header {
            size,
            modified_ns,
            boot,
        })])?;
        Ok(journal)
    }

    /// Goes on with one that was read, of which so many bytes count.
    pub(super) fn go_on(destination: &Destination, path: &Path, valid_bytes: u64) -> io::Result<Self> {
        let mut file = destination.write(path)?;
        file.set_len(valid_bytes)?;
        file.seek(SeekFrom::End(0))?;
        let mut journal = Self {
            file,
            meanwhile: None,
        };
        journal.append(&[Record::Boot(boot_id())])?;
        Ok(journal)
    }

    /// What one that is there says; `None` where there is none, or none that can be used.
    pub(super) fn read(destination: &Destination, path: &Path) -> Option<Journal> {
        let mut file = destination.read(path).ok()?;
        let mut reader = Reader::new(boot_id());
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match file.read(&mut bytes).ok()? {
                0 => break,
                length if reader.push(&bytes[..length]) => {}
                _ => break,
            }
        }
        reader.finish().ok()
    }

    /// Removes it, unless its name is another one's by now.
    pub(super) fn remove(&self, destination: &Destination, path: &Path) -> io::Result<()> {
        match destination.has_name(&self.file, path)? {
            true => destination.remove(path),
            false => Ok(()),
        }
    }

    /// Few are written at once: a kill leaves all of them or none.
    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        self.file.write_all(&bytes)
    }

    /// A chunk is in the part.
    pub(super) fn chunk(&mut self, index: u64, address: Address) -> io::Result<()> {
        if let Some(meanwhile) = &mut self.meanwhile {
            meanwhile.push((index, address));
        }
        self.append(&[Record::Chunk { index, address }])
    }

    /// Chunks are no longer in the part; before others are written in their places, the disk knows (FILE-27).
    pub(super) fn lost(&mut self, indices: &[u64]) -> io::Result<()> {
        if indices.is_empty() {
            return Ok(());
        }
        if let Some(meanwhile) = &mut self.meanwhile {
            let lost: BTreeSet<u64> = indices.iter().copied().collect();
            meanwhile.retain(|(index, _)| !lost.contains(index));
        }
        let records: Vec<Record> = indices
            .iter()
            .map(|index| Record::Lost { index: *index })
            .collect();
        self.append(&records)?;
        self.file.sync_data()
    }

    /// The source has changed. Of all that is in the part, these chunks are its own and on the disk; the disk knows
    /// before others are overwritten (FILE-27). Where it takes no more, what stands before counts still.
    pub(super) fn change_source(
        &mut self,
        size: u64,
        modified_ns: i64,
        there: &[(u64, Address)],
    ) -> io::Result<()> {
        let header = Record::Header(Header {
            size,
            modified_ns,
            boot: boot_id(),
        });
        let chunks = there.iter().map(|(index, address)| Record::Chunk {
            index: *index,
            address: *address,
        });
        let records: Vec<Record> = [header]
            .into_iter()
            .chain(chunks)
            .chain([Record::Synced])
            .collect();
        let end = self.file.stream_position()?;
        let recorded = self.append(&records).and_then(|()| self.file.sync_data());
        if recorded.is_err() {
            // A header with some of its chunks would make what is before it void.
            let _ = self.file.set_len(end);
        }
        recorded
    }

    /// The disk is asked to take the part.
    pub(super) fn begin_sync(&mut self) {
        self.meanwhile = Some(Vec::new());
    }

    /// The disk has what was in the part when it was asked.
    pub(super) fn end_sync(&mut self) -> io::Result<()> {
        let meanwhile = self.meanwhile.take().unwrap_or_default();
        let lost = meanwhile.iter().map(|(index, _)| Record::Lost { index: *index });
        let chunks = meanwhile.iter().map(|(index, address)| Record::Chunk {
            index: *index,
            address: *address,
        });
        let records: Vec<Record> = lost.chain([Record::Synced]).chain(chunks).collect();
        self.append(&records)
    }

    /// What is to be on the disk, for whoever does not keep others from it for so long.
    pub(super) fn to_sync(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// The disk has what was recorded.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

    use super::*;

    /// FILE-26.
    #[test]
    fn what_came_while_the_disk_was_busy_counts_after_a_kill_and_not_as_synced() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        let path = Path::new("journal");
        let mut journal = JournalFile::create(&destination, path, 10 << 20, 5).unwrap();
        journal.chunk(3, [3; 32]).unwrap();
        journal.begin_sync();
        journal.chunk(4, [4; 32]).unwrap();
        journal.end_sync().unwrap();
        let read = JournalFile::read(&destination, path).unwrap();
        assert_eq!(read.chunks.keys().copied().collect::<Vec<u64>>(), [3, 4]);
        // The same file after another start of the machine.
        let mut reader = Reader::new([9; 16]);
        reader.push(&std::fs::read(directory.path().join("journal")).unwrap());
        let after = reader.finish().unwrap();
        assert_eq!(after.chunks.keys().copied().collect::<Vec<u64>>(), [3]);
        // And it goes on.
        drop(journal);
        let mut journal = JournalFile::go_on(&destination, path, read.valid_bytes).unwrap();
        journal.lost(&[3]).unwrap();
        journal.chunk(5, [5; 32]).unwrap();
        let read = JournalFile::read(&destination, path).unwrap();
        assert_eq!(read.chunks.keys().copied().collect::<Vec<u64>>(), [4, 5]);
    }

    /// FILE-27.
    #[test]
    fn what_is_lost_while_the_disk_is_busy_stays_lost() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        let path = Path::new("journal");
        let mut journal = JournalFile::create(&destination, path, 10 << 20, 5).unwrap();
        journal.begin_sync();
        journal.chunk(3, [3; 32]).unwrap();
        journal.chunk(4, [4; 32]).unwrap();
        journal.lost(&[3]).unwrap();
        journal.end_sync().unwrap();
        let read = JournalFile::read(&destination, path).unwrap();
        assert_eq!(read.chunks.keys().copied().collect::<Vec<u64>>(), [4]);
    }

    /// FILE-35: as on a disk that is full.
    #[test]
    fn a_journal_that_cannot_say_what_is_left_of_a_changed_source_says_what_it_said() {
        // It grows to two pages and no further.
        let file = File::from(memfd_create("journal", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(2 * 4_096).unwrap();
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        let mut journal = JournalFile {
            file,
            meanwhile: None,
        };
        let header = Header {
            size: 10 << 20,
            modified_ns: 5,
            boot: boot_id(),
        };
        journal.append(&[Record::Header(header)]).unwrap();
        journal.chunk(3, [3; 32]).unwrap();
        let there: Vec<(u64, Address)> = (0..1_000).map(|index| (index, [7; 32])).collect();
        assert!(journal.change_source(1_000 << 20, 6, &there).is_err());
        let mut bytes = Vec::new();
        journal.file.rewind().unwrap();
        journal.file.read_to_end(&mut bytes).unwrap();
        let mut reader = Reader::new(boot_id());
        reader.push(&bytes);
        let read = reader.finish().unwrap();
        assert_eq!(read.header, header);
        assert_eq!(read.chunks.into_keys().collect::<Vec<u64>>(), [3]);
    }
}
