//! Addresses of chunks that a sender has read before, kept in its state directory, so that a transfer that goes on
//! hashes nothing again. A file is known by device, inode, size and both times; what is kept of another one is as good
//! as nothing. A file of the cache that cannot be read or written costs time and nothing else.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use files_proto::content::{Address, chunk_count};

use crate::beside;
use crate::limits::{
    CACHE_TURN, CACHE_TURN_BYTES, CACHE_TURN_PARTS, CACHED_FILE_BYTES_MIN, CACHED_FILES_MAX,
};
use crate::walk::Stamp;

const MAGIC: &[u8; 8] = b"gwfiles1";
const HEAD_BYTES: usize = MAGIC.len() + 5 * 8;
const CHUNK_BYTES: usize = 33;

/// A directory with such files.
#[derive(Debug)]
pub(crate) struct Cache(PathBuf);

impl Cache {
    /// In this directory of the state, which is made where it is missing, for this user only.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join("files");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let cache = Self(directory);
        cache.tidy()?;
        Ok(cache)
    }

    /// Forgets those that were used longest ago, where there are too many.
    fn tidy(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = fs::read_dir(&self.0)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
            })
            .collect();
        files.sort_unstable();
        let surplus = files.len().saturating_sub(CACHED_FILES_MAX);
        for (_, path) in &files[..surplus] {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn path(&self, stamp: &Stamp) -> PathBuf {
        self.0.join(format!("{:x}-{:x}", stamp.device, stamp.inode))
    }

    /// What is known of this file: an entry for each of its chunks, or none at all.
    pub(crate) fn known(&self, stamp: &Stamp) -> Vec<Option<Address>> {
        if stamp.size < CACHED_FILE_BYTES_MIN {
            return Vec::new();
        }
        let Ok(bytes) = fs::read(self.path(stamp)) else {
            return Vec::new();
        };
        parse(&bytes, stamp).unwrap_or_default()
    }

    /// Keeps what is known of a file.
    pub(crate) fn keep(&self, stamp: &Stamp, addresses: &[Option<Address>]) {
        if stamp.size >= CACHED_FILE_BYTES_MIN && addresses.iter().any(Option::is_some) {
            // Without it the file is hashed again.
            let _ = self.write(stamp, addresses);
        }
    }

    fn write(&self, stamp: &Stamp, addresses: &[Option<Address>]) -> io::Result<()> {
        beside::write(&self.path(stamp), &encode(stamp, addresses))
    }
}

/// When addresses of files that are being read are kept the next time.
#[derive(Debug)]
pub(crate) struct Turns {
    kept: Instant,
    /// Bytes that have been read by then.
    until: u64,
}

impl Turns {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            kept: now,
            until: CACHE_TURN_BYTES,
        }
    }

    /// Whether they are to be kept, where so many bytes have been read.
    pub(crate) fn is_due(&self, now: Instant, read: u64) -> bool {
        read >= self.until || now.duration_since(self.kept) >= CACHE_TURN
    }

    /// They have been kept, of files of so many bytes.
    pub(crate) fn keep(&mut self, now: Instant, read: u64, files_bytes: u64) {
        self.kept = now;
        self.until = read + CACHE_TURN_BYTES.max(files_bytes / CACHE_TURN_PARTS);
    }
}

fn head(stamp: &Stamp) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    let times = [stamp.modified, stamp.changed].map(i64::to_be_bytes);
    for number in [stamp.device, stamp.inode, stamp.size]
        .map(u64::to_be_bytes)
        .iter()
        .chain(&times)
    {
        head.extend_from_slice(number);
    }
    head
}

fn encode(stamp: &Stamp, addresses: &[Option<Address>]) -> Vec<u8> {
    let mut bytes = head(stamp);
    for address in addresses {
        bytes.push(u8::from(address.is_some()));
        bytes.extend_from_slice(&address.unwrap_or_default());
    }
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(sum.as_ref());
    bytes
}

/// `None` where it is of another file, or damaged.
fn parse(bytes: &[u8], stamp: &Stamp) -> Option<Vec<Option<Address>>> {
    let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    let (kept, chunks) = content.split_at_checked(HEAD_BYTES)?;
    if kept != head(stamp) || digest(&SHA256, content).as_ref() != sum {
        return None;
    }
    let addresses: Vec<Option<Address>> = chunks
        .chunks_exact(CHUNK_BYTES)
        .map(|chunk| (chunk[0] == 1).then(|| chunk[1..].try_into().expect("a chunk has 33 bytes")))
        .collect();
    (addresses.len() as u64 == chunk_count(stamp.size)).then_some(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(inode: u64) -> Stamp {
        Stamp {
            device: 1,
            inode,
            size: CACHED_FILE_BYTES_MIN + 5,
            modified: -3,
            changed: 7,
            mode: 0o600,
            is_sparse: false,
        }
    }

    fn addresses() -> Vec<Option<Address>> {
        let chunks = chunk_count(CACHED_FILE_BYTES_MIN + 5);
        (0..chunks)
            .map(|index| (index % 2 == 0).then_some([index as u8; 32]))
            .collect()
    }

    #[test]
    fn what_is_kept_of_a_file_is_known_until_the_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        cache.keep(&stamp(1), &addresses());
        assert_eq!(cache.known(&stamp(1)), addresses());
        assert_eq!(cache.known(&stamp(2)), []);
        for changed in [
            Stamp {
                modified: -2,
                ..stamp(1)
            },
            Stamp {
                changed: 8,
                ..stamp(1)
            },
            Stamp {
                size: stamp(1).size + 1,
                ..stamp(1)
            },
            Stamp {
                device: 2,
                ..stamp(1)
            },
        ] {
            assert_eq!(cache.known(&changed), []);
        }
    }

    #[test]
    fn addresses_are_kept_by_time_and_by_bytes_and_those_of_a_large_file_not_too_often() {
        let start = Instant::now();
        let mut turns = Turns::new(start);
        assert!(!turns.is_due(start, CACHE_TURN_BYTES - 1));
        assert!(turns.is_due(start, CACHE_TURN_BYTES));
        assert!(turns.is_due(start + CACHE_TURN, 1));
        turns.keep(start, CACHE_TURN_BYTES, 5);
        assert!(!turns.is_due(start, 2 * CACHE_TURN_BYTES - 1));
        assert!(turns.is_due(start, 2 * CACHE_TURN_BYTES));
        // 4 TiB, of which addresses take 132 MiB.
        let large = 4 << 40;
        turns.keep(start, 0, large);
        assert!(!turns.is_due(start, large / CACHE_TURN_PARTS - 1));
        assert!(turns.is_due(start, large / CACHE_TURN_PARTS));
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let bytes = encode(&stamp(1), &addresses());
        assert_eq!(parse(&bytes, &stamp(1)), Some(addresses()));
        for length in 0..bytes.len() {
            assert_eq!(parse(&bytes[..length], &stamp(1)), None);
        }
        let mut damaged = bytes.clone();
        damaged[HEAD_BYTES + 3] ^= 1;
        assert_eq!(parse(&damaged, &stamp(1)), None);
    }

    #[test]
    fn files_that_were_used_longest_ago_are_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        for number in 0..CACHED_FILES_MAX + 3 {
            fs::write(directory.path().join(format!("files/{number}")), "").unwrap();
        }
        cache.tidy().unwrap();
        assert_eq!(
            fs::read_dir(directory.path().join("files")).unwrap().count(),
            CACHED_FILES_MAX
        );
    }
}
