//! The file with the key that two relays have in common: 32 random bytes in base64url, for its owner alone.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use aws_lc_rs::rand;
use data_encoding::BASE64URL_NOPAD;
use relay::Key;

use crate::exit::Problem;
use crate::state;

/// Writes another key to a file that is not there yet.
///
/// # Errors
/// It is there, or cannot be written.
pub(crate) fn create(path: &Path) -> Result<(), Problem> {
    let mut key = [0; Key::BYTES];
    rand::fill(&mut key).map_err(|_| Problem::bug("the system gives no random bytes"))?;
    let text = BASE64URL_NOPAD.encode(&key) + "\n";
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Problem::configuration(format!(
            "{} is there already; a key in use is not replaced: name another file, or remove it",
            path.display()
        )),
        _ => Problem::file("write", path, &error),
    })
}

/// Reads a key.
///
/// # Errors
/// It is not there, others may read it, or it is no key.
pub(crate) fn load(path: &Path) -> Result<Key, Problem> {
    let Some(text) = state::read_secret(path)? else {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        return Err(Problem::file("read", path, &missing));
    };
    let key = BASE64URL_NOPAD.decode(text.trim_ascii()).ok();
    let key = key.and_then(|key| <[u8; Key::BYTES]>::try_from(key).ok());
    key.map(Key).ok_or_else(|| {
        Problem::configuration(format!(
            "{} is no key of 43 characters; make one by: gramway relay --new-key FILE",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::test_support::mode;

    #[test]
    fn a_key_is_another_one_each_time_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        create(&one).unwrap();
        create(&other).unwrap();
        assert_eq!(mode(&one), 0o600);
        assert_eq!(load(&one).unwrap(), load(&one).unwrap());
        assert_ne!(load(&one).unwrap(), load(&other).unwrap());
        let problem = create(&one).unwrap_err().to_string();
        assert!(problem.contains("is there already"), "{problem}");
    }

    #[test]
    fn what_is_no_key_or_no_secret_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let refused = |path: &Path| load(path).unwrap_err().to_string();
        assert!(refused(&path).contains("cannot read"));
        create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&path).contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "c2hvcnQ\n").unwrap();
        assert!(refused(&path).contains("no key of 43 characters"));
        assert!(!refused(&path).contains("c2hvcnQ"));
    }
}
