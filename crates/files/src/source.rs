//! A file that is sent: opened when it is first read, read at any place by several threads, and known by its stamp not
//! to have changed since it was offered.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use files_proto::{EntryId, FailReason};
use rustix::fs::{OFlags, SeekFrom};

use crate::walk::Stamp;

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) entry: EntryId,
    pub(crate) path: PathBuf,
    /// For people: below what the user named.
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    open: Mutex<Option<Arc<File>>>,
}

/// Why nothing more comes of a file.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: FailReason,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(entry: EntryId, path: PathBuf, name: String, stamp: Stamp) -> Self {
        Self {
            entry,
            path,
            name,
            stamp,
            open: Mutex::default(),
        }
    }

    fn file(&self) -> Result<Arc<File>, Failure> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*open {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.open_new()?);
        *open = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Opens the file that was offered, and no other one that has its name meanwhile.
    fn open_new(&self) -> Result<File, Failure> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.path)
            .map_err(|error| unreadable(&error))?;
        self.check(&file)?;
        Ok(file)
    }

    fn check(&self, file: &File) -> Result<(), Failure> {
        let metadata = file.metadata().map_err(|error| unreadable(&error))?;
        let stamp = Stamp::new(&metadata);
        let same = (stamp.device, stamp.inode, stamp.size, stamp.modified)
            == (
                self.stamp.device,
                self.stamp.inode,
                self.stamp.size,
                self.stamp.modified,
            );
        match same && metadata.is_file() {
            true => Ok(()),
            false => Err(changed()),
        }
    }

    /// Whether the file, once all has been read, is still what it was.
    pub(crate) fn check_unchanged(&self) -> Result<(), Failure> {
        self.check(&*self.file()?)
    }

    /// Fills `bytes` from `offset` on, where the file has so many.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        let file = self.file()?;
        file.read_exact_at(bytes, offset)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => changed(),
                _ => unreadable(&error),
            })
    }

    /// The whole file, appended to `bytes`; it is closed again.
    pub(crate) fn read_whole(&self, bytes: &mut Vec<u8>) -> Result<(), Failure> {
        let file = self.open_new()?;
        let start = bytes.len();
        let size = usize::try_from(self.stamp.size).map_err(|_| changed())?;
        bytes.resize(start + size, 0);
        let read = file.read_exact_at(&mut bytes[start..], 0);
        if let Err(error) = read {
            bytes.truncate(start);
            return Err(match error.kind() {
                io::ErrorKind::UnexpectedEof => changed(),
                _ => unreadable(&error),
            });
        }
        self.check(&file)
    }

    /// Whether nothing is on disk of these bytes: they are zeros, and need not be read.
    pub(crate) fn is_hole(&self, offset: u64, length: u64) -> bool {
        if !self.stamp.is_sparse {
            return false;
        }
        let Ok(file) = self.file() else { return false };
        match rustix::fs::seek(&*file, SeekFrom::Data(offset)) {
            Ok(data) => data >= offset + length,
            // Only a hole follows, to the end.
            Err(rustix::io::Errno::NXIO) => true,
            Err(_) => false,
        }
    }

    /// Closes it; it is opened again when it is read again.
    pub(crate) fn close(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn unreadable(error: &io::Error) -> Failure {
    let reason = match error.kind() {
        io::ErrorKind::NotFound => FailReason::Vanished,
        _ => FailReason::Unreadable,
    };
    Failure {
        reason,
        text: error.to_string(),
    }
}

fn changed() -> Failure {
    Failure {
        reason: FailReason::Changed,
        text: "it changed while it was read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn source(path: PathBuf) -> Source {
        let stamp = Stamp::new(&fs::metadata(&path).unwrap());
        Source::new(0, path, "name".to_owned(), stamp)
    }

    #[test]
    fn a_file_that_shrinks_or_grows_while_it_is_read_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, [7; 100]).unwrap();
        let source = source(path.clone());
        let mut bytes = [0; 50];
        source.read(50, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 50]);
        source.check_unchanged().unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(60).unwrap();
        assert_eq!(
            source.read(50, &mut bytes).unwrap_err().reason,
            FailReason::Changed
        );
        assert_eq!(source.check_unchanged().unwrap_err().reason, FailReason::Changed);
    }

    #[test]
    fn another_file_of_the_same_name_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let (first, second) = (source(path.clone()), source(path.clone()));
        fs::remove_file(&path).unwrap();
        assert_eq!(second.read(0, &mut [0]).unwrap_err().reason, FailReason::Vanished);
        fs::write(directory.path().join("other"), "two!").unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert_eq!(
            first.read_whole(&mut Vec::new()).unwrap_err().reason,
            FailReason::Unreadable
        );
    }

    #[test]
    fn holes_are_found_without_reading() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(b"data", 4 << 20).unwrap();
        let source = source(path);
        let holes: Vec<bool> = (0..8).map(|index| source.is_hole(index << 20, 1 << 20)).collect();
        assert_eq!(holes, [true, true, true, true, false, true, true, true]);
    }
}
