//! The state directory: where it is, who may read it, which version of the program it belongs to, and how files in it
//! are written.
//!
//! Default: `/var/lib/gramway` for root, else `$XDG_STATE_HOME/gramway`, else `~/.local/state/gramway`. It is made with
//! mode 0700, its files with 0600, each written atomically (to a temporary file, then renamed). Both are this user's or
//! root's. Reading a directory never changes it; a directory of a newer version is refused unchanged. Server and
//! clients may share one.

mod owner;

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use crate::exit::Problem;
use crate::limits::STATE_FILE_BYTES_MAX;
use crate::link::is_link;

/// The layout that this program writes and the newest that it reads.
const VERSION: u32 = 1;
const VERSION_FILE: &str = "version";

/// A state directory, existing or not.
#[derive(Clone, Debug)]
pub(crate) struct StateDirectory {
    path: PathBuf,
    /// What messages call it.
    shown: PathBuf,
}

impl StateDirectory {
    /// The directory that the flag, else the environment, else the user's account names.
    pub(crate) fn locate(
        flag: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Problem> {
        let set = |name: &str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let path = flag
            .map(Path::to_path_buf)
            .or_else(|| set("GRAMWAY_STATE"))
            .or_else(|| {
                rustix::process::geteuid()
                    .is_root()
                    .then(|| PathBuf::from("/var/lib/gramway"))
            })
            .or_else(|| set("XDG_STATE_HOME").map(|path| path.join("gramway")))
            .or_else(|| set("HOME").map(|path| path.join(".local/state/gramway")));
        match path {
            Some(path) if path.as_os_str().is_empty() => Err(Problem::usage(
                "the state directory's name is empty; give --state DIR",
            )),
            Some(path) if is_link(path.as_os_str()) => Err(Problem::usage(
                "a link stands where a state directory is expected; give --state DIR",
            )),
            Some(path) => Ok(Self {
                shown: path.clone(),
                path,
            }),
            None => Err(Problem::configuration(
                "no place for the state directory: HOME is not set; give --state DIR",
            )),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The path for messages.
    pub(crate) fn shown(&self) -> &Path {
        &self.shown
    }

    /// A file's path for messages.
    pub(crate) fn shown_file(&self, name: &str) -> PathBuf {
        self.shown.join(name)
    }

    /// Opens the directory after checking its kind, its permissions and its version; `None` where it does not exist.
    pub(crate) fn examine(&self) -> Result<Option<File>, Problem> {
        let directory = match File::open(&self.path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Problem::file("open the state directory", &self.shown, &error)),
        };
        let metadata = directory
            .metadata()
            .map_err(|error| Problem::file("examine the state directory", &self.shown, &error))?;
        if !metadata.is_dir() {
            return Err(Problem::configuration(format!(
                "{} is not a directory; give another --state DIR",
                self.shown.display()
            )));
        }
        check_owner(&metadata, &self.shown)?;
        if metadata.mode() & 0o022 != 0 {
            return Err(Problem::permission(format!(
                "others may write to the state directory {}; if it is the right one: chmod 700 {}",
                self.shown.display(),
                self.shown.display()
            )));
        }
        if let Some(text) = self.read(VERSION_FILE)? {
            let path = self.shown_file(VERSION_FILE);
            match String::from_utf8_lossy(&text).trim().parse::<u32>() {
                Ok(version) if version <= VERSION => {}
                Ok(version) => {
                    return Err(Problem::configuration(format!(
                        "{} is state of a newer gramway (version {version}, this program knows {VERSION}); \
                         update gramway or give another --state DIR",
                        self.shown.display()
                    )));
                }
                Err(_) => {
                    return Err(Problem::configuration(format!(
                        "{} holds no version number; give another --state DIR",
                        path.display()
                    )));
                }
            }
        }
        Ok(Some(directory))
    }

    /// Creates the directory and its version file if they are missing.
    pub(crate) fn create(&self) -> Result<File, Problem> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| Problem::file("create the state directory", &self.shown, &error))?;
        let Some(directory) = self.examine()? else {
            return Err(Problem::unavailable(format!(
                "{} was removed by another",
                self.shown.display()
            )));
        };
        if self.read(VERSION_FILE)?.is_none() {
            self.write(VERSION_FILE, format!("{VERSION}\n").as_bytes())?;
        }
        Ok(directory)
    }

    /// Reads a file; `None` where it does not exist.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        let opened = open(&self.file(name), &self.shown_file(name))?;
        Ok(opened.map(|(_, bytes)| bytes))
    }

    /// Reads a secret, which nobody else may read; `None` where it does not exist.
    pub(crate) fn read_secret(&self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        read_secret_shown(&self.file(name), &self.shown_file(name))
    }

    /// Whether there is a file of secrets, which nobody else may read.
    pub(crate) fn has_secret(&self, name: &str) -> Result<bool, Problem> {
        let shown = self.shown_file(name);
        match std::fs::metadata(self.file(name)) {
            Ok(metadata) => {
                check_owner(&metadata, &shown)?;
                check_secret(&metadata, &shown).map(|()| true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Problem::file("examine", &shown, &error)),
        }
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Problem> {
        match std::fs::remove_file(self.file(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Problem::file("remove", &self.shown_file(name), &error))
            }
            _ => Ok(()),
        }
    }

    /// Waits until nobody else opens or removes an admin socket here; others wait until the file is dropped. The
    /// directory itself is locked by a server as long as it runs.
    pub(crate) fn lock_sockets(&self) -> io::Result<File> {
        let file = File::open(self.file(VERSION_FILE))?;
        retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        Ok(file)
    }

    /// Writes a file with mode 0600, atomically, also if the machine crashes.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Problem> {
        let path = self.file(name);
        let beside = self.file(&format!(".{name}.{}.new", std::process::id()));
        // A process of the same ID may have died here, which in a container is the rule.
        let _ = std::fs::remove_file(&beside);
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&beside)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            File::open(&self.path)?.sync_all()
        })();
        written.map_err(|error| {
            // The first error is the one to tell; the leftover is harmless.
            let _ = std::fs::remove_file(&beside);
            Problem::file("write", &self.shown_file(name), &error)
        })
    }
}

/// Reads a secret, which nobody else may read; `None` where it does not exist.
pub(crate) fn read_secret(path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    read_secret_shown(path, path)
}

fn read_secret_shown(path: &Path, shown: &Path) -> Result<Option<Vec<u8>>, Problem> {
    let Some((file, bytes)) = open(path, shown)? else {
        return Ok(None);
    };
    let metadata = file
        .metadata()
        .map_err(|error| Problem::file("examine", shown, &error))?;
    check_secret(&metadata, shown)?;
    Ok(Some(bytes))
}

fn open(path: &Path, shown: &Path) -> Result<Option<(File, Vec<u8>)>, Problem> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Problem::file("read", shown, &error)),
    };
    let metadata = file
        .metadata()
        .map_err(|error| Problem::file("examine", shown, &error))?;
    check_owner(&metadata, shown)?;
    let mut bytes = Vec::new();
    (&mut file)
        .take(STATE_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Problem::file("read", shown, &error))?;
    if bytes.len() as u64 > STATE_FILE_BYTES_MAX {
        return Err(Problem::configuration(format!(
            "{} is larger than {STATE_FILE_BYTES_MAX} bytes, so gramway did not write it",
            shown.display()
        )));
    }
    Ok(Some((file, bytes)))
}

/// Refuses what another user could change at any time.
fn check_owner(metadata: &Metadata, path: &Path) -> Result<(), Problem> {
    let this_user = rustix::process::geteuid().as_raw();
    if metadata.uid() == 0 || metadata.uid() == this_user {
        return Ok(());
    }
    // Root would take the files of a service away from it.
    let advice = match this_user {
        0 => "if a service owns it, use the service (systemctl), or give another --state DIR".to_owned(),
        _ => format!("or, if it is yours: chown {this_user} {}", path.display()),
    };
    Err(Problem::permission(format!(
        "{} belongs to user {}; run gramway as that user; {advice}",
        path.display(),
        metadata.uid(),
    )))
}

/// Refuses what others can read.
fn check_secret(metadata: &Metadata, path: &Path) -> Result<(), Problem> {
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Problem::permission(format!(
        "{} is a secret that others may read (mode {mode:03o}); run: chmod 600 {}",
        path.display(),
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_support::{listing, mode, state_directory};

    #[test]
    fn the_flag_beats_the_environment_and_an_account_without_home_is_told() {
        let locate = |flag: Option<&str>, state: Option<&str>| {
            StateDirectory::locate(flag.map(Path::new), |name| {
                state.filter(|_| name == "GRAMWAY_STATE").map(OsString::from)
            })
        };
        assert_eq!(locate(Some("a"), Some("b")).unwrap().path(), Path::new("a"));
        assert_eq!(locate(None, Some("b")).unwrap().path(), Path::new("b"));
        assert_eq!(locate(Some(""), None).unwrap_err().code() as u8, 64);
        if rustix::process::geteuid().is_root() {
            assert_eq!(locate(None, None).unwrap().path(), Path::new("/var/lib/gramway"));
        } else {
            assert_eq!(locate(None, None).unwrap_err().code() as u8, 78);
        }
    }

    #[test]
    fn a_new_directory_is_private_and_looking_at_a_missing_one_makes_nothing() {
        let (_guard, state) = state_directory();
        assert!(state.examine().unwrap().is_none());
        assert!(!state.path().exists());
        state.create().unwrap();
        assert_eq!(mode(state.path()), 0o700);
        assert_eq!(mode(&state.file("version")), 0o600);
        assert_eq!(std::fs::read(state.file("version")).unwrap(), b"1\n");
        let before = listing(state.path());
        state.create().unwrap();
        assert_eq!(listing(state.path()), before);
    }

    #[test]
    fn state_of_a_newer_version_or_of_none_is_refused_unchanged() {
        for (text, part) in [
            ("2\n", "newer gramway (version 2"),
            ("x", "holds no version number"),
        ] {
            let (_guard, state) = state_directory();
            state.create().unwrap();
            state.write("version", text.as_bytes()).unwrap();
            let before = listing(state.path());
            for problem in [state.examine().unwrap_err(), state.create().unwrap_err()] {
                assert!(problem.to_string().contains(part), "{problem}");
                assert_eq!(problem.code() as u8, 78);
            }
            assert_eq!(listing(state.path()), before);
        }
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused_with_the_cure() {
        let (_guard, state) = state_directory();
        state.create().unwrap();
        state.write("owner.token", b"secret").unwrap();
        assert_eq!(state.read_secret("owner.token").unwrap().unwrap(), b"secret");
        let path = state.file("owner.token");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let problem = state.read_secret("owner.token").unwrap_err();
        assert_eq!(problem.code() as u8, 77);
        assert!(
            problem
                .to_string()
                .ends_with(&format!("chmod 600 {}", path.display())),
            "{problem}"
        );
    }

    #[test]
    fn another_users_directory_and_file_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (_guard, state) = state_directory();
        state.create().unwrap();
        state.write("owner.token", b"secret").unwrap();
        let give_away = |path: &Path| std::os::unix::fs::chown(path, Some(65_534), None).unwrap();
        give_away(&state.file("owner.token"));
        for problem in [
            state.read_secret("owner.token").unwrap_err(),
            state.read("owner.token").unwrap_err(),
        ] {
            assert!(problem.to_string().contains("belongs to user 65534"), "{problem}");
            assert_eq!(problem.code() as u8, 77);
        }
        assert!(state.examine().is_ok());
        give_away(state.path());
        assert_eq!(state.examine().unwrap_err().code() as u8, 77);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let (_guard, state) = state_directory();
        state.create().unwrap();
        std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(state.examine().unwrap_err().to_string().contains("chmod 700"));
    }

    #[test]
    fn a_file_in_place_of_the_directory_and_a_huge_file_are_refused() {
        let (_guard, state) = state_directory();
        std::fs::write(state.path(), "x").unwrap();
        assert!(
            state
                .examine()
                .unwrap_err()
                .to_string()
                .contains("is not a directory")
        );
        std::fs::remove_file(state.path()).unwrap();
        state.create().unwrap();
        state.write("big", &vec![0; 70_000]).unwrap();
        assert!(state.read("big").unwrap_err().to_string().contains("larger than"));
        assert_eq!(state.read("absent").unwrap(), None);
    }
}
