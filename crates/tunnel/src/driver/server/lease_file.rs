//! The file that keeps a server's leases over restarts.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tunnel_proto::StoredLease;

use crate::handle::{Failure, Notice};
use crate::limits;

/// What the file holds; nothing where there is none.
///
/// # Errors
/// [`Failure::Configuration`] where it is there and cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<StoredLease>, Failure> {
    let unusable = |error: String| {
        Failure::Configuration(format!(
            "the leases in {} cannot be read: {error}; move the file away to begin without leases",
            path.display()
        ))
    };
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unusable(error.to_string())),
    };
    if bytes.len() > limits::LEASES_FILE_BYTES_MAX {
        return Err(unusable(format!(
            "it has more than {} bytes",
            limits::LEASES_FILE_BYTES_MAX
        )));
    }
    serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))
}

/// Writes the leases; what there is to tell where that fails.
pub(super) fn written(path: &Path, leases: &[StoredLease]) -> Option<Notice> {
    let error = write(path, leases).err()?;
    Some(Notice::Warning {
        text: format!("cannot save the leases in {}: {error}", path.display()),
    })
}

/// Whole or not at all: written beside, then renamed.
fn write(path: &Path, leases: &[StoredLease]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(&serde_json::to_vec(leases)?)?;
    file.sync_data()?;
    std::fs::rename(&beside, path)
}
