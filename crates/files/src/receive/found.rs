//! What is in the place of an entry, as plans and people know it.

use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use files_proto::Entry;
use files_proto::plan::Existing;

use crate::destination::{self, Destination};
use crate::options::Conflict;

/// What is at a path.
pub(super) struct Found {
    /// As plans know it.
    pub(super) existing: Existing,
    /// When anything of it was changed.
    pub(super) changed_ns: i64,
    /// Of what may be replaced; [`destination::Existing::identity`].
    pub(super) identity: Option<u64>,
}

pub(super) fn existing(destination: &Destination, path: &Path) -> io::Result<Option<Found>> {
    let Some(found) = destination.existing(path)? else {
        return Ok(None);
    };
    let existing = match found.kind {
        destination::Kind::File => Existing::File {
            size: found.size,
            modified_ns: found.modified,
        },
        destination::Kind::Directory => Existing::Directory,
        destination::Kind::Symlink => Existing::Symlink {
            target: destination.read_link(path)?.into_vec(),
        },
        destination::Kind::Other => Existing::Special,
    };
    let is_replaced = matches!(existing, Existing::File { .. } | Existing::Symlink { .. });
    Ok(Some(Found {
        existing,
        changed_ns: found.changed,
        identity: found.identity.filter(|_| is_replaced),
    }))
}

pub(super) fn conflict(entry: &Entry, existing: &Existing, path: &Path) -> Conflict {
    let (size, modified_ns) = match existing {
        Existing::File { size, modified_ns } => (*size, *modified_ns),
        _ => (0, 0),
    };
    Conflict {
        path: path.display().to_string(),
        is_replaceable: matches!(existing, Existing::File { .. } | Existing::Symlink { .. }),
        size,
        modified_ns,
        offered_size: entry.size(),
        offered_modified_ns: entry.modified_ns,
    }
}
