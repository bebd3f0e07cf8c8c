//! The UDP sink: receives coalesced datagrams, keeps the books of each flow, and may send everything back.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use packet::Ecn;
use packet_io::{
    DatagramSocket, Interest, Outgoing, Poller, ReceiveBatch, Received, SocketOptions, UdpSocket,
};
use serde::{Deserialize, Serialize};
use testbed::usage::{self, Usage};

use crate::error::During;
use crate::payload::{Header, wall_nanoseconds};
use crate::tracker::{FlowCounts, Tracker};
use crate::{Error, limits};

/// After the stop flag the sink goes on until nothing came for so long: what is still under way counts.
const QUIET_AFTER_STOP: Duration = Duration::from_millis(150);

/// And at most for so long, because an echo of strangers could go on for ever.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Where and how to receive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SinkOptions {
    /// Address; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
    /// Send each datagram back to where it came from.
    pub(crate) echo: bool,
    /// Receive buffer asked for, in bytes; `None` leaves the system's default.
    pub(crate) receive_buffer_bytes: Option<usize>,
}

/// What was received.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SinkReport {
    /// Sum over the flows.
    pub(crate) total: FlowCounts,
    /// Each flow.
    pub(crate) flows: Vec<FlowCounts>,
    /// Payload bytes of all datagrams, duplicates included.
    pub(crate) bytes: u64,
    /// Datagrams that the generator did not make.
    pub(crate) foreign: u64,
    /// Datagrams that the kernel dropped because the sink's buffer was full.
    pub(crate) kernel_drops: u64,
    /// From the first to the last datagram.
    pub(crate) seconds: f64,
    /// Mean time from generator to sink, in microseconds.
    pub(crate) delay_mean_us: f64,
    /// Longest time from generator to sink, in microseconds.
    pub(crate) delay_max_us: f64,
    /// Of the sink's process.
    pub(crate) usage: Usage,
}

/// What was received so far, for whoever watches.
#[derive(Debug, Default)]
pub(crate) struct LiveReceived {
    /// Datagrams, duplicates included.
    pub(crate) datagrams: AtomicU64,
    /// Their payload bytes.
    pub(crate) bytes: AtomicU64,
    /// Numbers that are missing.
    pub(crate) lost: AtomicU64,
}

/// A bound sink.
pub(crate) struct Sink {
    socket: UdpSocket,
    address: SocketAddr,
    echo: bool,
    books: Books,
}

#[derive(Debug, Default)]
struct Books {
    trackers: Vec<Tracker>,
    datagrams: u64,
    bytes: u64,
    foreign: u64,
    delay_sum_us: f64,
    delay_samples: u64,
    delay_max_us: f64,
    span: Option<(Instant, Instant)>,
}

impl Sink {
    /// Binds the socket.
    ///
    /// # Errors
    /// When the address is taken.
    pub(crate) fn bind(options: &SinkOptions) -> Result<Self, Error> {
        let sockets = SocketOptions {
            receive_buffer_bytes: options.receive_buffer_bytes.unwrap_or(0),
            send_buffer_bytes: limits::LOAD_BUFFER_BYTES,
            ..SocketOptions::default()
        };
        let action = || format!("bind a UDP sink to {}", options.listen);
        let socket = UdpSocket::bind(options.listen, &sockets).during(action)?;
        let address = socket.local_addr().during(action)?;
        Ok(Self {
            socket,
            address,
            echo: options.echo,
            books: Books::default(),
        })
    }

    /// The address that was bound.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receives until `stop` is set and nothing is under way any more.
    ///
    /// # Errors
    /// When the socket breaks.
    pub(crate) fn run(mut self, stop: &AtomicBool, live: &LiveReceived) -> Result<SinkReport, Error> {
        let mut poller = Poller::new().during(|| "make a poller".to_owned())?;
        let interest = Interest {
            readable: true,
            writable: false,
        };
        poller
            .add(&self.socket, 0, interest)
            .during(|| "watch a socket".to_owned())?;
        let mut batch = ReceiveBatch::new(limits::RECEIVE_SLOTS, limits::RECEIVE_SLOT_BYTES);
        let mut ready = Vec::new();
        let (mut stopped_at, mut last) = (None, Instant::now());
        loop {
            ready.clear();
            poller
                .wait(&mut ready, Some(limits::STOP_CHECK))
                .during(|| "wait for a socket".to_owned())?;
            while self.receive(&mut batch)? > 0 {
                last = Instant::now();
                self.books.publish(live);
                if stopped_at.is_some_and(|at: Instant| at.elapsed() > DRAIN_MAX) {
                    break;
                }
            }
            if stop.load(Ordering::Relaxed) {
                let since = *stopped_at.get_or_insert_with(Instant::now);
                if last.max(since).elapsed() > QUIET_AFTER_STOP || since.elapsed() > DRAIN_MAX {
                    let kernel_drops = self.socket.stats().kernel_drops;
                    return Ok(self.books.report(kernel_drops));
                }
            }
        }
    }

    fn receive(&mut self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
        let count = self
            .socket
            .receive(batch)
            .during(|| format!("receive on {}", self.address))?;
        let (now, wall) = (Instant::now(), wall_nanoseconds());
        for index in 0..count {
            self.books.record(batch.get(index), now, wall);
        }
        if self.echo {
            let answers: Vec<Outgoing<'_>> = (0..count).map(|index| echo_of(batch.get(index))).collect();
            // A full send buffer drops the echo, as the network would; the waiting side counts it.
            self.socket
                .send(&answers)
                .during(|| format!("echo from {}", self.address))?;
        }
        Ok(count)
    }
}

fn echo_of(received: Received<'_>) -> Outgoing<'_> {
    Outgoing {
        destination: Some(received.meta.source),
        source: None,
        ecn: Ecn::NotEct,
        segment_size: received.meta.segment_size,
        payload: received.payload,
    }
}

impl Books {
    fn record(&mut self, received: Received<'_>, now: Instant, wall: u64) {
        let mut first = true;
        for segment in received.segments() {
            let Some(header) =
                Header::read(segment).filter(|header| (header.flow as usize) < limits::FLOWS_MAX)
            else {
                self.foreign += 1;
                continue;
            };
            let flow = header.flow as usize;
            if flow >= self.trackers.len() {
                self.trackers.resize_with(flow + 1, Tracker::default);
            }
            self.trackers[flow].record(header.sequence);
            self.datagrams += 1;
            self.bytes += segment.len() as u64;
            if first {
                let delay_us = wall.saturating_sub(header.sent_at) as f64 / 1e3;
                self.delay_sum_us += delay_us;
                self.delay_max_us = self.delay_max_us.max(delay_us);
                self.delay_samples += 1;
                first = false;
            }
        }
        let begin = self.span.map_or(now, |(begin, _)| begin);
        self.span = Some((begin, now));
    }

    fn total(&self) -> FlowCounts {
        let mut total = FlowCounts::default();
        self.trackers.iter().for_each(|tracker| total += tracker.counts());
        total
    }

    fn publish(&self, live: &LiveReceived) {
        live.datagrams.store(self.datagrams, Ordering::Relaxed);
        live.bytes.store(self.bytes, Ordering::Relaxed);
        live.lost.store(self.total().lost, Ordering::Relaxed);
    }

    fn report(&self, kernel_drops: u64) -> SinkReport {
        SinkReport {
            total: self.total(),
            flows: self.trackers.iter().map(Tracker::counts).collect(),
            bytes: self.bytes,
            foreign: self.foreign,
            kernel_drops,
            seconds: self.span.map_or(0.0, |(begin, end)| (end - begin).as_secs_f64()),
            delay_mean_us: self.delay_sum_us / self.delay_samples.max(1) as f64,
            delay_max_us: self.delay_max_us,
            usage: usage::usage(std::process::id()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::{GeneratorOptions, LiveSent, generate};

    fn loopback_sink(echo: bool) -> Sink {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let receive_buffer_bytes = Some(limits::LOAD_BUFFER_BYTES);
        Sink::bind(&SinkOptions {
            listen,
            echo,
            receive_buffer_bytes,
        })
        .unwrap()
    }

    #[test]
    fn what_the_generator_sent_is_received_or_lost() {
        let sink = loopback_sink(false);
        let options = GeneratorOptions {
            destination: sink.address(),
            payload_bytes: 1_150,
            flows: 3,
            offered_bits_per_second: Some(50_000_000),
            seconds: 0.2,
        };
        let (stop, live) = (AtomicBool::new(false), LiveReceived::default());
        let (sent, report) = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| sink.run(&stop, &live));
            let sent = generate(&options, &AtomicBool::new(false), &LiveSent::default(), None);
            stop.store(true, Ordering::Relaxed);
            (sent.unwrap(), receiver.join().unwrap().unwrap())
        });
        assert!(sent.datagrams > 0);
        assert_eq!(report.flows.len(), 3);
        assert_eq!(
            (report.foreign, report.total.duplicates, report.total.reordered),
            (0, 0, 0)
        );
        assert!(report.total.received > 0 && report.total.received + report.total.lost <= sent.datagrams);
        assert_eq!(report.bytes, report.total.received * 1_150);
    }

    #[test]
    fn an_echo_comes_back_from_the_sink() {
        let sink = loopback_sink(true);
        let address = sink.address();
        let (stop, live) = (AtomicBool::new(false), LiveReceived::default());
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| sink.run(&stop, &live));
            let echoes = crate::latency::measure(address, 5);
            stop.store(true, Ordering::Relaxed);
            receiver.join().unwrap().unwrap();
            let echoes = echoes.unwrap();
            assert_eq!((echoes.rounds, echoes.lost), (5, 0));
            assert!(echoes.p50_us > 0.0 && echoes.p99_us >= echoes.p50_us);
        });
    }
}
