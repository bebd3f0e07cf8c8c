//! Handshakes with a server, so many a second, by the tunnel's own QUIC: each from a socket of its own, complete, and
//! closed at once. A hidden command, so that the server's processor time is the server's alone.
//!
//! Threads make one attempt after the other, all together as many a second as they are told: few enough that no budget
//! of the server refuses one.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::BytesMut;
use packet::Ecn;
use quic::{
    ClientParameters, ConnectionKey, Endpoint, EndpointParameters, Event, FrontDoorClient, IdLength,
    NoDatagrams, Outbox, Path, TrustedRoots,
};
use reality::credentials::ServerKey;
use serde::{Deserialize, Serialize};
use tunnel_proto::Token;

use super::site;
use crate::{Error, limits};

/// What an interface of Ethernet carries over IPv4, in bytes of UDP payload.
const PAYLOAD_MAX: u16 = 1_472;

/// Attempts at once.
const THREADS: u32 = 8;

/// What a client knows its server by.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Proof {
    /// SHA-256 of its public key.
    Pin([u8; 32]),
    /// The private key of its front door, of which the client has the public half, and the user's token.
    FrontDoor([u8; 32], String),
}

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HandshakeOptions {
    pub(super) server: SocketAddr,
    pub(super) proof: Proof,
    /// Addresses of this machine, taken in turns.
    pub(super) sources: Vec<IpAddr>,
    pub(super) per_second: u32,
    pub(super) seconds: f64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct HandshakeReport {
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) seconds: f64,
}

/// Makes the handshakes.
///
/// # Errors
/// When the token cannot be read, or the browser's authorities.
pub(super) fn run(options: &HandshakeOptions) -> Result<HandshakeReport, Error> {
    let roots = TrustedRoots::web_pki_and(&[]).map_err(|error| Error::Setup(error.to_string()))?;
    if let Proof::FrontDoor(_, token) = &options.proof {
        Token::parse(token).map_err(|error| Error::Setup(error.to_string()))?;
    }
    let [begun, completed, failed] = [const { AtomicU64::new(0) }; 3];
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = begun.fetch_add(1, Ordering::Relaxed);
                    let due = Duration::from_secs_f64(number as f64 / f64::from(options.per_second));
                    if due.as_secs_f64() >= options.seconds {
                        return;
                    }
                    std::thread::sleep(due.saturating_sub(start.elapsed()));
                    let is_complete = Attempt::begin(options, &roots, number).is_ok_and(Attempt::complete);
                    let counter = if is_complete { &completed } else { &failed };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(HandshakeReport {
        completed: completed.into_inner(),
        failed: failed.into_inner(),
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// One handshake.
struct Attempt {
    socket: UdpSocket,
    server: SocketAddr,
    endpoint: Endpoint,
    connection: ConnectionKey,
    outbox: Outbox,
}

impl Attempt {
    /// Sends the first flight.
    fn begin(options: &HandshakeOptions, roots: &TrustedRoots, number: u64) -> io::Result<Self> {
        let source = options.sources[number as usize % options.sources.len()];
        let socket = UdpSocket::bind((source, 0))?;
        socket.connect(options.server)?;
        let unix_seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() as u32;
        let (proof, name, id_length) = match &options.proof {
            Proof::Pin(pin) => (ClientParameters::Pin(*pin), "localhost", IdLength::default()),
            Proof::FrontDoor(key, token) => {
                let client = FrontDoorClient {
                    server: *ServerKey::from_bytes(key).public(),
                    user: Token::parse(token).map_err(io::Error::other)?.user_key(),
                    unix_seconds,
                    roots: roots.clone(),
                };
                (ClientParameters::FrontDoor(client), site::NAME, IdLength::NONE)
            }
        };
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        seed[8..10].copy_from_slice(&socket.local_addr()?.port().to_be_bytes());
        seed[10..14].copy_from_slice(&unix_seconds.to_be_bytes());
        let parameters = EndpointParameters {
            id_length,
            is_covered: matches!(proof, ClientParameters::FrontDoor(_)),
            ..EndpointParameters::of_client(seed)
        };
        let mut endpoint = Endpoint::new(&parameters, None).map_err(io::Error::other)?;
        let connection = endpoint
            .connect(Instant::now(), options.server, name, &proof, PAYLOAD_MAX)
            .map_err(io::Error::other)?;
        let mut attempt = Self {
            socket,
            server: options.server,
            endpoint,
            connection,
            outbox: Outbox::default(),
        };
        attempt.send();
        Ok(attempt)
    }

    /// Whether the handshake was complete in time; then it is closed.
    fn complete(mut self) -> bool {
        let deadline = Instant::now() + limits::HANDSHAKE_TIMEOUT;
        let mut buffer = [0; PAYLOAD_MAX as usize];
        while Instant::now() < deadline {
            let timer = self.endpoint.poll_timeout().map(|(due, _)| due);
            let until = timer.map_or(deadline, |due| due.min(deadline));
            // None at all would mean to wait without end.
            let limit = until
                .saturating_duration_since(Instant::now())
                .max(Duration::from_micros(1));
            if self.socket.set_read_timeout(Some(limit)).is_err() {
                return false;
            }
            if let Ok(length @ 1..) = self.socket.recv(&mut buffer) {
                self.handle(&buffer[..length]);
            }
            self.endpoint.handle_timeout(Instant::now());
            self.send();
            while let Some(event) = self.endpoint.poll_event() {
                match event {
                    Event::Connected { .. } => {
                        self.endpoint.close(Instant::now(), self.connection, 0, b"");
                        self.send();
                        return true;
                    }
                    Event::Closed { .. } => return false,
                    _ => {}
                }
            }
        }
        false
    }

    fn handle(&mut self, packet: &[u8]) {
        let path = Path {
            remote: self.server,
            local: None,
        };
        let (now, bytes) = (Instant::now(), BytesMut::from(packet));
        let outbox = &mut self.outbox;
        self.endpoint
            .handle_received(now, path, Ecn::NotEct, bytes, 0, &mut no_datagrams(), outbox);
    }

    fn send(&mut self) {
        loop {
            let more = self
                .endpoint
                .flush(Instant::now(), &mut no_datagrams(), &mut self.outbox);
            for train in self.outbox.trains() {
                for packet in train.bytes.chunks(train.segment_size.max(1)) {
                    // A loss, which QUIC makes up for.
                    let _ = self.socket.send(packet);
                }
            }
            self.outbox.release(usize::MAX);
            if !more {
                return;
            }
        }
    }
}

/// Nothing is carried in datagrams, and none is expected.
fn no_datagrams() -> NoDatagrams {
    NoDatagrams {
        udp_payload_ceiling: PAYLOAD_MAX,
    }
}
