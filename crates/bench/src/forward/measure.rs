//! One run of one load over one path.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use testbed::iperf::{self, IperfMode, IperfRun, IperfServer};
use testbed::place::Place;
use testbed::port::free_address;
use testbed::usage::{self, Usage};

use super::Options;
use super::cases::{Case, Generator, Load, Payload};
use crate::children::Load as LoadProcess;
use crate::flood::Flood;
use crate::flow::{self, FlowPlan, FlowReport};
use crate::latency::{self, EchoReport};
use crate::relay::RelayOptions;
use crate::sink::{SinkOptions, SinkReport};
use crate::tunnel::{End, Tunnel};
use crate::{Error, Programs, hidden, limits};

/// Echoes of a full run; a quick one has a quarter.
const ECHO_ROUNDS: u64 = 2_000;

/// Calls beside a flood: enough that each shard has one.
const CALLS: usize = 4;

/// Their datagrams per second, and bytes of each.
const CALL_PER_SECOND: f64 = 100.0;
const CALL_BYTES: usize = 200;

/// How long they have run when they count: the flood has begun.
const CALL_WARM_UP: Duration = Duration::from_millis(800);

/// Bytes of the flood's datagrams.
const FLOOD_PAYLOAD_BYTES: usize = 1_150;

/// The ways from generator to sink, in the order of each round.
pub(super) const PATHS: [Path; 3] = [Path::Direct, Path::Relay, Path::Gramway];

/// A way from generator to sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// Nothing between.
    Direct,
    /// Two hops of plaintext relay.
    Relay,
    /// The tunnel.
    Gramway,
}

/// What one run gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measurement {
    /// Payload bits per second that left the generator.
    pub(super) sender_bits_per_second: f64,
    /// Payload bits per second that reached the sink.
    pub(super) receiver_bits_per_second: f64,
    /// Lost fraction of the datagrams, 0 to 1.
    pub(super) loss: f64,
    /// Datagrams sent.
    pub(super) datagrams: u64,
    /// Datagrams that came after a later one; our own sink only.
    pub(super) reordered: u64,
    /// Datagrams that came twice; our own sink only.
    pub(super) duplicates: u64,
    /// Payload bytes that reached the sink.
    pub(super) received_bytes: f64,
    /// How long, in seconds.
    pub(super) seconds: f64,
    /// CPU seconds per gigabyte delivered: generator, sink.
    pub(super) load_cpu_per_gigabyte: [f64; 2],
    /// CPU seconds per gigabyte delivered: the two hops between, client side first.
    pub(super) hop_cpu_per_gigabyte: [f64; 2],
    /// Cores that each hop used, client side first.
    pub(super) hop_cores: [f64; 2],
    /// Cores of the machine that were busy.
    pub(super) busy_cores: f64,
    /// Datagrams that the kernel dropped for full receive buffers, anywhere on this machine.
    pub(super) kernel_drops: u64,
    /// Client and server: counters of this run, CPU, peak memory.
    pub(super) ends: Option<[End; 2]>,
    /// Round-trip times.
    pub(super) echo: Option<EchoReport>,
    /// Of several calls, the least delivered and the longest times.
    pub(super) worst_call: Option<FlowReport>,
}

/// The programs of one case, and its settings.
pub(super) struct Rig {
    programs: Programs,
    load: Load,
    seconds: u32,
    echo_rounds: u64,
    payload_bytes: Option<usize>,
    target: SocketAddr,
    relay_entrance: SocketAddr,
    relays: [LoadProcess; 2],
    calls: Vec<Call>,
    tunnel: Tunnel,
}

/// Where a call leads, and its own way through the relay.
struct Call {
    target: SocketAddr,
    relay_entrance: SocketAddr,
    _relays: [LoadProcess; 2],
}

impl Rig {
    /// Starts tunnel and relay.
    pub(super) fn start(
        programs: &Programs,
        options: &Options,
        case: &Case,
        seconds: u32,
    ) -> Result<Self, Error> {
        let (programs, load) = (programs.clone(), case.load);
        let target = free_address()?;
        let (relays, relay_entrance) = start_relay(&programs, target)?;
        let calls = if load == Load::Calls { CALLS } else { 0 };
        let calls = (0..calls).map(|_| Call::new(&programs));
        let calls = calls.collect::<Result<Vec<Call>, Error>>()?;
        let targets: Vec<SocketAddr> = std::iter::once(target)
            .chain(calls.iter().map(|call| call.target))
            .collect();
        let mut tunnel = Tunnel::start(&programs, &options.tunnel, &targets)?;
        let payload_bytes = match load {
            Load::Udp {
                payload: Payload::Bytes(bytes),
                ..
            } => Some(bytes),
            Load::Udp {
                payload: Payload::Largest,
                ..
            } => Some(tunnel.payload_unsplit()?),
            Load::Calls => Some(FLOOD_PAYLOAD_BYTES),
            Load::Tcp { .. } | Load::Echo => None,
        };
        let echo_rounds = if options.matrix.quick {
            ECHO_ROUNDS / 4
        } else {
            ECHO_ROUNDS
        };
        Ok(Self {
            programs,
            load,
            seconds,
            echo_rounds,
            payload_bytes,
            target,
            relay_entrance,
            relays,
            calls,
            tunnel,
        })
    }

    /// Bytes per datagram, for UDP.
    pub(super) fn payload_bytes(&self) -> Option<usize> {
        self.payload_bytes
    }

    /// One run over one path.
    pub(super) fn run(&mut self, path: Path) -> Result<Measurement, Error> {
        let (hops_before, ends_before) = (self.hop_usage(path)?, self.ends(path)?);
        if path == Path::Gramway {
            self.tunnel.reset_peaks();
        }
        let (drops, busy, start) = (
            usage::receive_buffer_errors(),
            usage::machine_busy_seconds(),
            std::time::Instant::now(),
        );
        let entrance = match path {
            Path::Direct => self.target,
            Path::Relay => self.relay_entrance,
            Path::Gramway => self.tunnel.entrance(),
        };
        let mut measured = match self.load {
            Load::Udp {
                generator: Generator::Own,
                offered,
                flows,
                stock_buffers,
                ..
            } => self.run_own(entrance, offered, flows, stock_buffers)?,
            Load::Udp {
                offered,
                flows,
                stock_buffers,
                ..
            } => {
                let payload_bytes = self.payload_bytes.expect("a UDP case has a payload size");
                let mode = IperfMode::Udp {
                    reverse: false,
                    payload_bytes,
                    offered_bits_per_second: offered,
                };
                self.run_iperf(entrance, flows, !stock_buffers, mode)?
            }
            Load::Tcp { streams, reverse } => {
                self.run_iperf(entrance, streams, true, IperfMode::Tcp { reverse })?
            }
            Load::Echo => self.run_echo(entrance)?,
            Load::Calls => self.run_calls(path, entrance)?,
        };
        let elapsed = start.elapsed().as_secs_f64();
        measured.busy_cores = (usage::machine_busy_seconds() - busy) / elapsed;
        measured.kernel_drops = usage::receive_buffer_errors().saturating_sub(drops);
        let gigabytes = (measured.received_bytes / 1e9).max(1e-9);
        let hops_after = self.hop_usage(path)?;
        for (index, (after, before)) in hops_after.iter().zip(&hops_before).enumerate() {
            let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
            measured.hop_cpu_per_gigabyte[index] = cpu_seconds / gigabytes;
            measured.hop_cores[index] = cpu_seconds / measured.seconds.max(1e-9);
        }
        measured.ends = match (self.ends(path)?, ends_before) {
            (Some([client, server]), Some(before)) => {
                Some([client.since(&before[0]), server.since(&before[1])])
            }
            _ => None,
        };
        Ok(measured)
    }

    fn ends(&mut self, path: Path) -> Result<Option<[End; 2]>, Error> {
        (path == Path::Gramway).then(|| self.tunnel.ends()).transpose()
    }

    /// CPU and memory of the two processes between, client side first.
    fn hop_usage(&mut self, path: Path) -> Result<[Usage; 2], Error> {
        Ok(match path {
            Path::Direct => [Usage::default(); 2],
            Path::Relay => self.relays.each_ref().map(|relay| usage::usage(relay.pid())),
            Path::Gramway => self.tunnel.usage(),
        })
    }

    fn run_own(
        &self,
        destination: SocketAddr,
        offered: Option<u64>,
        flows: usize,
        stock_buffers: bool,
    ) -> Result<Measurement, Error> {
        let flood = Flood {
            entrance: destination,
            target: self.target,
            payload_bytes: self.payload_bytes.expect("a UDP case has a payload size"),
            flows,
            offered_bits_per_second: offered,
            seconds: self.seconds,
            receive_buffer_bytes: (!stock_buffers).then_some(limits::LOAD_BUFFER_BYTES),
        };
        let flooded = flood.run(&self.programs, [&Place::Host; 2])?;
        let (sent, received) = (&flooded.sent, &flooded.received);
        let gigabytes = (received.bytes as f64 / 1e9).max(1e-9);
        Ok(Measurement {
            sender_bits_per_second: flooded.sender_bits_per_second(),
            receiver_bits_per_second: flooded.receiver_bits_per_second(),
            loss: flooded.loss(),
            datagrams: sent.datagrams,
            reordered: received.total.reordered,
            duplicates: received.total.duplicates,
            received_bytes: received.bytes as f64,
            seconds: sent.seconds,
            load_cpu_per_gigabyte: [
                sent.usage.cpu_seconds / gigabytes,
                received.usage.cpu_seconds / gigabytes,
            ],
            ..Measurement::default()
        })
    }

    /// Calls beside a flood that enters at `entrance`.
    fn run_calls(&self, path: Path, entrance: SocketAddr) -> Result<Measurement, Error> {
        let plan = FlowPlan {
            is_up: true,
            payload_bytes: CALL_BYTES,
            per_second: CALL_PER_SECOND,
            warm_up: CALL_WARM_UP,
            duration: Duration::from_secs(u64::from(self.seconds)).saturating_sub(CALL_WARM_UP),
            round_trip: Duration::ZERO,
        };
        let tunnel = &self.tunnel.entrances()[1..];
        std::thread::scope(|scope| {
            let plan = &plan;
            let calls = self.calls.iter().zip(tunnel).map(|(call, tunnel)| {
                let entrance = match path {
                    Path::Direct => call.target,
                    Path::Relay => call.relay_entrance,
                    Path::Gramway => *tunnel,
                };
                scope.spawn(move || flow::run([&Place::Host; 2], entrance, call.target, plan))
            });
            let calls: Vec<_> = calls.collect();
            let mut flood = self.run_own(entrance, None, 1, false)?;
            let reports = calls.into_iter().map(|call| {
                call.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let reports = reports.collect::<Result<Vec<FlowReport>, Error>>()?;
            flood.worst_call = reports.into_iter().reduce(FlowReport::worst);
            Ok(flood)
        })
    }

    fn run_iperf(
        &self,
        address: SocketAddr,
        streams: usize,
        large_buffers: bool,
        mode: IperfMode,
    ) -> Result<Measurement, Error> {
        let _server = IperfServer::start(&Place::Host, self.target)?;
        let run = IperfRun {
            streams,
            large_buffers,
            mode,
            ..IperfRun::tcp(address, self.seconds)
        };
        let result = iperf::run(&Place::Host, &run)?;
        let gigabytes = (result.received_bytes / 1e9).max(1e-9);
        Ok(Measurement {
            sender_bits_per_second: result.sender_bits_per_second,
            receiver_bits_per_second: result.receiver_bits_per_second,
            loss: result.loss,
            datagrams: result.datagrams,
            received_bytes: result.received_bytes,
            seconds: result.seconds,
            load_cpu_per_gigabyte: [
                result.sender_cpu_seconds / gigabytes,
                result.receiver_cpu_seconds / gigabytes,
            ],
            ..Measurement::default()
        })
    }

    fn run_echo(&self, destination: SocketAddr) -> Result<Measurement, Error> {
        let sink = SinkOptions {
            listen: self.target,
            echo: true,
            receive_buffer_bytes: None,
        };
        let (sink, _) = LoadProcess::start(&self.programs, hidden::SINK, &sink)?;
        let start = std::time::Instant::now();
        let echo = latency::measure(destination, self.echo_rounds)?;
        let received: SinkReport = sink.finish()?;
        let loss = echo.lost as f64 / echo.rounds.max(1) as f64;
        let (received_bytes, seconds) = (received.bytes as f64, start.elapsed().as_secs_f64());
        Ok(Measurement {
            loss,
            datagrams: echo.rounds,
            received_bytes,
            seconds,
            echo: Some(echo),
            ..Default::default()
        })
    }
}

impl Call {
    fn new(programs: &Programs) -> Result<Self, Error> {
        let target = free_address()?;
        let (relays, relay_entrance) = start_relay(programs, target)?;
        Ok(Self {
            target,
            relay_entrance,
            _relays: relays,
        })
    }
}

/// Two hops to `target`, and where they begin.
fn start_relay(programs: &Programs, target: SocketAddr) -> Result<([LoadProcess; 2], SocketAddr), Error> {
    let hop = |target| {
        let listen = free_address()?;
        LoadProcess::start(programs, hidden::RELAY, &RelayOptions { listen, target })
    };
    let (second, between) = hop(target)?;
    let (first, entrance) = hop(between)?;
    Ok(([first, second], entrance))
}
