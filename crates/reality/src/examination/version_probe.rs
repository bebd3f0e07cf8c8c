//! A datagram of a version that nobody has, and its answer (RFC 9000 sections 6 and 17.2.1).

use crate::limits::{INITIAL_DATAGRAM_BYTES_MIN, VERSIONS_MAX};

/// Reserved to be unknown (RFC 9000 section 15).
const GREASED_VERSION: u32 = 0x1a2a_3a4a;

const LONG_HEADER: u8 = 0xc0;

/// The datagram, filled up with zeros. The answer is recognised by the connection ID.
#[must_use]
pub fn datagram(id: [u8; 8]) -> Vec<u8> {
    let mut bytes = vec![LONG_HEADER];
    bytes.extend(GREASED_VERSION.to_be_bytes());
    bytes.push(id.len() as u8);
    bytes.extend(id);
    bytes.push(0);
    bytes.resize(INITIAL_DATAGRAM_BYTES_MIN, 0);
    bytes
}

/// The versions that the answer to the datagram with this connection ID lists, those that nobody has left out; `None`
/// where it is another datagram.
#[must_use]
pub fn read_answer(datagram: &[u8], id: [u8; 8]) -> Option<Vec<u32>> {
    let (first, rest) = datagram.split_first()?;
    let rest = rest.strip_prefix(&[0; 4])?;
    let rest = rest.strip_prefix(&[0, id.len() as u8])?.strip_prefix(&id)?;
    let (versions, cut) = rest.as_chunks::<4>();
    if first & 0x80 == 0 || !cut.is_empty() || versions.is_empty() || versions.len() > VERSIONS_MAX {
        return None;
    }
    let versions = versions.iter().map(|bytes| u32::from_be_bytes(*bytes));
    Some(versions.filter(|version| !is_greased(*version)).collect())
}

fn is_greased(version: u32) -> bool {
    version & 0x0f0f_0f0f == 0x0a0a_0a0a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: [u8; 8] = [7; 8];

    fn answer(versions: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0x9b, 0, 0, 0, 0, 0, 8];
        bytes.extend(ID);
        bytes.extend(versions.iter().flat_map(|version| version.to_be_bytes()));
        bytes
    }

    #[test]
    fn the_probe_is_large_enough_for_an_answer_and_asks_for_a_version_that_nobody_has() {
        let probe = datagram(ID);
        assert_eq!(probe.len(), 1_200);
        assert_eq!(crate::long_header::destination_id(&probe), Some(&ID[..]));
        assert!(is_greased(u32::from_be_bytes(*probe[1..].first_chunk().unwrap())));
    }

    #[test]
    fn an_answer_lists_versions_and_greased_ones_do_not_count() {
        let versions = read_answer(&answer(&[1, 0x5a6a_7a8a, 0x6b33_43cf]), ID);
        assert_eq!(versions.as_deref(), Some(&[1, 0x6b33_43cf][..]));
        let one = answer(&[1]);
        for (place, value) in [(0, 0x1b), (1, 1), (5, 1), (6, 7), (7, 8)] {
            let mut other = one.clone();
            other[place] = value;
            assert_eq!(read_answer(&other, ID), None, "byte {place}");
        }
        for end in 0..one.len() {
            assert_eq!(read_answer(&one[..end], ID), None, "{end} bytes");
        }
        assert_eq!(read_answer(&answer(&[1; VERSIONS_MAX + 1]), ID), None);
    }

    proptest! {
        #[test]
        fn no_datagram_makes_the_reader_panic(datagram in any::<Vec<u8>>()) {
            let _ = read_answer(&datagram, ID);
        }
    }
}
