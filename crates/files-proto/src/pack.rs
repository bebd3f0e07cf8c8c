//! Packs: many small whole files in one record, so that ten thousand of them cost what a few chunks cost (FILE-16).
//!
//! A head says of each file its entry, its length and its root; the files' bytes follow in the same order. A file that
//! is damaged fails alone: the others of its pack are still whole.

use thiserror::Error;

use crate::content::Root;
use crate::entry::EntryId;
use crate::limits::{PACK_BYTES_MAX, PACK_FILES_MAX, PACKED_FILE_BYTES_MAX};

/// Bytes of the number of files.
pub const COUNT_BYTES: usize = 4;
/// Bytes of what the head says of one file: entry, length, root.
pub const ITEM_BYTES: usize = 8 + 4 + 32;

/// Collects files into packs.
#[derive(Debug, Default)]
pub struct Builder {
    head: Vec<u8>,
    bytes: Vec<u8>,
    entries: Vec<EntryId>,
}

impl Builder {
    /// Adds a whole file, and hashes it; `false` where it has no room, and belongs into the next pack.
    ///
    /// # Panics
    /// When the file is empty or too long for any pack.
    pub fn push(&mut self, entry: EntryId, bytes: &[u8]) -> bool {
        assert!(
            !bytes.is_empty() && bytes.len() as u64 <= PACKED_FILE_BYTES_MAX,
            "packs hold files of 1 byte to 64 KiB"
        );
        let length = self.length() + ITEM_BYTES + bytes.len();
        if self.entries.len() == PACK_FILES_MAX || length > PACK_BYTES_MAX {
            return false;
        }
        self.head.extend(entry.to_be_bytes());
        self.head.extend((bytes.len() as u32).to_be_bytes());
        self.head.extend(blake3::hash(bytes).as_bytes());
        self.bytes.extend_from_slice(bytes);
        self.entries.push(entry);
        true
    }

    /// Bytes of the pack so far.
    #[must_use]
    pub fn length(&self) -> usize {
        COUNT_BYTES + self.head.len() + self.bytes.len()
    }

    /// The files in it.
    #[must_use]
    pub fn entries(&self) -> &[EntryId] {
        &self.entries
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends the pack to `out` and begins the next one; gives the files in it.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Vec<EntryId> {
        out.extend((self.entries.len() as u32).to_be_bytes());
        out.append(&mut self.head);
        out.append(&mut self.bytes);
        std::mem::take(&mut self.entries)
    }
}

/// A pack whose lengths contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the other end sent a pack whose lengths contradict each other: end the transfer")]
pub struct PackError;

/// A file of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed<'a> {
    /// Which.
    pub entry: EntryId,
    /// Its bytes, which have not been verified.
    pub bytes: &'a [u8],
    /// What they must hash to.
    pub root: Root,
}

impl Packed<'_> {
    /// Whether the bytes are those of the root.
    #[must_use]
    pub fn verify(&self) -> bool {
        blake3::hash(self.bytes) == self.root
    }
}

/// Reads a pack, once it is decompressed.
///
/// # Errors
/// It breaks FILE-16, as no sender's does: nothing of it may be used.
pub fn read(pack: &[u8]) -> Result<impl Iterator<Item = Packed<'_>> + Clone, PackError> {
    let (count, rest) = pack.split_first_chunk::<COUNT_BYTES>().ok_or(PackError)?;
    let count = u32::from_be_bytes(*count) as usize;
    if count == 0 || count > PACK_FILES_MAX || pack.len() > PACK_BYTES_MAX {
        return Err(PackError);
    }
    let (head, bytes) = rest.split_at_checked(count * ITEM_BYTES).ok_or(PackError)?;
    let lengths = head.chunks_exact(ITEM_BYTES).map(length_of);
    if lengths
        .clone()
        .any(|length| length == 0 || length as u64 > PACKED_FILE_BYTES_MAX)
        || lengths.sum::<usize>() != bytes.len()
    {
        return Err(PackError);
    }
    let mut start = 0;
    Ok(head.chunks_exact(ITEM_BYTES).map(move |item| {
        let end = start + length_of(item);
        let file = Packed {
            entry: u64::from_be_bytes(item[..8].try_into().expect("8 bytes")),
            bytes: &bytes[start..end],
            root: item[12..].try_into().expect("32 bytes"),
        };
        start = end;
        file
    }))
}

/// The length of a file, from its item of the head.
fn length_of(item: &[u8]) -> usize {
    u32::from_be_bytes(item[8..12].try_into().expect("4 bytes")) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(files: &[(EntryId, &[u8])]) -> Vec<u8> {
        let mut builder = Builder::default();
        for (entry, bytes) in files {
            assert!(builder.push(*entry, bytes));
        }
        let mut out = Vec::new();
        assert_eq!(builder.length(), {
            let entries = builder.finish(&mut out);
            assert_eq!(entries, files.iter().map(|(entry, _)| *entry).collect::<Vec<_>>());
            out.len()
        });
        assert!(builder.is_empty());
        out
    }

    /// FILE-16.
    #[test]
    fn files_are_read_as_they_were_packed() {
        let files: [(EntryId, &[u8]); 3] = [(7, b"seven"), (9, b"n"), (8, &[0; 65_536])];
        let pack = packed(&files);
        let read: Vec<_> = read(&pack).unwrap().collect();
        assert_eq!(
            read.iter()
                .map(|file| (file.entry, file.bytes))
                .collect::<Vec<_>>(),
            files
        );
        assert!(read.iter().all(Packed::verify));
    }

    /// FILE-16: the others of a pack are not lost with a damaged file.
    #[test]
    fn a_damaged_file_of_a_pack_fails_alone() {
        let mut pack = packed(&[(7, b"seven"), (9, b"nine"), (8, b"eight")]);
        let at = pack.len() - b"nineeight".len();
        pack[at] ^= 1;
        let whole: Vec<bool> = read(&pack).unwrap().map(|file| file.verify()).collect();
        assert_eq!(whole, [true, false, true]);
    }

    /// FILE-16.
    #[test]
    fn a_pack_fits_the_buffer_of_a_chunk() {
        let mut builder = Builder::default();
        let mut count = 0;
        while builder.push(count, &[1; 65_536]) {
            count += 1;
        }
        assert_eq!(count, 15);
        assert!(builder.length() <= PACK_BYTES_MAX);
        builder.finish(&mut Vec::new());
        count = 0;
        while builder.push(count, &[1]) {
            count += 1;
        }
        assert_eq!(count as usize, PACK_FILES_MAX);
    }

    /// FILE-16.
    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let pack = packed(&[(7, b"seven"), (9, b"nine")]);
        for end in 0..pack.len() {
            assert!(read(&pack[..end]).is_err(), "{end}");
        }
        let more = [&pack[..], b"x"].concat();
        assert!(read(&more).is_err());
        for (place, byte) in [
            (3, 3),
            (3, 1),
            (3, 0),
            (0, 255),
            (COUNT_BYTES + 8, 255),
            (COUNT_BYTES + 11, 0),
        ] {
            let mut changed = pack.clone();
            changed[place] = byte;
            assert!(read(&changed).is_err(), "{place}");
        }
    }

    proptest! {
        /// FILE-16.
        #[test]
        fn any_bytes_are_a_pack_or_an_error(head in prop::collection::vec(any::<u8>(), 0..200), count in 0_u8..4) {
            let mut pack = head;
            if pack.len() > COUNT_BYTES {
                pack[..COUNT_BYTES].copy_from_slice(&[0, 0, 0, count]);
            }
            if let Ok(files) = read(&pack) {
                let bytes: usize = files.clone().map(|file| file.bytes.len()).sum();
                prop_assert_eq!(COUNT_BYTES + files.count() * ITEM_BYTES + bytes, pack.len());
            }
        }
    }
}
