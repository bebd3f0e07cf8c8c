//! Round trips of 64-byte datagrams over an idle path, one at a time.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use serde::Serialize;

use crate::error::During;
use crate::median::percentile;
use crate::payload::Header;
use crate::{Error, limits};

/// Bytes per echo.
pub(crate) const ECHO_BYTES: usize = 64;

/// Echoes before the measured ones: sessions open, caches fill.
const WARM_UP: u64 = 20;

/// Round-trip times.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct EchoReport {
    /// Echoes asked for.
    pub(crate) rounds: u64,
    /// Echoes that did not come within [`limits::ECHO_TIMEOUT`].
    pub(crate) lost: u64,
    /// Median, in microseconds.
    pub(crate) p50_us: f64,
    /// 99th percentile, in microseconds.
    pub(crate) p99_us: f64,
}

/// Asks `destination`, which has to echo, `rounds` times.
///
/// # Errors
/// When the socket can't be made or breaks.
pub(crate) fn measure(destination: SocketAddr, rounds: u64) -> Result<EchoReport, Error> {
    let action = || format!("measure echoes of {destination}");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).during(action)?;
    socket.connect(destination).during(action)?;
    socket
        .set_read_timeout(Some(limits::ECHO_TIMEOUT))
        .during(action)?;
    let (mut times, mut lost) = (Vec::new(), 0);
    for sequence in 0..rounds + WARM_UP {
        match round(&socket, sequence).during(action)? {
            Some(microseconds) if sequence >= WARM_UP => times.push(microseconds),
            None if sequence >= WARM_UP => lost += 1,
            _ => {}
        }
        std::thread::sleep(limits::ECHO_GAP);
    }
    let (p50_us, p99_us) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    Ok(EchoReport {
        rounds,
        lost,
        p50_us,
        p99_us,
    })
}

/// One echo; answers to earlier ones are thrown away.
fn round(socket: &UdpSocket, sequence: u64) -> std::io::Result<Option<f64>> {
    let mut datagram = [0; ECHO_BYTES];
    Header {
        flow: 0,
        sequence,
        sent_at: 0,
    }
    .write(&mut datagram);
    let start = Instant::now();
    socket.send(&datagram)?;
    let mut answer = [0; ECHO_BYTES];
    while start.elapsed() < limits::ECHO_TIMEOUT {
        match socket.recv(&mut answer) {
            Ok(_) if Header::read(&answer).is_some_and(|header| header.sequence == sequence) => {
                return Ok(Some(start.elapsed().as_secs_f64() * 1e6));
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}
