//! Where things lie in the repository, and how its tasks start other programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};

/// The repository that the task works on.
pub(crate) struct Repository {
    root: PathBuf,
}

impl Repository {
    /// The repository around the current directory.
    pub(crate) fn find() -> Result<Self> {
        let start = std::env::current_dir().context("the current directory cannot be read")?;
        let root = start
            .ancestors()
            .find(|directory| directory.join("xtask/Cargo.toml").is_file());
        match root {
            Some(root) => Ok(Self {
                root: root.to_owned(),
            }),
            None => bail!(
                "{} is not inside the repository; change into it first",
                start.display()
            ),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Where builds land.
    pub(crate) fn target(&self) -> PathBuf {
        let chosen =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        self.root.join(chosen)
    }

    /// Where the checking tools are installed, apart from the user's own.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target().join("tools")
    }

    /// The Python environment of the interop tests.
    pub(crate) fn python_environment(&self) -> PathBuf {
        self.target().join("interop-venv")
    }

    /// What the interop tests install into it.
    pub(crate) fn python_requirements(&self) -> PathBuf {
        self.root.join("crates/system-tests/interop/requirements.txt")
    }

    /// A command that runs in the root.
    ///
    /// Cargo describes this package to the running task by environment variables; passed on, they would make build
    /// scripts that watch them run again at every turn.
    pub(crate) fn command(&self, program: impl Into<OsString>) -> Command {
        let mut command = Command::new(program.into());
        command.current_dir(&self.root);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(describes_this_package) {
                command.env_remove(name);
            }
        }
        command
    }

    /// A cargo command in the root, of the cargo that runs this task.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(arguments);
        command
    }
}

fn describes_this_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_")
        || matches!(
            variable,
            "CARGO_MANIFEST_DIR"
                | "CARGO_MANIFEST_PATH"
                | "CARGO_CRATE_NAME"
                | "CARGO_BIN_NAME"
                | "CARGO_PRIMARY_PACKAGE"
        )
}

/// Finds a program as a shell would; system directories count even where the user's PATH lacks them.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

/// Whether this process may do everything.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout.trim_ascii() == b"0")
}

/// Whether `sudo` works without asking for a password.
pub(crate) fn has_sudo() -> bool {
    Command::new("sudo")
        .args(["-n", "true"])
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Runs a command that must succeed.
pub(crate) fn run_to_success(command: &mut Command) -> Result<()> {
    succeeded(command.status(), command)
}

/// An error unless the command ran and succeeded.
pub(crate) fn succeeded(status: std::io::Result<ExitStatus>, command: &Command) -> Result<()> {
    let status = status.with_context(|| format!("`{}` cannot be started", shown(command)))?;
    if !status.success() {
        bail!("this command failed ({status}):\n  {}", shown(command));
    }
    Ok(())
}

/// The command line as one would type it, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(name, value)| {
            Some(format!(
                "{}={}",
                name.to_string_lossy(),
                quoted(&value?.to_string_lossy())
            ))
        })
        .collect();
    words.push(quoted(&command.get_program().to_string_lossy()));
    words.extend(
        command
            .get_args()
            .map(|argument| quoted(&argument.to_string_lossy())),
    );
    words.join(" ")
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(char::is_whitespace) {
        format!("'{word}'")
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_shown_as_one_types_it() {
        let mut command = Command::new("cargo");
        command
            .arg("doc")
            .arg("a b")
            .env("RUSTDOCFLAGS", "-D warnings")
            .env_remove("CARGO_PKG_NAME");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc 'a b'");
    }

    #[test]
    fn only_variables_about_this_package_are_withheld() {
        assert!(describes_this_package("CARGO_PKG_NAME") && describes_this_package("CARGO_MANIFEST_DIR"));
        assert!(!describes_this_package("CARGO_HOME") && !describes_this_package("CARGO_TARGET_DIR"));
    }
}
