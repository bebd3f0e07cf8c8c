//! Name servers of the whole machine, for as long as a TUN is there.
//!
//! Three programs may stand between a name and its server, and the machine says which one does: systemd-resolved,
//! which keeps servers per link and forgets them with the link; resolvconf, openresolv's or Debian's, which is told of
//! an interface and writes `/etc/resolv.conf`; and that file itself, which is replaced and put back. What the system
//! would not undo by itself is a [`NamesChange`] on the list of [`crate::Undo`].

mod facts;
mod program;
mod resolv_conf;
mod resolvconf;

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::error::HostError;
use facts::Facts;
use program::Program;
pub(crate) use resolv_conf::FileChange;

/// Where the C library looks for name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// What is to be asked, by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameServers {
    /// The interface that the servers belong to.
    pub interface: String,
    /// The servers, the first one first.
    pub servers: Vec<IpAddr>,
    /// Every name is asked of them and of nobody else; without it systemd-resolved may ask those of other links, too.
    pub all_names: bool,
}

/// Who was given the name servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamesWay {
    /// systemd-resolved, by `resolvectl`.
    Resolved,
    /// resolvconf.
    Resolvconf,
    /// `/etc/resolv.conf`, without a program in between.
    File,
}

impl fmt::Display for NamesWay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Resolved => "systemd-resolved",
            Self::Resolvconf => "resolvconf",
            Self::File => RESOLV_CONF,
        })
    }
}

/// Name servers were not set. Its text is a whole sentence.
#[derive(Debug, thiserror::Error)]
pub enum NamesNotSet {
    /// The program that keeps them refused, hangs, or is not there.
    #[error("{way} did not take the name servers of {interface}: {reason}")]
    Refused {
        /// Who.
        way: NamesWay,
        /// Whose they are.
        interface: String,
        /// The command and its complaint.
        reason: String,
    },
    /// The file or the list of changes could not be written.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// What has to be undone when the process is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NamesChange {
    /// resolvconf was told of this record.
    Resolvconf {
        /// Its name there: the interface, perhaps with a prefix.
        record: String,
    },
    /// The file has other contents.
    File(FileChange),
}

impl NamesChange {
    /// What it changes, for people.
    pub(crate) fn subject(&self) -> String {
        match self {
            Self::Resolvconf { record } => format!("the name servers of {record}"),
            Self::File(file) => file.path().display().to_string(),
        }
    }

    /// Makes it; it is on the list by now.
    pub(crate) fn make(&self, wanted: &NameServers) -> Result<(), NamesNotSet> {
        match self {
            Self::Resolvconf { record } => resolvconf::add(record, wanted),
            Self::File(file) => Ok(file.make()?),
        }
    }

    pub(crate) fn take_back(&self) -> Result<(), HostError> {
        match self {
            Self::Resolvconf { record } => resolvconf::remove(record),
            Self::File(file) => file.take_back(),
        }
    }

    /// Whether somebody else has changed the same since.
    pub(crate) fn is_overtaken(&self) -> bool {
        match self {
            Self::Resolvconf { .. } => false,
            Self::File(file) => !file.is_in_effect(),
        }
    }

    /// The same, where what it would put back is not to be what stood there before, but what another process needs.
    pub(crate) fn handed_on<'a>(self, others: impl Iterator<Item = &'a Self>) -> Self {
        let Self::File(file) = self else { return self };
        let others = others.filter_map(Self::file);
        Self::File(file.handed_on(others))
    }

    pub(crate) fn file(&self) -> Option<&FileChange> {
        match self {
            Self::Resolvconf { .. } => None,
            Self::File(file) => Some(file),
        }
    }
}

/// Who is between programs and name servers here; usually one.
pub(crate) fn ways() -> Vec<NamesWay> {
    Facts::gather().ways()
}

/// What resolvconf is to be told; nothing yet is.
pub(crate) fn resolvconf_change(interface: &str) -> NamesChange {
    NamesChange::Resolvconf {
        record: resolvconf::record(interface),
    }
}

/// Whether resolvconf left `/etc/resolv.conf` naming servers that are neither `wanted` nor on this machine, or none.
pub(crate) fn names_others(wanted: &[IpAddr]) -> bool {
    let named = resolv_conf::name_servers(&resolv_conf::read_text(RESOLV_CONF));
    named.is_empty()
        || named
            .iter()
            .any(|server| !server.is_loopback() && !wanted.contains(server))
}

/// The name servers that this machine's programs ask at present, as far as `/etc/resolv.conf` and systemd-resolved
/// tell.
#[must_use]
pub fn present_name_servers() -> Vec<IpAddr> {
    let named = resolv_conf::name_servers(&resolv_conf::read_text(RESOLV_CONF));
    let behind = facts::behind_resolved(&named);
    behind.unwrap_or(named)
}

/// Gives systemd-resolved the servers; it forgets them when the link disappears.
pub(crate) fn tell_resolved(wanted: &NameServers) -> Result<(), NamesNotSet> {
    let interface = wanted.interface.as_str();
    let servers: Vec<String> = wanted.servers.iter().map(ToString::to_string).collect();
    let mut arguments = vec!["dns", interface];
    arguments.extend(servers.iter().map(String::as_str));
    resolvectl(interface, &arguments)?;
    if wanted.all_names {
        resolvectl(interface, &["domain", interface, "~."])?;
        // Older ones do not know it, and go by the domain alone.
        let _ = resolvectl(interface, &["default-route", interface, "yes"]);
    }
    Ok(())
}

/// Has systemd-resolved forget what it was told of a link that is still there.
pub(crate) fn revert_resolved(interface: &str) -> Result<(), NamesNotSet> {
    resolvectl(interface, &["revert", interface])
}

fn resolvectl(interface: &str, arguments: &[&str]) -> Result<(), NamesNotSet> {
    tell(Program::Resolvectl, interface, arguments, "")
}

/// Runs the program, for the name servers of this interface.
fn tell(program: Program, interface: &str, arguments: &[&str], input: &str) -> Result<(), NamesNotSet> {
    let run = program.run(arguments, input);
    run.map_err(|error| NamesNotSet::Refused {
        way: program.way(),
        interface: interface.to_owned(),
        reason: format!("`{} {}`: {error}", program.name(), arguments.join(" ")),
    })
}
