//! Installs the tools that the checks and tests need: system packages, cargo tools, a Python environment, Go modules.
//!
//! Everything already present is left alone, so a second run takes no time and needs no network.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::packages::{self, Package, Sign};
use crate::repository::{Repository, run_to_success, shown};

/// How much is set up and tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Everything,
    WithoutSystemTests,
}

/// System packages that the tests need.
const PACKAGES: [Package; 18] = [
    ("chromium", Sign::Program("chromium")),
    ("curl", Sign::Program("curl")),
    ("exfat-fuse", Sign::Program("mount.exfat-fuse")),
    ("exfatprogs", Sign::Program("mkfs.exfat")),
    ("faketime", Sign::Program("faketime")),
    ("iproute2", Sign::Program("ip")),
    ("iputils-ping", Sign::Program("ping")),
    ("miniupnpd-nftables", Sign::Program("miniupnpd")),
    ("nftables", Sign::Program("nft")),
    ("iperf3", Sign::Program("iperf3")),
    ("netcat-openbsd", Sign::Program("nc")),
    ("strace", Sign::Program("strace")),
    ("tcpdump", Sign::Program("tcpdump")),
    ("wireguard-go", Sign::Program("wireguard-go")),
    ("wireguard-tools", Sign::Program("wg-quick")),
    ("systemd", Sign::Program("systemd-analyze")),
    ("python3", Sign::Program("python3")),
    ("python3-venv", Sign::PythonModules("import venv, ensurepip")),
];

/// Cargo tools and the version that this repository is checked with.
const CARGO_TOOLS: [(&str, &str); 2] = [("cargo-deny", "0.20.2"), ("cargo-machete", "0.9.2")];

/// What a relay is tested against, and its version. Its programs have names like `client`, so they have a directory of
/// their own.
const PHANTUN: (&str, &str) = ("phantun", "0.8.1");

/// Installs what is missing, but for the tools of [`missing_cargo_tools`].
pub(crate) fn run(repository: &Repository, extent: Extent) -> Result<()> {
    if extent == Extent::Everything {
        packages::install(repository, &PACKAGES, None)?;
        install_python_packages(repository)?;
        fetch_go_modules(repository)?;
        let (name, version) = PHANTUN;
        let root = repository.target().join(name);
        install_cargo_programs(repository, &root, name, version, "client")?;
    }
    Ok(())
}

/// What installs the cargo tools that are missing: the last checks need them, and their build takes minutes of a core.
pub(crate) fn missing_cargo_tools(repository: &Repository) -> Option<Command> {
    let root = repository.tools();
    let is_missing = |(name, version): &&(&str, &str)| !is_installed(&root, name, version, name);
    let missing: Vec<String> = CARGO_TOOLS
        .iter()
        .filter(is_missing)
        .map(|(name, version)| format!("{name}@{version}"))
        .collect();
    (!missing.is_empty()).then(|| cargo_install(repository, &root, &missing))
}

/// Those of the interop tests.
pub(crate) fn install_python_packages(repository: &Repository) -> Result<()> {
    install_python(
        repository,
        &repository.python_requirements(),
        &repository.python_environment(),
        ", or use `cargo xtask test --quick`",
    )
}

/// Makes the environment from nothing whenever the pinned versions have changed; the copy beside it tells.
/// `without` follows the advice to install Python where there is none.
pub(crate) fn install_python(
    repository: &Repository,
    requirements: &Path,
    environment: &Path,
    without: &str,
) -> Result<()> {
    let wanted = std::fs::read_to_string(requirements)
        .with_context(|| format!("{} cannot be read", requirements.display()))?;
    let stamp = environment.join("installed-requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let new_enough = "import sys; sys.exit(sys.version_info < (3, 11))";
    if !repository
        .command("python3")
        .args(["-c", new_enough])
        .status()
        .is_ok_and(|status| status.success())
    {
        bail!(
            "{} needs Python 3.11 or later as `python3`; install it{without}",
            requirements.display()
        );
    }
    let path = |path: &Path| path.to_string_lossy().into_owned();
    install(
        repository
            .command("python3")
            .args(["-m", "venv", "--clear", &path(environment)]),
    )?;
    let pip = environment.join("bin/python");
    install(repository.command(&pip).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
        "--requirement",
        &path(requirements),
    ]))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("{} cannot be written", stamp.display()))
}

/// Where Go is missing or too old, the tests with its programs skip themselves; no package of the system is new enough.
fn fetch_go_modules(repository: &Repository) -> Result<()> {
    let go = |arguments: &[&str]| {
        let mut command = repository.command("go");
        command
            .args(["-C", "crates/system-tests/interop-go"])
            .args(arguments);
        // The installed version, never another that it would fetch.
        command.env("GOTOOLCHAIN", "local");
        command
    };
    let is_new_enough = go(&["list", "-m"])
        .output()
        .is_ok_and(|output| output.status.success());
    if is_new_enough {
        install(&mut go(&["mod", "download"]))?;
    }
    Ok(())
}

/// Installs this version of a cargo tool beside the build, unless it is there.
pub(crate) fn install_cargo_tool(repository: &Repository, name: &str, version: &str) -> Result<()> {
    install_cargo_programs(repository, &repository.tools(), name, version, name)
}

/// Installs this version of a crate's programs below `root`, unless it is there with this `program`.
fn install_cargo_programs(
    repository: &Repository,
    root: &Path,
    name: &str,
    version: &str,
    program: &str,
) -> Result<()> {
    if is_installed(root, name, version, program) {
        return Ok(());
    }
    install(&mut cargo_install(
        repository,
        root,
        &[format!("{name}@{version}")],
    ))
}

/// Cargo's own record of what it installed below `root`, one line per tool: "NAME VERSION (SOURCE)" = …
pub(crate) fn is_installed(root: &Path, name: &str, version: &str, program: &str) -> bool {
    let record = std::fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
    is_recorded(&record, name, version) && root.join("bin").join(program).is_file()
}

/// Has cargo install `packages`, as NAME@VERSION, below `root`.
fn cargo_install(repository: &Repository, root: &Path, packages: &[String]) -> Command {
    // Without optimization it is there in a third of the time, and still done in seconds.
    let mut command = repository.cargo(&["install", "--locked", "--quiet", "--debug", "--root"]);
    command.arg(root).args(packages);
    command.env("CARGO_PROFILE_DEV_DEBUG", "0");
    command
}

fn is_recorded(record: &str, name: &str, version: &str) -> bool {
    record.contains(&format!("\"{name} {version} "))
}

pub(crate) fn install(command: &mut Command) -> Result<()> {
    println!("setup: {}", shown(command));
    run_to_success(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_of_a_tool_does_not_count_as_installed() {
        let record = "[v1]\n\"cargo-deny 0.20.2 (registry+https://example.org)\" = [\"cargo-deny\"]\n";
        assert!(is_recorded(record, "cargo-deny", "0.20.2"));
        assert!(!is_recorded(record, "cargo-deny", "0.20"));
        assert!(!is_recorded(record, "deny", "0.20.2"));
    }
}
