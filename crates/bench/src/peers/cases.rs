//! The cases: what is sent, what is counted, and what must be reached.

use std::collections::BTreeMap;

use serde::Serialize;

use super::contestant::Contestant;
use super::trial::{Bounds, Direction, Load};
use crate::check::{Bound, Check};
use crate::limits::{
    PEERS_BYTES_IN_FLIGHT, PEERS_CLIENTS, PEERS_FAN_MESSAGES_IN_FLIGHT, PEERS_HANDSHAKES_AT_A_TIME,
    PEERS_IDLE, PEERS_MESSAGES_IN_FLIGHT,
};

/// A short message, one that fills a packet, and one that needs many, in bytes.
const SHORT_BYTES: usize = 64;
const PACKET_BYTES: usize = 1_150;
const KIBIBYTE: usize = 1 << 10;
const LONG_BYTES: usize = 32 << 10;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Figure {
    /// Messages that arrived a second.
    Messages,
    /// Megabits that arrived a second.
    Megabits,
    /// Median of the round trips, in microseconds.
    Median,
    /// 99th percentile of the round trips, in microseconds.
    Tail,
    /// Connections a second.
    Connections,
    /// Memory of the server for each connection, in KiB.
    Memory,
}

impl Figure {
    /// Its name in the table.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Messages => "messages/s",
            Self::Megabits => "Mbit/s",
            Self::Median => "p50 us",
            Self::Tail => "p99 us",
            Self::Connections => "conns/s",
            Self::Memory => "KiB each",
        }
    }

    /// Whether more is better.
    fn grows(self) -> bool {
        matches!(self, Self::Messages | Self::Megabits | Self::Connections)
    }
}

/// What is between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Wire {
    /// The loopback device.
    Loopback,
    /// An emulated link: 100 Mbit/s, 100 ms, 1 % of the packets lost each way.
    Lossy,
}

/// What the ratio of a figure to that of the better rival must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Demand {
    pub(super) figure: Figure,
    must: f64,
    aim: Option<f64>,
}

/// One case of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    /// What `--only` matches.
    pub(super) name: &'static str,
    pub(super) load: Load,
    pub(super) wire: Wire,
    pub(super) demands: Vec<Demand>,
}

impl crate::matrix::Case for Case {
    fn name(&self) -> &str {
        self.name
    }
}

impl Case {
    /// What may be under way on a connection.
    pub(super) fn bounds(&self) -> Bounds {
        let of = |messages: usize, bytes: usize| {
            let messages = messages.min(PEERS_BYTES_IN_FLIGHT / bytes);
            Bounds {
                messages,
                bytes: messages * bytes,
            }
        };
        match self.load {
            Load::Messages { bytes } | Load::Unreliable { bytes } => of(PEERS_MESSAGES_IN_FLIGHT, bytes),
            Load::Fan { bytes, .. } => of(PEERS_FAN_MESSAGES_IN_FLIGHT, bytes),
            Load::Bulk | Load::RoundTrips { .. } | Load::Connections { .. } | Load::Idle { .. } => Bounds {
                messages: PEERS_FAN_MESSAGES_IN_FLIGHT,
                bytes: PEERS_BYTES_IN_FLIGHT,
            },
        }
    }

    /// What the medians come to; none where Gramway or both rivals were not measured. What an endpoint with a thread of
    /// its own comes to is told beside it, and not judged.
    pub(super) fn checks(&self, medians: &BTreeMap<Contestant, BTreeMap<Figure, f64>>) -> Vec<Check> {
        let of = |contestant, figure| Some(*medians.get(&contestant)?.get(&figure)?);
        let ratio = |ours, figure: Figure| {
            let ours = of(ours, figure)?;
            let rivals = [Contestant::Iroh, Contestant::Quinn].map(|rival| of(rival, figure));
            let rivals = rivals.into_iter().flatten();
            let better = if figure.grows() {
                rivals.max_by(f64::total_cmp)?
            } else {
                rivals.min_by(f64::total_cmp)?
            };
            Some(ours / better)
        };
        let checks = |demand: &Demand| {
            let Demand { figure, must, aim } = *demand;
            let bound = if figure.grows() {
                Bound::AtLeast(must)
            } else {
                Bound::AtMost(must)
            };
            let aim = aim.map_or_else(String::new, |aim| format!(", aim {aim}"));
            let what = format!("x the better rival's {}", figure.unit());
            let judged = ratio(Contestant::Gramway, figure)
                .map(|ratio| Check::new(format!("{what}{aim}"), ratio, bound));
            let beside = ratio(Contestant::Threads, figure)
                .map(|ratio| Check::new(format!("{what}, with threads"), ratio, Bound::Free));
            [judged, beside]
        };
        self.demands.iter().flat_map(checks).flatten().collect()
    }
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    let case = |name, load, demands: &[(Figure, f64, Option<f64>)]| Case {
        name,
        load,
        wire: Wire::Loopback,
        demands: demands
            .iter()
            .map(|(figure, must, aim)| Demand {
                figure: *figure,
                must: *must,
                aim: *aim,
            })
            .collect(),
    };
    let messages = |must, aim| [(Figure::Messages, must, Some(aim))];
    let fan = |name, direction| {
        let load = Load::Fan {
            clients: PEERS_CLIENTS,
            bytes: KIBIBYTE,
            direction,
        };
        case(name, load, &messages(1.2, 2.0))
    };
    let round_trips = |beside_bulk| Load::RoundTrips {
        bytes: SHORT_BYTES,
        beside_bulk,
    };
    let connections = Load::Connections {
        parallel: PEERS_HANDSHAKES_AT_A_TIME,
    };
    let idle = Load::Idle {
        connections: PEERS_IDLE,
    };
    vec![
        case(
            "messages-1KiB",
            Load::Messages { bytes: KIBIBYTE },
            &messages(1.5, 3.0),
        ),
        case(
            "messages-32KiB",
            Load::Messages { bytes: LONG_BYTES },
            &messages(1.5, 3.0),
        ),
        case("bulk", Load::Bulk, &[(Figure::Megabits, 1.2, Some(2.0))]),
        case(
            "unreliable",
            Load::Unreliable { bytes: PACKET_BYTES },
            &messages(2.0, 4.0),
        ),
        case(
            "round-trips",
            round_trips(false),
            &[(Figure::Median, 1.0, None), (Figure::Tail, 1.0, None)],
        ),
        case("beside-bulk", round_trips(true), &[(Figure::Tail, 0.5, None)]),
        fan("fan-in", Direction::In),
        fan("fan-out", Direction::Out),
        fan("fan-both", Direction::Both),
        case("connections", connections, &[(Figure::Connections, 1.2, None)]),
        case("idle", idle, &[(Figure::Memory, 0.5, None)]),
        Case {
            wire: Wire::Lossy,
            ..case("100x100x1", Load::Bulk, &[(Figure::Megabits, 1.0, None)])
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, medians: &[(Contestant, Figure, f64)]) -> Vec<String> {
        let mut map: BTreeMap<Contestant, BTreeMap<Figure, f64>> = BTreeMap::new();
        for (contestant, figure, value) in medians {
            map.entry(*contestant).or_default().insert(*figure, *value);
        }
        let case = all().into_iter().find(|case| case.name == name).unwrap();
        case.checks(&map).iter().map(Check::to_string).collect()
    }

    #[test]
    fn a_figure_is_held_against_the_better_rival_whether_it_should_be_large_or_small() {
        use Contestant::{Gramway, Iroh, Quinn, Threads};
        let rates = [(Gramway, 300.0), (Iroh, 100.0), (Quinn, 150.0)];
        let rates = rates.map(|(contestant, rate)| (contestant, Figure::Messages, rate));
        assert_eq!(
            told("messages-1KiB", &rates),
            ["2.00 x the better rival's messages/s, aim 3 (must: >= 1.5)"]
        );
        let threads = [&rates[..], &[(Threads, Figure::Messages, 210.0)]].concat();
        assert_eq!(
            told("messages-1KiB", &threads)[1..],
            ["1.40 x the better rival's messages/s, with threads"]
        );
        let tails = [(Gramway, 90.0), (Iroh, 100.0), (Quinn, 150.0)];
        let tails = tails.map(|(contestant, tail)| (contestant, Figure::Tail, tail));
        assert_eq!(
            told("beside-bulk", &tails),
            ["0.90 x the better rival's p99 us (must: <= 0.5) MISSED"]
        );
        assert_eq!(told("beside-bulk", &tails[..2]).len(), 1);
        assert!(told("beside-bulk", &tails[..1]).is_empty());
        assert!(told("beside-bulk", &tails[1..]).is_empty());
    }

    #[test]
    fn what_is_under_way_is_bounded_by_messages_and_by_bytes() {
        for case in all() {
            let bounds = case.bounds();
            assert!(bounds.bytes <= PEERS_BYTES_IN_FLIGHT, "{}", case.name);
            assert!(
                (1..=PEERS_MESSAGES_IN_FLIGHT).contains(&bounds.messages),
                "{}",
                case.name
            );
        }
    }
}
