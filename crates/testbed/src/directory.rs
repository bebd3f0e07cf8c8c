//! Private directories.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, leftovers};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory that only its owner may enter, removed on drop.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    stays_after_panic: bool,
}

/// Where Linux has a file system in memory (tmpfs).
pub(crate) const MEMORY: &str = "/dev/shm";

impl Directory {
    /// Makes an empty one.
    ///
    /// # Errors
    /// When the system's temporary directory refuses it.
    pub fn create() -> Result<Self, Error> {
        Self::create_below(&std::env::temp_dir())
    }

    /// The same in memory: no disk is behind it.
    ///
    /// # Errors
    /// Where the system has no file system in memory at its usual place.
    pub fn create_in_memory() -> Result<Self, Error> {
        Self::create_below(Path::new(MEMORY))
    }

    fn create_below(parent: &Path) -> Result<Self, Error> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", leftovers::prefix(std::process::id()));
        let path = parent.join(name);
        // Left behind by an earlier process with the same ID, if at all.
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(Error::io(format!("create {}", path.display())))?;
        Ok(Self {
            path,
            stays_after_panic: false,
        })
    }

    /// The same for a test: after a panic it stays, for the files of the programs in it.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_for_test() -> Result<Self, Error> {
        let mut directory = Self::create()?;
        directory.stays_after_panic = true;
        Ok(directory)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a new file into it that only its owner may read.
    ///
    /// # Errors
    /// When the system refuses it.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.join(name);
        let open = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path);
        let written = open.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(Error::io(format!("write {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.stays_after_panic && std::thread::panicking() {
            eprintln!("files left for a look: {}", self.path.display());
        } else {
            // What can't be removed lies in the temporary directory, which the system empties.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
