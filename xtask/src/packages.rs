//! System packages: which are missing, and their installation by `apt-get`, as root or through `sudo -n`. Where neither
//! is possible, the exact line to type is the error.

use anyhow::{Result, bail};

use crate::repository::{Repository, find_program, has_sudo, is_root, run_to_success, shown};

/// A package by its Debian name, and how its presence shows.
pub(crate) type Package = (&'static str, Sign);

/// How the presence of a package shows.
pub(crate) enum Sign {
    /// A program that it brings.
    Program(&'static str),
    /// Python modules that it brings.
    PythonModules(&'static str),
}

/// Installs those that are missing.
pub(crate) fn install(repository: &Repository, packages: &[Package]) -> Result<()> {
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
    let prefix: &[&str] = if is_root() {
        &[]
    } else if has_sudo() {
        &["sudo", "-n"]
    } else {
        bail!(
            "these packages are missing: {names}\nrun this line, then start again:\n  \
             sudo apt-get update && sudo apt-get install -y --no-install-recommends {names}"
        );
    };
    let apt_get = |arguments: &[&str]| {
        let mut words: Vec<&str> = prefix.to_vec();
        words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        words.extend(arguments);
        let mut command = repository.command(words[0]);
        command.args(&words[1..]);
        println!("setup: {}", shown(&command));
        run_to_success(&mut command)
    };
    apt_get(&["update"])?;
    let mut installation = vec!["install", "-y", "--no-install-recommends"];
    installation.extend(&missing);
    apt_get(&installation)
}

impl Sign {
    fn is_present(&self, repository: &Repository) -> bool {
        match self {
            Self::Program(name) => find_program(name).is_some(),
            Self::PythonModules(import) => repository
                .command("python3")
                .args(["-c", import])
                .output()
                .is_ok_and(|output| output.status.success()),
        }
    }
}
