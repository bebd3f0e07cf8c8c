//! The kill switch: an nftables table by which nothing leaves this machine but through the tunnel, and what is
//! excepted.
//!
//! The table belongs to no process: it stands after a kill, until a later client replaces it or [`release`] removes it.
//! Each change replaces the whole table in one transaction, so that no packet passes between the old and the new one.
//! Who made it and what each rule lets out are comments in the table itself, which `nft list ruleset` shows, too: the
//! kernel is the only place where the state is kept.
//!
//! A packet of a local program that may not leave is refused by ICMP, also one of TCP: a connection that is being made
//! fails at once, while one that stood before the tunnel broke down goes on when it is back (RFC 5461 section 2.1; a
//! reset would end it). Answers to connections from outside leave no other way than everything else.

mod near;
mod rules;
mod table;

use std::io;

use netlink_packet_netfilter::NetfilterMessage;
use serde::{Deserialize, Serialize};

use super::error::{Explain, HostError};
use super::holder::Process;
use super::limits::KILL_SWITCH_EXCEPTIONS_MAX;
use super::netlink::Socket;
use super::prefix::Prefix;
pub use near::near_networks;

/// Why packets to a network may leave beside the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is an address of the server.
    Server,
    /// The user named it.
    Excluded,
    /// It is near, and the user lets out what is.
    Lan,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::Server => "the server",
            Self::Excluded => "excluded",
            Self::Lan => "the local network",
        }
    }
}

/// A network that packets may leave to beside the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// The network.
    pub prefix: Prefix,
    /// Why.
    pub reason: Reason,
}

/// A kill switch that this process has made. Dropping it is the end of a client that failed ([`Self::end`]).
#[derive(Debug)]
pub struct KillSwitch {
    socket: Socket<NetfilterMessage>,
    /// The client.
    holder: Process,
    tun: u32,
    exceptions: Vec<Exception>,
    /// The user wants it to outlive every end.
    is_kept: bool,
    /// It replaced one that had outlived its client.
    has_stood_before: bool,
    /// The tunnel has carried traffic.
    was_through: bool,
    has_ended: bool,
}

/// A kill switch as it is found in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The client that made it, where it still runs.
    pub client: Option<u32>,
    /// What it lets out, for people.
    pub lets_out: Vec<String>,
}

impl KillSwitch {
    /// From now on only packets over the interface `tun`, marked ones ([`crate::OUTER_MARK`]) and the exceptions leave
    /// this machine. One that stands already is replaced, unless its client runs. Where `is_kept`, it outlives every
    /// end of this process.
    ///
    /// # Errors
    /// A missing privilege, a kernel without nftables, another client's kill switch, more exceptions than
    /// `limits::KILL_SWITCH_EXCEPTIONS_MAX`.
    pub fn start(tun: u32, exceptions: Vec<Exception>, is_kept: bool) -> Result<Self, HostError> {
        let this = Process::this().explain(|| NEEDS.to_owned())?;
        Self::start_for(this, tun, exceptions, is_kept)
    }

    /// The same for the client `holder`.
    pub(crate) fn start_for(
        holder: Process,
        tun: u32,
        exceptions: Vec<Exception>,
        is_kept: bool,
    ) -> Result<Self, HostError> {
        let start = || {
            let mut socket = Socket::open()?;
            let standing = table::holder(&mut socket)?;
            let rival = |other: &Process| *other != holder && other.is_running();
            if let Some(rival) = standing.flatten().filter(rival) {
                return Err(held(rival));
            }
            let mut switch = Self {
                socket,
                holder,
                tun,
                exceptions,
                is_kept,
                has_stood_before: standing.is_some(),
                was_through: false,
                // Nothing is to be ended before there is a table.
                has_ended: true,
            };
            switch.replace()?;
            switch.has_ended = false;
            Ok(switch)
        };
        start().explain(|| NEEDS.to_owned())
    }

    /// Lets out these exceptions in the place of the former ones.
    ///
    /// # Errors
    /// As of [`Self::start`]; then the former ones stand.
    pub fn set_exceptions(&mut self, exceptions: Vec<Exception>) -> Result<(), HostError> {
        if exceptions == self.exceptions {
            return Ok(());
        }
        let former = std::mem::replace(&mut self.exceptions, exceptions);
        let replaced = self.replace();
        if replaced.is_err() {
            self.exceptions = former;
        }
        replaced.explain(|| "change what the kill switch lets out".to_owned())
    }

    /// The tunnel carries traffic: from now on only who asks for the end gets the network back.
    pub fn set_through(&mut self) {
        self.was_through = true;
    }

    /// The client ends, `as_asked` or because it failed. The kill switch goes where the user asked a client to end that
    /// had carried traffic, and where a first start failed; it stays otherwise, and where it is kept. Whether it stays.
    ///
    /// # Errors
    /// It should go and does not.
    pub fn end(&mut self, as_asked: bool) -> Result<bool, HostError> {
        let stays = self.is_kept
            || if self.was_through {
                !as_asked
            } else {
                self.has_stood_before
            };
        self.has_ended = true;
        if !stays {
            self.remove()?;
        }
        Ok(stays)
    }

    fn replace(&mut self) -> io::Result<()> {
        if self.exceptions.len() > KILL_SWITCH_EXCEPTIONS_MAX {
            let text = format!(
                "{} networks are excepted, and at most {KILL_SWITCH_EXCEPTIONS_MAX} can be",
                self.exceptions.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        table::replacement(self.holder, self.tun, &self.exceptions).apply(&mut self.socket)
    }

    /// Removes the table where it is still this client's.
    fn remove(&mut self) -> Result<(), HostError> {
        let mut remove = || match table::holder(&mut self.socket)? {
            Some(Some(holder)) if holder != self.holder => Ok(()),
            Some(_) => table::removal().apply(&mut self.socket),
            None => Ok(()),
        };
        remove().explain(|| "remove the kill switch".to_owned())
    }
}

impl Drop for KillSwitch {
    fn drop(&mut self) {
        if !self.has_ended {
            // What cannot be removed stands: `release` says why.
            let _ = self.end(false);
        }
    }
}

const NEEDS: &str = "set the kill switch, without which a default route is not safe \
                     (it needs nftables in the kernel: modules nf_tables and nft_reject_inet)";

/// The kill switch that stands in this network.
///
/// # Errors
/// A missing privilege. A kernel without nftables has none.
pub fn standing() -> Result<Option<Standing>, HostError> {
    let read = || {
        let mut socket = Socket::open()?;
        let Some(holder) = table::holder(&mut socket)? else {
            return Ok(None);
        };
        Ok(Some(Standing {
            client: holder
                .filter(|holder| holder.is_running())
                .map(|holder| holder.id),
            lets_out: table::comments(&mut socket)?,
        }))
    };
    match read() {
        Err(error) if is_without_nftables(&error) => Ok(None),
        other => other.explain(|| "ask for the kill switch".to_owned()),
    }
}

/// Removes the kill switch that a client left; whether there was one.
///
/// # Errors
/// A missing privilege, or its client runs.
pub fn release() -> Result<bool, HostError> {
    let release = || {
        let mut socket = Socket::open()?;
        match table::holder(&mut socket)? {
            None => Ok(false),
            Some(Some(holder)) if holder.is_running() => Err(held(holder)),
            Some(_) => table::removal().apply(&mut socket).map(|()| true),
        }
    };
    match release() {
        Err(error) if is_without_nftables(&error) => Ok(false),
        other => other.explain(|| "remove the kill switch".to_owned()),
    }
}

fn held(holder: Process) -> io::Error {
    let text = format!(
        "the client with process ID {} runs and needs it; end it first",
        holder.id
    );
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// The kernel has no netfilter, or no nftables.
fn is_without_nftables(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacking = [Errno::PROTONOSUPPORT, Errno::OPNOTSUPP, Errno::AFNOSUPPORT];
    Errno::from_io_error(error).is_some_and(|number| lacking.contains(&number))
}
