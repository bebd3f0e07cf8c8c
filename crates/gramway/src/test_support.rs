//! Help for unit tests: throw-away state directories and what lies in them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

use crate::state::StateDirectory;

/// A state directory that does not exist yet, in a directory that is removed with the guard.
pub(crate) fn state_directory() -> (TempDir, StateDirectory) {
    let guard = tempfile::tempdir().unwrap();
    let state = StateDirectory::locate(Some(&guard.path().join("state")), |_| None).unwrap();
    (guard, state)
}

/// The permission bits of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o777
}

/// All files of a directory with their contents.
pub(crate) fn listing(path: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(path)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}
