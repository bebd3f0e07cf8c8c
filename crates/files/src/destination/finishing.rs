//! What makes complete what was written: its mode, within what the user allows, its time and its extended attributes.
//! Until then a directory and a part have modes with which their owner can go on with them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use files_proto::Attribute;
use files_proto::plan::same_time;
use rustix::fs::{Mode, Timespec, Timestamps, fchmod, futimens};

use super::{Destination, Kind};
use crate::attributes;

/// Mode of a directory that is not done, where its own would keep its owner from filling it (FILE-38). The sticky bit
/// is of no use where nobody else may write, so that directories of users do not have this mode.
const UNFINISHED_MODE: u32 = 0o1700;

/// Bits that the owner of a directory needs to fill it.
const OWNER_BITS: u32 = 0o700;

/// Bits that the owner of a part needs to go on with it.
const PART_BITS: u32 = 0o600;

impl Destination {
    /// Mode, within what the user allows, and time of what is open. No file becomes one that runs as its owner.
    pub(crate) fn finish(&self, file: BorrowedFd<'_>, mode: u32, modified: i64) -> io::Result<()> {
        fchmod(file, Mode::from_raw_mode(self.permissions(mode)))?;
        Ok(futimens(file, &times(modified))?)
    }

    /// The same of a part, which its owner can open as long as it is one: [`Self::restrict`] does the rest.
    pub(crate) fn finish_part(&self, part: BorrowedFd<'_>, mode: u32, modified: i64) -> io::Result<()> {
        let mode = self.permissions(mode) | PART_BITS;
        fchmod(part, Mode::from_raw_mode(mode))?;
        Ok(futimens(part, &times(modified))?)
    }

    /// Takes from a part that has its place what only a part needs. After a kill in between, [`Self::adopt`] does so.
    pub(crate) fn restrict(&self, file: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
        let mode = self.permissions(mode);
        match mode & PART_BITS {
            PART_BITS => Ok(()),
            _ => Ok(fchmod(file, Mode::from_raw_mode(mode))?),
        }
    }

    fn permissions(&self, mode: u32) -> u32 {
        mode & 0o777 & !self.umask
    }

    /// Gives a file that has the offered bytes what it lacks of the mode, within what the user allows, the time and the
    /// attributes that are offered.
    pub(crate) fn adopt(
        &self,
        path: &Path,
        mode: u32,
        modified: i64,
        attributes: &[Attribute],
    ) -> io::Result<()> {
        let Some(found) = self.existing(path)?.filter(|found| found.kind == Kind::File) else {
            return Ok(());
        };
        self.file_systems.wrote(&self.parent(path)?.0);
        let mode = self.permissions(mode);
        let (has_mode, has_time) = (found.mode & 0o777 == mode, same_time(found.modified, modified));
        if has_mode && has_time && attributes.is_empty() {
            return Ok(());
        }
        let file = self.read(path)?;
        self.attribute(&file, attributes);
        if !has_mode {
            fchmod(&file, Mode::from_raw_mode(mode))?;
        }
        if !has_time {
            futimens(&file, &times(modified))?;
        }
        Ok(())
    }

    /// Has the file system know a file as changed now, and no time of its content: it was compared.
    pub(crate) fn confirm(&self, path: &Path) -> io::Result<()> {
        if let Some(found) = self.existing(path)?.filter(|found| found.kind == Kind::File) {
            futimens(self.read(path)?, &times(found.modified))?;
        }
        Ok(())
    }

    /// Gives a directory extended attributes, before a mode that may forbid it.
    pub(crate) fn give_attributes(&self, path: &Path, attributes: &[Attribute]) -> io::Result<()> {
        self.attribute(&*self.directory(path)?, attributes);
        Ok(())
    }

    /// Gives a file or directory extended attributes, as far as it takes them.
    pub(crate) fn attribute(&self, file: impl AsFd, attributes: &[Attribute]) {
        if !attributes::apply(file, attributes) {
            self.without_attributes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Files and directories that did not take all their extended attributes.
    pub(crate) fn without_attributes(&self) -> u64 {
        self.without_attributes.load(Ordering::Relaxed)
    }

    /// Mode, where it is to get one, and time of a directory, once everything is in it.
    pub(crate) fn finish_directory(&self, path: &Path, mode: Option<u32>, modified: i64) -> io::Result<()> {
        let directory = self.directory(path)?;
        self.file_systems.wrote(&directory);
        self.forget(path);
        match mode {
            Some(mode) => self.finish(directory.as_fd(), mode, modified),
            None => Ok(futimens(&directory, &times(modified))?),
        }
    }
}

/// Mode of a directory with these permissions until it is done.
pub(super) fn mode_until_done(permissions: u32) -> u32 {
    match permissions & OWNER_BITS {
        OWNER_BITS => permissions & 0o777,
        _ => UNFINISHED_MODE,
    }
}

/// Whether a directory of this mode is one that an earlier transfer has not finished.
pub(super) fn is_unfinished(mode: u32) -> bool {
    // It may have its group from the directory that it is in.
    mode & 0o5777 == UNFINISHED_MODE
}

/// A time of change, in nanoseconds since 1970, as the kernel takes it; the time of access stays.
pub(crate) fn times(modified: i64) -> Timestamps {
    let modified = Timespec {
        tv_sec: modified.div_euclid(1_000_000_000),
        tv_nsec: modified.rem_euclid(1_000_000_000),
    };
    let omitted = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_OMIT,
    };
    Timestamps {
        last_access: omitted,
        last_modification: modified,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::destination::tests::destination;
    use crate::processor::umask;

    #[test]
    fn a_file_gets_mode_and_time_and_no_rights_of_its_owner() {
        let (directory, destination) = destination();
        let mut file = destination.create(Path::new("part")).unwrap();
        let path = directory.path().join("to/part");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        file.write_all(b"bytes").unwrap();
        destination.finish(file.as_fd(), 0o4755, -1_500_000_000).unwrap();
        destination.rename(Path::new("part"), Path::new("done")).unwrap();
        let existing = destination.existing(Path::new("done")).unwrap().unwrap();
        assert_eq!((existing.kind, existing.size), (Kind::File, 5));
        assert_eq!(
            (existing.mode, existing.modified),
            (0o755 & !umask(), -1_500_000_000)
        );
        assert_eq!(destination.existing(Path::new("part")).unwrap(), None);
        assert_eq!(destination.existing(Path::new("no/such")).unwrap(), None);
    }

    /// FILE-38.
    #[test]
    fn a_directory_that_its_owner_could_not_fill_is_known_for_unfinished_until_it_is_done() {
        let (directory, destination) = destination();
        let mode = |name: &str| {
            let found = fs::metadata(directory.path().join("to").join(name)).unwrap();
            found.permissions().mode() & 0o7777
        };
        let sealed = Path::new("sealed");
        assert!(destination.make_directory(sealed, 0o555).unwrap());
        assert_eq!(mode("sealed"), UNFINISHED_MODE);
        // Killed here; also where the source has another mode by then.
        assert!(destination.make_directory(sealed, 0o755).unwrap());
        assert!(destination.make_directory(sealed, 0o555).unwrap());
        destination.finish_directory(sealed, Some(0o555), 0).unwrap();
        assert_eq!(mode("sealed"), 0o555 & !umask());
        assert!(!destination.make_directory(sealed, 0o555).unwrap());
        // Directories of users.
        for (name, own) in [("private", 0o700), ("shared", 0o1777), ("common", 0o3770)] {
            let path = directory.path().join("to").join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(own)).unwrap();
            assert!(
                !destination.make_directory(Path::new(name), 0o555).unwrap(),
                "{name}"
            );
            assert_eq!(mode(name), own, "{name}");
        }
    }
}
