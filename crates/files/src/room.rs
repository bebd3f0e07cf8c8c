//! Room at a destination: a file that will not fit fails before its bytes are sent. Holes take none, so that what
//! counts of a file is what its sender says that it takes at least.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::fstatvfs;
use rustix::process::geteuid;

use crate::destination::Destination;

impl Destination {
    /// Checks that a file at `path` fits, of which `part` is there; so many bytes it takes on the disk at least.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`], with what it needs and what there is.
    pub(crate) fn check_room(&self, path: &Path, part: Option<&File>, disk_bytes_min: u64) -> io::Result<()> {
        let (directory, _) = self.parent(path)?;
        let Ok(system) = fstatvfs(&directory) else {
            return Ok(());
        };
        // Some file systems of networks do not tell.
        if system.f_blocks == 0 {
            return Ok(());
        }
        // What is kept back is for root.
        let blocks = match geteuid().is_root() {
            true => system.f_bfree,
            false => system.f_bavail,
        };
        let there = part
            .and_then(|part| part.metadata().ok())
            .map_or(0, |metadata| metadata.blocks().saturating_mul(512));
        check(
            disk_bytes_min.saturating_sub(there),
            blocks.saturating_mul(system.f_frsize),
        )
    }
}

fn check(needed: u64, free: u64) -> io::Result<()> {
    match needed > free {
        true => {
            let text = format!("it needs {}, and {} are free", shown(needed), shown(free));
            Err(io::Error::new(io::ErrorKind::StorageFull, text))
        }
        false => Ok(()),
    }
}

/// Bytes for people, in units of which no thousand is left.
fn shown(bytes: u64) -> String {
    if bytes < 1_000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1_000.0;
    for unit in ["kB", "MB", "GB"] {
        if value < 999.95 {
            return format!("{value:.1} {unit}");
        }
        value /= 1_000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_what_it_needs_and_what_there_is() {
        assert!(check(0, 0).is_ok() && check(5, 5).is_ok());
        let error = check(8_000_000_001, 2_100_000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(error.to_string(), "it needs 8.0 GB, and 2.1 MB are free");
        assert_eq!(shown(999), "999 B");
        assert_eq!(shown(u64::MAX), "18446744.1 TB");
    }

    #[test]
    fn what_is_in_a_part_needs_no_more_room() {
        let directory = tempfile::tempdir().unwrap();
        let destination = Destination::open(directory.path()).unwrap();
        let path = Path::new("file");
        assert!(destination.check_room(path, None, 0).is_ok());
        let refused = destination.check_room(path, None, u64::MAX).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        let mut part = destination.create_part(path).unwrap();
        io::Write::write_all(&mut part, &vec![1; 1 << 20]).unwrap();
        part.sync_all().unwrap();
        let needs = |part| {
            let error = destination.check_room(path, part, 1 << 62).unwrap_err();
            error.to_string()
        };
        assert!(
            needs(None).starts_with("it needs 4611686.0 TB"),
            "{}",
            needs(None)
        );
        assert!(needs(Some(&part)).starts_with("it needs 4611686.0 TB"));
        assert!(destination.check_room(path, Some(&part), 1 << 20).is_ok());
    }
}
