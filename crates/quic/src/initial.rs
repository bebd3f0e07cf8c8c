//! What the first packets of a connection say in clear (RFC 9000 section 17.2).

use packet::varint;

/// Set in the first byte of a long header (RFC 8999 section 5.1).
const LONG_HEADER: u8 = 0x80;

/// Whether a datagram begins with a packet of a handshake.
pub(crate) fn is_long_header(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & LONG_HEADER != 0)
}

/// Whether a datagram begins with an Initial packet of version 1 (RFC 9000 section 17.2.2).
pub(crate) fn is_initial(datagram: &[u8]) -> bool {
    matches!(datagram, [first, 0, 0, 0, 1, ..] if first & 0xf0 == 0xc0)
}

/// The destination connection ID of a long header (RFC 8999 section 5.1).
pub(crate) fn destination_id(datagram: &[u8]) -> Option<&[u8]> {
    let rest = datagram.get(5..)?;
    rest.get(1..)?.get(..usize::from(rest[0]))
}

/// The token of the Initial packet that a datagram begins with (RFC 9000 section 17.2.2); `None` where it is cut off. Of
/// any other packet the answer means nothing.
pub(crate) fn token(datagram: &[u8]) -> Option<&[u8]> {
    // First byte and version.
    let rest = datagram.get(5..)?;
    let rest = skip_connection_id(rest)?;
    let rest = skip_connection_id(rest)?;
    let (length, used) = varint::read(rest)?;
    rest.get(used..)?.get(..usize::try_from(length).ok()?)
}

fn skip_connection_id(rest: &[u8]) -> Option<&[u8]> {
    rest.get(1 + usize::from(*rest.first()?)..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9000 section 17.2.2.
    #[test]
    fn the_token_is_found_behind_both_connection_ids_and_a_cut_packet_has_none() {
        let mut packet = vec![0xc3, 0, 0, 0, 1, 8];
        packet.extend_from_slice(&[0x11; 8]);
        packet.extend_from_slice(&[3, 0x22, 0x22, 0x22, 0x40, 5]);
        packet.extend_from_slice(b"token rest");
        assert!(is_long_header(&packet) && is_initial(&packet));
        assert_eq!(token(&packet), Some(&b"token"[..]));
        assert_eq!(destination_id(&packet), Some(&[0x11; 8][..]));
        assert_eq!(destination_id(&packet[..13]), None);
        assert_eq!(destination_id(&packet[..5]), None);
        let end = packet.len() - b" rest".len();
        for length in 0..end {
            assert_eq!(token(&packet[..length]), None, "{length} bytes");
        }
    }

    #[test]
    fn a_short_header_and_an_empty_datagram_are_no_handshake() {
        assert!(!is_long_header(&[0x43; 40]));
        assert!(!is_long_header(&[]));
        assert!(!is_initial(&[0x43; 40]) && !is_initial(&[]));
        assert!(!is_initial(&[0xe0, 0, 0, 0, 1]), "a Handshake packet");
        assert!(!is_initial(&[0xc0, 0, 0, 0, 2]), "of another version");
    }
}
