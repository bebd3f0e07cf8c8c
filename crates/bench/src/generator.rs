//! The UDP generator: one connected socket per flow, GSO trains of equal datagrams, an offered rate or none.
//!
//! Each datagram carries [`Header`]. A number is used up when the kernel has taken the datagram, so numbers that
//! never arrive were lost on the way and not refused here.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet::{Ecn, TRAIN_SEGMENTS_MAX, UDP_PAYLOAD_MAX};
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, SocketOptions, UdpSocket};
use serde::{Deserialize, Serialize};
use testbed::usage::{self, Usage};

use crate::error::During;
use crate::pacer::Pacer;
use crate::payload::{HEADER_BYTES, Header, wall_nanoseconds};
use crate::sink::LiveReceived;
use crate::{Error, limits};

/// What to send.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GeneratorOptions {
    /// Where to.
    pub(crate) destination: SocketAddr,
    /// Bytes per datagram, 24 to 65,507.
    pub(crate) payload_bytes: usize,
    /// Flows, each with its own socket; 1 to [`limits::FLOWS_MAX`].
    pub(crate) flows: usize,
    /// Payload bits per second of all flows together; `None` is as fast as possible.
    pub(crate) offered_bits_per_second: Option<u64>,
    /// How long, in seconds.
    pub(crate) seconds: f64,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GeneratorReport {
    /// Datagrams that the kernel took.
    pub(crate) datagrams: u64,
    /// Their payload bytes.
    pub(crate) bytes: u64,
    /// Datagrams that the kernel refused.
    pub(crate) refused: u64,
    /// From the first to the last send.
    pub(crate) seconds: f64,
    /// Of the generator's process.
    pub(crate) usage: Usage,
}

/// Datagrams sent so far, for whoever watches.
#[derive(Debug, Default)]
pub(crate) struct LiveSent {
    /// Datagrams that the kernel took.
    pub(crate) datagrams: AtomicU64,
    /// Their payload bytes.
    pub(crate) bytes: AtomicU64,
}

/// A bound on datagrams under way, for a generator that shares its process with the sink.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    received: &'a LiveReceived,
    datagrams: u64,
    /// What was known to have ended at the last look, and when that last changed.
    ended: u64,
    changed: Instant,
    /// Datagrams given up: nothing ended for a while, so they will not come.
    given_up: u64,
}

impl<'a> Window<'a> {
    /// At most `datagrams` that have neither arrived nor are known to be lost.
    pub(crate) fn new(received: &'a LiveReceived, datagrams: u64) -> Self {
        Self {
            received,
            datagrams,
            ended: 0,
            changed: Instant::now(),
            given_up: 0,
        }
    }

    fn room(&mut self, sent: u64) -> usize {
        let live = self.received;
        let ended = live.datagrams.load(Ordering::Relaxed) + live.lost.load(Ordering::Relaxed);
        if ended != self.ended {
            (self.ended, self.changed) = (ended, Instant::now());
            // Those given up before are among the lost as soon as a later one arrives.
            self.given_up = 0;
        } else if self.changed.elapsed() > limits::WINDOW_PATIENCE {
            self.given_up = sent.saturating_sub(ended);
        }
        let under_way = sent.saturating_sub(ended + self.given_up);
        usize::try_from(self.datagrams.saturating_sub(under_way)).unwrap_or(usize::MAX)
    }
}

struct Flow {
    socket: UdpSocket,
    number: u32,
    sequence: u64,
    buffer: Vec<u8>,
}

struct Sent {
    segments: u64,
    refused: u64,
    blocked: bool,
}

/// Sends until the time is over or `stop` is set; with a `window`, only as fast as datagrams arrive.
///
/// # Errors
/// When sockets can't be made, options are out of range, or the datagrams are too large for the path.
pub(crate) fn generate(
    options: &GeneratorOptions,
    stop: &AtomicBool,
    live: &LiveSent,
    mut window: Option<Window<'_>>,
) -> Result<GeneratorReport, Error> {
    check(options)?;
    let mut poller = Poller::new().during(|| "make a poller".to_owned())?;
    let mut flows = (0..options.flows)
        .map(|number| Flow::open(options, number))
        .collect::<Result<Vec<_>, _>>()?;
    for (token, flow) in flows.iter().enumerate() {
        let nothing = Interest {
            readable: false,
            writable: false,
        };
        poller
            .add(&flow.socket, token as u64, nothing)
            .during(|| "watch a socket".to_owned())?;
    }
    let mut pacer = Pacer::new(options.offered_bits_per_second, options.payload_bytes);
    let segments_max = if options.offered_bits_per_second.is_some() && options.flows == 1 {
        limits::PACED_TRAIN_SEGMENTS
    } else {
        TRAIN_SEGMENTS_MAX
    };
    let train_max = segments_max.min(UDP_PAYLOAD_MAX / options.payload_bytes).max(1);
    let (start, length) = (Instant::now(), Duration::from_secs_f64(options.seconds));
    let mut report = GeneratorReport::default();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        let elapsed = start.elapsed();
        if elapsed >= length {
            break;
        }
        let room = window
            .as_mut()
            .map_or(usize::MAX, |window| window.room(report.datagrams));
        let due = pacer.due(elapsed).min(train_max).min(room);
        if room < train_max.min(pacer.due(elapsed)) {
            // A full train in a moment is worth more than a few datagrams at once.
            std::thread::sleep(limits::PACING_STEP);
            continue;
        }
        let worth = pacer.worth_sending().min(train_max);
        if due < worth {
            std::thread::sleep(pacer.wait(elapsed, worth).min(limits::STOP_CHECK));
            continue;
        }
        let flow = &mut flows[turn];
        let sent = flow.send(due, options)?;
        pacer.sent((sent.segments + sent.refused) as usize);
        report.datagrams += sent.segments;
        report.refused += sent.refused;
        live.datagrams.fetch_add(sent.segments, Ordering::Relaxed);
        live.bytes
            .fetch_add(sent.segments * options.payload_bytes as u64, Ordering::Relaxed);
        if sent.blocked {
            wait_writable(&mut poller, flow, turn as u64)?;
        }
        turn = (turn + 1) % options.flows;
    }
    report.bytes = report.datagrams * options.payload_bytes as u64;
    report.seconds = start.elapsed().as_secs_f64();
    report.usage = usage::usage(std::process::id());
    Ok(report)
}

fn check(options: &GeneratorOptions) -> Result<(), Error> {
    let payload = options.payload_bytes;
    if !(HEADER_BYTES..=UDP_PAYLOAD_MAX).contains(&payload) {
        return Err(Error::Usage(format!(
            "payload of {payload} bytes: give {HEADER_BYTES} to {UDP_PAYLOAD_MAX}"
        )));
    }
    if !(1..=limits::FLOWS_MAX).contains(&options.flows) {
        return Err(Error::Usage(format!(
            "{} flows: give 1 to {}",
            options.flows,
            limits::FLOWS_MAX
        )));
    }
    if !(0.0..=86_400.0).contains(&options.seconds) {
        return Err(Error::Usage(format!(
            "{} seconds: give 0 to 86400",
            options.seconds
        )));
    }
    Ok(())
}

fn wait_writable(poller: &mut Poller, flow: &Flow, token: u64) -> Result<(), Error> {
    let interest = |writable| Interest {
        readable: false,
        writable,
    };
    poller
        .modify(&flow.socket, token, interest(true))
        .during(|| "watch a socket".to_owned())?;
    poller
        .wait(&mut Vec::new(), Some(limits::STOP_CHECK))
        .during(|| "wait for a socket".to_owned())?;
    poller
        .modify(&flow.socket, token, interest(false))
        .during(|| "watch a socket".to_owned())
}

impl Flow {
    fn open(options: &GeneratorOptions, number: usize) -> Result<Self, Error> {
        let sockets = SocketOptions {
            receive_buffer_bytes: limits::LOAD_BUFFER_BYTES,
            send_buffer_bytes: limits::LOAD_BUFFER_BYTES,
            ..SocketOptions::default()
        };
        let socket = UdpSocket::connect(None, options.destination, &sockets)
            .during(|| format!("connect a UDP socket to {}", options.destination))?;
        let bytes =
            options.payload_bytes * (UDP_PAYLOAD_MAX / options.payload_bytes).clamp(1, TRAIN_SEGMENTS_MAX);
        Ok(Self {
            socket,
            number: number as u32,
            sequence: 0,
            buffer: vec![0; bytes],
        })
    }

    fn send(&mut self, datagrams: usize, options: &GeneratorOptions) -> Result<Sent, Error> {
        let payload = &mut self.buffer[..datagrams * options.payload_bytes];
        let sent_at = wall_nanoseconds();
        for (datagram, sequence) in payload
            .chunks_exact_mut(options.payload_bytes)
            .zip(self.sequence..)
        {
            Header {
                flow: self.number,
                sequence,
                sent_at,
            }
            .write(datagram);
        }
        let message = Outgoing {
            destination: None,
            source: None,
            ecn: Ecn::NotEct,
            segment_size: options.payload_bytes,
            payload,
        };
        let outcome = self
            .socket
            .send(&[message])
            .during(|| format!("send to {}", options.destination))?;
        if outcome.dropped.too_large > 0 {
            let (payload, destination) = (options.payload_bytes, options.destination);
            return Err(Error::Usage(format!(
                "datagrams of {payload} bytes are too large for the path to {destination}"
            )));
        }
        self.sequence += outcome.segments;
        let dropped = outcome.dropped;
        let refused = dropped.refused + dropped.unreachable + dropped.other;
        Ok(Sent {
            segments: outcome.segments,
            refused,
            blocked: outcome.blocked,
        })
    }
}
