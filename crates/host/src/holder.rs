//! The process that a change to the host belongs to, and whether it lives.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// A process, distinguished from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) id: u32,
    /// When it started, in the kernel's ticks since boot.
    pub(crate) started_ticks: u64,
}

/// A process on this boot of this machine, in its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    #[serde(flatten)]
    pub(crate) process: Process,
    boot: String,
    /// Number of the network namespace.
    network: u64,
}

impl Process {
    /// This one.
    pub(crate) fn this() -> io::Result<Self> {
        Self::running(std::process::id())
    }

    /// The one that has this number at present.
    pub(crate) fn running(id: u32) -> io::Result<Self> {
        let (_, started_ticks) = state_of(id).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { id, started_ticks })
    }

    /// Whether it runs; one that only waits for its parent to notice its end does not. A process that `/proc` hides
    /// counts as running, because undoing a living process's changes is worse than leaving a dead one's.
    pub(crate) fn is_running(self) -> bool {
        match state_of(self.id) {
            Some((state, started)) => started == self.started_ticks && !matches!(state, 'Z' | 'X' | 'x'),
            None => exists(self.id),
        }
    }
}

impl Holder {
    /// This process, and the network of the calling thread.
    pub(crate) fn this() -> io::Result<Self> {
        Self::of(Process::this()?)
    }

    /// Another process in the network of the calling thread.
    pub(crate) fn of(process: Process) -> io::Result<Self> {
        Ok(Self {
            process,
            boot: boot()?,
            network: network()?,
        })
    }

    /// Whether the process runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.is_of_this_boot() && self.process.is_running()
    }

    /// Whether its changes may still be in effect at all.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
    }

    /// Whether its changes are in the network of the calling thread.
    pub(crate) fn is_of_this_network(&self) -> bool {
        network().is_ok_and(|network| network == self.network)
    }
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

fn network() -> io::Result<u64> {
    // Before Linux 5.14 the inode must do, which may later be another namespace's.
    packet_io::network_cookie().or_else(|_| Ok(fs::metadata("/proc/thread-self/ns/net")?.ino()))
}

/// Whether there is a process with this number, also where `/proc` hides those with other users or more capabilities
/// (`hidepid`, proc(5)).
fn exists(id: u32) -> bool {
    let process = i32::try_from(id).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| !matches!(test_kill_process(process), Err(Errno::SRCH)))
}

/// State letter and start time of a process.
fn state_of(id: u32) -> Option<(char, u64)> {
    parse_state(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

fn parse_state(stat: &str) -> Option<(char, u64)> {
    // Behind the name in parentheses, which may hold anything, stands the state; the start time is 19 fields on.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_with_another_start_does_not() {
        let this = Holder::this().unwrap();
        assert!(this.is_alive() && this.is_of_this_network());
        let mut earlier = this.clone();
        earlier.process.started_ticks += 1;
        assert!(!earlier.is_alive());
        let rebooted = Holder {
            boot: "before".to_owned(),
            ..this
        };
        assert!(!rebooted.is_alive());
    }

    #[test]
    fn a_process_exists_until_it_was_waited_for() {
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let id = child.id();
        assert!(exists(id) && exists(1) && !exists(0));
        child.wait().unwrap();
        assert!(!exists(id));
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse() {
        let stat = "7 (a) b (c)) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
        assert_eq!(parse_state(stat), Some(('Z', 4242)));
        assert_eq!(parse_state("7 (a) S 1 2"), None);
    }
}
