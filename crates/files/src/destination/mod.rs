//! The directory that a transfer writes to, and nothing outside of it: every name is opened below its descriptor, the
//! kernel follows no symbolic link on the way (`openat2`), and the last component is never followed either.
//!
//! Paths are relative and consist of names that `files-proto` has made safe; what is wrong with them all the same is
//! an error of the kernel.
//!
//! Here are names: directories and files are opened, made, listed, renamed and removed. [`existing`] is what is found
//! at one, [`links`] makes symbolic links, [`finishing`] gives modes, times and attributes, and [`file_systems`] knows
//! what has to be put on disk.

mod existing;
mod file_systems;
mod finishing;
mod links;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    Access, AtFlags, CWD, Dir, Mode, OFlags, RenameFlags, ResolveFlags, accessat, fstat, linkat, mkdirat,
    openat2, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use crate::limits::DIRECTORIES_OPEN_MAX;
use crate::naming;
use crate::processor::umask;
use crate::room::Room;

pub(crate) use existing::{Existing, Kind, changed_of, identity_of};
use file_systems::FileSystems;
pub(crate) use finishing::times;

/// A directory to write to.
pub(crate) struct Destination {
    root: Arc<OwnedFd>,
    /// Where it is, for sentences.
    path: PathBuf,
    /// Permissions that files here are not to have.
    umask: u32,
    /// Whether files can be made without a name, as far as is known.
    has_unnamed: AtomicBool,
    without_attributes: AtomicU64,
    /// What is known of its file systems.
    pub(crate) asked: naming::Asked,
    /// Those that were written to.
    file_systems: FileSystems,
    /// What is promised of what is free there.
    pub(crate) room: Arc<Room>,
    /// The directories below that were used last, the latest at the end.
    open: Mutex<VecDeque<(PathBuf, Arc<OwnedFd>)>>,
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

impl Destination {
    /// The directory at `path`, whose own path may lead over symbolic links: it is the user's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
        let file_systems = FileSystems::default();
        // What an earlier transfer has stored, and this one finds there, may not be on disk.
        file_systems.wrote(&root);
        Ok(Self {
            root,
            path: path.to_owned(),
            umask: umask(),
            has_unnamed: AtomicBool::new(true),
            without_attributes: AtomicU64::new(0),
            asked: naming::Asked::default(),
            file_systems,
            room: Arc::default(),
            open: Mutex::default(),
        })
    }

    /// Whether files can be made in it: what tells a read-only file system before anything is sent.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        may_write(&self.root)
    }

    /// Whether what is to be at `path` can be made: in its directory, or where that would be made.
    pub(crate) fn check_place(&self, path: &Path) -> io::Result<()> {
        may_write(&*self.nearest(path)?)
    }

    /// The directory that `path` is or would be in, or the nearest one above it that is there.
    pub(crate) fn nearest(&self, path: &Path) -> io::Result<Arc<OwnedFd>> {
        let mut directory = path;
        loop {
            directory = directory.parent().unwrap_or(Path::new(""));
            match self.directory(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
    }

    /// The directory that `path` is in, and the name there.
    pub(crate) fn parent<'a>(&self, path: &'a Path) -> io::Result<(Arc<OwnedFd>, &'a OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().unwrap_or(Path::new(""));
        Ok((self.directory(parent)?, name))
    }

    pub(crate) fn directory(&self, path: &Path) -> io::Result<Arc<OwnedFd>> {
        if path.as_os_str().is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = open.iter().rposition(|(known, _)| known == path) {
            let entry = open.remove(index).ok_or(io::ErrorKind::NotFound)?;
            let directory = Arc::clone(&entry.1);
            open.push_back(entry);
            return Ok(directory);
        }
        let directory = Arc::new(openat2(&self.root, path, DIRECTORY, Mode::empty(), INSIDE)?);
        if open.len() >= DIRECTORIES_OPEN_MAX {
            open.pop_front();
        }
        open.push_back((path.to_owned(), Arc::clone(&directory)));
        Ok(directory)
    }

    /// A directory that is renamed, removed or replaced is not to be found by its former path.
    fn forget(&self, path: &Path) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(known, _)| !known.starts_with(path));
    }

    /// What is at `path`, without following a link; `None` where nothing is.
    pub(crate) fn existing(&self, path: &Path) -> io::Result<Option<Existing>> {
        let (directory, name) = match self.parent(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Existing::new(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A new directory; one that is there already is taken. Whether it is new, or one that an earlier transfer has not
    /// finished. Its final mode comes with [`Self::finish_directory`], because files must be put into it meanwhile.
    pub(crate) fn make_directory(&self, path: &Path, mode: u32) -> io::Result<bool> {
        let (directory, name) = self.parent(path)?;
        match mkdirat(
            &directory,
            name,
            Mode::from_raw_mode(finishing::mode_until_done(mode)),
        ) {
            Err(Errno::EXIST) => {
                let directory = match self.directory(path) {
                    // The same error as for a file; a link is another thing to people.
                    Err(_) if matches!(self.existing(path)?, Some(found) if found.kind == Kind::Symlink) => {
                        return Err(Errno::LOOP.into());
                    }
                    other => other?,
                };
                Ok(finishing::is_unfinished(fstat(directory)?.st_mode))
            }
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.file_systems.wrote(&directory);
                Ok(true)
            }
        }
    }

    /// What is in a directory, by name, without following links; what cannot be looked at is left out.
    pub(crate) fn list(&self, path: &Path) -> io::Result<impl Iterator<Item = (OsString, Existing)>> {
        let directory = self.directory(path)?;
        let entries = Dir::read_from(&directory)?;
        Ok(entries.filter_map(move |entry| {
            let name = OsString::from_vec(entry.ok()?.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                return None;
            }
            let stat = statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            Some((name, Existing::new(&stat)))
        }))
    }

    /// Opens a file to read.
    pub(crate) fn read(&self, path: &Path) -> io::Result<File> {
        self.file(path, OFlags::RDONLY)
    }

    /// Opens a file that is there to write and to read.
    pub(crate) fn write(&self, path: &Path) -> io::Result<File> {
        self.file(path, OFlags::RDWR)
    }

    /// A new file that only this user can read so far; one that is there is an error.
    pub(crate) fn create(&self, path: &Path) -> io::Result<File> {
        self.file(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn file(&self, path: &Path, flags: OFlags) -> io::Result<File> {
        let (directory, name) = self.parent(path)?;
        // Nothing waits for the other end of a pipe that lies there.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mode = match flags.contains(OFlags::CREATE) {
            true => Mode::from_raw_mode(0o600),
            false => Mode::empty(),
        };
        let file = File::from(openat2(&directory, name, flags, mode, INSIDE)?);
        if flags.contains(OFlags::RDWR) {
            self.file_systems.wrote(&directory);
        }
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file",
            )),
        }
    }

    /// A new file for `path` that has no name so far, and is gone where it gets none; `None` where the file system has
    /// no such files. Creating it does not take the directory's lock, which creating a name does.
    pub(crate) fn create_unnamed(&self, path: &Path) -> io::Result<Option<File>> {
        if !self.has_unnamed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (directory, _) = self.parent(path)?;
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat2(&directory, ".", flags, Mode::from_raw_mode(0o600), INSIDE) {
            Ok(file) => {
                self.file_systems.wrote(&directory);
                Ok(Some(File::from(file)))
            }
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                self.has_unnamed.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// As a file system without such files would have it.
    #[cfg(test)]
    pub(crate) fn forgo_unnamed(&self) {
        self.has_unnamed.store(false, Ordering::Relaxed);
    }

    /// Gives a file without a name the one at `path`; something that is there by then is an error. `false` where files
    /// here cannot be given a name later, as without `/proc`.
    pub(crate) fn name(&self, file: BorrowedFd<'_>, path: &Path) -> io::Result<bool> {
        let (directory, name) = self.parent(path)?;
        // By the descriptor alone (AT_EMPTY_PATH) this is a privilege before Linux 6.10.
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        match linkat(CWD, unnamed, &directory, name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => {
                self.file_systems.wrote(&directory);
                Ok(true)
            }
            Err(error @ (Errno::EXIST | Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
            Err(_) => {
                self.has_unnamed.store(false, Ordering::Relaxed);
                Ok(false)
            }
        }
    }

    /// Gives a file or link another name, in place of what has it.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_directory, from_name) = self.parent(from)?;
        let (to_directory, to_name) = self.parent(to)?;
        renameat(&from_directory, from_name, &to_directory, to_name)?;
        self.file_systems.wrote(&to_directory);
        Ok(())
    }

    /// The same into a place where nothing is; something that is there by then is an error.
    pub(crate) fn rename_into_free(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_directory, from_name) = self.parent(from)?;
        let (to_directory, to_name) = self.parent(to)?;
        let flags = RenameFlags::NOREPLACE;
        match renameat_with(&from_directory, from_name, &to_directory, to_name, flags) {
            // File systems that cannot.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if self.existing(to)?.is_some() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                renameat(&from_directory, from_name, &to_directory, to_name)?;
            }
            other => other?,
        }
        self.file_systems.wrote(&to_directory);
        Ok(())
    }

    /// Where it is, as the user named it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts everything on disk that was written to its file systems.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file_systems.sync()
    }

    /// Removes a file or link; one that is not there is no error.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.parent(path)?;
        match unlinkat(&directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }
}

fn may_write(directory: &OwnedFd) -> io::Result<()> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(directory, ".", access, AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    pub(super) fn destination() -> (tempfile::TempDir, Destination) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("to")).unwrap();
        let destination = Destination::open(&directory.path().join("to")).unwrap();
        (directory, destination)
    }

    #[test]
    fn nothing_outside_is_made_read_or_removed_by_any_path() {
        let (directory, destination) = destination();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, directory.path().join("to/link")).unwrap();
        symlink(outside.join("secret"), directory.path().join("to/file")).unwrap();
        let absolute = outside.join("secret");
        let hostile = [
            "../outside/secret",
            "link/secret",
            "file",
            "./link/../../outside/secret",
        ];
        let hostile = hostile.iter().map(Path::new).chain([absolute.as_path()]);
        for path in hostile {
            assert!(destination.read(path).is_err(), "{path:?}");
            assert!(destination.write(path).is_err(), "{path:?}");
            assert!(destination.create(path).is_err(), "{path:?}");
            if path != Path::new("file") {
                assert!(destination.remove(path).is_err(), "{path:?}");
                assert!(destination.rename(path, Path::new("mine")).is_err(), "{path:?}");
                assert!(destination.existing(path).is_err(), "{path:?}");
            }
        }
        for path in ["../new", "link/new", "..", "link"].map(Path::new) {
            assert!(destination.create(path).is_err(), "{path:?}");
            assert!(destination.make_directory(path, 0o755).is_err(), "{path:?}");
            assert!(
                destination.finish_directory(path, Some(0o777), 0).is_err(),
                "{path:?}"
            );
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
        assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
    }

    #[test]
    fn a_directory_that_becomes_a_link_is_left_alone_even_where_it_is_known() {
        let (directory, destination) = destination();
        let inside = directory.path().join("to/inside");
        destination.make_directory(Path::new("inside"), 0o755).unwrap();
        destination.create(Path::new("inside/one")).unwrap();
        fs::rename(&inside, directory.path().join("moved")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        symlink(directory.path().join("outside"), &inside).unwrap();
        // The descriptor still is that of the directory, wherever it went.
        destination.create(Path::new("inside/two")).unwrap();
        destination.forget(Path::new("inside"));
        assert!(destination.create(Path::new("inside/three")).is_err());
        assert_eq!(fs::read_dir(directory.path().join("outside")).unwrap().count(), 0);
    }

    #[test]
    fn a_file_without_a_name_gets_one_where_nothing_is() {
        let (directory, destination) = destination();
        let to = directory.path().join("to");
        fs::write(to.join("taken"), "the user's").unwrap();
        let Some(mut file) = destination.create_unnamed(Path::new("name")).unwrap() else {
            eprintln!("skipped: the file system of {} has no O_TMPFILE", to.display());
            return;
        };
        file.write_all(b"bytes").unwrap();
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
        let refused = destination.name(file.as_fd(), Path::new("taken")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(destination.name(file.as_fd(), Path::new("../outside")).is_err());
        assert!(destination.name(file.as_fd(), Path::new("name")).unwrap());
        assert_eq!(fs::read(to.join("name")).unwrap(), b"bytes");
        assert_eq!(fs::read(to.join("taken")).unwrap(), b"the user's");
        assert!(destination.create_unnamed(Path::new("../name")).is_err());
    }

    #[test]
    fn a_pipe_or_directory_in_the_place_of_a_file_is_an_error_and_nobody_waits() {
        let (directory, destination) = destination();
        rustix::fs::mkfifoat(CWD, directory.path().join("to/pipe"), Mode::from_raw_mode(0o600)).unwrap();
        destination.make_directory(Path::new("directory"), 0o755).unwrap();
        for path in ["pipe", "directory"].map(Path::new) {
            assert!(destination.read(path).is_err());
            assert!(destination.write(path).is_err());
            assert!(destination.create(path).is_err());
        }
    }
}
