//! iperf3 as the foreign generator and sink: a server, runs of the client, and its JSON read.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::Error;
use crate::limits::{IPERF_GRACE, IPERF_READY_LIMIT};
use crate::place::Place;
use crate::process::Process;

/// One run of the client.
#[derive(Clone, Debug)]
pub struct IperfRun {
    /// Where the server is reached: its own address or the entrance of a tunnel.
    pub address: SocketAddr,
    /// How long, in whole seconds.
    pub seconds: u32,
    /// `-P`.
    pub streams: usize,
    /// `-w 4M`, or the system's default.
    pub large_buffers: bool,
    /// `-C`: TCP's congestion control, or the system's default.
    pub congestion: Option<&'static str>,
    /// `-b` of a TCP stream: no more bits per second than this.
    pub tcp_rate_max: Option<u64>,
    /// What to run.
    pub mode: IperfMode,
}

impl IperfRun {
    /// One TCP stream from client to server, with the system's defaults.
    #[must_use]
    pub fn tcp(address: SocketAddr, seconds: u32) -> Self {
        Self {
            address,
            seconds,
            streams: 1,
            large_buffers: false,
            congestion: None,
            tcp_rate_max: None,
            mode: IperfMode::Tcp { reverse: false },
        }
    }

    /// One UDP flow from client to server, with the system's buffers.
    #[must_use]
    pub fn udp(
        address: SocketAddr,
        seconds: u32,
        payload_bytes: usize,
        offered_bits_per_second: Option<u64>,
    ) -> Self {
        let mode = IperfMode::Udp {
            reverse: false,
            payload_bytes,
            offered_bits_per_second,
        };
        Self {
            mode,
            ..Self::tcp(address, seconds)
        }
    }

    /// The same with the server sending.
    #[must_use]
    pub fn reversed(mut self) -> Self {
        let (IperfMode::Udp { reverse, .. } | IperfMode::Tcp { reverse }) = &mut self.mode;
        *reverse = true;
        self
    }
}

/// UDP or TCP.
#[derive(Clone, Copy, Debug)]
pub enum IperfMode {
    /// `-u`.
    Udp {
        /// `-R`: the server sends.
        reverse: bool,
        /// `-l`.
        payload_bytes: usize,
        /// Of all streams together; `None` is unlimited (`-b 0`).
        offered_bits_per_second: Option<u64>,
    },
    /// TCP.
    Tcp {
        /// `-R`: the server sends.
        reverse: bool,
    },
}

impl IperfMode {
    fn is_reverse(self) -> bool {
        let (Self::Udp { reverse, .. } | Self::Tcp { reverse }) = self;
        reverse
    }
}

/// What iperf3 says about a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IperfResult {
    /// Payload bits per second that left the sender.
    pub sender_bits_per_second: f64,
    /// Payload bits per second that arrived.
    pub receiver_bits_per_second: f64,
    /// Lost fraction, 0 to 1; UDP only.
    pub loss: f64,
    /// Datagrams sent; UDP only.
    pub datagrams: u64,
    /// Datagrams that did not arrive, by their numbers; UDP only.
    pub lost_datagrams: u64,
    /// Payload bytes that arrived.
    pub received_bytes: f64,
    /// How long, in seconds.
    pub seconds: f64,
    /// CPU seconds of the sending iperf3.
    pub sender_cpu_seconds: f64,
    /// CPU seconds of the receiving iperf3.
    pub receiver_cpu_seconds: f64,
}

/// The rate of a tenth of a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStep {
    /// Seconds since the start of the run, at the end of the step.
    pub seconds: f64,
    /// Payload bits per second that arrived.
    pub bits_per_second: f64,
}

/// Seconds of a [`RateStep`].
const STEP_SECONDS: &str = "0.1";

/// A server, which takes one run after the other, or one in steps.
#[derive(Debug)]
pub struct IperfServer(Process);

impl IperfServer {
    /// Starts a server on `address` and waits until it listens.
    ///
    /// # Errors
    /// When iperf3 is missing or the port is taken.
    pub fn start(place: &Place, address: SocketAddr) -> Result<Self, Error> {
        Self::start_with(place, address, &[])
    }

    /// The same for [`run_in_steps`]: it takes one run and ends.
    ///
    /// # Errors
    /// When iperf3 is missing or the port is taken.
    pub fn start_in_steps(place: &Place, address: SocketAddr) -> Result<Self, Error> {
        Self::start_with(place, address, &["-1", "-i", STEP_SECONDS, "-f", "k"])
    }

    fn start_with(place: &Place, address: SocketAddr, more: &[&str]) -> Result<Self, Error> {
        let mut command = place.command("iperf3");
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        command.args(["-s", "--forceflush", "-B", &ip, "-p", &port]);
        command.args(more);
        let mut process = Process::start(command, &format!("iperf3 -s on {address}"))?;
        process.wait_for_line("Server listening", IPERF_READY_LIMIT)?;
        Ok(Self(process))
    }

    /// What arrived in each tenth of a second, once the client has ended. It prints them, whatever the client asks for.
    fn steps(&mut self) -> Result<Vec<RateStep>, Error> {
        self.0.wait(IPERF_GRACE)?;
        Ok(self.0.stdout().lines().filter_map(step_of).collect())
    }
}

/// Whether it is installed, and runs.
#[must_use]
pub fn is_installed() -> bool {
    let status = Command::new("iperf3")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// Runs the client against a server that listens already.
///
/// # Errors
/// When iperf3 says so, or does not end.
pub fn run(place: &Place, run: &IperfRun) -> Result<IperfResult, Error> {
    parse(&output(place, run, &[])?, run.mode)
}

/// The same for a TCP stream, with what arrived in each tenth of a second. The server was started for it.
///
/// # Errors
/// When iperf3 says so, or does not end.
pub fn run_in_steps(
    place: &Place,
    run: &IperfRun,
    server: &mut IperfServer,
) -> Result<(IperfResult, Vec<RateStep>), Error> {
    let json = output(place, run, &["-i", STEP_SECONDS])?;
    let result = parse(&json, run.mode)?;
    let steps = if matches!(run.mode, IperfMode::Tcp { reverse: true }) {
        steps_of(&json)
    } else {
        server.steps()?
    };
    Ok((result, steps))
}

fn output(place: &Place, run: &IperfRun, more: &[&str]) -> Result<String, Error> {
    let mut command = place.command("iperf3");
    command.args(arguments(run)).args(more);
    let mut process = Process::start(command, &format!("iperf3 through {}", run.address))?;
    process.wait(Duration::from_secs(u64::from(run.seconds)) + IPERF_GRACE)?;
    let output = process.stdout();
    if output.is_empty() {
        let reason = process.last_words();
        return Err(Error::Iperf(format!("{reason} (through {})", run.address)));
    }
    Ok(output)
}

/// The steps in the JSON of a client that received.
fn steps_of(json: &str) -> Vec<RateStep> {
    let root: Value = serde_json::from_str(json).unwrap_or_default();
    let step = |interval: &Value| {
        let number = |name: &str| interval["sum"][name].as_f64();
        Some(RateStep {
            seconds: number("end")?,
            bits_per_second: number("bits_per_second")?,
        })
    };
    let intervals = root["intervals"].as_array();
    intervals.into_iter().flatten().filter_map(step).collect()
}

/// The step in a line of a server that received: `[  5]   0.00-0.10   sec   512 KBytes  41943 Kbits/sec`. Sums end with
/// another word.
fn step_of(line: &str) -> Option<RateStep> {
    let mut words = line
        .trim_end()
        .strip_suffix("Kbits/sec")?
        .split_ascii_whitespace();
    let (_, end) = words.find_map(|word| word.split_once('-'))?;
    Some(RateStep {
        seconds: end.parse().ok()?,
        bits_per_second: words.next_back()?.parse::<f64>().ok()? * 1e3,
    })
}

fn arguments(run: &IperfRun) -> Vec<String> {
    let mut arguments = vec!["-J".to_owned()];
    let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    option("-c", run.address.ip().to_string());
    option("-p", run.address.port().to_string());
    option("-t", run.seconds.to_string());
    option("-P", run.streams.to_string());
    if let Some(rate) = run.tcp_rate_max {
        option("-b", rate.to_string());
    }
    if run.large_buffers {
        option("-w", "4M".to_owned());
    }
    if let Some(congestion) = run.congestion {
        option("-C", congestion.to_owned());
    }
    match run.mode {
        IperfMode::Udp {
            payload_bytes,
            offered_bits_per_second,
            ..
        } => {
            option("-l", payload_bytes.to_string());
            // iperf3 takes the rate per stream.
            option(
                "-b",
                (offered_bits_per_second.unwrap_or(0) / run.streams.max(1) as u64).to_string(),
            );
            arguments.push("-u".to_owned());
        }
        IperfMode::Tcp { .. } => {}
    }
    if run.mode.is_reverse() {
        arguments.push("-R".to_owned());
    }
    arguments
}

/// Reads the client's JSON.
///
/// # Errors
/// When it is no JSON, reports an error, or lacks the sums.
fn parse(json: &str, mode: IperfMode) -> Result<IperfResult, Error> {
    let root: Value = serde_json::from_str(json)
        .map_err(|error| Error::Iperf(format!("its result is no JSON: {error}")))?;
    if let Some(error) = root.get("error").and_then(Value::as_str) {
        return Err(Error::Iperf(error.to_owned()));
    }
    let end = &root["end"];
    let number = |path: &str| end.pointer(path).and_then(Value::as_f64);
    let sums = [
        number("/sum_sent/bits_per_second"),
        number("/sum_received/seconds"),
        number("/sum_sent/seconds"),
    ];
    let [Some(sent), Some(received_seconds), Some(seconds)] = sums else {
        return Err(Error::Iperf(
            "its result has no sums; 3.12 or newer is needed".to_owned(),
        ));
    };
    let cpu =
        |name: &str| number(&format!("/cpu_utilization_percent/{name}")).unwrap_or(0.0) / 100.0 * seconds;
    let (mut sender_cpu_seconds, mut receiver_cpu_seconds) = (cpu("host_total"), cpu("remote_total"));
    if mode.is_reverse() {
        std::mem::swap(&mut sender_cpu_seconds, &mut receiver_cpu_seconds);
    }
    let mut result = IperfResult {
        sender_bits_per_second: sent,
        receiver_bits_per_second: number("/sum_received/bits_per_second").unwrap_or(0.0),
        received_bytes: number("/sum_received/bytes").unwrap_or(0.0),
        seconds,
        sender_cpu_seconds,
        receiver_cpu_seconds,
        ..IperfResult::default()
    };
    if let IperfMode::Udp { payload_bytes, .. } = mode {
        // Versions differ in whether sum_received holds bytes sent or received; packet counts are unambiguous.
        let packets = number("/sum/packets").unwrap_or(0.0);
        let lost = number("/sum/lost_packets").unwrap_or(0.0).max(0.0);
        let arrived = (packets - lost).max(0.0);
        result.lost_datagrams = lost as u64;
        result.datagrams = number("/sum_sent/packets").unwrap_or(packets) as u64;
        result.received_bytes = arrived * payload_bytes as f64;
        let span = if received_seconds > 0.0 {
            received_seconds
        } else {
            seconds
        };
        result.receiver_bits_per_second = result.received_bytes * 8.0 / span.max(1e-9);
        result.loss = if packets > 0.0 {
            1.0 - arrived / packets
        } else {
            1.0
        };
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: IperfMode = IperfMode::Udp {
        reverse: false,
        payload_bytes: 1_000,
        offered_bits_per_second: Some(1_000_000_000),
    };

    const UDP_JSON: &str = r#"{"start":{},"intervals":[],"end":{"streams":[],
        "sum":{"seconds":2.0,"bytes":200000000,"packets":200000,"lost_packets":50000,"lost_percent":25},
        "sum_sent":{"seconds":2.0,"bytes":200000000,"bits_per_second":8e8,"packets":200000},
        "sum_received":{"seconds":2.0,"bytes":200000000,"bits_per_second":8e8},
        "cpu_utilization_percent":{"host_total":50.0,"remote_total":25.0}}}"#;

    const TCP_JSON: &str = r#"{"end":{"sum_sent":{"seconds":1.0,"bytes":500000000,"bits_per_second":4e9},
        "sum_received":{"seconds":1.0,"bytes":490000000,"bits_per_second":3.92e9},
        "cpu_utilization_percent":{"host_total":40.0,"remote_total":99.0}}}"#;

    #[test]
    fn the_udp_receiver_rate_counts_only_what_arrived() {
        let result = parse(UDP_JSON, UDP).unwrap();
        assert_eq!(
            (result.sender_bits_per_second, result.receiver_bits_per_second),
            (8e8, 6e8)
        );
        assert_eq!((result.loss, result.datagrams), (0.25, 200_000));
        assert_eq!(result.lost_datagrams, 50_000);
        assert_eq!(
            (result.sender_cpu_seconds, result.receiver_cpu_seconds),
            (1.0, 0.5)
        );
    }

    #[test]
    fn in_reverse_the_sending_side_is_the_server() {
        let result = parse(TCP_JSON, IperfMode::Tcp { reverse: true }).unwrap();
        assert_eq!(
            (result.sender_bits_per_second, result.receiver_bits_per_second),
            (4e9, 3.92e9)
        );
        assert_eq!(
            (result.sender_cpu_seconds, result.receiver_cpu_seconds),
            (0.99, 0.4)
        );
    }

    #[test]
    fn steps_are_read_from_the_receiving_end() {
        let step = step_of("[  5]   0.20-0.30   sec   512 KBytes  41943 Kbits/sec                  ");
        let wanted = RateStep {
            seconds: 0.3,
            bits_per_second: 41_943_000.0,
        };
        assert_eq!(step, Some(wanted));
        let sum = "[  5]   0.00-1.00   sec  5 MBytes  41943 Kbits/sec                  receiver";
        assert_eq!(step_of(sum), None);
        let json = r#"{"intervals":[{"sum":{"end":0.3,"bits_per_second":41943000.0}},{}]}"#;
        assert_eq!(steps_of(json), [wanted]);
    }

    #[test]
    fn an_error_of_iperf3_is_passed_on_and_nonsense_is_refused() {
        let refused = parse(r#"{"end":{},"error":"unable to connect to server"}"#, UDP).unwrap_err();
        assert_eq!(refused.to_string(), "iperf3 failed: unable to connect to server");
        assert!(parse("{", UDP).is_err());
        assert!(parse(r#"{"end":{}}"#, UDP).is_err());
    }

    #[test]
    fn the_offered_rate_is_divided_over_the_streams() {
        let address = SocketAddr::from(([127, 0, 0, 1], 5_201));
        let run = IperfRun {
            address,
            seconds: 2,
            streams: 4,
            large_buffers: true,
            congestion: None,
            tcp_rate_max: None,
            mode: UDP,
        };
        let text = arguments(&run).join(" ");
        assert_eq!(
            text,
            "-J -c 127.0.0.1 -p 5201 -t 2 -P 4 -w 4M -l 1000 -b 250000000 -u"
        );
    }
}
