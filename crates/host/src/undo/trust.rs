//! Which lists of changes are obeyed: undoing one is done with this process's privileges, so nobody else may write it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Refuses a directory in which others could put a list. A link to one is fine: whoever named it chose the way there.
///
/// # Errors
/// It is another user's, or others may write to it.
pub(super) fn check_directory(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    check_owner(&metadata)
}

/// Opens a list that nobody else may write.
///
/// # Errors
/// It is another user's, others may write to it, or it is no plain file.
pub(super) fn open_list(path: &Path) -> io::Result<File> {
    // A pipe must not hold up the start.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(refusal("it is no plain file"));
    }
    check_owner(&metadata)?;
    Ok(file)
}

fn check_owner(metadata: &Metadata) -> io::Result<()> {
    let this_user = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != this_user {
        return Err(refusal("it belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refusal("others may write to it"));
    }
    Ok(())
}

fn refusal(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_may_write_or_put_elsewhere_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let list = place.path().join("undo-1-0.json");
        fs::write(&list, "{}").unwrap();
        set_mode(&list, 0o600);
        assert!(open_list(&list).is_ok() && check_directory(place.path()).is_ok());
        for mode in [0o620, 0o602] {
            set_mode(&list, mode);
            assert!(open_list(&list).is_err(), "{mode:o}");
        }
        set_mode(&list, 0o600);
        let link = place.path().join("link");
        symlink(&list, &link).unwrap();
        assert!(open_list(&link).is_err() && open_list(place.path()).is_err());
        assert!(check_directory(&list).is_err());
        for mode in [0o777, 0o770] {
            set_mode(place.path(), mode);
            assert!(check_directory(place.path()).is_err(), "{mode:o}");
        }
    }

    #[test]
    fn another_users_list_and_directory_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let list = place.path().join("undo-1-0.json");
        fs::write(&list, "{}").unwrap();
        for path in [&list, place.path()] {
            chown(path, Some(65_534), None).unwrap();
        }
        assert_eq!(
            open_list(&list).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(
            check_directory(place.path()).unwrap_err().to_string(),
            "it belongs to another user"
        );
    }
}
