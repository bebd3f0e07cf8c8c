//! Rule `file-shape`: every Rust file opens by saying what it owns, and is short or has a reason on record.

use std::collections::BTreeMap;

use super::Finding;
use super::tree::Tree;

const RULE: &str = "file-shape";
const LINES_MAX: usize = 800;
/// Lines `PATH: REASON`.
const REASONS: &str = "xtask/long-files.txt";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let record = tree.file(REASONS);
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, line) in record.map_or("", |file| file.text.as_str()).lines().enumerate() {
        match line.split_once(": ") {
            _ if line.trim().is_empty() || line.starts_with('#') => {}
            Some((path, reason)) if !reason.trim().is_empty() => {
                reasons.insert(path, index + 1);
            }
            _ => findings.extend(record.map(|file| file.finding(index + 1, RULE, "write `PATH: REASON`"))),
        }
    }
    for file in tree.rust().filter(|file| file.crate_name().is_some()) {
        if !file.text.starts_with("//! ") {
            let message = "does not open with `//!`; say in a sentence or two what the file owns and decides";
            findings.push(file.finding(1, RULE, message));
        }
        let lines = file.text.lines().count();
        if lines > LINES_MAX && reasons.remove(file.path.as_str()).is_none() {
            let message = format!(
                "has {lines} lines, {LINES_MAX} at most; move the second thing it owns to a file of its own, or put \
                 the reason into {REASONS}"
            );
            findings.push(file.finding(LINES_MAX + 1, RULE, message));
        }
    }
    // What is left has become short or has gone.
    for (path, line) in reasons {
        let message = format!("{path} needs no reason; remove the line");
        findings.extend(record.map(|file| file.finding(line, RULE, message.as_str())));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long() -> String {
        format!("//! Owns.\n{}", "\n".repeat(LINES_MAX))
    }

    #[test]
    fn a_file_opens_with_its_story() {
        let found = check(&Tree::of(&[
            ("crates/a/src/lib.rs", "use a;\n"),
            ("xtask/src/main.rs", "//! Owns.\n"),
        ]));
        assert_eq!((found.len(), found[0].line), (1, 1));
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = long();
        let files = [
            ("crates/a/src/lib.rs", long.as_str()),
            (REASONS, "crates/a/src/lib.rs: one big table\n"),
        ];
        assert!(check(&Tree::of(&files)).is_empty());
        assert_eq!(check(&Tree::of(&files[..1])).len(), 1);
    }

    #[test]
    fn a_stale_or_empty_reason_is_a_finding() {
        let found = check(&Tree::of(&[(
            REASONS,
            "# comment\ncrates/gone.rs: was long\ncrates/b.rs:\n",
        )]));
        assert_eq!(
            found.iter().map(|finding| finding.line).collect::<Vec<_>>(),
            [3, 2]
        );
    }
}
