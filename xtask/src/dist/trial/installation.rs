//! The package on a machine of its own that runs systemd: it is installed, its server and a client are started as
//! services and carry bytes, it is upgraded, removed and purged, and then nothing of it is left.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use testbed::machine::Machine;

use super::{STEP_LIMIT, allowed_target, connect, exchange, forward, target};

/// The package on the machine.
const PACKAGE: &str = "/tmp/gramway.deb";

/// The packet manager's own books, journals and caches, and what systemd makes for the first service of any package.
const NOT_OURS: [&str; 5] = [
    "var/lib/dpkg",
    "var/log",
    "var/cache",
    "var/lib/systemd",
    "etc/.pwd.lock",
];

/// Runs the trial.
pub(super) fn run(package: &Path) -> Result<()> {
    let machine = Machine::boot()?;
    let before = files(&machine)?;
    machine.copy(package, PACKAGE)?;
    machine.run("dpkg", &["--install", PACKAGE])?;
    for path in [
        "usr/share/man/man1/gramway-up.1.gz",
        "usr/share/bash-completion/completions/gramway",
    ] {
        if !machine.file(path).is_file() {
            bail!("the package brings no {path}");
        }
    }
    // It exits with 1.
    let enabled = machine
        .command("systemctl")
        .args(["is-enabled", "gramway"])
        .output()?;
    if enabled.stdout.trim_ascii() != b"disabled" {
        bail!(
            "the service is {} after the installation",
            String::from_utf8_lossy(&enabled.stdout)
        );
    }
    serve(&machine).with_context(|| journal(&machine))?;
    machine
        .run("dpkg", &["--install", PACKAGE])
        .context("the same package as an upgrade")?;
    carry(&machine).with_context(|| format!("after an upgrade: {}", journal(&machine)))?;

    machine.run("dpkg", &["--remove", "gramway"])?;
    let running = machine.run(
        "systemctl",
        &["list-units", "--plain", "--no-legend", "gramway*.service"],
    )?;
    if !running.trim().is_empty() {
        bail!("services outlive the package: {running}");
    }
    if !machine.file("/var/lib/private/gramway/owner.token").exists() {
        bail!("removing the package removed the server's keys");
    }
    machine.run("dpkg", &["--purge", "gramway"])?;
    fs::remove_dir_all(machine.file("/etc/gramway"))?;
    let after = files(&machine)?;
    let left: Vec<_> = after
        .difference(&before)
        .map(|path| path.display().to_string())
        .collect();
    if !left.is_empty() {
        bail!("the package left: {}", left.join(", "));
    }
    Ok(())
}

/// Starts server and client as an administrator does.
fn serve(machine: &Machine) -> Result<()> {
    machine
        .inside(target)?
        .context("no port for the target of the trial")?;
    machine.run("systemctl", &["enable", "--now", "gramway"])?;
    let allow = format!(
        "echo 'allow_target = [\"{}\"]' >> /var/lib/gramway/config.toml",
        allowed_target()
    );
    machine.run("sh", &["-c", &allow])?;
    machine.run("systemctl", &["reload", "gramway"])?;
    let link = machine.run("gramway", &["link"])?;
    fs::create_dir(machine.file("/etc/gramway"))?;
    fs::write(machine.file("/etc/gramway/home.link"), link)?;
    machine.run(
        "gramway",
        &["service", "install", "connect", "--", "-L", &forward()],
    )?;
    machine.run("systemctl", &["enable", "--now", "gramway-connect@home"])?;
    carry(machine)
}

/// Sends bytes by way of both.
fn carry(machine: &Machine) -> Result<()> {
    let opened = testbed::wait::poll(STEP_LIMIT, || machine.inside(connect).ok()?.ok());
    exchange(opened.context("the client does not listen")?)
}

/// What the services said.
fn journal(machine: &Machine) -> String {
    let said = machine.run("journalctl", &["--no-pager", "--lines=40", "--unit=gramway*"]);
    said.unwrap_or_else(|error| error.to_string())
}

/// The files of the machine that are not this one's.
fn files(machine: &Machine) -> Result<BTreeSet<PathBuf>> {
    let root = machine.changes();
    let mut found = BTreeSet::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        let entries =
            fs::read_dir(&directory).with_context(|| format!("{} cannot be read", directory.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path.strip_prefix(&root)?.to_owned();
            if NOT_OURS.iter().any(|other| name.starts_with(other)) {
                continue;
            }
            // Where a file of the real machine is removed, the layer has a device in its place.
            let metadata = fs::symlink_metadata(&path)?;
            if metadata.is_dir() {
                directories.push(path);
            } else if metadata.is_file() || metadata.is_symlink() {
                found.insert(name);
            }
        }
    }
    Ok(found)
}
