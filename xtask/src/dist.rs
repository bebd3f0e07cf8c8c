//! `cargo xtask dist`: the program as one static file that runs in an empty root directory, what it was made of with
//! all licences, a package for Debian, what a container image is built from, and checksums of all that.
//!
//! glibc is linked statically. The target is named although it is this machine's, because cargo then keeps the flags
//! from build scripts and procedural macros, which are loaded or run here and stay dynamic. The files contain neither
//! paths of this machine nor the time of the build.

mod bill;
mod checksums;
mod container;
mod epoch;
mod notices;
mod package;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::repository::{Repository, is_root, run_to_success};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// In a static program getrandom cannot look the system call up by name, and would read /dev/random instead, which an
/// empty root directory lacks: it is told to use the call (Linux 3.17 or later).
pub(crate) const FLAGS: &str = "-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\"";

/// Builds everything into `target/dist`, and tries it where this process may ([`trial`]).
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let built = build(repository)?;
    let directory = repository.target().join("dist");
    // Files of an earlier version would be taken for this one's.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let program = directory.join("gramway");
    fs::copy(&built, &program).with_context(|| format!("{} cannot be copied", built.display()))?;
    let linked = bill::linked(repository)?;
    let bill = bill::write(repository, &linked, &directory)?;
    let notices = notices::write(repository, &linked, &directory)?;
    let epoch = epoch::of(repository)?;
    let package = package::make(
        repository,
        &program,
        [bill.as_path(), notices.as_path()],
        &epoch,
        &directory,
    )?;
    let container = container::write(repository, &directory)?;
    let files = [&program, &bill, &notices, &package, &container];
    let checksums = checksums::write(&directory, &files)?;
    if is_root() {
        trial::run(&container, &package)?;
    } else {
        println!("not tried: empty root directories and the installation of the package need root");
    }
    for file in files.into_iter().chain([&checksums]) {
        println!("{}", file.display());
    }
    Ok(())
}

/// Builds the program, and gives its path.
fn build(repository: &Repository) -> Result<PathBuf> {
    let mut build = repository.cargo(&[
        "build",
        "--release",
        "--locked",
        "--target",
        TARGET,
        "--package",
        "gramway",
    ]);
    // Debug information would be four fifths of the file; panics name their lines without it.
    build
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    build.env_remove("RUSTFLAGS").env(
        "CARGO_ENCODED_RUSTFLAGS",
        encoded_flags(repository.root(), &cargo_home()),
    );
    run_to_success(&mut build)?;
    Ok(release(repository).join("gramway"))
}

/// Where the static program is built.
fn release(repository: &Repository) -> PathBuf {
    repository.target().join(TARGET).join("release")
}

/// [`FLAGS`], and other names for paths of this machine, which would be in the program otherwise. In cargo's encoding,
/// because paths may hold spaces.
fn encoded_flags(root: &Path, cargo_home: &Path) -> String {
    let renamed = [(root, "/gramway"), (cargo_home, "/cargo")]
        .map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display()));
    let flags = FLAGS.split(' ').map(str::to_owned).chain(renamed);
    flags.collect::<Vec<_>>().join("\x1f")
}

/// Where cargo keeps the sources of dependencies.
fn cargo_home() -> PathBuf {
    let told = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    told.or_else(home).unwrap_or_else(|| PathBuf::from(".cargo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_keep_paths_with_spaces_in_one_piece() {
        let flags = encoded_flags(Path::new("/a b/gramway"), Path::new("/c/.cargo"));
        let flags: Vec<_> = flags.split('\x1f').collect();
        assert_eq!(flags[..2], ["-C", "target-feature=+crt-static"]);
        assert_eq!(
            flags[4..],
            [
                "--remap-path-prefix=/a b/gramway=/gramway",
                "--remap-path-prefix=/c/.cargo=/cargo"
            ]
        );
    }
}
