//! The cases: what is sent, who takes part, and what must be reached.

use std::collections::BTreeMap;

use serde::Serialize;

use super::contestant::Contestant;
use super::measure::Measurement;
use crate::check::{Bound, Check};

/// The offered rate at which loss is compared, in bits per second.
const OFFERED: u64 = 1_000_000_000;

/// The relays lose no more than the plaintext relay and so many percentage points.
const LOSS_POINTS_MAX: f64 = 1.0;

/// iperf3 saturates: share of the plaintext relay's rate, and ratio to phantun's.
const OF_RELAY_MIN: f64 = 0.9;
const IPERF_OF_PHANTUN_MIN: f64 = 1.6;

/// One flow of trains: ratio to phantun's rate, and to its processor time for a gigabyte.
const OF_PHANTUN_MIN: f64 = 5.0;
const CPU_OF_PHANTUN_MAX: f64 = 0.4;

/// Share of the same traffic with `--carrier udp`.
const OF_CARRIER_UDP_MIN: f64 = 0.8;

/// What a connection may take of each relay's memory, in KiB.
const CONNECTION_KIB_MAX: f64 = 2.0;

/// Between two UDP programs.
const RELAYS: &[Contestant] = &[
    Contestant::Direct,
    Contestant::Relay,
    Contestant::Phantun,
    Contestant::Gramway,
];

/// Those that know connections.
const CONNECTING: &[Contestant] = &[Contestant::Phantun, Contestant::Gramway];

/// The tunnel.
const CARRIERS: &[Contestant] = &[Contestant::CarrierUdp, Contestant::CarrierTcp];

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    /// What `--only` matches.
    pub(super) name: &'static str,
    /// What is sent.
    pub(super) load: Load,
}

/// What is sent, from client to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Load {
    /// iperf3's UDP: single datagrams.
    Iperf {
        /// Bits per second; none is as fast as possible.
        offered: Option<u64>,
    },
    /// Our own generator, as fast as possible: trains.
    Own {
        /// Flows, each from a port of its own.
        flows: usize,
    },
    /// A datagram each from many addresses, answered by the server.
    Connections,
    /// Our own generator through a UDP forward of the tunnel.
    ForwardUdp,
    /// iperf3's TCP through a TCP forward of the tunnel.
    ForwardTcp,
    /// iperf3's TCP in IP packets.
    Layer3Tcp,
}

impl Load {
    /// Who takes part.
    pub(super) fn contestants(self) -> &'static [Contestant] {
        match self {
            Self::Iperf { .. } | Self::Own { .. } => RELAYS,
            Self::Connections => CONNECTING,
            Self::ForwardUdp | Self::ForwardTcp | Self::Layer3Tcp => CARRIERS,
        }
    }

    /// Whether the tunnel has to have the carrier.
    pub(super) fn needs_carrier(self) -> bool {
        self.contestants() == CARRIERS
    }

    /// How often it runs, where others run so often: a second run of connections would find tables that are large enough.
    pub(super) fn runs(self, wanted: usize) -> usize {
        if self == Self::Connections { 1 } else { wanted }
    }
}

impl crate::matrix::Case for Case {
    fn name(&self) -> &str {
        self.name
    }
}

impl Case {
    /// What the results must be; none where Gramway was not measured.
    pub(super) fn checks(&self, results: &BTreeMap<Contestant, Measurement>) -> Vec<Check> {
        let ours = if self.load.needs_carrier() {
            Contestant::CarrierTcp
        } else {
            Contestant::Gramway
        };
        let Some(ours) = results.get(&ours) else {
            return Vec::new();
        };
        let rate_of = |other: Contestant, what: &str, must| {
            let other = results.get(&other)?;
            let ratio = ours.receiver_bits_per_second / other.receiver_bits_per_second.max(1.0);
            Some(Check::new(what, ratio, must))
        };
        let of_relay = |must| rate_of(Contestant::Relay, "of the plaintext relay", must);
        let of_phantun = |must| rate_of(Contestant::Phantun, "x phantun", must);
        let checks = match self.load {
            Load::Iperf { offered: Some(_) } => {
                let beyond = |other: &Measurement| (ours.loss - other.loss) * 100.0;
                let check = |other| {
                    Check::new(
                        "points lost beyond the plaintext relay",
                        beyond(other),
                        Bound::AtMost(LOSS_POINTS_MAX),
                    )
                };
                vec![results.get(&Contestant::Relay).map(check)]
            }
            Load::Iperf { offered: None } => vec![
                of_relay(Bound::AtLeast(OF_RELAY_MIN)),
                of_phantun(Bound::AtLeast(IPERF_OF_PHANTUN_MIN)),
            ],
            Load::Own { flows: 1 } => {
                let cpu = |other: &Measurement| {
                    let [ours, theirs] =
                        [ours, other].map(|run| run.hop_cpu_per_gigabyte.iter().sum::<f64>());
                    Check::new(
                        "x phantun's cpu s/GB",
                        ours / theirs.max(1e-9),
                        Bound::AtMost(CPU_OF_PHANTUN_MAX),
                    )
                };
                vec![
                    of_phantun(Bound::AtLeast(OF_PHANTUN_MIN)),
                    of_relay(Bound::Free),
                    results.get(&Contestant::Phantun).map(cpu),
                ]
            }
            Load::Own { .. } => vec![
                Some(Check::new(
                    "datagrams reordered within a flow",
                    ours.reordered as f64,
                    Bound::AtMost(0.0),
                )),
                of_phantun(Bound::Free),
                of_relay(Bound::Free),
            ],
            Load::Connections => {
                let largest = |run: &Measurement| {
                    let ends = run.connections.map(|run| run.bytes_each);
                    ends.map(|ends| ends[0].max(ends[1]) / 1_024.0)
                };
                let check = |kib| {
                    Check::new(
                        "KiB a connection at the larger end",
                        kib,
                        Bound::AtMost(CONNECTION_KIB_MAX),
                    )
                };
                vec![largest(ours).map(check)]
            }
            Load::ForwardUdp | Load::ForwardTcp | Load::Layer3Tcp => vec![rate_of(
                Contestant::CarrierUdp,
                "of --carrier udp",
                Bound::AtLeast(OF_CARRIER_UDP_MIN),
            )],
        };
        checks.into_iter().flatten().collect()
    }
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    let case = |name, load| Case { name, load };
    vec![
        case(
            "iperf3-1G",
            Load::Iperf {
                offered: Some(OFFERED),
            },
        ),
        case("iperf3-max", Load::Iperf { offered: None }),
        case("own-max-1", Load::Own { flows: 1 }),
        case("own-max-4", Load::Own { flows: 4 }),
        case("connections", Load::Connections),
        case("carrier-udp", Load::ForwardUdp),
        case("carrier-tcp", Load::ForwardTcp),
        case("carrier-l3-tcp", Load::Layer3Tcp),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, results: &[(Contestant, Measurement)]) -> Vec<String> {
        let results = results.iter().cloned().collect();
        let case = all().into_iter().find(|case| case.name == name).unwrap();
        case.checks(&results).iter().map(Check::to_string).collect()
    }

    fn run(gigabits: f64, loss: f64) -> Measurement {
        Measurement {
            receiver_bits_per_second: gigabits * 1e9,
            loss,
            hop_cpu_per_gigabyte: [1.0 / gigabits; 2],
            ..Measurement::default()
        }
    }

    #[test]
    fn rates_are_held_against_the_relay_and_phantun() {
        let results = [
            (Contestant::Relay, run(10.0, 0.0)),
            (Contestant::Phantun, run(1.0, 0.12)),
            (Contestant::Gramway, run(8.0, 0.02)),
        ];
        assert_eq!(
            told("iperf3-1G", &results),
            ["2.00 points lost beyond the plaintext relay (must: <= 1) MISSED"]
        );
        assert_eq!(
            told("iperf3-max", &results),
            [
                "0.80 of the plaintext relay (must: >= 0.9) MISSED",
                "8.00 x phantun (must: >= 1.6)"
            ]
        );
        assert_eq!(
            told("own-max-1", &results),
            [
                "8.00 x phantun (must: >= 5)",
                "0.80 of the plaintext relay",
                "0.12 x phantun's cpu s/GB (must: <= 0.4)"
            ]
        );
    }

    #[test]
    fn without_a_rival_only_its_checks_are_missing_and_without_gramway_all() {
        let results = [
            (Contestant::Relay, run(10.0, 0.0)),
            (Contestant::Gramway, run(9.5, 0.0)),
        ];
        assert_eq!(
            told("iperf3-max", &results),
            ["0.95 of the plaintext relay (must: >= 0.9)"]
        );
        assert!(told("iperf3-max", &results[..1]).is_empty());
        let carriers = [
            (Contestant::CarrierUdp, run(4.0, 0.0)),
            (Contestant::CarrierTcp, run(3.0, 0.0)),
        ];
        assert_eq!(
            told("carrier-udp", &carriers),
            ["0.75 of --carrier udp (must: >= 0.8) MISSED"]
        );
    }
}
