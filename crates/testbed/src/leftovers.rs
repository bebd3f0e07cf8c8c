//! What processes left because they were killed: namespaces and directories carry their owner's process ID in their names,
//! `gw-PROCESS-NUMBER`.

use std::path::Path;

use crate::namespace;

/// How the names of all that belongs to a process begin.
pub(crate) fn prefix(process: u32) -> String {
    format!("gw-{process}-")
}

/// Process IDs of owners that are gone while their namespaces are not.
#[must_use]
pub fn abandoned() -> Vec<u32> {
    let owner = |name: String| name.strip_prefix("gw-")?.split_once('-')?.0.parse().ok();
    let mut owners: Vec<u32> = names_in(Path::new(namespace::DIRECTORY))
        .filter_map(owner)
        .filter(|process: &u32| !Path::new("/proc").join(process.to_string()).exists())
        .collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

/// Removes all namespaces, with the processes inside, and all directories of the process with this ID.
pub fn remove(process: u32) {
    let prefix = prefix(process);
    for name in names_in(Path::new(namespace::DIRECTORY)).filter(|name| name.starts_with(&prefix)) {
        namespace::remove(&name);
    }
    let temporary = std::env::temp_dir();
    for name in names_in(&temporary).filter(|name| name.starts_with(&prefix)) {
        // What can't be removed lies in the temporary directory, which the system empties.
        let _ = std::fs::remove_dir_all(temporary.join(name));
    }
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}
