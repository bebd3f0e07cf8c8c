//! What the packets of a datagram say in clear (RFC 8999, RFC 9000 section 17.2).

use packet::varint;

use crate::limits::CONNECTION_ID_BYTES_MAX;

/// QUIC version 1 (RFC 9000).
pub const VERSION_1: u32 = 1;

const LONG_HEADER: u8 = 0x80;
/// Set in every packet of version 1.
const FIXED_BIT: u8 = 0x40;

/// A connection ID of version 1, by value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    bytes: [u8; CONNECTION_ID_BYTES_MAX],
    length: u8,
}

impl ConnectionId {
    /// The one that comes first in order, which is the empty one.
    pub const LEAST: Self = Self {
        bytes: [0; CONNECTION_ID_BYTES_MAX],
        length: 0,
    };

    /// `None` for one that is longer than version 1 allows.
    #[must_use]
    pub fn checked(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; CONNECTION_ID_BYTES_MAX];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        let length = id.len() as u8;
        Some(Self { bytes, length })
    }

    /// Of a packet that was read.
    ///
    /// Panics where it is longer than 20 bytes.
    #[must_use]
    pub fn new(id: &[u8]) -> Self {
        Self::checked(id).expect("IDs of version 1 have at most 20 bytes")
    }
}

impl std::ops::Deref for ConnectionId {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for ConnectionId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Types of packets with a long header in version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Section 17.2.2.
    Initial,
    /// Section 17.2.3.
    ZeroRtt,
    /// Section 17.2.4.
    Handshake,
    /// Section 17.2.5; it reaches to the end of the datagram.
    Retry,
}

/// One packet with a long header of version 1.
#[derive(Clone, Copy, Debug)]
pub struct LongPacket<'a> {
    /// The whole packet, and nothing behind it.
    pub bytes: &'a [u8],
    /// Its type.
    pub kind: Kind,
    /// At most 20 bytes.
    pub destination_id: &'a [u8],
    /// At most 20 bytes.
    pub source_id: &'a [u8],
    /// Of an Initial; empty in others.
    pub token: &'a [u8],
    /// Where the packet number begins, or the rest of a Retry.
    pub number_offset: usize,
}

/// A packet of a datagram.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// With a long header of version 1.
    Long(LongPacket<'a>),
    /// With a short header; the last of its datagram.
    Short(&'a [u8]),
    /// Nothing that version 1 knows, up to the end of the datagram.
    Unreadable(&'a [u8]),
}

/// Whether a datagram begins with a long header, of whatever version.
#[must_use]
pub fn is_long(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & LONG_HEADER != 0)
}

/// Destination connection ID of the long header, of whatever version, that a datagram begins with (RFC 8999 section
/// 5.1).
#[must_use]
pub fn destination_id(datagram: &[u8]) -> Option<&[u8]> {
    let rest = datagram.get(5..).filter(|_| is_long(datagram))?;
    let (length, rest) = rest.split_first()?;
    rest.get(..usize::from(*length))
}

/// The packets of a datagram (RFC 9000 section 12.2).
pub fn parts(datagram: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let part = match first & (LONG_HEADER | FIXED_BIT) {
            FIXED_BIT => Part::Short(rest),
            _ => long_packet(rest).map_or(Part::Unreadable(rest), Part::Long),
        };
        rest = match part {
            Part::Long(packet) => &rest[packet.bytes.len()..],
            Part::Short(_) | Part::Unreadable(_) => &[],
        };
        Some(part)
    })
}

/// The packet at the front.
fn long_packet(bytes: &[u8]) -> Option<LongPacket<'_>> {
    let (first, rest) = bytes.split_first()?;
    let (version, rest) = rest.split_first_chunk()?;
    if first & (LONG_HEADER | FIXED_BIT) != LONG_HEADER | FIXED_BIT
        || u32::from_be_bytes(*version) != VERSION_1
    {
        return None;
    }
    let kind = match first >> 4 & 3 {
        0 => Kind::Initial,
        1 => Kind::ZeroRtt,
        2 => Kind::Handshake,
        _ => Kind::Retry,
    };
    let (destination_id, rest) = connection_id(rest)?;
    let (source_id, rest) = connection_id(rest)?;
    let (token, rest) = match kind {
        Kind::Initial => counted(rest)?,
        Kind::ZeroRtt | Kind::Handshake | Kind::Retry => (&[][..], rest),
    };
    let (length, used) = match kind {
        Kind::Retry => (rest.len(), 0),
        Kind::Initial | Kind::ZeroRtt | Kind::Handshake => {
            let (length, used) = varint::read(rest)?;
            (usize::try_from(length).ok()?, used)
        }
    };
    let number_offset = bytes.len() - rest.len() + used;
    Some(LongPacket {
        bytes: bytes.get(..number_offset.checked_add(length)?)?,
        kind,
        destination_id,
        source_id,
        token,
        number_offset,
    })
}

fn connection_id(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let length = usize::from(*length);
    (length <= CONNECTION_ID_BYTES_MAX)
        .then(|| rest.split_at_checked(length))
        .flatten()
}

/// What a length as a varint stands before, and what follows.
pub(crate) fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, used) = varint::read(bytes)?;
    bytes[used..].split_at_checked(usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn long(kind: u8, destination: &[u8], source: &[u8], token: Option<&[u8]>, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xc3 | kind << 4, 0, 0, 0, 1];
        for id in [destination, source] {
            packet.push(id.len() as u8);
            packet.extend_from_slice(id);
        }
        for part in token.into_iter().chain((kind != 3).then_some(payload)) {
            varint::write(part.len() as u64, &mut packet);
            packet.extend_from_slice(part);
        }
        packet
    }

    /// RFC 9000 section 12.2.
    #[test]
    fn coalesced_packets_are_told_one_by_one() {
        let initial = long(0, &[1; 8], &[], Some(b"token"), &[7; 30]);
        let handshake = long(2, &[2; 20], &[3; 4], None, &[8; 70]);
        let datagram = [&initial[..], &handshake, &[0x41, 9, 9]].concat();
        let found: Vec<Part<'_>> = parts(&datagram).collect();
        let [Part::Long(first), Part::Long(second), Part::Short(third)] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((first.kind, second.kind), (Kind::Initial, Kind::Handshake));
        assert_eq!(
            (first.bytes, second.bytes, third.len()),
            (&initial[..], &handshake[..], 3)
        );
        assert_eq!((first.destination_id, first.source_id), (&[1; 8][..], &[][..]));
        assert_eq!(
            (second.destination_id, second.source_id),
            (&[2; 20][..], &[3; 4][..])
        );
        assert_eq!((first.token, second.token), (&b"token"[..], &[][..]));
        assert_eq!(first.bytes[first.number_offset..], [7; 30]);
        assert_eq!(second.bytes[second.number_offset..], [8; 70]);
    }

    #[test]
    fn what_is_cut_off_has_another_version_or_a_longer_id_is_unreadable() {
        let initial = long(0, &[1; 8], &[2; 8], Some(b""), &[7; 30]);
        let is_unreadable = |datagram: &[u8]| matches!(parts(datagram).collect::<Vec<_>>()[..], [Part::Unreadable(rest)] if rest == datagram);
        for end in 1..initial.len() {
            assert!(is_unreadable(&initial[..end]), "{end} bytes");
        }
        for (place, value) in [(4, 2), (1, 0xff), (0, 0x83)] {
            let mut other = initial.clone();
            other[place] = value;
            assert!(is_unreadable(&other));
            assert_eq!(destination_id(&other), Some(&[1; 8][..]));
        }
        assert!(is_unreadable(&long(0, &[1; 21], &[], Some(b""), &[7; 30])));
        assert!(is_unreadable(&[0, 0, 0]));
        assert_eq!(parts(&[]).count(), 0);
        assert_eq!(destination_id(&initial[..13]), None);
        assert_eq!(destination_id(&[0x43; 30]), None);
    }

    proptest! {
        #[test]
        fn packets_never_overlap_and_fill_the_datagram(datagram in any::<Vec<u8>>(), is_version_1 in any::<bool>()) {
            let mut datagram = datagram;
            if let (true, Some(version)) = (is_version_1, datagram.get_mut(..5)) {
                version.copy_from_slice(&[0xc0, 0, 0, 0, 1]);
            }
            let bytes: usize = parts(&datagram).map(|part| match part {
                Part::Long(packet) => packet.bytes.len(),
                Part::Short(bytes) | Part::Unreadable(bytes) => bytes.len(),
            }).sum();
            prop_assert_eq!(bytes, datagram.len());
        }
    }
}
