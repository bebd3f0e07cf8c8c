//! Files of the state directory, written beside their place first: whoever reads one, also after a kill, finds it whole
//! or as it was. A power cut may damage it, since no transfer waits for the disk; each has a hash, by which that is
//! found.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files that this process has written: several transfers may write one place at once.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Puts `bytes` at `path`, which nobody but this user reads.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options
        .open(&beside)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
