//! The machine's own addresses, as far as packets leave by them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses of documentation (RFC 5737, RFC 3849), to which the default routes lead. Nothing is sent.
const ELSEWHERE: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9),
];

/// Where a socket that is bound to `local` is reached from neighbours: that address, or the ones from which packets
/// leave to `server` and elsewhere.
pub(crate) fn addresses_of(local: SocketAddr, server: SocketAddr) -> Vec<SocketAddr> {
    if !local.ip().is_unspecified() {
        return vec![local];
    }
    let mut addresses = Vec::new();
    for destination in [server].into_iter().chain(ELSEWHERE) {
        if let Some(ip) = source_towards(destination)
            && (local.is_ipv6() || ip.is_ipv4())
            && !addresses.iter().any(|known: &SocketAddr| known.ip() == ip)
        {
            addresses.push(SocketAddr::new(ip, local.port()));
        }
    }
    addresses
}

/// The address that the system would send from; `None` without a route.
fn source_towards(destination: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match destination {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(destination).ok()?;
    let ip = socket.local_addr().ok()?.ip().to_canonical();
    (!ip.is_unspecified()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_for_all_addresses_is_told_by_those_that_packets_leave_from() {
        let server = "127.0.0.9:443".parse().unwrap();
        let bound = "127.0.0.1:4000".parse().unwrap();
        assert_eq!(addresses_of(bound, server), [bound]);
        let all = addresses_of("0.0.0.0:4000".parse().unwrap(), server);
        assert_eq!(all[0], bound);
        assert!(
            all.iter()
                .all(|address| address.is_ipv4() && address.port() == 4000)
        );
    }
}
