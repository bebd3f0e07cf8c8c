//! What is measured, and how one run of it goes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use super::handshakes::{HandshakeOptions, HandshakeReport};
use super::scene::{self, Scene};
use super::site::{VisitOptions, Visits};
use super::spoofing::{SpoofingOptions, SpoofingReport};
use super::{HANDSHAKES, Run, SPOOF, VISIT};
use crate::check::{Bound, Check};
use crate::children::Load;
use crate::generator::{GeneratorOptions, GeneratorReport};
use crate::matrix;
use crate::median::percentile;
use crate::sink::{SinkOptions, SinkReport};
use crate::{Error, Programs, hidden, limits};

/// Handshakes in a second: what the server's budgets give [`scene::SOURCES`] networks, with room to spare.
const HANDSHAKES_PER_SECOND: u32 = 200;

/// Visits at each address in a second of a run: each is followed by a pause.
const VISITS_PER_SECOND: usize = 8;

/// What the honest client sends, in payload bits per second, in datagrams of so many bytes and so many flows.
const HONEST_BITS_PER_SECOND: u64 = 1_000_000_000;
const HONEST_BYTES: usize = 1_150;
const HONEST_FLOWS: usize = 4;

/// What it may lose beside the flood, in per cent of its datagrams.
const LOSS_PERCENT_MAX: f64 = 1.0;

/// Spoofed handshakes in a second.
const SPOOFED_PER_SECOND: u32 = 10_000;

/// How long the flood goes on before the honest load begins: the strangers' table is full then.
const FLOOD_BEFORE: Duration = Duration::from_secs(5);

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Case {
    /// Handshakes of clients that are recognised, against those of a server that everybody can see.
    Handshakes,
    /// A stranger's first byte of the web site, through the server and directly.
    FirstByte,
    /// Honest UDP alone, and beside spoofed handshakes.
    Flood,
}

impl matrix::Case for Case {
    fn name(&self) -> &str {
        match self {
            Self::Handshakes => "handshakes",
            Self::FirstByte => "first-byte",
            Self::Flood => "flood",
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(matrix::Case::name(self))
    }
}

impl Case {
    pub(super) const ALL: [Self; 3] = [Self::Handshakes, Self::FirstByte, Self::Flood];

    /// What takes turns.
    pub(super) fn contestants(self) -> [&'static str; 2] {
        match self {
            Self::Handshakes => ["plain", "qr1"],
            Self::FirstByte => ["direct", "relayed"],
            Self::Flood => ["calm", "flooded"],
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Handshakes => "handshakes/s per core",
            Self::FirstByte => "ms",
            Self::Flood => "% of datagrams lost",
        }
    }

    /// What the medians must be.
    pub(super) fn checks(self, medians: &BTreeMap<&'static str, f64>) -> Vec<Check> {
        let [one, other] = self.contestants().map(|contestant| medians[contestant]);
        let free = |what: &str, value| vec![Check::new(what, value, Bound::Free)];
        match self {
            Self::Handshakes => free("of the handshakes of a plain server", other / one),
            Self::FirstByte => free("ms added by the relay", other - one),
            Self::Flood => vec![Check::new(
                "% lost beside the flood",
                other,
                Bound::AtMost(LOSS_PERCENT_MAX),
            )],
        }
    }

    /// All runs, in the order in which they were made.
    ///
    /// # Errors
    /// What could not be started, or failed.
    pub(super) fn measure(self, programs: &Programs, runs: usize, seconds: u32) -> Result<Vec<Run>, Error> {
        let mut scene = Scene::start(programs)?;
        if self == Self::Flood {
            scene.connect()?;
        }
        let mut measured = Vec::new();
        for _ in 0..runs {
            match self {
                Self::Handshakes => {
                    for contestant in self.contestants() {
                        measured.push(handshakes(&mut scene, contestant, seconds)?);
                    }
                }
                Self::FirstByte => measured.extend(visits(&scene, self.contestants(), seconds)?),
                Self::Flood => {
                    for contestant in self.contestants() {
                        measured.push(honest(&mut scene, contestant, seconds)?);
                    }
                }
            }
        }
        Ok(measured)
    }
}

/// Handshakes, by the processor time that they take the server's process: the plain one's or the other's.
fn handshakes(scene: &mut Scene, contestant: &'static str, seconds: u32) -> Result<Run, Error> {
    let is_plain = contestant == Case::Handshakes.contestants()[0];
    let (server, proof) = scene.server(is_plain)?;
    let options = HandshakeOptions {
        server,
        proof,
        sources: scene.sources(),
        per_second: HANDSHAKES_PER_SECOND,
        seconds: f64::from(seconds),
    };
    let before = scene.usage(is_plain).cpu_seconds;
    let load = scene.at_client(HANDSHAKES, &options)?;
    let report: HandshakeReport = Load::run(HANDSHAKES, load, seconds_of(seconds))?;
    let busy = scene.usage(is_plain).cpu_seconds - before;
    Ok(Run {
        contestant,
        value: report.completed as f64 / busy.max(1e-3),
        details: BTreeMap::from([
            ("completed", report.completed as f64),
            ("failed", report.failed as f64),
            ("seconds", report.seconds),
            ("processor seconds", busy),
        ]),
    })
}

/// Visits of strangers at both addresses in turn.
fn visits(scene: &Scene, contestants: [&'static str; 2], seconds: u32) -> Result<Vec<Run>, Error> {
    let options = VisitOptions {
        addresses: vec![scene.site().address, scene::COVERED.into()],
        certificate: scene.site().certificate.clone(),
        rounds: VISITS_PER_SECOND * seconds as usize,
    };
    let load = scene.at_client(VISIT, &options)?;
    let visits: Visits = Load::run(VISIT, load, seconds_of(seconds))?;
    let run = |(contestant, mut times): (&'static str, Vec<f64>)| Run {
        contestant,
        value: percentile(&mut times, 0.5),
        details: BTreeMap::from([
            ("visits", times.len() as f64),
            ("p99 ms", percentile(&mut times, 0.99)),
        ]),
    };
    Ok(contestants.into_iter().zip(visits).map(run).collect())
}

/// The honest client's load, alone or beside the flood.
fn honest(scene: &mut Scene, contestant: &'static str, seconds: u32) -> Result<Run, Error> {
    let is_calm = contestant == Case::Flood.contestants()[0];
    let spoofing = SpoofingOptions {
        server: scene::COVERED,
        network: scene::NOWHERE,
        per_second: SPOOFED_PER_SECOND,
    };
    let flood = match is_calm {
        true => None,
        false => Some(Load::launch::<()>(SPOOF, scene.elsewhere(SPOOF, &spoofing)?)?.0),
    };
    if !is_calm {
        std::thread::sleep(FLOOD_BEFORE);
    }
    let relay = |scene: &Scene, name| scene.relay_counter(name);
    let shed = relay(scene, "shed");
    let sink = SinkOptions {
        listen: scene::TARGET.into(),
        echo: false,
        receive_buffer_bytes: Some(limits::LOAD_BUFFER_BYTES),
    };
    let (sink, _) = Load::launch::<SocketAddr>(hidden::SINK, scene.at_server(hidden::SINK, &sink)?)?;
    let generator = GeneratorOptions {
        destination: scene::ENTRANCE.into(),
        payload_bytes: HONEST_BYTES,
        flows: HONEST_FLOWS,
        offered_bits_per_second: Some(HONEST_BITS_PER_SECOND),
        seconds: f64::from(seconds),
    };
    let command = scene.at_client(hidden::GENERATE, &generator)?;
    let (generator, _) = Load::launch::<SocketAddr>(hidden::GENERATE, command)?;
    let sent: GeneratorReport = generator.report(seconds_of(seconds))?;
    let received: SinkReport = sink.finish()?;
    let spoofed: SpoofingReport = flood.map(Load::finish).transpose()?.unwrap_or_default();
    let arrived = received.total.received;
    let lost = sent.datagrams.saturating_sub(arrived) as f64 / sent.datagrams.max(1) as f64;
    Ok(Run {
        contestant,
        value: lost * 100.0,
        details: BTreeMap::from([
            ("sent Mbit/s", sent.bytes as f64 * 8e-6 / sent.seconds.max(1e-3)),
            ("lost at the sink", received.kernel_drops as f64),
            ("spoofed/s", spoofed.sent as f64 / spoofed.seconds.max(1.0)),
            ("shed", relay(scene, "shed").saturating_sub(shed) as f64),
            (
                "server's peak MiB",
                scene.usage(false).peak_bytes as f64 / f64::from(1 << 20),
            ),
        ]),
    })
}

fn seconds_of(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
