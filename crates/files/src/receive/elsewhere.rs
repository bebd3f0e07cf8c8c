//! Files that lie elsewhere in the destination and may be those that are offered: moved or renamed at either end, they
//! have their size and time. What of them is what, their chunks' addresses tell (FILE-29).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Instant;

use files_proto::limits::CHUNK_BYTES;
use files_proto::plan::{TIME_STEP_NS_MAX, same_time};

use crate::destination::{Destination, Kind};
use crate::limits::{ELSEWHERE_ENTRIES_MAX, ELSEWHERE_TIME_MAX};

/// Files of the destination by size and time, looked for once, when the first one is asked for.
#[derive(Default)]
pub(super) struct Elsewhere(Option<Files>);

/// Of each size, times and paths.
type Files = HashMap<u64, BTreeMap<i64, PathBuf>>;

impl Elsewhere {
    /// A file with this size and time.
    pub(super) fn find(&mut self, destination: &Destination, size: u64, modified_ns: i64) -> Option<PathBuf> {
        if size <= CHUNK_BYTES {
            return None;
        }
        let files = self
            .0
            .get_or_insert_with(|| look(destination, ELSEWHERE_ENTRIES_MAX, Instant::now()));
        let of_size = files.get(&size)?;
        let near =
            modified_ns.saturating_sub(TIME_STEP_NS_MAX)..=modified_ns.saturating_add(TIME_STEP_NS_MAX);
        let is_same = |time: &i64| same_time(*time, modified_ns);
        let found = of_size.get(&modified_ns);
        let found = found.or_else(|| Some(of_size.range(near).find(|(time, _)| is_same(time))?.1));
        found.cloned()
    }
}

/// Files of more than a chunk, breadth first, among so many entries.
fn look(destination: &Destination, entries_max: usize, began: Instant) -> Files {
    let mut files = Files::new();
    let mut directories = VecDeque::from([PathBuf::new()]);
    let mut entries = 0;
    while let Some(directory) = directories.pop_front() {
        // One that cannot be read has nothing for us.
        let Ok(list) = destination.list(&directory) else {
            continue;
        };
        for (name, existing) in list {
            entries += 1;
            if entries > entries_max || began.elapsed() > ELSEWHERE_TIME_MAX {
                return files;
            }
            let path = directory.join(&name);
            match existing.kind {
                Kind::Directory => directories.push_back(path),
                Kind::File if existing.size > CHUNK_BYTES && !is_ours(&path) => {
                    let of_size = files.entry(existing.size).or_default();
                    of_size.entry(existing.modified).or_insert(path);
                }
                _ => {}
            }
        }
    }
    files
}

/// Whether it is a file that is not complete, or the journal of one.
pub(super) fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    files_proto::name::check(name.as_encoded_bytes()).is_err()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_found_by_size_and_time_inside_the_destination_and_within_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let (to, outside) = (directory.path().join("to"), directory.path().join("outside"));
        fs::create_dir_all(to.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        let make = |path: PathBuf, size: u64| {
            let file = fs::File::create(path).unwrap();
            file.set_len(size).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(size + 7))
                .unwrap();
        };
        make(to.join("a/b/large"), 5 << 20);
        make(to.join("small"), 1_000);
        make(to.join(".x.gramway-part"), 6 << 20);
        make(outside.join("other"), 7 << 20);
        symlink(&outside, to.join("link")).unwrap();
        let destination = Destination::open(&to).unwrap();
        let find = |size: u64, time: i64| Elsewhere::default().find(&destination, size, time);
        let large = 5 << 20;
        assert_eq!(find(large, large as i64 + 7), Some(PathBuf::from("a/b/large")));
        assert_eq!(find(large, 7), None);
        // As a file system of whole seconds has it.
        let then = fs::File::open(to.join("a/b/large")).unwrap();
        then.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(9))
            .unwrap();
        assert_eq!(find(large, 9_876_543_210), Some(PathBuf::from("a/b/large")));
        for size in [1_000_u64, 6 << 20, 7 << 20] {
            assert_eq!(find(size, size as i64 + 7), None, "{size}");
        }
        // It is the sixth entry.
        for (entries_max, found) in [(5, 0), (6, 1)] {
            assert_eq!(look(&destination, entries_max, Instant::now()).len(), found);
        }
    }
}
