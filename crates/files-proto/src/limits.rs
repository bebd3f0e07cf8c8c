//! Bounds of a transfer: what `specs/files.md` fixes, and what this crate chose.

// Fixed by specs/files.md.

/// Bytes of a chunk; the last one of a file may be shorter (FILE-10). A power of two of BLAKE3's own chunks.
pub const CHUNK_BYTES: u64 = 1 << 20;
/// A file of at most so many bytes travels in a pack (FILE-16).
pub const PACKED_FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a pack, its head included (FILE-16): it fits the buffer of a chunk.
pub const PACK_BYTES_MAX: usize = CHUNK_BYTES as usize;
/// Files of a pack (FILE-16).
pub const PACK_FILES_MAX: usize = 1_024;
/// Bytes of a record's head (FILE-17).
pub const RECORD_HEAD_BYTES: usize = 64;
/// Bytes behind a record's head (FILE-17): a chunk as it is.
pub const RECORD_BODY_BYTES_MAX: usize = CHUNK_BYTES as usize;
/// Bytes of a control message's value (FILE-3): an ENTRY with the longest target and all attributes is shorter.
pub const MESSAGE_BYTES_MAX: usize = 96 << 10;
/// Bytes of one name, as in every common file system (FILE-20).
pub const NAME_BYTES_MAX: usize = 255;
/// Depth of directories (FILE-6): paths of common systems have 4,096 bytes.
pub const DEPTH_MAX: usize = 256;
/// Bytes of a symbolic link's target (PATH_MAX).
pub const TARGET_BYTES_MAX: usize = 4_096;
/// Bytes of an entry's extended attributes, names and values together (FILE-7): what ext4 keeps in a block, many times.
pub const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
/// Extended attributes of an entry (FILE-7).
pub const ATTRIBUTES_MAX: usize = 128;
/// Chunks of a file (FILE-10): 4 TiB.
pub const FILE_CHUNKS_MAX: u64 = 4 << 20;
/// Bytes of a file (FILE-10).
pub const FILE_BYTES_MAX: u64 = FILE_CHUNKS_MAX * CHUNK_BYTES;
/// Entries that are offered and neither stored, skipped nor failed (FILE-8): covers a round trip of 1 s at 65,536 files
/// a second.
pub const ENTRIES_OPEN_MAX: usize = 65_536;
/// Bytes of the values of their ENTRY messages (FILE-8).
pub const ENTRIES_OPEN_BYTES_MAX: usize = 8 << 20;
/// Chunks of all files that are open, together (FILE-8): 8 TiB, two of the largest files, whose addresses take
/// 256 MiB once all of them are known.
pub const CHUNKS_OPEN_MAX: u64 = 2 * FILE_CHUNKS_MAX;
/// Names that are remembered of directories that are not done (FILE-22): 34 MiB of hashes and numbers.
pub const NAMES_OPEN_MAX: usize = 1_835_008;
/// How often one name may be offered in a directory (FILE-22): only sources of a user's command line share names.
pub const NAME_REPEATS_MAX: u32 = 1_000;
/// Addresses in one HASHES message.
pub const HASHES_MAX: usize = 2_048;
/// Ranges in one WANT or ACK (FILE-12).
pub const RANGES_MAX: usize = 1_024;
/// Bytes of a text for people in a message (FILE-18).
pub const TEXT_BYTES_MAX: usize = 512;
/// Extensions in HELLO (FILE-2).
pub const EXTENSIONS_MAX: usize = 32;
/// Socket addresses that a TCP offer names.
pub const ADDRESSES_MAX: usize = 16;
/// How often all of a file may be wanted (FILE-14): once, and three times more for chunks that were damaged.
pub const WANTED_TIMES_MAX: u64 = 4;
/// How often the addresses of a file may be asked for (FILE-14), with the same reasons.
pub const ASKED_TIMES_MAX: u32 = 4;
/// Bytes of a journal's record without length and checksum (FILE-25): of a chunk, the longest.
pub const JOURNAL_RECORD_BYTES_MAX: usize = 1 + 8 + 32;
/// How much is in doubt after a power cut where the clock was set back since, so that nobody knows when that was
/// (FILE-46), in nanoseconds: transfers are shorter than a day.
pub const DOUBT_TIME_MIN_NS: i64 = 86_400_000_000_000;

// Of codes (specs/files.md, FILE-30 and after).

/// The least number of a code: numbers of guests, which have four digits at least.
pub const CODE_NUMBER_MIN: u32 = 1_000;
/// The greatest.
pub const CODE_NUMBER_MAX: u32 = 99_999;
/// Bytes of a frame of the key exchange.
pub const EXCHANGE_FRAME_BYTES_MAX: usize = 64;

// Chosen.

/// Bytes from the middle of a chunk that decide whether all of it is compressed: a sixteenth of a chunk shows of most
/// files what the whole would.
pub const SAMPLE_BYTES: usize = 64 << 10;
/// Chunks in a row that do not shrink before some are not tried.
pub const UNCOMPRESSIBLE_CHUNKS: u32 = 4;
/// Chunks at most that are not tried after one that did not shrink: a text behind an archive is noticed within 256 MiB.
pub const SKIPPED_CHUNKS_MAX: u32 = 256;

const _: () = assert!(
    TARGET_BYTES_MAX + ATTRIBUTES_BYTES_MAX + NAME_BYTES_MAX + ATTRIBUTES_MAX * 16 + 64 < MESSAGE_BYTES_MAX
);
const _: () = assert!(HASHES_MAX * 32 + 64 < MESSAGE_BYTES_MAX && RANGES_MAX * 16 + 64 < MESSAGE_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES.is_power_of_two() && PACKED_FILE_BYTES_MAX + 64 <= CHUNK_BYTES);
