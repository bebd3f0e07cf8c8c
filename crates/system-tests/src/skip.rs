//! Skipping a test in the open: one line `SKIPPED: TEST: REASON` on the real standard error, which the test harness
//! does not capture, and in the file that GRAMWAY_SKIP_LOG names. CONTRIBUTING.md lists the skips that CI accepts.

use std::io::Write;

pub use testbed::programs::find;

/// Reports that a test does not run here.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED: {test}: {reason}\n");
    // Where nobody listens, nothing is lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let Some(path) = std::env::var_os("GRAMWAY_SKIP_LOG") else {
        return;
    };
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("the skip log {} cannot be written: {error}", path.display()));
}

/// The reason where a program is not installed, with what brings it. `cargo xtask setup` leaves out what is too large
/// (CONTRIBUTING.md).
#[must_use]
pub fn missing(program: &str) -> String {
    let brings = match program {
        "promtool" => "apt-get install prometheus",
        "tshark" => "apt-get install tshark",
        _ => "cargo xtask setup",
    };
    format!("needs the program {program}; `{brings}` installs it")
}

/// Whether this process may make network namespaces.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The path of the function it stands in, without the test program's name: `house::a_namespace_vanishes`.
#[macro_export]
macro_rules! test_name {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here);
        let path = path.strip_suffix("::here").unwrap_or(path);
        path.split_once("::").map_or(path, |(_, name)| name)
    }};
}

/// Ends the test, as skipped, unless it runs as root.
#[macro_export]
macro_rules! require_root {
    () => {
        if !$crate::skip::is_root() {
            $crate::skip::skip($crate::test_name!(), "needs root, for network namespaces");
            return;
        }
    };
}

/// Ends the test, as skipped, unless all programs named are installed.
#[macro_export]
macro_rules! require_program {
    ($($name:expr),+ $(,)?) => {
        $(if $crate::skip::find(&[$name]).is_none() {
            $crate::skip::skip($crate::test_name!(), &$crate::skip::missing($name));
            return;
        })+
    };
}

/// Ends the test, as skipped, where [`testbed::machine::Machine`] cannot be booted.
#[macro_export]
macro_rules! require_machine {
    () => {
        if let Some(reason) = testbed::machine::obstacle() {
            return $crate::skip::skip($crate::test_name!(), &reason);
        }
    };
}

/// Ends the test, as skipped, where the Python packages of the interop tests are missing; else gives the interpreter.
#[macro_export]
macro_rules! require_python {
    () => {
        match $crate::program::interop_python() {
            Some(python) => python,
            None => {
                let reason =
                    "needs the Python packages of the interop tests; `cargo xtask setup` installs them";
                return $crate::skip::skip($crate::test_name!(), reason);
            }
        }
    };
}
