//! The replay window's file: a header, and a record for each tag, which are only ever appended.
//!
//! ```text
//! header = "gramway replays1" ‖ boot[16] ‖ u8 whether there is a floor ‖ u32 floor
//! record = tag[16] ‖ u32 time ‖ u32 accepted
//! ```
//!
//! Numbers are big-endian. What a process wrote is there when it is killed, but perhaps not when the machine stops:
//! hence the boot. A last record that is cut off was never answered.

use super::Tag;
use crate::limits::REPLAY_FILE_BYTES_MAX;

/// The kernel's name for this boot of the machine.
pub type BootId = [u8; 16];

const MAGIC: &[u8; 16] = b"gramway replays1";
/// Of the header.
#[cfg(test)]
pub(super) const HEADER_BYTES: usize = 16 + 16 + 5;
/// Of one record.
pub const RECORD_BYTES: usize = 16 + 4 + 4;

/// Tag, time of the hello, time of its acceptance.
type Record = (Tag, u32, u32);

/// Floor and records; `None` where the file is another's, another boot's, or too long.
pub(super) fn read(bytes: &[u8], boot: &BootId) -> Option<(Option<u32>, impl Iterator<Item = Record>)> {
    if bytes.len() > REPLAY_FILE_BYTES_MAX {
        return None;
    }
    let records = bytes.strip_prefix(MAGIC)?.strip_prefix(boot)?;
    let ([has_floor, floor @ ..], records) = records.split_first_chunk::<5>()?;
    let floor = match has_floor {
        0 => None,
        1 => Some(u32::from_be_bytes(*floor)),
        _ => return None,
    };
    let records = records.chunks_exact(RECORD_BYTES).filter_map(|record| {
        let (tag, times) = record.split_first_chunk()?;
        let (time, accepted) = times.split_first_chunk()?;
        let accepted = accepted.first_chunk()?;
        Some((*tag, u32::from_be_bytes(*time), u32::from_be_bytes(*accepted)))
    });
    Some((floor, records))
}

pub(super) fn record(tag: &Tag, time: u32, accepted: u32) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..16].copy_from_slice(tag);
    record[16..20].copy_from_slice(&time.to_be_bytes());
    record[20..].copy_from_slice(&accepted.to_be_bytes());
    record
}

pub(super) fn write<'a>(
    boot: &BootId,
    floor: Option<u32>,
    records: impl Iterator<Item = &'a Record>,
) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], boot, &[floor.is_some().into()]].concat();
    bytes.extend_from_slice(&floor.unwrap_or(0).to_be_bytes());
    for (tag, time, accepted) in records {
        bytes.extend_from_slice(&record(tag, *time, *accepted));
    }
    bytes
}
