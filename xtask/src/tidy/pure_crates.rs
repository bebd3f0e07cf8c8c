//! Rule `pure`: the crates that hold protocol logic do no I/O, read no clock and draw no randomness of their own.
//!
//! Their manifests name no I/O crate and their sources, tests included, none of the words below; only tests may read
//! files, for fixtures. `Instant` has no constructor but the clock, so a test that needs a first instant says so by
//! `tidy-allow(pure): REASON`.

use super::rust_code::{code_only, lines_with};
use super::test_code::TestCode;
use super::tree::{File, Tree};
use super::{Finding, manifest};

const RULE: &str = "pure";

/// The crates that are pure.
pub(crate) const PURE_CRATES: [&str; 10] = [
    "packet",
    "fake-tcp",
    "reality",
    "quic",
    "masque",
    "peer-proto",
    "files-proto",
    "repair",
    "tunnel-proto",
    "sim",
];

/// Crates that do I/O or stand above the pure ones.
const IO_CRATES: [&str; 22] = [
    "async-std",
    "bench",
    "crossbeam-channel",
    "gramway",
    "host",
    "hyper",
    "libc",
    "mio",
    "nix",
    "packet-io",
    "peer",
    "polling",
    "quinn",
    "quinn-udp",
    "reqwest",
    "rustix",
    "signal-hook",
    "smol",
    "socket2",
    "testbed",
    "tokio",
    "tunnel",
];

/// Words of clocks, sockets, threads, processes and ambient randomness.
const IMPURE_WORDS: [&str; 20] = [
    "Instant::now",
    "SystemTime::now",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "UnixStream",
    "UnixListener",
    "UnixDatagram",
    "ToSocketAddrs",
    "std::process",
    "thread::sleep",
    "thread::spawn",
    "thread::scope",
    "stdin",
    "rand::rng",
    "rand::random",
    "thread_rng",
    "OsRng",
    "from_os_rng",
    "from_entropy",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifest::all(tree)
        .0
        .iter()
        .filter(|manifest| PURE_CRATES.contains(&manifest.name.as_str()))
    {
        for dependency in &manifest.dependencies {
            if IO_CRATES.contains(&dependency.name.as_str()) {
                let message = format!(
                    "pure crate {} depends on {}; move what needs it to `tunnel` or `packet-io`",
                    manifest.name, dependency.name
                );
                findings.push(manifest.file.finding(dependency.line, RULE, message));
            }
        }
    }
    let pure = |file: &&File| file.crate_name().is_some_and(|name| PURE_CRATES.contains(&name));
    let test_code = TestCode::of(tree);
    for file in tree.rust().filter(pure) {
        findings.extend(impure_words(file, &test_code));
    }
    findings
}

fn impure_words(file: &File, test_code: &TestCode) -> Vec<Finding> {
    let code = code_only(&file.text);
    let test_lines = test_code.lines(file, &code);
    let words = IMPURE_WORDS
        .iter()
        .flat_map(|word| lines_with(&code, word).into_iter().map(move |line| (*word, line)));
    let files = ["std::fs", "fs::read", "fs::read_to_string", "File::open"]
        .iter()
        .flat_map(|word| lines_with(&code, word).into_iter().map(move |line| (*word, line)))
        .filter(|(_, line)| !test_lines.contains(*line));
    words
        .chain(files)
        .filter(|(_, line)| !file.allows(*line, RULE))
        .map(|(word, line)| {
            let message =
                format!("`{word}` in a pure crate; take the time, the bytes or the seed as a parameter");
            file.finding(line, RULE, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(source: &str) -> Vec<usize> {
        Tree::of(&[("crates/quic/src/a.rs", source)]).lines_found(check)
    }

    #[test]
    fn a_clock_is_found_in_tests_too() {
        assert_eq!(
            lines("let now = Instant::now();\n#[cfg(test)]\nlet now = std::time::Instant::now();\n"),
            [1, 3]
        );
        assert_eq!(lines("// Instant::now is not read here\n"), [0; 0]);
    }

    #[test]
    fn an_exemption_with_a_reason_counts() {
        assert_eq!(
            lines("// tidy-allow(pure): first instant of virtual time\nlet base = Instant::now();\n"),
            [0; 0]
        );
    }

    #[test]
    fn only_tests_read_files() {
        assert_eq!(
            lines("use std::fs;\n#[cfg(test)]\nmod tests { use std::fs; }\n"),
            [1]
        );
        assert_eq!(lines("#[cfg(test)]\nmod tests;\nuse std::fs;\n"), [3]);
        assert!(check(&Tree::of(&[("crates/quic/tests/a.rs", "use std::fs;")])).is_empty());
    }

    #[test]
    fn other_crates_may_do_all_this() {
        assert!(
            check(&Tree::of(&[(
                "crates/tunnel/src/a.rs",
                "Instant::now(); UdpSocket"
            )]))
            .is_empty()
        );
    }

    #[test]
    fn an_io_dependency_is_found() {
        let text = "[package]\nname = \"masque\"\n[dev-dependencies]\ntokio = \"1\"\nbytes = \"1\"\n";
        let found = check(&Tree::of(&[("crates/masque/Cargo.toml", text)]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].rule), (4, "pure"));
    }
}
