//! Strangers in masses, by our own QUIC: a script completes tens of handshakes a second, and an attack takes thousands.
//!
//! An attempt has a socket and an endpoint of its own, and what it does is done when it returns: threads make one
//! attempt after the other, all together as many a second as they are told, or as many as the machine makes.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::Ecn;
use quic::{
    ClientParameters, ConnectionKey, Direction, Endpoint, EndpointParameters, Event, NoDatagrams, Outbox,
    Path, StreamId,
};
use testbed::namespace::Namespace;

/// For the server to answer one attempt, a lost packet included.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// Sockets that one thread keeps open behind its attempts, so that the server's packets do not meet closed ports.
const SOCKETS_KEPT: usize = 64;

/// What an interface of Ethernet carries over IPv4, in bytes of UDP payload.
const PAYLOAD_MAX: u16 = 1_472;

/// Packets of pieces that one attempt makes; every second one is not sent, and leaves a gap.
const PIECES: usize = 60;

/// The first byte of a Retry packet (RFC 9000 section 17.2.5), without what is protected.
const RETRY: u8 = 0xf0;

/// What a stranger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Shakes hands up to the proof of its address, and says nothing more.
    Stalls,
    /// Completes its handshake, and shows no token.
    Completes,
    /// Completes it, and sends single bytes on all streams behind gaps that are never filled.
    Gaps,
}

/// Whom they attack, and where from.
#[derive(Clone, Debug)]
pub(crate) struct Attack {
    pub(crate) kind: Kind,
    pub(crate) server: SocketAddr,
    /// Of the server's certificate: a handshake with another one would not be complete.
    pub(crate) pin: [u8; 32],
    /// Taken in turns.
    pub(crate) sources: Vec<IpAddr>,
    pub(crate) per_second: u32,
    pub(crate) threads: usize,
}

/// What threads of one attack share.
#[derive(Default)]
struct Progress {
    ends: AtomicBool,
    begun: AtomicU64,
    succeeded: AtomicU64,
}

/// An attack under way.
pub(crate) struct Strangers {
    progress: Arc<Progress>,
    start: Instant,
    threads: Vec<JoinHandle<()>>,
}

impl Strangers {
    /// Lets them loose; their addresses are those of this machine.
    pub(crate) fn start(machine: &Namespace, attack: &Attack) -> Self {
        let (progress, start) = (Arc::<Progress>::default(), Instant::now());
        // Threads begin in the namespace of who starts them, and their sockets stay there.
        let threads = machine.inside(|| {
            let one = |_| {
                let (attack, progress) = (attack.clone(), Arc::clone(&progress));
                std::thread::spawn(move || attempts(&attack, &progress, start))
            };
            (0..attack.threads).map(one).collect()
        });
        Self {
            progress,
            start,
            threads,
        }
    }

    /// Attempts so far that did what their kind does, a second.
    pub(crate) fn rate(&self) -> f64 {
        self.progress.succeeded.load(Ordering::Relaxed) as f64 / self.start.elapsed().as_secs_f64()
    }

    /// Ends them, and gives their rate.
    pub(crate) fn end(mut self) -> f64 {
        let rate = self.rate();
        self.stop();
        rate
    }

    fn stop(&mut self) {
        self.progress.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Its panic was printed, and the rate is less by what it did not do.
            let _ = thread.join();
        }
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.stop();
    }
}

/// One thread: attempt after attempt, each when it is due.
fn attempts(attack: &Attack, progress: &Progress, start: Instant) {
    let mut kept = VecDeque::new();
    while !progress.ends.load(Ordering::Relaxed) {
        let number = progress.begun.fetch_add(1, Ordering::Relaxed);
        let due = start + Duration::from_secs(1).mul_f64(number as f64 / f64::from(attack.per_second));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // What the system refuses at its limits is an attempt less.
        let Ok(mut stranger) = Stranger::connect(attack, number) else {
            continue;
        };
        let done = match attack.kind {
            Kind::Stalls => stranger.stall(),
            Kind::Completes => stranger.complete(),
            Kind::Gaps => stranger.complete() && stranger.send_pieces(),
        };
        progress.succeeded.fetch_add(u64::from(done), Ordering::Relaxed);
        kept.push_back(stranger.socket);
        if kept.len() > SOCKETS_KEPT {
            kept.pop_front();
        }
    }
}

/// One attempt.
struct Stranger {
    socket: UdpSocket,
    server: SocketAddr,
    endpoint: Endpoint,
    connection: ConnectionKey,
    outbox: Outbox,
}

impl Stranger {
    /// Begins a handshake and sends its first flight.
    fn connect(attack: &Attack, number: u64) -> io::Result<Self> {
        let source = attack.sources[number as usize % attack.sources.len()];
        let socket = UdpSocket::bind((source, 0))?;
        socket.connect(attack.server)?;
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        seed[8..10].copy_from_slice(&socket.local_addr()?.port().to_be_bytes());
        let parameters = EndpointParameters::of_client(seed);
        let mut endpoint = Endpoint::new(&parameters, None).map_err(io::Error::other)?;
        let pin = ClientParameters::Pin(attack.pin);
        let connection = endpoint
            .connect(Instant::now(), attack.server, "localhost", &pin, PAYLOAD_MAX)
            .map_err(io::Error::other)?;
        let mut stranger = Self {
            socket,
            server: attack.server,
            endpoint,
            connection,
            outbox: Outbox::default(),
        };
        stranger.send(true);
        Ok(stranger)
    }

    /// Whether its address was asked for and proved: then the server has a handshake that nobody goes on with. Where no
    /// proof is asked for, it has one, too.
    fn stall(&mut self) -> bool {
        let mut buffer = [0; PAYLOAD_MAX as usize];
        let Some(packet) = self.receive(&mut buffer, ANSWER_LIMIT) else {
            return false;
        };
        if packet[0] & RETRY == RETRY {
            self.handle(packet);
            self.send(true);
        }
        true
    }

    /// Whether the handshake was completed in time.
    fn complete(&mut self) -> bool {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut buffer = [0; PAYLOAD_MAX as usize];
        while Instant::now() < deadline {
            let timer = self.endpoint.poll_timeout().map(|(due, _)| due);
            let until = timer.map_or(deadline, |due| due.min(deadline));
            let limit = until.saturating_duration_since(Instant::now());
            if let Some(packet) = self.receive(&mut buffer, limit) {
                self.handle(packet);
            }
            self.endpoint.handle_timeout(Instant::now());
            self.send(true);
            while let Some(event) = self.endpoint.poll_event() {
                match event {
                    Event::Connected { .. } => return true,
                    Event::Closed { .. } => return false,
                    _ => {}
                }
            }
        }
        false
    }

    /// Sends bytes on every stream that it may open, never the first ones.
    fn send_pieces(&mut self) -> bool {
        let mut streams: Vec<StreamId> = Vec::new();
        for direction in [Direction::Bidirectional, Direction::Unidirectional] {
            while let Some(stream) = self.endpoint.open_stream(self.connection, direction) {
                streams.push(stream);
            }
        }
        for piece in 0..PIECES {
            for stream in &streams {
                // A stream that the server has refused by now takes nothing.
                let _ = self.endpoint.write(self.connection, *stream, b"x");
            }
            self.send(piece % 2 == 1);
        }
        !streams.is_empty()
    }

    fn receive<'a>(&self, buffer: &'a mut [u8], limit: Duration) -> Option<&'a [u8]> {
        // None at all would mean to wait without end.
        let limit = limit.max(Duration::from_micros(1));
        self.socket.set_read_timeout(Some(limit)).ok()?;
        let length = self.socket.recv(buffer).ok()?;
        Some(&buffer[..length]).filter(|packet| !packet.is_empty())
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

    /// Makes the packets that are due; `leaves`: and sends them.
    fn send(&mut self, leaves: bool) {
        loop {
            let more = self
                .endpoint
                .flush(Instant::now(), &mut no_datagrams(), &mut self.outbox);
            for train in self.outbox.trains().iter().filter(|_| leaves) {
                for packet in train.bytes.chunks(train.segment_size.max(1)) {
                    // A full buffer of the sender loses one, which the attempt makes up for or not.
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
