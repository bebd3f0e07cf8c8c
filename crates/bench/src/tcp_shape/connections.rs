//! New connections: datagrams from many addresses of the client's machine, each of which opens one, and their answers.
//! How many are complete a second, and what each costs both ends in memory.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use packet_io::{DatagramSocket, Interest, Outgoing, Poller, ReceiveBatch, SocketOptions, UdpSocket};
use serde::Serialize;

use super::contestant::{Running, TARGET};
use crate::children::Load;
use crate::error::During;
use crate::network::Network;
use crate::payload::{HEADER_BYTES, Header, wall_nanoseconds};
use crate::sink::{SinkOptions, SinkReport};
use crate::{Error, Programs, hidden, limits};

/// Connections before those that count: what both ends allocate once is there then.
const WARM_UPS: u32 = 256;

/// Connections that count.
const CONNECTIONS: u32 = 4_096;

/// Datagrams that wait for their answer at a time.
const WINDOW: u32 = 64;

/// When nothing has come for so long, the rest is lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ConnectionsReport {
    /// Answers a second.
    pub(super) per_second: f64,
    /// First datagrams without an answer.
    pub(super) lost: u32,
    /// By how much a connection made the memory of the client's and the server's process grow, in bytes.
    pub(super) bytes_each: [f64; 2],
}

/// Opens them, one datagram each.
///
/// # Errors
/// When the answering server does not start, or sockets break.
pub(super) fn measure(
    programs: &Programs,
    running: &Running,
    network: &Network,
) -> Result<ConnectionsReport, Error> {
    let sink = SinkOptions {
        listen: TARGET,
        echo: true,
        receive_buffer_bytes: Some(limits::LOAD_BUFFER_BYTES),
    };
    let sink = network.server.wrap(&programs.load_with(hidden::SINK, &sink)?);
    let (sink, _) = Load::launch::<SocketAddr>(hidden::SINK, sink)?;
    let mut opener = network.client.inside(|| Opener::new(running.entrance))?;
    opener.open(0..WARM_UPS)?;
    running.reset_peaks();
    let (before, start) = (running.usage(), Instant::now());
    let answered = opener.open(WARM_UPS..WARM_UPS + CONNECTIONS)?;
    let (seconds, after) = ((answered.last - start).as_secs_f64(), running.usage());
    let _: SinkReport = sink.finish()?;
    let grown = |end: usize| after[end].peak_bytes.saturating_sub(before[end].peak_bytes) as f64;
    Ok(ConnectionsReport {
        per_second: f64::from(answered.count) / seconds.max(1e-9),
        lost: CONNECTIONS - answered.count,
        bytes_each: [0, 1].map(|end| grown(end) / f64::from(answered.count.max(1))),
    })
}

/// Sends from many addresses by one socket.
struct Opener {
    socket: UdpSocket,
    entrance: SocketAddr,
    poller: Poller,
    batch: ReceiveBatch,
}

struct Answered {
    count: u32,
    last: Instant,
}

impl Opener {
    fn new(entrance: SocketAddr) -> Result<Self, Error> {
        let action = || "open a socket for new connections".to_owned();
        let options = SocketOptions {
            receive_buffer_bytes: limits::LOAD_BUFFER_BYTES,
            ..SocketOptions::default()
        };
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), &options).during(action)?;
        let poller = Poller::new().during(action)?;
        poller.add(&socket, 0, Interest::READABLE).during(action)?;
        Ok(Self {
            socket,
            entrance,
            poller,
            batch: ReceiveBatch::new(limits::RECEIVE_SLOTS, limits::RECEIVE_SLOT_BYTES),
        })
    }

    /// A datagram from each of the addresses with these numbers, [`WINDOW`] at a time; what was answered.
    fn open(&mut self, numbers: std::ops::Range<u32>) -> Result<Answered, Error> {
        let all = numbers.len() as u32;
        let (mut numbers, mut sent, mut ready) = (numbers, 0, Vec::new());
        let mut answered = Answered {
            count: 0,
            last: Instant::now(),
        };
        while answered.count < all {
            while sent < answered.count + WINDOW
                && let Some(number) = numbers.next()
            {
                self.send(number)?;
                sent += 1;
            }
            ready.clear();
            let action = || "wait for answers".to_owned();
            self.poller.wait(&mut ready, Some(PATIENCE)).during(action)?;
            if ready.is_empty() {
                break;
            }
            loop {
                if self.socket.receive(&mut self.batch).during(action)? == 0 {
                    break;
                }
                answered.count += self
                    .batch
                    .iter()
                    .map(|answer| answer.meta.segments() as u32)
                    .sum::<u32>();
                answered.last = Instant::now();
            }
        }
        Ok(answered)
    }

    fn send(&mut self, number: u32) -> Result<(), Error> {
        let mut datagram = [0; HEADER_BYTES];
        let header = Header {
            flow: 0,
            sequence: number.into(),
            sent_at: wall_nanoseconds(),
        };
        header.write(&mut datagram);
        let first = u32::from(Ipv4Addr::new(127, 1, 0, 1));
        let message = Outgoing {
            source: Some(IpAddr::V4(Ipv4Addr::from(first + number))),
            ..Outgoing::to(self.entrance, &datagram, 0)
        };
        self.socket
            .send(&[message])
            .map(drop)
            .during(|| "send the first datagram of a connection".to_owned())
    }
}
