//! A tunnel over a carrier of another make: it frames every datagram, holds some back, and has a timer of its own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet::Ecn;
use packet_io::{Outgoing, ReceiveBatch, ReceiveMeta, SendOutcome, SocketOptions};
use quic::SteerKey;
use support::{LIMIT, client_config, connected, listening, notice, server_config};
use tunnel::carrier::{Carrier, Carriers, Refusal};
use tunnel::config::{ClientConfig, Forward};
use tunnel::handle::Notice;
use tunnel::snapshot::IoCounters;
use tunnel_proto::Protocol;

/// Before each datagram.
const FRAME: [u8; 8] = *b"in-frame";

/// Of so many datagrams one is held back.
const HELD_OF: u64 = 16;

/// How long.
const HELD_FOR: Duration = Duration::from_millis(2);

/// What all carriers of a test counted.
#[derive(Default)]
struct Seen {
    unframed: AtomicU64,
    held: AtomicU64,
    refused_sends: AtomicU64,
}

#[derive(Clone, Default)]
struct Framed(Arc<Seen>);

struct FramedCarrier {
    socket: UdpSocket,
    remote: Option<SocketAddr>,
    seen: Arc<Seen>,
    counters: IoCounters,
    held: Vec<(Instant, Option<SocketAddr>, Vec<u8>)>,
}

impl FramedCarrier {
    fn boxed(
        socket: UdpSocket,
        remote: Option<SocketAddr>,
        seen: &Arc<Seen>,
    ) -> io::Result<Box<dyn Carrier>> {
        socket.set_nonblocking(true)?;
        Ok(Box::new(Self {
            socket,
            remote,
            seen: Arc::clone(seen),
            counters: IoCounters::default(),
            held: Vec::new(),
        }))
    }

    /// A full socket loses what is given to it here, as a path may.
    fn put(&self, destination: Option<SocketAddr>, framed: &[u8]) {
        let sent = match destination {
            Some(destination) => self.socket.send_to(framed, destination),
            None => self.socket.send(framed),
        };
        let too_long = Some(rustix::io::Errno::MSGSIZE.raw_os_error());
        let is_refused = sent.is_err_and(|error| error.raw_os_error() == too_long);
        self.seen
            .refused_sends
            .fetch_add(is_refused.into(), Ordering::Relaxed);
    }
}

impl AsFd for FramedCarrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Carrier for FramedCarrier {
    fn receive(&mut self, batch: &mut ReceiveBatch) -> Result<usize, Refusal> {
        batch.clear();
        let mut buffer = vec![0; 65_536];
        while batch.len() < batch.capacity() {
            let (len, source) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(Refusal::PortClosed);
                }
                Err(_) => break,
            };
            let Some(payload) = buffer[..len].strip_prefix(&FRAME) else {
                self.seen.unframed.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let meta = ReceiveMeta {
                source,
                local: None,
                target: None,
                ecn: Ecn::NotEct,
                segment_size: payload.len(),
                len: payload.len(),
                truncated: false,
            };
            batch.push(meta, payload);
        }
        self.counters.segments_received += batch.len() as u64;
        Ok(batch.len())
    }

    fn send(&mut self, messages: &[Outgoing<'_>]) -> SendOutcome {
        let mut outcome = SendOutcome {
            messages: messages.len(),
            ..SendOutcome::default()
        };
        for message in messages {
            for segment in packet::segments(message.payload, message.segment_size) {
                let framed = [&FRAME, segment].concat();
                self.counters.segments_sent += 1;
                outcome.segments += 1;
                if self.counters.segments_sent.is_multiple_of(HELD_OF) {
                    self.seen.held.fetch_add(1, Ordering::Relaxed);
                    let until = Instant::now() + HELD_FOR;
                    self.held.push((until, message.destination, framed));
                } else {
                    self.put(message.destination, &framed);
                }
            }
        }
        outcome
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    fn remote_addr(&self) -> Option<SocketAddr> {
        self.remote
    }

    fn counters(&mut self) -> IoCounters {
        self.counters
    }

    fn overhead_bytes(&self) -> u16 {
        FRAME.len() as u16
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.held.iter().map(|(until, ..)| *until).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let (due, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|(until, ..)| *until <= now);
        self.held = held;
        for (_, destination, framed) in due {
            self.put(destination, &framed);
        }
    }
}

impl Carriers for Framed {
    fn listen(
        &self,
        listen: SocketAddr,
        count: usize,
        _: &SteerKey,
        _: &SocketOptions,
    ) -> io::Result<Vec<Box<dyn Carrier>>> {
        assert_eq!(count, 1, "the test asks for one shard");
        Ok(vec![FramedCarrier::boxed(
            UdpSocket::bind(listen)?,
            None,
            &self.0,
        )?])
    }

    fn connect(
        &self,
        _: Option<SocketAddr>,
        server: SocketAddr,
        _: &SocketOptions,
    ) -> io::Result<Box<dyn Carrier>> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        FramedCarrier::boxed(socket, Some(server), &self.0)
    }
}

/// Sends a payload until it comes back.
fn echo(socket: &UdpSocket, entrance: SocketAddr, payload: &[u8]) {
    let deadline = Instant::now() + LIMIT;
    let mut buffer = vec![0; 65_536];
    while Instant::now() < deadline {
        socket.send_to(payload, entrance).unwrap();
        if socket
            .recv(&mut buffer)
            .is_ok_and(|len| buffer[..len] == *payload)
        {
            return;
        }
    }
    panic!("{} bytes did not come back", payload.len());
}

#[test]
fn a_tunnel_works_over_any_carrier_and_heeds_its_overhead_timer_and_refusals() {
    let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = target.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((len, source)) = target.recv_from(&mut buffer) {
            let _ = target.send_to(&buffer[..len], source);
        }
    });
    let framed = Framed::default();
    let (config, pin) = server_config();
    let server = tunnel::server::start_over(config, &framed).unwrap();
    let listening = listening(&server);
    let local = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    local.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let entrance = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let config = ClientConfig {
        forwards: vec![Forward {
            protocol: Protocol::Udp,
            listen: entrance,
            host: Ipv4Addr::LOCALHOST.to_string(),
            port,
        }],
        ..client_config(listening, pin)
    };
    let carriers: Arc<dyn Carriers> = Arc::new(framed.clone());
    let client = tunnel::client::start_over(config, &carriers).unwrap();
    connected(&client);
    for size in [0, 1, 1_150, 40_000]
        .into_iter()
        .chain((0..200).map(|step| 100 + step))
    {
        echo(&local, entrance, &vec![7; size]);
    }
    // Path MTU discovery tries what the interface carries: 65,507 bytes of UDP payload, of which the frame takes eight.
    let deadline = Instant::now() + LIMIT;
    let unsplit = || client.controller().snapshot().unwrap().peers[0].payload_unsplit;
    while unsplit() < 60_000 {
        assert!(Instant::now() < deadline, "{} bytes unsplit", unsplit());
        std::thread::sleep(Duration::from_millis(20));
    }
    let Seen {
        unframed,
        held,
        refused_sends,
    } = &*framed.0;
    assert_eq!(unframed.load(Ordering::Relaxed), 0);
    assert_eq!(
        refused_sends.load(Ordering::Relaxed),
        0,
        "longer than a datagram can be"
    );
    assert!(held.load(Ordering::Relaxed) > 10);
    let counted = client.controller().snapshot().unwrap().outer_io;
    assert!(
        counted.segments_sent > 200 && counted.segments_received > 200,
        "{counted:?}"
    );

    drop(server);
    let reason = notice(&client, |notice| match notice {
        Notice::Reconnecting { reason } => Some(reason),
        _ => None,
    });
    assert!(!reason.is_empty());
    assert!(
        client
            .controller()
            .snapshot()
            .is_some_and(|snapshot| snapshot.state == "reconnecting")
    );
}
