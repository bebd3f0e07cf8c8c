//! The cases: what is sent, and over which wire.

use serde::Serialize;

use crate::emulator::LinkSettings;

/// Bytes per UDP datagram: what most tunnels and games send at most.
const DATAGRAM_BYTES: usize = 1_150;

/// The offered rate at which loss is compared, in bits per second.
const OFFERED: u64 = 1_000_000_000;

/// A long way with a little loss: 20 ms there and back, 0.1 % each way.
const LONG_WAY: LinkSettings = LinkSettings {
    delay_us: 10_000,
    jitter_us: 0,
    loss: 0.001,
    duplicate: 0.0,
    reorder: 0.0,
    rate_bits_per_second: None,
    queue_bytes: None,
};

/// A home's line: 100 Mbit/s, 20 ms there and back. Its queue holds 10 ms, so that what a ping waits longer is the
/// tunnel's own.
const HOME_LINE: LinkSettings = LinkSettings {
    loss: 0.0,
    rate_bits_per_second: Some(100_000_000),
    queue_bytes: Some(125_000),
    ..LONG_WAY
};

/// Shortest run over the long way, in seconds: some 70 losses. With the 20 of ten seconds, two runs of the same contestant
/// differed by half.
const LONG_WAY_SECONDS_MIN: u32 = 30;

/// Shortest run beside pings or calls, in seconds: 99th percentiles of fewer than 500 say little.
const PING_SECONDS_MIN: u32 = 5;

/// The default of Linux: a loss halves it, nearly, and it fills queues.
pub(super) const CUBIC: &str = "cubic";

/// What many servers run: it sends on through losses, so what a tunnel's own congestion control takes away shows.
const BBR: &str = "bbr";

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Case {
    /// What `--only` matches.
    pub(super) name: &'static str,
    /// What is sent.
    pub(super) load: Load,
    /// The emulated link; none is a cable.
    pub(super) link: Option<LinkSettings>,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Load {
    /// iperf3's TCP.
    Tcp {
        /// Congestion control of both ends.
        congestion: &'static str,
        /// Parallel connections.
        streams: usize,
        /// The server sends.
        reverse: bool,
    },
    /// iperf3's UDP from client to server.
    Udp {
        /// Bytes per datagram.
        payload_bytes: usize,
        /// Bits per second; none is as fast as possible.
        offered: Option<u64>,
    },
    /// Calls beside one flow of ours that is as fast as possible, in super-packets.
    Calls {
        /// Bytes per datagram of the flood.
        payload_bytes: u32,
        /// All from the server.
        reverse: bool,
    },
    /// Pings on the idle path, then beside one TCP connection with the usual congestion control.
    Ping,
}

impl crate::matrix::Case for Case {
    fn name(&self) -> &str {
        self.name
    }
}

impl Case {
    /// How long a run takes, when this is what the user wants.
    pub(super) fn seconds(&self, wanted: u32) -> u32 {
        match (self.load, self.link) {
            (Load::Ping | Load::Calls { .. }, _) => wanted.max(PING_SECONDS_MIN),
            (_, Some(_)) => wanted.max(LONG_WAY_SECONDS_MIN),
            (_, None) => wanted.max(1),
        }
    }
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    let tcp = |congestion, streams, reverse| Load::Tcp {
        congestion,
        streams,
        reverse,
    };
    let udp = |offered| Load::Udp {
        payload_bytes: DATAGRAM_BYTES,
        offered,
    };
    let calls = |reverse| Load::Calls {
        payload_bytes: DATAGRAM_BYTES as u32,
        reverse,
    };
    let case = |name, load, link| Case { name, load, link };
    vec![
        case("tcp-up-1", tcp(CUBIC, 1, false), None),
        case("tcp-down-1", tcp(CUBIC, 1, true), None),
        case("tcp-up-4", tcp(CUBIC, 4, false), None),
        case("tcp-down-4", tcp(CUBIC, 4, true), None),
        case("tcp-up-1-bbr", tcp(BBR, 1, false), None),
        case("udp-1150-1G", udp(Some(OFFERED)), None),
        case("udp-1150-max", udp(None), None),
        case("calls-beside-max-up", calls(false), None),
        case("calls-beside-max-down", calls(true), None),
        case("wan-up", tcp(CUBIC, 1, false), Some(LONG_WAY)),
        case("wan-down", tcp(CUBIC, 1, true), Some(LONG_WAY)),
        case("wan-up-bbr", tcp(BBR, 1, false), Some(LONG_WAY)),
        case("ping-beside-tcp", Load::Ping, Some(HOME_LINE)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_over_a_long_way_are_never_too_short_to_tell() {
        let seconds = |name: &str, wanted| {
            all()
                .iter()
                .find(|case| case.name == name)
                .map(|case| case.seconds(wanted))
        };
        assert_eq!(seconds("tcp-up-1", 0), Some(1));
        assert_eq!(seconds("wan-up", 3), Some(30));
        assert_eq!(seconds("wan-up", 40), Some(40));
        assert_eq!(seconds("ping-beside-tcp", 1), Some(5));
    }
}
