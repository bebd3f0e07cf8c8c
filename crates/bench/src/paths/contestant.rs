//! Who carries traffic over a link: nobody, Gramway, or a rival; and how each becomes two forwards of TCP and UDP.

mod gramway;
pub(super) mod probe;
mod sing_box;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use serde::Serialize;
use testbed::directory::Directory;
use testbed::process::Process;
use testbed::programs::said;

use crate::counters::Counters;
use crate::network::{Network, SERVER};
use crate::{Error, Programs, limits};

/// What is measured, in the order of each round and of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contestant {
    /// The link itself
    Direct,
    /// This program
    Gramway,
    /// Hysteria2 by sing-box, without bandwidth settings: it uses its BBR
    Hysteria2,
    /// TUIC by sing-box, with its default congestion control
    Tuic,
    /// TUIC by sing-box, with BBR
    TuicBbr,
}

/// All of them.
pub(super) const ALL: [Contestant; 5] = [
    Contestant::Direct,
    Contestant::Gramway,
    Contestant::Hysteria2,
    Contestant::Tuic,
    Contestant::TuicBbr,
];

/// The ports that are forwarded, at the server's address: one for TCP, one for datagrams beside it.
pub(super) const TARGET_PORTS: [u16; 2] = [5_201, 5_202];

/// A contestant that is there.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Installed {
    /// Which.
    pub(super) contestant: Contestant,
    /// What it says about its version.
    pub(super) version: String,
    /// Its program; none for the link itself.
    program: Option<PathBuf>,
}

/// Two forwards that carry, or the link.
pub(super) struct Running {
    /// Who it is.
    pub(super) contestant: Contestant,
    /// Where traffic enters on the client's machine, for each of [`TARGET_PORTS`].
    pub(super) entrances: [SocketAddr; 2],
    /// Client and server; none for the link itself, and no server for a second client.
    ends: Vec<Process>,
    /// How the client is started.
    client: Option<Command>,
    directory: Option<Directory>,
}

impl Contestant {
    /// Its name in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Gramway => "gramway",
            Self::Hysteria2 => "hysteria2",
            Self::Tuic => "tuic",
            Self::TuicBbr => "tuic-bbr",
        }
    }

    /// Whether a verdict needs it. Others run once in a cell, and take less of the time that people wait.
    pub(super) fn decides(self) -> bool {
        matches!(self, Self::Direct | Self::Gramway | Self::Hysteria2)
    }

    /// Looks for it.
    ///
    /// # Errors
    /// How to install it.
    pub(super) fn find(self, programs: &Programs) -> Result<Installed, String> {
        let (program, version) = match self {
            Self::Direct => (None, String::new()),
            Self::Gramway => (None, said(programs.gramway().arg("--version"))),
            Self::Hysteria2 | Self::Tuic | Self::TuicBbr => {
                let (program, version) = sing_box::find()
                    .ok_or_else(|| format!("{} is not measured: {}", self.name(), sing_box::HOW_TO_GET))?;
                (Some(program), version)
            }
        };
        Ok(Installed {
            contestant: self,
            version,
            program,
        })
    }

    /// Where traffic enters a contestant's forwards: ports of its own, because all run at the same time.
    fn entrances(self) -> [SocketAddr; 2] {
        entrances(self as u16)
    }
}

/// The entrances of the forwards with this number.
fn entrances(number: u16) -> [SocketAddr; 2] {
    let first = 15_200 + 10 * number;
    [first, first + 1].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

/// Where the forwards lead.
pub(super) fn targets() -> [SocketAddr; 2] {
    TARGET_PORTS.map(|port| SocketAddr::from((SERVER, port)))
}

impl Installed {
    /// Starts both ends and waits until a connection has crossed.
    ///
    /// # Errors
    /// When it does not come up, with its own words.
    pub(super) fn start(&self, programs: &Programs, network: &Network) -> Result<Running, Error> {
        let mut running = match (self.contestant, &self.program) {
            (Contestant::Gramway, _) => gramway::start(programs, network)?.0,
            (rival, Some(program)) => sing_box::start(rival, program, network)?,
            (_, None) => Running {
                contestant: Contestant::Direct,
                entrances: targets(),
                ends: Vec::new(),
                client: None,
                directory: None,
            },
        };
        running.wait_until_it_carries(network)?;
        Ok(running)
    }
}

impl Running {
    /// Starts the client beside a server that runs, if it is given; both may not be ready yet.
    fn with_client(
        contestant: Contestant,
        entrances: [SocketAddr; 2],
        command: Command,
        server: Option<Process>,
        directory: Directory,
        network: &Network,
    ) -> Result<Self, Error> {
        let client = Process::start(network.client.wrap(&command), contestant.name())?;
        Ok(Self {
            contestant,
            entrances,
            ends: std::iter::once(client).chain(server).collect(),
            client: Some(command),
            directory: Some(directory),
        })
    }

    /// Two clients of one Gramway server.
    ///
    /// # Errors
    /// When one does not come up, with its own words.
    pub(super) fn two_of_gramway(programs: &Programs, network: &Network) -> Result<[Self; 2], Error> {
        let (mut first, link) = gramway::start(programs, network)?;
        let mut second = gramway::join(programs, network, &link)?;
        first.wait_until_it_carries(network)?;
        second.wait_until_it_carries(network)?;
        Ok([first, second])
    }

    /// What `gramway status --json` says about client and server; `None` for the others.
    pub(super) fn counters(&self, programs: &Programs) -> Option<[Counters; 2]> {
        let [client, server] = self.ends.as_slice() else {
            return None;
        };
        let is_gramway = self.contestant == Contestant::Gramway;
        let directory = self.directory.as_ref().filter(|_| is_gramway)?;
        gramway::counters(programs, directory, [client, server])
    }

    /// Ends the client and starts it again: a new connection, which knows nothing of earlier runs, as one without a
    /// tunnel does.
    ///
    /// # Errors
    /// When it does not come up again.
    pub(super) fn reconnect(&mut self, network: &Network) -> Result<(), Error> {
        let (Some(client), Some(command)) = (self.ends.first_mut(), &self.client) else {
            return Ok(());
        };
        client.end(limits::STOP_TIMEOUT);
        *client = Process::start(network.client.wrap(command), self.contestant.name())?;
        self.wait_until_it_carries(network)
    }

    fn wait_until_it_carries(&mut self, network: &Network) -> Result<(), Error> {
        let entrance = self.entrances[0];
        let ends = &mut self.ends;
        if probe::carries(network, entrance, || ends.iter_mut().all(Process::is_running))? {
            return Ok(());
        }
        let said: Vec<String> = self.ends.iter().map(Process::last_words).collect();
        Err(Error::NotReady {
            program: self.contestant.name().to_owned(),
            reason: format!("no connection passes {entrance}; {}", said.join("; ")),
        })
    }
}
