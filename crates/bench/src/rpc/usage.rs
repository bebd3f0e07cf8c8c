//! What this process has used: processor time to the nanosecond, sleeps, memory.

use std::fs;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Use of a process up to a moment, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Usage {
    /// User and system time of all threads, in seconds.
    pub(super) cpu_seconds: f64,
    /// Voluntary context switches of all threads that live: how often one went to sleep.
    pub(super) sleeps: u64,
    /// Largest resident size since its start, in bytes.
    pub(super) peak_bytes: u64,
}

impl Usage {
    /// Up to now.
    pub(super) fn of_this_process() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let sleeps = threads
            .filter_map(|thread| sleeps(&fs::read_to_string(thread.path().join("status")).ok()?))
            .sum();
        Self {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            sleeps,
            peak_bytes: testbed::usage::usage(std::process::id()).peak_bytes,
        }
    }

    /// From `before` to `self`; the peak stays.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            sleeps: self.sleeps.saturating_sub(before.sleeps),
            peak_bytes: self.peak_bytes,
        }
    }

    /// Of two processes together; the larger peak.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            sleeps: self.sleeps + other.sleeps,
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
        }
    }
}

/// Voluntary context switches of the calling thread; a thread that ends takes them out of its process's sum.
pub(super) fn sleeps_of_this_thread() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    sleeps(&status).unwrap_or(0)
}

fn sleeps(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_moments_make_a_difference_and_two_processes_a_sum() {
        let usage = |cpu_seconds, sleeps, peak_bytes| Usage {
            cpu_seconds,
            sleeps,
            peak_bytes,
        };
        let client = usage(3.0, 10, 100).since(usage(1.0, 4, 90));
        assert_eq!(client, usage(2.0, 6, 100));
        assert_eq!(client.and(usage(0.5, 1, 300)), usage(2.5, 7, 300));
        assert_eq!(
            sleeps("Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t1\n"),
            Some(42)
        );
        assert!(Usage::of_this_process().cpu_seconds > 0.0);
    }
}
