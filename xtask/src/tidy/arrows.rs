//! Rule `arrows`: crates depend on each other exactly as ARCHITECTURE.md draws it.
//!
//! The drawing is a table between two markers, top of the house first:
//! ```text
//! <!-- arrows -->
//! tunnel -> quic packet; dev: sim
//! …
//! <!-- /arrows -->
//! ```
//! Each line names a crate, what it depends on, and what its tests depend on besides; `dev: *` lets tests use any crate
//! below. A crate may only depend on crates further down. Every dependency must be drawn and every arrow must exist.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::manifest::{self, Manifest};
use super::tree::{File, Tree};

const RULE: &str = "arrows";
const START: &str = "<!-- arrows -->";
const END: &str = "<!-- /arrows -->";

struct Row<'text> {
    name: &'text str,
    line: usize,
    normal: BTreeSet<&'text str>,
    dev: BTreeSet<&'text str>,
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let (manifests, mut findings) = manifest::all(tree);
    // The rule on ARCHITECTURE.md itself reports a missing file.
    let Some(drawing) = tree.file("ARCHITECTURE.md") else {
        return findings;
    };
    let rows = match rows(drawing) {
        Ok(rows) => rows,
        Err(finding) => {
            findings.push(*finding);
            return findings;
        }
    };
    findings.extend(directions(drawing, &rows));
    let names: BTreeSet<&str> = manifests.iter().map(|manifest| manifest.name.as_str()).collect();
    let drawn: BTreeMap<&str, &Row<'_>> = rows.iter().map(|row| (row.name, row)).collect();
    for manifest in &manifests {
        match drawn.get(manifest.name.as_str()) {
            Some(row) => findings.extend(compare(drawing, row, manifest, &names)),
            None => findings.push(manifest.file.finding(
                1,
                RULE,
                format!(
                    "crate {} is not among the arrows of ARCHITECTURE.md; add its line there",
                    manifest.name
                ),
            )),
        }
    }
    for row in rows.iter().filter(|row| !names.contains(row.name)) {
        let message = format!(
            "there is no crate {}; remove the line or create the crate",
            row.name
        );
        findings.push(drawing.finding(row.line, RULE, message));
    }
    findings
}

/// Whether a line (from 1) of ARCHITECTURE.md belongs to the drawing.
pub(super) fn is_drawing(text: &str, line: usize) -> bool {
    let place = |marker| {
        text.lines()
            .position(|text| text.trim() == marker)
            .map(|index| index + 1)
    };
    place(START).is_some_and(|start| line > start) && place(END).is_some_and(|end| line < end)
}

fn rows(drawing: &File) -> Result<Vec<Row<'_>>, Box<Finding>> {
    let mut rows = Vec::new();
    for (index, text) in drawing.text.lines().enumerate() {
        let text = text.trim();
        if !is_drawing(&drawing.text, index + 1) || text.is_empty() || text.starts_with("```") {
            continue;
        }
        let Some((name, targets)) = text.split_once("->") else {
            let message = format!("\"{text}\" is no arrow; write `crate -> below below; dev: below`");
            return Err(Box::new(drawing.finding(index + 1, RULE, message)));
        };
        let (normal, dev) = targets.split_once("; dev:").unwrap_or((targets, ""));
        rows.push(Row {
            name: name.trim(),
            line: index + 1,
            normal: words(normal),
            dev: words(dev),
        });
    }
    if rows.is_empty() {
        let message = format!("has no arrows; draw them between {START} and {END}");
        return Err(Box::new(drawing.finding(1, RULE, message)));
    }
    Ok(rows)
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// Arrows must point to lines further down.
fn directions(drawing: &File, rows: &[Row<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        for target in row.normal.iter().chain(&row.dev).filter(|target| **target != "*") {
            if !rows[index + 1..].iter().any(|below| below.name == *target) {
                let message = format!("{} -> {target} does not point to a line further down", row.name);
                findings.push(drawing.finding(row.line, RULE, message));
            }
        }
    }
    findings
}

fn compare(drawing: &File, row: &Row<'_>, manifest: &Manifest<'_>, names: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let inside: Vec<_> = manifest
        .dependencies
        .iter()
        .filter(|item| names.contains(item.name.as_str()))
        .collect();
    for dependency in &inside {
        let name = dependency.name.as_str();
        // Tests may use whatever the crate itself uses.
        let drawn =
            row.normal.contains(name) || dependency.dev && (row.dev.contains(name) || row.dev.contains("*"));
        if !drawn {
            let message = format!(
                "{} -> {name} is not drawn in ARCHITECTURE.md; remove the dependency, or draw it if the design has \
                 changed",
                manifest.name
            );
            findings.push(manifest.file.finding(dependency.line, RULE, message));
        }
    }
    let exists = |target: &str, dev: bool| inside.iter().any(|item| item.name == target && item.dev == dev);
    let drawn = row
        .normal
        .iter()
        .map(|target| (target, false))
        .chain(row.dev.iter().map(|target| (target, true)));
    for (target, dev) in drawn.filter(|(target, _)| **target != "*") {
        if !exists(target, dev) {
            let message = format!(
                "{} -> {target} is drawn but {} lacks it",
                row.name, manifest.file.path
            );
            findings.push(drawing.finding(row.line, RULE, message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: &str = "[package]\nname = \"top\"\n[dependencies]\nlow.workspace = true\nserde = \"1\"\n";
    const LOW: &str = "[package]\nname = \"low\"\n";

    fn findings(arrows: &str, top: &str, low: &str) -> Vec<String> {
        let drawing = format!("# A\n{START}\n```text\n{arrows}\n```\n{END}\n");
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", &drawing),
            ("crates/low/Cargo.toml", low),
            ("crates/top/Cargo.toml", top),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn dependencies_as_drawn_pass() {
        assert_eq!(findings("top -> low\nlow ->", TOP, LOW), Vec::<String>::new());
    }

    #[test]
    fn an_undrawn_dependency_is_found_in_its_manifest() {
        let found = findings("top ->\nlow ->", TOP, LOW);
        assert!(
            found[0].starts_with("crates/top/Cargo.toml:4: [arrows] top -> low is not drawn"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_drawn_arrow_without_dependency_is_found_in_the_drawing() {
        let found = findings("top -> low\nlow ->", "[package]\nname = \"top\"\n", LOW);
        assert_eq!(
            found,
            ["ARCHITECTURE.md:4: [arrows] top -> low is drawn but crates/top/Cargo.toml lacks it"]
        );
    }

    #[test]
    fn an_arrow_may_not_point_up() {
        let found = findings("low ->\ntop -> low", TOP, LOW);
        assert_eq!(
            found,
            ["ARCHITECTURE.md:5: [arrows] top -> low does not point to a line further down"]
        );
    }

    #[test]
    fn crates_and_lines_must_match() {
        let found = findings("top -> low\ngone ->", TOP, LOW);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].contains("crate low is not among the arrows"));
        assert!(found[2].contains("there is no crate gone"));
    }

    #[test]
    fn dev_arrows_are_apart_and_may_be_open() {
        let dev = TOP.replace("[dependencies]", "[dev-dependencies]");
        assert_eq!(
            findings("top -> ; dev: low\nlow ->", &dev, LOW),
            Vec::<String>::new()
        );
        assert_eq!(
            findings("top -> ; dev: *\nlow ->", &dev, LOW),
            Vec::<String>::new()
        );
        assert_eq!(findings("top -> ; dev: *\nlow ->", TOP, LOW).len(), 1);
    }

    #[test]
    fn a_missing_or_broken_drawing_is_a_finding() {
        assert!(findings("", TOP, LOW)[0].contains("has no arrows"));
        assert!(findings("top low", TOP, LOW)[0].contains("is no arrow"));
    }
}
