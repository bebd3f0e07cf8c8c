//! The package for Debian and its derivatives, by cargo-deb: the static program with its man pages, completions, bill
//! of materials, notices, and a unit for a server with default settings, which is installed disabled.
//!
//! What is in it, and under which name, is in `[package.metadata.deb]` of the program's manifest. The program itself
//! writes what documents it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{TARGET, epoch, release};
use crate::repository::{Repository, run_to_success};
use crate::setup;

/// The tool and the version that this repository uses.
const TOOL: (&str, &str) = ("cargo-deb", "3.8.0");

/// Where the package puts the program.
const INSTALLED: &str = "/usr/bin/gramway";

/// What the package's unit begins with, in place of what `gramway service install` says of its own.
const UNIT_OPENING: &str = "\
# A server with default settings. `gramway service install up -- FLAGS` writes a unit for other flags, with the rights
# that they need, to /etc/systemd/system, where it counts instead of this one.
";

/// Makes the package in `directory`, with the bill of materials and the notices, and gives its path.
pub(super) fn make(
    repository: &Repository,
    program: &Path,
    documents: [&Path; 2],
    epoch: &str,
    directory: &Path,
) -> Result<PathBuf> {
    setup::install_cargo_tool(repository, TOOL.0, TOOL.1)?;
    stage(repository, program, documents, epoch)?;
    let mut command = repository.command(repository.tools().join("bin").join(TOOL.0));
    command
        .args(["deb", "--quiet", "--package", "gramway", "--locked"])
        .args(["--target", TARGET, "--no-build", "--no-strip", "--output"])
        .arg(directory)
        .env(epoch::VARIABLE, epoch);
    run_to_success(&mut command)?;
    let entries =
        fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .context("cargo-deb has made no package")
}

/// Makes the files that are not in the repository, where the manifest names them.
fn stage(repository: &Repository, program: &Path, documents: [&Path; 2], epoch: &str) -> Result<()> {
    let directory = release(repository).join("package");
    let _ = fs::remove_dir_all(&directory);
    let pages = directory.join("man");
    fs::create_dir_all(&pages).with_context(|| format!("{} cannot be made", pages.display()))?;
    run_to_success(Command::new(program).arg("man").arg(&pages))?;
    for shell in ["bash", "zsh", "fish"] {
        let text = output(Command::new(program).args(["completions", shell]))?;
        write(&directory.join(shell), &text)?;
    }
    let unit = output(Command::new(program).args(["service", "print", "up"]))?;
    write(&directory.join("gramway.service"), &packaged(&unit, program)?)?;
    let copy = |from: &Path, name: &str| {
        fs::copy(from, directory.join(name)).with_context(|| format!("{} cannot be copied", from.display()))
    };
    let [bill, notices] = documents;
    copy(bill, "gramway.cdx.json")?;
    copy(notices, "NOTICES")?;
    copy(&repository.root().join("CHANGELOG.md"), "changelog")?;
    let date = output(Command::new("date").args(["--utc", "--rfc-email", &format!("--date=@{epoch}")]))?;
    write(&directory.join("changelog.Debian"), &changelog(date.trim()))?;
    let documents =
        ["changelog", "changelog.Debian", "gramway.cdx.json", "NOTICES"].map(|name| directory.join(name));
    // The directory of the man pages stands for all files in it.
    let mut compress = Command::new("gzip");
    compress.args(["-9", "--no-name", "--recursive"]).arg(&pages);
    run_to_success(compress.args(documents))
}

/// The unit that the program prints, for the installed program.
fn packaged(unit: &str, program: &Path) -> Result<String> {
    let own = program.display().to_string();
    let settings = unit.lines().skip_while(|line| line.starts_with('#'));
    let text: String = settings
        .map(|line| line.replace(&own, INSTALLED) + "\n")
        .collect();
    if !text.contains(&format!("ExecStart={INSTALLED} up ")) {
        bail!("the unit does not run {own}:\n{unit}");
    }
    Ok(UNIT_OPENING.to_owned() + &text)
}

/// The changes of the package; those of the program are beside it.
fn changelog(date: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "gramway ({version}-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n \
         -- The Gramway contributors <>  {date}\n"
    )
}

fn output(command: &mut Command) -> Result<String> {
    let shown = crate::repository::shown(command);
    let output = command
        .output()
        .with_context(|| format!("`{shown}` cannot be started"))?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_runs_the_installed_program_and_says_whose_it_is() {
        let unit = "# Written by us\n# and so on\n[Service]\nExecStart=/a/gramway up --state %S/gramway\n";
        let text = packaged(unit, Path::new("/a/gramway")).unwrap();
        assert!(text.starts_with("# A server") && !text.contains("Written by"));
        assert!(text.ends_with("\n[Service]\nExecStart=/usr/bin/gramway up --state %S/gramway\n"));
        assert!(packaged(unit, Path::new("/b/gramway")).is_err());
    }
}
