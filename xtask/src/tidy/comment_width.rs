//! Rule `comment-width`: lines of comments in Rust files are at most 120 columns wide. `cargo fmt` wraps code, and
//! leaves comments as they are.

use super::Finding;
use super::tree::{File, Tree};

const RULE: &str = "comment-width";
const COLUMNS_MAX: usize = 120;

/// Crates whose comments are wrapped at other widths.
const OTHER_WIDTHS: [&str; 3] = ["bench", "quic", "tunnel-proto"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let is_checked = |file: &&File| !file.crate_name().is_some_and(|name| OTHER_WIDTHS.contains(&name));
    tree.rust().filter(is_checked).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let lines = file.text.lines().enumerate();
    lines
        .filter(|(_, line)| line.trim_start().starts_with("//") && !is_address(line))
        .map(|(index, line)| (index, line.chars().count()))
        .filter(|(_, columns)| *columns > COLUMNS_MAX)
        .map(|(index, columns)| {
            let message = format!("a comment of {columns} columns; wrap it at {COLUMNS_MAX}");
            file.finding(index + 1, RULE, message)
        })
        .collect()
}

/// Whether a comment is one word, which nothing can wrap.
fn is_address(line: &str) -> bool {
    line.split_whitespace().count() <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        Tree::of(&[(path, text)]).lines_found(check)
    }

    #[test]
    fn a_comment_is_as_wide_as_allowed_and_no_wider() {
        let comment = |columns: usize| {
            format!(
                "    /// é {}\n",
                "x".repeat(columns - "    /// é ".chars().count())
            )
        };
        let text = [comment(COLUMNS_MAX), comment(COLUMNS_MAX + 1)].concat();
        assert_eq!(lines("crates/packet/src/a.rs", &text), [2]);
        assert_eq!(lines("fuzz/src/a.rs", &text), [2]);
        assert_eq!(lines("crates/quic/src/a.rs", &text), [0; 0]);
        assert_eq!(lines("crates/packet/a.md", &text), [0; 0]);
    }

    #[test]
    fn code_and_what_cannot_be_wrapped_may_be_wider() {
        let long = "x".repeat(COLUMNS_MAX);
        let text = format!("let a = \"{long} {long}\";\n// https://{long}\n");
        assert_eq!(lines("crates/packet/src/a.rs", &text), [4; 0]);
    }
}
