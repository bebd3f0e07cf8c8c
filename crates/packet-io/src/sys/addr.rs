//! Socket addresses as the bytes that the kernel reads and writes; a v4-mapped address is plain IPv4 to the caller.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::limits::NAME_BYTES;

const INET_BYTES: usize = size_of::<libc::sockaddr_in>();
const INET6_BYTES: usize = size_of::<libc::sockaddr_in6>();
const LINK_BYTES: usize = size_of::<libc::sockaddr_ll>();
const _: () = assert!(INET6_BYTES <= NAME_BYTES && LINK_BYTES <= NAME_BYTES);

/// Address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    /// Also carries IPv4, in mapped form.
    V6,
}

impl Family {
    pub(crate) fn of(address: SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// What the kernel says about a packet below IP (`sockaddr_ll`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkName {
    /// Index of the interface.
    pub(crate) index: u32,
    /// Its kind (`ARPHRD_*`).
    pub(crate) kind: u16,
    /// The sender's hardware address, or the interface's own where the name is that of a socket.
    pub(crate) hardware: Option<[u8; HARDWARE_BYTES]>,
}

/// Bytes of an Ethernet address.
pub(crate) const HARDWARE_BYTES: usize = 6;

/// Room for one `sockaddr_in`, `sockaddr_in6` or `sockaddr_ll`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Name {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl Name {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; NAME_BYTES],
        len: 0,
    };

    /// The bytes that hold the address.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same bytes, as the type that the kernel's read-only pointers have.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// The whole room, for the kernel to write.
    pub(crate) fn room(&mut self) -> &mut [u8; NAME_BYTES] {
        &mut self.bytes
    }

    /// Says how many bytes the kernel wrote; what did not fit is cut.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(NAME_BYTES);
    }

    /// Writes `address` in the form that a socket of `family` takes.
    pub(crate) fn encode(&mut self, address: SocketAddr, family: Family) {
        let port = address.port().to_be_bytes();
        self.bytes[2..4].copy_from_slice(&port);
        let v6 = match (family, address.ip().to_canonical(), address) {
            (Family::V4, IpAddr::V4(ip), _) => {
                self.bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                self.bytes[4..8].copy_from_slice(&ip.octets());
                self.bytes[8..INET_BYTES].fill(0);
                self.len = INET_BYTES;
                return;
            }
            (Family::V6, IpAddr::V4(ip), _) => SocketAddrV6::new(ip.to_ipv6_mapped(), 0, 0, 0),
            (_, _, SocketAddr::V6(v6)) => v6,
            (_, IpAddr::V6(ip), _) => SocketAddrV6::new(ip, 0, 0, 0),
        };
        self.bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
        self.bytes[8..24].copy_from_slice(&v6.ip().octets());
        self.bytes[24..INET6_BYTES].copy_from_slice(&v6.scope_id().to_ne_bytes());
        self.len = INET6_BYTES;
    }

    /// Writes the name of an interface, for packets of this EtherType.
    pub(crate) fn encode_link(&mut self, index: u32, ethertype: u16) {
        self.bytes[..LINK_BYTES].fill(0);
        self.bytes[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
        self.bytes[2..4].copy_from_slice(&ethertype.to_be_bytes());
        self.bytes[4..8].copy_from_slice(&index.to_ne_bytes());
        self.len = LINK_BYTES;
    }

    /// Reads what the kernel wrote; `None` where it is no complete name of a link. The kernel leaves away the bytes
    /// behind a shorter hardware address.
    pub(crate) fn decode_link(&self) -> Option<LinkName> {
        let bytes = self.bytes();
        if i32::from(u16::from_ne_bytes(array(bytes, 0)?)) != libc::AF_PACKET {
            return None;
        }
        let length = usize::from(*bytes.get(11)?);
        Some(LinkName {
            index: u32::from_ne_bytes(array(bytes, 4)?),
            kind: u16::from_ne_bytes(array(bytes, 8)?),
            hardware: array(bytes, 12).filter(|_| length == HARDWARE_BYTES),
        })
    }

    /// Reads what the kernel wrote; `None` where it is no complete IP address.
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        let bytes = self.bytes();
        let family = i32::from(u16::from_ne_bytes(array(bytes, 0)?));
        let port = u16::from_be_bytes(array(bytes, 2)?);
        match family {
            libc::AF_INET => Some(SocketAddr::new(
                Ipv4Addr::from(array::<4>(bytes, 4)?).into(),
                port,
            )),
            libc::AF_INET6 => {
                let flowinfo = u32::from_be_bytes(array(bytes, 4)?);
                let ip = Ipv6Addr::from(array::<16>(bytes, 8)?);
                let scope_id = u32::from_ne_bytes(array(bytes, 24)?);
                Some(match ip.to_canonical() {
                    IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
                    IpAddr::V6(ip) => SocketAddrV6::new(ip, port, flowinfo, scope_id).into(),
                })
            }
            _ => None,
        }
    }
}

/// `N` bytes of `bytes` from `at` on, where there are as many.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(address: &str, family: Family) -> (SocketAddr, usize) {
        let mut name = Name::EMPTY;
        name.encode(address.parse().unwrap(), family);
        (name.decode().unwrap(), name.len)
    }

    #[test]
    fn an_address_survives_a_round_trip_and_a_mapped_one_is_ipv4() {
        let v4 = "192.0.2.1:65535".parse().unwrap();
        assert_eq!(round_trip("192.0.2.1:65535", Family::V4), (v4, INET_BYTES));
        assert_eq!(round_trip("192.0.2.1:65535", Family::V6), (v4, INET6_BYTES));
        assert_eq!(
            round_trip("[::ffff:192.0.2.1]:65535", Family::V4),
            (v4, INET_BYTES)
        );
        let v6 = SocketAddrV6::new("fe80::1".parse().unwrap(), 53, 7, 3).into();
        let mut name = Name::EMPTY;
        name.encode(v6, Family::V6);
        assert_eq!(name.decode(), Some(v6));
    }

    #[test]
    fn the_name_of_a_link_is_read_as_the_kernel_writes_it() {
        let mut name = Name::EMPTY;
        name.encode_link(7, 0x0800);
        assert_eq!(name.bytes()[2..4], [8, 0]);
        assert_eq!(name.decode(), None);
        let expected = LinkName {
            index: 7,
            kind: 0,
            hardware: None,
        };
        assert_eq!(name.decode_link(), Some(expected));
        name.bytes[8..10].copy_from_slice(&1_u16.to_ne_bytes());
        name.bytes[11..18].copy_from_slice(&[6, 2, 0, 0, 0, 0, 9]);
        name.set_len(18);
        let expected = LinkName {
            kind: 1,
            hardware: Some([2, 0, 0, 0, 0, 9]),
            ..expected
        };
        assert_eq!(name.decode_link(), Some(expected));
        name.set_len(11);
        assert_eq!(name.decode_link(), None);
    }

    #[test]
    fn a_cut_or_foreign_address_is_none() {
        let mut name = Name::EMPTY;
        name.encode("[2001:db8::1]:1".parse().unwrap(), Family::V6);
        for len in 0..INET6_BYTES {
            name.set_len(len);
            assert_eq!(name.decode(), None);
        }
        name.set_len(usize::MAX);
        name.room()[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        assert_eq!(name.decode(), None);
    }
}
