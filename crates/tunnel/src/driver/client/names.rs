//! The machine's name servers while a client's TUN is there: those of `--dns`.
//!
//! A thread of the host sets them, which may take seconds, and looks every now and then whether they still hold: a DHCP
//! client or a network manager writes `/etc/resolv.conf` whenever it likes. What was refused, and what somebody else
//! has changed, is set again after a pause, which grows.

use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::{GuardianProgram, NameServers, NamesNotSet, NamesWay, Undo, present_name_servers};

use crate::driver::host_worker::HostWorker;
use crate::driver::resolver::OwnNameServers;
use crate::handle::Notice;
use crate::limits;
use crate::snapshot::NamesSnapshot;

/// Decides what is set, and when it is tried again.
pub(super) struct Names {
    servers: Vec<IpAddr>,
    /// The resolver of our own names does not ask them.
    own: OwnNameServers,
    /// When the thread looks next; `None`: it is at work, or there is nothing to do.
    due: Option<Instant>,
    pause: Duration,
    report: Option<mpsc::Receiver<Result<Kept, NamesNotSet>>>,
    /// Locked by the host's thread alone.
    keeper: Arc<Mutex<Keeper>>,
    /// The failure that was told last.
    error: Option<String>,
    ways: Vec<NamesWay>,
}

/// What the host's thread found or did.
#[derive(Debug, PartialEq, Eq)]
enum Kept {
    /// All is as it was set.
    AsBefore,
    /// The servers are set.
    Set {
        ways: Vec<NamesWay>,
        /// Those that were asked before.
        former: Vec<IpAddr>,
        /// Somebody else had changed them.
        is_again: bool,
    },
}

struct Keeper {
    undo: Undo,
    interface: String,
    all_names: bool,
    present: Option<Vec<IpAddr>>,
}

impl Names {
    /// For the device `interface`; what is to be undone is listed in `directory`.
    pub(super) fn new(interface: &str, servers: Vec<IpAddr>, all_names: bool, directory: &Path) -> Self {
        let keeper = Keeper {
            undo: Undo::new(directory, GuardianProgram::this_program()),
            interface: interface.to_owned(),
            all_names,
            present: None,
        };
        Self {
            own: OwnNameServers::new(servers.clone()),
            servers,
            due: None,
            pause: limits::NAMES_RETRY_MIN,
            report: None,
            keeper: Arc::new(Mutex::new(keeper)),
            error: None,
            ways: Vec::new(),
        }
    }

    /// Those that our own resolver must not ask.
    pub(super) fn own(&self) -> OwnNameServers {
        self.own.clone()
    }

    /// The device has addresses: names may be asked for through it.
    pub(super) fn begin(&mut self, now: Instant) {
        if !self.servers.is_empty() {
            self.due.get_or_insert(now);
        }
    }

    /// Hands to `worker` what is due. What there is to tell.
    pub(super) fn follow(&mut self, now: Instant, worker: &HostWorker) -> Option<Notice> {
        let told = self.take_report(now);
        if self.report.is_none() && self.due.is_some_and(|due| due <= now) {
            let (report, reported) = mpsc::channel();
            let (keeper, servers) = (Arc::clone(&self.keeper), self.servers.clone());
            let is_taken = worker.run(move || {
                let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                // At the end nobody listens.
                let _ = report.send(keeper.keep(&servers));
                None
            });
            // Where it takes no more jobs, the next turn gives it this one.
            self.report = is_taken.then_some(reported);
        }
        told
    }

    fn take_report(&mut self, now: Instant) -> Option<Notice> {
        let kept = match self.report.as_ref()?.try_recv() {
            Ok(kept) => kept,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                // The job panicked, and has said so.
                (self.report, self.due) = (None, None);
                return None;
            }
        };
        self.report = None;
        match kept {
            Ok(Kept::AsBefore) => {
                self.pause = limits::NAMES_RETRY_MIN;
                self.due = Some(now + limits::NAMES_WATCH_INTERVAL);
                None
            }
            Ok(Kept::Set {
                ways,
                former,
                is_again,
            }) => {
                self.wait(now, is_again);
                self.error = None;
                self.ways = ways;
                Some(Notice::Names {
                    servers: self.servers.clone(),
                    set_by: self.ways.iter().map(ToString::to_string).collect(),
                    former,
                    is_again,
                })
            }
            Err(error) => {
                self.wait(now, true);
                let text = error.to_string();
                let is_news = self.error.as_ref() != Some(&text);
                self.error = Some(text.clone());
                is_news.then(|| Notice::Warning {
                    text: format!("{text}; names go on to those who were asked before, trying again"),
                })
            }
        }
    }

    /// The pause grows while something is wrong.
    fn wait(&mut self, now: Instant, is_wrong: bool) {
        self.pause = if is_wrong {
            (2 * self.pause).min(limits::NAMES_RETRY_MAX)
        } else {
            limits::NAMES_RETRY_MIN
        };
        self.due = Some(now + self.pause);
    }

    /// For `status`; `None` where nothing is to be set.
    pub(super) fn snapshot(&self) -> Option<NamesSnapshot> {
        (!self.servers.is_empty()).then(|| NamesSnapshot {
            servers: self.servers.clone(),
            set_by: self.ways.iter().map(ToString::to_string).collect(),
            error: self.error.clone(),
        })
    }
}

impl Keeper {
    fn keep(&mut self, wanted: &[IpAddr]) -> Result<Kept, NamesNotSet> {
        let is_same = self.present.as_deref() == Some(wanted);
        if is_same && self.undo.name_servers_hold() {
            return Ok(Kept::AsBefore);
        }
        let mut former = present_name_servers();
        former.retain(|server| !wanted.contains(server));
        let ways = self.undo.set_name_servers(&NameServers {
            interface: self.interface.clone(),
            servers: wanted.to_vec(),
            all_names: self.all_names,
        })?;
        self.present = Some(wanted.to_vec());
        Ok(Kept::Set {
            ways,
            former,
            is_again: is_same,
        })
    }
}
