//! The matrix: which loads are measured, and how they are called.

use serde::Serialize;

/// Offered rates of UDP in bits per second; `None` is as fast as possible.
const OFFERED: [Option<u64>; 5] = [
    Some(1_000_000_000),
    Some(1_200_000_000),
    Some(1_500_000_000),
    Some(2_000_000_000),
    None,
];

/// Higher rates for our own generator: an unlimited one takes a whole core from the tunnel and only shows that.
const OFFERED_OWN: [Option<u64>; 4] = [
    Some(4_000_000_000),
    Some(6_000_000_000),
    Some(8_000_000_000),
    Some(10_000_000_000),
];

/// One line of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    /// What `--only` matches.
    pub(super) name: String,
    /// What is sent.
    pub(super) load: Load,
}

/// Who makes UDP traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Generator {
    /// iperf3: one system call per datagram.
    Iperf,
    /// Ours: segmentation and receive offload.
    Own,
}

/// Bytes per datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Payload {
    /// So many.
    Bytes(usize),
    /// As many as the tunnel carries without a split.
    Largest,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Load {
    /// Datagrams from client to server.
    Udp {
        /// Who makes them.
        generator: Generator,
        /// How large.
        payload: Payload,
        /// Payload bits per second of all flows together.
        offered: Option<u64>,
        /// Sources.
        flows: usize,
        /// The system's default socket buffers at both foreign ends.
        stock_buffers: bool,
    },
    /// iperf3's TCP.
    Tcp {
        /// Parallel connections.
        streams: usize,
        /// The server sends.
        reverse: bool,
    },
    /// 64-byte round trips on the idle path.
    Echo,
    /// Calls, each with a listener and a target of its own, beside one flow of ours that is as fast as possible.
    Calls,
}

impl Load {
    /// Who makes the traffic; `None` for echoes.
    pub(super) fn generator(&self) -> Option<Generator> {
        match self {
            Self::Udp { generator, .. } => Some(*generator),
            Self::Calls => Some(Generator::Own),
            Self::Tcp { .. } => Some(Generator::Iperf),
            Self::Echo => None,
        }
    }

    /// The offered rate, where there is one.
    pub(super) fn offered(&self) -> Option<u64> {
        match self {
            Self::Udp { offered, .. } => *offered,
            Self::Tcp { .. } | Self::Echo | Self::Calls => None,
        }
    }
}

impl Case {
    fn new(load: Load) -> Self {
        let name = match load {
            Load::Udp {
                generator,
                payload,
                offered,
                flows,
                stock_buffers,
            } => {
                let generator = if generator == Generator::Iperf {
                    "iperf3"
                } else {
                    "own"
                };
                let payload = match payload {
                    Payload::Bytes(bytes) => bytes.to_string(),
                    Payload::Largest => "largest".to_owned(),
                };
                let stock = if stock_buffers { "-stock" } else { "" };
                format!("{generator}-{payload}-{}-{flows}f{stock}", rate(offered))
            }
            Load::Tcp { streams, reverse } => {
                format!("tcp-{}-{streams}", if reverse { "down" } else { "up" })
            }
            Load::Echo => "echo-64".to_owned(),
            Load::Calls => "calls-beside-max".to_owned(),
        };
        Self { name, load }
    }
}

impl crate::matrix::Case for Case {
    fn name(&self) -> &str {
        &self.name
    }
}

fn rate(offered: Option<u64>) -> String {
    offered.map_or_else(|| "max".to_owned(), |bits| format!("{}G", bits as f64 / 1e9))
}

/// All cases, the most telling first.
pub(super) fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut udp = |generator, payload, offered, flows, stock_buffers| {
        cases.push(Case::new(Load::Udp {
            generator,
            payload,
            offered,
            flows,
            stock_buffers,
        }));
    };
    for generator in [Generator::Iperf, Generator::Own] {
        for flows in [1, 4] {
            for payload in [Payload::Bytes(1_150), Payload::Bytes(1_000), Payload::Largest] {
                for offered in OFFERED {
                    udp(generator, payload, offered, flows, false);
                }
                if generator == Generator::Own {
                    OFFERED_OWN
                        .into_iter()
                        .for_each(|offered| udp(generator, payload, offered, flows, false));
                }
            }
        }
        udp(generator, Payload::Bytes(1_150), Some(1_000_000_000), 1, true);
    }
    for streams in [1, 4] {
        for reverse in [false, true] {
            cases.push(Case::new(Load::Tcp { streams, reverse }));
        }
    }
    cases.push(Case::new(Load::Echo));
    cases.push(Case::new(Load::Calls));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let mut names: Vec<String> = all().into_iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for expected in [
            "iperf3-1150-2G-1f",
            "iperf3-1150-1G-1f-stock",
            "own-largest-max-4f",
            "tcp-down-4",
            "echo-64",
        ] {
            assert!(
                names.iter().any(|name| name == expected),
                "{expected} in {names:?}"
            );
        }
    }
}
