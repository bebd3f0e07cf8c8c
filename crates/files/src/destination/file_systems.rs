//! The file systems of a destination that were written to: where others are mounted below it, what was put there is on
//! another disk, and all of them are asked before anybody is told that everything is stored (FILE-42).

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{fstat, syncfs};

use crate::limits::MOUNTS_MAX;

/// A directory of each, by its device, the one that was written to last at the end. What a disk failed to take, the
/// kernel tells of a directory that was open before.
pub(crate) struct FileSystems {
    state: Mutex<State>,
    max: usize,
    sync: fn(&OwnedFd) -> io::Result<()>,
}

#[derive(Default)]
struct State {
    kept: VecDeque<(u64, Arc<OwnedFd>)>,
    /// Of one that is not kept any more.
    failed: Option<io::Error>,
}

impl Default for FileSystems {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            max: MOUNTS_MAX,
            sync: |directory| Ok(syncfs(directory)?),
        }
    }
}

impl FileSystems {
    /// Something in this directory was made, opened to be written to, or got its name. Where there are too many, the
    /// one that was written to longest ago is put on disk at once: what is written there later is told of again.
    pub(crate) fn wrote(&self, directory: &Arc<OwnedFd>) {
        // What does not tell is that of the destination itself, as far as anybody knows.
        let Ok(stat) = fstat(directory) else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.kept.iter().rposition(|(device, _)| *device == stat.st_dev) {
            Some(place) => {
                if let Some(system) = state.kept.remove(place) {
                    state.kept.push_back(system);
                }
            }
            None => {
                if state.kept.len() >= self.max
                    && let Some((_, oldest)) = state.kept.pop_front()
                    && let Err(error) = (self.sync)(&oldest)
                {
                    state.failed.get_or_insert(error);
                }
                state.kept.push_back((stat.st_dev, Arc::clone(directory)));
            }
        }
    }

    /// Puts everything on disk that was written to them.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = state.failed.take();
        let kept: Vec<Arc<OwnedFd>> = state
            .kept
            .iter()
            .map(|(_, directory)| Arc::clone(directory))
            .collect();
        drop(state);
        kept.iter()
            .map(|directory| (self.sync)(directory))
            // All are asked, whatever one says.
            .fold(failed.map_or(Ok(()), Err), io::Result::and)
    }

    /// The devices that are kept.
    #[cfg(test)]
    fn devices(&self) -> Vec<u64> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.kept.iter().map(|(device, _)| *device).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::destination::Destination;
    use crate::destination::tests::destination;

    thread_local! {
        /// Devices that were put on disk.
        static SYNCED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    fn directory(path: &str) -> (u64, Arc<OwnedFd>) {
        let directory = OwnedFd::from(File::open(path).unwrap());
        (fstat(&directory).unwrap().st_dev, Arc::new(directory))
    }

    fn counted(max: usize, sync: fn(&OwnedFd) -> io::Result<()>) -> FileSystems {
        FileSystems {
            max,
            sync,
            ..FileSystems::default()
        }
    }

    fn count(directory: &OwnedFd) -> io::Result<()> {
        SYNCED.with_borrow_mut(|synced| synced.push(fstat(directory).unwrap().st_dev));
        Ok(())
    }

    /// FILE-42.
    #[test]
    fn each_file_system_that_was_written_to_is_asked_and_those_beyond_the_bound_at_once() {
        let (root, other, third) = (directory("/"), directory("/proc"), directory("/sys"));
        let systems = counted(2, count);
        for (_, directory) in [&root, &other, &other, &root] {
            systems.wrote(directory);
        }
        assert!(SYNCED.take().is_empty());
        systems.sync().unwrap();
        assert_eq!(SYNCED.take(), [other.0, root.0]);
        systems.wrote(&third.1);
        assert_eq!(SYNCED.take(), [other.0], "it was written to longest ago");
        systems.wrote(&other.1);
        assert_eq!(SYNCED.take(), [root.0]);
        systems.sync().unwrap();
        assert_eq!(SYNCED.take(), [third.0, other.0]);
    }

    /// FILE-42.
    #[test]
    fn one_that_fails_is_told_of_and_the_others_are_asked_all_the_same() {
        let (root, other) = (directory("/"), directory("/proc"));
        let fails = |directory: &OwnedFd| {
            count(directory)?;
            Err(rustix::io::Errno::IO.into())
        };
        let systems = counted(2, fails);
        systems.wrote(&root.1);
        systems.wrote(&other.1);
        assert!(systems.sync().is_err());
        assert_eq!(SYNCED.take(), [root.0, other.0]);
        // Also of one that is not kept.
        let systems = counted(1, |directory| match SYNCED.take().is_empty() {
            true => {
                SYNCED.set(vec![1]);
                Err(rustix::io::Errno::IO.into())
            }
            false => count(directory),
        });
        systems.wrote(&root.1);
        systems.wrote(&other.1);
        assert!(systems.sync().is_err());
        assert_eq!(SYNCED.take(), [other.0]);
    }

    /// FILE-42: the directory of shared memory is a file system of its own nearly everywhere.
    #[test]
    fn what_is_mounted_below_a_destination_is_put_on_disk_as_well() {
        let (directory, destination) = destination();
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        let here = device(directory.path());
        destination.create(Path::new("file")).unwrap();
        assert_eq!(destination.file_systems.devices(), [here]);
        let Ok(mounted) = tempfile::tempdir_in("/dev/shm") else {
            eprintln!("skipped: nothing can be made in /dev/shm");
            return;
        };
        let below = |path: PathBuf| path.strip_prefix("/").unwrap().to_owned();
        let all = [device(Path::new("/")), device(mounted.path()), here];
        let knows = |destination: &Destination, devices: &[u64]| {
            let known = BTreeSet::from_iter(destination.file_systems.devices());
            assert_eq!(known, BTreeSet::from_iter(devices.iter().copied()));
        };
        let root = Destination::open(Path::new("/")).unwrap();
        let (made, part) = (
            below(mounted.path().join("made")),
            below(directory.path().join("to/part")),
        );
        root.make_directory(&made, 0o755).unwrap();
        knows(&root, &all[..2]);
        root.create(&part).unwrap();
        knows(&root, &all);
        root.sync().unwrap();
        // A directory and a file that were there, and a part that is gone on with.
        let again = Destination::open(Path::new("/")).unwrap();
        knows(&again, &all[..1]);
        again.finish_directory(&made, None, 0).unwrap();
        knows(&again, &all[..2]);
        again.adopt(&part, 0o600, 0, &[]).unwrap();
        knows(&again, &all);
        let more = Destination::open(Path::new("/")).unwrap();
        more.claim(&part).unwrap();
        knows(&more, &[all[0], all[2]]);
    }
}
