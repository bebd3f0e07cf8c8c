//! Rule `links`: what a Markdown file links to is there: files of this repository, and headings of Markdown files.
//!
//! Links to other sites are not followed. Fenced blocks hold no links.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{File, Tree};

const RULE: &str = "links";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let documents = tree.files.iter().filter(|file| file.path.ends_with(".md"));
    documents.flat_map(|file| check_file(tree, file)).collect()
}

fn check_file(tree: &Tree, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(&file.text) {
        for link in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = match path {
                "" => file.path.clone(),
                _ => resolve(&file.path, path),
            };
            if !tree.paths.contains(&path) {
                findings.push(file.finding(number, RULE, format!("there is no file {path}")));
            } else if !heading.is_empty()
                && tree
                    .file(&path)
                    .is_some_and(|target| !headings(&target.text).contains(heading))
            {
                let message = format!("{path} has no heading \"#{heading}\"");
                findings.push(file.finding(number, RULE, message));
            }
        }
    }
    findings
}

/// The path below the root of what a file names by a relative path.
fn resolve(file: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = file.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// Lines, from 1, outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

/// The names that headings are linked by: small letters, hyphens for spaces, and no punctuation.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| line.strip_prefix('#'));
    let names = headings.map(|heading| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |character: &char| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_');
        heading.chars().filter(kept).collect::<String>().replace(' ', "-")
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let tree = Tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", "# Title\n## What `it` does: now\n"),
            ("c/d.txt", ""),
        ]);
        tree.lines_found(check)
    }

    #[test]
    fn a_link_leads_to_a_file_that_is_there() {
        assert_eq!(
            lines("[b](b.md) [d](../c/d.txt)\n[c](c.md)\n[d](./../c/e.txt)"),
            [2, 3]
        );
    }

    #[test]
    fn a_link_leads_to_a_heading_that_is_there() {
        assert_eq!(
            lines("# Here\n[b](b.md#what-it-does-now) [a](#here)\n[b](b.md#what)\n[a](#there)"),
            [3, 4]
        );
    }

    #[test]
    fn other_sites_and_fenced_blocks_are_left_alone() {
        let found = lines("[x](https://example.org/a.md)\n```text\n[x](none.md)\n```\n");
        assert!(found.is_empty(), "{found:?}");
    }
}
