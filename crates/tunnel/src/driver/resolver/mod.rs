//! Names become addresses without a shard waiting: one thread asks the system's name servers for all shards.
//!
//! It reads `/etc/hosts` and `/etc/resolv.conf` as the C library does, and reads them again when they change. What
//! only plug-ins of the C library know (`nsswitch.conf`: mDNS, LDAP) is not found. Answers are kept as long as their
//! TTL allows.

mod sockets;
mod sources;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{ConnectionProvider, Hosts, Resolver as Lookups};
use packet_io::Waker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as channel};

use crate::handle::Notice;
use crate::limits;
use crate::notices::NoticeSender;
use sources::{Described, Names};

pub(super) use sockets::Way;
pub(super) use sources::{NameSources, OwnNameServers, SystemNameServers};

/// What a question was asked for: the driver's own number.
pub(super) type Purpose = u64;

/// A name on its way. Its end is its answer: whatever becomes of it, the shard hears of it.
struct Question {
    purpose: Purpose,
    host: String,
    port: u16,
    found: Result<Vec<SocketAddr>, Unresolved>,
    asker: Asker,
    /// One of the open questions that the shard may have.
    _permit: OwnedSemaphorePermit,
}

impl Drop for Question {
    fn drop(&mut self) {
        let found = std::mem::replace(&mut self.found, Err(Unresolved::Unasked));
        self.asker.tell(self.purpose, found);
    }
}

/// Where an answer goes.
#[derive(Clone)]
struct Asker {
    answers: mpsc::Sender<Answer>,
    waker: Waker,
}

impl Asker {
    fn tell(&self, purpose: Purpose, found: Result<Vec<SocketAddr>, Unresolved>) {
        // A shard that has ended wants no answer.
        if self.answers.send(Answer { purpose, found }).is_ok() {
            self.waker.wake();
        }
    }
}

/// The one answer to a question.
pub(super) struct Answer {
    pub(super) purpose: Purpose,
    /// Addresses in the order in which they should be tried, at least one.
    pub(super) found: Result<Vec<SocketAddr>, Unresolved>,
}

/// Why there is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// The name has none, or the name servers cannot say.
    Absent,
    /// No name server answered in time.
    Late,
    /// Nobody was asked: too many questions are open, or the resolving thread has ended.
    Unasked,
}

/// The thread that resolves, for all shards of the process. It ends with the last [`Resolver`].
pub(super) struct NameService {
    questions: channel::Sender<Question>,
}

impl NameService {
    /// What is wrong with the sources is told by `notices`.
    ///
    /// # Errors
    /// When the kernel gives no thread, or no poller to it.
    pub(super) fn start(sources: NameSources, notices: NoticeSender) -> std::io::Result<Self> {
        let (questions, mut asked) = channel::channel::<Question>(limits::RESOLUTIONS_MAX);
        let (time_max, way) = (sources.time_max, sources.way.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    let mut names = Names::new(sources, Instant::now());
                    while let Some(question) = asked.recv().await {
                        let resolver = names.resolver(Instant::now());
                        if let Some(text) = names.poll_warning() {
                            notices.send(Notice::Warning { text });
                        }
                        tokio::spawn(answer(resolver, question, time_max, way.clone()));
                    }
                });
            })?;
        Ok(Self { questions })
    }

    /// The end of one shard, which `waker` wakes when an answer is there.
    pub(super) fn resolver(&self, waker: &Waker) -> Resolver {
        let (answers, answered) = mpsc::channel();
        Resolver {
            questions: self.questions.clone(),
            open: Arc::new(Semaphore::new(limits::RESOLUTIONS_PER_SHARD)),
            asker: Asker {
                answers,
                waker: waker.clone(),
            },
            answered,
        }
    }
}

/// A shard's way to the [`NameService`].
pub(super) struct Resolver {
    questions: channel::Sender<Question>,
    open: Arc<Semaphore>,
    asker: Asker,
    answered: mpsc::Receiver<Answer>,
}

impl Resolver {
    /// Asks. One [`Answer`] follows, whatever happens.
    pub(super) fn ask(&self, purpose: Purpose, host: &str, port: u16) {
        let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() else {
            return self.asker.tell(purpose, Err(Unresolved::Unasked));
        };
        let question = Question {
            purpose,
            host: host.to_owned(),
            port,
            found: Err(Unresolved::Unasked),
            asker: self.asker.clone(),
            _permit: permit,
        };
        // What the thread does not take comes back in the error, and ends there.
        let _ = self.questions.try_send(question);
    }

    pub(super) fn poll(&self) -> Option<Answer> {
        self.answered.try_recv().ok()
    }
}

/// Looks the name up; the question's end tells what was found.
async fn answer(described: Option<Described>, mut question: Question, time_max: Duration, way: Way) {
    let Some(Described { resolver, hosts }) = described else {
        question.found = Err(Unresolved::Absent);
        return;
    };
    question.found = look_up(&resolver, &hosts, &question.host, question.port, time_max, &way).await;
}

async fn look_up<P: ConnectionProvider>(
    resolver: &Lookups<P>,
    hosts: &Hosts,
    host: &str,
    port: u16,
    time_max: Duration,
    way: &Way,
) -> Result<Vec<SocketAddr>, Unresolved> {
    let listed = listed(hosts, host);
    if !listed.is_empty() {
        return addresses(listed, port, way);
    }
    match tokio::time::timeout(time_max, resolver.lookup_ip(host)).await {
        Ok(Ok(lookup)) => addresses(lookup.iter().collect(), port, way),
        Err(_) | Ok(Err(NetError::Timeout)) => Err(Unresolved::Late),
        Ok(Err(_)) => Err(Unresolved::Absent),
    }
}

/// What hosts(5) has for a name: where that is something, no name server is asked, for the other kind of addresses
/// neither.
fn listed(hosts: &Hosts, host: &str) -> Vec<IpAddr> {
    let Ok(name) = host.parse::<Name>() else {
        return Vec::new();
    };
    let kinds = [RecordType::AAAA, RecordType::A];
    let found = kinds
        .into_iter()
        .filter_map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)));
    found
        .flat_map(|lookup| {
            let answers = lookup.answers().iter();
            answers
                .filter_map(|record| record.data.ip_addr())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// A name's addresses by the text of a resolv.conf(5), over a network of the caller's, where there are some; for
/// fuzzing.
pub async fn fuzz<P: ConnectionProvider>(
    network: P,
    resolv_conf: &[u8],
    host: &str,
    port: u16,
) -> Option<Vec<SocketAddr>> {
    let (config, options, _) = sources::described(Path::new("resolv.conf"), resolv_conf, None);
    let resolver = sources::bounded(config, options, limits::NAME_SERVER_PORT, network).ok()?;
    let (time_max, way) = (limits::RESOLUTION_TIME_MAX, Way::Routes);
    let found = look_up(&resolver, &Hosts::default(), host, port, time_max, &way).await;
    found.ok()
}

/// The addresses of one name, for a program that has no shard: it waits for the answer. What is wrong with the sources
/// is not told.
pub(crate) fn resolve_once(host: &str, port: u16) -> Result<Vec<SocketAddr>, Unresolved> {
    let sources = NameSources::default();
    let (time_max, way) = (sources.time_max, sources.way.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|_| Unresolved::Unasked)?.block_on(async {
        let described = Names::new(sources, Instant::now()).resolver(Instant::now());
        let Described { resolver, hosts } = described.ok_or(Unresolved::Absent)?;
        look_up(&resolver, &hosts, host, port, time_max, &way).await
    })
}

fn addresses(found: Vec<IpAddr>, port: u16, way: &Way) -> Result<Vec<SocketAddr>, Unresolved> {
    if found.is_empty() {
        return Err(Unresolved::Absent);
    }
    let tried = in_order(found, |address| way.leads_to(address))
        .into_iter()
        .take(limits::ADDRESSES_PER_NAME);
    Ok(tried.map(|address| SocketAddr::new(address, port)).collect())
}

/// IPv6 first where it has a route (RFC 6724 section 6, rules 1 and 6), and both kinds in turn, so that the other one
/// is tried second (RFC 8305 section 4).
fn in_order(found: Vec<IpAddr>, has_route: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
    let (mut first, mut second): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
    if first.first().is_some_and(|address| !has_route(*address)) {
        std::mem::swap(&mut first, &mut second);
    }
    let both = first.len().min(second.len());
    let rest = [first.split_off(both), second.split_off(both)].concat();
    let pairs = first.into_iter().zip(second);
    pairs
        .flat_map(|(first, second)| [first, second])
        .chain(rest)
        .collect()
}
