//! What `/proc` says about a process, the machine's processors, and the kernel's UDP receive errors.

use std::fs;

use serde::{Deserialize, Serialize};

/// Clock ticks per second of `/proc/PID/stat`: fixed at 100 for user space on Linux (`man 5 proc`, USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU and memory of a process at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time since its start, in seconds.
    pub cpu_seconds: f64,
    /// Largest resident size since its start or since [`reset_peak`], in bytes.
    pub peak_bytes: u64,
    /// Of the present resident size what is mapped from files, as the program's own code, in bytes.
    #[serde(default)]
    pub file_bytes: u64,
}

/// Reads the usage of process `pid`; zeros when it is gone.
#[must_use]
pub fn usage(pid: u32) -> Usage {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    Usage {
        cpu_seconds: cpu_seconds(&stat).unwrap_or(0.0),
        peak_bytes: size(&status, "VmHWM:").unwrap_or(0),
        file_bytes: size(&status, "RssFile:").unwrap_or(0),
    }
}

/// Starts the peak of `pid` again from its present size. Where the kernel refuses, peaks are since the start.
pub fn reset_peak(pid: u32) {
    // "5" resets VmHWM (`man 5 proc_pid_clear_refs`); peaks since the start are a fair answer without it.
    let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Datagrams that the kernel dropped for full receive buffers, IPv4 and IPv6, in this network namespace.
#[must_use]
pub fn receive_buffer_errors() -> u64 {
    let v4 = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/snmp6").unwrap_or_default();
    snmp_receive_errors(&v4) + snmp6_receive_errors(&v6)
}

/// Seconds that all cores together were busy since boot.
#[must_use]
pub fn machine_busy_seconds() -> f64 {
    busy_seconds(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// CPU time of all children of this process that have ended and were waited for, and of theirs, in seconds.
#[must_use]
pub fn ended_children_cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    times(&stat, 13).unwrap_or(0.0)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    times(stat, 11)
}

/// User and system time, which follow so many fields after the command's name.
fn times(stat: &str, skipped: usize) -> Option<f64> {
    // The command name stands in parentheses and may contain spaces and parentheses itself.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(skipped);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

fn size(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}

fn snmp_receive_errors(snmp: &str) -> u64 {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    let mut pairs = names
        .split_ascii_whitespace()
        .zip(values.split_ascii_whitespace());
    pairs
        .find(|(name, _)| *name == "RcvbufErrors")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

fn snmp6_receive_errors(snmp6: &str) -> u64 {
    let line = snmp6
        .lines()
        .find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn busy_seconds(stat: &str) -> f64 {
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix("cpu ")) else {
        return 0.0;
    };
    let ticks: Vec<f64> = line
        .split_ascii_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // user, nice, system, (idle, iowait), irq, softirq
    let busy: f64 = [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).sum();
    busy / TICKS_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_command_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds("42 (broken"), None);
    }

    #[test]
    fn peak_and_kernel_drops_are_found_by_name() {
        assert_eq!(size("Name:\tx\nVmHWM:\t    2048 kB\n", "VmHWM:"), Some(2 << 20));
        let snmp = "Ip: A B\nIp: 1 2\nUdp: InDatagrams RcvbufErrors\nUdp: 9 7\n";
        assert_eq!(snmp_receive_errors(snmp), 7);
        assert_eq!(
            snmp6_receive_errors("Udp6InErrors 1\nUdp6RcvbufErrors    \t5\n"),
            5
        );
        assert_eq!((snmp_receive_errors(""), snmp6_receive_errors("")), (0, 0));
    }

    #[test]
    fn a_busy_machine_does_not_count_idle_time() {
        assert_eq!(busy_seconds("cpu  100 0 200 9999 50 10 90 0 0 0\ncpu0 1\n"), 4.0);
    }

    #[test]
    fn this_process_has_a_size() {
        assert!(usage(std::process::id()).peak_bytes > 0);
    }
}
