//! The machine's name servers while a client's TUN is there: those of `--dns`, else those that the server offers, if
//! everything is routed into the tunnel.
//!
//! A thread of the host sets them, which may take seconds, and looks every now and then whether they still hold: a DHCP
//! client or a network manager writes `/etc/resolv.conf` whenever it likes. What was refused, and what somebody else
//! has changed, is set again after a pause, which grows.

use std::net::IpAddr;
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use host::{HostChanges, HostError, NamesWay, present_name_servers};
use tunnel_proto::Prefix;

use crate::config::ClientTun;
use crate::driver::host_worker::HostWorker;
use crate::driver::resolver::OwnNameServers;
use crate::handle::Notice;
use crate::limits;
use crate::snapshot::NamesSnapshot;

/// Decides what is set, and when it is tried again.
pub(super) struct Names {
    /// What is to be set.
    servers: Vec<IpAddr>,
    /// In place of the user's, those that the server offers.
    takes_offer: bool,
    has_begun: bool,
    /// The resolver of our own names does not ask them.
    own: OwnNameServers,
    /// When the thread looks next; `None`: it is at work, or there is nothing to do.
    due: Option<Instant>,
    pause: Duration,
    report: Option<Report>,
    /// Locked by the host's thread alone.
    keeper: Arc<Mutex<Keeper>>,
    /// The failure that was told last.
    error: Option<String>,
    ways: Vec<NamesWay>,
}

/// What becomes of what was handed to the host's thread.
struct Report {
    servers: Vec<IpAddr>,
    kept: mpsc::Receiver<Result<Kept, HostError>>,
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
    /// Nothing is set; these are asked.
    Unset { present: Vec<IpAddr> },
}

struct Keeper {
    changes: HostChanges,
    all_names: bool,
    /// What is set.
    present: Option<Vec<IpAddr>>,
}

impl Names {
    pub(super) fn new(settings: &ClientTun) -> Self {
        let keeper = Keeper {
            changes: settings.changes.clone(),
            all_names: settings.default_route,
            present: None,
        };
        Self {
            own: OwnNameServers::new(settings.dns.clone()),
            servers: settings.dns.clone(),
            takes_offer: settings.dns.is_empty() && settings.default_route && settings.takes_offered_dns,
            has_begun: false,
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

    /// What the server offers; a device with `addresses` reaches those of its IP versions (SESSION-18).
    pub(super) fn offer(&mut self, now: Instant, offered: &[IpAddr], addresses: &[Prefix]) {
        if !self.takes_offer {
            return;
        }
        let has_version = |server: &&IpAddr| {
            let mut addresses = addresses.iter();
            addresses.any(|prefix| prefix.address().is_ipv4() == server.is_ipv4())
        };
        let servers: Vec<IpAddr> = offered.iter().filter(has_version).copied().collect();
        if servers != self.servers {
            // Until the machine is told of the new ones, the old ones are ours as well.
            self.own.set([&self.servers[..], &servers].concat());
            self.servers = servers;
            self.due = self.due.map(|_| now);
        }
    }

    /// The device has addresses and routes: names may be asked for through it.
    pub(super) fn begin(&mut self, now: Instant) {
        if !self.has_begun && (self.takes_offer || !self.servers.is_empty()) {
            self.has_begun = true;
            self.due = Some(now);
        }
    }

    /// Hands to `worker` what is due. What there is to tell.
    pub(super) fn follow(&mut self, now: Instant, worker: &HostWorker) -> Option<Notice> {
        let told = self.take_report(now);
        if self.report.is_none() && self.due.is_some_and(|due| due <= now) {
            let (report, kept) = mpsc::channel();
            let (keeper, servers) = (Arc::clone(&self.keeper), self.servers.clone());
            let is_taken = worker.run(move || {
                let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
                // At the end nobody listens.
                let _ = report.send(keeper.keep(&servers));
                None
            });
            // Where it takes no more jobs, the next turn gives it this one.
            let servers = self.servers.clone();
            self.report = is_taken.then_some(Report { servers, kept });
        }
        told
    }

    fn take_report(&mut self, now: Instant) -> Option<Notice> {
        let kept = match self.report.as_ref()?.kept.try_recv() {
            Err(TryRecvError::Empty) => return None,
            kept => kept,
        };
        let servers = self.report.take()?.servers;
        let told = match kept {
            Ok(Ok(kept)) => self.take_kept(now, &servers, kept),
            Ok(Err(error)) => {
                self.wait(now, true);
                self.take_error(error.to_string())
            }
            // The job panicked, and has said so.
            Err(_) => None,
        };
        if servers != self.servers {
            // The offer has changed meanwhile.
            self.due = Some(now);
        }
        told
    }

    fn take_kept(&mut self, now: Instant, servers: &[IpAddr], kept: Kept) -> Option<Notice> {
        match kept {
            Kept::AsBefore => {
                self.error = None;
                self.pause = limits::NAMES_RETRY_MIN;
                self.due = Some(now + limits::NAMES_WATCH_INTERVAL);
                None
            }
            Kept::Set {
                ways,
                former,
                is_again,
            } => {
                self.wait(now, is_again);
                self.error = None;
                self.ways = ways;
                Some(Notice::Names {
                    servers: servers.to_vec(),
                    is_offered: self.takes_offer,
                    set_by: self.set_by(),
                    former,
                    is_again,
                })
            }
            Kept::Unset { present } => {
                self.due = Some(now + limits::NAMES_RETRY_MAX);
                self.ways.clear();
                let present: Vec<_> = present.iter().map(ToString::to_string).collect();
                let text = format!(
                    "the server offers no name server, so names are asked of {} as without a tunnel, perhaps past it; \
                     --dns ADDR names one behind it",
                    present.join(", ")
                );
                self.enter_error(text.clone()).then_some(Notice::Warning { text })
            }
        }
    }

    fn take_error(&mut self, error: String) -> Option<Notice> {
        let text = format!("{error}; names go on to those who were asked before, trying again");
        self.enter_error(error).then_some(Notice::Warning { text })
    }

    /// Whether it is another one than was told last.
    fn enter_error(&mut self, error: String) -> bool {
        let is_news = self.error.as_ref() != Some(&error);
        self.error = Some(error);
        is_news
    }

    /// Who was given the servers, for people.
    fn set_by(&self) -> Vec<String> {
        self.ways.iter().map(ToString::to_string).collect()
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
        (self.takes_offer || !self.servers.is_empty()).then(|| NamesSnapshot {
            servers: self.servers.clone(),
            is_offered: self.takes_offer,
            set_by: self.set_by(),
            error: self.error.clone(),
        })
    }
}

impl Keeper {
    fn keep(&mut self, wanted: &[IpAddr]) -> Result<Kept, HostError> {
        if wanted.is_empty() {
            if self.present.is_some() {
                self.changes.unset_name_servers()?;
                self.present = None;
            }
            let present = present_name_servers();
            return Ok(Kept::Unset { present });
        }
        let is_same = self.present.as_deref() == Some(wanted);
        if is_same && self.changes.name_servers_hold()? {
            return Ok(Kept::AsBefore);
        }
        let mut former = present_name_servers();
        former.retain(|server| !wanted.contains(server));
        let ways = self.changes.set_name_servers(wanted.to_vec(), self.all_names)?;
        self.present = Some(wanted.to_vec());
        Ok(Kept::Set {
            ways,
            former,
            is_again: is_same,
        })
    }
}

#[cfg(test)]
mod tests {
    use host::GuardianProgram;
    use tunnel_proto::{ClientId, TunRoutes};

    use super::*;

    fn names(dns: &[&str], default_route: bool, takes_offered_dns: bool) -> Names {
        let settings = ClientTun {
            name: None,
            client: ClientId([1; 16]),
            routes: TunRoutes::Advertised,
            default_route,
            allow_lan: false,
            exclude: Vec::new(),
            kill_switch: false,
            dns: servers(dns),
            takes_offered_dns,
            offloads: true,
            flood_limit: None,
            changes: HostChanges::by_this_process("/nonexistent".as_ref(), GuardianProgram::this_program())
                .unwrap(),
        };
        Names::new(&settings)
    }

    fn servers(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn start() -> Instant {
        Instant::now()
    }

    /// SESSION-18.
    #[test]
    fn an_offer_is_taken_with_a_default_route_alone_and_only_of_versions_that_have_an_address() {
        let wanted = |mut names: Names, addresses: &[&str]| {
            let addresses: Vec<Prefix> = addresses.iter().map(|text| text.parse().unwrap()).collect();
            names.offer(start(), &servers(&["10.9.0.1", "fd09::1"]), &addresses);
            names.servers
        };
        let both = ["10.9.0.2", "fd09::2"];
        assert_eq!(
            wanted(names(&[], true, true), &both),
            servers(&["10.9.0.1", "fd09::1"])
        );
        assert_eq!(wanted(names(&[], true, true), &both[1..]), servers(&["fd09::1"]));
        assert!(wanted(names(&[], false, true), &both).is_empty());
        assert!(wanted(names(&[], true, false), &both).is_empty());
        assert_eq!(
            wanted(names(&["9.9.9.9"], true, true), &both),
            servers(&["9.9.9.9"])
        );
    }

    #[test]
    fn pauses_grow_while_something_is_wrong_and_nothing_is_told_twice() {
        let mut names = names(&["9.9.9.9"], true, true);
        let mut now = start();
        names.begin(now);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            names.wait(now, true);
            let due = names.due.unwrap();
            pauses.push(due - now);
            now = due;
        }
        assert!(pauses.is_sorted() && pauses[0] < pauses[1]);
        assert_eq!(pauses.last(), Some(&limits::NAMES_RETRY_MAX));
        assert!(names.take_error("no bus".to_owned()).is_some());
        assert!(names.take_error("no bus".to_owned()).is_none());
        assert!(names.take_error("another".to_owned()).is_some());
        let set = || Kept::Set {
            ways: vec![NamesWay::File],
            former: Vec::new(),
            is_again: false,
        };
        assert!(names.take_kept(now, &servers(&["9.9.9.9"]), set()).is_some());
        assert_eq!(names.snapshot().unwrap().error, None);
        assert_eq!(names.due, Some(now + limits::NAMES_RETRY_MIN));
        assert!(
            names
                .take_kept(now, &servers(&["9.9.9.9"]), Kept::AsBefore)
                .is_none()
        );
    }

    #[test]
    fn an_offer_that_changes_is_set_at_once_and_the_old_servers_stay_ours_until_then() {
        let mut names = names(&[], true, true);
        let now = start();
        let addresses = ["10.9.0.2".parse().unwrap()];
        names.offer(now, &servers(&["10.9.0.1"]), &addresses);
        assert_eq!(names.due, None, "the device is not there yet");
        names.begin(now);
        names.take_kept(now, &servers(&["10.9.0.1"]), Kept::AsBefore);
        assert!(names.due.unwrap() > now);
        names.offer(now, &servers(&["10.9.0.7"]), &addresses);
        assert_eq!(names.due, Some(now));
        for server in servers(&["10.9.0.1", "10.9.0.7"]) {
            assert!(names.own().contain(server));
        }
        names.begin(now + Duration::from_secs(1));
        assert_eq!(names.due, Some(now), "it begins once");
    }
}
