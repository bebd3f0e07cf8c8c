//! Patterns by which users choose paths: globs as shells have them, where `*` and `?` stop at `/` and `**` does not.
//! A pattern without a `/` is one of names, at any depth.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use thiserror::Error as ThisError;

/// What is chosen.
#[derive(Clone, Debug)]
pub struct Filter {
    /// `None`: everything.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

/// Whether a path is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// With everything in it that is not excluded.
    Yes,
    /// A directory that is not chosen itself; what is in it may be.
    Inside,
    /// With nothing in it.
    No,
}

/// A pattern that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("the pattern {pattern} cannot be read: {why}; patterns are like *.txt, notes/** or [0-9]*")]
pub struct PatternError {
    /// As the user wrote it.
    pattern: String,
    why: String,
}

impl Filter {
    /// Files that one of `include` has (all, where there is none), without what one of `exclude` has.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, PatternError> {
        Ok(Self {
            include: match include.is_empty() {
                true => None,
                false => Some(set(include)?),
            },
            exclude: set(exclude)?,
        })
    }

    /// Whether a path, relative and with `/`, is chosen.
    #[must_use]
    pub fn takes(&self, path: &str, is_directory: bool) -> Takes {
        if self.exclude.is_match(path) {
            return Takes::No;
        }
        match &self.include {
            Some(include) if include.is_match(path) => Takes::Yes,
            None => Takes::Yes,
            Some(_) if is_directory => Takes::Inside,
            Some(_) => Takes::No,
        }
    }
}

fn set(patterns: &[String]) -> Result<GlobSet, PatternError> {
    let mut set = GlobSetBuilder::new();
    for written in patterns {
        let wrong = |error: globset::Error| PatternError {
            pattern: written.clone(),
            why: error.kind().to_string(),
        };
        let pattern = written.trim_end_matches('/');
        let anywhere = match pattern.strip_prefix('/') {
            Some(rooted) => rooted.to_owned(),
            None if pattern.contains('/') => pattern.to_owned(),
            None => format!("**/{pattern}"),
        };
        // What is in a directory that a pattern names goes with it.
        for glob in [&anywhere, &format!("{anywhere}/**")] {
            let glob = GlobBuilder::new(glob).literal_separator(true).build();
            set.add(glob.map_err(wrong)?);
        }
    }
    set.build().map_err(|error| PatternError {
        pattern: patterns.join(" "),
        why: error.kind().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |patterns: &[&str]| {
            patterns
                .iter()
                .map(|pattern| (*pattern).to_owned())
                .collect::<Vec<_>>()
        };
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn names_are_found_at_any_depth_and_paths_from_the_top() {
        let takes = |pattern: &str, path: &str| filter(&[pattern], &[]).takes(path, false) == Takes::Yes;
        assert!(takes("*.txt", "a.txt") && takes("*.txt", "tree/deep/a.txt") && !takes("*.txt", "tree/a.rs"));
        assert!(takes("tree/*.txt", "tree/a.txt"));
        assert!(!takes("tree/*.txt", "tree/deep/a.txt") && !takes("tree/*.txt", "a.txt"));
        assert!(takes("/a.txt", "a.txt") && !takes("/a.txt", "tree/a.txt"));
    }

    #[test]
    fn a_directory_is_chosen_itself_by_its_name_and_otherwise_for_what_is_in_it() {
        let docs = filter(&["docs/", "*.rs"], &["target"]);
        let takes = |path: &str| docs.takes(path, true);
        assert_eq!(
            [takes("tree/docs"), takes("tree/docs/deep")],
            [Takes::Yes, Takes::Yes]
        );
        assert_eq!([takes("tree"), takes("tree/src")], [Takes::Inside, Takes::Inside]);
        assert_eq!(takes("tree/target"), Takes::No);
        assert_eq!(filter(&[], &[]).takes("tree", true), Takes::Yes);
    }

    #[test]
    fn what_is_excluded_is_so_with_everything_in_it_even_where_it_is_included() {
        let filter = filter(&["*.rs", "docs/"], &["target", "tree/secret/**"]);
        let takes = |path: &str| filter.takes(path, false) == Takes::Yes;
        assert!(takes("src/a.rs") && takes("docs/deep/page"));
        assert!(!takes("tree/target/a.rs") && !takes("tree/secret/a.rs"));
        assert_eq!(filter.takes("target", true), Takes::No);
        assert_eq!(
            Filter::new(&[], &[]).unwrap().takes("anything", false),
            Takes::Yes
        );
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_told_as_it_was_written() {
        let error = Filter::new(&["*.txt".to_owned(), "[a".to_owned()], &[]).unwrap_err();
        let told = error.to_string();
        assert!(
            told.starts_with("the pattern [a cannot be read: unclosed character class"),
            "{told}"
        );
    }
}
