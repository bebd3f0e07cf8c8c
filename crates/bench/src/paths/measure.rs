//! One link with everybody who uses it, and one run of a load by one of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Serialize;
use testbed::iperf::{self, IperfMode, IperfRun, IperfServer, RateStep};
use testbed::namespace::Namespace;

use super::Inner;
use super::cases::Load;
use super::cell::Cell;
use super::contestant::{Contestant, Installed, Running, TARGET_PORTS, probe, targets};
use crate::counters::Counters;
use crate::emulator::LinkReport;
use crate::flow::{self, FlowPlan, FlowReport};
use crate::l3;
use crate::network::Network;
use crate::{Error, Programs};

/// Bytes of each datagram: what most tunnels and games send at most.
const DATAGRAM_BYTES: usize = 1_150;

/// Share of the link that datagrams are offered at.
const DATAGRAM_SHARE: f64 = 0.3;

/// Round trips before datagrams count.
pub(super) const WARM_UP_ROUND_TRIPS: u32 = 20;

/// A link counts as idle when fewer packets enter it within [`IDLE_STEP`]: what keeps connections alive.
const IDLE_PACKETS: u64 = 10;

/// How long idleness is watched at a time.
const IDLE_STEP: Duration = Duration::from_millis(100);

/// How long is waited for it: data of a run that ended leave the queues of a tunnel.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// What one run gave.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Run {
    /// Payload bits per second that arrived.
    pub(super) bits_per_second: f64,
    /// What became of the datagrams; UDP only.
    pub(super) flow: Option<FlowReport>,
    /// What the link did in the direction of the payload.
    pub(super) link: LinkReport,
    /// What it did in the other one.
    pub(super) link_back: LinkReport,
    /// What gramway's client and server counted during the run.
    pub(super) counters: Option<[Counters; 2]>,
    /// The rate over time; TCP only. It goes into a file of its own.
    #[serde(skip)]
    pub(super) steps: Vec<RateStep>,
}

impl Run {
    /// Fraction of the packets that the link lost at random.
    pub(super) fn link_loss(&self) -> f64 {
        self.link.lost as f64 / self.link.sent.max(1) as f64
    }

    /// Loss of datagrams beyond that of the link, as a fraction. The link's own dice of the same run are taken, which
    /// are nearer to what these datagrams met than those of another run.
    pub(super) fn loss_beyond(&self) -> Option<f64> {
        self.flow.map(|flow| flow.loss - self.link_loss())
    }
}

/// A TCP stream of iperf3.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Where the client connects.
    pub(super) address: SocketAddr,
    /// Where that leads.
    pub(super) target: SocketAddr,
    /// Congestion control of both ends.
    pub(super) congestion: Inner,
    /// Whether the client sends.
    pub(super) is_up: bool,
    /// How long.
    pub(super) seconds: u32,
}

impl Stream {
    /// Runs it between the machines of client and server; gives bits per second and the rate over time.
    ///
    /// # Errors
    /// When iperf3 can't.
    pub(super) fn run(&self, [client, server]: [&Namespace; 2]) -> Result<(f64, Vec<RateStep>), Error> {
        let mut listener = IperfServer::start_in_steps(&server.place(), self.target)?;
        let run = IperfRun {
            congestion: Some(self.congestion.name()),
            mode: IperfMode::Tcp { reverse: !self.is_up },
            ..IperfRun::tcp(self.address, self.seconds)
        };
        let (result, steps) = iperf::run_in_steps(&client.place(), &run, &mut listener)?;
        Ok((result.receiver_bits_per_second, steps))
    }
}

/// A link with everybody who uses it.
pub(super) struct Rig {
    programs: Programs,
    cell: Cell,
    inner: Inner,
    forwards: Vec<Running>,
    packets: Option<l3::Running>,
    /// Where it all takes place.
    pub(super) network: Network,
}

impl Rig {
    /// Builds the link and starts nobody.
    ///
    /// # Errors
    /// When there is no network.
    pub(super) fn build(programs: &Programs, cell: Cell, inner: Inner) -> Result<Self, Error> {
        let network = Network::build(programs, Some(cell.link()))?;
        for namespace in [&network.client, &network.server] {
            // Otherwise a connection begins with what the kernel remembers of the one before.
            namespace.set_parameter("net.ipv4.tcp_no_metrics_save", "1")?;
        }
        Ok(Self {
            programs: programs.clone(),
            cell,
            inner,
            forwards: Vec::new(),
            packets: None,
            network,
        })
    }

    /// Starts forwards; gives those that did not start with their reasons.
    pub(super) fn start(&mut self, installed: &[Installed]) -> Vec<(Contestant, String)> {
        let mut failed = Vec::new();
        for found in installed {
            match found.start(&self.programs, &self.network) {
                Ok(running) => self.forwards.push(running),
                Err(error) => failed.push((found.contestant, error.to_string())),
            }
        }
        failed
    }

    /// Starts Gramway with TUN devices beside its forwards.
    ///
    /// # Errors
    /// When it does not come up, with its own words.
    pub(super) fn start_layer3(&mut self) -> Result<(), Error> {
        let running = l3::Installed::gramway(&self.programs).launch(&self.programs, &self.network)?;
        let entrance = SocketAddr::from((running.address, TARGET_PORTS[0]));
        if !probe::carries(&self.network, entrance, || true)? {
            return Err(Error::NotReady {
                program: "gramway with --tun".to_owned(),
                reason: format!("no connection reaches {entrance}"),
            });
        }
        self.packets = Some(running);
        Ok(())
    }

    /// Who has forwards.
    pub(super) fn contestants(&self) -> Vec<Contestant> {
        self.forwards.iter().map(|running| running.contestant).collect()
    }

    /// The forwards of a contestant.
    ///
    /// # Errors
    /// When it does not run.
    pub(super) fn forward(&self, contestant: Contestant) -> Result<&Running, Error> {
        let found = self
            .forwards
            .iter()
            .find(|running| running.contestant == contestant);
        found.ok_or_else(|| Error::Setup(format!("{} does not run", contestant.name())))
    }

    /// One run, on an idle link, with a new connection of the tunnel. That of the TUN devices stays.
    ///
    /// # Errors
    /// When the contestant does not run, or the load can't.
    pub(super) fn run(&mut self, contestant: Contestant, load: Load, seconds: u32) -> Result<Run, Error> {
        if load.is_layer3() {
            self.wait_until_idle()?;
        } else {
            self.reconnect(contestant)?;
        }
        let before = self.counters(contestant, load);
        let mut run = if load.is_udp() {
            self.datagrams(contestant, load, seconds)?
        } else {
            self.stream(contestant, load, seconds)?
        };
        let after = self.counters(contestant, load);
        let since = |(before, after): ([Counters; 2], [Counters; 2])| {
            [after[0].since(&before[0]), after[1].since(&before[1])]
        };
        run.counters = before.zip(after).map(since);
        let [there, back] = self.link_report()?;
        (run.link, run.link_back) = if load.is_up() {
            (there, back)
        } else {
            (back, there)
        };
        Ok(run)
    }

    /// Gives the contestant a new connection, which knows nothing of earlier runs, and waits for an idle link.
    ///
    /// # Errors
    /// When it does not come up again, or the emulator has died.
    pub(super) fn reconnect(&mut self, contestant: Contestant) -> Result<(), Error> {
        let mut forwards = self.forwards.iter_mut();
        if let Some(forward) = forwards.find(|forward| forward.contestant == contestant) {
            forward.reconnect(&self.network)?;
        }
        self.wait_until_idle()
    }

    /// What the link did since it was asked last, there and back.
    ///
    /// # Errors
    /// When the emulator has died.
    pub(super) fn link_report(&mut self) -> Result<[LinkReport; 2], Error> {
        let report = self.network.report()?;
        let report = report.ok_or_else(|| Error::Setup("the link is no emulated one".to_owned()))?;
        Ok(report.links)
    }

    /// Waits until what an earlier run left has gone. A link that stays busy is measured as it is.
    ///
    /// # Errors
    /// When the emulator has died.
    pub(super) fn wait_until_idle(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        self.link_report()?;
        while start.elapsed() < IDLE_WAIT_MAX {
            std::thread::sleep(IDLE_STEP);
            let links = self.link_report()?;
            let is_idle = |link: &LinkReport| link.sent < IDLE_PACKETS && link.in_flight < IDLE_PACKETS;
            if links.iter().all(is_idle) {
                break;
            }
        }
        Ok(())
    }

    /// The client's and the server's machine.
    pub(super) fn machines(&self) -> [&Namespace; 2] {
        [&self.network.client, &self.network.server]
    }

    fn stream(&self, contestant: Contestant, load: Load, seconds: u32) -> Result<Run, Error> {
        let [mut address, mut target] = [self.forward(contestant)?.entrances[0], targets()[0]];
        if load.is_layer3() && contestant == Contestant::Gramway {
            let packets = self.packets.as_ref();
            let packets =
                packets.ok_or_else(|| Error::Setup("gramway with --tun does not run".to_owned()))?;
            address = SocketAddr::from((packets.address, TARGET_PORTS[0]));
            target = address;
        }
        let stream = Stream {
            address,
            target,
            congestion: self.inner,
            is_up: load.is_up(),
            seconds,
        };
        let (bits_per_second, steps) = stream.run(self.machines())?;
        Ok(Run {
            bits_per_second,
            steps,
            ..Run::default()
        })
    }

    fn datagrams(&self, contestant: Contestant, load: Load, seconds: u32) -> Result<Run, Error> {
        let bits = self.cell.rate_bits_per_second() * DATAGRAM_SHARE;
        let round_trip = self.cell.round_trip();
        let plan = FlowPlan {
            is_up: load.is_up(),
            payload_bytes: DATAGRAM_BYTES,
            per_second: bits / (DATAGRAM_BYTES * 8) as f64,
            warm_up: round_trip * WARM_UP_ROUND_TRIPS,
            duration: Duration::from_secs(u64::from(seconds)),
            round_trip,
        };
        let flow = self.flow(contestant, &plan)?;
        Ok(Run {
            bits_per_second: flow.bits_per_second,
            flow: Some(flow),
            ..Run::default()
        })
    }

    /// A flow of datagrams through the second forward.
    ///
    /// # Errors
    /// When the contestant does not run, or no datagram comes back.
    pub(super) fn flow(&self, contestant: Contestant, plan: &FlowPlan) -> Result<FlowReport, Error> {
        let entrance = self.forward(contestant)?.entrances[1];
        let [client, server] = self.machines().map(Namespace::place);
        flow::run([&client, &server], entrance, targets()[1], plan)
    }

    fn counters(&self, contestant: Contestant, load: Load) -> Option<[Counters; 2]> {
        if contestant == Contestant::Gramway && load.is_layer3() {
            return self.packets.as_ref()?.counters(&self.programs);
        }
        self.forward(contestant).ok()?.counters(&self.programs)
    }
}
