//! The secret by which others know a program, and its file.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::Ed25519KeyPair;
use peer_proto::{KeyIdentity, PeerId};
use zeroize::Zeroizing;

use crate::error::KeyFileError;
use crate::limits::KEY_FILE_BYTES_MAX;

/// Stands before the purpose of a derived key.
const DERIVED: &str = "gramway peer key for ";

/// The seed of an Ed25519 key pair (RFC 8032). Whoever has it is this peer. Its memory, which does not move
/// with it, is wiped when it is dropped. That does not reach other copies: the bytes that [`Self::from_bytes`] is given
/// and [`Self::to_bytes`] gives, what cryptography leaves behind, and the key pair, which an endpoint keeps as long as
/// it lives.
#[derive(Clone)]
pub struct SecretKey(Box<Zeroizing<[u8; 32]>>);

impl SecretKey {
    /// A new key.
    ///
    /// # Errors
    /// [`KeyFileError::NoRandomness`].
    pub fn generate() -> Result<Self, KeyFileError> {
        let mut key = Self::empty();
        aws_lc_rs::rand::fill(&mut key.0[..]).map_err(|_| KeyFileError::NoRandomness)?;
        Ok(key)
    }

    /// The key of these 32 secret random bytes.
    #[must_use]
    pub fn from_bytes(seed: [u8; 32]) -> Self {
        let mut kept = Self::empty();
        kept.0.copy_from_slice(&seed);
        kept
    }

    /// Room for a key.
    fn empty() -> Self {
        Self(Box::new(Zeroizing::new([0; 32])))
    }

    /// The 32 bytes of the key, for programs that keep it in a place of their own: secret; never log them, and wipe
    /// them. [`Self::from_bytes`] makes the key of them again.
    ///
    /// ```
    /// let key = peer::SecretKey::generate()?;
    /// assert_eq!(peer::SecretKey::from_bytes(key.to_bytes()).id(), key.id());
    /// # Ok::<(), peer::KeyFileError>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        **self.0
    }

    /// The key in `path`; where there is no such file, a new one is made and written there, for this user only (mode
    /// 0600). Processes that do so at once get the same key.
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
                if key.write_new(path).map_err(failed)? {
                    return Ok(key);
                }
                // Another process has just made one.
                Self::read(File::open(path).map_err(failed)?, path)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes the key to a file beside the path, which then gets its name unless another one has it. Whether this one
    /// has. After a crash the file is there as a whole or not at all.
    fn write_new(&self, path: &Path) -> io::Result<bool> {
        let mut number = [0; 8];
        aws_lc_rs::rand::fill(&mut number).map_err(|_| io::Error::other("no random bytes"))?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:016x}", u64::from_le_bytes(number)));
        let beside = path.with_file_name(name);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
        let written = writeln!(file, "{}", *self.digits()).and_then(|()| file.sync_all());
        let named = written.and_then(|()| match fs::hard_link(&beside, path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        });
        let removed = fs::remove_file(&beside);
        let is_own = named.and_then(|is_own| removed.map(|()| is_own))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(is_own)
    }

    /// The key in hexadecimal, as its file has it.
    fn digits(&self) -> Zeroizing<String> {
        let digit = |value| char::from_digit(value, 16).expect("half a byte is a digit");
        let bytes = self.0.iter().map(|byte| u32::from(*byte));
        // With room for all of them it is not moved, which would leave a copy.
        let mut digits = Zeroizing::new(String::with_capacity(2 * self.0.len()));
        digits.extend(bytes.flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]));
        digits
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
        let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX as usize));
        file.take(KEY_FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(failed)?;
        parse(text.trim()).ok_or(KeyFileError::Malformed { path: path_of() })
    }

    /// A key that this one gives for a purpose, always the same. Nobody without this key can tell that both belong to
    /// the same program: HMAC with SHA-256 (RFC 2104) of the purpose by this seed is the other one's.
    ///
    /// ```
    /// # let own = peer::SecretKey::generate()?;
    /// assert_eq!(own.derived("a room").id(), own.derived("a room").id());
    /// assert_ne!(own.derived("a room").id(), own.derived("another room").id());
    /// # Ok::<(), peer::KeyFileError>(())
    /// ```
    #[must_use]
    pub fn derived(&self, purpose: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.0[..]);
        let tag = hmac::sign(&key, format!("{DERIVED}{purpose}").as_bytes());
        let mut derived = Self::empty();
        // SHA-256 gives 32 bytes.
        derived.0.copy_from_slice(tag.as_ref());
        derived
    }

    /// What others know this program by.
    #[must_use]
    pub fn id(&self) -> PeerId {
        PeerId::from(self.identity().public_key())
    }

    /// For signatures; `None` never, because every seed has a key pair.
    pub(crate) fn key_pair(&self) -> Option<Ed25519KeyPair> {
        Ed25519KeyPair::from_seed_unchecked(&self.0[..]).ok()
    }

    pub(crate) fn identity(&self) -> KeyIdentity {
        KeyIdentity::from_seed(&self.0)
    }
}

fn parse(digits: &str) -> Option<SecretKey> {
    let mut key = SecretKey::empty();
    if digits.len() != 64 || !digits.is_ascii() {
        return None;
    }
    for (index, byte) in key.0.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(key)
}

/// Shows nothing of the secret.
impl fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("SecretKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_who_make_a_key_at_once_get_the_same_and_nothing_else_is_left() {
        for _ in 0..20 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("key");
            let makers: Vec<_> = (0..8)
                .map(|_| {
                    let path = path.clone();
                    thread::spawn(move || SecretKey::load_or_create(path).unwrap().id())
                })
                .collect();
            let kept = SecretKey::load_or_create(&path).unwrap().id();
            for maker in makers {
                assert_eq!(maker.join().unwrap(), kept);
            }
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn what_a_crash_left_half_written_is_no_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(directory.path().join("key.0123456789abcdef"), "01").unwrap();
        let id = SecretKey::load_or_create(&path).unwrap().id();
        assert_eq!(SecretKey::load_or_create(&path).unwrap().id(), id);
        fs::write(&path, "01\n").unwrap();
        let refused = SecretKey::load_or_create(&path);
        assert!(matches!(refused, Err(KeyFileError::Malformed { .. })));
    }
}
