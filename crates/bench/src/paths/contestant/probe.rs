//! Whether a way between the machines carries: a connection is tried again and again until a byte comes back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testbed::namespace::within;

use super::TARGET_PORTS;
use crate::error::During;
use crate::network::Network;
use crate::{Error, limits};

/// How long one connection may take: many retransmissions on the longest of the listed links.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two looks at what waits.
const LOOK: Duration = Duration::from_millis(5);

/// Pause between two attempts.
const GAP: Duration = Duration::from_millis(50);

/// Whether connections of the client's machine to `entrance` reach the first target port of the server's before time is
/// over, or before `is_alive` says no.
///
/// # Errors
/// When the port is taken, or a namespace cannot be entered.
pub(in crate::paths) fn carries(
    network: &Network,
    entrance: SocketAddr,
    mut is_alive: impl FnMut() -> bool,
) -> Result<bool, Error> {
    let target = SocketAddr::from((Ipv4Addr::UNSPECIFIED, TARGET_PORTS[0]));
    let action = || format!("listen on {target}");
    let listener = within(network.server.name(), || TcpListener::bind(target))?.during(action)?;
    listener.set_nonblocking(true).during(action)?;
    let deadline = Instant::now() + limits::READY_TIMEOUT;
    let mut accepted = Vec::new();
    while Instant::now() < deadline && is_alive() {
        let attempt = start(network, entrance);
        while !attempt.is_finished() {
            if let Ok((mut stream, _)) = listener.accept() {
                // A connection that is broken shows at the other end.
                let _ = stream.write_all(&[1]);
                accepted.push(stream);
            }
            std::thread::sleep(LOOK);
        }
        if attempt.join().unwrap_or(false) {
            return Ok(true);
        }
        std::thread::sleep(GAP);
    }
    Ok(false)
}

/// One connection, on a thread of its own; tells whether a byte came back.
fn start(network: &Network, entrance: SocketAddr) -> JoinHandle<bool> {
    let client = network.client.name().to_owned();
    let connect = move || {
        let stream = TcpStream::connect_timeout(&entrance, ATTEMPT_TIMEOUT);
        stream.is_ok_and(|mut stream| {
            let is_set = stream.set_read_timeout(Some(ATTEMPT_TIMEOUT)).is_ok();
            is_set && stream.read_exact(&mut [0]).is_ok()
        })
    };
    std::thread::spawn(move || within(&client, connect).unwrap_or(false))
}
