//! `gramway peer` on two machines with one cable: a path is measured, data goes both ways, and what is wrong is told.

use peer::blocking::wait_for;
use peer::{Delivery, Endpoint, Peer, SecretKey};
use serde_json::{Value, json};
use system_tests::cover::Authority;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, UNAVAILABLE, gramway_binary};
use system_tests::require_root;
use system_tests::topology::{PAIR_SERVER_V4, PAIR_SERVER_V6, Pair};
use system_tests::tunnel::Server;
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::confinement::{NET_ADMIN, NET_BIND_SERVICE, assert_confined, fields, threads};
use crate::scene::LISTEN;

const PORT: u16 = 4_000;

/// Starts the command with a state directory of this machine's own.
pub(crate) fn start(machine: &Namespace, directory: &Directory, name: &str, arguments: &[&str]) -> Process {
    let mut command = machine.command(gramway_binary());
    command
        .args(["peer", "--state"])
        .arg(directory.join(name))
        .args(arguments);
    Process::start(command, "gramway peer").unwrap()
}

/// Runs it to its end: the exit code, standard output, standard error.
pub(crate) fn run(
    machine: &Namespace,
    directory: &Directory,
    name: &str,
    arguments: &[&str],
) -> (i32, String, String) {
    let mut process = start(machine, directory, name, arguments);
    let code = process.wait(PROGRAM_LIMIT).unwrap().code().unwrap();
    (code, process.stdout(), process.stderr())
}

pub(crate) fn id(machine: &Namespace, directory: &Directory, name: &str) -> String {
    run(machine, directory, name, &["id"]).1.trim().to_owned()
}

/// Two questions to a peer, wherever it is found.
fn two_pings(peer: &str) -> [&str; 8] {
    ["ping", peer, "-c", "2", "--interval", "10", "--timeout", "60"]
}

#[test]
fn two_machines_measure_their_path_and_pipe_through_it_by_their_keys_alone() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let caller = id(&pair.client, &directory, "caller");
    let listening = id(&pair.server, &directory, "listener");
    let peers = directory
        .write("peers", &format!("# the other\n{caller}\n"))
        .unwrap();
    let listen = [
        "listen",
        "--listen",
        "[::]:4000",
        "--allow-file",
        peers.to_str().unwrap(),
    ];
    let mut listener = start(&pair.server, &directory, "listener", &listen);
    listener.close_stdin();
    listener.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();

    let silent = "10.77.0.9:4000";
    for at in [
        format!("{PAIR_SERVER_V4}:{PORT}"),
        format!("[{PAIR_SERVER_V6}]:{PORT}"),
    ] {
        let place = format!("{listening}@{silent}");
        let ping = [
            "ping",
            &place,
            "--at",
            &at,
            "-c",
            "3",
            "--interval",
            "10",
            "--timeout",
            "60",
        ];
        let (code, text, errors) = run(&pair.client, &directory, "caller", &ping);
        assert_eq!(code, 0, "{errors}");
        assert!(
            text.contains(&format!("{listening} at {at} (given), directly")),
            "{text}"
        );
        let tried = text.lines().find(|line| line.starts_with("tried: ")).unwrap();
        assert!(tried.contains(&format!("{at} (given): connected")), "{text}");
        // IPv6 is begun first, and may answer before the other one's turn.
        let silence = ["no answer", "not tried", "the machine is out of reach"];
        let told = silence.map(|told| format!("{silent} (given): {told}"));
        assert!(told.iter().any(|told| tried.contains(told)), "{text}");
        assert!(text.contains("3 sent, 3 answered, 0 % lost"), "{text}");
    }

    let data: String = (0..5_000).map(|number| format!("{number}\n")).collect();
    let place = format!("{listening}@{PAIR_SERVER_V4}:{PORT}");
    let mut pipe = start(&pair.client, &directory, "caller", &["pipe", &place]);
    pipe.tell(data.trim_end()).unwrap();
    pipe.close_stdin();
    assert!(pipe.wait(PROGRAM_LIMIT).unwrap().success(), "{}", pipe.stderr());
    wait_until("what the pipe brought", PROGRAM_LIMIT, || {
        listener.stdout() == data
    });

    let stranger = id(&pair.client, &directory, "stranger");
    let (code, _, errors) = run(&pair.client, &directory, "stranger", &["ping", &place]);
    assert_eq!(code, PERMISSION, "{errors}");
    assert!(errors.contains(&format!("--allow {stranger}")), "{errors}");
    let other = format!("{stranger}@{PAIR_SERVER_V4}:{PORT}");
    let elsewhere = ["ping", &other, "--no-lan"];
    let (code, _, errors) = run(&pair.client, &directory, "caller", &elsewhere);
    assert_eq!(code, PERMISSION, "{errors}");
    assert!(errors.contains("another peer is at this address"), "{errors}");
    let nowhere = format!("{listening}@{silent}");
    let (code, _, errors) = run(
        &pair.client,
        &directory,
        "caller",
        &["ping", &nowhere, "--no-lan", "--timeout", "1"],
    );
    assert_eq!(code, UNAVAILABLE, "{errors}");
    let tried = format!("nobody answered within 1 s; tried in this order: {silent} (given): ");
    assert!(errors.contains(&tried), "{errors}");
}

#[test]
fn a_ping_whose_peer_begins_anew_connects_again_and_goes_on() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let listening = id(&pair.server, &directory, "listener");
    let listen = [
        "listen",
        "--any",
        "--listen",
        "[::]:4000",
        "--no-lan",
        "--no-port-mapping",
    ];
    let mut listener = start(&pair.server, &directory, "listener", &listen);
    listener.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();
    let place = format!("{listening}@{PAIR_SERVER_V4}:{PORT}");
    let ping = [
        "ping",
        &place,
        "-c",
        "1000000",
        "--interval",
        "20",
        "--no-lan",
        "--timeout",
        "60",
    ];
    let mut ping = start(&pair.client, &directory, "caller", &ping);
    ping.wait_for_line("answer 2 from", PROGRAM_LIMIT).unwrap();
    listener.end(PROGRAM_LIMIT);
    ping.wait_for_line("the peer has ended; connecting again", PROGRAM_LIMIT)
        .unwrap();
    let answered = ping
        .stdout()
        .lines()
        .filter(|line| line.starts_with("answer "))
        .count();

    let mut listener = start(&pair.server, &directory, "listener", &listen);
    listener.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();
    ping.wait_for_starts(&format!("{listening} at "), 2, PROGRAM_LIMIT)
        .unwrap();
    let answer = ping
        .wait_for_starts("answer ", answered + 1, PROGRAM_LIMIT)
        .unwrap();
    let number: usize = answer.split(' ').nth(1).unwrap().parse().unwrap();
    assert!(number > answered + 1, "{answer}: those between were lost");
}

/// Answers the first ping of a peer, and ends the connection at the next one.
fn answer_once(peer: &Peer) {
    let receive = || wait_for(PROGRAM_LIMIT, peer.receive()).unwrap().unwrap();
    let first = receive().body;
    let number = first.strip_prefix(b"ping").unwrap();
    let answer = peer.try_send([b"pong", number].concat(), Delivery::unordered());
    // It has arrived before the end.
    wait_for(PROGRAM_LIMIT, answer.unwrap()).unwrap();
    receive();
    peer.close(0, "");
}

#[test]
fn a_ping_whose_connection_ends_before_the_last_answer_does_not_connect_again_nor_say_so() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let endpoint = pair.server.inside(|| {
        let key = SecretKey::generate().unwrap();
        Endpoint::bind(key, "[::]:4000".parse().unwrap()).unwrap()
    });
    let place = format!("{}@{PAIR_SERVER_V4}:{PORT}", endpoint.id());
    let ping = [&two_pings(&place)[..], &["--no-lan"]].concat();
    let mut ping = start(&pair.client, &directory, "caller", &ping);
    let peer = wait_for(PROGRAM_LIMIT, endpoint.accept()).flatten().unwrap();
    answer_once(&peer);
    assert!(ping.wait(PROGRAM_LIMIT).unwrap().success(), "{}", ping.stderr());
    let text = ping.stdout();
    let told = text
        .lines()
        .find(|line| line.starts_with("the connection has ended: "));
    let told = told.unwrap_or_else(|| panic!("{text}"));
    assert!(!told.contains("connecting again"), "{told}");
    assert!(text.contains("2 sent, 1 answered"), "{text}");
}

/// What a command printed as JSON, by events.
fn events(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn programs_read_the_whole_path_and_why_each_address_failed() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let listening = id(&pair.server, &directory, "listener");
    let listen = ["listen", "--any", "--listen", "[::]:4000", "--no-lan", "--json"];
    let mut listener = start(&pair.server, &directory, "listener", &listen);
    let told = listener.wait_for_line("\"not_mapped\"", PROGRAM_LIMIT).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["reason"], "no_router", "{told}");
    let place = format!("{listening}@{PAIR_SERVER_V4}:{PORT}");
    let ping = [
        "ping",
        &place,
        "-c",
        "2",
        "--interval",
        "10",
        "--no-lan",
        "--json",
        "--timeout",
        "60",
    ];
    let (code, text, errors) = run(&pair.client, &directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    let events_of = |text: &str, event: &str| -> Vec<Value> {
        let all = events(text).into_iter();
        all.filter(|told| told["event"] == event).collect()
    };
    let connected = &events_of(&text, "connected")[0];
    assert_eq!(connected["attempts"][0]["outcome"], "connected", "{connected}");
    assert_eq!(connected["attempts"][0]["source"], "given", "{connected}");
    assert_eq!(events_of(&text, "answer").len(), 2);
    let summary = &events_of(&text, "summary")[0];
    let stats = &summary["path_stats"];
    assert_eq!(
        (&stats["is_relayed"], &summary["answered"]),
        (&json!(false), &json!(2))
    );
    assert!(stats["round_trip_ms"].as_f64().unwrap() > 0.0, "{stats}");
    assert!(stats["packets"]["sent"].as_u64().unwrap() > 2, "{stats}");
    assert_eq!(stats["messages_sent"]["accepted"], 2, "{stats}");

    // Nobody listens at the one port, and no route leads to the other place: both are told long before the timeout.
    let closed = format!("{listening}@{PAIR_SERVER_V4}:4001");
    let nowhere = "203.0.113.1:4000";
    let ping = [
        "ping",
        &closed,
        "--at",
        nowhere,
        "--no-lan",
        "--json",
        "--timeout",
        "3600",
    ];
    let (code, text, errors) = run(&pair.client, &directory, "caller", &ping);
    assert_eq!(code, UNAVAILABLE, "{errors}");
    let failed = &events_of(&text, "not_reached")[0];
    let mut outcomes: Vec<_> = failed["attempts"].as_array().unwrap().iter().collect();
    outcomes.sort_by_key(|attempt| attempt["address"].as_str() == Some(nowhere));
    let outcomes: Vec<_> = outcomes.iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["port_closed", "network_unreachable"], "{failed}");
    assert!(errors.contains("nobody listens at this port"), "{errors}");
}

/// Two machines meet at the server of this link, of which `roots` are to be trusted.
pub(crate) fn assert_meets(pair: &Pair, directory: &Directory, link: &str, roots: &[&str]) {
    let link = directory.write("rendezvous", link).unwrap();
    let rendezvous = [&["--rendezvous-file", link.to_str().unwrap()], roots].concat();
    let caller = id(&pair.client, directory, "caller");
    let listening = id(&pair.server, directory, "listener");
    let listen = [&["listen", "--allow", &caller], &rendezvous[..]].concat();
    let mut listener = start(&pair.server, directory, "listener", &listen);
    listener
        .wait_for_line(
            "registered at the rendezvous, which sees this machine at",
            PROGRAM_LIMIT,
        )
        .unwrap();
    // Both are on one network, where they would find each other as well.
    let ping = [&two_pings(&listening), &["--no-lan"][..], &rendezvous[..]].concat();
    let (code, text, errors) = run(&pair.client, directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains("(of the rendezvous), directly"), "{text}");
    assert!(text.contains("2 sent, 2 answered, 0 % lost"), "{text}");
}

#[test]
fn two_machines_that_know_no_address_of_each_other_meet_at_a_server() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
    let link = directory.write("link", &server.link()).unwrap();
    let listening = id(&pair.server, &directory, "listener");
    // Nobody is there to be met.
    let alone = [
        "ping",
        &listening,
        "--timeout",
        "1",
        "--rendezvous-file",
        link.to_str().unwrap(),
    ];
    let (code, _, errors) = run(&pair.client, &directory, "caller", &alone);
    assert_eq!(code, UNAVAILABLE, "{errors}");
    assert_meets(&pair, &directory, &server.link(), &[]);
}

#[test]
fn an_address_that_is_given_is_tried_though_the_server_of_the_link_is_dead_and_a_failure_says_so() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
    let link = directory.write("link", &server.link()).unwrap();
    drop(server);
    let rendezvous = ["--no-lan", "--rendezvous-file", link.to_str().unwrap()];
    let listening = id(&pair.server, &directory, "listener");
    let listen = ["listen", "--any", "--listen", "[::]:4000", "--no-port-mapping"];
    let mut listener = start(
        &pair.server,
        &directory,
        "listener",
        &[&listen[..], &rendezvous[..1]].concat(),
    );
    listener.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();
    let place = format!("{listening}@{PAIR_SERVER_V4}:{PORT}");
    let ping = [&two_pings(&place)[..], &rendezvous].concat();
    let (code, text, errors) = run(&pair.client, &directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains("(given), directly"), "{text}");

    // Without an address there is nobody to ask but that server.
    let part = "this machine is not registered at the server of the link: ";
    let ping = ["ping", &listening, "--timeout", "1", "--json"];
    let ping = [&ping[..], &rendezvous].concat();
    let (code, text, errors) = run(&pair.client, &directory, "caller", &ping);
    assert_eq!(code, UNAVAILABLE, "{errors}");
    assert!(errors.contains(part), "{errors}");
    let told = events(&text).pop().unwrap();
    assert_eq!(told["event"], "not_reached", "{told}");
    assert!(told["text"].as_str().unwrap().contains(part), "{told}");
    assert!(told["rendezvous_problem"].is_string(), "{told}");
}

/// RDV-5.
#[test]
fn a_server_whose_rendezvous_is_switched_off_says_so_and_others_count() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let place = pair.server.place();
    let off = Server::start(&place, "off", LISTEN, &["--no-rendezvous"], directory.path());
    let link = directory.write("link", &off.link()).unwrap();
    let listening = id(&pair.server, &directory, "listener");
    let file = link.to_str().unwrap();
    let ping = ["ping", &listening, "--timeout", "3", "--rendezvous-file", file];
    let (code, _, errors) = run(&pair.client, &directory, "caller", &ping);
    assert_eq!(code, UNAVAILABLE, "{errors}");
    assert!(errors.contains("lets no peers find each other"), "{errors}");
    assert!(off.status()["rendezvous"].is_null());
    drop(off);
    let on = Server::start(&place, "on", LISTEN, &[], directory.path());
    assert_meets(&pair, &directory, &on.link(), &[]);
    let counted = |counter: &str| on.status()["rendezvous"][counter].as_u64().unwrap();
    assert_eq!(counted("registrations"), 2);
    assert!(counted("calls") >= 1 && counted("answers") >= 1);
}

#[test]
fn two_machines_meet_at_a_server_with_an_ordinary_certificate() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let authority = Authority::create(directory.path());
    let [chain, key] = authority.issue(PAIR_SERVER_V4);
    let own = [
        "--tls-cert",
        chain.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ];
    let server = Server::start(&pair.server.place(), "server", LISTEN, &own, directory.path());
    let root = authority.root().to_str().unwrap();
    assert_meets(&pair, &directory, &server.link(), &["--rendezvous-roots", root]);
}

/// Names of the link are resolved, the network is told of the listener, and its router is asked, all the same.
#[test]
fn peers_keep_what_they_go_on_needing_alone() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let server = Server::start(
        &pair.server.place(),
        "server",
        "127.0.0.1:4433",
        &[],
        directory.path(),
    );
    let link = server.link().replace("127.0.0.1:4433", "localhost:4433");
    assert!(link.contains("@localhost:4433"), "{link}");
    let link = directory.write("named", &link).unwrap();
    let listen = [
        "listen",
        "--any",
        "--listen",
        "[::]:443",
        "--rendezvous-file",
        link.to_str().unwrap(),
    ];
    let mut listener = start(&pair.server, &directory, "listener", &listen);
    for told in ["registered at the rendezvous", "announced on the local network"] {
        listener.wait_for_line(told, PROGRAM_LIMIT).unwrap();
    }
    let place = format!(
        "{}@{PAIR_SERVER_V4}:443",
        id(&pair.server, &directory, "listener")
    );
    let mut pipe = start(&pair.client, &directory, "caller", &["pipe", &place]);
    pipe.tell("confined").unwrap();
    wait_until("what the pipe brought", PROGRAM_LIMIT, || {
        listener.stdout() == "confined\n"
    });
    // The system's limits of buffers decide about NET_ADMIN.
    for (process, allowed) in [(&listener, NET_ADMIN | NET_BIND_SERVICE), (&pipe, NET_ADMIN)] {
        let threads = threads(process.id());
        assert!(threads.len() > 2, "the endpoint's, and those of the pipe");
        assert_confined(&threads, allowed);
        assert!(
            !process.stderr().contains("does not hold"),
            "{}",
            process.stderr()
        );
    }
    let mut open = start(
        &pair.client,
        &directory,
        "open",
        &["listen", "--any", "--no-sandbox"],
    );
    open.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();
    let status = fields(format!("/proc/{}/status", open.id()).into());
    assert_eq!(
        (status["Seccomp"].as_str(), status["NoNewPrivs"].as_str()),
        ("0", "0")
    );
}

/// LAN-1, LAN-2.
#[test]
fn two_machines_on_one_network_meet_by_the_peer_id_alone_unless_told_not_to() {
    require_root!();
    let pair = Pair::new(1500);
    let directory = Directory::create_for_test().unwrap();
    let caller = id(&pair.client, &directory, "caller");
    let listening = id(&pair.server, &directory, "listener");
    let mut listener = start(
        &pair.server,
        &directory,
        "listener",
        &["listen", "--allow", &caller],
    );
    let announced = "announced on the local network";
    listener.wait_for_line(announced, PROGRAM_LIMIT).unwrap();
    let quiet = ["listen", "--allow", &caller, "--no-lan"];
    let mut hidden = start(&pair.server, &directory, "hidden", &quiet);
    hidden.wait_for_line("listening at", PROGRAM_LIMIT).unwrap();

    let ping = two_pings(&listening);
    let (code, text, errors) = run(&pair.client, &directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains("(on the local network), directly"), "{text}");
    assert!(text.contains("2 sent, 2 answered, 0 % lost"), "{text}");

    let unannounced = id(&pair.server, &directory, "hidden");
    let (code, _, errors) = run(&pair.client, &directory, "caller", &["ping", &unannounced]);
    assert_eq!(code, UNAVAILABLE, "{errors}");
    assert!(errors.contains("nobody was met"), "{errors}");
}
