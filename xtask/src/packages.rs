//! System packages: which are missing, and their installation by `apt-get`, as root or through `sudo -n`. Where neither
//! is possible, the exact line to type is the error.

use std::path::Path;

use anyhow::{Result, bail};

use crate::repository::{Repository, find_program, has_sudo, is_root, run_to_success, shown};

/// A package by its Debian name, and how its presence shows.
pub(crate) type Package = (&'static str, Sign);

/// How the presence of a package shows.
pub(crate) enum Sign {
    /// A program that it brings.
    Program(&'static str),
    /// A file or directory that it brings.
    Path(&'static str),
    /// Python modules that it brings.
    PythonModules(&'static str),
}

/// Installs those that are missing. If some are named with an architecture (`NAME:arm64`), it is made known first.
pub(crate) fn install(
    repository: &Repository,
    packages: &[Package],
    architecture: Option<&str>,
) -> Result<()> {
    let missing: Vec<&str> = packages
        .iter()
        .filter(|(_, sign)| !sign.is_present(repository))
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if find_program("apt-get").is_none() {
        bail!("these packages are missing and there is no apt-get to install them: {names}");
    }
    let commands = commands(&missing, architecture);
    let prefix: &[&str] = if is_root() {
        &[]
    } else if has_sudo() {
        &["sudo", "-n"]
    } else {
        let lines: Vec<String> = commands
            .iter()
            .map(|words| format!("sudo {}", words.join(" ")))
            .collect();
        bail!(
            "these packages are missing: {names}\nrun this line, then start again:\n  {}",
            lines.join(" && ")
        );
    };
    for words in commands {
        let words = [prefix, &["env", "DEBIAN_FRONTEND=noninteractive"], &words].concat();
        let mut command = repository.command(words[0]);
        command.args(&words[1..]);
        println!("setup: {}", shown(&command));
        run_to_success(&mut command)?;
    }
    Ok(())
}

/// The commands that install packages, one after the other.
fn commands<'a>(packages: &[&'a str], architecture: Option<&'a str>) -> Vec<Vec<&'a str>> {
    let add = architecture.map(|name| vec!["dpkg", "--add-architecture", name]);
    let mut installation = vec!["apt-get", "install", "-y", "--no-install-recommends"];
    installation.extend(packages);
    add.into_iter()
        .chain([vec!["apt-get", "update"], installation])
        .collect()
}

impl Sign {
    fn is_present(&self, repository: &Repository) -> bool {
        match self {
            Self::Program(name) => find_program(name).is_some(),
            Self::Path(path) => Path::new(path).exists(),
            Self::PythonModules(import) => repository
                .command("python3")
                .args(["-c", import])
                .output()
                .is_ok_and(|output| output.status.success()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_another_architecture_need_it_to_be_known_before_the_lists_are_read() {
        let lines = |architecture| -> Vec<String> {
            let commands = commands(&["a", "b:arm64"], architecture);
            commands.iter().map(|words| words.join(" ")).collect()
        };
        let usual = [
            "apt-get update",
            "apt-get install -y --no-install-recommends a b:arm64",
        ];
        assert_eq!(lines(None), usual);
        assert_eq!(
            lines(Some("arm64")),
            [&["dpkg --add-architecture arm64"], &usual[..]].concat()
        );
    }
}
