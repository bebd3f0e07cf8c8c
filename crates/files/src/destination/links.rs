//! Symbolic links of a destination: they are made and read, and never followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags, readlinkat, statx, symlinkat, utimensat};
use rustix::io::Errno;

use super::{Destination, times};

impl Destination {
    /// Where a link leads.
    pub(crate) fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let (directory, name) = self.parent(path)?;
        let target = readlinkat(&directory, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    /// Makes a symbolic link, beside the place and renamed into it, so that it takes the place of a file or link, or a
    /// free place alone.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`]: the file system has none.
    pub(crate) fn symlink(
        &self,
        target: &OsStr,
        path: &Path,
        beside: &Path,
        modified: i64,
        replaces: bool,
    ) -> io::Result<()> {
        self.remove(beside)?;
        let (directory, name) = self.parent(beside)?;
        symlinkat(target, &directory, name)
            .map_err(|error| why_without_link(error, || is_immutable(&directory)))?;
        // File systems without times of links are no reason to have no link.
        let _ = utimensat(&directory, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW);
        let renamed = match replaces {
            true => self.rename(beside, path),
            false => self.rename_into_free(beside, path),
        };
        if renamed.is_err() {
            let _ = self.remove(beside);
        }
        renamed
    }
}

/// Why a link cannot be made in a directory.
fn why_without_link(error: Errno, is_immutable: impl Fn() -> bool) -> io::Error {
    match error {
        Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS if !is_immutable() => {
            let text = "the destination's file system has no symbolic links";
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        other => other.into(),
    }
}

/// Whether nothing can be made in a directory because somebody has said so.
fn is_immutable(directory: &OwnedFd) -> bool {
    let stat = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::IMMUTABLE))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::CWD;

    use super::*;
    use crate::destination::Kind;
    use crate::destination::tests::destination;

    #[test]
    fn a_link_takes_the_place_of_a_file_and_is_not_followed() {
        let (directory, destination) = destination();
        fs::write(directory.path().join("to/name"), "old").unwrap();
        let (path, beside) = (Path::new("name"), Path::new(".name.part"));
        destination
            .symlink(OsStr::new("elsewhere"), path, beside, 5_000_000_000, true)
            .unwrap();
        let existing = destination.existing(path).unwrap().unwrap();
        assert_eq!((existing.kind, existing.modified), (Kind::Symlink, 5_000_000_000));
        assert_eq!(
            fs::read_link(directory.path().join("to/name")).unwrap(),
            Path::new("elsewhere")
        );
        // What was made in its place meanwhile stays.
        let refused = destination.symlink(OsStr::new("other"), path, beside, 0, false);
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(destination.read_link(path).unwrap(), "elsewhere");
        assert_eq!(fs::read_dir(directory.path().join("to")).unwrap().count(), 1);
        let free = Path::new("free");
        destination
            .symlink(OsStr::new("other"), free, beside, 0, false)
            .unwrap();
        assert_eq!(destination.read_link(free).unwrap(), "other");
    }

    /// As FAT and exFAT have none.
    #[test]
    fn a_file_system_without_links_is_told_as_that() {
        let kind = |error, is_immutable| why_without_link(error, || is_immutable).kind();
        for error in [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS] {
            assert_eq!(kind(error, false), io::ErrorKind::Unsupported);
        }
        // Somebody has said that nothing is made there, or it is another error.
        assert_eq!(kind(Errno::PERM, true), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(Errno::ACCESS, false), io::ErrorKind::PermissionDenied);
        assert_eq!(kind(Errno::NOSPC, false), io::ErrorKind::StorageFull);
        // The kernel's own say so, where they are mounted and this user may try.
        for path in ["/dev/pts", "/sys", "/dev/mqueue"] {
            let link = Path::new(path).join("gramway-test-link");
            match symlinkat("nowhere", CWD, &link) {
                Err(Errno::PERM) => {}
                Err(_) => continue,
                // Something else is mounted there.
                Ok(()) => {
                    fs::remove_file(&link).unwrap();
                    continue;
                }
            }
            let destination = Destination::open(Path::new(path)).unwrap();
            let (name, beside) = (Path::new("gramway-test"), Path::new("gramway-test-link"));
            let error = destination.symlink(OsStr::new("nowhere"), name, beside, 0, false);
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Unsupported, "{path}");
        }
    }
}
