//! Profiles of a client: `gramway connect home` reads `profiles/home.toml` of the state directory on top of the config
//! file, and takes its link from `profiles/home.link`, unless something names another. Either file may be missing.
//!
//! A name has letters, digits, `-`, `_` and `.` alone, so that no link is taken for one.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cli::{ProfileAction, ProfileArguments};
use crate::config::nearest;
use crate::exit::Problem;
use crate::output;
use crate::state::StateDirectory;

/// Where they are in the state directory.
const DIRECTORY: &str = "profiles";

const SETTINGS: &str = "toml";
const LINK: &str = "link";

/// The files of a profile.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    path: PathBuf,
}

impl Profile {
    /// The profile of this name.
    ///
    /// # Errors
    /// There is none; those that there are are named.
    pub(crate) fn find(directory: &StateDirectory, name: &str) -> Result<Self, Problem> {
        let known = names(directory);
        if known.iter().any(|known| known == name) {
            let path = directory.file(DIRECTORY).join(name);
            return Ok(Self { path });
        }
        let place = directory.file(DIRECTORY);
        let place = place.display();
        Err(Problem::usage(if known.is_empty() {
            format!(
                "there is no profile \"{name}\", and there are no others: put {name}.{SETTINGS}, {name}.{LINK} or both into {place}, or \
                 give a link, which begins with gramway://"
            )
        } else {
            let meant = nearest(name, known.iter().map(String::as_str));
            let meant = meant.map_or(String::new(), |meant| format!("; did you mean {meant}?"));
            format!(
                "there is no profile \"{name}\" in {place}{meant} There are: {}",
                known.join(", ")
            )
        }))
    }

    /// Its settings, where it has some.
    pub(crate) fn settings(&self) -> Option<PathBuf> {
        self.file(SETTINGS)
    }

    /// Its link, where it has a file of its own.
    pub(crate) fn link(&self) -> Option<PathBuf> {
        self.file(LINK)
    }

    fn file(&self, extension: &str) -> Option<PathBuf> {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(extension);
        Some(PathBuf::from(path)).filter(|path| path.exists())
    }
}

/// Whether a text can be the name of a profile: a link has characters that no name has.
pub(crate) fn is_name(text: &str) -> bool {
    let is_of_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && !text.starts_with(['.', '-']) && text.chars().all(is_of_names)
}

/// All that there are, in the order of their names.
fn names(directory: &StateDirectory) -> Vec<String> {
    let entries = std::fs::read_dir(directory.file(DIRECTORY)).into_iter().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| {
            let file = PathBuf::from(entry.ok()?.file_name());
            let is_ours = |extension: &OsStr| extension == SETTINGS || extension == LINK;
            file.extension().filter(|extension| is_ours(extension))?;
            file.file_stem()
                .and_then(OsStr::to_str)
                .filter(|name| is_name(name))
                .map(str::to_owned)
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// `gramway profile`.
pub(crate) fn run(arguments: &ProfileArguments) -> Result<(), Problem> {
    let ProfileAction::List = arguments.action;
    let directory = StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?;
    directory.examine()?;
    match names(&directory).as_slice() {
        [] => {
            let place: &Path = &directory.file(DIRECTORY);
            output::note(&format!("there are no profiles in {}", place.display()));
            Ok(())
        }
        names => output::data(&names.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::state_directory;

    #[test]
    fn no_link_and_no_path_is_the_name_of_a_profile() {
        for name in ["home", "home-2", "vpn.example.org", "A_b"] {
            assert!(is_name(name), "{name}");
        }
        for other in [
            "",
            "gramway://x@a:1",
            "GRAMWAY://",
            "a/b",
            "..",
            ".hidden",
            "-x",
            "host:443",
            "a b",
            "é",
        ] {
            assert!(!is_name(other), "{other}");
        }
    }

    #[test]
    fn a_profile_has_settings_or_a_link_or_both_and_others_are_named_where_one_is_missing() {
        let (_guard, directory) = state_directory();
        let missing = Profile::find(&directory, "home").unwrap_err();
        assert!(missing.to_string().contains("home.toml"), "{missing}");
        let place = directory.file(DIRECTORY);
        std::fs::create_dir_all(&place).unwrap();
        for file in ["home.toml", "home.link", "work.link", "notes.txt", ".x.toml"] {
            std::fs::write(place.join(file), "").unwrap();
        }
        let home = Profile::find(&directory, "home").unwrap();
        assert!(home.settings().is_some() && home.link().is_some());
        let work = Profile::find(&directory, "work").unwrap();
        assert!(work.settings().is_none() && work.link().is_some());
        let missing = Profile::find(&directory, "hme").unwrap_err();
        assert_eq!(missing.code() as u8, 64);
        assert!(
            missing
                .to_string()
                .ends_with("; did you mean home? There are: home, work"),
            "{missing}"
        );
    }
}
