//! System calls of running processes, counted by the kernel through `perf stat`.
//!
//! A library's own counters miss what its runtime asks the system: epoll, wake-ups, timers. perf counts all of it. It
//! needs the program and the permission (root, usually); without them the column is empty.

use std::process::Command;
use std::time::Duration;

use testbed::process::{Process, Signal};

/// Every system call of a thread, as it enters the kernel.
const EVENT: &str = "raw_syscalls:sys_enter";

/// How long perf may take to attach, to switch, to report.
const PATIENCE: Duration = Duration::from_secs(3);

/// A counter attached to processes, not counting yet.
#[derive(Debug)]
pub(super) struct SystemCalls {
    perf: Process,
}

impl SystemCalls {
    /// Attaches to all threads of `processes`; `None` where perf is missing or not allowed to.
    pub(super) fn attach(processes: &[u32]) -> Option<Self> {
        let processes: Vec<String> = processes.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", EVENT, "--delay=-1", "--control=fd:0,1", "-p"]);
        command.arg(processes.join(","));
        let perf = Process::start(command, "perf").ok()?;
        Some(Self { perf })
    }

    /// Starts counting.
    pub(super) fn start(&mut self) -> Option<()> {
        self.switch("enable")
    }

    /// Stops counting and returns the count.
    pub(super) fn finish(mut self) -> Option<u64> {
        self.switch("disable")?;
        self.perf.signal(Signal::INT);
        count(&self.perf.wait_for_line(EVENT, PATIENCE).ok()?)
    }

    fn switch(&mut self, command: &str) -> Option<()> {
        self.perf.tell(command).ok()?;
        // perf ends its answers with a zero byte behind the line's end.
        self.perf.next_line_where(PATIENCE, |line| line.contains("ack"))?;
        Some(())
    }
}

fn count(line: &str) -> Option<u64> {
    line.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_read_and_a_refusal_is_none() {
        assert_eq!(count("144,,raw_syscalls:sys_enter,1562209,100.00,,"), Some(144));
        assert_eq!(count("<not counted>,,raw_syscalls:sys_enter,0,100.00,,"), None);
    }
}
