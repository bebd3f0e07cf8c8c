//! The first 24 bytes of a generated datagram: magic (4), flow (4), sequence number (8), time of sending (8), all
//! big-endian. The rest is padding. The magic keeps foreign datagrams out of the counts.

use std::time::{SystemTime, UNIX_EPOCH};

const MAGIC: u32 = 0x6772_616d;

/// Smallest datagram that the generator makes, in bytes.
pub(crate) const HEADER_BYTES: usize = 24;

/// What a generated datagram says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Number of the flow, from 0.
    pub(crate) flow: u32,
    /// Number of the datagram in its flow, from 0.
    pub(crate) sequence: u64,
    /// Nanoseconds since the Unix epoch: generator and sink are two processes of one machine.
    pub(crate) sent_at: u64,
}

impl Header {
    /// Writes the header into the first [`HEADER_BYTES`] of a datagram; a shorter one stays as it is.
    pub(crate) fn write(&self, datagram: &mut [u8]) {
        let Some(head) = datagram.first_chunk_mut::<HEADER_BYTES>() else {
            return;
        };
        head[..4].copy_from_slice(&MAGIC.to_be_bytes());
        head[4..8].copy_from_slice(&self.flow.to_be_bytes());
        head[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        head[16..].copy_from_slice(&self.sent_at.to_be_bytes());
    }

    /// Reads a header; `None` when the datagram is not ours.
    pub(crate) fn read(datagram: &[u8]) -> Option<Self> {
        let (magic, rest) = datagram.split_first_chunk::<4>()?;
        let (flow, rest) = rest.split_first_chunk::<4>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let sent_at = rest.first_chunk::<8>()?;
        (u32::from_be_bytes(*magic) == MAGIC).then(|| Self {
            flow: u32::from_be_bytes(*flow),
            sequence: u64::from_be_bytes(*sequence),
            sent_at: u64::from_be_bytes(*sent_at),
        })
    }
}

/// The present, as [`Header::sent_at`] counts it.
pub(crate) fn wall_nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_datagram_and_strangers_are_refused() {
        let header = Header {
            flow: 3,
            sequence: u64::MAX - 1,
            sent_at: 77,
        };
        let mut datagram = [0; 64];
        header.write(&mut datagram);
        assert_eq!(Header::read(&datagram), Some(header));
        assert_eq!(Header::read(&datagram[..23]), None);
        assert_eq!(Header::read(&[0; 64]), None);
        header.write(&mut datagram[..10]);
    }
}
