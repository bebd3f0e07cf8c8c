//! PCP's MAP of an address of IPv6 (RFC 6887 section 11), which has a router's firewall let in what comes to that.
//!
//! crab_nat, which asks routers of IPv4, has the kernel choose the source of its questions. To a router with an address
//! of its link alone, as most have, that is one of the link, too; but a router refuses to map another address than the
//! question's source (section 8.2). So here the socket is bound to the address that is mapped.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::{Duration, Instant};

use crab_nat::VersionCode;
use crab_nat::pcp::{MAX_DATAGRAM_SIZE, OperationCode, ResultCode};

use crate::limits::{ROUTER_ANSWER_FIRST, ROUTER_ANSWER_MAX, ROUTER_ATTEMPTS};
use crate::mapping::answers::Refusal;
use crate::mapping::nonces::Nonce;

/// Bytes of a header (section 7.1), and of one with a MAP (section 11.1).
const HEADER: usize = 24;
const MAP: usize = HEADER + 36;

/// UDP, as IANA numbers protocols.
const UDP: u8 = 17;

/// Marks answers.
const ANSWER: u8 = 0x80;

/// A mapping that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mapping) struct Question {
    /// Our address and port.
    pub(super) own: SocketAddrV6,
    pub(super) nonce: Nonce,
    /// Zero ends the mapping (section 15).
    pub(super) lifetime: Duration,
}

/// A mapping that the router grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mapping) struct Granted {
    pub(super) external: SocketAddr,
    pub(super) lifetime: Duration,
}

impl Question {
    /// Asks a router, several times where nothing comes back.
    pub(super) fn ask(self, router: SocketAddrV6) -> Result<Granted, Refusal> {
        self.asked(router)
            .unwrap_or_else(|error| Err(Refusal::of_socket("PCP", &error)))
    }

    fn asked(self, router: SocketAddrV6) -> io::Result<Result<Granted, Refusal>> {
        let socket = UdpSocket::bind((*self.own.ip(), 0))?;
        socket.connect(router)?;
        let mut patience = ROUTER_ANSWER_FIRST;
        for _ in 0..=ROUTER_ATTEMPTS {
            socket.send(&self.written())?;
            if let Some(answer) = self.heard(&socket, Instant::now() + patience)? {
                return Ok(answer);
            }
            patience = (patience * 2).min(ROUTER_ANSWER_MAX);
        }
        Ok(Err(Refusal::NoAnswer))
    }

    /// The answer, if it comes by then; what is none is passed over.
    fn heard(self, socket: &UdpSocket, until: Instant) -> io::Result<Option<Result<Granted, Refusal>>> {
        let mut bytes = [0; MAX_DATAGRAM_SIZE];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            socket.set_read_timeout(Some(left))?;
            match socket.recv(&mut bytes) {
                Ok(length) => match self.read(&bytes[..length]) {
                    None => {}
                    answer => return Ok(answer),
                },
                Err(error) if is_timeout(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn written(self) -> [u8; MAP] {
        let mut bytes = [0; MAP];
        bytes[0] = VersionCode::Pcp as u8;
        bytes[1] = OperationCode::Map as u8;
        let seconds = u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX);
        bytes[4..8].copy_from_slice(&seconds.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.own.ip().octets());
        bytes[24..36].copy_from_slice(&self.nonce);
        bytes[36] = UDP;
        bytes[40..42].copy_from_slice(&self.own.port().to_be_bytes());
        // Whoever ends a mapping suggests nothing (section 15).
        if seconds != 0 {
            bytes[42..44].copy_from_slice(&self.own.port().to_be_bytes());
            bytes[44..60].copy_from_slice(&self.own.ip().octets());
        }
        bytes
    }

    /// What an answer says (section 8.3, 11.4); nothing where it is none, or one to another question.
    fn read(self, bytes: &[u8]) -> Option<Result<Granted, Refusal>> {
        if bytes.len() < HEADER || bytes[1] != ANSWER | OperationCode::Map as u8 {
            return None;
        }
        let code = bytes[3];
        if let Some(map) = bytes.get(HEADER..MAP) {
            let asked = &self.written()[HEADER..MAP];
            // Nonce, protocol and our port.
            if map[..13] != asked[..13] || map[16..18] != asked[16..18] {
                return None;
            }
        } else if code == ResultCode::Success as u8 {
            return None;
        }
        if bytes[0] != VersionCode::Pcp as u8 || code != ResultCode::Success as u8 {
            let refusal = match ResultCode::try_from(code) {
                Ok(ResultCode::Success) | Err(_) => Refusal::of("PCP", format!("answer {code}")),
                Ok(refusal) => Refusal::of("PCP", refusal),
            };
            return Some(Err(refusal));
        }
        let port = u16::from_be_bytes([bytes[42], bytes[43]]);
        let address: [u8; 16] = bytes[44..60].try_into().expect("16 bytes are an address of IPv6");
        let seconds = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        Some(Ok(Granted {
            external: SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port),
            lifetime: Duration::from_secs(seconds.into()),
        }))
    }
}

/// Whether nothing came in time.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const QUESTION: Question = Question {
        own: SocketAddrV6::new(Ipv6Addr::LOCALHOST, 4_000, 0, 0),
        nonce: *b"abcdefghijkl",
        lifetime: Duration::from_secs(1_200),
    };

    /// The same question as an answer, granted for ten minutes.
    fn granted(question: &[u8]) -> Vec<u8> {
        let mut answer = question.to_vec();
        answer[1] |= ANSWER;
        answer[4..8].copy_from_slice(&600_u32.to_be_bytes());
        answer
    }

    /// RFC 6887, sections 7.1, 11.1 and 15.
    #[test]
    fn a_question_has_the_form_of_the_rfc() {
        let bytes = QUESTION.written();
        let own = Ipv6Addr::LOCALHOST.octets();
        let expected = [
            &[2, 1, 0, 0, 0, 0, 0x04, 0xb0][..],
            &own,
            b"abcdefghijkl",
            &[17, 0, 0, 0, 0x0f, 0xa0, 0x0f, 0xa0],
            &own,
        ];
        assert_eq!(bytes[..], expected.concat());
        let end = Question {
            lifetime: Duration::ZERO,
            ..QUESTION
        };
        assert_eq!(end.written()[4..8], [0; 4]);
        assert_eq!(end.written()[42..], [0; 18]);
    }

    /// RFC 6887, sections 8.3 and 11.4.
    #[test]
    fn an_answer_counts_for_its_own_question_alone() {
        let answer = granted(&QUESTION.written());
        let expected = Granted {
            external: SocketAddr::from((Ipv6Addr::LOCALHOST, 4_000)),
            lifetime: Duration::from_secs(600),
        };
        assert_eq!(QUESTION.read(&answer), Some(Ok(expected)));
        // Opcode, nonce, protocol, port.
        for place in [1, 24, 35, 36, 40, 41] {
            let mut other = answer.clone();
            other[place] ^= 1;
            assert_eq!(QUESTION.read(&other), None, "{place}");
        }
        for length in 0..MAP {
            assert_eq!(QUESTION.read(&answer[..length]), None, "{length}");
        }
        // Options may follow.
        let longer = [&answer[..], &[0; 1_040]].concat();
        assert_eq!(QUESTION.read(&longer), Some(Ok(expected)));
    }

    #[test]
    fn a_refusal_is_told_in_words_also_by_a_router_of_another_version() {
        let mut answer = granted(&QUESTION.written());
        answer[3] = ResultCode::NotAuthorized as u8;
        let told = |answer: &[u8]| match QUESTION.read(answer) {
            Some(Err(Refusal::Answer(text))) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&answer), "PCP: The server did not authorize the operation.");
        answer[3] = 99;
        assert_eq!(told(&answer), "PCP: answer 99");
        // Version 1 of PCP, which has no nonce; NAT-PMP says less.
        let old = [&[1, ANSWER | 1, 0, 1][..], &[0; 20]].concat();
        assert!(told(&old).contains("version"), "{}", told(&old));
    }

    #[test]
    fn a_router_is_asked_again_and_nonsense_passed_over() {
        let router = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V6(address) = router.local_addr().unwrap() else {
            panic!("it is bound to IPv6");
        };
        let thread = thread::spawn(move || {
            let mut first = [0; 100];
            let (length, _) = router.recv_from(&mut first).unwrap();
            let mut again = [0; 100];
            let (_, from) = router.recv_from(&mut again).unwrap();
            let answer = granted(&again[..length]);
            router.send_to(b"nonsense", from).unwrap();
            router.send_to(&answer[..40], from).unwrap();
            router.send_to(&answer, from).unwrap();
            first == again
        });
        assert_eq!(
            QUESTION.ask(address).map(|granted| granted.lifetime),
            Ok(Duration::from_secs(600))
        );
        assert!(thread.join().unwrap());
    }

    #[test]
    fn nobody_at_the_port_is_no_answer() {
        let closed = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V6(address) = closed.local_addr().unwrap() else {
            panic!("it is bound to IPv6");
        };
        drop(closed);
        assert_eq!(QUESTION.ask(address), Err(Refusal::NoAnswer));
    }
}
