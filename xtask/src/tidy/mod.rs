//! `cargo xtask tidy`: the rules of this repository that neither compiler nor clippy knows, one module per rule.
//!
//! A finding names file, line, rule and the way out. A single place may be exempt where its rule says so, by a comment
//! on the line or the one above: `tidy-allow(RULE): REASON`.

mod architecture;
mod arrows;
mod comment_width;
mod dependency_notes;
mod drop_reasons;
mod file_shape;
mod forbidden_text;
mod imports;
mod links;
mod manifest;
mod program_crates;
mod public_items;
mod pure_crates;
mod rust_code;
mod seam;
mod security;
mod specs;
mod test_code;
mod tree;
mod unsafe_code;

use std::fmt;

use anyhow::{Result, bail};

use crate::repository::Repository;
pub(crate) use pure_crates::PURE_CRATES;
use tree::Tree;

/// A rule that is broken somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    line: usize,
    rule: &'static str,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            rule,
            message,
        } = self;
        write!(formatter, "{path}:{line}: [{rule}] {message}")
    }
}

/// Checks all rules, prints every finding, and fails if there is any.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let tree = Tree::load(repository.root())?;
    let findings = check(&tree);
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!(
            "tidy: {} findings; CONTRIBUTING.md explains the rules",
            findings.len()
        );
    }
    Ok(())
}

fn check(tree: &Tree) -> Vec<Finding> {
    let rules = [
        arrows::check,
        architecture::check,
        pure_crates::check,
        program_crates::check,
        seam::check,
        unsafe_code::check,
        file_shape::check,
        comment_width::check,
        forbidden_text::check,
        drop_reasons::check,
        dependency_notes::check,
        specs::check,
        security::check,
        links::check,
    ];
    rules.iter().flat_map(|rule| rule(tree)).collect()
}
