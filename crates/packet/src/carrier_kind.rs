//! Whether a peer is reached over UDP or in TCP's shape, told by its address.
//!
//! QUIC knows a path by its addresses alone, and both carriers have the same ones: a server listens at one port in both
//! shapes, and behind one address translator two clients may have the same port. So an address in TCP's shape carries a
//! mark within this process: a flow label that no packet can have, on an IPv6 address, to which an IPv4 address is
//! mapped. It is another address to everything that compares addresses, and goes with them into QUIC and back. The mark
//! never leaves the process.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Beyond the 28 bits of traffic class and flow label (RFC 8200 section 3).
const MARK: u32 = 0x8000_0000;

/// Beyond the same bits, beside the mark: a number follows.
const STAND_IN: u32 = 0x4000_0000;

/// What carries datagrams between two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CarrierKind {
    /// UDP.
    Udp,
    /// Packets that look like TCP (specs/fake-tcp.md).
    Tcp,
}

impl CarrierKind {
    /// What carries datagrams to `address`.
    #[must_use]
    pub fn of(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V6(v6) if v6.flowinfo() & MARK != 0 => Self::Tcp,
            _ => Self::Udp,
        }
    }

    /// The address as one that is reached over this carrier.
    #[must_use]
    pub fn mark(self, address: SocketAddr) -> SocketAddr {
        let port = address.port();
        let scope = match address {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        match (self, address.ip().to_canonical()) {
            (Self::Udp, IpAddr::V4(ip)) => SocketAddr::new(ip.into(), port),
            (Self::Udp, IpAddr::V6(ip)) => SocketAddrV6::new(ip, port, 0, scope).into(),
            (Self::Tcp, IpAddr::V4(ip)) => SocketAddrV6::new(ip.to_ipv6_mapped(), port, MARK, 0).into(),
            (Self::Tcp, IpAddr::V6(ip)) => SocketAddrV6::new(ip, port, MARK, scope).into(),
        }
    }

    /// Stands for `address` where QUIC knows another path by that one: an address of this kind that equals no other but
    /// the same `number`'s, up to 2^30 of them.
    #[must_use]
    pub fn stand_in(self, address: SocketAddr, number: u64) -> SocketAddr {
        let SocketAddr::V6(plain) = Self::Tcp.mark(address) else {
            unreachable!("marked addresses are of IPv6");
        };
        let number = number as u32 & (STAND_IN - 1);
        let kind = match self {
            Self::Udp => 0,
            Self::Tcp => MARK,
        };
        SocketAddrV6::new(
            *plain.ip(),
            plain.port(),
            kind | STAND_IN | number,
            plain.scope_id(),
        )
        .into()
    }

    /// The address without a mark, as sockets and people know it.
    #[must_use]
    pub fn unmark(address: SocketAddr) -> SocketAddr {
        Self::Udp.mark(address)
    }

    /// Whether an address is none that sockets and people know: it has a mark, or stands for another one.
    #[must_use]
    pub fn is_marked(address: SocketAddr) -> bool {
        matches!(address, SocketAddr::V6(v6) if v6.flowinfo() & (MARK | STAND_IN) != 0)
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Udp => Self::Tcp,
            Self::Tcp => Self::Udp,
        }
    }

    /// Bytes of headers between those of IP and a datagram.
    #[must_use]
    pub fn header_bytes(self) -> u16 {
        match self {
            Self::Udp => 8,
            Self::Tcp => 20,
        }
    }

    /// `udp` or `tcp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_address_is_another_one_and_loses_nothing() {
        for text in ["192.0.2.1:443", "[2001:db8::1]:443", "[fe80::1%3]:443"] {
            let plain: SocketAddr = text.parse().unwrap();
            let marked = CarrierKind::Tcp.mark(plain);
            assert_ne!(marked, plain);
            assert!(CarrierKind::is_marked(marked) && !CarrierKind::is_marked(plain));
            assert_eq!(
                (CarrierKind::of(plain), CarrierKind::of(marked)),
                (CarrierKind::Udp, CarrierKind::Tcp)
            );
            assert_eq!(CarrierKind::unmark(marked), plain);
            assert_eq!(CarrierKind::unmark(plain), plain);
            assert_eq!(CarrierKind::Tcp.mark(marked), marked);
            assert_eq!(marked.ip().to_canonical(), plain.ip());
        }
    }

    #[test]
    fn a_stand_in_is_another_address_of_the_same_place_and_kind() {
        for text in ["192.0.2.1:443", "[2001:db8::1]:443", "[fe80::1%3]:443"] {
            let plain: SocketAddr = text.parse().unwrap();
            for kind in [CarrierKind::Udp, CarrierKind::Tcp] {
                let stand_ins = [0, 1, u64::MAX].map(|number| kind.stand_in(plain, number));
                let [first, second, last] = stand_ins;
                assert!(first != second && second != last && first != last);
                for stand_in in stand_ins {
                    assert!(CarrierKind::is_marked(stand_in));
                    assert_eq!(CarrierKind::of(stand_in), kind);
                    assert_eq!(CarrierKind::unmark(stand_in), plain);
                    assert_ne!(stand_in, kind.mark(plain));
                }
            }
        }
    }
}
