//! The secret by which others know a program, and its file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::signature::Ed25519KeyPair;
use peer_proto::{KeyIdentity, PeerId};

use crate::error::KeyFileError;
use crate::limits::KEY_FILE_BYTES_MAX;

/// The seed of an Ed25519 key pair (RFC 8032). Whoever has it is this peer.
#[derive(Clone)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// [`KeyFileError::NoRandomness`].
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut seed = [0; 32];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| KeyFileError::NoRandomness)?;
        Ok(Self(seed))
    }

    /// The key of these 32 secret random bytes.
    #[must_use]
    pub fn from_bytes(seed: [u8; 32]) -> Self {
        Self(seed)
    }

    /// The key in `path`; where there is no such file, a new one is made and written there, for this user only (mode
    /// 0600).
    ///
    /// # Errors
    /// [`KeyFileError`]; a file that other users can read is refused.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("key");
    /// let first = peer::SecretKey::load_or_create(&path)?;
    /// assert_eq!(peer::SecretKey::load_or_create(&path)?.id(), first.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load_or_create(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let path = path.as_ref();
        let failed = |error| KeyFileError::File {
            path: path.to_owned(),
            error,
        };
        match File::open(path) {
            Ok(file) => Self::read(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = Self::generate()?;
                let mut options = OpenOptions::new();
                let created = options.write(true).create_new(true).mode(0o600).open(path);
                let mut file = created.map_err(failed)?;
                let digits: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(file, "{digits}")
                    .and_then(|()| file.sync_all())
                    .map_err(failed)?;
                Ok(key)
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn read(file: File, path: &Path) -> Result<Self, KeyFileError> {
        let failed = |error| KeyFileError::File {
            path: path.to_owned(),
            error,
        };
        let path_of = || path.to_owned();
        if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
            return Err(KeyFileError::Exposed { path: path_of() });
        }
        let mut text = String::new();
        file.take(KEY_FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(failed)?;
        parse(text.trim())
            .map(Self)
            .ok_or(KeyFileError::Malformed { path: path_of() })
    }

    /// What others know this program by.
    #[must_use]
    pub fn id(&self) -> PeerId {
        PeerId::from(self.identity().public_key())
    }

    /// For signatures; `None` never, because every seed has a key pair.
    pub(crate) fn key_pair(&self) -> Option<Ed25519KeyPair> {
        Ed25519KeyPair::from_seed_unchecked(&self.0).ok()
    }

    pub(crate) fn identity(&self) -> KeyIdentity {
        KeyIdentity::from_seed(&self.0)
    }
}

fn parse(digits: &str) -> Option<[u8; 32]> {
    let mut seed = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (index, byte) in seed.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(seed)
}

/// Shows nothing of the secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SecretKey").finish_non_exhaustive()
    }
}
