//! The right to write a part: an exclusive lock on it (`flock`) while a receive writes it, so that two receives
//! into one directory never write, rename or remove the other's (FILE-24). The lock belongs to the open file: it stays
//! when the part is renamed, and ends with the process, however that ends.
//!
//! A lock is only worth something on the file that has the name: after each lock, and before each rename, the name is
//! looked at again. Where the file system has no locks, as some of networks, that look is all there is.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, FlockOperation, Mode, fchmod, flock, fstat, statat};
use rustix::io::{Errno, retry_on_intr};

use crate::destination::{Destination, Kind};

impl Destination {
    /// The part at `path`, to be written by nobody else as long as this is open; `None` where there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another receive writes it.
    pub(crate) fn claim(&self, path: &Path) -> io::Result<Option<File>> {
        if !matches!(self.existing(path)?, Some(found) if found.kind == Kind::File) {
            return Ok(None);
        }
        let file = match self.write(path) {
            // Its mode was changed, or it is another version's that was complete but for its name.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let file = self.read(path)?;
                // Of what is open to read alone, network file systems have no exclusive lock.
                try_lock(&file, FlockOperation::NonBlockingLockShared)?;
                if !self.has_name(&file, path)? {
                    return Err(busy());
                }
                fchmod(&file, Mode::from_raw_mode(0o600))?;
                drop(file);
                self.write(path)
            }
            other => other,
        };
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        lock(&file)?;
        match self.has_name(&file, path)? {
            true => Ok(Some(file)),
            // It got its place, or was removed, between both.
            false => Err(busy()),
        }
    }

    /// A new part at `path`, claimed, in place of one that nobody writes.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another receive writes one.
    pub(crate) fn create_part(&self, path: &Path) -> io::Result<File> {
        self.clear(path)?;
        let file = match self.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(busy()),
            other => other?,
        };
        lock(&file)?;
        match self.has_name(&file, path)? {
            true => Ok(file),
            false => Err(busy()),
        }
    }

    /// Removes the part at `path`, where there is one.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another receive writes it.
    pub(crate) fn clear(&self, path: &Path) -> io::Result<()> {
        match self.claim(path)? {
            // Held until it is gone.
            Some(_claimed) => self.remove(path),
            None => match self.existing(path)? {
                // One that has come since is another receive's.
                Some(found) if found.kind == Kind::File => Err(busy()),
                // What lies there by this name, and is no part.
                Some(_) => self.remove(path),
                None => Ok(()),
            },
        }
    }

    /// Puts a claimed part in its place.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another receive has taken its name.
    pub(crate) fn place(&self, part: &File, path: &Path, place: &Path, replaces: bool) -> io::Result<()> {
        if !self.has_name(part, path)? {
            return Err(busy());
        }
        match replaces {
            true => self.rename(path, place),
            false => self.rename_into_free(path, place),
        }
    }

    /// Removes the part at `part` and the journal beside it, or a journal alone, where they are.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: another receive writes them; then both stay.
    pub(crate) fn clear_both(&self, part: &Path, journal: &Path) -> io::Result<()> {
        if self.existing(journal)?.is_none() {
            return self.clear(part);
        }
        // Whoever has the part has the journal; nobody begins one meanwhile.
        let claimed = match self.claim(part)? {
            Some(claimed) => claimed,
            None => self.create_part(part)?,
        };
        match self.discard_both(&claimed, part, journal) {
            true => Ok(()),
            false => Err(busy()),
        }
    }

    /// Removes a journal that has no part.
    pub(crate) fn clear_journal(&self, part: &Path, journal: &Path) -> io::Result<()> {
        match (self.existing(part)?, self.existing(journal)?) {
            (None, Some(_)) => self.clear_both(part, journal),
            _ => Ok(()),
        }
    }

    /// Removes a claimed part with its journal, that one first: without the part it might be another receive's. Both
    /// stay where the part's name is another's by now; whether it did.
    pub(crate) fn discard_both(&self, part: &File, path: &Path, journal: &Path) -> bool {
        self.has_name(part, path).unwrap_or(false) && self.remove(journal).is_ok() && self.discard(part, path)
    }

    /// Removes a claimed part, unless its name is another receive's by now; whether it did.
    pub(crate) fn discard(&self, part: &File, path: &Path) -> bool {
        // What cannot be removed lies there, by a name that tells what it is.
        self.has_name(part, path).unwrap_or(false) && self.remove(path).is_ok()
    }

    /// Whether `path` leads to this open file.
    pub(crate) fn has_name(&self, file: &File, path: &Path) -> io::Result<bool> {
        let ours = fstat(file)?;
        let (directory, name) = self.parent(path)?;
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn lock(file: &File) -> io::Result<()> {
    try_lock(file, FlockOperation::NonBlockingLockExclusive)
}

fn try_lock(file: &File, operation: FlockOperation) -> io::Result<()> {
    match retry_on_intr(|| flock(file, operation)) {
        Err(Errno::WOULDBLOCK) => Err(busy()),
        // A file system without locks is no reason to have no file.
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What a claim fails by where another receive has the part.
pub(crate) fn busy() -> io::Error {
    io::ErrorKind::WouldBlock.into()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn destination() -> (tempfile::TempDir, Destination) {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        (directory, destination)
    }

    fn is_busy<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// FILE-24.
    #[test]
    fn a_part_is_written_by_one_and_left_alone_by_others_until_it_has_its_place() {
        let (directory, destination) = destination();
        let (part, place) = (Path::new(".file.part"), Path::new("file"));
        assert!(destination.claim(part).unwrap().is_none());
        let mut first = destination.create_part(part).unwrap();
        first.write_all(b"first").unwrap();
        assert!(is_busy(destination.claim(part)));
        assert!(is_busy(destination.create_part(part)));
        assert!(is_busy(destination.clear(part)));
        destination.place(&first, part, place, false).unwrap();
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"first");
        // The lock went with the file: the next part is another one.
        let second = destination.create_part(part).unwrap();
        drop(second);
        assert!(destination.claim(part).unwrap().is_some());
        destination.clear(part).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    /// FILE-24: as on a file system without locks.
    #[test]
    fn a_part_whose_name_another_one_has_taken_does_not_take_the_place_nor_removes_the_other() {
        let (directory, destination) = destination();
        let (part, place) = (Path::new(".file.part"), Path::new("file"));
        let first = destination.create_part(part).unwrap();
        fs::remove_file(directory.path().join(part)).unwrap();
        fs::write(directory.path().join(part), "the other's").unwrap();
        for replaces in [true, false] {
            assert!(is_busy(destination.place(&first, part, place, replaces)));
        }
        assert!(!destination.discard(&first, part));
        assert_eq!(fs::read(directory.path().join(part)).unwrap(), b"the other's");
        assert!(!directory.path().join("file").exists());
    }

    /// FILE-24.
    #[test]
    fn a_journal_is_removed_by_who_may_write_its_part_alone() {
        let (directory, destination) = destination();
        let (part, journal) = (Path::new(".file.part"), Path::new(".file.state"));
        let there = || fs::read_dir(directory.path()).unwrap().count();
        let first = destination.create_part(part).unwrap();
        fs::write(directory.path().join(journal), "chunks").unwrap();
        assert!(is_busy(destination.clear_both(part, journal)));
        destination.clear_journal(part, journal).unwrap();
        assert_eq!(there(), 2);
        // Of one that is another's by now, nothing is removed.
        fs::rename(directory.path().join(part), directory.path().join("moved")).unwrap();
        fs::write(directory.path().join(part), "the other's").unwrap();
        assert!(!destination.discard_both(&first, part, journal));
        assert_eq!(there(), 3);
        drop(first);
        destination.clear_both(part, journal).unwrap();
        assert_eq!(there(), 1);
        // A journal alone, of a transfer that was killed right after its end.
        fs::write(directory.path().join(journal), "chunks").unwrap();
        destination.clear_journal(part, journal).unwrap();
        assert_eq!(there(), 1);
        destination.clear_both(part, journal).unwrap();
        assert_eq!(there(), 1);
    }

    #[test]
    fn a_part_of_a_transfer_that_was_killed_is_taken_over_whatever_its_mode_and_kind() {
        let (directory, destination) = destination();
        let part = Path::new(".file.part");
        let path = directory.path().join(part);
        fs::write(&path, "kept").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        let mut claimed = destination.claim(part).unwrap().unwrap();
        claimed.write_all(b"more").unwrap();
        drop(claimed);
        destination.create_part(part).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        destination.create_part(part).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }
}
