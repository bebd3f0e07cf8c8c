//! Round trips as `ping` measures them.

use std::net::Ipv4Addr;
use std::process::Stdio;

use serde::Serialize;
use testbed::namespace::Namespace;

use crate::Error;
use crate::error::During;
use crate::median::percentile;

/// Pings per second.
pub(super) const PER_SECOND: u32 = 100;

/// Seconds that the last answers may take.
const PATIENCE_SECONDS: &str = "2";

/// What a series of pings met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct PingReport {
    /// Pings sent.
    pub(super) sent: u32,
    /// Pings without an answer.
    pub(super) lost: u32,
    /// Median in milliseconds.
    pub(super) p50_ms: f64,
    /// 99th percentile in milliseconds, of those answered.
    pub(super) p99_ms: f64,
}

/// Pings for so many seconds from a namespace.
///
/// # Errors
/// When `ping` is missing.
pub(super) fn measure(from: &Namespace, to: Ipv4Addr, seconds: u32) -> Result<PingReport, Error> {
    let sent = seconds * PER_SECOND;
    let interval = format!("{}", 1.0 / f64::from(PER_SECOND));
    let mut command = from.command("ping");
    command.args([
        "-n",
        "-i",
        &interval,
        "-c",
        &sent.to_string(),
        "-W",
        PATIENCE_SECONDS,
    ]);
    command.arg(to.to_string());
    // It fails where nothing is answered; then the report says so.
    let output = command
        .stdin(Stdio::null())
        .output()
        .during(|| "start ping".to_owned())?;
    Ok(parse(&String::from_utf8_lossy(&output.stdout), sent))
}

fn parse(output: &str, sent: u32) -> PingReport {
    let time = |line: &str| {
        line.split_once("time=")?
            .1
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    };
    let answers = output.lines().filter(|line| !line.contains("(DUP!)"));
    let mut times: Vec<f64> = answers.filter_map(time).collect();
    let answered = u32::try_from(times.len()).unwrap_or(u32::MAX);
    PingReport {
        sent,
        lost: sent.saturating_sub(answered),
        p50_ms: percentile(&mut times, 0.5),
        p99_ms: percentile(&mut times, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_once_and_missing_ones_are_lost() {
        let output = "PING 10.98.0.1 (10.98.0.1) 56(84) bytes of data.\n\
            64 bytes from 10.98.0.1: icmp_seq=1 ttl=64 time=20.5 ms\n\
            64 bytes from 10.98.0.1: icmp_seq=1 ttl=64 time=21.5 ms (DUP!)\n\
            64 bytes from 10.98.0.1: icmp_seq=3 ttl=64 time=40.0 ms\n\
            rtt min/avg/max/mdev = 20.5/30.0/40.0/1.0 ms\n";
        let report = parse(output, 3);
        assert_eq!((report.sent, report.lost), (3, 1));
        assert_eq!((report.p50_ms, report.p99_ms), (20.5, 40.0));
    }
}
