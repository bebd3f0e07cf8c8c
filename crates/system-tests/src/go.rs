//! The foreign programs in Go: built from `interop-go/`, whose modules are pinned in `go.mod` and `go.sum`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testbed::programs::run;

/// The module whose program `wireguard` is.
const WIREGUARD: &str = "golang.zx2c4.com/wireguard";

/// What connect-ip-go asks for.
const GO_VERSION_MIN: (u32, u32) = (1, 26);

/// Ends the test, as skipped, where Go is missing or too old; else gives the directory of the programs.
#[macro_export]
macro_rules! require_go {
    () => {
        match $crate::go::programs() {
            Ok(directory) => directory,
            Err(reason) => return $crate::skip::skip($crate::test_name!(), &reason),
        }
    };
}

/// Where `client`, `cover`, `server` and `wireguard` are; built once in each run, which costs little when nothing has
/// changed.
///
/// # Errors
/// Why they cannot be built here.
///
/// # Panics
/// When their sources do not compile.
pub fn programs() -> Result<PathBuf, String> {
    static PROGRAMS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    PROGRAMS.get_or_init(build).clone()
}

fn build() -> Result<PathBuf, String> {
    let (major, minor) = GO_VERSION_MIN;
    let needed = format!("needs Go {major}.{minor} or later");
    let version = go().arg("version").output().map_err(|_| needed.clone())?;
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    if version_of(&text) < Some(GO_VERSION_MIN) {
        return Err(format!("{needed}; here is {}", text.trim()));
    }
    // This test program is TARGET/PROFILE/deps/NAME.
    let own = std::env::current_exe().unwrap();
    let directory = own.ancestors().nth(3).unwrap().join("interop-go");
    std::fs::create_dir_all(&directory).unwrap();
    run(go()
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(&directory)
        .args(["./client", "./cover", "./server", WIREGUARD]))
    .unwrap();
    Ok(directory)
}

/// The installed Go in the programs' module, never another that it would fetch.
fn go() -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("interop-go"))
        .env("GOTOOLCHAIN", "local");
    command
}

/// Of `go version go1.26.8 linux/amd64`.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let numbers = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1."))?;
    let minor: String = numbers.chars().take_while(char::is_ascii_digit).collect();
    Some((1, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_go_is_read_from_its_text() {
        assert_eq!(version_of("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(version_of("go version go1.9rc1 linux/amd64"), Some((1, 9)));
        assert!(version_of("no go here") < Some(GO_VERSION_MIN));
    }
}
