//! The directory that a transfer writes to, and nothing outside of it: every name is opened below its descriptor, the
//! kernel follows no symbolic link on the way (`openat2`), and the last component is never followed either.
//!
//! Paths are relative and consist of names that `files-proto` has made safe; what is wrong with them all the same is
//! an error of the kernel.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use files_proto::Attribute;
use files_proto::plan::same_time;
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, StatxAttributes,
    StatxFlags, Timespec, Timestamps, accessat, fchmod, fstat, futimens, linkat, mkdirat, openat2,
    readlinkat, renameat, renameat_with, statat, statx, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::attributes;
use crate::file_systems::FileSystems;
use crate::limits::DIRECTORIES_OPEN_MAX;
use crate::naming;
use crate::processor::umask;
use crate::room::Room;

/// What is at a path already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// What tells it from all other files; `None` where it may have several names.
    pub(crate) identity: Option<u64>,
}

/// Of something in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Other,
}

impl Existing {
    pub(crate) fn new(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::Other,
        };
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Self {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: stat
                .st_mtime
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds),
            mode: stat.st_mode & 0o7777,
            identity: (stat.st_nlink <= 1).then(|| identity(stat)),
        }
    }
}

/// Inodes are numbered on each device.
fn identity(stat: &Stat) -> u64 {
    stat.st_dev.rotate_left(40) ^ stat.st_ino
}

/// What tells an open file from all others.
pub(crate) fn identity_of(file: &File) -> Option<u64> {
    fstat(file).ok().map(|stat| identity(&stat))
}

/// Mode of a directory that is not done, where its own would keep its owner from filling it (FILE-38). The sticky bit
/// is of no use where nobody else may write, so that directories of users do not have this mode.
const UNFINISHED_MODE: u32 = 0o1700;

/// Bits that the owner of a directory needs to fill it.
const OWNER_BITS: u32 = 0o700;

/// Bits that the owner of a part needs to go on with it.
const PART_BITS: u32 = 0o600;

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
        let mode = match mode & OWNER_BITS {
            OWNER_BITS => mode & 0o777,
            _ => UNFINISHED_MODE,
        };
        match mkdirat(&directory, name, Mode::from_raw_mode(mode)) {
            Err(Errno::EXIST) => {
                let directory = match self.directory(path) {
                    // The same error as for a file; a link is another thing to people.
                    Err(_) if matches!(self.existing(path)?, Some(found) if found.kind == Kind::Symlink) => {
                        return Err(Errno::LOOP.into());
                    }
                    other => other?,
                };
                let mode = fstat(directory)?.st_mode;
                // It may have its group from the directory that it is in.
                Ok(mode & 0o5777 == UNFINISHED_MODE)
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

    /// Where a link leads.
    pub(crate) fn read_link(&self, path: &Path) -> io::Result<OsString> {
        let (directory, name) = self.parent(path)?;
        let target = readlinkat(&directory, name, Vec::new())?;
        Ok(OsString::from_vec(target.into_bytes()))
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

fn may_write(directory: &OwnedFd) -> io::Result<()> {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    Ok(accessat(directory, ".", access, AtFlags::empty())?)
}

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
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn destination() -> (tempfile::TempDir, Destination) {
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

    /// FILE-42: the directory of shared memory is a file system of its own nearly everywhere.
    #[test]
    fn what_is_mounted_below_a_destination_is_put_on_disk_as_well() {
        let (directory, destination) = destination();
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        let here = device(directory.path());
        destination.create(Path::new("file")).unwrap();
        assert_eq!(destination.file_systems.devices(), [here]);
        let Ok(mounted) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("skipped: nothing can be made in /dev/shm");
            return;
        };
        let below = |path: PathBuf| path.strip_prefix("/").unwrap().to_owned();
        let all = [device(Path::new("/")), device(mounted.path()), here];
        let knows = |destination: &Destination, devices: &[u64]| {
            let known = BTreeSet::from_iter(destination.file_systems.devices());
            assert_eq!(known, BTreeSet::from_iter(devices.iter().copied()));
        };
        let root = Destination::open(Path::new("/")).unwrap();
        let (made, part) = (
            below(mounted.path().join("made")),
            below(directory.path().join("to/part")),
        );
        root.make_directory(&made, 0o755).unwrap();
        knows(&root, &all[..2]);
        root.create(&part).unwrap();
        knows(&root, &all);
        root.sync().unwrap();
        // A directory and a file that were there, and a part that is gone on with.
        let again = Destination::open(Path::new("/")).unwrap();
        knows(&again, &all[..1]);
        again.finish_directory(&made, None, 0).unwrap();
        knows(&again, &all[..2]);
        again.adopt(&part, 0o600, 0, &[]).unwrap();
        knows(&again, &all);
        let more = Destination::open(Path::new("/")).unwrap();
        more.claim(&part).unwrap();
        knows(&more, &[all[0], all[2]]);
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
