//! The journal beside a partial file: which chunks are in it, so that a later transfer neither asks for them nor hashes
//! them again (FILE-25 to FILE-27).
//!
//! A journal is a sequence of records, each with a checksum, that is only appended to; the first record that is torn or
//! damaged ends it. A chunk is recorded once its bytes were written, which a kill of the process does not undo, while a
//! power cut may. So the journal names the boot of the machine: chunks count where the boot is still the same, or where
//! a later SYNCED says that they had reached the disk. That a chunk was lost counts at once, whatever the boot. Whoever
//! goes on with a journal after another boot appends BOOT first, which keeps what stands before it from counting later.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::content::Address;
use crate::limits::{FILE_BYTES_MAX, FILE_CHUNKS_MAX, JOURNAL_RECORD_BYTES_MAX};
use crate::wire::{Input, Malformed, put, put_signed};

/// What identifies a boot of the machine; on Linux `/proc/sys/kernel/random/boot_id`.
pub type BootId = [u8; 16];

/// Which source the partial file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole file.
    pub size: u64,
    /// When the source was modified, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The machine's boot when the journal was begun.
    pub boot: BootId,
}

/// One record of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first one. After a later one, that of a source that changed, nothing before it counts.
    Header(Header),
    /// What follows is written after this boot.
    Boot(BootId),
    /// A chunk was verified and written.
    Chunk {
        /// Which.
        index: u64,
        /// Its address.
        address: Address,
    },
    /// A chunk is no longer there: it was found damaged.
    Lost {
        /// Which.
        index: u64,
    },
    /// Everything recorded before has reached the disk.
    Synced,
}

const HEADER: u8 = 1;
const CHUNK: u8 = 2;
const LOST: u8 = 3;
const SYNCED: u8 = 4;
const BOOT: u8 = 5;

/// Bytes of a record's checksum.
const SUM_BYTES: usize = 4;

impl Record {
    /// Appends the record: its length, its type and fields, its checksum.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self {
            Self::Header(_) => HEADER,
            Self::Boot(_) => BOOT,
            Self::Chunk { .. } => CHUNK,
            Self::Lost { .. } => LOST,
            Self::Synced => SYNCED,
        };
        put_frame(kind, out, |out| match self {
            Self::Header(header) => {
                put(header.size, out);
                put_signed(header.modified_ns, out);
                out.extend_from_slice(&header.boot);
            }
            Self::Boot(boot) => out.extend_from_slice(boot),
            Self::Chunk { index, address } => {
                put(*index, out);
                out.extend_from_slice(address);
            }
            Self::Lost { index } => put(*index, out),
            Self::Synced => {}
        });
    }

    fn read(body: &[u8]) -> Result<Self, Malformed> {
        let (kind, rest) = body.split_first().ok_or(Malformed)?;
        let mut input = Input(rest);
        let record = match *kind {
            HEADER => Self::Header(Header {
                size: input.bounded(FILE_BYTES_MAX)?,
                modified_ns: input.signed()?,
                boot: input.array()?,
            }),
            CHUNK => Self::Chunk {
                index: input.bounded(FILE_CHUNKS_MAX - 1)?,
                address: input.array()?,
            },
            LOST => Self::Lost {
                index: input.bounded(FILE_CHUNKS_MAX - 1)?,
            },
            SYNCED => Self::Synced,
            BOOT => Self::Boot(input.array()?),
            _ => return Err(Malformed),
        };
        if input.0.is_empty() {
            Ok(record)
        } else {
            Err(Malformed)
        }
    }
}

/// Appends a record of this type.
pub(crate) fn put_frame(kind: u8, out: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0, kind]);
    fields(out);
    out[start] = (out.len() - start - 1) as u8;
    let sum = checksum(&out[start..]);
    out.extend(sum);
}

/// Types and fields of records, up to the first that is cut or damaged.
pub(crate) fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(*bytes.first()?);
        let (record, rest) = bytes.split_at_checked(1 + length + SUM_BYTES)?;
        let (whole, sum) = record.split_at(1 + length);
        let (kind, fields) = whole[1..].split_first()?;
        bytes = rest;
        (checksum(whole) == *sum).then_some((*kind, fields))
    })
}

/// Of length and body: zeros, which a file system may leave after a power cut, are no record.
fn checksum(bytes: &[u8]) -> [u8; SUM_BYTES] {
    let hash = blake3::hash(bytes);
    hash.as_bytes()[..SUM_BYTES].try_into().expect("4 bytes of 32")
}

/// What a journal says of its partial file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// The source.
    pub header: Header,
    /// Chunks that are in the partial file, and their addresses.
    pub chunks: BTreeMap<u64, Address>,
    /// Those of them that count because the boot is the same, and may not have reached the disk: a medium that was
    /// pulled out has lost them, so that they are to be hashed before they are relied on.
    pub unsynced: BTreeSet<u64>,
    /// Whether all is known of what is in the partial file; not where a source that changed was written down, and no
    /// SYNCED after it: then more of the file's may be there than is told.
    pub is_settled: bool,
    /// How many bytes of the journal may be appended to; what is behind them is to be cut off.
    pub valid_bytes: u64,
}

/// A journal that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the journal of a partial file does not begin as one of this version: the file is received from its start"
)]
pub struct JournalError;

/// Reads a journal as it comes from its file.
#[derive(Debug)]
pub struct Reader {
    /// This machine's.
    boot: BootId,
    /// That of what is being read.
    written_after: BootId,
    waiting: Vec<u8>,
    header: Option<Header>,
    chunks: BTreeMap<u64, Address>,
    /// Chunks since the last SYNCED.
    unsynced: BTreeMap<u64, Address>,
    is_settled: bool,
    valid_bytes: u64,
    ended: bool,
}

impl Reader {
    /// A reader at a machine whose boot is `boot`.
    #[must_use]
    pub fn new(boot: BootId) -> Self {
        Self {
            boot,
            written_after: boot,
            waiting: Vec::new(),
            header: None,
            chunks: BTreeMap::new(),
            unsynced: BTreeMap::new(),
            is_settled: true,
            valid_bytes: 0,
            ended: false,
        }
    }

    /// Takes the next bytes of the file; `false` once nothing behind them can count.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if self.ended {
            return false;
        }
        self.waiting.extend_from_slice(bytes);
        let mut used = 0;
        while let Some((length, rest)) = self.waiting[used..].split_first() {
            let length = usize::from(*length);
            if length > JOURNAL_RECORD_BYTES_MAX {
                self.ended = true;
                break;
            }
            let Some(sum) = rest.get(length..length + SUM_BYTES) else {
                break;
            };
            let whole = &self.waiting[used..=used + length];
            let Some(record) = Record::read(&whole[1..]).ok().filter(|_| checksum(whole) == *sum) else {
                self.ended = true;
                break;
            };
            if !self.take(record) {
                self.ended = true;
                break;
            }
            used += 1 + length + SUM_BYTES;
            self.valid_bytes += (1 + length + SUM_BYTES) as u64;
        }
        self.waiting.drain(..used);
        !self.ended
    }

    /// What the journal says.
    ///
    /// # Errors
    /// It has no header.
    pub fn finish(mut self) -> Result<Journal, JournalError> {
        let header = self.header.ok_or(JournalError)?;
        let mut unsynced = BTreeSet::new();
        if self.written_after == self.boot {
            unsynced = self.unsynced.keys().copied().collect();
            self.chunks.append(&mut self.unsynced);
        }
        Ok(Journal {
            header,
            chunks: self.chunks,
            unsynced,
            is_settled: self.is_settled,
            valid_bytes: self.valid_bytes,
        })
    }

    /// `false` for a record that cannot stand where it stands.
    fn take(&mut self, record: Record) -> bool {
        let Some(header) = self.header else {
            let Record::Header(header) = record else {
                return false;
            };
            self.begin(header);
            return true;
        };
        let chunks = header.size.div_ceil(crate::limits::CHUNK_BYTES);
        match record {
            Record::Header(header) => self.begin(header),
            Record::Boot(boot) => {
                if boot != self.written_after {
                    self.unsynced.clear();
                }
                self.written_after = boot;
            }
            Record::Chunk { index, address } if index < chunks => {
                self.unsynced.insert(index, address);
            }
            // It may have been there for many boots.
            Record::Lost { index } if index < chunks => {
                self.chunks.remove(&index);
                self.unsynced.remove(&index);
            }
            Record::Chunk { .. } | Record::Lost { .. } => return false,
            Record::Synced => self.settle(),
        }
        true
    }

    fn begin(&mut self, header: Header) {
        self.chunks.clear();
        self.unsynced.clear();
        self.written_after = header.boot;
        self.is_settled = self.header.is_none();
        self.header = Some(header);
    }

    /// What was recorded since the last SYNCED counts.
    fn settle(&mut self) {
        self.chunks.append(&mut self.unsynced);
        self.is_settled = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: BootId = [1; 16];
    const HEADER: Header = Header {
        size: 100 << 20,
        modified_ns: -5,
        boot: FIRST,
    };

    fn chunk(index: u64) -> Record {
        Record::Chunk {
            index,
            address: [index as u8; 32],
        }
    }

    fn encoded(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            record.encode(&mut out);
        }
        out
    }

    fn read(bytes: &[u8], boot: BootId, step: usize) -> Result<Journal, JournalError> {
        let mut reader = Reader::new(boot);
        for part in bytes.chunks(step) {
            reader.push(part);
        }
        reader.finish()
    }

    fn chunks(journal: &Journal) -> Vec<u64> {
        journal.chunks.keys().copied().collect()
    }

    /// FILE-25.
    #[test]
    fn what_was_recorded_is_known_after_a_kill() {
        let bytes = encoded(&[
            Record::Header(HEADER),
            chunk(3),
            chunk(0),
            Record::Synced,
            chunk(7),
        ]);
        for step in [1, 3, 50, 1_000] {
            let journal = read(&bytes, FIRST, step).unwrap();
            assert_eq!(journal.header, HEADER);
            assert_eq!(chunks(&journal), [0, 3, 7]);
            assert_eq!(journal.chunks[&3], [3; 32]);
            assert_eq!(journal.unsynced, [7].into());
            assert_eq!(journal.valid_bytes, bytes.len() as u64);
        }
    }

    /// FILE-26: a power cut may undo what was not synced.
    #[test]
    fn after_another_boot_only_what_was_synced_counts() {
        let bytes = encoded(&[
            Record::Header(HEADER),
            chunk(3),
            chunk(0),
            Record::Synced,
            chunk(7),
        ]);
        let journal = read(&bytes, [2; 16], 9).unwrap();
        assert_eq!(chunks(&journal), [0, 3]);
        assert_eq!(journal.valid_bytes, bytes.len() as u64);
        assert!(journal.unsynced.is_empty());
        let journal = read(&bytes, FIRST, 9).unwrap();
        assert_eq!((chunks(&journal), journal.unsynced), (vec![0, 3, 7], [7].into()));
    }

    /// FILE-27: what was found damaged is not in the part because the machine starts again.
    #[test]
    fn what_was_lost_does_not_count_after_another_boot() {
        let second = [2; 16];
        let mut bytes = encoded(&[
            Record::Header(HEADER),
            chunk(3),
            chunk(0),
            Record::Synced,
            chunk(7),
            Record::Lost { index: 3 },
            Record::Lost { index: 7 },
        ]);
        for boot in [FIRST, second] {
            let journal = read(&bytes, boot, 9).unwrap();
            assert_eq!((chunks(&journal), journal.unsynced), (vec![0], [].into()));
        }
        // Nor once that one has gone on with it, and after a third.
        let kept = read(&bytes, second, 9).unwrap().valid_bytes;
        bytes.truncate(usize::try_from(kept).unwrap());
        bytes.extend(encoded(&[
            Record::Boot(second),
            chunk(4),
            Record::Synced,
            chunk(3),
        ]));
        assert_eq!(chunks(&read(&bytes, [3; 16], 9).unwrap()), [0, 4]);
        assert_eq!(chunks(&read(&bytes, second, 9).unwrap()), [0, 3, 4]);
    }

    /// FILE-26.
    #[test]
    fn a_journal_goes_on_after_another_boot() {
        let second = [2; 16];
        let before = encoded(&[Record::Header(HEADER), chunk(3), Record::Synced]);
        let after = encoded(&[Record::Boot(second), chunk(4)]);
        let bytes = [&before[..], &after].concat();
        assert_eq!(chunks(&read(&bytes, second, 9).unwrap()), [3, 4]);
        assert_eq!(chunks(&read(&bytes, FIRST, 9).unwrap()), [3]);
        // What the first boot had not synced is not made true by the second one.
        let bytes = [
            &before[..],
            &encoded(&[chunk(6)]),
            &after,
            &encoded(&[Record::Synced]),
        ]
        .concat();
        assert_eq!(chunks(&read(&bytes, [3; 16], 9).unwrap()), [3, 4]);
    }

    /// FILE-25.
    #[test]
    fn a_torn_record_ends_the_journal_and_is_cut_off() {
        let whole = encoded(&[Record::Header(HEADER), chunk(3)]);
        let bytes = [&whole[..], &encoded(&[chunk(5)])].concat();
        for end in whole.len()..bytes.len() {
            let journal = read(&bytes[..end], FIRST, 4).unwrap();
            assert_eq!(
                (chunks(&journal), journal.valid_bytes),
                (vec![3], whole.len() as u64)
            );
            // What is appended after the cut counts.
            let appended = [&bytes[..whole.len()], &encoded(&[chunk(9)])].concat();
            assert_eq!(chunks(&read(&appended, FIRST, 4).unwrap()), [3, 9]);
        }
        let zeros = [&whole[..], &[0; 4_096]].concat();
        assert_eq!(chunks(&read(&zeros, FIRST, 64).unwrap()), [3]);
    }

    /// FILE-27.
    #[test]
    fn a_later_header_makes_what_was_before_void() {
        let changed = Header {
            size: 2 << 20,
            ..HEADER
        };
        let bytes = encoded(&[
            Record::Header(HEADER),
            chunk(3),
            Record::Synced,
            Record::Header(changed),
            chunk(1),
        ]);
        let journal = read(&bytes, FIRST, 7).unwrap();
        assert_eq!((journal.header, chunks(&journal)), (changed, vec![1]));
        assert!(!journal.is_settled, "more of the file's may be there");
        let bytes = [bytes, encoded(&[Record::Synced])].concat();
        assert!(read(&bytes, FIRST, 7).unwrap().is_settled);
        // A chunk that the file does not have.
        let bytes = encoded(&[Record::Header(changed), chunk(1), chunk(2), chunk(0)]);
        assert_eq!(chunks(&read(&bytes, FIRST, 7).unwrap()), [1]);
    }

    /// FILE-25.
    #[test]
    fn what_does_not_begin_with_a_header_is_no_journal() {
        assert_eq!(read(b"", FIRST, 1), Err(JournalError));
        assert_eq!(
            read(&encoded(&[chunk(1), Record::Header(HEADER)]), FIRST, 64),
            Err(JournalError)
        );
        assert_eq!(read(&[0; 100], FIRST, 64), Err(JournalError));
        assert_eq!(read(b"some other file of the user", FIRST, 64), Err(JournalError));
    }

    fn record() -> impl Strategy<Value = Record> {
        prop_oneof![
            6 => (0_u64..100).prop_map(chunk),
            1 => (0_u64..100).prop_map(|index| Record::Lost { index }),
            1 => Just(Record::Synced),
            1 => any::<bool>().prop_map(|same| Record::Boot(if same { FIRST } else { [2; 16] })),
            1 => (any::<bool>(), 1_u64..200 << 20).prop_map(|(same, size)| Record::Header(Header {
                size,
                boot: if same { FIRST } else { [2; 16] },
                ..HEADER
            })),
        ]
    }

    proptest! {
        /// FILE-25, FILE-26: whatever is torn or flipped, nothing is claimed that was not recorded.
        #[test]
        fn damage_claims_nothing(records in prop::collection::vec(record(), 0..30), at: prop::sample::Index, bit in 0_u8..8, cut: bool, step in 1_usize..80) {
            let whole = encoded(&[&[Record::Header(HEADER)], &records[..]].concat());
            let mut bytes = whole.clone();
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1 << bit;
            }
            for boot in [FIRST, [2; 16]] {
                let Ok(journal) = read(&bytes, boot, step) else { continue };
                prop_assert!(journal.valid_bytes <= at as u64);
                // What counts is what a whole journal of that length says.
                let kept = read(&whole[..journal.valid_bytes as usize], boot, 1_000).unwrap();
                prop_assert_eq!(journal, kept);
            }
        }

        /// FILE-25.
        #[test]
        fn any_bytes_are_a_journal_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), step in 1_usize..80) {
            if let Ok(journal) = read(&bytes, FIRST, step) {
                prop_assert!(journal.valid_bytes <= bytes.len() as u64);
            }
        }
    }
}
