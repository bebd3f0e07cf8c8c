//! What is called, how often at once, by how many clients, and who competes.

use serde::{Deserialize, Serialize};

/// Payload of the cases that measure calls rather than bytes: one number.
pub(super) const NUMBER_BYTES: usize = 8;

/// The largest payload, in bytes: what irpc takes in one message (16 MiB) less room for its framing.
const LARGEST_BYTES: usize = (16 << 20) - 64;

/// Who answers the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contestant {
    /// irpc within one process: channels, no serialisation.
    InProcess,
    /// irpc over irpc-uds with its defaults.
    Unix,
    /// irpc over irpc-uds that looks for datagrams before it sleeps, at both ends.
    UnixSpin,
    /// irpc over noq over UDP on the loopback device, with TLS.
    Quic,
    /// gRPC over a Unix stream socket.
    Tonic,
    /// tarpc with bincode over a Unix stream socket.
    Tarpc,
    /// Bytes over SOCK_SEQPACKET from blocking threads, without any protocol: the floor.
    Seqpacket,
    /// Bytes over SOCK_STREAM from blocking threads, without any protocol: the floor.
    Stream,
}

/// Everybody, in the order of the table.
pub(super) const ALL: [Contestant; 8] = [
    Contestant::InProcess,
    Contestant::Unix,
    Contestant::UnixSpin,
    Contestant::Quic,
    Contestant::Tonic,
    Contestant::Tarpc,
    Contestant::Seqpacket,
    Contestant::Stream,
];

impl Contestant {
    /// Name in the table and of `--only`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Unix => "unix",
            Self::UnixSpin => "unix-spin",
            Self::Quic => "quic-loopback",
            Self::Tonic => "tonic-unix",
            Self::Tarpc => "tarpc-unix",
            Self::Seqpacket => "raw-seqpacket",
            Self::Stream => "raw-stream",
        }
    }

    /// Whether it is neither irpc-uds nor the floor that this is measured against.
    pub(super) fn is_rival(self) -> bool {
        !matches!(self, Self::Unix | Self::UnixSpin | Self::Seqpacket | Self::Stream)
    }

    /// Whether it can do `load` with client and server placed so. tarpc has no streams within a call.
    pub(super) fn can(self, load: Load, place: Place) -> bool {
        match self {
            Self::InProcess => place == Place::OneProcess,
            Self::Tarpc => load != Load::Messages,
            _ => true,
        }
    }
}

/// Where client and server run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Place {
    /// In a process each, kept on a processor each, with one thread each for the runtime.
    TwoProcesses,
    /// In one process, on one runtime with as many threads as there are processors.
    OneProcess,
}

/// What the clients do for the time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Load {
    /// Each client, on a connection of its own, has so many calls under way at any time; each call takes a payload and
    /// answers with one of the same length.
    Calls {
        clients: usize,
        parallel: usize,
        payload_bytes: usize,
    },
    /// One client writes numbers into one stream without waiting, and reads an answer to each.
    Messages,
}

impl Load {
    /// Connections that it needs.
    pub(super) fn clients(self) -> usize {
        match self {
            Self::Calls { clients, .. } => clients,
            Self::Messages => 1,
        }
    }

    /// Bytes of a call or message in each direction.
    pub(super) fn payload_bytes(self) -> usize {
        match self {
            Self::Calls { payload_bytes, .. } => payload_bytes,
            Self::Messages => NUMBER_BYTES,
        }
    }
}

/// One case of the table.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Case {
    /// Name in the table and of `--only`.
    pub(super) name: &'static str,
    /// What the clients do.
    pub(super) load: Load,
    /// Whether the median of several rounds counts.
    pub(super) headline: bool,
}

impl Case {
    /// Whether one of `only` is in `case/contestant`; no pattern chooses everything.
    pub(super) fn is_chosen(&self, contestant: Contestant, only: &[String]) -> bool {
        let name = format!("{}/{}", self.name, contestant.name());
        only.is_empty() || only.iter().any(|pattern| name.contains(pattern.as_str()))
    }

    /// Heading in the table.
    pub(super) fn heading(&self) -> String {
        match self.load {
            Load::Calls {
                clients,
                parallel,
                payload_bytes,
            } => format!(
                "{}: {clients} client{}, {parallel} at once, {payload_bytes} bytes each way",
                self.name,
                if clients == 1 { "" } else { "s" }
            ),
            Load::Messages => format!(
                "{}: {NUMBER_BYTES}-byte messages both ways in one stream",
                self.name
            ),
        }
    }
}

/// All cases, in the order of the table.
pub(super) fn all() -> Vec<Case> {
    let case = |name, clients, parallel, payload_bytes, headline| Case {
        name,
        load: Load::Calls {
            clients,
            parallel,
            payload_bytes,
        },
        headline,
    };
    vec![
        case("sequential", 1, 1, NUMBER_BYTES, true),
        case("parallel-8", 1, 8, NUMBER_BYTES, false),
        case("parallel-32", 1, 32, NUMBER_BYTES, true),
        case("parallel-256", 1, 256, NUMBER_BYTES, false),
        Case {
            name: "messages",
            load: Load::Messages,
            headline: true,
        },
        case("clients-16", 16, 1, NUMBER_BYTES, false),
        case("clients-128", 128, 1, NUMBER_BYTES, false),
        case("payload-1KiB", 1, 1, 1 << 10, false),
        case("payload-64KiB", 1, 1, 64 << 10, false),
        case("payload-16MiB", 1, 1, LARGEST_BYTES, true),
    ]
}
