//! Small files get their names before the disk has their bytes: what says so, should the power fail before it has
//! (FILE-46), is a marker in the destination, and what an earlier power cut has left there is in doubt.
//!
//! Each transfer holds a lock on the marker from its first small file to its end, shared with other transfers into the
//! same destination. Whichever is the last to end, its disk having everything, removes the marker.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use files_proto::doubt::{MARKER_BYTES_MAX, Marker, Span};
use files_proto::journal::BootId;
use files_proto::limits::CHUNK_BYTES;
use files_proto::name::MARKER_NAME;
use rustix::fs::{
    FlockOperation, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fchmod, flock, fsync, futimens,
};
use rustix::io::{Errno, retry_on_intr};

use super::elsewhere::is_ours;
use crate::destination::{Destination, Kind, changed_of};
use crate::limits::{BOOT_NS, DOUBT_ENTRIES_MAX, DOUBT_TIME_MAX, MARKER_TRIES_MAX, TURN};
use crate::part::busy;
use crate::processor::{boot_id, booted_ns, tick_ns};
use crate::progress::Progress;

/// Of a transfer.
pub(super) struct Doubt {
    boot: BootId,
    began_ns: i64,
    /// When files were changed of whose bytes the disk may have none.
    span: Option<Span>,
    /// Something in doubt was offered again.
    has_met: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether a small file was about to get its name.
    is_begun: bool,
    /// The marker then; `None` where there can be none.
    marker: Option<File>,
}

impl Doubt {
    /// What the marker of a destination says.
    pub(super) fn read(destination: Option<&Destination>) -> Self {
        let boot = boot_id();
        let marker = destination.map_or_else(Marker::default, read);
        let began_ns = marker.over_by(boot, tick_ns(), booted_ns().saturating_add(BOOT_NS));
        Self {
            boot,
            began_ns,
            span: marker.doubted(boot, began_ns),
            has_met: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what was changed then is in doubt.
    pub(super) fn has(&self, changed_ns: i64) -> bool {
        let has = self.span.is_some_and(|span| span.has(changed_ns));
        if has {
            self.has_met.store(true, Ordering::Relaxed);
        }
        has
    }

    /// Whether anything may be.
    pub(super) fn is_any(&self) -> bool {
        self.span.is_some()
    }

    /// A small file is about to get its name: the disk has a marker that says so before the first one does.
    pub(super) fn begin(&self, destination: &Destination) -> io::Result<()> {
        let mut state = self.state();
        if !state.is_begun {
            state.marker = self.mark(destination)?;
            state.is_begun = true;
        }
        Ok(())
    }

    /// `None` where what has the name is no file, or another user's.
    fn mark(&self, destination: &Destination) -> io::Result<Option<File>> {
        let path = Path::new(MARKER_NAME);
        for _ in 0..MARKER_TRIES_MAX {
            let file = match destination.create(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => destination.write(path),
                created => created.inspect(|file| {
                    // Other users who receive here are to know. It may be a file system without modes.
                    let _ = fchmod(file, Mode::from_raw_mode(0o644));
                }),
            };
            let file = match file {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if is_of_everything(&error) => return Err(error),
                Err(_) => return Ok(None),
                Ok(file) => file,
            };
            if !lock(&file, FlockOperation::NonBlockingLockShared) {
                // It is being removed.
                thread::sleep(TURN);
                continue;
            }
            if !destination.has_name(&file, path)? {
                continue;
            }
            // Before it is read: where another transfer begins at the same time, and has not written yet, what that one
            // stores is changed later than this.
            futimens(&file, &NOW)?;
            let changed_ns = changed_of(&file)?;
            write(&file, &decoded(&file).begin(self.boot, self.began_ns, changed_ns))?;
            file.sync_all()?;
            synced(fsync(destination.directory(Path::new(""))?))?;
            return Ok(Some(file));
        }
        Err(busy())
    }

    /// The disk has everything of this transfer and of earlier ones of this boot: the marker goes, unless another
    /// transfer needs it, or something in doubt is left that nobody has offered again.
    pub(super) fn end(&self, destination: &Destination, progress: &Progress) {
        let path = Path::new(MARKER_NAME);
        let file = match self.state().marker.take() {
            Some(file) => file,
            None => match destination.write(path) {
                Ok(file) => file,
                Err(_) => return,
            },
        };
        let before = decoded(&file);
        // Where nothing changed, what was left then is left now.
        let is_sought = self.has_met.load(Ordering::Relaxed) || before.is_of_other(self.boot);
        let is_left = |span| !is_sought || is_left(destination, span, progress, DOUBT_ENTRIES_MAX);
        let marker = before.end(self.boot, self.began_ns, is_left);
        let is_alone = lock(&file, FlockOperation::NonBlockingLockExclusive);
        if !is_alone || !destination.has_name(&file, path).unwrap_or(false) || decoded(&file) != before {
            return;
        }
        // What fails here leaves a marker that says too much.
        let _ = match marker {
            Some(marker) => write(&file, &marker),
            None => destination.remove(path),
        };
    }
}

const NOW: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    },
    last_modification: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    },
};

/// Whether it is locked; on a file system without locks there is no telling.
fn lock(file: &File, operation: FlockOperation) -> bool {
    retry_on_intr(|| flock(file, operation)) != Err(Errno::WOULDBLOCK)
}

/// What a small file would fail by as well.
fn is_of_everything(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        matches!(
            errno,
            Errno::NOSPC | Errno::DQUOT | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::IO
        )
    })
}

/// Some file systems do not know what it is to sync a directory (9P, vboxsf): they have no names apart from files.
fn synced(directory: Result<(), Errno>) -> io::Result<()> {
    match directory {
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn read(destination: &Destination) -> Marker {
    let file = destination.read(Path::new(MARKER_NAME));
    file.map_or_else(|_| Marker::default(), |file| decoded(&file))
}

fn decoded(file: &File) -> Marker {
    let mut bytes = [0; MARKER_BYTES_MAX];
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    Marker::decode(&bytes[..length])
}

/// In place, because the lock is on the file: it is shorter than what a disk writes at once.
fn write(file: &File, marker: &Marker) -> io::Result<()> {
    let bytes = marker.encode();
    file.write_all_at(&bytes, 0)?;
    file.set_len(bytes.len() as u64)
}

/// Whether a file is in doubt still, as far as these bounds let it be found out.
fn is_left(destination: &Destination, span: Span, progress: &Progress, entries_max: usize) -> bool {
    let began = Instant::now();
    let mut directories = VecDeque::from([PathBuf::new()]);
    let mut entries = 0;
    while let Some(directory) = directories.pop_front() {
        let Ok(list) = destination.list(&directory) else {
            // What cannot be read may have anything in it.
            return true;
        };
        for (name, existing) in list {
            entries += 1;
            if entries > entries_max || began.elapsed() > DOUBT_TIME_MAX || progress.is_cancelled() {
                return true;
            }
            let path = directory.join(&name);
            match existing.kind {
                Kind::Directory => directories.push_back(path),
                Kind::File => {
                    let may_be = existing.size <= CHUNK_BYTES && span.has(existing.changed);
                    if may_be && !is_ours(&path) {
                        return true;
                    }
                }
                _ => {}
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const BEFORE: BootId = [7; 16];

    fn destination() -> (tempfile::TempDir, Destination) {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        (directory, destination)
    }

    /// As another start of the machine finds it.
    fn reboot(directory: &tempfile::TempDir) {
        let since_ns = changed_of(&File::open(directory.path().join("old")).unwrap()).unwrap();
        while tick_ns() <= since_ns {
            thread::yield_now();
        }
        let marker = Marker::default().begin(BEFORE, since_ns, since_ns);
        fs::write(directory.path().join(MARKER_NAME), marker.encode()).unwrap();
    }

    /// FILE-46.
    #[test]
    fn the_marker_is_there_from_the_first_small_file_until_the_last_of_several_transfers_has_ended() {
        let (directory, destination) = destination();
        let marker = directory.path().join(MARKER_NAME);
        let [first, second] = [(); 2].map(|()| Doubt::read(Some(&destination)));
        let progress = Progress::default();
        assert!(!marker.exists());
        for doubt in [&first, &second, &first] {
            doubt.begin(&destination).unwrap();
            assert!(marker.exists());
        }
        assert_eq!(fs::metadata(&marker).unwrap().len(), 30);
        first.end(&destination, &progress);
        assert!(marker.exists(), "the second one's files may not be on the disk");
        second.end(&destination, &progress);
        assert!(!marker.exists());
        // Killed.
        let third = Doubt::read(Some(&destination));
        third.begin(&destination).unwrap();
        drop(third);
        // One that stores nothing has the disk take everything as well.
        Doubt::read(Some(&destination)).end(&destination, &progress);
        assert!(!marker.exists());
    }

    /// FILE-46.
    #[test]
    fn after_another_boot_what_was_changed_since_is_in_doubt_until_it_is_changed_again() {
        let (directory, destination) = destination();
        fs::write(directory.path().join("old"), "old").unwrap();
        reboot(&directory);
        let doubt = Doubt::read(Some(&destination));
        let changed = |name: &str| destination.existing(Path::new(name)).unwrap().unwrap().changed;
        assert!(doubt.has(changed("old")));
        doubt.begin(&destination).unwrap();
        doubt.end(&destination, &Progress::default());
        // Nobody has offered it.
        assert!(Doubt::read(Some(&destination)).has(changed("old")));
        destination.confirm(Path::new("old")).unwrap();
        assert!(!doubt.has(changed("old")));
        doubt.end(&destination, &Progress::default());
        assert!(!directory.path().join(MARKER_NAME).exists());
    }

    #[test]
    fn a_file_system_that_syncs_no_directories_takes_small_files() {
        for without in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
            assert!(synced(Err(without)).is_ok());
        }
        assert!(synced(Ok(())).is_ok());
        assert!(synced(Err(Errno::IO)).is_err(), "a disk that fails");
    }

    /// Who receives as another user later on has to know.
    #[test]
    fn every_user_may_read_a_marker() {
        let (directory, destination) = destination();
        Doubt::read(Some(&destination)).begin(&destination).unwrap();
        let marker = fs::metadata(directory.path().join(MARKER_NAME)).unwrap();
        assert_eq!(marker.permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn what_is_in_doubt_is_looked_for_within_bounds_and_what_is_not_seen_may_be_left() {
        let (directory, destination) = destination();
        fs::create_dir(directory.path().join("deep")).unwrap();
        fs::write(directory.path().join("old"), "old").unwrap();
        reboot(&directory);
        let span = Doubt::read(Some(&destination)).span.unwrap();
        let progress = Progress::default();
        let left = |entries_max| is_left(&destination, span, &progress, entries_max);
        assert!(left(9));
        fs::rename(
            directory.path().join("old"),
            directory.path().join("deep/.x.gramway-part"),
        )
        .unwrap();
        let large = File::create(directory.path().join("deep/large")).unwrap();
        large.set_len(CHUNK_BYTES + 1).unwrap();
        // The marker, the directory, and both in it.
        assert!(!left(4));
        assert!(left(3));
    }
}
