//! The directory of the files of changes, and the lock that keeps processes from each other there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};

use super::record::Record;
use super::trust;
use crate::error::{Explain, HostError};
use crate::limits::{UNDO_LOCK_TIME, UNDO_POLL};

/// The directory of such files, locked against others while this lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory where there is none, for its owner alone, and locks it.
    pub(super) fn make(path: &Path) -> Result<Self, HostError> {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(path)
            .explain(|| format!("make the directory {}", path.display()))?;
        Self::lock(path)
    }

    /// Locks the directory, in which nobody else may write.
    pub(super) fn lock(path: &Path) -> Result<Self, HostError> {
        trust::check_directory(path)
            .explain(|| format!("obey the lists of changes in {}", path.display()))?;
        let file = path.join("undo.lock");
        let lock = || {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let lock = options.open(&file)?;
            let deadline = Instant::now() + UNDO_LOCK_TIME;
            loop {
                match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) => return Ok(lock),
                    Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                        thread::sleep(UNDO_POLL)
                    }
                    Err(error) => return Err(io::Error::from(error)),
                }
            }
        };
        Ok(Self {
            _lock: lock().explain(|| format!("lock {}", file.display()))?,
            path: path.to_owned(),
        })
    }

    /// The files of changes, in the order of their names.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("undo-") && name.ends_with(".json")
        });
        files.sort_unstable();
        files
    }

    /// What living processes hold in this network, other than by the file `own`.
    pub(super) fn others(&self, own: &Path) -> Vec<Record> {
        let files = self.files().into_iter().filter(|file| file != own);
        files
            .filter_map(|file| Record::load(&file).ok())
            .filter(|record| record.holder.is_of_this_network() && record.holder.is_alive())
            .collect()
    }
}
