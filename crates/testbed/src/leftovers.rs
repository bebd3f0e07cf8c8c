//! What processes left because they were killed: namespaces, control groups and directories carry their owner's process
//! ID in their names, `gramway-bed-PROCESS-NUMBER`.

use std::path::{Path, PathBuf};

use crate::{control_group, directory, namespace};

/// How the names of all namespaces, control groups and directories begin. Nobody else's do: what they name is killed
/// and removed.
const PREFIX: &str = "gramway-bed-";

/// How the names of all that belongs to a process begin.
pub(crate) fn prefix(process: u32) -> String {
    format!("{PREFIX}{process}-")
}

/// The process ID in a name that [`prefix`] and a number make.
fn owner(name: &str) -> Option<u32> {
    let (process, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    process.parse().ok()
}

/// Process IDs of owners that are gone while their namespaces or control groups are not.
#[must_use]
pub fn abandoned() -> Vec<u32> {
    let groups = control_group::root();
    let mut owners: Vec<u32> = names_in(Path::new(namespace::DIRECTORY))
        .chain(groups.iter().flat_map(|root| names_in(root)))
        .filter_map(|name| owner(&name))
        .filter(|process| !Path::new("/proc").join(process.to_string()).exists())
        .collect();
    owners.sort_unstable();
    owners.dedup();
    owners
}

/// Removes all namespaces and control groups, with the processes inside, and all directories of the process with this
/// ID.
pub fn remove(process: u32) {
    for path in control_groups_of(process) {
        control_group::remove(&path);
    }
    namespaces_of(process).for_each(|name| namespace::remove(&name));
    for path in directories_of(process) {
        // What can't be removed lies where the system removes it when it starts.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// The namespaces of the process with this ID.
pub fn namespaces_of(process: u32) -> impl Iterator<Item = String> {
    names_in(Path::new(namespace::DIRECTORY)).filter(move |name| owner(name) == Some(process))
}

/// The control groups of the process with this ID.
pub fn control_groups_of(process: u32) -> impl Iterator<Item = PathBuf> {
    let root = control_group::root();
    root.into_iter().flat_map(move |root| {
        let names = names_in(&root).filter(move |name| owner(name) == Some(process));
        names.map(move |name| root.join(name))
    })
}

/// The directories of the process with this ID.
pub fn directories_of(process: u32) -> impl Iterator<Item = PathBuf> {
    let parents = [std::env::temp_dir(), PathBuf::from(directory::MEMORY)];
    parents.into_iter().flat_map(move |parent| {
        let names = names_in(&parent).filter(move |name| owner(name) == Some(process));
        names.map(move |name| parent.join(name))
    })
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_own_making_have_an_owner() {
        assert_eq!(owner(&format!("{}7", prefix(42))), Some(42));
        for foreign in [
            "gw-1-lan",
            "gramway-bed-42",
            "gramway-bed-42-lan",
            "gramway-bed-x-7",
            "gramway",
        ] {
            assert_eq!(owner(foreign), None, "{foreign}");
        }
    }
}
