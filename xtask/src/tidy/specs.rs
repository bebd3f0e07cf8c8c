//! Rule `specs`: every numbered rule of `specs/*.md` is cited by a test, and what Rust files cite exists.
//!
//! A rule is a list item that begins with its number in bold, `- **SPLIT-4**`. A test cites it by the number, or by a range,
//! `SPLIT-4 to SPLIT-6`. Test code is what is below `tests/`, in a file `tests.rs`, or below `#[cfg(test)]`.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::{File, Tree};

const RULE: &str = "specs";
const TEST_MODULE: &str = "#[cfg(test)]";

/// A rule's number: `("SPLIT", 4)`.
type Number<'a> = (&'a str, u32);

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut rules: BTreeMap<Number<'_>, (&File, usize)> = BTreeMap::new();
    for file in tree.files.iter().filter(|file| is_specification(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(number) = defined(line) {
                rules.insert(number, (file, index + 1));
            }
        }
    }
    let prefixes: BTreeSet<&str> = rules.keys().map(|(prefix, _)| *prefix).collect();
    let mut tested = BTreeSet::new();
    let mut findings = Vec::new();
    for file in tree.rust() {
        let mut in_test = is_test_file(&file.path);
        for (index, line) in file.text.lines().enumerate() {
            in_test |= line.trim_start() == TEST_MODULE;
            for number in citations(line, &prefixes) {
                if !rules.contains_key(&number) {
                    let message = format!("{}-{} is no rule of specs/", number.0, number.1);
                    findings.push(file.finding(index + 1, RULE, message));
                } else if in_test {
                    tested.insert(number);
                }
            }
        }
    }
    for ((prefix, number), (file, line)) in rules {
        if !tested.contains(&(prefix, number)) {
            let message =
                format!("no test cites {prefix}-{number}; write one that can fail, or remove the rule");
            findings.push(file.finding(line, RULE, message));
        }
    }
    findings
}

fn is_specification(path: &str) -> bool {
    path.starts_with("specs/") && path.ends_with(".md")
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The number of the rule that a line of a specification begins with.
fn defined(line: &str) -> Option<Number<'_>> {
    let (number, _) = line.strip_prefix("- **")?.split_once("**")?;
    let (prefix, digits) = number.split_once('-')?;
    let is_prefix = !prefix.is_empty() && prefix.chars().all(|character| character.is_ascii_uppercase());
    Some((prefix, digits.parse().ok()?)).filter(|_| is_prefix)
}

/// The numbers that a line cites, ranges written out.
fn citations<'a>(line: &str, prefixes: &BTreeSet<&'a str>) -> Vec<Number<'a>> {
    let mut found = Vec::new();
    for prefix in prefixes {
        let mut last: Option<(u32, usize)> = None;
        for (start, text) in line.match_indices(prefix) {
            let is_part = line[..start].ends_with(|character: char| character.is_ascii_alphanumeric());
            let Some(rest) = line[start + text.len()..].strip_prefix('-').filter(|_| !is_part) else {
                continue;
            };
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let Ok(number) = rest[..digits].parse::<u32>() else {
                continue;
            };
            let first = match last {
                Some((before, end)) if &line[end..start] == " to " => before + 1,
                _ => number,
            };
            found.extend((first..=number).map(|number| (*prefix, number)));
            last = Some((number, start + text.len() + 1 + digits));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIFICATION: &str = "# Cutting\n\nCUT-9 in passing.\n\n- **CUT-1** One.\n- **CUT-2** Two.\n- **CUT-3** Three, by CUT-1.\n";

    fn lines(rust: &[(&str, &str)]) -> Vec<(String, usize)> {
        let files = [&[("specs/cut.md", SPECIFICATION)], rust].concat();
        let findings = check(&Tree::of(&files));
        findings
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect()
    }

    #[test]
    fn a_rule_that_no_test_cites_is_a_finding() {
        let spec = |line| ("specs/cut.md".to_owned(), line);
        assert_eq!(lines(&[]), [spec(5), spec(6), spec(7)]);
        let code = "//! Obeys CUT-1.\n#[cfg(test)]\nmod tests {\n    /// CUT-2.\n}\n";
        assert_eq!(lines(&[("crates/a/src/a.rs", code)]), [spec(5), spec(7)]);
    }

    #[test]
    fn tests_cite_one_rule_several_or_a_range() {
        for text in [
            "/// CUT-1 to CUT-3.",
            "// CUT-1, CUT-2 and CUT-3",
            "// CUT-1 to CUT-2, CUT-3",
        ] {
            for path in ["crates/a/tests/a.rs", "crates/a/src/cut/tests.rs"] {
                assert_eq!(lines(&[(path, text)]), [], "{text}");
            }
        }
        assert_eq!(lines(&[("crates/a/tests/a.rs", "// CUT-1, CUT-3")]).len(), 1);
        assert_eq!(
            lines(&[("crates/a/tests/a.rs", "// SHORTCUT-1 to CUT-3")]).len(),
            2
        );
    }

    #[test]
    fn a_citation_of_a_rule_that_is_gone_is_a_finding() {
        let found = lines(&[("crates/a/tests/a.rs", "// CUT-1 to CUT-3\n\n// CUT-12")]);
        assert_eq!(found, [("crates/a/tests/a.rs".to_owned(), 3)]);
    }
}
