//! The cases: what is sent, over which line, and by which ways.

use serde::Serialize;

use crate::limits::{PEERS_BYTES_IN_FLIGHT, PEERS_FAN_MESSAGES_IN_FLIGHT, PEERS_MESSAGES_IN_FLIGHT};
use crate::peers::trial::{Bounds, Load};

/// A message that fills a packet, and a short one, in bytes.
const PACKET_BYTES: usize = 1_150;
const SHORT_BYTES: usize = 64;

/// How a pair gets past the server between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// Its kernel forwards the packets.
    Direct,
    /// By the UDP forward of a client (CONNECT-UDP).
    Forwarded,
    /// By its relay.
    Relayed,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Direct, Self::Forwarded, Self::Relayed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Forwarded => "forwarded",
            Self::Relayed => "relayed",
        }
    }
}

/// What is between the server and the callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Line {
    Cable,
    /// 20 Mbit/s, 20 ms there and back, and a queue of 250 ms.
    Slow,
}

/// One case of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Case {
    /// What `--only` matches.
    pub(super) name: &'static str,
    pub(super) load: Load,
    pub(super) line: Line,
}

impl crate::matrix::Case for Case {
    fn name(&self) -> &str {
        self.name
    }
}

impl Case {
    /// What may be under way on a connection.
    pub(super) fn bounds(&self) -> Bounds {
        let messages = match self.load {
            Load::Unreliable { .. } => PEERS_MESSAGES_IN_FLIGHT,
            _ => PEERS_FAN_MESSAGES_IN_FLIGHT,
        };
        Bounds {
            messages,
            bytes: PEERS_BYTES_IN_FLIGHT,
        }
    }
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    let unreliable = Load::Unreliable { bytes: PACKET_BYTES };
    let beside_bulk = Load::RoundTrips {
        bytes: SHORT_BYTES,
        beside_bulk: true,
    };
    let of = |line, names: [&'static str; 3]| {
        let loads = [Load::Bulk, unreliable, beside_bulk];
        let cases = loads.into_iter().zip(names);
        cases.map(move |(load, name)| Case { name, load, line })
    };
    let cable = of(Line::Cable, ["bulk", "unreliable", "beside-bulk"]);
    let slow = of(Line::Slow, ["slow-bulk", "slow-unreliable", "slow-beside-bulk"]);
    cable.chain(slow).collect()
}
