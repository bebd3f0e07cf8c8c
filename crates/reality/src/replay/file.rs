//! The replay window's file: a header, and a record for each tag, which are only ever appended.
//!
//! ```text
//! header = "gramway replays1" ‖ boot[16] ‖ u8 flags ‖ u32 floor
//! record = tag[16] ‖ u32 time ‖ u32 accepted
//! ```
//!
//! Numbers are big-endian. Flag 1: there is a floor. What a process wrote is there when it is killed, but perhaps not
//! when the machine stops: hence the boot. Flag 2: the process has ended, and the file was on the disk before it had
//! this name, so that it is whole after every boot. A last record that is cut off was never answered.

use super::Tag;
use crate::limits::REPLAY_FILE_BYTES_MAX;

/// The kernel's name for this boot of the machine.
pub type BootId = [u8; 16];

const MAGIC: &[u8; 16] = b"gramway replays1";
/// Of the header.
#[cfg(test)]
pub(super) const HEADER_BYTES: usize = 16 + 16 + 5;
/// Where the flags are.
const FLAGS_AT: usize = 16 + 16;
const HAS_FLOOR: u8 = 1;
const IS_ENDED: u8 = 2;

/// Of one record.
pub const RECORD_BYTES: usize = 16 + 4 + 4;

/// Tag, time of the hello, time of its acceptance.
type Record = (Tag, u32, u32);

/// Floor and records; `None` where the file is another's, of a process that another boot of the machine cut short, or
/// too long.
pub(super) fn read(bytes: &[u8], boot: &BootId) -> Option<(Option<u32>, impl Iterator<Item = Record>)> {
    if bytes.len() > REPLAY_FILE_BYTES_MAX {
        return None;
    }
    let (writer, records) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<16>()?;
    let ([flags, floor @ ..], records) = records.split_first_chunk::<5>()?;
    let is_known = flags & !(HAS_FLOOR | IS_ENDED) == 0;
    let is_whole = writer == boot || flags & IS_ENDED != 0;
    if !is_known || !is_whole {
        return None;
    }
    let floor = (flags & HAS_FLOOR != 0).then_some(u32::from_be_bytes(*floor));
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
    let flags = if floor.is_some() { HAS_FLOOR } else { 0 };
    let mut bytes = [&MAGIC[..], boot, &[flags]].concat();
    bytes.extend_from_slice(&floor.unwrap_or(0).to_be_bytes());
    for (tag, time, accepted) in records {
        bytes.extend_from_slice(&record(tag, *time, *accepted));
    }
    bytes
}

/// Marks a file as that of a process that has ended.
pub(super) fn mark_ended(bytes: &mut [u8]) {
    if let Some(flags) = bytes.get_mut(FLAGS_AT) {
        *flags |= IS_ENDED;
    }
}

/// Where a byte of the file is to be another, and which one, before a process may accept anything; `None` where the
/// file is not of one that has ended.
#[must_use]
pub fn begin_again(bytes: &[u8]) -> Option<(u64, u8)> {
    let flags = bytes.get(FLAGS_AT).filter(|flags| *flags & IS_ENDED != 0)?;
    Some((FLAGS_AT as u64, flags & !IS_ENDED))
}
