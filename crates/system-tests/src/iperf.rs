//! Load from iperf3, and what it measured.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::limits::{IPERF_GRACE, PROGRAM_LIMIT};
use crate::place::Place;
use crate::process::Process;

/// A running `iperf3 -s`; it serves one test after the other.
pub struct IperfServer {
    process: Process,
}

impl IperfServer {
    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// When it does not within 30 s.
    #[must_use]
    pub fn start(place: &Place, address: IpAddr, port: u16, directory: &Path) -> Self {
        let mut command = place.command("iperf3");
        command.args([
            "-s",
            "--forceflush",
            "-B",
            &address.to_string(),
            "-p",
            &port.to_string(),
        ]);
        let mut process = Process::start(command, &format!("iperf3-server-{port}"), directory);
        process.wait_for_line("Server listening", PROGRAM_LIMIT);
        Self { process }
    }

    /// The process, e.g. to stop it for a while.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// What a test is to do.
#[derive(Clone, Debug)]
pub struct IperfLoad {
    /// Where it connects to.
    pub address: IpAddr,
    /// Port of control connection and load.
    pub port: u16,
    /// UDP instead of TCP.
    pub udp: bool,
    /// How long.
    pub seconds: u32,
    /// Further arguments, e.g. `["-l", "1150", "-b", "100M"]` or `["-R"]`.
    pub arguments: Vec<String>,
}

/// What iperf3 measured, all streams together.
#[derive(Clone, Debug, PartialEq)]
pub struct IperfReport {
    /// Bits of payload per second that the sender sent.
    pub sent_bits_per_second: f64,
    /// Bits of payload per second that the receiver got.
    pub received_bits_per_second: f64,
    /// Bytes that the receiver got.
    pub received_bytes: u64,
    /// UDP: datagrams sent.
    pub packets: u64,
    /// UDP: datagrams that did not arrive, by their numbers.
    pub lost_packets: u64,
    /// UDP: the same as a percentage.
    pub lost_percent: f64,
}

/// Runs a test to its end.
///
/// # Errors
/// What iperf3 says when it cannot connect or loses its server.
///
/// # Panics
/// When it cannot be started, takes 30 s longer than asked for, or prints no report.
pub fn run_iperf(place: &Place, load: &IperfLoad, directory: &Path) -> Result<IperfReport, String> {
    let mut command: Command = place.command("iperf3");
    command.args([
        "-J",
        "-c",
        &load.address.to_string(),
        "-p",
        &load.port.to_string(),
    ]);
    command
        .args(["-t", &load.seconds.to_string()])
        .args(load.udp.then_some("-u"))
        .args(&load.arguments);
    let mut process = Process::start(command, &format!("iperf3-client-{}", load.port), directory);
    process.wait(Duration::from_secs(u64::from(load.seconds)) + IPERF_GRACE);
    let text = process.stdout();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("iperf3 printed no report ({error}):\n{text}{}", process.stderr()));
    parse(&report, load.udp)
}

fn parse(report: &Value, udp: bool) -> Result<IperfReport, String> {
    if let Some(error) = report.get("error").and_then(Value::as_str) {
        return Err(error.to_owned());
    }
    let end = &report["end"];
    let number = |section: &str, name: &str| end[section][name].as_f64();
    let missing = || format!("iperf3's report lacks its sums: {end}");
    // Older versions sum UDP up in one section, with the sender's rate and the receiver's losses.
    let either =
        |section, name| number(section, name).or_else(|| if udp { number("sum", name) } else { None });
    let count = |value: f64| value.max(0.0) as u64;
    Ok(IperfReport {
        sent_bits_per_second: either("sum_sent", "bits_per_second").ok_or_else(missing)?,
        received_bits_per_second: either("sum_received", "bits_per_second").ok_or_else(missing)?,
        received_bytes: count(either("sum_received", "bytes").ok_or_else(missing)?),
        packets: count(number("sum", "packets").unwrap_or(0.0)),
        lost_packets: count(number("sum", "lost_packets").unwrap_or(0.0)),
        lost_percent: number("sum", "lost_percent").unwrap_or(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_udp_report_has_rates_and_losses() {
        let report = json!({"end": {
            "sum": {"bits_per_second": 1e6, "packets": 1000, "lost_packets": 10, "lost_percent": 1.0},
            "sum_sent": {"bits_per_second": 1e6, "bytes": 125_000},
            "sum_received": {"bits_per_second": 0.99e6, "bytes": 123_750}
        }});
        let parsed = parse(&report, true).unwrap();
        assert_eq!(
            (parsed.packets, parsed.lost_packets, parsed.received_bytes),
            (1000, 10, 123_750)
        );
        assert!((parsed.received_bits_per_second - 0.99e6).abs() < 1.0);
    }

    #[test]
    fn a_failed_test_gives_its_error() {
        assert_eq!(
            parse(&json!({"error": "unable to connect"}), false),
            Err("unable to connect".to_owned())
        );
        assert!(
            parse(&json!({"end": {}}), false)
                .unwrap_err()
                .contains("lacks its sums")
        );
    }
}
