//! A UDP source that asks an echo through a tunnel, again and again as UDP clients do, until the answer comes.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use testbed::limits::POLL_INTERVAL;
use testbed::namespace::Namespace;

use crate::limits::{ASK_INTERVAL, UDP_PAYLOAD_BUFFER};

/// A UDP socket connected to a listener of a client.
pub struct Source {
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl Source {
    /// Opens one inside, on a port of the system's choice.
    ///
    /// # Panics
    /// When it cannot be opened.
    #[must_use]
    pub fn new(namespace: &Namespace, listener: &str) -> Self {
        let listener: SocketAddr = listener
            .parse()
            .unwrap_or_else(|error| panic!("{listener} is no address: {error}"));
        let any = if listener.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let open = || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(listener)?;
            socket.set_read_timeout(Some(ASK_INTERVAL))?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = namespace.inside(open);
        Self {
            socket: socket.unwrap_or_else(|error| panic!("no socket towards {listener}: {error}")),
            buffer: vec![0; UDP_PAYLOAD_BUFFER],
        }
    }

    /// Sends a payload, without an answer in mind. A refusal is like a loss: nobody listens yet, or any more.
    pub fn send(&self, payload: &[u8]) {
        let _ = self.socket.send(payload);
    }

    /// Whether this payload has come back, or comes within a moment. Other payloads on the way are passed over.
    pub fn has_answer(&mut self, payload: &[u8]) -> bool {
        loop {
            match self.socket.recv(&mut self.buffer) {
                Ok(length) if self.buffer[..length] == *payload => return true,
                Ok(_) => {}
                Err(error) => {
                    if error.kind() == ErrorKind::ConnectionRefused {
                        // Told at once; asking again at once would spin.
                        std::thread::sleep(POLL_INTERVAL);
                    }
                    return false;
                }
            }
        }
    }

    /// Asks until the payload comes back, and gives how long that took; `None` when `limit` passes first.
    pub fn try_ask(&mut self, payload: &[u8], limit: Duration) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < limit {
            self.send(payload);
            if self.has_answer(payload) {
                return Some(start.elapsed());
            }
        }
        None
    }

    /// [`Source::try_ask`] that must succeed.
    ///
    /// # Panics
    /// When `limit` passes first.
    pub fn ask(&mut self, payload: &[u8], limit: Duration) -> Duration {
        self.try_ask(payload, limit)
            .unwrap_or_else(|| panic!("{} bytes did not come back within {limit:?}", payload.len()))
    }

    /// The bare socket.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}

/// Bytes that differ from place to place and from number to number.
#[must_use]
pub fn pattern(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
