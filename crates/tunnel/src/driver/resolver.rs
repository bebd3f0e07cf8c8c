//! Names become addresses without a shard waiting: one thread asks the system's name servers for all shards.
//!
//! It reads `/etc/hosts` and `/etc/resolv.conf` as the C library does, and reads them again when they change. What only
//! plug-ins of the C library know (`nsswitch.conf`: mDNS, LDAP) is not found. Answers are kept as long as their TTL allows.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use hickory_resolver::config::{
    LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{Hosts, TokioResolver, system_conf};
use packet_io::Waker;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc as channel};

use crate::limits;

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
pub(super) enum Unresolved {
    /// The name has none, or the name servers cannot say.
    Absent,
    /// No name server answered in time.
    Late,
    /// Nobody was asked: too many questions are open, or the resolving thread has ended.
    Unasked,
}

/// Where names are looked up.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    /// As resolv.conf(5) describes it.
    pub(super) resolv_conf: PathBuf,
    /// As hosts(5) describes it.
    pub(super) hosts: PathBuf,
    /// Where name servers listen.
    pub(super) port: u16,
    /// How long a name may take.
    pub(super) time_max: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            resolv_conf: "/etc/resolv.conf".into(),
            hosts: "/etc/hosts".into(),
            port: limits::NAME_SERVER_PORT,
            time_max: limits::RESOLUTION_TIME_MAX,
        }
    }
}

/// The thread that resolves, for all shards of the process. It ends with the last [`Resolver`].
pub(super) struct NameService {
    questions: channel::Sender<Question>,
}

impl NameService {
    /// # Errors
    /// When the kernel gives no thread, or no poller to it.
    pub(super) fn start(sources: Sources) -> std::io::Result<Self> {
        let (questions, mut asked) = channel::channel::<Question>(limits::RESOLUTIONS_MAX);
        let time_max = sources.time_max;
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
                        tokio::spawn(answer(resolver, question, time_max));
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
async fn answer(resolver: Option<TokioResolver>, mut question: Question, time_max: Duration) {
    let Some(resolver) = resolver else {
        question.found = Err(Unresolved::Absent);
        return;
    };
    let lookup = resolver.lookup_ip(question.host.as_str());
    question.found = match tokio::time::timeout(time_max, lookup).await {
        Ok(Ok(lookup)) => addresses(lookup.iter().collect(), question.port),
        Err(_) | Ok(Err(NetError::Timeout)) => Err(Unresolved::Late),
        Ok(Err(_)) => Err(Unresolved::Absent),
    };
}

fn addresses(found: Vec<IpAddr>, port: u16) -> Result<Vec<SocketAddr>, Unresolved> {
    if found.is_empty() {
        return Err(Unresolved::Absent);
    }
    let tried = in_order(found, has_route)
        .into_iter()
        .take(limits::ADDRESSES_PER_NAME);
    Ok(tried.map(|address| SocketAddr::new(address, port)).collect())
}

/// IPv6 first where it has a route, else last (RFC 6724 section 6, rules 1 and 6).
fn in_order(found: Vec<IpAddr>, has_route: impl Fn(IpAddr) -> bool) -> Vec<IpAddr> {
    let (mut first, mut second): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
    if first.first().is_some_and(|address| !has_route(*address)) {
        std::mem::swap(&mut first, &mut second);
    }
    first.append(&mut second);
    first
}

/// Whether the kernel knows a way there; nothing is sent, and the port does not matter.
fn has_route(address: IpAddr) -> bool {
    let unspecified: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((unspecified, 0))
        .is_ok_and(|socket| socket.connect((address, limits::NAME_SERVER_PORT)).is_ok())
}

/// The resolver of the present configuration.
struct Names {
    sources: Sources,
    resolver: Option<TokioResolver>,
    stamp: [Option<(SystemTime, u64)>; 2],
    looked_at: Instant,
}

impl Names {
    fn new(sources: Sources, now: Instant) -> Self {
        Self {
            stamp: stamp(&sources),
            resolver: build(&sources),
            sources,
            looked_at: now,
        }
    }

    /// None where the configuration is of no use.
    fn resolver(&mut self, now: Instant) -> Option<TokioResolver> {
        if now.saturating_duration_since(self.looked_at) >= limits::NAME_SOURCES_INTERVAL {
            self.looked_at = now;
            let stamp = stamp(&self.sources);
            if stamp != self.stamp {
                self.stamp = stamp;
                self.resolver = build(&self.sources);
            }
        }
        self.resolver.clone()
    }
}

/// Changes when one of the files does.
fn stamp(sources: &Sources) -> [Option<(SystemTime, u64)>; 2] {
    [&sources.resolv_conf, &sources.hosts].map(|path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    })
}

fn build(sources: &Sources) -> Option<TokioResolver> {
    let (mut config, mut options) = configuration(&sources.resolv_conf);
    for server in &mut config.name_servers {
        for connection in &mut server.connections {
            connection.port = sources.port;
        }
    }
    options.timeout = options.timeout.min(limits::RESOLUTION_TRY_TIME);
    options.attempts = limits::RESOLUTION_RETRIES as usize;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.cache_size = limits::NAMES_CACHED_MAX;
    options.negative_max_ttl = Some(limits::NAME_ABSENT_TIME_MAX);
    options.use_hosts_file = ResolveHosts::Never;
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    *builder.options_mut() = options;
    let mut resolver = builder.build().ok()?;
    let mut hosts = Hosts::default();
    if let Ok(file) = std::fs::File::open(&sources.hosts) {
        // A line that cannot be read leaves the lines before it.
        let _ = hosts.read_hosts_conf(file);
    }
    resolver.set_hosts(Arc::new(hosts));
    Some(resolver)
}

/// What the file says; the name server of this machine where it says nothing, as the C library does.
fn configuration(path: &Path) -> (ResolverConfig, ResolverOpts) {
    let text = std::fs::read(path).unwrap_or_default();
    system_conf::parse_resolv_conf(text).unwrap_or_else(|_| {
        let local = NameServerConfig::udp_and_tcp(Ipv4Addr::LOCALHOST.into());
        let config = ResolverConfig::from_name_servers(vec![local]);
        (config, ResolverOpts::default())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, AAAA};
    use hickory_resolver::proto::rr::{RData, Record, RecordType};
    use packet_io::Poller;
    use tempfile::TempDir;

    use super::*;

    /// A name server on this machine that knows a few names, and stays silent about all that begin with `silent`.
    fn name_server() -> u16 {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let question = Message::from_vec(&buffer[..length]).unwrap();
                let query = question.queries[0].clone();
                let name = query.name().to_utf8();
                if name.starts_with("silent") {
                    continue;
                }
                let data = match (name.as_str(), query.query_type()) {
                    ("both.test.", RecordType::A) => Some(RData::A(A([192, 0, 2, 1].into()))),
                    ("both.test.", RecordType::AAAA) => {
                        Some(RData::AAAA(AAAA("2001:db8::1".parse().unwrap())))
                    }
                    ("four.test.", RecordType::A) => Some(RData::A(A([192, 0, 2, 4].into()))),
                    _ => None,
                };
                let is_known = data.is_some() || name == "four.test.";
                let mut answer = question.into_response();
                answer.additionals.clear();
                answer.edns = None;
                if let Some(data) = data {
                    answer.add_answer(Record::from_rdata(query.name().clone(), 60, data));
                }
                if !is_known {
                    answer.metadata.response_code = ResponseCode::NXDomain;
                }
                socket.send_to(&answer.to_vec().unwrap(), from).unwrap();
            }
        });
        port
    }

    struct Setup {
        directory: TempDir,
        resolver: Resolver,
        _poller: Poller,
    }

    fn setup() -> Setup {
        setup_with(limits::RESOLUTION_TIME_MAX)
    }

    fn setup_with(time_max: Duration) -> Setup {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
        fs::write(directory.path().join("hosts"), "192.0.2.7 listed.test\n").unwrap();
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 0).unwrap();
        let sources = Sources {
            resolv_conf: directory.path().join("resolv.conf"),
            hosts: directory.path().join("hosts"),
            port: name_server(),
            time_max,
        };
        Setup {
            directory,
            resolver: NameService::start(sources).unwrap().resolver(&waker),
            _poller: poller,
        }
    }

    fn wait(resolver: &Resolver) -> Answer {
        resolver.answered.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    fn addresses_of(resolver: &Resolver, host: &str) -> Vec<String> {
        resolver.ask(1, host, 80);
        let found = wait(resolver).found.unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_come_from_the_servers_and_files_that_the_system_names() {
        let setup = setup();
        assert_eq!(addresses_of(&setup.resolver, "four.test"), ["192.0.2.4:80"]);
        assert_eq!(addresses_of(&setup.resolver, "listed.test"), ["192.0.2.7:80"]);
        let mut both = addresses_of(&setup.resolver, "both.test");
        both.sort();
        assert_eq!(both, ["192.0.2.1:80", "[2001:db8::1]:80"]);
        assert!(addresses_of(&setup.resolver, "unknown.test").is_empty());
        // A changed file is read again.
        fs::write(setup.directory.path().join("hosts"), "192.0.2.88 listed.test\n").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while addresses_of(&setup.resolver, "listed.test") != ["192.0.2.88:80"] {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn hundreds_of_names_without_an_answer_hold_up_no_other() {
        let setup = setup();
        for number in 0..500 {
            setup.resolver.ask(number, &format!("silent-{number}.test"), 80);
        }
        setup.resolver.ask(1_000, "four.test", 80);
        assert_eq!(wait(&setup.resolver).purpose, 1_000);
    }

    #[test]
    fn a_shard_has_no_more_open_questions_than_its_limit() {
        let setup = setup();
        for number in 0..limits::RESOLUTIONS_PER_SHARD as u64 {
            setup.resolver.ask(number, &format!("silent-{number}.test"), 80);
        }
        setup.resolver.ask(9_999, "four.test", 80);
        let answer = wait(&setup.resolver);
        assert_eq!((answer.purpose, answer.found), (9_999, Err(Unresolved::Unasked)));
    }

    #[test]
    fn a_name_that_is_absent_is_told_apart_from_one_without_an_answer() {
        let impatient = setup_with(Duration::from_millis(300));
        impatient.resolver.ask(1, "silent.test", 80);
        assert_eq!(wait(&impatient.resolver).found, Err(Unresolved::Late));
        let setup = setup();
        setup.resolver.ask(2, "unknown.test", 80);
        assert_eq!(wait(&setup.resolver).found, Err(Unresolved::Absent));
    }

    #[test]
    fn a_question_that_the_thread_does_not_take_up_is_answered_all_the_same() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 0).unwrap();
        let (questions, taken) = channel::channel(1);
        let resolver = NameService { questions }.resolver(&waker);
        let unasked = |purpose| {
            let answer = resolver.poll().expect("there is an answer");
            assert_eq!(
                (answer.purpose, answer.found),
                (purpose, Err(Unresolved::Unasked))
            );
        };
        // One waits for the thread; there is no room for the other.
        resolver.ask(1, "four.test", 80);
        assert!(resolver.poll().is_none());
        resolver.ask(2, "four.test", 80);
        unasked(2);
        // The thread dies with what it has not taken up, and is asked again.
        drop(taken);
        unasked(1);
        resolver.ask(3, "four.test", 80);
        unasked(3);
        assert!(resolver.poll().is_none());
    }

    #[test]
    fn ipv6_comes_first_where_it_has_a_route_and_last_where_not() {
        let four: IpAddr = [192, 0, 2, 1].into();
        let six: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(in_order(vec![four, six], |_| true), [six, four]);
        assert_eq!(
            in_order(vec![six, four], |address| address.is_ipv4()),
            [four, six]
        );
    }
}
