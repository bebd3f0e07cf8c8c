//! Control messages as the bytes of the kernel's `cmsghdr` (a `size_t` length, two `int`s, data, padding to `size_t`).
//!
//! Reading trusts no length; what does not fit ends the walk.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use packet::Ecn;

use super::addr::array;
use crate::limits::CONTROL_BYTES;

const WORD: usize = size_of::<usize>();
const HEADER_BYTES: usize = (WORD + 2 * size_of::<libc::c_int>()).next_multiple_of(WORD);
const _: () = assert!(HEADER_BYTES == size_of::<libc::cmsghdr>());

/// Room for the control messages of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; CONTROL_BYTES],
    len: usize,
}

impl Control {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; CONTROL_BYTES],
        len: 0,
    };

    /// The bytes that hold control messages.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same bytes, as the type that the kernel's read-only pointers have.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// The whole room, for the kernel to write.
    pub(crate) fn room(&mut self) -> &mut [u8; CONTROL_BYTES] {
        &mut self.bytes
    }

    /// Says how many bytes the kernel wrote.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(CONTROL_BYTES);
    }

    /// Empties the room.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Asks the kernel to cut the payload into datagrams of `segment_size` bytes.
    pub(crate) fn push_segment_size(&mut self, segment_size: u16) {
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_size.to_ne_bytes());
    }

    /// Marks the datagram; `v4` says whether it leaves as IPv4, also through an IPv6 socket.
    pub(crate) fn push_ecn(&mut self, ecn: Ecn, v4: bool) {
        let bits = libc::c_int::from(ecn.bits()).to_ne_bytes();
        if v4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &bits);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &bits);
        }
    }

    /// Names the address that the datagram leaves from.
    pub(crate) fn push_source(&mut self, source: IpAddr) {
        match source.to_canonical() {
            // struct in_pktinfo: interface index, source address, header address (ignored).
            IpAddr::V4(ip) => {
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            // struct in6_pktinfo: address, interface index.
            IpAddr::V6(ip) => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// What the kernel tells of a redirected datagram, for tests.
    fn push_target(&mut self, target: SocketAddr) {
        let port = target.port().to_be_bytes();
        match target.ip() {
            IpAddr::V4(ip) => {
                let address = [&[0; 2], &port[..], &ip.octets(), &[0; 8]].concat();
                self.push(libc::IPPROTO_IP, libc::IP_ORIGDSTADDR, &address);
            }
            IpAddr::V6(ip) => {
                let address = [&[0; 2], &port[..], &[0; 4], &ip.octets(), &[0; 4]].concat();
                self.push(libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR, &address);
            }
        }
    }

    fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let room = &mut self.bytes[self.len..];
        room[..WORD].copy_from_slice(&(HEADER_BYTES + data.len()).to_ne_bytes());
        room[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        room[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        room[HEADER_BYTES..HEADER_BYTES + data.len()].copy_from_slice(data);
        self.len += HEADER_BYTES + data.len().next_multiple_of(WORD);
    }
}

/// What the kernel says about a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Size of the coalesced datagrams, where there are several.
    pub(crate) segment_size: Option<usize>,
    pub(crate) ecn: Ecn,
    /// The address that it arrived at.
    pub(crate) local: Option<IpAddr>,
    /// The address and port that it was sent to, where the socket asks for it.
    pub(crate) target: Option<SocketAddr>,
    /// Datagrams dropped at this socket since it exists; wraps.
    pub(crate) drops: Option<u32>,
}

impl Facts {
    /// Reads the control messages in `control`; unknown ones are passed over.
    pub(crate) fn read(control: &[u8]) -> Self {
        let mut facts = Self::default();
        let mut rest = control;
        while let Some((level, kind, data, after)) = split(rest) {
            facts.note(level, kind, data);
            rest = after;
        }
        facts
    }

    fn note(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        match (level, kind) {
            (libc::SOL_UDP, libc::UDP_GRO) => {
                let size = array(data, 0).map(libc::c_int::from_ne_bytes);
                self.segment_size = size.and_then(|size| usize::try_from(size).ok());
            }
            // One byte from the kernel of today, an int by the manual: the value is in the first byte of either on
            // little-endian machines, and an int is told by its length on the others.
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let bits = array(data, 0).map(|int| libc::c_int::from_ne_bytes(int) as u8);
                self.ecn = bits.or(data.first().copied()).map_or(self.ecn, Ecn::from_bits);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.local = array::<4>(data, 4)
                    .map(|octets| Ipv4Addr::from(octets).into())
                    .or(self.local);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let local = array::<16>(data, 0).map(|octets| Ipv6Addr::from(octets).to_canonical());
                self.local = local.or(self.local);
            }
            // Both are a socket address: family, port and, behind the flow label of IPv6, the address.
            (libc::IPPROTO_IP, libc::IP_ORIGDSTADDR) => {
                let ip = array::<4>(data, 4).map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
                self.target = target(ip, data).or(self.target);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR) => {
                let ip = array::<16>(data, 8).map(|octets| Ipv6Addr::from(octets).to_canonical());
                self.target = target(ip, data).or(self.target);
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.drops = array(data, 0).map(u32::from_ne_bytes),
            _ => {}
        }
    }
}

fn target(ip: Option<IpAddr>, data: &[u8]) -> Option<SocketAddr> {
    let port = array(data, 2).map(u16::from_be_bytes)?;
    Some(SocketAddr::new(ip?, port))
}

type Message<'a> = (libc::c_int, libc::c_int, &'a [u8], &'a [u8]);

/// The first control message (level, type, data) and what follows it.
fn split(control: &[u8]) -> Option<Message<'_>> {
    let len = usize::from_ne_bytes(array(control, 0)?);
    let level = libc::c_int::from_ne_bytes(array(control, WORD)?);
    let kind = libc::c_int::from_ne_bytes(array(control, WORD + 4)?);
    let data = control.get(HEADER_BYTES..len)?;
    let after = len.checked_next_multiple_of(WORD)?.min(control.len());
    Some((level, kind, data, &control[after..]))
}

/// Reads `input` as control messages; what was understood is the same after it was written and read again.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    let facts = Facts::read(input);
    let mut control = Control::EMPTY;
    let size = facts.segment_size.map(|size| size as libc::c_int);
    if let Some(size) = size {
        control.push(libc::SOL_UDP, libc::UDP_GRO, &size.to_ne_bytes());
    }
    control.push_ecn(facts.ecn, facts.local.is_some_and(|local| local.is_ipv4()));
    if let Some(local) = facts.local {
        control.push_source(local);
    }
    if let Some(target) = facts.target {
        control.push_target(target);
    }
    if let Some(drops) = facts.drops {
        control.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &drops.to_ne_bytes());
    }
    assert_eq!(Facts::read(control.bytes()), facts);
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut control = Control::EMPTY;
        control.push(libc::SOL_UDP, libc::UDP_GRO, &1200_i32.to_ne_bytes());
        control.push_ecn(Ecn::Ce, false);
        control.push_source("2001:db8::1".parse().unwrap());
        control.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        control.push(libc::SOL_SOCKET, 9999, &[1; 5]);
        control.push_target("[2001:db8::2]:53".parse().unwrap());
        let expected = Facts {
            segment_size: Some(1200),
            ecn: Ecn::Ce,
            local: Some("2001:db8::1".parse().unwrap()),
            drops: Some(7),
            target: Some("[2001:db8::2]:53".parse().unwrap()),
        };
        assert_eq!(Facts::read(control.bytes()), expected);
        control.clear();
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[0xfe]);
        control.push_source("::ffff:192.0.2.1".parse().unwrap());
        let facts = Facts::read(control.bytes());
        assert_eq!(
            (facts.ecn, facts.local),
            (Ecn::Ect0, Some("192.0.2.1".parse().unwrap()))
        );
    }

    #[test]
    fn all_send_messages_fit_together() {
        let mut control = Control::EMPTY;
        control.push_segment_size(1200);
        control.push_ecn(Ecn::Ect0, true);
        control.push_source("2001:db8::1".parse().unwrap());
        assert!(control.bytes().len() <= CONTROL_BYTES);
        assert_eq!(control.bytes().len() % WORD, 0);
    }

    #[test]
    fn lengths_that_lie_end_the_walk() {
        for len in [
            0,
            1,
            HEADER_BYTES - 1,
            CONTROL_BYTES + 1,
            usize::MAX,
            usize::MAX - 3,
        ] {
            let mut control = Control::EMPTY;
            control.push_ecn(Ecn::Ce, true);
            control.room()[..WORD].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(Facts::read(control.bytes()), Facts::default(), "length {len}");
        }
    }

    #[test]
    fn messages_cut_short_are_passed_over() {
        let mut control = Control::EMPTY;
        control.push(libc::SOL_UDP, libc::UDP_GRO, &[1]);
        control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &[1; 7]);
        control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[1; 15]);
        control.push(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[]);
        control.push(libc::IPPROTO_IP, libc::IP_TOS, &[]);
        assert_eq!(Facts::read(control.bytes()), Facts::default());
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut random = StdRng::seed_from_u64(1);
        let mut control = Control::EMPTY;
        control.push_ecn(Ecn::Ce, true);
        control.push_source("2001:db8::1".parse().unwrap());
        for _ in 0..100_000 {
            let mut bytes = control.bytes;
            for _ in 0..random.random_range(1..12) {
                bytes[random.random_range(0..CONTROL_BYTES)] = random.random();
            }
            Facts::read(&bytes[..random.random_range(0..=CONTROL_BYTES)]);
        }
    }
}
