//! Rule `seam`: quinn-proto is the core of `quic` and nobody else sees it, so that it could be exchanged.
//!
//! Only the files listed here name it; of these, the ones of `quic` name none of its types in a public item.

use super::rust_code::{code_only, lines_with};
use super::tree::{File, Tree};
use super::{Finding, manifest};

const RULE: &str = "seam";

/// The core, as manifests and as sources name it.
const CORE_PACKAGE: &str = "quinn-proto";
const CORE_LIBRARY: &str = "quinn_proto";

/// Where the crate lives whose public items are checked.
const OWNER: &str = "crates/quic/src/";

/// Crates whose manifests may name the core.
const CRATES: [&str; 2] = ["bench", "quic"];

/// Files that may name the core.
const FILES: [&str; 14] = [
    // Ours is measured beside the bare core.
    "crates/bench/src/floor/bare.rs",
    "crates/quic/src/congestion.rs",
    "crates/quic/src/connection.rs",
    "crates/quic/src/connection_id.rs",
    "crates/quic/src/endpoint.rs",
    "crates/quic/src/endpoint/events.rs",
    "crates/quic/src/endpoint/incoming.rs",
    "crates/quic/src/endpoint/receiving.rs",
    "crates/quic/src/endpoint/streams.rs",
    "crates/quic/src/endpoint/timers.rs",
    "crates/quic/src/tls.rs",
    "crates/quic/src/translate.rs",
    "crates/quic/src/transport.rs",
    // Plays a client that is not ours.
    "crates/quic/tests/behaviour/foreign.rs",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifest::all(tree).0 {
        if CRATES.contains(&manifest.name.as_str()) {
            continue;
        }
        for dependency in &manifest.dependencies {
            if dependency.name == CORE_PACKAGE {
                let message = format!(
                    "{} depends on {CORE_PACKAGE}; use the types of `quic`",
                    manifest.name
                );
                findings.push(manifest.file.finding(dependency.line, RULE, message));
            }
        }
    }
    for file in tree.rust() {
        let code = code_only(&file.text);
        let named = lines_with(&code, CORE_LIBRARY);
        if !FILES.contains(&file.path.as_str()) {
            let message = format!(
                "names {CORE_PACKAGE}; use `quic`'s own types, or list the file in xtask/src/tidy/seam.rs"
            );
            findings.extend(named.iter().map(|line| file.finding(*line, RULE, &*message)));
        } else if file.path.starts_with(OWNER) {
            findings.extend(shown_types(file, &code));
        }
    }
    findings
}

/// Public items whose signature names the core or what is imported from it.
fn shown_types(file: &File, code: &str) -> Vec<Finding> {
    let mut names = vec![CORE_LIBRARY];
    for (start, _) in code.match_indices("use quinn_proto::") {
        let import = code[start..].split(';').next().unwrap_or_default();
        let words = import.split(|character: char| !character.is_alphanumeric() && character != '_');
        names.extend(words.filter(|word| word.starts_with(char::is_uppercase)));
    }
    let mut findings = Vec::new();
    for (index, signature) in public_signatures(code) {
        if let Some(name) = names.iter().find(|name| !lines_with(&signature, name).is_empty()) {
            let message = format!(
                "a public item shows `{name}` of {CORE_PACKAGE}; give `quic` a type of its own and convert it in translate.rs"
            );
            findings.push(file.finding(index + 1, RULE, message));
        }
    }
    findings
}

/// The signature of each item and field that is `pub` without restriction, with the index of its first line.
fn public_signatures(code: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = code.lines().collect();
    let begins = |line: &str| line.trim_start().starts_with("pub ");
    let indices = lines.iter().enumerate().filter(|(_, line)| begins(line));
    indices
        .map(|(index, line)| {
            let item = line.trim_start();
            let is_function = item.split('(').next().is_some_and(|head| head.contains(" fn "));
            // An import's braces and a function's commas belong to it.
            let ends: &[char] = if item.starts_with("pub use ") {
                &[';']
            } else if is_function {
                &['{', ';']
            } else if item.starts_with("pub struct ") {
                &['{', '(', ';']
            } else {
                &['{', ',', ';']
            };
            let rest = lines[index..].join("\n");
            (index, rest.split(ends).next().unwrap_or_default().to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn only_listed_files_and_crates_name_the_core() {
        let source = "// quinn_proto\nuse quinn_proto::Dir;\n";
        assert_eq!(lines("crates/tunnel/src/lib.rs", source), [2]);
        assert_eq!(lines("crates/quic/src/event.rs", source), [2]);
        assert!(lines("crates/quic/src/translate.rs", source).is_empty());
        assert!(lines("crates/bench/src/floor/bare.rs", source).is_empty());
        let manifest = |name: &str| {
            format!("[package]\nname = \"{name}\"\n[dependencies]\nquinn-proto.workspace = true\n")
        };
        assert_eq!(lines("crates/tunnel/Cargo.toml", &manifest("tunnel")), [4]);
        assert!(lines("crates/quic/Cargo.toml", &manifest("quic")).is_empty());
    }

    #[test]
    fn public_items_of_listed_files_show_none_of_its_types() {
        let path = "crates/quic/src/endpoint.rs";
        for shown in [
            "pub use quinn_proto::{Dir, Side};\n",
            "use quinn_proto::Dir;\npub fn a(\n    x: u8,\n    dir: Dir,\n) {}\n",
            "use quinn_proto::{A, Dir as Way};\npub const fn a() -> Way {}\n",
            "pub struct A {\n    pub dir: quinn_proto::Dir,\n}\n",
            "pub type A = quinn_proto::Dir;\n",
        ] {
            assert_eq!(lines(path, shown).len(), 1, "{shown}");
        }
        for hidden in [
            "use quinn_proto::Dir;\npub(crate) fn a(dir: Dir) {}\n",
            "use quinn_proto::Dir;\npub fn a(dir: u8) {\n    Dir::Bi\n}\n",
            "pub struct A {\n    dir: quinn_proto::Dir,\n}\n",
            "pub struct A(quinn_proto::Dir);\n",
            "use quinn_proto::Dir;\npub struct A {\n    pub dir: Direction,\n    way: Dir,\n}\n",
        ] {
            assert!(lines(path, hidden).is_empty(), "{hidden}");
        }
    }
}
