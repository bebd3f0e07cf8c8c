//! Files of which the sender was asked for addresses, held against what is here: whether that in the place is the same,
//! and which chunks need not come (FILE-28, FILE-29).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use files_proto::EntryId;
use files_proto::content::{Address, chunk_address, chunk_length};
use files_proto::limits::CHUNK_BYTES;

use super::file::{Former, Incoming, Progressed};
use super::shared::{Receiving, reason_of, sentence};
use crate::destination::Destination;
use crate::progress::{Counter, DamagedAt, Event, Would};

/// A file whose addresses were asked for.
pub(super) struct Asked {
    pub(super) entry: EntryId,
    pub(super) size: u64,
    pub(super) question: Question,
    pub(super) addresses: Vec<Address>,
}

/// What addresses are to tell.
pub(super) enum Question {
    /// Which chunks are in another file here.
    Chunks {
        file: Arc<Incoming>,
        /// The file that may have what its part does not.
        candidate: Candidate,
        /// Whether what is in the part is read, and held against the addresses, before it counts; of the file as it
        /// was that is so in any case.
        checks_part: bool,
    },
    /// Which chunks are missing, without taking any.
    Missing {
        /// Those that a part has.
        known: BTreeMap<u64, Address>,
        /// Where others may be, in the order in which they are looked at.
        paths: Vec<PathBuf>,
        /// What is told of the file besides.
        would: Would,
    },
    /// Whether a file here is the same.
    Same { path: PathBuf },
}

/// What a comparison has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) entry: EntryId,
    pub(super) is_same: bool,
    /// Bytes of chunks that are missing, and what would become of the file, where this was the question.
    pub(super) missing: Option<(u64, Would)>,
    /// Of the file that is offered, for another comparison.
    pub(super) addresses: Vec<Address>,
}

/// Where chunks may be.
pub(super) enum Candidate {
    /// In the file that is to be replaced.
    Replaced,
    /// In one elsewhere, which stays.
    Elsewhere(PathBuf),
    /// Nowhere else: only what is in the part, or what its journal says of it, is to be held against the addresses.
    Nowhere,
}

impl Receiving {
    /// Holds the addresses of a file against what is here; what that says about the file in its place, where this was
    /// the question.
    pub(super) fn compare(&self, asked: Asked) -> Option<Compared> {
        let destination = self.destination.as_ref()?;
        if matches!(asked.question, Question::Chunks { .. }) {
            // What is taken of it has its part open.
            self.wait_for_compared();
        }
        if self.is_over() {
            // Nobody waits for what is asked still.
            return None;
        }
        match &asked.question {
            Question::Chunks {
                file,
                candidate,
                checks_part,
            } => {
                match self.keep_of_part(file, *checks_part, &asked.addresses) {
                    // It is for the next transfer to find out.
                    Ok(()) if self.is_over() => {}
                    Ok(()) => self.take_chunks(destination, file, candidate, &asked.addresses),
                    Err(error) => self.fail_file(file, reason_of(&error), &sentence(&error), true),
                }
                None
            }
            Question::Missing { known, paths, would } => {
                let files = opened(destination, paths);
                let missing = self.missing(&files, asked.size, known, &asked.addresses);
                Some(Compared {
                    entry: asked.entry,
                    is_same: false,
                    missing: Some((missing, *would)),
                    addresses: Vec::new(),
                })
            }
            Question::Same { path } => Some(Compared {
                entry: asked.entry,
                missing: None,
                is_same: destination
                    .read(path)
                    .is_ok_and(|file| self.is_same(&file, asked.size, &asked.addresses)),
                addresses: asked.addresses,
            }),
        }
    }

    /// Whether a file has these bytes and no others; what cannot be read is another one.
    fn is_same(&self, file: &File, size: u64, addresses: &[Address]) -> bool {
        let has_size = || file.metadata().is_ok_and(|metadata| metadata.len() == size);
        let mut bytes = vec![0; usize::try_from(size.min(CHUNK_BYTES)).unwrap_or(0)];
        let is_only = addresses.len() == 1;
        has_size()
            && (0..).zip(addresses).all(|(index, address)| {
                let length = usize::try_from(chunk_length(size, index)).unwrap_or(0);
                !self.is_over() && self.is_there(file, index, address, is_only, &mut bytes[..length])
            })
            && has_size()
    }

    /// Reads a chunk of a file here, and whether it has this address.
    fn is_there(&self, file: &File, index: u64, address: &Address, is_only: bool, bytes: &mut [u8]) -> bool {
        self.progress.add(Counter::BytesHashed, bytes.len() as u64);
        read_verified(file, index, address, is_only, bytes)
    }

    /// Bytes of the chunks that are neither known nor at their place in one of these files.
    fn missing(
        &self,
        files: &[File],
        size: u64,
        known: &BTreeMap<u64, Address>,
        addresses: &[Address],
    ) -> u64 {
        let mut bytes = vec![0; usize::try_from(size.min(CHUNK_BYTES)).unwrap_or(0)];
        let is_only = addresses.len() == 1;
        let mut missing = 0;
        for (index, address) in (0..).zip(addresses) {
            if self.is_over() {
                break;
            }
            let length = chunk_length(size, index);
            let bytes = &mut bytes[..usize::try_from(length).unwrap_or(0)];
            let is_there = known.get(&index) == Some(address)
                || files
                    .iter()
                    .any(|file| self.is_there(file, index, address, is_only, bytes));
            if !is_there {
                missing += length;
            }
        }
        missing
    }

    /// Finds out what of a part is the file's, forgets the rest, and counts it.
    fn keep_of_part(&self, file: &Incoming, checks_part: bool, addresses: &[Address]) -> io::Result<()> {
        if let Some(former) = file.former()? {
            let there = self.of_former(&former, file.target.size.unwrap_or(0), addresses);
            if self.is_over() {
                return Ok(());
            }
            file.go_on_with(former, &there)?;
        } else {
            file.forget_others(addresses)?;
            if checks_part {
                self.check_part(file, addresses)?;
            }
        }
        self.count_there(file);
        Ok(())
    }

    /// Reads the part of a file as it was, and which chunks of it have these addresses.
    fn of_former(&self, former: &Former, size: u64, addresses: &[Address]) -> Vec<(u64, Address)> {
        let mut bytes = vec![0; usize::try_from(size.min(CHUNK_BYTES)).unwrap_or(0)];
        let is_only = addresses.len() == 1;
        let mut there = Vec::new();
        for (index, address) in (0..).zip(addresses) {
            if self.is_over() {
                break;
            }
            let bytes = &mut bytes[..usize::try_from(chunk_length(size, index)).unwrap_or(0)];
            if self.is_there(&former.file, index, address, is_only, bytes) {
                there.push((index, *address));
            }
        }
        there
    }

    /// Reads what is in a part, forgets what the disk has damaged of it, and tells that (FILE-26).
    fn check_part(&self, file: &Incoming, addresses: &[Address]) -> io::Result<()> {
        let Some(part) = file.open()? else { return Ok(()) };
        let target = &file.target;
        let size = target.size.unwrap_or(0);
        let mut bytes = vec![0; usize::try_from(size.min(CHUNK_BYTES)).unwrap_or(0)];
        let (mut damaged, mut damaged_bytes) = (Vec::new(), 0);
        for (index, address) in (0..).zip(addresses) {
            if self.is_over() {
                return Ok(());
            }
            let length = chunk_length(size, index);
            let bytes = &mut bytes[..usize::try_from(length).unwrap_or(0)];
            let is_there = file.has(index);
            if is_there && !self.is_there(&part, index, address, addresses.len() == 1, bytes) {
                damaged.push(index);
                damaged_bytes += length;
            }
        }
        file.forget(&damaged)?;
        if damaged_bytes > 0 {
            self.progress.tell(Event::Damaged {
                path: target.path.display().to_string(),
                bytes: damaged_bytes,
                at: DamagedAt::Disk,
            });
        }
        Ok(())
    }

    /// Counts what is there of a file.
    pub(super) fn count_there(&self, file: &Incoming) {
        let (there, _) = file.there();
        self.progress.add(Counter::BytesThere, there);
        self.progress.add(Counter::BytesDone, there);
    }

    /// Takes from a file here what it has of another, and wants the rest.
    fn take_chunks(
        &self,
        destination: &Destination,
        file: &Arc<Incoming>,
        candidate: &Candidate,
        addresses: &[Address],
    ) {
        let size = file.target.size.unwrap_or(0);
        let from = match candidate {
            Candidate::Replaced => destination.read(&file.target.path).ok(),
            Candidate::Elsewhere(path) => destination.read(path).ok(),
            Candidate::Nowhere => None,
        };
        if let Some(from) = from {
            let missing = file.missing();
            let mut bytes = vec![0; CHUNK_BYTES as usize];
            for index in missing.iter().flatten() {
                if self.is_over() {
                    return;
                }
                let Some(address) = usize::try_from(index).ok().and_then(|index| addresses.get(index)) else {
                    break;
                };
                let length = chunk_length(size, index);
                let bytes = &mut bytes[..usize::try_from(length).unwrap_or(0)];
                self.progress.add(Counter::BytesHashed, length);
                match take_chunk(&from, file, index, address, addresses.len() == 1, bytes) {
                    Ok(Progressed::Known) => {}
                    Ok(_) => {
                        self.progress.add(Counter::BytesThere, length);
                        self.progress.add(Counter::BytesDone, length);
                        self.write_back.wrote(file, length);
                    }
                    Err(error) => {
                        return self.fail_file(file, reason_of(&error), &sentence(&error), true);
                    }
                }
            }
        }
        self.end_comparison(file);
        self.want(file);
    }
}

/// Those of these files that can be read.
fn opened(destination: &Destination, paths: &[PathBuf]) -> Vec<File> {
    paths
        .iter()
        .filter_map(|path| destination.read(path).ok())
        .collect()
}

/// Takes a chunk where it has this address.
fn take_chunk(
    from: &impl ReadAt,
    file: &Incoming,
    index: u64,
    address: &Address,
    is_only: bool,
    bytes: &mut [u8],
) -> io::Result<Progressed> {
    if !read_verified(from, index, address, is_only, bytes) {
        return Ok(Progressed::Known);
    }
    file.take(bytes, index, *address)
}

/// Reads a chunk, and whether it has this address; a shorter file ends before it, and what cannot be read has it not.
fn read_verified(from: &impl ReadAt, index: u64, address: &Address, is_only: bool, bytes: &mut [u8]) -> bool {
    from.read_at(bytes, index * CHUNK_BYTES).is_ok() && chunk_address(index, is_only, bytes) == *address
}

/// What chunks are read from.
trait ReadAt {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use files_proto::Ranges;

    use super::super::file::{Output, Part, Target};
    use super::*;

    /// A file that is in use: each time it is read it has other bytes.
    struct InUse(Cell<u8>);

    impl ReadAt for InUse {
        fn read_at(&self, bytes: &mut [u8], _offset: u64) -> io::Result<()> {
            bytes.fill(self.0.replace(self.0.get() + 1));
            Ok(())
        }
    }

    /// FILE-29.
    #[test]
    fn what_is_taken_from_another_file_is_what_was_verified() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let target = Target {
            entry: 0,
            path: PathBuf::from("file"),
            part: PathBuf::from("part"),
            journal: PathBuf::from("journal"),
            size: Some(2 * CHUNK_BYTES),
            mode: 0o644,
            modified: 0,
            attributes: Vec::new(),
            replaces: false,
        };
        let output = Output::Part(Part::new(&destination, None));
        let file = Incoming::new(target, output, &BTreeMap::new());
        let from = InUse(Cell::new(7));
        let mut bytes = vec![0; CHUNK_BYTES as usize];
        let sevens = vec![7; CHUNK_BYTES as usize];
        let address = chunk_address(0, false, &sevens);
        let taken = take_chunk(&from, &file, 0, &address, false, &mut bytes).unwrap();
        assert_eq!(taken, Progressed::More);
        let part = || std::fs::read(directory.path().join("part")).unwrap();
        assert!(part()[..CHUNK_BYTES as usize] == sevens);
        // It has changed: this chunk is fetched.
        let address = chunk_address(1, false, &sevens);
        let taken = take_chunk(&from, &file, 1, &address, false, &mut bytes).unwrap();
        assert_eq!(taken, Progressed::Known);
        assert_eq!(file.missing(), Ranges::from_range(1..2));
        // Holes stay holes.
        let address = chunk_address(1, false, &vec![0; CHUNK_BYTES as usize]);
        take_chunk(&InUse(Cell::new(0)), &file, 1, &address, false, &mut bytes).unwrap();
        assert!(file.missing().is_empty());
        assert!(part()[CHUNK_BYTES as usize..].iter().all(|byte| *byte == 0));
    }
}
