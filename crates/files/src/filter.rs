//! Patterns of users as a walk asks them.

use crate::walk::Filter;

/// Whether patterns can be read.
///
/// # Errors
/// What is wrong with one of them.
pub fn check_patterns(patterns: &[String]) -> Result<(), String> {
    of(patterns, &[]).map(drop)
}

/// What `include` (everything, where it is empty) has and `exclude` has not.
pub(crate) fn of(include: &[String], exclude: &[String]) -> Result<Filter, String> {
    let filter = files_proto::filter::Filter::new(include, exclude).map_err(|error| error.to_string())?;
    Ok(Box::new(move |path, is_directory| {
        filter.takes(&path.to_string_lossy(), is_directory)
    }))
}
