//! What a server's handshake messages tell (RFC 8446 section 4): read beside TLS, which tells only a part of it.

use packet::varint;

const HEADER_BYTES: usize = 4;
const SERVER_HELLO: u8 = 2;
const CERTIFICATE: u8 = 11;
/// RFC 8879.
const COMPRESSED_CERTIFICATE: u8 = 25;
const KEY_SHARE: u16 = 51;

/// Where the random of a ServerHello lies, and what it begins with in a HelloRetryRequest (RFC 8446 section 4.1.3).
const RANDOM: usize = HEADER_BYTES + 2;
const RETRY_RANDOM: [u8; 8] = [0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11];

/// Transport parameters (RFC 9000 section 18.2).
const MAX_IDLE_TIMEOUT: u64 = 0x01;
const PREFERRED_ADDRESS: u64 = 0x0d;

/// A ServerHello, which everybody on the path can read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// Cipher suite.
    pub suite: u16,
    /// Group of the key share.
    pub group: Option<u16>,
    /// Types of its extensions, in their order.
    pub extensions: Vec<u16>,
    /// Whether it asks for another hello.
    pub is_retry: bool,
}

/// A Certificate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateMessage {
    /// Bytes of the whole message.
    pub bytes: usize,
    /// Whether it came as CompressedCertificate.
    pub is_compressed: bool,
}

/// The ServerHello at the start of the Initial stream, once it is whole.
pub(super) fn server_hello(stream: &[u8]) -> Option<ServerHello> {
    let (SERVER_HELLO, message) = messages(stream).next()? else {
        return None;
    };
    let is_retry = message.get(RANDOM..)?.starts_with(&RETRY_RANDOM);
    let (session, rest) = message.get(RANDOM + 32..)?.split_first()?;
    let rest = rest.get(usize::from(*session)..)?;
    let (suite, rest) = rest.split_first_chunk()?;
    // Compression, and the length of all extensions.
    let mut rest = rest.get(3..)?;
    let (mut extensions, mut group) = (Vec::new(), None);
    while let Some((kind, after)) = rest.split_first_chunk() {
        let (length, after) = after.split_first_chunk()?;
        let (data, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let kind = u16::from_be_bytes(*kind);
        if kind == KEY_SHARE {
            group = data.first_chunk().map(|group| u16::from_be_bytes(*group));
        }
        extensions.push(kind);
        rest = after;
    }
    Some(ServerHello {
        suite: u16::from_be_bytes(*suite),
        group,
        extensions,
        is_retry,
    })
}

/// The Certificate message in the Handshake stream, as soon as its header came.
pub(super) fn certificate(stream: &[u8]) -> Option<CertificateMessage> {
    messages(stream).find_map(|(kind, message)| {
        [CERTIFICATE, COMPRESSED_CERTIFICATE]
            .contains(&kind)
            .then_some(CertificateMessage {
                bytes: message.len(),
                is_compressed: kind == COMPRESSED_CERTIFICATE,
            })
    })
}

/// The whole messages of a stream, with their headers.
fn messages(stream: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = stream;
    std::iter::from_fn(move || {
        let [kind, high, middle, low] = *rest.first_chunk::<HEADER_BYTES>()?;
        let bytes = HEADER_BYTES + u32::from_be_bytes([0, high, middle, low]) as usize;
        let (message, after) = rest.split_at_checked(bytes)?;
        rest = after;
        Some((kind, message))
    })
}

/// `max_idle_timeout` in milliseconds, and whether there is a preferred address.
pub(super) fn transport_parameters(mut bytes: &[u8]) -> (Option<u64>, bool) {
    let (mut idle, mut has_address) = (None, false);
    while let Some((kind, used)) = varint::read(bytes) {
        let Some((value, rest)) = crate::long_header::counted(&bytes[used..]) else {
            break;
        };
        match kind {
            MAX_IDLE_TIMEOUT => idle = varint::read(value).map(|(value, _)| value),
            PREFERRED_ADDRESS => has_address = true,
            _ => {}
        }
        bytes = rest;
    }
    (idle, has_address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[kind, length[1], length[2], length[3]], body].concat()
    }

    fn hello(random: [u8; 32]) -> Vec<u8> {
        let extensions = [0, 43, 0, 2, 3, 4, 0, 51, 0, 6, 0x11, 0xec, 0, 2, 9, 9];
        let head = [&[3, 3][..], &random, &[0, 0x13, 0x02, 0, 0, 16]].concat();
        message(SERVER_HELLO, &[&head[..], &extensions].concat())
    }

    #[test]
    fn a_server_hello_tells_suite_group_and_order_once_it_is_whole() {
        let whole = hello([5; 32]);
        let expected = ServerHello {
            suite: 0x1302,
            group: Some(0x11ec),
            extensions: vec![43, 51],
            is_retry: false,
        };
        assert_eq!(server_hello(&whole), Some(expected));
        for end in 0..whole.len() {
            assert_eq!(server_hello(&whole[..end]), None, "{end} bytes");
        }
        let mut random = [0; 32];
        random[..8].copy_from_slice(&RETRY_RANDOM);
        assert!(server_hello(&hello(random)).unwrap().is_retry);
        assert_eq!(server_hello(&message(CERTIFICATE, &whole[4..])), None);
    }

    #[test]
    fn the_certificate_message_is_found_behind_others() {
        for (kind, is_compressed) in [(CERTIFICATE, false), (COMPRESSED_CERTIFICATE, true)] {
            let stream = [message(8, b"extensions"), message(kind, &[0; 300])].concat();
            let expected = CertificateMessage {
                bytes: 304,
                is_compressed,
            };
            assert_eq!(certificate(&stream), Some(expected));
            assert_eq!(certificate(&stream[..stream.len() - 1]), None);
        }
    }

    #[test]
    fn idle_time_and_preferred_address_are_found_among_other_parameters() {
        let parameters = [&[0x05, 1, 7, 0x01, 4, 0x80, 0, 0x75, 0x30, 0x0d, 3][..], b"abc"].concat();
        assert_eq!(transport_parameters(&parameters), (Some(30_000), true));
        assert_eq!(transport_parameters(&parameters[..9]), (Some(30_000), false));
        assert_eq!(transport_parameters(&[0x01, 9]), (None, false));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_readers_panic(bytes in any::<Vec<u8>>()) {
            let bytes = [&hello([1; 32])[..42], &bytes].concat();
            let _ = (server_hello(&bytes), certificate(&bytes), transport_parameters(&bytes));
        }
    }
}
