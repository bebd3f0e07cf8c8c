//! Free ports of the host. Inside a namespace of its own a test simply chooses.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// A port that is free on the loopback address for UDP and TCP alike; somebody else could take it meanwhile.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let both_free = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        let port = listener.local_addr().ok()?.port();
        UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
    };
    (0..100)
        .find_map(|_| both_free())
        .expect("a machine with less than 1 % of its ports in use has one")
}
