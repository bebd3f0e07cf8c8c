//! Records: what carries the bytes of files on QUIC streams and TCP connections, a head of 64 bytes and a body.

use thiserror::Error;

use crate::content::{Address, chunk_address};
use crate::entry::EntryId;
use crate::limits::{CHUNK_BYTES, FILE_CHUNKS_MAX, PACK_BYTES_MAX, RECORD_BODY_BYTES_MAX, RECORD_HEAD_BYTES};

/// A record's head (FILE-17). Heads of all versions have the same length and say how many bytes follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// What the body is.
    pub body: Body,
    /// Whether the body is compressed by zstd.
    pub compressed: bool,
    /// Bytes of the body as it travels.
    pub stored_bytes: u32,
    /// Bytes of the body once it is decompressed.
    pub raw_bytes: u32,
}

/// What a record's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// A chunk of a file.
    Chunk(Chunk),
    /// Many small files (see [`crate::pack`]).
    Pack,
    /// A part of a chunk of a pipe that is not full.
    Piece(Piece),
    /// Something of a later version: its bytes are passed over.
    Unknown,
}

/// Which chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The file.
    pub entry: EntryId,
    /// Which one of it.
    pub index: u64,
    /// Its address.
    pub address: Address,
    /// Whether it is the only chunk of its file: of a pipe, the receiver does not know otherwise.
    pub only: bool,
    /// Whether all bytes are zero, and none travel.
    pub hole: bool,
}

/// What has been read of a chunk of a pipe, ahead of the whole (FILE-39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The pipe.
    pub entry: EntryId,
    /// The chunk.
    pub index: u64,
    /// Where in the chunk it begins, in bytes.
    pub offset: u32,
}

/// A record that breaks FILE-17.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A length above its bound, or one that contradicts a flag.
    #[error(
        "the other end sent a record whose lengths are impossible ({stored} bytes for {raw}): end the transfer"
    )]
    Length {
        /// As it travels.
        stored: u32,
        /// Decompressed.
        raw: u32,
    },
    /// A chunk that no file has.
    #[error("the other end sent chunk {0}, which no file has: end the transfer")]
    Index(u64),
}

/// The bytes of a chunk are not those of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("chunk {index} of entry {entry} does not have its hash: it is fetched again")]
pub struct Damaged {
    /// The file.
    pub entry: EntryId,
    /// Which chunk.
    pub index: u64,
}

const CHUNK: u8 = 0;
const PACK: u8 = 1;
const PIECE: u8 = 2;

const COMPRESSED: u8 = 1;
const HOLE: u8 = 2;
const ONLY: u8 = 4;

impl RecordHead {
    /// The head as it travels.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD_HEAD_BYTES] {
        let mut out = [0; RECORD_HEAD_BYTES];
        let mut flags = if self.compressed { COMPRESSED } else { 0 };
        out[0] = match &self.body {
            Body::Chunk(chunk) => {
                flags |= if chunk.hole { HOLE } else { 0 } | if chunk.only { ONLY } else { 0 };
                out[12..20].copy_from_slice(&chunk.entry.to_be_bytes());
                out[20..28].copy_from_slice(&chunk.index.to_be_bytes());
                out[28..60].copy_from_slice(&chunk.address);
                CHUNK
            }
            Body::Pack => PACK,
            Body::Piece(piece) => {
                out[12..20].copy_from_slice(&piece.entry.to_be_bytes());
                out[20..28].copy_from_slice(&piece.index.to_be_bytes());
                out[28..32].copy_from_slice(&piece.offset.to_be_bytes());
                PIECE
            }
            Body::Unknown => u8::MAX,
        };
        out[1] = flags;
        out[4..8].copy_from_slice(&self.stored_bytes.to_be_bytes());
        out[8..12].copy_from_slice(&self.raw_bytes.to_be_bytes());
        out
    }

    /// Reads a head; after it come [`RecordHead::stored_bytes`] bytes of body.
    ///
    /// # Errors
    /// The head breaks FILE-17; nothing can be read of its carrier any more.
    pub fn decode(head: &[u8; RECORD_HEAD_BYTES]) -> Result<Self, RecordError> {
        let number = |start: usize| u64::from_be_bytes(head[start..start + 8].try_into().expect("8 bytes"));
        let length = |start: usize| u32::from_be_bytes(head[start..start + 4].try_into().expect("4 bytes"));
        let (stored, raw) = (length(4), length(8));
        let flags = head[1];
        let compressed = flags & COMPRESSED != 0;
        let error = RecordError::Length { stored, raw };
        if stored as usize > RECORD_BODY_BYTES_MAX {
            return Err(error);
        }
        let body = match head[0] {
            CHUNK => Body::Chunk(Chunk {
                entry: number(12),
                index: number(20),
                address: head[28..60].try_into().expect("32 bytes"),
                only: flags & ONLY != 0,
                hole: flags & HOLE != 0,
            }),
            PACK => Body::Pack,
            PIECE => Body::Piece(Piece {
                entry: number(12),
                index: number(20),
                offset: length(28),
            }),
            _ => Body::Unknown,
        };
        let possible = match &body {
            Body::Chunk(chunk) => {
                if chunk.index >= FILE_CHUNKS_MAX {
                    return Err(RecordError::Index(chunk.index));
                }
                let travels = match (chunk.hole, compressed) {
                    (true, compressed) => stored == 0 && !compressed,
                    (false, true) => stored > 0 && stored < raw,
                    (false, false) => stored == raw,
                };
                travels && raw > 0 && u64::from(raw) <= CHUNK_BYTES && !(chunk.only && chunk.index > 0)
            }
            Body::Pack => {
                let travels = if compressed {
                    stored > 0 && stored < raw
                } else {
                    stored == raw
                };
                travels && raw > 0 && raw as usize <= PACK_BYTES_MAX
            }
            Body::Piece(piece) => {
                if piece.index >= FILE_CHUNKS_MAX {
                    return Err(RecordError::Index(piece.index));
                }
                let end = u64::from(piece.offset) + u64::from(raw);
                !compressed && raw > 0 && stored == raw && end <= CHUNK_BYTES
            }
            Body::Unknown => true,
        };
        if !possible {
            return Err(error);
        }
        Ok(Self {
            body,
            compressed,
            stored_bytes: stored,
            raw_bytes: raw,
        })
    }
}

impl Chunk {
    /// Checks decompressed bytes, those of a hole as zeros, against the address.
    ///
    /// # Errors
    /// They are not the bytes that the address is of.
    pub fn verify(&self, bytes: &[u8]) -> Result<(), Damaged> {
        let is_chunk = !bytes.is_empty() && bytes.len() as u64 <= CHUNK_BYTES;
        if is_chunk && chunk_address(self.index, self.only, bytes) == self.address {
            Ok(())
        } else {
            Err(Damaged {
                entry: self.entry,
                index: self.index,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(index: u64, only: bool, bytes: &[u8]) -> Chunk {
        Chunk {
            entry: 3,
            index,
            address: chunk_address(index, only, bytes),
            only,
            hole: false,
        }
    }

    fn piece(offset: u32) -> Piece {
        Piece {
            entry: 3,
            index: 5,
            offset,
        }
    }

    fn head(body: Body, compressed: bool, stored_bytes: u32, raw_bytes: u32) -> RecordHead {
        RecordHead {
            body,
            compressed,
            stored_bytes,
            raw_bytes,
        }
    }

    /// FILE-17.
    #[test]
    fn heads_are_read_as_they_were_written() {
        let plain = chunk(5, false, b"bytes");
        let hole = Chunk { hole: true, ..plain };
        for head in [
            head(Body::Chunk(plain), false, 5, 5),
            head(Body::Chunk(plain), true, 5, 1 << 20),
            head(Body::Chunk(hole), false, 0, 1 << 20),
            head(Body::Chunk(chunk(0, true, b"bytes")), false, 5, 5),
            head(Body::Pack, true, 500, 1 << 20),
            head(Body::Piece(piece(9)), false, 5, 5),
            head(Body::Unknown, false, 70, 9),
        ] {
            assert_eq!(RecordHead::decode(&head.encode()), Ok(head));
        }
    }

    /// FILE-17.
    #[test]
    fn impossible_lengths_are_refused() {
        let plain = chunk(5, false, b"bytes");
        let hole = Chunk { hole: true, ..plain };
        let only = Chunk { only: true, ..plain };
        for head in [
            head(Body::Chunk(plain), false, 5, 6),
            head(Body::Chunk(plain), false, 0, 0),
            head(Body::Chunk(plain), false, (1 << 20) + 1, (1 << 20) + 1),
            head(Body::Chunk(plain), true, 6, 6),
            head(Body::Chunk(plain), true, 6, (1 << 20) + 1),
            head(Body::Chunk(hole), false, 1, 1),
            head(Body::Chunk(hole), true, 0, 5),
            head(Body::Chunk(only), false, 5, 5),
            head(Body::Pack, false, 1, 2),
            head(Body::Pack, true, 9, u32::MAX),
            head(Body::Piece(piece(0)), true, 5, 6),
            head(Body::Piece(piece(0)), false, 0, 0),
            head(Body::Piece(piece((1 << 20) - 4)), false, 5, 5),
            head(Body::Piece(piece(u32::MAX)), false, 5, 5),
            head(Body::Unknown, false, u32::MAX, 0),
        ] {
            assert!(
                matches!(
                    RecordHead::decode(&head.encode()),
                    Err(RecordError::Length { .. })
                ),
                "{head:?}"
            );
        }
        let far = head(
            Body::Chunk(Chunk {
                index: FILE_CHUNKS_MAX,
                ..plain
            }),
            false,
            5,
            5,
        );
        assert_eq!(
            RecordHead::decode(&far.encode()),
            Err(RecordError::Index(FILE_CHUNKS_MAX))
        );
    }

    /// FILE-10: a chunk verifies by itself, and only at its place.
    #[test]
    fn a_chunk_verifies_only_with_its_bytes_at_its_place() {
        let good = chunk(5, false, b"bytes");
        assert_eq!(good.verify(b"bytes"), Ok(()));
        let damaged = Damaged { entry: 3, index: 5 };
        assert_eq!(good.verify(b"Bytes"), Err(damaged));
        assert_eq!(good.verify(b""), Err(damaged));
        assert!(Chunk { index: 6, ..good }.verify(b"bytes").is_err());
        assert!(Chunk { only: true, ..good }.verify(b"bytes").is_err());
    }

    proptest! {
        /// FILE-17.
        #[test]
        fn what_is_read_is_within_bounds_and_is_written_back_alike(bytes: [u8; 32], kind in 0_u8..4, flags in 0_u8..8) {
            let mut input = [0; RECORD_HEAD_BYTES];
            input[..32].copy_from_slice(&bytes);
            input[0] = kind;
            input[1] = flags;
            // Lengths that are possible now and then.
            input[4] = 0;
            input[8..12].copy_from_slice(&{ if bytes[8] & 1 == 0 { [0, bytes[5], bytes[6], bytes[7]] } else { [0, bytes[9], 0, 0] } });
            if let Ok(head) = RecordHead::decode(&input) {
                prop_assert!(head.stored_bytes as usize <= RECORD_BODY_BYTES_MAX);
                prop_assert_eq!(RecordHead::decode(&head.encode()), Ok(head));
            }
        }
    }
}
