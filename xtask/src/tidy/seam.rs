//! Rule `seam`: quinn-proto is the core of `quic` and nobody else sees it, so that it could be exchanged.
//!
//! Only the files listed here name it; of these, the ones of `quic` name none of its types in what other crates see:
//! public items ([`public_items`]) and implementations of traits for public types.

use std::collections::BTreeSet;
use std::ops::Range;

use super::imports::names_from;
use super::rust_code::{code_only, end_of, line_at, lines_with, positions_of};
use super::tree::{File, Tree};
use super::{Finding, manifest, public_items};

const RULE: &str = "seam";

/// The core, as manifests and as sources name it.
const CORE_PACKAGE: &str = "quinn-proto";
const CORE_LIBRARY: &str = "quinn_proto";

/// Where the crate lives whose public items are checked.
const OWNER: &str = "crates/quic/src/";

/// Crates whose manifests may name the core.
const CRATES: [&str; 2] = ["bench", "quic"];

/// Files that may name the core.
const FILES: [&str; 20] = [
    // Ours is measured beside the bare core.
    "crates/bench/src/floor/bare.rs",
    "crates/quic/src/congestion.rs",
    "crates/quic/src/connection.rs",
    "crates/quic/src/connection_id.rs",
    "crates/quic/src/endpoint.rs",
    "crates/quic/src/endpoint/connecting.rs",
    "crates/quic/src/endpoint/events.rs",
    "crates/quic/src/endpoint/incoming.rs",
    "crates/quic/src/endpoint/receiving.rs",
    "crates/quic/src/endpoint/streams.rs",
    "crates/quic/src/endpoint/strangers.rs",
    "crates/quic/src/front_door/recognised.rs",
    "crates/quic/src/front_door/session.rs",
    "crates/quic/src/tls.rs",
    "crates/quic/src/tls/accepted.rs",
    "crates/quic/src/tls/quinn.rs",
    "crates/quic/src/trace.rs",
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
    let owned = tree.rust().filter(|file| file.path.starts_with(OWNER));
    let owned: Vec<String> = owned.map(|file| code_only(&file.text)).collect();
    let types: BTreeSet<&str> = owned
        .iter()
        .flat_map(|code| public_items::type_names(code))
        .collect();
    for file in tree.rust() {
        let code = code_only(&file.text);
        let named = lines_with(&code, CORE_LIBRARY);
        if !FILES.contains(&file.path.as_str()) {
            let message = format!(
                "names {CORE_PACKAGE}; use `quic`'s own types, or list the file in xtask/src/tidy/seam.rs"
            );
            findings.extend(named.iter().map(|line| file.finding(*line, RULE, &*message)));
        } else if file.path.starts_with(OWNER) {
            findings.extend(shown_types(file, &code, &types));
        }
    }
    findings
}

/// Shown items that name the core, what is imported from it, or a private alias of that. `types` are the public types
/// of the crate.
fn shown_types(file: &File, code: &str, types: &BTreeSet<&str>) -> Vec<Finding> {
    let mut names = names_from(code, CORE_LIBRARY);
    if names.contains(&"*") {
        let message =
            format!("imports everything of {CORE_PACKAGE}; name the types, so that this rule knows them");
        let line = lines_with(code, CORE_LIBRARY).first().copied().unwrap_or(1);
        return vec![file.finding(line, RULE, message)];
    }
    names.push(CORE_LIBRARY);
    add_aliases(code, &mut names);
    let mut items = public_items::shown(code);
    items.extend(implementations(code, types));
    let mut findings = Vec::new();
    for parts in items {
        let named = |name: &&str| parts.iter().find_map(|part| position_in(code, part, name));
        if let Some((position, name)) = names.iter().find_map(|name| Some((named(name)?, name))) {
            let message = format!(
                "a public item shows `{name}` of {CORE_PACKAGE}; give `quic` a type of its own and convert it in translate.rs"
            );
            findings.push(file.finding(line_at(code, position), RULE, message));
        }
    }
    findings
}

/// Where `part` of the code names something by its own name; a module is named where a path goes through it.
fn position_in(code: &str, part: &Range<usize>, name: &str) -> Option<usize> {
    let text = &code[part.clone()];
    let is_type = name.starts_with(char::is_uppercase) || name == CORE_LIBRARY;
    positions_of(text, name)
        .find(|start| {
            is_type || (text[start + name.len()..].starts_with("::") && !text[..*start].ends_with("::"))
        })
        .map(|start| part.start + start)
}

/// Adds the names of the file's type aliases whose value names the core; an alias may stand for another.
fn add_aliases<'a>(code: &'a str, names: &mut Vec<&'a str>) {
    let aliases: Vec<(&str, Range<usize>)> = positions_of(code, "type")
        .filter(|start| {
            let line = code[..*start].rfind('\n').map_or(0, |end| end + 1);
            let before = &code[line..*start];
            before.is_empty() || before.starts_with("pub(")
        })
        .filter_map(|start| {
            let words = &code[start + "type".len()..];
            let name = words
                .trim_start()
                .split(|character: char| !character.is_alphanumeric())
                .next()?;
            Some((name, start..end_of(code, start, b";")))
        })
        .collect();
    loop {
        let known = names.len();
        for (name, value) in &aliases {
            let names_core = names
                .iter()
                .any(|known| position_in(code, value, known).is_some());
            if names_core && !names.contains(name) {
                names.push(name);
            }
        }
        if names.len() == known {
            return;
        }
    }
}

/// What implementations of traits that concern one of `types` show: their head and associated types.
fn implementations(code: &str, types: &BTreeSet<&str>) -> Vec<Vec<Range<usize>>> {
    let mut items = Vec::new();
    for start in positions_of(code, "impl") {
        let line = code[..start].rfind('\n').map_or(0, |end| end + 1);
        if !matches!(code[line..start].trim(), "" | "unsafe") {
            continue;
        }
        let head = start..end_of(code, start, b"{;");
        let text = &code[head.clone()];
        let concerns = |name: &&str| positions_of(text, name).next().is_some();
        if positions_of(text, "for").next().is_none() || !types.iter().any(concerns) {
            continue;
        }
        let body = head.end..end_of(code, (head.end + 1).min(code.len()), b"");
        let associated = positions_of(&code[body.clone()], "type")
            .map(|at| body.start + at)
            .map(|at| at..end_of(code, at, b";"));
        items.push([head].into_iter().chain(associated).collect());
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        Tree::of(&[(path, text)]).lines_found(check)
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
            // Brackets with a semicolon or a comma before the name.
            "use quinn_proto::Dir;\npub fn a(b: [u8; 4], c: Dir) {}\n",
            "use quinn_proto::Dir;\npub struct A {\n    pub b: Map<u8, Dir>,\n}\n",
            "use quinn_proto::Dir;\npub const A: [Option<Dir>; 2] = [None; 2];\n",
            "use quinn_proto::Dir;\npub type A = ([u8; 4], Dir);\n",
            // Generics and their bounds.
            "use quinn_proto::Dir;\npub struct A<B: Into<Dir>> {\n    b: B,\n}\n",
            "use quinn_proto::Dir;\npub fn a<B>(b: B)\nwhere\n    B: Fn(Dir),\n{\n}\n",
            // Variants, traits, fields of tuples.
            "use quinn_proto::Dir;\npub enum A {\n    B,\n    C(u8, Dir),\n}\n",
            "use quinn_proto::Dir;\npub enum A {\n    B { c: u8, d: Option<Dir> },\n}\n",
            "use quinn_proto::Dir;\npub trait A: From<Dir> {}\n",
            "use quinn_proto::Dir;\npub trait A {\n    fn b(&self) {\n        c();\n    }\n    fn d(&self) -> Dir;\n}\n",
            "use quinn_proto::Dir;\npub struct A(u8, pub Option<Dir>);\n",
            // By other names, and by implementations.
            "use quinn_proto as core;\npub fn a() -> core::Dir {}\n",
            "use quinn_proto::{congestion, crypto::rustls::{self}};\npub fn a(b: congestion::Controller) {}\n",
            "use quinn_proto::Dir;\npub(crate) type Way = Option<Dir>;\ntype Ways = Vec<Way>;\npub fn a() -> Ways {}\n",
            "use quinn_proto::*;\n",
            "use quinn_proto::Dir;\npub struct A;\nimpl From<Dir> for A {\n    fn from(_: Dir) -> A {}\n}\n",
            "use quinn_proto::Dir;\npub struct A;\nimpl Iterator for A {\n    type Item = Dir;\n}\n",
        ] {
            assert_eq!(lines(path, shown).len(), 1, "{shown}");
            assert!(lines("crates/bench/src/floor/bare.rs", shown).is_empty());
        }
        let far = "use quinn_proto::Dir;\npub enum A {\n    B,\n    C(\n        Dir,\n    ),\n}\n";
        assert_eq!(lines(path, far), [5]);
        for hidden in [
            "use quinn_proto::Dir;\npub(crate) fn a(dir: Dir) {}\n",
            "use quinn_proto::Dir;\npub fn a(dir: u8) {\n    Dir::Bi\n}\n",
            "pub struct A {\n    dir: quinn_proto::Dir,\n}\n",
            "pub struct A(quinn_proto::Dir);\n",
            "use quinn_proto::Dir;\npub struct A {\n    pub dir: Direction,\n    way: Dir,\n}\n",
            "use quinn_proto::Dir;\npub enum A {\n    Dir,\n    B(u8),\n}\n",
            "use quinn_proto::Dir;\npub trait A {\n    fn b(&self) {\n        Dir::Bi;\n    }\n}\n",
            "use quinn_proto::Dir;\nuse crate::Direction as Way;\npub const A: Way = Dir::Bi;\n",
            "use quinn_proto::congestion;\npub fn congestion() {}\npub fn a(b: crate::congestion::Phase) {}\n",
            "use quinn_proto::Dir;\nstruct A;\nimpl From<Dir> for A {\n    fn from(_: Dir) -> A {}\n}\n",
            "use quinn_proto::Dir;\npub struct A;\nimpl A {\n    fn b(&self) -> Dir {}\n}\n",
        ] {
            assert!(lines(path, hidden).is_empty(), "{hidden}");
        }
    }
}
