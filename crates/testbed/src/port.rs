//! Free ports of the host. Inside a namespace of its own a test simply chooses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use crate::Error;

/// A loopback address whose port is free for UDP and TCP alike; somebody else could take it meanwhile.
///
/// # Errors
/// When the system has no port left.
pub fn free_address() -> Result<SocketAddr, Error> {
    let failed = || Error::io("find a free port");
    loop {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed())?;
        let address = tcp.local_addr().map_err(failed())?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
}
