//! Temporary directories of tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// A fresh directory, removed on drop; after a panic it stays, for the output of programs in it.
pub struct TestDirectory {
    path: PathBuf,
}

impl TestDirectory {
    /// Makes an empty directory.
    ///
    /// # Panics
    /// When the system's temporary directory cannot be written.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default that writes to disk would surprise"
    )]
    pub fn new() -> Self {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gramway-test-{}-{number}", std::process::id()));
        // Left behind by an earlier process with the same number, if at all.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
        Self { path }
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
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("files of the failed test: {}", self.path.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
