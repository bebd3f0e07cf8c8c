//! Who is compared: the wire, this program, and the rivals that the caller names; which are installed, in which version,
//! and how each becomes a running tunnel.

mod gramway;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;
use testbed::directory::Directory;
use testbed::process::Process;
use testbed::programs::said;
use testbed::usage::{self, Usage};

use crate::network::{Network, SERVER};
use crate::{Error, Programs, limits};

/// Who is compared, by the name in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct Contestant(&'static str);

/// Another program that carries IP packets.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Who it is.
    pub(crate) contestant: Contestant,
    /// What to say where it is missing.
    pub(crate) how_to_get: &'static str,
    /// Looks for its programs, in the order in which `start` wants them, and for its version.
    pub(crate) find: fn() -> Option<(Vec<PathBuf>, String)>,
    /// Starts both ends, which may not be connected yet.
    pub(crate) start: fn(&Installed, &Network) -> Result<Running, Error>,
}

/// A contestant that is there.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Installed {
    /// Which.
    pub(crate) contestant: Contestant,
    /// What it says about its version.
    pub(crate) version: String,
    /// Where its programs are, in the order in which its starter wants them.
    pub(crate) programs: Vec<PathBuf>,
    /// How it is started, if it is neither the wire nor this program.
    #[serde(skip)]
    rival: Option<Rival>,
}

/// A tunnel that carries packets between both machines, or the wire.
pub(crate) struct Running {
    /// Who it is.
    pub(crate) contestant: Contestant,
    /// The server's address through it.
    pub(crate) address: Ipv4Addr,
    /// Client and server; none for the wire.
    ends: Option<[Process; 2]>,
    directory: Option<Directory>,
}

impl Contestant {
    /// The wire itself.
    pub(crate) const DIRECT: Self = Self("direct");
    /// This program.
    pub(crate) const GRAMWAY: Self = Self("gramway");
    /// WireGuard in user space, which has a column of its own where it takes part.
    pub(crate) const WIREGUARD_GO: Self = Self("wireguard-go");

    /// Another program.
    #[cfg(feature = "rivals")]
    pub(crate) const fn rival(name: &'static str) -> Self {
        Self(name)
    }

    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

impl Rival {
    /// Looks for it.
    ///
    /// # Errors
    /// How to install it.
    pub(super) fn installed(&self) -> Result<Installed, String> {
        let (programs, version) = (self.find)()
            .ok_or_else(|| format!("{} is not installed: {}", self.contestant.name(), self.how_to_get))?;
        Ok(Installed {
            contestant: self.contestant,
            version,
            programs,
            rival: Some(*self),
        })
    }
}

impl Installed {
    /// The wire, which is always there.
    pub(super) fn direct() -> Self {
        Self {
            contestant: Contestant::DIRECT,
            version: String::new(),
            programs: Vec::new(),
            rival: None,
        }
    }

    /// The program under test.
    pub(crate) fn gramway(programs: &Programs) -> Self {
        Self {
            contestant: Contestant::GRAMWAY,
            version: said(programs.gramway().arg("--version")),
            ..Self::direct()
        }
    }

    /// Starts both ends and waits until a packet has crossed.
    ///
    /// # Errors
    /// When it does not come up, with its own words.
    pub(super) fn start(&self, programs: &Programs, network: &Network) -> Result<Running, Error> {
        let mut running = self.launch(programs, network)?;
        running.wait_until_it_carries(network)?;
        Ok(running)
    }

    /// Starts both ends, which may not be connected yet.
    ///
    /// # Errors
    /// When one does not start, with its own words.
    pub(crate) fn launch(&self, programs: &Programs, network: &Network) -> Result<Running, Error> {
        match self.rival {
            Some(rival) => (rival.start)(self, network),
            None if self.contestant == Contestant::GRAMWAY => gramway::start(programs, network),
            None => Ok(Running {
                contestant: Contestant::DIRECT,
                address: SERVER,
                ends: None,
                directory: None,
            }),
        }
    }
}

impl Running {
    /// Both ends, the client first.
    pub(crate) fn new(
        contestant: Contestant,
        address: Ipv4Addr,
        ends: [Process; 2],
        directory: Directory,
    ) -> Self {
        Self {
            contestant,
            address,
            ends: Some(ends),
            directory: Some(directory),
        }
    }

    /// CPU and memory of client and server at present.
    pub(crate) fn usage(&self) -> [Usage; 2] {
        let ends = self.ends.as_ref();
        ends.map_or_else(Default::default, |ends| ends.each_ref().map(|end| end.usage()))
    }

    /// Starts the memory peaks of both ends again.
    pub(crate) fn reset_peaks(&self) {
        for end in self.ends.iter().flatten() {
            usage::reset_peak(end.id());
        }
    }

    /// What `gramway status --json` says about client and server; `None` for the others.
    pub(crate) fn counters(&self, programs: &Programs) -> Option<[crate::counters::Counters; 2]> {
        let (ends, directory) = (self.ends.as_ref()?, self.directory.as_ref()?);
        (self.contestant == Contestant::GRAMWAY).then_some(())?;
        gramway::counters(programs, directory, ends)
    }

    fn wait_until_it_carries(&mut self, network: &Network) -> Result<(), Error> {
        let deadline = Instant::now() + limits::READY_TIMEOUT;
        let address = self.address.to_string();
        while network
            .client
            .run("ping", ["-n", "-c1", "-W1", &address])
            .is_err()
        {
            let ended = self.ends.iter_mut().flatten().any(|end| !end.is_running());
            if ended || Instant::now() > deadline {
                let said: Vec<String> = self.ends.iter().flatten().map(Process::last_words).collect();
                return Err(Error::NotReady {
                    program: self.contestant.name().to_owned(),
                    reason: format!("no ping reaches {address}; {}", said.join("; ")),
                });
            }
        }
        Ok(())
    }
}
