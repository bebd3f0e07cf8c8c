//! What the file system of a directory does with names (FILE-21, FILE-22). Some take names for the same that differ in
//! case or in Unicode's composition: all of Windows', some of Apple's, those of networks, whatever FUSE brings, and of
//! Linux's own single directories. Those tell by a flag of the directory; of others one asks by making a file of a
//! name that nobody else has, and looking for it by another spelling.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use files_proto::name::{PARTIAL_SUFFIX, Rules};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, fstatfs, futimens, ioctl_getflags, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::destination::{self, Destination, Existing};
use crate::file_system_kinds;
use crate::limits::MOUNTS_MAX;

/// The flag of directories whose names are folded (`FS_CASEFOLD_FL`).
const FOLDS: u32 = 0x4000_0000;

/// What file systems that were asked do with names, by their devices.
pub(crate) type Asked = Mutex<BTreeMap<u64, Rules>>;

/// Names with which file systems were asked: several transfers may ask one at once.
static NAMES: AtomicU64 = AtomicU64::new(0);

impl Destination {
    /// What the file system of the directory at `path` does with names; `asks`: by making a file where it does not
    /// tell.
    pub(crate) fn rules(&self, path: &Path, asks: bool) -> Rules {
        let Ok(directory) = self.directory(path) else {
            return Rules::default();
        };
        let Ok(system) = fstatfs(&directory) else {
            return Rules::default();
        };
        let kind = file_system_kinds::kind(&system);
        if file_system_kinds::tells_by_flag(kind) {
            let folds = ioctl_getflags(&directory).is_ok_and(|flags| flags.bits() & FOLDS != 0);
            return Rules {
                ignores_case: folds,
                ignores_composition: folds,
                windows: false,
            };
        }
        if file_system_kinds::never_folds(kind) {
            return Rules::default();
        }
        let is_windows = file_system_kinds::is_of_windows(kind);
        let known = Rules {
            ignores_case: is_windows,
            ignores_composition: false,
            windows: is_windows,
        };
        let Some(device) = fstat(&directory).ok().map(|found| found.st_dev).filter(|_| asks) else {
            return known;
        };
        let mut answers = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = answers.get(&device) {
            return *rules;
        }
        let Some(rules) = ask(&directory, known) else {
            // Another directory of it may answer.
            return known;
        };
        if answers.len() < MOUNTS_MAX {
            answers.insert(device, rules);
        }
        rules
    }
}

/// Asks a file system of which so much is known; `None` where it lets no file be made here.
fn ask(directory: &OwnedFd, known: Rules) -> Option<Rules> {
    // A run that changes nothing leaves the directory's time as it is.
    let before = fstat(directory).map(|stat| Existing::new(&stat).modified);
    let asked = ask_by_files(directory, known);
    if let Ok(before) = before {
        // One that is another user's gets no time of ours.
        let _ = futimens(directory, &destination::times(before));
    }
    asked
}

fn ask_by_files(directory: &OwnedFd, known: Rules) -> Option<Rules> {
    let number = NAMES.fetch_add(1, Ordering::Relaxed);
    let name = |middle: &str| format!(".{}-{number}-{middle}{PARTIAL_SUFFIX}", std::process::id());
    // Of one that cannot have a name with an accent, the case is asked for alone.
    let asked = spellings(directory, &name("\u{e9}"), &name("e\u{301}"));
    let asked = asked.or_else(|_| spellings(directory, &name("e"), ""));
    let (ignores_case, ignores_composition) = asked.ok()?;
    let takes_colon = spellings(directory, &name("a:b"), "");
    Some(Rules {
        ignores_case: known.ignores_case || ignores_case,
        ignores_composition,
        // By the kernel's exFAT, by FUSE's, and by file systems that speak of bytes.
        windows: known.windows || matches!(takes_colon, Err(Errno::INVAL | Errno::NOENT | Errno::ILSEQ)),
    })
}

/// Makes a file, and looks whether its name in upper case and `other` lead to it.
fn spellings(directory: &OwnedFd, name: &str, other: &str) -> Result<(bool, bool), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    drop(openat(directory, name, flags, Mode::from_raw_mode(0o600))?);
    // FUSE may call one file by other numbers under other names; no other has such a name, however it is spelt.
    let leads = |other: &str| statat(directory, other, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let answer = (
        leads(&name.to_ascii_uppercase()),
        !other.is_empty() && leads(other),
    );
    // What cannot be removed has a name that tells what it is.
    let _ = unlinkat(directory, name, AtFlags::empty());
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// FILE-22: what folds names is in the system tests, which mount it.
    #[test]
    fn a_file_system_that_takes_every_name_for_itself_is_found_so_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        fs::create_dir(directory.path().join("inner")).unwrap();
        for path in ["", "inner", "none"] {
            assert_eq!(
                destination.rules(Path::new(path), true),
                Rules::default(),
                "{path}"
            );
        }
        let opened = destination.directory(Path::new("inner")).unwrap();
        let modified = || {
            fs::metadata(directory.path().join("inner"))
                .unwrap()
                .modified()
                .unwrap()
        };
        let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 7);
        let inner = fs::File::open(directory.path().join("inner")).unwrap();
        inner.set_modified(then).unwrap();
        assert_eq!(ask(&opened, Rules::default()), Some(Rules::default()));
        assert_eq!(modified(), then);
        let name = spellings(&opened, "name", "NAME");
        assert_eq!(name, Ok((false, false)));
        assert_eq!(spellings(&opened, "a/b", ""), Err(Errno::NOENT));
        assert_eq!(fs::read_dir(directory.path().join("inner")).unwrap().count(), 0);
        // Of one in which no file can be made, nothing is known.
        fs::remove_dir(directory.path().join("inner")).unwrap();
        assert_eq!(ask(&opened, Rules::default()), None);
    }
}
