//! SOCKS5 (RFC 1928) without authentication, for TCP connections and associations for UDP; names are resolved at the
//! server.

mod address;
mod datagram;

use std::net::{IpAddr, SocketAddr};

use bytes::{Buf, BytesMut};
use masque::response::ProxyError;

use crate::client::negotiation::{Negotiation, NotOpened, Progress};
use address::{Address, ReadError};
pub use datagram::{SocksAddress, SocksDatagram};

/// RFC 1928 section 3.
const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;

/// Commands (RFC 1928 section 4).
const CONNECT: u8 = 1;
const UDP_ASSOCIATE: u8 = 3;

/// Replies (RFC 1928 section 6).
const SUCCEEDED: u8 = 0;
const GENERAL_FAILURE: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NETWORK_UNREACHABLE: u8 = 3;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const TTL_EXPIRED: u8 = 6;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// SOCKS4's answer to a version that is too old to be understood: refused or failed.
const VERSION_4_REFUSED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// One connection of a program that speaks SOCKS5.
#[derive(Debug, Default)]
pub struct Socks {
    /// The method is agreed on; a request comes next.
    is_greeted: bool,
}

/// What a piece of the conversation is worth.
enum Piece<T> {
    /// More bytes have to come.
    Short,
    Whole(T),
    /// Its reply says why.
    Wrong(u8),
}

impl Negotiation for Socks {
    fn handle_received(&mut self, received: &mut BytesMut, answer: &mut BytesMut) -> Progress {
        if !self.is_greeted {
            match greeting(received) {
                Piece::Short => return Progress::Unfinished,
                Piece::Whole(bytes) => received.advance(bytes),
                Piece::Wrong(version) => {
                    if version == VERSION {
                        answer.extend_from_slice(&[VERSION, NO_ACCEPTABLE_METHOD]);
                    } else {
                        answer.extend_from_slice(&VERSION_4_REFUSED);
                    }
                    return Progress::Refused;
                }
            }
            answer.extend_from_slice(&[VERSION, NO_AUTHENTICATION]);
            self.is_greeted = true;
        }
        match request(received) {
            Piece::Short => Progress::Unfinished,
            Piece::Whole((progress, bytes)) => {
                received.advance(bytes);
                progress
            }
            Piece::Wrong(code) => {
                reply(answer, code);
                Progress::Refused
            }
        }
    }

    fn handle_opened(&mut self, answer: &mut BytesMut) {
        reply(answer, SUCCEEDED);
    }

    fn handle_associated(&mut self, relay: SocketAddr, answer: &mut BytesMut) {
        answer.extend_from_slice(&[VERSION, SUCCEEDED, 0]);
        match relay.ip() {
            IpAddr::V4(ip) => {
                answer.extend_from_slice(&[address::IPV4]);
                answer.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                answer.extend_from_slice(&[address::IPV6]);
                answer.extend_from_slice(&ip.octets());
            }
        }
        answer.extend_from_slice(&relay.port().to_be_bytes());
    }

    fn handle_failed(&mut self, failure: NotOpened, answer: &mut BytesMut) {
        // Before the method is agreed on, there is no reply to give.
        if self.is_greeted {
            reply(answer, code(failure));
        }
    }
}

/// The bytes of a greeting that offers to go without authentication; else its version.
fn greeting(received: &[u8]) -> Piece<usize> {
    let (version, count) = match *received {
        [] => return Piece::Short,
        [version, ..] if version != VERSION => return Piece::Wrong(version),
        [_] => return Piece::Short,
        [version, count, ..] => (version, usize::from(count)),
    };
    match received.get(2..2 + count) {
        None => Piece::Short,
        Some(methods) if methods.contains(&NO_AUTHENTICATION) => Piece::Whole(2 + count),
        Some(_) => Piece::Wrong(version),
    }
}

/// What a request asks for, and the request's bytes.
fn request(received: &[u8]) -> Piece<(Progress, usize)> {
    let [version, command, _, rest @ ..] = received else {
        return Piece::Short;
    };
    if *version != VERSION {
        return Piece::Wrong(GENERAL_FAILURE);
    }
    let (address, rest) = match Address::read(rest) {
        Ok(read) => read,
        Err(ReadError::Short) => return Piece::Short,
        Err(ReadError::Kind) => return Piece::Wrong(ADDRESS_NOT_SUPPORTED),
    };
    let bytes = received.len() - rest.len();
    match *command {
        CONNECT => match address.target() {
            Ok(target) => Piece::Whole((Progress::Named(target), bytes)),
            Err(_) => Piece::Wrong(GENERAL_FAILURE),
        },
        // Its address is where the program means to send from; most do not know, and say zeros.
        UDP_ASSOCIATE => Piece::Whole((Progress::Associate, bytes)),
        _ => Piece::Wrong(COMMAND_NOT_SUPPORTED),
    }
}

/// A reply. The address that the server is bound to is its own affair: 0.0.0.0 and port 0, as most servers give.
fn reply(answer: &mut BytesMut, code: u8) {
    answer.extend_from_slice(&[VERSION, code, 0, address::IPV4, 0, 0, 0, 0, 0, 0]);
}

/// How a failure is told.
fn code(failure: NotOpened) -> u8 {
    let NotOpened::Refused { status, error } = failure else {
        return match failure {
            NotOpened::NoTunnel => NETWORK_UNREACHABLE,
            _ => GENERAL_FAILURE,
        };
    };
    match error {
        Some(ProxyError::ConnectionRefused) => REFUSED,
        Some(ProxyError::DestinationIpProhibited) => NOT_ALLOWED,
        Some(ProxyError::DestinationIpUnroutable) => NETWORK_UNREACHABLE,
        Some(ProxyError::ConnectionTimeout) => TTL_EXPIRED,
        Some(ProxyError::DnsTimeout | ProxyError::DnsError | ProxyError::DestinationUnavailable) => {
            HOST_UNREACHABLE
        }
        _ if status == 403 => NOT_ALLOWED,
        _ => GENERAL_FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(bytes: &[u8]) -> (Progress, Vec<u8>, Vec<u8>) {
        let (mut received, mut answer) = (BytesMut::from(bytes), BytesMut::new());
        let progress = Socks::default().handle_received(&mut received, &mut answer);
        (progress, received.to_vec(), answer.to_vec())
    }

    const GREETED: [u8; 2] = [5, 0];

    #[test]
    fn every_kind_of_address_names_a_target_and_what_follows_is_left() {
        for (address, target) in [
            (&b"\x01\xc6\x33\x64\x09\x01\xbb"[..], "198.51.100.9:443"),
            (b"\x03\x0bexample.org\x00\x50", "example.org:80"),
            (
                b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x09\x00\x35",
                "[2001:db8::9]:53",
            ),
        ] {
            // Two methods are offered; a browser's first bytes come at once.
            let bytes = [&[5, 2, 2, 0, 5, 1, 0][..], address, b"hello"].concat();
            let (progress, left, answer) = given(&bytes);
            assert_eq!(progress, Progress::Named(target.parse().unwrap()));
            assert_eq!(
                (left.as_slice(), answer.as_slice()),
                (&b"hello"[..], &GREETED[..])
            );
        }
    }

    #[test]
    fn who_insists_on_a_password_or_speaks_an_older_version_is_told_so() {
        assert_eq!(
            given(&[5, 1, 2]),
            (Progress::Refused, vec![5, 1, 2], vec![5, 0xff])
        );
        assert_eq!(given(&[5, 0]).2, [5, 0xff]);
        let (progress, _, answer) = given(b"\x04\x01\x00\x50\xc6\x33\x64\x09\0");
        assert_eq!((progress, answer[1]), (Progress::Refused, 91));
    }

    #[test]
    fn what_is_not_served_has_a_reply_of_its_own() {
        let replied = |request: &[u8]| {
            let (progress, _, answer) = given(&[&[5, 1, 0], request].concat());
            assert_eq!(progress, Progress::Refused, "{request:?}");
            answer[3]
        };
        // BIND, an unknown command, an unknown kind of address, port 0, a name that is none, another version.
        assert_eq!(replied(&[5, 2, 0, 1, 1, 2, 3, 4, 0, 80]), 7);
        assert_eq!(replied(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]), 7);
        assert_eq!(replied(&[5, 1, 0, 2]), 8);
        assert_eq!(replied(&[5, 1, 0, 1, 1, 2, 3, 4, 0, 0]), 1);
        assert_eq!(replied(b"\x05\x01\x00\x03\x02\xff\xff\x00\x50"), 1);
        assert_eq!(replied(&[4, 1, 0, 1]), 1);
    }

    #[test]
    fn an_association_is_asked_for_and_its_relay_is_told() {
        let (progress, left, answer) = given(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0, 9]);
        assert_eq!(
            (progress, left.as_slice(), answer.as_slice()),
            (Progress::Associate, &[9][..], &GREETED[..])
        );
        let told = |relay: &str| {
            let mut answer = BytesMut::new();
            Socks { is_greeted: true }.handle_associated(relay.parse().unwrap(), &mut answer);
            answer.to_vec()
        };
        assert_eq!(told("127.0.0.1:258"), [5, 0, 0, 1, 127, 0, 0, 1, 1, 2]);
        assert_eq!(
            told("[::1]:258"),
            [5, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2]
        );
    }

    #[test]
    fn a_program_hears_that_its_target_is_open_or_why_not() {
        let mut socks = Socks { is_greeted: true };
        let mut answer = BytesMut::new();
        socks.handle_opened(&mut answer);
        assert_eq!(answer[..], [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let refused = |status, error| NotOpened::Refused { status, error };
        for (failure, code) in [
            (NotOpened::NoTunnel, 3),
            (NotOpened::TooLate, 1),
            (refused(403, Some(ProxyError::DestinationIpProhibited)), 2),
            (refused(403, None), 2),
            (refused(502, Some(ProxyError::ConnectionRefused)), 5),
            (refused(502, Some(ProxyError::DnsError)), 4),
            (refused(504, Some(ProxyError::ConnectionTimeout)), 6),
            (refused(500, None), 1),
        ] {
            let mut answer = BytesMut::new();
            socks.handle_failed(failure, &mut answer);
            assert_eq!(answer[1], code, "{failure:?}");
            assert_eq!(answer.len(), 10);
        }
        let mut answer = BytesMut::new();
        Socks::default().handle_failed(NotOpened::TooLate, &mut answer);
        assert!(answer.is_empty());
    }
}
