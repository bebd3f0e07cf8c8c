//! What local programs that know proxies speak: SOCKS5, HTTP, or whichever of them they begin with.

mod http;
mod socks;

use std::net::SocketAddr;

use bytes::BytesMut;

use super::negotiation::{Negotiation, NotOpened, Progress};
pub use http::Http;
pub use socks::{Socks, SocksAddress, SocksDatagram};

/// SOCKS or HTTP, as the program's first byte says: that of SOCKS is a version number, which no method begins with.
#[derive(Debug, Default)]
pub struct SocksOrHttp {
    chosen: Option<Chosen>,
}

#[derive(Debug)]
enum Chosen {
    Socks(Socks),
    Http(Http),
}

impl Chosen {
    fn negotiation(&mut self) -> &mut dyn Negotiation {
        match self {
            Self::Socks(socks) => socks,
            Self::Http(http) => http,
        }
    }
}

impl Negotiation for SocksOrHttp {
    fn handle_received(&mut self, received: &mut BytesMut, answer: &mut BytesMut) -> Progress {
        let Some(first) = received.first() else {
            return Progress::Unfinished;
        };
        let chosen = self.chosen.get_or_insert_with(|| {
            if first.is_ascii_control() {
                Chosen::Socks(Socks::default())
            } else {
                Chosen::Http(Http::default())
            }
        });
        chosen.negotiation().handle_received(received, answer)
    }

    fn handle_opened(&mut self, answer: &mut BytesMut) {
        if let Some(chosen) = &mut self.chosen {
            chosen.negotiation().handle_opened(answer);
        }
    }

    fn handle_associated(&mut self, relay: SocketAddr, answer: &mut BytesMut) {
        if let Some(chosen) = &mut self.chosen {
            chosen.negotiation().handle_associated(relay, answer);
        }
    }

    fn handle_failed(&mut self, failure: NotOpened, answer: &mut BytesMut) {
        if let Some(chosen) = &mut self.chosen {
            chosen.negotiation().handle_failed(failure, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where `bytes` lead, byte by byte, with what is left for the target, and the answer.
    fn byte_by_byte(bytes: &[u8], negotiation: &mut dyn Negotiation) -> (Progress, Vec<u8>, Vec<u8>) {
        let (mut received, mut answer) = (BytesMut::new(), BytesMut::new());
        for (index, byte) in bytes.iter().enumerate() {
            received.extend_from_slice(&[*byte]);
            let progress = negotiation.handle_received(&mut received, &mut answer);
            if progress != Progress::Unfinished {
                received.extend_from_slice(&bytes[index + 1..]);
                return (progress, received.to_vec(), answer.to_vec());
            }
        }
        (Progress::Unfinished, received.to_vec(), answer.to_vec())
    }

    fn at_once(bytes: &[u8], negotiation: &mut dyn Negotiation) -> (Progress, Vec<u8>, Vec<u8>) {
        let (mut received, mut answer) = (BytesMut::from(bytes), BytesMut::new());
        let progress = negotiation.handle_received(&mut received, &mut answer);
        (progress, received.to_vec(), answer.to_vec())
    }

    #[test]
    fn the_first_byte_says_which_protocol_it_is() {
        for (bytes, target) in [
            (
                &b"\x05\x01\x00\x05\x01\x00\x03\x04host\x00\x50rest"[..],
                "host:80",
            ),
            (b"CONNECT host:443 HTTP/1.1\r\n\r\nrest", "host:443"),
        ] {
            for (progress, left, _) in [
                at_once(bytes, &mut SocksOrHttp::default()),
                byte_by_byte(bytes, &mut SocksOrHttp::default()),
            ] {
                assert_eq!(progress, Progress::Named(target.parse().unwrap()));
                assert_eq!(left, b"rest");
            }
        }
        // Before the first byte nobody can be told anything.
        let mut answer = BytesMut::new();
        SocksOrHttp::default().handle_failed(NotOpened::TooLate, &mut answer);
        assert!(answer.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_the_same_in_whichever_pieces(
            head in prop_oneof![
                Just(b"\x05\x01\x00".to_vec()),
                Just(b"GET http://host/a".to_vec()),
                Just(b"CONNECT ".to_vec()),
                Just(Vec::new()),
            ],
            rest in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(b"\r\n :/HTP1.\x05\x01\x00".to_vec())], 0..80),
        ) {
            let bytes = [head, rest].concat();
            let whole = at_once(&bytes, &mut SocksOrHttp::default());
            let pieces = byte_by_byte(&bytes, &mut SocksOrHttp::default());
            prop_assert_eq!(&whole.0, &pieces.0);
            prop_assert_eq!(&whole.2, &pieces.2);
            if matches!(whole.0, Progress::Named(_)) {
                prop_assert_eq!(&whole.1, &pieces.1);
            }
        }
    }
}
