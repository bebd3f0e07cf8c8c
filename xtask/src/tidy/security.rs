//! Rule `security`: each line of the threat model in SECURITY.md names tests that show it, and they exist.
//!
//! A threat model is every table whose last column is headed `tests`. A test is a function under `#[test]`.

use std::collections::BTreeSet;

use super::Finding;
use super::rust_code::code_only;
use super::tree::{File, Tree};

const RULE: &str = "security";
const FILE: &str = "SECURITY.md";
const MARKER: &str = "#[test]";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file(FILE) else {
        return Vec::new();
    };
    let tests: BTreeSet<String> = tree.rust().flat_map(tests).collect();
    let mut findings = Vec::new();
    for (line, cell) in cells(&file.text) {
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            let message = "no test is named; name one that shows this line";
            findings.push(file.finding(line, RULE, message));
        }
        for name in named.into_iter().filter(|name| !tests.contains(*name)) {
            let message = format!("there is no test {name}; name one that shows this line");
            findings.push(file.finding(line, RULE, message));
        }
    }
    findings
}

/// Lines (from 1) and last cells of the rows of all threat models.
fn cells(text: &str) -> Vec<(usize, &str)> {
    let (mut is_model, mut found) = (false, Vec::new());
    for (index, line) in text.lines().enumerate() {
        let Some((_, last)) = line.strip_suffix('|').and_then(|row| row.rsplit_once('|')) else {
            is_model = false;
            continue;
        };
        match last.trim() {
            "tests" => is_model = true,
            "---" => {}
            cell if is_model => found.push((index + 1, cell)),
            _ => {}
        }
    }
    found
}

/// The names of a file's tests.
fn tests(file: &File) -> Vec<String> {
    let code = code_only(&file.text);
    let named = code.split(MARKER).skip(1).filter_map(|rest| {
        let (_, item) = rest.split_once("fn ")?;
        let name = item
            .split(|character: char| !character.is_alphanumeric() && character != '_')
            .next()?;
        Some(name.to_owned())
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rows: &str) -> Vec<(usize, String)> {
        let text = format!(
            "| attack | what holds | tests |\n|---|---|---|\n{rows}\n\n| a | b |\n|---|---|\n| c | d |\n"
        );
        let code = "fn helper() {}\n#[test]\n/// Why.\n#[ignore]\nfn it_holds() {}\n";
        let findings = check(&Tree::of(&[(FILE, &text), ("crates/a/tests/a.rs", code)]));
        let told = findings
            .into_iter()
            .map(|finding| (finding.line, finding.message));
        told.collect()
    }

    #[test]
    fn a_line_with_a_test_that_exists_is_shown() {
        assert_eq!(found("| to ask | nobody answers | `it_holds` |"), []);
    }

    #[test]
    fn a_line_without_a_test_and_one_whose_test_is_gone_are_findings() {
        let rows = "| to ask | `it_holds` | |\n| to ask | b | `it_holds`, `helper` |";
        let told = found(rows);
        let lines: Vec<usize> = told.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4]);
        assert!(told[1].1.contains("helper"), "{told:?}");
    }
}
