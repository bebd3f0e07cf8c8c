//! Rule `architecture`: ARCHITECTURE.md exists, stays short enough to be read, and describes every crate.

use super::tree::Tree;
use super::{Finding, arrows, manifest};

const RULE: &str = "architecture";
const LINES_MAX: usize = 300;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file("ARCHITECTURE.md") else {
        let message = "is missing; it is the map of this repository".to_owned();
        return vec![Finding {
            path: "ARCHITECTURE.md".to_owned(),
            line: 1,
            rule: RULE,
            message,
        }];
    };
    let mut findings = Vec::new();
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let message =
            format!("has {lines} lines, {LINES_MAX} at most; shorten it, details belong beside the code");
        findings.push(file.finding(LINES_MAX + 1, RULE, message));
    }
    // The table of arrows names every crate and tells about none.
    let prose: Vec<&str> = file
        .text
        .lines()
        .enumerate()
        .filter(|(index, _)| !arrows::is_drawing(&file.text, index + 1))
        .map(|(_, line)| line)
        .collect();
    for manifest in manifest::all(tree).0 {
        if !prose.iter().any(|line| names(line, &manifest.name)) {
            let message = format!(
                "does not tell what crate {} is for; add it to the code map",
                manifest.name
            );
            findings.push(file.finding(1, RULE, message));
        }
    }
    findings
}

/// Whether the line names exactly this; hyphens belong to names.
pub(super) fn names(line: &str, name: &str) -> bool {
    let part = |character: char| character.is_alphanumeric() || character == '_' || character == '-';
    line.match_indices(name).any(|(start, found)| {
        !line[..start].ends_with(part) && !line[start + found.len()..].starts_with(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_is_told_outside_the_drawing_by_its_whole_name() {
        let drawing = "packet-io here\n<!-- arrows -->\npacket ->\n<!-- /arrows -->\n";
        let files = [
            ("ARCHITECTURE.md", drawing),
            ("crates/packet/Cargo.toml", "[package]\nname = \"packet\"\n"),
        ];
        assert!(
            check(&Tree::of(&files))[0]
                .message
                .contains("crate packet is for")
        );
        let told = format!("`packet` is\n{drawing}");
        assert!(check(&Tree::of(&[("ARCHITECTURE.md", &told), files[1]])).is_empty());
    }

    #[test]
    fn a_missing_or_long_architecture_is_a_finding() {
        assert_eq!(check(&Tree::of(&[])).len(), 1);
        let long = "line\n".repeat(LINES_MAX + 1);
        assert_eq!(
            check(&Tree::of(&[("ARCHITECTURE.md", &long)]))[0].line,
            LINES_MAX + 1
        );
    }
}
