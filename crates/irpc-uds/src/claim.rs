//! A server's claim on a path: bound so that nobody is in its way and nobody's file is lost, released when it ends.
//!
//! 1. A lock file beside the path (`flock`) lets one server of this crate at a time go on. It notes which socket that
//!    server made.
//! 2. What is at the path already stays, unless it is the very socket the lock file notes and nobody listens on it.
//! 3. The socket is bound to a random name in the same directory and gets its mode and owner. Nobody can connect to it
//!    before it listens, so no moment needs a umask, which other threads would feel.
//! 4. It listens, and takes the place at the path in one step: exchanged with the dead socket, which is looked at once
//!    more before it goes, or put where nothing is.
//!
//! The end of the claim removes the socket, if it is still the one made, and the lock file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::process::{Gid, Uid};

use crate::address::{Address, SocketKind};
use crate::error::BindError;

/// First words of a lock file of ours.
const MARK: &str = "irpc-uds server, process ";

/// How to bind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindOptions {
    pub(crate) kind: SocketKind,
    pub(crate) mode: u32,
    pub(crate) owner: (Option<u32>, Option<u32>),
    pub(crate) backlog: u32,
}

/// What identifies a file: device and inode.
type FileId = (u64, u64);

fn file_id(stat: &Stat) -> FileId {
    // The types of these fields differ between systems.
    #[allow(clippy::unnecessary_cast, reason = "narrower or signed on some systems")]
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Claim {
    place: Place,
    made: FileId,
    lock: Lock,
}

/// A name in a directory that stays the same directory whatever happens to the path that led to it.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
}

impl Place {
    fn open(path: &Path) -> Result<Self, BindError> {
        let failed = |step, source: Errno| io_error(path, step, source);
        let name = path
            .file_name()
            .ok_or(failed("find a file name in the path", Errno::INVAL))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let flags = flags | OFlags::PATH;
        let directory = rustix::fs::openat(CWD, parent, flags, Mode::empty())
            .map_err(|error| failed("open its directory", error))?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            name: name.to_owned(),
        })
    }

    fn stat(&self, name: &OsStr) -> Result<Option<Stat>, Errno> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())
    }

    fn error(&self, step: &'static str) -> impl Fn(Errno) -> BindError {
        let path = self.path.clone();
        move |source| io_error(&path, step, source)
    }

    fn foreign(&self, what: &'static str) -> BindError {
        BindError::Foreign {
            path: self.path.clone(),
            what,
        }
    }

    /// Binds `socket` to `name` here. The address goes by the directory's descriptor where it can: a path of full
    /// length leaves no room for a longer name beside it.
    fn bind(&self, socket: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        if cfg!(any(target_os = "linux", target_os = "android")) {
            let directory = PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
            let address = SocketAddrUnix::new(directory.join(name))?;
            match rustix::net::bind(socket, &address) {
                // No /proc here.
                Err(Errno::NOENT) => {}
                done => return done,
            }
        }
        rustix::net::bind(socket, &SocketAddrUnix::new(self.path.with_file_name(name))?)
    }
}

fn io_error(path: &Path, step: &'static str, source: impl Into<io::Error>) -> BindError {
    BindError::Io {
        path: path.to_owned(),
        step,
        source: source.into(),
    }
}

/// The lock file, held.
#[derive(Debug)]
struct Lock {
    file: File,
    name: OsString,
    /// The socket that the last holder made and did not remove.
    noted: Option<FileId>,
}

impl Lock {
    fn acquire(place: &Place) -> Result<Self, BindError> {
        let mut name = place.name.clone();
        name.push(".lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            let lock = rustix::fs::openat(&place.directory, &name, flags, Mode::RUSR | Mode::WUSR)
                .map_err(place.error("open its lock file"))?;
            let stat = rustix::fs::fstat(&lock).map_err(place.error("look at its lock file"))?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(place.foreign("a lock file that is no regular file"));
            }
            let mut file = File::from(lock);
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            let mut text = String::new();
            let read = (&mut file).take(256).read_to_string(&mut text);
            let ours = text.is_empty() || text.starts_with(MARK);
            match locked {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let owner = text
                        .strip_prefix(MARK)
                        .and_then(|rest| rest.split([',', '\n']).next());
                    return Err(BindError::InUse {
                        path: place.path.clone(),
                        owner: owner.unwrap_or("unknown").to_owned(),
                    });
                }
                Err(error) => return Err(place.error("lock its lock file")(error)),
            }
            if read.is_err() || !ours {
                return Err(place.foreign("a lock file"));
            }
            // A server that ended between our opening and locking has removed this file.
            let current = place.stat(&name).map_err(place.error("look at its lock file"))?;
            if current.is_some_and(|current| file_id(&current) == file_id(&stat)) {
                let noted = parse_note(&text);
                return Ok(Self { file, name, noted });
            }
        }
    }

    fn note(&mut self, made: FileId) -> io::Result<()> {
        let text = format!("{MARK}{}, socket {}:{}\n", std::process::id(), made.0, made.1);
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }
}

/// The socket noted in a lock file.
fn parse_note(text: &str) -> Option<FileId> {
    let (_, socket) = text.strip_prefix(MARK)?.trim_end().split_once(", socket ")?;
    let (device, inode) = socket.split_once(':')?;
    Some((device.parse().ok()?, inode.parse().ok()?))
}

/// Binds a listening socket at `path`.
pub(crate) fn bind(path: &Path, options: BindOptions) -> Result<(OwnedFd, Claim), BindError> {
    let address = Address::from(path)
        .checked()
        .map_err(|bytes| BindError::PathTooLong {
            path: path.to_owned(),
            bytes,
        })?;
    let place = Place::open(path)?;
    let mut lock = Lock::acquire(&place)?;
    let stale = look(&place, &address, &lock, options.kind)?;

    let socket = options
        .kind
        .socket()
        .map_err(|source| io_error(path, "make a socket", source))?;
    let temporary = OsString::from(format!(".uds-{:08x}", rand::random::<u32>()));
    place
        .bind(&socket, &temporary)
        .map_err(place.error("make the socket file"))?;
    let settled = settle(&place, &socket, &temporary, stale, options, &mut lock);
    if settled.is_err() {
        place.remove(&temporary).ok();
    }
    let made = settled?;
    Ok((socket, Claim { place, made, lock }))
}

/// What is at the path: nothing, or a dead socket of ours.
fn look(
    place: &Place,
    address: &SocketAddrUnix,
    lock: &Lock,
    kind: SocketKind,
) -> Result<Option<FileId>, BindError> {
    let Some(stat) = place.stat(&place.name).map_err(place.error("look at the path"))? else {
        return Ok(None);
    };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(place.foreign("a file that is no socket"));
    }
    let probe = kind
        .socket()
        .map_err(|source| io_error(&place.path, "make a socket", source))?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) if lock.noted == Some(file_id(&stat)) => Ok(Some(file_id(&stat))),
        Err(Errno::CONNREFUSED) => Err(place.foreign("a socket that nobody listens on")),
        _ => Err(place.foreign("a socket that another program listens on")),
    }
}

/// Gives the bound socket its permissions and its place.
fn settle(
    place: &Place,
    socket: &OwnedFd,
    temporary: &OsStr,
    stale: Option<FileId>,
    options: BindOptions,
    lock: &mut Lock,
) -> Result<FileId, BindError> {
    let mode = Mode::from_raw_mode((options.mode & 0o777) as _);
    rustix::fs::chmodat(&place.directory, temporary, mode, AtFlags::empty())
        .map_err(place.error("set the mode of the socket"))?;
    if options.owner != (None, None) {
        let uid = options.owner.0.map(Uid::from_raw);
        let gid = options.owner.1.map(Gid::from_raw);
        rustix::fs::chownat(&place.directory, temporary, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(place.error("set the owner of the socket"))?;
    }
    let made = place
        .stat(temporary)
        .map_err(place.error("look at the new socket"))?;
    let made = file_id(&made.ok_or_else(|| place.error("find the new socket")(Errno::NOENT))?);
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    rustix::net::listen(socket, backlog).map_err(place.error("listen"))?;
    install(place, temporary, stale)?;
    if let Err(source) = lock.note(made) {
        place.remove(&place.name).ok();
        return Err(io_error(&place.path, "write its lock file", source));
    }
    Ok(made)
}

/// Moves `temporary` to its place, where there is nothing or the socket `stale`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn install(place: &Place, temporary: &OsStr, stale: Option<FileId>) -> Result<(), BindError> {
    use rustix::fs::RenameFlags;
    let rename =
        |flags| rustix::fs::renameat_with(&place.directory, temporary, &place.directory, &place.name, flags);
    let Some(stale) = stale else {
        return match rename(RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => Err(place.foreign("a file that has just appeared")),
            // This file system can't; the path was free a moment ago.
            Err(Errno::INVAL) => {
                rename(RenameFlags::empty()).map_err(place.error("move the socket to its path"))
            }
            done => done.map_err(place.error("move the socket to its path")),
        };
    };
    match rename(RenameFlags::EXCHANGE) {
        Err(Errno::INVAL) => {
            return rename(RenameFlags::empty()).map_err(place.error("replace the dead socket"));
        }
        done => done.map_err(place.error("replace the dead socket"))?,
    }
    let replaced = place
        .stat(temporary)
        .map_err(place.error("look at the dead socket"))?;
    if replaced.is_some_and(|replaced| file_id(&replaced) == stale) {
        return place
            .remove(temporary)
            .map_err(place.error("remove the dead socket"));
    }
    rename(RenameFlags::EXCHANGE).map_err(place.error("put a foreign file back"))?;
    Err(place.foreign("a file that has just appeared"))
}

/// Moves `temporary` to its place, where there was nothing or a dead socket of ours a moment ago.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn install(place: &Place, temporary: &OsStr, _: Option<FileId>) -> Result<(), BindError> {
    rustix::fs::renameat(&place.directory, temporary, &place.directory, &place.name)
        .map_err(place.error("move the socket to its path"))
}

impl Drop for Claim {
    fn drop(&mut self) {
        let is = |name: &OsStr, id: FileId| matches!(self.place.stat(name), Ok(Some(stat)) if file_id(&stat) == id);
        if is(&self.place.name, self.made) {
            self.place.remove(&self.place.name).ok();
        }
        if let Ok(stat) = rustix::fs::fstat(&self.lock.file)
            && is(&self.lock.name, file_id(&stat))
        {
            self.place.remove(&self.lock.name).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: BindOptions = BindOptions {
        kind: SocketKind::Stream,
        mode: 0o640,
        owner: (None, None),
        backlog: 8,
    };

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = std::fs::read_dir(directory)
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_claim_has_its_mode_shuts_others_out_and_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let (_socket, claim) = bind(&path, OPTIONS).expect("free");
        let mode = rustix::fs::stat(&path).expect("there").st_mode & 0o777;
        assert_eq!(mode, 0o640);
        let error = bind(&path, OPTIONS).expect_err("taken");
        let own = std::process::id().to_string();
        assert!(
            matches!(&error, BindError::InUse { owner, .. } if *owner == own),
            "{error}"
        );
        assert_eq!(names(directory.path()), ["s", "s.lock"]);
        drop(claim);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_dead_socket_of_ours_is_replaced_and_a_foreign_one_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let (socket, mut claim) = bind(&path, OPTIONS).expect("free");
        // As after a kill: the descriptors are closed, the files stay.
        claim.made = (0, 0);
        claim.lock.name = "nothing".into();
        drop((socket, claim));
        assert_eq!(names(directory.path()), ["s", "s.lock"]);
        let (_socket, claim) = bind(&path, OPTIONS).expect("the dead one is ours");
        drop(claim);

        let foreign = std::os::unix::net::UnixListener::bind(&path).expect("free");
        let error = bind(&path, OPTIONS).expect_err("alive");
        assert!(error.to_string().contains("another program listens"), "{error}");
        drop(foreign);
        let error = bind(&path, OPTIONS).expect_err("dead, but not ours");
        assert!(error.to_string().contains("nobody listens"), "{error}");
        std::fs::remove_file(&path).expect("there");
        std::fs::write(&path, b"precious").expect("writable");
        let error = bind(&path, OPTIONS).expect_err("a file");
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
    }

    #[test]
    fn a_lock_file_of_somebody_else_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        std::fs::write(directory.path().join("s.lock"), b"diary").expect("writable");
        assert!(matches!(bind(&path, OPTIONS), Err(BindError::Foreign { .. })));
        assert_eq!(names(directory.path()), ["s.lock"]);
    }

    #[test]
    fn a_replaced_socket_file_survives_the_end_of_the_claim() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("s");
        let (_socket, claim) = bind(&path, OPTIONS).expect("free");
        std::fs::remove_file(&path).expect("there");
        std::fs::write(&path, b"somebody else's").expect("writable");
        drop(claim);
        assert_eq!(names(directory.path()), ["s"]);
    }

    #[test]
    fn a_path_of_full_length_binds_and_a_longer_one_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let room = crate::limits::PATH_BYTES_MAX - directory.path().as_os_str().len() - 1;
        let path = directory.path().join("n".repeat(room));
        let (_socket, claim) = bind(&path, OPTIONS).expect("just short enough");
        std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        drop(claim);
        let error = bind(&directory.path().join("n".repeat(room + 1)), OPTIONS).expect_err("too long");
        assert!(
            matches!(error, BindError::PathTooLong { bytes, .. } if bytes == crate::limits::PATH_BYTES_MAX + 1)
        );
    }
}
