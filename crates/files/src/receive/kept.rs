//! What lies beside the place of a file, of a transfer that ended early, and what it is worth (FILE-26, FILE-28).

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use files_proto::content::{chunk_address, chunk_count, chunk_length};
use files_proto::journal::Journal;
use files_proto::limits::CHUNK_BYTES;
use files_proto::name::partial_names;
use files_proto::plan::{self, Resume};

use super::file::Target;
use super::journal_file::JournalFile;
use crate::destination::Destination;
use crate::progress::{Counter, Progress};

/// What lies beside the place, of a transfer that ended early.
pub(super) enum Kept {
    Nothing,
    /// Chunks of the same file; whether one of those that may not have reached the disk is damaged.
    Same {
        journal: Journal,
        is_damaged: bool,
    },
    /// Chunks of the file as it was, or nobody knows which.
    Other,
}

pub(super) fn kept(
    destination: &Destination,
    target: &Target,
    part: &File,
    size: u64,
    progress: &Progress,
) -> Kept {
    let Some(journal) = JournalFile::read(destination, &target.journal) else {
        return Kept::Nothing;
    };
    let has_size = part.metadata().is_ok_and(|metadata| metadata.len() == size);
    match plan::resume(size, target.modified, &journal) {
        Resume::Missing(_) if has_size => Kept::Same {
            is_damaged: !has_unsynced(part, size, &journal, progress),
            journal,
        },
        Resume::Nothing => Kept::Nothing,
        Resume::Missing(_) | Resume::Compare => Kept::Other,
    }
}

/// Whether the chunks that may not have reached the disk are in the part (FILE-26): at most what write-back leaves.
fn has_unsynced(part: &File, size: u64, journal: &Journal, progress: &Progress) -> bool {
    if journal.unsynced.is_empty() {
        return true;
    }
    let only = chunk_count(size) == 1;
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    journal.unsynced.iter().all(|index| {
        let bytes = &mut buffer[..usize::try_from(chunk_length(size, *index)).unwrap_or(0)];
        progress.add(Counter::BytesHashed, bytes.len() as u64);
        part.read_exact_at(bytes, index * CHUNK_BYTES).is_ok()
            && journal.chunks.get(index) == Some(&chunk_address(*index, only, bytes))
    })
}

/// The paths of a part and its journal.
pub(super) fn beside(path: &Path) -> (PathBuf, PathBuf) {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let (part, journal) = partial_names(name);
    let with = |name: &[u8]| path.with_file_name(OsStr::from_bytes(name));
    (with(&part), with(&journal))
}
