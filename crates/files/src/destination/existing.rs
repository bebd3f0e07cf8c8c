//! What is found at a path of a destination, and what tells one file from all others.

use std::fs::File;
use std::io;

use rustix::fs::{FileType, Stat, fstat};

/// What is at a path already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Existing {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
    /// When anything of it was changed, by the clock of the file system.
    pub(crate) changed: i64,
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
        Self {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            mode: stat.st_mode & 0o7777,
            identity: (stat.st_nlink <= 1).then(|| identity(stat)),
        }
    }
}

fn nanoseconds(seconds: i64, rest: u64) -> i64 {
    let rest = i64::try_from(rest).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// When anything of an open file was changed.
pub(crate) fn changed_of(file: &File) -> io::Result<i64> {
    let stat = fstat(file)?;
    Ok(nanoseconds(stat.st_ctime, stat.st_ctime_nsec))
}

/// Inodes are numbered on each device.
fn identity(stat: &Stat) -> u64 {
    stat.st_dev.rotate_left(40) ^ stat.st_ino
}

/// What tells an open file from all others.
pub(crate) fn identity_of(file: &File) -> Option<u64> {
    fstat(file).ok().map(|stat| identity(&stat))
}
