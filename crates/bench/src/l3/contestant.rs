//! The programs that are compared: which are installed, in which version, and how each becomes a running tunnel.

mod gramway;
mod quincy;
mod wireguard;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use crate::children::{Guard, Lines};
use crate::network::{Network, SERVER};
use crate::process::{self, Usage};
use crate::programs::said;
use crate::tunnel::Directory;
use crate::{Error, Programs, limits};

/// What is compared, in the order of each round and of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contestant {
    /// The wire itself.
    Direct,
    /// WireGuard in user space.
    WireguardGo,
    /// quincy, with the Noise protocol.
    Quincy,
    /// This program.
    Gramway,
}

/// All of them.
pub(crate) const ALL: [Contestant; 4] = [
    Contestant::Direct,
    Contestant::WireguardGo,
    Contestant::Quincy,
    Contestant::Gramway,
];

/// A contestant that is there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Installed {
    /// Which.
    pub(crate) contestant: Contestant,
    /// What it says about its version.
    pub(crate) version: String,
    /// Where its programs are, in the order in which its starter wants them.
    pub(crate) programs: Vec<PathBuf>,
}

/// A tunnel that carries packets between both machines, or the wire.
pub(crate) struct Running {
    /// Who it is.
    pub(crate) contestant: Contestant,
    /// The server's address through it.
    pub(crate) address: Ipv4Addr,
    /// Client and server; none for the wire.
    ends: Option<[Guard; 2]>,
    _lines: Vec<Lines>,
    directory: Option<Directory>,
}

impl Contestant {
    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::WireguardGo => "wireguard-go",
            Self::Quincy => "quincy",
            Self::Gramway => "gramway",
        }
    }

    /// Looks for it.
    ///
    /// # Errors
    /// How to install it.
    pub(crate) fn find(self, programs: &Programs) -> Result<Installed, String> {
        let (found, version) = match self {
            Self::Direct => return Ok(self.installed(Vec::new(), String::new())),
            Self::WireguardGo => wireguard::find(),
            Self::Quincy => quincy::find(),
            Self::Gramway => return Ok(self.installed(Vec::new(), said(programs.gramway().arg("--version")))),
        }
        .ok_or_else(|| {
            let how = if self == Self::Quincy {
                quincy::HOW_TO_GET
            } else {
                wireguard::HOW_TO_GET
            };
            format!("{} is not installed: {how}", self.name())
        })?;
        Ok(self.installed(found, version))
    }

    fn installed(self, programs: Vec<PathBuf>, version: String) -> Installed {
        Installed {
            contestant: self,
            version,
            programs,
        }
    }
}

impl Installed {
    /// Starts both ends and waits until a packet has crossed.
    ///
    /// # Errors
    /// When it does not come up, with its own words.
    pub(crate) fn start(&self, programs: &Programs, network: &Network) -> Result<Running, Error> {
        let mut running = self.launch(programs, network)?;
        running.wait_until_it_carries(network)?;
        Ok(running)
    }

    /// Starts both ends, which may not be connected yet.
    ///
    /// # Errors
    /// When one does not start, with its own words.
    pub(crate) fn launch(&self, programs: &Programs, network: &Network) -> Result<Running, Error> {
        Ok(match self.contestant {
            Contestant::Direct => Running {
                contestant: Contestant::Direct,
                address: SERVER,
                ends: None,
                _lines: Vec::new(),
                directory: None,
            },
            Contestant::WireguardGo => wireguard::start(self, network)?,
            Contestant::Quincy => quincy::start(self, network)?,
            Contestant::Gramway => gramway::start(programs, network)?,
        })
    }
}

impl Running {
    fn new(
        contestant: Contestant,
        address: Ipv4Addr,
        ends: [(Guard, Lines, Lines); 2],
        directory: Directory,
    ) -> Self {
        let [
            (client, client_output, client_errors),
            (server, server_output, server_errors),
        ] = ends;
        Self {
            contestant,
            address,
            ends: Some([client, server]),
            _lines: vec![client_output, client_errors, server_output, server_errors],
            directory: Some(directory),
        }
    }

    /// CPU and memory of client and server at present.
    pub(crate) fn usage(&self) -> [Usage; 2] {
        let ends = self.ends.as_ref();
        ends.map_or_else(Default::default, |ends| {
            ends.each_ref().map(|end| process::usage(end.pid()))
        })
    }

    /// Starts the memory peaks of both ends again.
    pub(crate) fn reset_peaks(&self) {
        for end in self.ends.iter().flatten() {
            process::reset_peak(end.pid());
        }
    }

    /// What `gramway status --json` says about client and server; `None` for the others.
    pub(crate) fn counters(&self, programs: &Programs) -> Option<[crate::counters::Counters; 2]> {
        let (ends, directory) = (self.ends.as_ref()?, self.directory.as_ref()?);
        (self.contestant == Contestant::Gramway).then_some(())?;
        gramway::counters(programs, directory, ends)
    }

    fn wait_until_it_carries(&mut self, network: &Network) -> Result<(), Error> {
        let deadline = Instant::now() + limits::READY_TIMEOUT;
        let address = self.address.to_string();
        while network
            .client
            .run("ping", &["-n", "-c1", "-W1", &address])
            .is_err()
        {
            let ended = self.ends.iter_mut().flatten().any(|end| !end.is_running());
            if ended || Instant::now() > deadline {
                let said: Vec<String> = self._lines.iter().map(Lines::last).collect();
                return Err(Error::NotReady {
                    program: self.contestant.name().to_owned(),
                    reason: format!("no ping reaches {address}; {}", said.join("; ")),
                });
            }
        }
        Ok(())
    }
}
