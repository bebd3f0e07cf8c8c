//! One case: its network, its tunnels, and one run of its load through one of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use testbed::iperf::{self, IperfMode, IperfResult, IperfRun, IperfServer};
use testbed::usage;

use super::calls;
use super::cases::{CUBIC, Case, Load};
use super::contestant::{Contestant, Installed, Running};
use super::ping::{self, PingReport};
use crate::counters::Counters;
use crate::emulator::EmulatorReport;
use crate::flow::FlowReport;
use crate::network::Network;
use crate::{Error, Programs};

/// iperf3's port.
const PORT: u16 = 5_201;

/// How long TCP fills the line before pings beside it count, in seconds.
const FILL_SECONDS: u32 = 2;

/// What one run gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measurement {
    /// Payload bits per second that left the sender.
    pub(super) sender_bits_per_second: f64,
    /// Payload bits per second that arrived.
    pub(super) receiver_bits_per_second: f64,
    /// Lost fraction of the datagrams, 0 to 1; UDP only.
    pub(super) loss: f64,
    /// Payload bytes that arrived.
    pub(super) received_bytes: f64,
    /// How long, in seconds.
    pub(super) seconds: f64,
    /// CPU seconds per gigabyte delivered: sending and receiving iperf3.
    pub(super) load_cpu_per_gigabyte: [f64; 2],
    /// CPU seconds per gigabyte delivered: the tunnel's client and server process.
    pub(super) tunnel_cpu_per_gigabyte: [f64; 2],
    /// CPU seconds per gigabyte delivered: all cores of the machine, kernel threads included.
    pub(super) machine_cpu_per_gigabyte: f64,
    /// Largest resident size of the tunnel's client and server process during the run, in bytes.
    pub(super) peak_bytes: [u64; 2],
    /// Pings before and beside the load.
    pub(super) pings: Option<[PingReport; 2]>,
    /// Of several calls beside the load, the least delivered and the longest times.
    pub(super) worst_call: Option<FlowReport>,
    /// What gramway's client and server counted during the run.
    pub(super) counters: Option<[Counters; 2]>,
}

/// A network with all tunnels that could be started.
pub(super) struct Rig {
    programs: Programs,
    load: Load,
    seconds: u32,
    tunnels: Vec<Running>,
    network: Network,
}

impl Rig {
    /// Builds the network and starts the contestants; gives those that did not start with their reasons.
    ///
    /// # Errors
    /// When there is no network.
    pub(super) fn start(
        programs: &Programs,
        case: &Case,
        seconds: u32,
        installed: &[Installed],
    ) -> Result<(Self, Vec<(Contestant, Error)>), Error> {
        let network = Network::build(programs, case.link)?;
        let (mut tunnels, mut failed) = (Vec::new(), Vec::new());
        for contestant in installed {
            match contestant.start(programs, &network) {
                Ok(running) => tunnels.push(running),
                Err(error) => failed.push((contestant.contestant, error)),
            }
        }
        let rig = Self {
            programs: programs.clone(),
            load: case.load,
            seconds,
            tunnels,
            network,
        };
        Ok((rig, failed))
    }

    /// Who runs.
    pub(super) fn contestants(&self) -> Vec<Contestant> {
        self.tunnels.iter().map(|tunnel| tunnel.contestant).collect()
    }

    /// One run through one of the tunnels.
    ///
    /// # Errors
    /// When the tunnel does not run, or the load can't.
    pub(super) fn run(&self, contestant: Contestant) -> Result<Measurement, Error> {
        let tunnel = self.tunnels.iter().find(|tunnel| tunnel.contestant == contestant);
        let tunnel = tunnel.ok_or_else(|| Error::Setup(format!("{} does not run", contestant.name())))?;
        let client = &self.network.client;
        let idle = match self.load {
            Load::Ping => Some(ping::measure(client, tunnel.address, self.seconds)?),
            Load::Tcp { .. } | Load::Udp { .. } | Load::Calls { .. } => None,
        };
        tunnel.reset_peaks();
        let (usage, counters, busy) = (
            tunnel.usage(),
            tunnel.counters(&self.programs),
            usage::machine_busy_seconds(),
        );
        let (result, beside, worst_call) = self.load(tunnel.address)?;
        let gigabytes = (result.received_bytes / 1e9).max(1e-9);
        let after = tunnel.usage();
        let cpu = |end: usize| (after[end].cpu_seconds - usage[end].cpu_seconds) / gigabytes;
        let since = |before: [Counters; 2], after: [Counters; 2]| {
            [after[0].since(&before[0]), after[1].since(&before[1])]
        };
        Ok(Measurement {
            sender_bits_per_second: result.sender_bits_per_second,
            receiver_bits_per_second: result.receiver_bits_per_second,
            loss: result.loss,
            received_bytes: result.received_bytes,
            seconds: result.seconds,
            load_cpu_per_gigabyte: [result.sender_cpu_seconds, result.receiver_cpu_seconds]
                .map(|seconds| seconds / gigabytes),
            tunnel_cpu_per_gigabyte: [cpu(0), cpu(1)],
            machine_cpu_per_gigabyte: (usage::machine_busy_seconds() - busy) / gigabytes,
            peak_bytes: after.map(|end| end.peak_bytes),
            pings: idle.zip(beside).map(|(idle, beside)| [idle, beside]),
            worst_call,
            counters: counters
                .zip(tunnel.counters(&self.programs))
                .map(|(before, after)| since(before, after)),
        })
    }

    /// Ends everything and gives what the emulated link counted, where there was one.
    ///
    /// # Errors
    /// When the emulator has died.
    pub(super) fn finish(self) -> Result<Option<EmulatorReport>, Error> {
        drop(self.tunnels);
        self.network.finish()
    }

    /// The load towards the server's `address`, with what was measured beside it. TCP's buffers grow by themselves;
    /// UDP's have to be asked for.
    fn load(
        &self,
        address: Ipv4Addr,
    ) -> Result<(IperfResult, Option<PingReport>, Option<FlowReport>), Error> {
        let (network, server) = (&self.network, SocketAddr::from((address, PORT)));
        let tcp = IperfRun {
            congestion: Some(CUBIC),
            ..IperfRun::tcp(server, self.seconds)
        };
        let run = match self.load {
            Load::Calls {
                payload_bytes,
                reverse,
            } => {
                let sizes = [payload_bytes, self.seconds];
                let (flood, worst) = calls::measure(&self.programs, network, address, reverse, sizes)?;
                return Ok((flood, None, Some(worst)));
            }
            Load::Tcp {
                congestion,
                streams,
                reverse,
            } => IperfRun {
                streams,
                congestion: Some(congestion),
                mode: IperfMode::Tcp { reverse },
                ..tcp
            },
            Load::Udp {
                payload_bytes,
                offered,
            } => IperfRun {
                large_buffers: true,
                ..IperfRun::udp(server, self.seconds, payload_bytes, offered)
            },
            Load::Ping => IperfRun {
                seconds: self.seconds + FILL_SECONDS + 1,
                ..tcp
            },
        };
        let _server = IperfServer::start(&network.server.place(), server)?;
        if self.load == Load::Ping {
            let (result, ping) = self.ping_beside(&run, address)?;
            return Ok((result, Some(ping), None));
        }
        Ok((iperf::run(&network.client.place(), &run)?, None, None))
    }

    fn ping_beside(&self, load: &IperfRun, address: Ipv4Addr) -> Result<(IperfResult, PingReport), Error> {
        let client = &self.network.client;
        std::thread::scope(|scope| {
            let load = scope.spawn(|| iperf::run(&client.place(), load));
            std::thread::sleep(Duration::from_secs(u64::from(FILL_SECONDS)));
            let ping = ping::measure(client, address, self.seconds);
            let result = load
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((result?, ping?))
        })
    }
}
