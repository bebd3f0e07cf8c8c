//! One transfer by one contestant, from its start to its end: how long it took, and what all its processes used.
//!
//! The same rule holds for all. Time runs from the start of the sending command (of a contestant that fetches by ssh: of
//! its only command) to the end of the receiving one, which starts the moment the sender says how it is met: whatever a
//! sender does before, as hashing, is inside. Servers that stand ready beforehand, as sshd or croc's relay, start before,
//! and what they use while a transfer lasts counts. All processes are in one control group, whose processor time is
//! complete, whoever has ended or was killed meanwhile. After the end the file system that they came to is written to its
//! disk, whoever did not do so: what kernel threads do then is in no group, and counts as time alone.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Serialize;
use testbed::control_group::ControlGroup;
use testbed::namespace::Namespace;
use testbed::process::{Process, Signal};
use testbed::usage;
use testbed::wait::holds_within;

use super::cases::Case;
use super::content::Made;
use crate::error::During;
use crate::limits::{FILES_END_TIMEOUT, FILES_LOOK, FILES_PEAK_LOOKS, FILES_START_TIMEOUT};
use crate::network::{self, Network, SERVER};
use crate::{Error, Programs};

/// Where a contestant transfers what.
pub(super) struct Trial<'a> {
    pub(super) programs: &'a Programs,
    pub(super) network: &'a Network,
    pub(super) case: &'a Case,
    /// What is transferred.
    pub(super) source: &'a Made,
    /// The directory that it comes into, which is there and empty.
    pub(super) to: &'a Path,
    /// For keys and states.
    pub(super) place: &'a Path,
    /// After so long it is stopped.
    pub(super) time_max: Duration,
    group: ControlGroup,
}

/// What one transfer took.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Run {
    pub(super) seconds: f64,
    /// The same until what came is on the disk: most contestants leave that to the system.
    pub(super) disk_seconds: f64,
    /// Bytes of files that came in that time; of a run that was stopped those that came over the wire, at most.
    pub(super) bytes: u64,
    /// Whether it came to its end.
    pub(super) is_whole: bool,
    /// Of all processes at both ends.
    pub(super) cpu_seconds: f64,
    /// Largest resident size of a process, at either end.
    pub(super) peak_bytes: u64,
    /// Bytes that came over the wire, with the headers of packets.
    pub(super) wire_bytes: u64,
    /// Of a transfer that was resumed: from its start to the first new bytes.
    pub(super) first_bytes_seconds: Option<f64>,
}

impl Run {
    /// Bytes of files in a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// The same until they are on the disk.
    pub(super) fn disk_rate(&self) -> f64 {
        self.bytes as f64 / self.disk_seconds
    }
}

/// Has the disk take all that was written to the file system of `path`.
fn write_back(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(path)?)?)
}

/// A transfer that has begun.
pub(super) struct Transfer {
    pub(super) clock: Clock,
    /// Its end is that of the transfer.
    pub(super) receiver: Process,
    pub(super) sender: Option<Sender>,
    /// Servers that stand ready.
    pub(super) servers: Vec<Process>,
}

/// A command that sends.
pub(super) struct Sender {
    pub(super) process: Process,
    /// Whether it goes on until its user ends it.
    pub(super) stays: bool,
}

/// What was there before a transfer.
pub(super) struct Clock {
    began: Instant,
    cpu_seconds: f64,
    wire_bytes: u64,
    processes: BTreeSet<u32>,
}

impl<'a> Trial<'a> {
    /// Before it begins. `to` is made.
    ///
    /// # Errors
    /// Without control groups, or where `to` is there already.
    pub(super) fn prepare(
        programs: &'a Programs,
        network: &'a Network,
        (case, source): (&'a Case, &'a Made),
        (to, place): (&'a Path, &'a Path),
        time_max: Duration,
    ) -> Result<Self, Error> {
        fs::create_dir(to).during(|| format!("make {}", to.display()))?;
        Ok(Self {
            programs,
            network,
            case,
            source,
            to,
            place,
            time_max,
            group: ControlGroup::create()?,
        })
    }

    /// Starts a program of the contestant at one of the ends.
    pub(super) fn start(&self, end: &Namespace, command: &Command, name: &str) -> Result<Process, Error> {
        Ok(Process::start(self.group.wrap(&end.wrap(command)), name)?)
    }

    /// Starts a server and waits until it listens there.
    pub(super) fn start_server(&self, command: &Command, name: &str, port: u16) -> Result<Process, Error> {
        let mut process = self.start(&self.network.server, command, name)?;
        let address = (SERVER, port).into();
        let connect = || std::net::TcpStream::connect_timeout(&address, FILES_LOOK * 40).is_ok();
        let is_there = holds_within(FILES_START_TIMEOUT, || {
            !process.is_running() || self.network.client.inside(connect)
        });
        if is_there && process.is_running() {
            return Ok(process);
        }
        Err(Error::NotReady {
            program: name.to_owned(),
            reason: process.last_words(),
        })
    }

    /// The moment before the first command that counts.
    pub(super) fn clock(&self) -> Clock {
        Clock {
            cpu_seconds: self.group.cpu_seconds(),
            wire_bytes: self.wire_bytes(),
            processes: self.group.processes().into_iter().collect(),
            began: Instant::now(),
        }
    }

    /// Bytes that have come to the receiver's end so far.
    fn wire_bytes(&self) -> u64 {
        network::received_bytes(&self.network.client)
    }

    /// Kills whatever runs, as a power cut does.
    pub(super) fn cut(&self, transfer: Transfer) {
        self.group.kill();
        drop(transfer);
    }

    /// Waits until so many bytes have come over the wire, and gives the time from the start.
    ///
    /// # Errors
    /// When the transfer ends first, or takes too long.
    pub(super) fn wait_for_bytes(&self, transfer: &mut Transfer, bytes: u64) -> Result<f64, Error> {
        while self.wire_bytes() - transfer.clock.wire_bytes < bytes {
            let status = transfer.receiver.try_status();
            if status.is_some() || transfer.clock.began.elapsed() > self.time_max {
                return Err(Error::Setup(format!(
                    "it ended before {bytes} bytes had come: {}",
                    transfer.receiver.last_words()
                )));
            }
            std::thread::sleep(FILES_LOOK);
        }
        Ok(transfer.clock.began.elapsed().as_secs_f64())
    }

    /// Waits until the receiver has ended, and both ends are idle; stops it where it takes too long.
    ///
    /// # Errors
    /// When the receiver fails.
    pub(super) fn finish(&self, transfer: Transfer) -> Result<Run, Error> {
        let Transfer {
            clock,
            mut receiver,
            mut sender,
            servers,
        } = transfer;
        let mut peak_bytes = 0;
        let mut looks = 0_u32;
        let status = loop {
            if looks.is_multiple_of(FILES_PEAK_LOOKS) {
                peak_bytes = peak_bytes.max(self.peak_bytes());
            }
            looks += 1;
            let status = receiver.try_status();
            if status.is_some() || clock.began.elapsed() > self.time_max {
                break status;
            }
            std::thread::sleep(FILES_LOOK);
        };
        let seconds = clock.began.elapsed().as_secs_f64();
        write_back(self.to).during(|| format!("write {} to the disk", self.to.display()))?;
        let disk_seconds = clock.began.elapsed().as_secs_f64();
        if let Some(status) = status.filter(|status| !status.success()) {
            return Err(Error::Setup(format!(
                "the receiver ended with {status}: {}",
                receiver.last_words()
            )));
        }
        let wire_bytes = self.wire_bytes() - clock.wire_bytes;
        if let Some(sender) = sender.as_mut().filter(|sender| sender.stays) {
            sender.process.signal(Signal::INT);
        }
        if status.is_some() {
            // What is left to do at the sender's end belongs to the transfer.
            holds_within(FILES_END_TIMEOUT, || {
                peak_bytes = peak_bytes.max(self.peak_bytes());
                if let Some(sender) = &mut sender {
                    // A process that has ended stays until it is waited for.
                    let _ = sender.process.try_status();
                }
                let running = self.group.processes();
                running.iter().all(|id| clock.processes.contains(id))
            });
        }
        let cpu_seconds = self.group.cpu_seconds() - clock.cpu_seconds;
        self.group.kill();
        drop((receiver, sender, servers));
        Ok(Run {
            seconds,
            disk_seconds,
            bytes: match status {
                Some(_) => self.source.bytes,
                None => wire_bytes.min(self.source.bytes),
            },
            is_whole: status.is_some(),
            cpu_seconds,
            peak_bytes,
            wire_bytes,
            first_bytes_seconds: None,
        })
    }

    fn peak_bytes(&self) -> u64 {
        let processes = self.group.processes();
        let peaks = processes.iter().map(|id| usage::usage(*id).peak_bytes);
        peaks.max().unwrap_or(0)
    }
}
