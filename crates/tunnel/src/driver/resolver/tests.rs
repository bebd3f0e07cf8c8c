//! Names against a name server on this machine.

use std::fs;
use std::net::UdpSocket;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use packet_io::Poller;
use tempfile::TempDir;

use super::*;
use crate::notices::{self, NoticeReceiver};

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
                ("both.test.", RecordType::AAAA) => Some(RData::AAAA(AAAA("2001:db8::1".parse().unwrap()))),
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
    /// Where name servers listen.
    port: u16,
    resolver: Resolver,
    notices: NoticeReceiver,
    _poller: Poller,
}

/// A name server of our own `--dns`.
const IN_TUNNEL: &str = "192.0.2.53";

const RESOLV_CONF: &str = "nameserver 127.0.0.1\n";

fn setup() -> Setup {
    setup_with(RESOLV_CONF, limits::RESOLUTION_TIME_MAX)
}

fn setup_with(resolv_conf: &str, time_max: Duration) -> Setup {
    setup_beside(Way::Routes, IN_TUNNEL, resolv_conf, time_max)
}

fn setup_beside(way: Way, excluded: &str, resolv_conf: &str, time_max: Duration) -> Setup {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("resolv.conf"), resolv_conf).unwrap();
    fs::write(directory.path().join("hosts"), "192.0.2.7 listed.test\n").unwrap();
    let poller = Poller::new().unwrap();
    let waker = Waker::new(&poller, 0).unwrap();
    let port = name_server();
    let sources = NameSources {
        resolv_conf: directory.path().join("resolv.conf"),
        resolved_conf: directory.path().join("resolved.conf"),
        hosts: directory.path().join("hosts"),
        port,
        time_max,
        way,
        excluded: OwnNameServers::new(vec![excluded.parse().unwrap()]),
    };
    let (told, notices) = notices::channel();
    Setup {
        directory,
        port,
        resolver: NameService::start(sources, told).unwrap().resolver(&waker),
        notices,
        _poller: poller,
    }
}

/// All that was told since the last look.
fn told(setup: &Setup) -> Vec<Notice> {
    std::iter::from_fn(|| setup.notices.next(Duration::ZERO)).collect()
}

/// The only warning so far.
fn warning(setup: &Setup) -> String {
    let told = told(setup);
    match &told[..] {
        [Notice::Warning { text }] => text.clone(),
        _ => panic!("{told:?}"),
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
    assert_eq!(told(&setup), []);
    // A changed file is read again.
    fs::write(setup.directory.path().join("hosts"), "192.0.2.88 listed.test\n").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while addresses_of(&setup.resolver, "listed.test") != ["192.0.2.88:80"] {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_the_file_of_hosts_has_of_one_kind_is_the_answer_though_no_name_server_answers() {
    let setup = setup();
    wait_until_read_again_with(
        &setup,
        "192.0.2.7 silent-four.test\n2001:db8::7 silent-six.test\n192.0.2.8 silent-four.test\n",
    );
    for (host, expected) in [
        ("silent-four.test", &["192.0.2.7:80", "192.0.2.8:80"][..]),
        ("Silent-Six.test", &["[2001:db8::7]:80"]),
    ] {
        assert_eq!(addresses_of(&setup.resolver, host), expected);
    }
}

#[test]
fn a_line_that_cannot_be_used_leaves_the_name_servers_and_is_told() {
    let unusable = format!("search {}.test\n", "a".repeat(64));
    let setup = setup_with(&(unusable + RESOLV_CONF), limits::RESOLUTION_TIME_MAX);
    assert_eq!(addresses_of(&setup.resolver, "four.test"), ["192.0.2.4:80"]);
    let text = warning(&setup);
    assert!(text.contains("resolv.conf") && text.contains("only"), "{text}");
    assert_eq!(addresses_of(&setup.resolver, "four.test"), ["192.0.2.4:80"]);
    assert_eq!(told(&setup), [], "it is told once");
}

#[test]
fn without_a_name_server_this_machine_is_asked_and_that_is_told_with_the_first_name() {
    let setup = setup_with("# nothing\n", limits::RESOLUTION_TIME_MAX);
    assert_eq!(told(&setup), []);
    assert_eq!(addresses_of(&setup.resolver, "four.test"), ["192.0.2.4:80"]);
    let text = warning(&setup);
    assert!(text.contains("127.0.0.1"), "{text}");
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
    let impatient = setup_with(RESOLV_CONF, Duration::from_millis(300));
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

/// Beside a tunnel that is not there; whom to ask changes with the file.
fn beside_tunnel(resolv_conf: &str, time_max: Duration) -> Setup {
    let way = Way::beside(host::Network::open().unwrap(), u32::MAX);
    setup_beside(way, IN_TUNNEL, resolv_conf, time_max)
}

#[test]
fn name_servers_that_the_machine_had_before_are_asked_even_if_they_are_our_own() {
    let way = Way::beside(host::Network::open().unwrap(), u32::MAX);
    let setup = setup_beside(way, "127.0.0.1", RESOLV_CONF, limits::RESOLUTION_TIME_MAX);
    assert_eq!(addresses_of(&setup.resolver, "four.test"), ["192.0.2.4:80"]);
}

#[test]
fn those_who_were_asked_before_our_own_name_servers_are_asked_on() {
    let setup = beside_tunnel(RESOLV_CONF, limits::RESOLUTION_TIME_MAX);
    assert_eq!(addresses_of(&setup.resolver, "four.test"), ["192.0.2.4:80"]);
    let ours = format!("nameserver {IN_TUNNEL}\n");
    fs::write(setup.directory.path().join("resolv.conf"), ours).unwrap();
    wait_until_read_again(&setup);
    assert_eq!(addresses_of(&setup.resolver, "both.test").len(), 2);
}

/// When another name appears, the files have been read again.
fn wait_until_read_again(setup: &Setup) {
    wait_until_read_again_with(setup, "");
}

/// The same with other names in the file of hosts.
fn wait_until_read_again_with(setup: &Setup, hosts: &str) {
    let hosts = format!("{hosts}192.0.2.9 later.test\n");
    fs::write(setup.directory.path().join("hosts"), hosts).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while addresses_of(&setup.resolver, "later.test").is_empty() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn our_own_name_server_is_not_asked_although_it_listens_and_comes_first() {
    let way = Way::beside(host::Network::open().unwrap(), u32::MAX);
    let setup = setup_beside(way, "127.0.0.2", RESOLV_CONF, limits::RESOLUTION_TIME_MAX);
    let ours = UdpSocket::bind(("127.0.0.2", setup.port)).unwrap();
    ours.set_nonblocking(true).unwrap();
    let both = format!("nameserver 127.0.0.2\n{RESOLV_CONF}");
    fs::write(setup.directory.path().join("resolv.conf"), both).unwrap();
    wait_until_read_again(&setup);
    assert_eq!(addresses_of(&setup.resolver, "both.test").len(), 2);
    let heard = ours.recv(&mut [0]).map_err(|error| error.kind());
    assert_eq!(heard, Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn beside_a_tunnel_those_behind_systemd_resolved_are_asked_but_not_our_own() {
    // Nobody answers at the first address, and nobody may be asked at the second.
    let setup = beside_tunnel("nameserver 127.0.0.53\n", Duration::from_millis(300));
    let behind = format!("nameserver {IN_TUNNEL}\n{RESOLV_CONF}");
    fs::write(setup.directory.path().join("resolved.conf"), behind).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while addresses_of(&setup.resolver, "four.test") != ["192.0.2.4:80"] {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_passes_questions_on_asks_those_of_the_file_but_never_itself() {
    let directory = TempDir::new().unwrap();
    let resolv_conf = directory.path().join("resolv.conf");
    let named = "nameserver 10.9.0.1\nnameserver 192.0.2.1\nnameserver 2001:db8::53\n";
    fs::write(&resolv_conf, named).unwrap();
    let sources = NameSources {
        resolv_conf: resolv_conf.clone(),
        ..NameSources::without(vec!["10.9.0.1".parse().unwrap()])
    };
    let now = Instant::now();
    let mut system = SystemNameServers::new(sources, now);
    let texts = |servers: Vec<SocketAddr>| servers.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(system.servers(now)), ["192.0.2.1:53", "[2001:db8::53]:53"]);
    fs::write(&resolv_conf, "nameserver 192.0.2.77\n").unwrap();
    assert_eq!(
        texts(system.servers(now + limits::NAME_SOURCES_INTERVAL)),
        ["192.0.2.77:53"]
    );
    fs::write(&resolv_conf, "nameserver 10.9.0.1\n").unwrap();
    assert!(system.servers(now + 2 * limits::NAME_SOURCES_INTERVAL).is_empty());
}
