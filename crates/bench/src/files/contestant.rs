//! Who transfers: how each is found, and started at both ends.

mod croc;
mod gramway;
mod sendme;
mod ssh;
mod tcp;
mod wormhole;

use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use serde::Serialize;
use testbed::programs;

use self::ssh::By;
use super::trial::{Run, Transfer, Trial};
use crate::Error;

/// Where `cargo xtask setup --rivals` installs what no package of the system has, beside the directory of this program.
const RIVALS: &str = "rivals/bin";

/// The same for Python's programs.
const RIVALS_PYTHON: &str = "rivals/python/bin";

/// Which congestion control the machine's TCP has, and so all who transfer by TCP.
const TCP_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contestant {
    /// Copies on one machine: the floor.
    Cp,
    /// One TCP connection that carries nothing, by iperf3: what TCP gets of a link.
    Tcp,
    Gramway,
    Croc,
    Sendme,
    Wormhole,
    Qcp,
    Scp,
    Rsync,
}

impl Contestant {
    pub(super) const ALL: [Self; 9] = [
        Self::Cp,
        Self::Tcp,
        Self::Gramway,
        Self::Croc,
        Self::Sendme,
        Self::Wormhole,
        Self::Qcp,
        Self::Scp,
        Self::Rsync,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Tcp => "tcp",
            Self::Gramway => "gramway",
            Self::Croc => "croc",
            Self::Sendme => "sendme",
            Self::Wormhole => "wormhole",
            Self::Qcp => "qcp",
            Self::Scp => "scp",
            Self::Rsync => "rsync",
        }
    }

    /// What it says of itself; `Err`: it is not there, and how to get it.
    pub(super) fn version(self) -> Result<Option<String>, String> {
        let said = |program: PathBuf, argument: &str| {
            let version = programs::said(Command::new(program).arg(argument));
            Ok(Some(format!("{}: {version}", self.name())))
        };
        let by_ssh = || match ssh::sshd().is_some() && programs::find(&["ssh"]).is_some() {
            true => Ok(()),
            false => Err(format!(
                "{}: no sshd; apt-get install openssh-server openssh-client",
                self.name()
            )),
        };
        let of_system = |name: &str| programs::find(&[name]).ok_or(format!("{name}: apt-get install {name}"));
        match self {
            Self::Cp | Self::Gramway => Ok(None),
            Self::Tcp => {
                let iperf = programs::said(Command::new(of_system("iperf3")?).arg("--version"));
                let control = std::fs::read_to_string(TCP_CONTROL).unwrap_or_default();
                Ok(Some(format!("tcp: {iperf}, by {}", control.trim())))
            }
            Self::Croc => said(rival(RIVALS, "croc")?, "--version"),
            Self::Sendme => said(rival(RIVALS, "sendme")?, "--version"),
            Self::Wormhole => {
                rival(RIVALS_PYTHON, "twist")?;
                said(rival(RIVALS_PYTHON, "wormhole")?, "--version")
            }
            Self::Qcp => {
                by_ssh()?;
                said(rival(RIVALS, "qcp")?, "--version")
            }
            Self::Scp => {
                by_ssh()?;
                // It says so on standard error.
                let output = Command::new("ssh").arg("-V").output();
                let said = output.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned());
                Ok(Some(format!("scp: {}", said.unwrap_or_default())))
            }
            Self::Rsync => {
                by_ssh()?;
                said(of_system("rsync")?, "--version")
            }
        }
    }

    /// Transfers, from the start to the end.
    ///
    /// # Errors
    /// It does not start, or fails.
    pub(super) fn run(self, trial: &Trial<'_>) -> Result<Run, Error> {
        match self {
            Self::Tcp => tcp::run(trial),
            _ => trial.finish(self.start(trial)?),
        }
    }

    /// Starts everything.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(self, trial: &Trial<'_>) -> Result<Transfer, Error> {
        match self {
            Self::Cp => {
                let mut command = Command::new("cp");
                command.arg("-r").arg(&trial.source.path).arg(trial.to);
                let clock = trial.clock();
                Ok(Transfer {
                    clock,
                    receiver: trial.start(&trial.network.client, &command, "cp")?,
                    sender: None,
                    servers: Vec::new(),
                })
            }
            Self::Tcp => Err(Error::Setup("it transfers no files".to_owned())),
            Self::Gramway => gramway::start(trial),
            Self::Croc => croc::start(trial),
            Self::Sendme => sendme::start(trial),
            Self::Wormhole => wormhole::start(trial),
            Self::Qcp => ssh::start(trial, By::Qcp),
            Self::Scp => ssh::start(trial, By::Scp),
            Self::Rsync => ssh::start(trial, By::Rsync),
        }
    }
}

/// A program that the set-up of rivals installs, or that the system has; `Err`: how to get it.
fn rival(directory: &str, name: &str) -> Result<PathBuf, String> {
    let installed = std::env::current_exe().ok().and_then(|own| {
        // target/PROFILE/bench
        let target = own.ancestors().nth(2)?;
        Some(target.join(directory).join(name)).filter(|path| path.is_file())
    });
    installed
        .or_else(|| programs::find(&[name]))
        .ok_or_else(|| format!("{name} is not installed: cargo xtask setup --rivals"))
}

/// The same where it was there before.
fn needed(directory: &str, name: &str) -> Result<PathBuf, Error> {
    rival(directory, name).map_err(Error::Setup)
}
