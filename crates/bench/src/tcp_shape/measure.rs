//! One contestant on its own wire, and one run of a load through it.

use std::net::SocketAddr;

use serde::Serialize;
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::usage;

use super::cases::Load;
use super::connections::{self, ConnectionsReport};
use super::contestant::{Contestant, Running, TARGET};
use crate::flood::Flood;
use crate::network::Network;
use crate::rivals::phantun;
use crate::{Error, Programs, limits};

/// Bytes per UDP datagram: what most tunnels and games send at most.
const DATAGRAM_BYTES: usize = 1_150;

/// What one run gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measurement {
    /// Payload bits per second that left the sender.
    pub(super) sender_bits_per_second: f64,
    /// Payload bits per second that arrived.
    pub(super) receiver_bits_per_second: f64,
    /// Lost fraction of the datagrams, 0 to 1; UDP only.
    pub(super) loss: f64,
    /// Datagrams that came after a later one of their flow; our own sink only.
    pub(super) reordered: u64,
    /// Payload bytes that arrived.
    pub(super) received_bytes: f64,
    /// CPU seconds per gigabyte delivered: the processes between, the client's first.
    pub(super) hop_cpu_per_gigabyte: [f64; 2],
    /// CPU seconds per gigabyte delivered: all of the machine, the load and the kernel included.
    pub(super) machine_cpu_per_gigabyte: f64,
    /// New connections, where they were the load.
    pub(super) connections: Option<ConnectionsReport>,
}

impl Measurement {
    /// By what the median run is chosen: what was lost where a rate was offered is in the rate, too.
    pub(super) fn merit(&self) -> f64 {
        let connections = self.connections.map(|connections| connections.per_second);
        connections.unwrap_or(self.receiver_bits_per_second)
    }
}

/// A contestant on its own wire.
pub(super) struct Rig {
    contestant: Contestant,
    running: Running,
    network: Network,
}

impl Rig {
    /// Builds the network and starts the contestant.
    ///
    /// # Errors
    /// When there is no network, or an end does not start.
    pub(super) fn start(
        programs: &Programs,
        contestant: Contestant,
        rival: Option<&phantun::Installed>,
    ) -> Result<Self, Error> {
        let network = Network::build(programs, None)?;
        let running = Running::start(programs, contestant, rival, &network)?;
        Ok(Self {
            contestant,
            running,
            network,
        })
    }

    /// Who it is.
    pub(super) fn contestant(&self) -> Contestant {
        self.contestant
    }

    /// One run.
    ///
    /// # Errors
    /// When the load can't run.
    pub(super) fn run(&self, programs: &Programs, load: Load, seconds: u32) -> Result<Measurement, Error> {
        let (usage, busy) = (self.running.usage(), usage::machine_busy_seconds());
        let mut measured = match load {
            Load::Iperf { offered } => self.iperf(&IperfRun {
                large_buffers: true,
                ..IperfRun::udp(self.running.entrance, seconds, DATAGRAM_BYTES, offered)
            })?,
            Load::Own { flows } => self.own(programs, flows, seconds)?,
            Load::ForwardUdp => self.own(programs, 1, seconds)?,
            Load::ForwardTcp => self.iperf(&IperfRun::tcp(self.running.entrance, seconds))?,
            Load::Layer3Tcp => {
                let server = SocketAddr::from((self.running.layer3, TARGET.port()));
                self.iperf(&IperfRun::tcp(server, seconds))?
            }
            Load::Connections => Measurement {
                connections: Some(connections::measure(programs, &self.running, &self.network)?),
                ..Measurement::default()
            },
        };
        let gigabytes = (measured.received_bytes / 1e9).max(1e-9);
        let after = self.running.usage();
        if measured.received_bytes > 0.0 {
            measured.hop_cpu_per_gigabyte =
                [0, 1].map(|end| (after[end].cpu_seconds - usage[end].cpu_seconds) / gigabytes);
            measured.machine_cpu_per_gigabyte = (usage::machine_busy_seconds() - busy) / gigabytes;
        }
        Ok(measured)
    }

    fn iperf(&self, run: &IperfRun) -> Result<Measurement, Error> {
        // In IP packets its address is that of the server's end of the tunnel, otherwise that of the wire.
        let listen = if run.address.ip() == self.running.layer3 {
            run.address
        } else {
            TARGET
        };
        let _server = IperfServer::start(&self.network.server.place(), listen)?;
        let result = iperf::run(&self.network.client.place(), run)?;
        Ok(Measurement {
            sender_bits_per_second: result.sender_bits_per_second,
            receiver_bits_per_second: result.receiver_bits_per_second,
            loss: result.loss,
            received_bytes: result.received_bytes,
            ..Measurement::default()
        })
    }

    fn own(&self, programs: &Programs, flows: usize, seconds: u32) -> Result<Measurement, Error> {
        let flood = Flood {
            entrance: self.running.entrance,
            target: TARGET,
            payload_bytes: DATAGRAM_BYTES,
            flows,
            offered_bits_per_second: None,
            seconds,
            receive_buffer_bytes: Some(limits::LOAD_BUFFER_BYTES),
        };
        let flooded = flood.run(
            programs,
            [&self.network.client.place(), &self.network.server.place()],
        )?;
        Ok(Measurement {
            sender_bits_per_second: flooded.sender_bits_per_second(),
            receiver_bits_per_second: flooded.receiver_bits_per_second(),
            loss: flooded.loss(),
            reordered: flooded.received.total.reordered,
            received_bytes: flooded.received.bytes as f64,
            ..Measurement::default()
        })
    }
}
