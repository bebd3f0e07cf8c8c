//! Patterns of users as a walk asks them.

use crate::walk::Filter;

/// What `include` (everything, where it is empty) has and `exclude` has not.
pub(crate) fn of(include: &[String], exclude: &[String]) -> Result<Filter, String> {
    let filter = files_proto::filter::Filter::new(include, exclude).map_err(|error| error.to_string())?;
    Ok(Box::new(move |path, is_directory| {
        filter.takes(&path.to_string_lossy(), is_directory)
    }))
}
