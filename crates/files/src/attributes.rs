//! Extended attributes of users (`user.*`): others belong to the system that they are on.

use std::os::fd::AsFd;
use std::path::Path;

use files_proto::Attribute;
use files_proto::limits::{ATTRIBUTES_BYTES_MAX, ATTRIBUTES_MAX};
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr, lgetxattr, llistxattr};

const PREFIX: &[u8] = b"user.";

/// Those of a file or directory, as many as a transfer carries; none where they cannot be read.
pub(crate) fn of(path: &Path) -> Vec<Attribute> {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let Ok(length) = llistxattr(path, &mut names[..]) else {
        return Vec::new();
    };
    let mut room = ATTRIBUTES_BYTES_MAX;
    let mut attributes = Vec::new();
    let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
    for name in names[..length].split(|byte| *byte == 0) {
        if !name.starts_with(PREFIX) || attributes.len() == ATTRIBUTES_MAX {
            continue;
        }
        let Ok(length) = lgetxattr(path, name, &mut value[..]) else {
            continue;
        };
        let Some(left) = room.checked_sub(name.len() + length) else {
            break;
        };
        room = left;
        attributes.push(Attribute {
            name: name.to_vec(),
            value: value[..length].to_vec(),
        });
    }
    attributes
}

/// Gives them to a file or directory, as far as it takes them; others that it has stay. Whether it takes all.
#[must_use]
pub(crate) fn apply(file: impl AsFd, attributes: &[Attribute]) -> bool {
    let mut has_all = true;
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.name.starts_with(PREFIX))
    {
        let mut value = vec![0; attribute.value.len() + 1];
        if fgetxattr(&file, &attribute.name[..], &mut value[..]) == Ok(attribute.value.len())
            && value.starts_with(&attribute.value)
        {
            continue;
        }
        // A file system without them is no reason to have no file.
        has_all &= fsetxattr(&file, &attribute.name[..], &attribute.value, XattrFlags::empty()).is_ok();
    }
    has_all
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn attributes_of_users_go_from_file_to_file() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let (source, target) = (File::create(&from).unwrap(), File::create(&to).unwrap());
        let attribute = |name: &str, value: &str| Attribute {
            name: name.as_bytes().to_vec(),
            value: value.as_bytes().to_vec(),
        };
        let given = [
            attribute("user.comment", "kept"),
            attribute("security.other", "left out"),
        ];
        if !apply(&source, &given) {
            eprintln!(
                "skipped: the file system of {} has no attributes of users",
                from.display()
            );
            return;
        }
        let read = of(&from);
        assert_eq!(read, given[..1]);
        assert!(apply(&target, &read));
        assert_eq!(of(&to), read);
    }

    #[test]
    fn what_is_refused_is_told() {
        // Devices have none.
        let device = File::open("/dev/null").unwrap();
        let attribute = Attribute {
            name: b"user.comment".to_vec(),
            value: b"lost".to_vec(),
        };
        assert!(!apply(&device, &[attribute]));
        assert!(apply(&device, &[]));
    }
}
