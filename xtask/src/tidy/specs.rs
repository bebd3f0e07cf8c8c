//! Rule `specs`: every numbered rule of `specs/*.md` is cited by a test, and what Rust files cite exists.
//!
//! A rule is a list item that begins with its number in bold, `- **SPLIT-4**`; a number stands for one rule. A test
//! cites it by the number, or by a range, `SPLIT-4 to SPLIT-6`. What is test code is decided in [`super::test_code`].

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::rust_code::code_only;
use super::test_code::TestCode;
use super::tree::{File, Tree};

const RULE: &str = "specs";

/// A rule's number: `("SPLIT", 4)`.
type Number<'a> = (&'a str, u32);

/// Where each rule stands.
type Rules<'a> = BTreeMap<Number<'a>, (&'a File, usize)>;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rules = rules(tree, &mut findings);
    let prefixes: BTreeSet<&str> = rules.keys().map(|(prefix, _)| *prefix).collect();
    let test_code = TestCode::of(tree);
    let mut tested = BTreeSet::new();
    for file in tree.rust() {
        let test_lines = test_code.lines(file, &code_only(&file.text));
        for (index, line) in file.text.lines().enumerate() {
            for number in citations(line, &prefixes) {
                if !rules.contains_key(&number) {
                    let message = format!("{}-{} is no rule of specs/", number.0, number.1);
                    findings.push(file.finding(index + 1, RULE, message));
                } else if test_lines.contains(index + 1) {
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

/// All rules; a second one with the same number is a finding.
fn rules<'a>(tree: &'a Tree, findings: &mut Vec<Finding>) -> Rules<'a> {
    let mut rules = Rules::new();
    for file in tree.files.iter().filter(|file| is_specification(&file.path)) {
        for (index, line) in file.text.lines().enumerate() {
            let Some(number) = defined(line) else { continue };
            match rules.entry(number) {
                Entry::Vacant(entry) => {
                    entry.insert((file, index + 1));
                }
                Entry::Occupied(entry) => {
                    let (first, at) = entry.get();
                    let message = format!(
                        "{}-{} is the rule in {}:{at} already; give this one a number of its own",
                        number.0, number.1, first.path
                    );
                    findings.push(file.finding(index + 1, RULE, message));
                }
            }
        }
    }
    rules
}

fn is_specification(path: &str) -> bool {
    path.starts_with("specs/") && path.ends_with(".md")
}

/// The number of the rule that a line of a specification begins with.
fn defined(line: &str) -> Option<Number<'_>> {
    let (number, _) = line.strip_prefix("- **")?.split_once("**")?;
    let (prefix, digits) = number.split_once('-')?;
    let is_letter = |character: char| character.is_ascii_uppercase() || character.is_ascii_digit();
    let is_prefix =
        prefix.starts_with(|first: char| first.is_ascii_uppercase()) && prefix.chars().all(is_letter);
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
    fn only_test_code_cites_for_a_test() {
        let module = (
            "crates/a/src/b.rs",
            "#[cfg(test)]\nmod checks;\n\n/// Obeys CUT-1 to CUT-3.\nfn a() {}\n",
        );
        assert_eq!(lines(&[module]).len(), 3);
        assert_eq!(
            lines(&[module, ("crates/a/src/b/checks.rs", "/// CUT-1 to CUT-3.\n")]),
            []
        );
    }

    #[test]
    fn a_prefix_may_end_with_a_version() {
        let files = |rust| {
            [
                ("specs/cut.md", "- **CUT2-1** One.\n"),
                ("crates/a/tests/a.rs", rust),
            ]
        };
        assert!(check(&Tree::of(&files("/// CUT2-1."))).is_empty());
        assert_eq!(check(&Tree::of(&files("/// CUT2-1 to CUT2-2."))).len(), 1);
        assert_eq!(check(&Tree::of(&files("// nothing"))).len(), 1);
    }

    #[test]
    fn a_number_stands_for_one_rule() {
        let files = [
            ("specs/a.md", "- **CUT-1** One.\n- **CUT-1** Another.\n"),
            ("specs/b.md", "\n- **CUT-1** A third.\n"),
            ("crates/a/tests/a.rs", "// CUT-1"),
        ];
        let found: Vec<String> = check(&Tree::of(&files)).iter().map(ToString::to_string).collect();
        let already = "[specs] CUT-1 is the rule in specs/a.md:1 already; give this one a number of its own";
        assert_eq!(
            found,
            [
                format!("specs/a.md:2: {already}"),
                format!("specs/b.md:2: {already}")
            ]
        );
    }

    #[test]
    fn tests_cite_one_rule_several_or_a_range() {
        for text in [
            "/// CUT-1 to CUT-3.",
            "// CUT-1, CUT-2 and CUT-3",
            "// CUT-1 to CUT-2, CUT-3",
        ] {
            let module = ("crates/a/src/cut.rs", "#[cfg(test)]\nmod tests;");
            for path in ["crates/a/tests/a.rs", "crates/a/src/cut/tests.rs"] {
                assert_eq!(lines(&[module, (path, text)]), [], "{text}");
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
