//! Patterns by which users choose paths: globs as shells have them, where `*` and `?` stop at `/` and `**` does not.
//! A pattern without a `/` is one of names, at any depth.

use globset::{Error, GlobBuilder, GlobSet, GlobSetBuilder};
use thiserror::Error as ThisError;

/// What is chosen.
#[derive(Clone, Debug)]
pub struct Filter {
    /// `None`: everything.
    include: Option<GlobSet>,
    exclude: GlobSet,
}

/// A pattern that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("{0}; patterns are like *.txt, notes/** or [0-9]*")]
pub struct PatternError(String);

impl Filter {
    /// Files that one of `include` has (all, where there is none), without what one of `exclude` has.
    ///
    /// # Errors
    /// [`PatternError`].
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, PatternError> {
        let set = |patterns: &[String]| set(patterns).map_err(|error| PatternError(error.to_string()));
        Ok(Self {
            include: match include.is_empty() {
                true => None,
                false => Some(set(include)?),
            },
            exclude: set(exclude)?,
        })
    }

    /// Whether a path, relative and with `/`, is chosen. Directories are only excluded, as they may hold what is
    /// included.
    #[must_use]
    pub fn takes(&self, path: &str, is_directory: bool) -> bool {
        if self.exclude.is_match(path) {
            return false;
        }
        is_directory || self.include.as_ref().is_none_or(|include| include.is_match(path))
    }
}

fn set(patterns: &[String]) -> Result<GlobSet, Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.trim_end_matches('/');
        let anywhere = match pattern.strip_prefix('/') {
            Some(rooted) => rooted.to_owned(),
            None if pattern.contains('/') => pattern.to_owned(),
            None => format!("**/{pattern}"),
        };
        set.add(GlobBuilder::new(&anywhere).literal_separator(true).build()?);
        // What is in a directory that a pattern names goes with it.
        set.add(
            GlobBuilder::new(&format!("{anywhere}/**"))
                .literal_separator(true)
                .build()?,
        );
    }
    set.build()
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
        let names = filter(&["*.txt"], &[]);
        assert!(names.takes("a.txt", false) && names.takes("tree/deep/a.txt", false));
        assert!(!names.takes("tree/a.rs", false) && names.takes("tree", true));
        let paths = filter(&["tree/*.txt"], &[]);
        assert!(paths.takes("tree/a.txt", false));
        assert!(!paths.takes("tree/deep/a.txt", false) && !paths.takes("a.txt", false));
        let top = filter(&["/a.txt"], &[]);
        assert!(top.takes("a.txt", false) && !top.takes("tree/a.txt", false));
    }

    #[test]
    fn what_is_excluded_is_so_with_everything_in_it_even_where_it_is_included() {
        let filter = filter(&["*.rs", "docs/"], &["target", "tree/secret/**"]);
        assert!(filter.takes("src/a.rs", false) && filter.takes("docs/deep/page", false));
        assert!(!filter.takes("target", true) && !filter.takes("tree/target/a.rs", false));
        assert!(!filter.takes("tree/secret/a.rs", false));
        assert!(Filter::new(&[], &[]).unwrap().takes("anything", false));
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_told_with_what_it_is() {
        let error = Filter::new(&["[a".to_owned()], &[]).unwrap_err();
        assert!(error.to_string().contains("[a"), "{error}");
    }
}
