//! HTTP Datagrams in QUIC DATAGRAM frames (RFC 9297 section 2.1) with the context ID of CONNECT-UDP (RFC 9298 section
//! 5) and CONNECT-IP (RFC 9484 section 6).

use packet::varint;

use crate::{Code, ConnectionError, limits::QUARTER_STREAM_ID_MAX};

/// Context ID of plain UDP payloads (RFC 9298 section 5).
pub const UDP_CONTEXT_ID: u64 = 0;

/// Bytes of the longest prefix: Quarter Stream ID and context ID.
pub const PREFIX_BYTES_MAX: usize = 2 * varint::LEN_MAX;

/// A datagram's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View<'a> {
    /// The request's stream ID divided by four; also see [`View::stream_id`].
    pub quarter_stream_id: u64,
    /// What the payload is: [`UDP_CONTEXT_ID`] or [`crate::ip::PACKET_CONTEXT_ID`], a context that was agreed on, or
    /// unknown (to be dropped).
    pub context_id: u64,
    /// What follows; in context 0 the UDP payload or the IP packet.
    pub payload: &'a [u8],
}

impl View<'_> {
    /// The stream ID of the request.
    #[must_use]
    pub const fn stream_id(&self) -> u64 {
        self.quarter_stream_id * 4
    }
}

/// Why a DATAGRAM frame has no payload for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    /// No Quarter Stream ID: H3_DATAGRAM_ERROR ends the connection (RFC 9297 section 2.1).
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// No context ID: drop it, and count it.
    #[error("datagram ends inside its context ID")]
    Truncated,
}

/// What precedes a payload in a DATAGRAM frame: the bytes, and how many of them count.
///
/// # Panics
/// When `quarter_stream_id` or `context_id` is above [`varint::MAX`].
#[must_use]
pub fn prefix(quarter_stream_id: u64, context_id: u64) -> ([u8; PREFIX_BYTES_MAX], usize) {
    let (stream, stream_used) = varint::encode(quarter_stream_id);
    let (context, context_used) = varint::encode(context_id);
    let mut bytes = [0; PREFIX_BYTES_MAX];
    bytes[..stream_used].copy_from_slice(&stream[..stream_used]);
    bytes[stream_used..stream_used + context_used].copy_from_slice(&context[..context_used]);
    (bytes, stream_used + context_used)
}

/// The parts of a DATAGRAM frame's payload.
///
/// ```
/// let (prefix, used) = masque::datagram::prefix(11, 2);
/// let mut datagram = prefix[..used].to_vec();
/// datagram.extend(b"payload");
/// let view = masque::datagram::decode(&datagram).unwrap();
/// assert_eq!((view.stream_id(), view.context_id, view.payload), (44, 2, &b"payload"[..]));
/// ```
///
/// # Errors
/// See [`DatagramError`].
pub fn decode(datagram: &[u8]) -> Result<View<'_>, DatagramError> {
    let (quarter_stream_id, stream_used) = varint::read(datagram)
        .filter(|(id, _)| *id <= QUARTER_STREAM_ID_MAX)
        .ok_or(ConnectionError::new(
            Code::DatagramError,
            "datagram without a Quarter Stream ID",
        ))?;
    let (context_id, context_used) =
        varint::read(&datagram[stream_used..]).ok_or(DatagramError::Truncated)?;
    Ok(View {
        quarter_stream_id,
        context_id,
        payload: &datagram[stream_used + context_used..],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_every_size_survive_a_round_trip() {
        for quarter_stream_id in [0, 63, 64, 1 << 14, 1 << 30, QUARTER_STREAM_ID_MAX] {
            for context_id in [0, 2, 1 << 20, varint::MAX] {
                let (bytes, used) = prefix(quarter_stream_id, context_id);
                let view = decode(&bytes[..used]).unwrap();
                assert_eq!(
                    view,
                    View {
                        quarter_stream_id,
                        context_id,
                        payload: &[]
                    }
                );
                for cut in 0..used {
                    assert!(decode(&bytes[..cut]).is_err());
                }
            }
        }
    }

    #[test]
    fn a_stream_id_beyond_the_last_ends_the_connection() {
        let (bytes, used) = prefix(QUARTER_STREAM_ID_MAX + 1, 0);
        let Err(DatagramError::Connection(error)) = decode(&bytes[..used]) else {
            panic!("taken")
        };
        assert_eq!(error.code, Code::DatagramError);
        assert_eq!(decode(&[0x05]), Err(DatagramError::Truncated));
    }
}
