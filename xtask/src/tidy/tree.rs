//! The text files that the rules look at, read once.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::Finding;

/// File name endings that the rules know.
const ENDINGS: [&str; 9] = [
    ".rs", ".toml", ".md", ".py", ".sh", ".txt", ".yml", ".yaml", "/run",
];
/// Directories without sources of ours.
const SKIPPED_DIRECTORIES: [&str; 4] = ["target", ".git", "node_modules", "__pycache__"];

/// One file.
pub(super) struct File {
    /// Path below the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// All files, ordered by path.
pub(super) struct Tree {
    pub(super) files: Vec<File>,
    /// Of all files, also those that are no text.
    pub(super) paths: BTreeSet<String>,
}

impl Tree {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut tree = Self {
            files: Vec::new(),
            paths: BTreeSet::new(),
        };
        collect(root, "", &mut tree)?;
        tree.files.sort_by(|left, right| left.path.cmp(&right.path));
        Ok(tree)
    }

    /// A tree for tests of rules.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Self {
            files: files.iter().map(file).collect(),
            paths: files.iter().map(|(path, _)| (*path).to_owned()).collect(),
        }
    }

    /// The lines of what a rule finds in this tree, for tests of rules.
    #[cfg(test)]
    pub(super) fn lines_found(&self, check: impl Fn(&Self) -> Vec<Finding>) -> Vec<usize> {
        check(self).iter().map(|finding| finding.line).collect()
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(super) fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }
}

impl File {
    pub(super) fn finding(&self, line: usize, rule: &'static str, message: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            rule,
            message: message.into(),
        }
    }

    /// Whether the line (from 1) or the one above carries `tidy-allow(RULE): REASON`.
    pub(super) fn allows(&self, line: usize, rule: &str) -> bool {
        let marker = format!("tidy-allow({rule}): ");
        let above = line.saturating_sub(2);
        self.text.lines().skip(above).take(line - above).any(|text| {
            text.split_once(&marker)
                .is_some_and(|(_, reason)| !reason.trim().is_empty())
        })
    }

    /// The crate directory's name for a path such as `crates/quic/src/lib.rs` or `xtask/src/main.rs`.
    pub(super) fn crate_name(&self) -> Option<&str> {
        match self.path.strip_prefix("crates/") {
            Some(rest) => rest.split_once('/').map(|(name, _)| name),
            None => self.path.starts_with("xtask/").then_some("xtask"),
        }
    }
}

fn collect(directory: &Path, prefix: &str, tree: &mut Tree) -> Result<()> {
    let entries =
        std::fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("{} cannot be read", directory.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry
            .file_type()
            .with_context(|| format!("{prefix}{name} cannot be examined"))?;
        if kind.is_dir() && !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
            collect(&entry.path(), &format!("{prefix}{name}/"), tree)?;
        } else if kind.is_file() {
            let path = format!("{prefix}{name}");
            tree.paths.insert(path.clone());
            if ENDINGS.iter().any(|ending| path.ends_with(ending)) {
                let text = std::fs::read_to_string(entry.path())
                    .with_context(|| format!("{path} cannot be read as UTF-8 text"))?;
                tree.files.push(File { path, text });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exemption_counts_on_its_line_and_the_next_and_needs_a_reason() {
        let tree = Tree::of(&[(
            "a.rs",
            "x // tidy-allow(clock): base\ny\nz\n// tidy-allow(clock):   \nw\n",
        )]);
        let allowed: Vec<bool> = (1..=5).map(|line| tree.files[0].allows(line, "clock")).collect();
        assert_eq!(allowed, [true, true, false, false, false]);
        assert!(!tree.files[0].allows(1, "other"));
    }
}
