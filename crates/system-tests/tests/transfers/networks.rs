//! Networks that let little through, and less while a transfer runs.

use super::*;
use crate::peers::world::{FIRST_PORT, Kind, Open, PortRestricted, World};

/// Two machines in networks of their own that are registered at one server, which listens in TCP's shape, too.
fn world() -> World {
    let world = World::with(&["--tcp"]);
    world.set_kinds([Open, Open], FIRST_PORT);
    world
}

/// Two such machines that reach nothing but the server.
fn relayed_world() -> World {
    let world = world();
    set_between(&world, "ip saddr != 203.0.113.2 ip daddr != 203.0.113.2 drop;");
    world
}

/// Between the networks, packets pass by this rule of nftables alone.
fn set_between(world: &World, rule: &str) {
    let [between, _] = &world.between;
    let rules = format!(
        "table ip between\ndelete table ip between\n\
         table ip between {{ chain forward {{ type filter hook forward priority 0; {rule} }}; }}\n"
    );
    between.nft(&rules).unwrap();
}

/// Both ends of a transfer that find each other by the server at which both are registered.
struct Registered {
    world: World,
    directory: Directory,
    /// What is sent.
    from: PathBuf,
    /// Below which it is stored.
    to: PathBuf,
    /// The file with the server's link.
    link: PathBuf,
}

impl Registered {
    /// What is sent has this name, and is yet to be made.
    fn new(world: World, name: &str) -> Self {
        let directory = Directory::create_for_test().unwrap();
        Self {
            from: directory.join(name),
            to: directory.join("to"),
            link: directory.write("link", world.link()).unwrap(),
            world,
            directory,
        }
    }

    /// What is sent is a file of so many bytes that do not repeat.
    fn with_noise(world: World, bytes: usize) -> Self {
        let ends = Self::new(world, "noise");
        fs::write(&ends.from, pattern(1, bytes)).unwrap();
        ends
    }

    /// Starts the sender, with these options, and the receiver; each knows the other's ID.
    fn start(&self, options: &[&str]) -> [Process; 2] {
        let [near, far] = &self.world.machines;
        let [sending, receiving] =
            [(far, "sender"), (near, "receiver")].map(|(at, name)| id(at, &self.directory, name));
        let common = ["--rendezvous-file", text(&self.link), "--no-lan"];
        let send = ["send", text(&self.from), "--peer", &receiving];
        let send = [&send[..], &common, options].concat();
        let receive = ["receive", "--peer", &sending, "--to", text(&self.to), "--json"];
        let receive = [&receive[..], &common].concat();
        [
            start(far, &self.directory, "sender", &send),
            start(near, &self.directory, "receiver", &receive),
        ]
    }
}

/// The last `path` that a receiver has told.
fn path(receiver: &Process) -> Option<String> {
    let events = events(receiver).into_iter().rev();
    // Events of files have paths of another kind.
    let mut progress = events.filter(|event| event["event"] == "progress");
    progress.find_map(|event| event["path"].as_str().map(str::to_owned))
}

/// Whether it has told so of what carries the data.
fn has_told_carrier(receiver: &Process, name: &str, reason: &str) -> bool {
    events(receiver).iter().any(|event| {
        event["event"] == "carrier"
            && event["carrier"] == name
            && event["reason"].as_str().unwrap().contains(reason)
    })
}

/// RDV-10, RDV-15.
#[test]
fn ends_that_reach_nothing_but_the_server_are_relayed_by_it() {
    require_root!();
    let ends = Registered::new(relayed_world(), "tree");
    make_tree(&ends.from);
    let [near, far] = &ends.world.machines;
    let send = [
        "send",
        text(&ends.from),
        "--rendezvous-file",
        text(&ends.link),
        "--limit",
        "2M",
    ];
    let mut sender = start(far, &ends.directory, "sender", &send);
    let shown = shown_code(&sender);
    let receive = ["receive", &shown, "--to", text(&ends.to), "--json", "--no-lan"];
    let mut receiver = start(near, &ends.directory, "receiver", &receive);
    assert_done(&mut receiver);
    assert_done(&mut sender);
    assert_same(&ends.from, &ends.to.join("tree"));
    let told = path(&receiver).expect("it told a path");
    assert!(told.ends_with("relayed by the rendezvous"), "{told}");
}

/// Whether it has a TCP connection to another machine than the server.
fn has_tcp_connection(machine: &Namespace) -> bool {
    let listed = machine
        .command("ss")
        .args(["-Htn", "state", "established"])
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    listed.lines().any(|line| !line.contains("203.0.113.2"))
}

/// FILE-36: the receiver's offer of a port comes while the server relays; it is taken up once the path is direct.
#[test]
fn tcp_is_tried_once_a_relayed_path_has_become_direct() {
    require_root!();
    let ends = Registered::with_noise(relayed_world(), 160_000_000);
    // Longer than the search for a direct path takes, which may come half a minute after the one before.
    let [_sender, mut receiver] = ends.start(&["--limit", "1M"]);
    let mut wait_for = |what: &str, is_so: &dyn Fn(&Process) -> bool| {
        wait_until(what, 3 * PROGRAM_LIMIT, || {
            assert!(receiver.is_running(), "{}", receiver.stderr());
            is_so(&receiver)
        });
    };
    let is_relayed = |path: &str| path.ends_with("relayed by the rendezvous");
    wait_for("the server relays it", &|receiver| {
        path(receiver).is_some_and(|path| is_relayed(&path))
    });
    let [near, _] = &ends.world.machines;
    assert!(!has_tcp_connection(near));
    set_between(&ends.world, "");
    wait_for("the path is direct", &|receiver| {
        path(receiver).is_some_and(|path| !is_relayed(&path))
    });
    wait_for("TCP is tried", &|_| has_tcp_connection(near));
}

/// FILE-19: first TCP falls silent in the middle, then UDP does; nothing has to be begun again.
#[test]
fn a_network_that_drops_tcp_and_then_udp_costs_no_byte() {
    require_root!();
    let ends = Registered::with_noise(world(), 160_000_000);
    let [mut sender, mut receiver] = ends.start(&["--carrier", "tcp", "--limit", "4M"]);
    wait_until("TCP carries it", PROGRAM_LIMIT, || {
        assert!(receiver.is_running(), "{}", receiver.stderr());
        has_told_carrier(&receiver, "TCP", "")
    });
    set_between(&ends.world, "meta l4proto tcp drop;");
    wait_until("QUIC carries it", 2 * PROGRAM_LIMIT, || {
        assert!(receiver.is_running(), "{}", receiver.stderr());
        has_told_carrier(&receiver, "QUIC", "lost")
    });
    set_between(&ends.world, "meta l4proto udp drop;");
    wait_until("the server relays it", 2 * PROGRAM_LIMIT, || {
        assert!(receiver.is_running(), "{}", receiver.stderr());
        path(&receiver).is_some_and(|path| path.ends_with("relayed by the rendezvous"))
    });
    assert!(
        receiver.wait(16 * PROGRAM_LIMIT).unwrap().success(),
        "{}",
        receiver.stderr()
    );
    assert_done(&mut sender);
    assert_same(&ends.from, &ends.to.join("noise"));
    let meetings = receiver.stdout().matches("\"connected\"").count();
    let told = shown_events(&receiver);
    assert_eq!(meetings, 1, "the connection never broke: {told}");
}

/// A router with rules for UDP of this kind, which translates TCP as well and answers nobody outside, or refuses.
fn set_router(world: &World, number: usize, kind: Kind, answer: &str) {
    if kind == Open {
        return;
    }
    let rules = format!(
        "table ip streams {{
            chain input {{ type filter hook input priority 0; iifname outside meta l4proto tcp {answer}; }}
            chain out {{ type nat hook postrouting priority 100; oifname outside meta l4proto tcp masquerade; }}
        }}"
    );
    world.routers[number].nft(&rules).unwrap();
}

/// FILE-19, FILE-36: whoever is behind a router that lets nobody in connects to the other end, and where both are, QUIC
/// carries everything and that is said.
#[test]
fn whichever_end_is_behind_a_router_tcp_is_made_from_there_and_quic_carries_where_both_are() {
    require_root!();
    // Of the receiver and the sender.
    let cases = [
        ([Open, PortRestricted], "drop", "TCP", "it was asked for"),
        ([PortRestricted, Open], "drop", "TCP", "it was asked for"),
        (
            [PortRestricted, Open],
            "reject with tcp reset",
            "TCP",
            "it was asked for",
        ),
        (
            [PortRestricted, PortRestricted],
            "drop",
            "QUIC",
            "neither end reaches the other",
        ),
    ];
    for (kinds, answer, carrier, reason) in cases {
        let world = World::new();
        world.set_kinds(kinds, FIRST_PORT);
        for (number, kind) in kinds.into_iter().enumerate() {
            set_router(&world, number, kind, answer);
        }
        // Long enough for what is tried in vain, where it is.
        let limit = if carrier == "QUIC" { "2M" } else { "4M" };
        let ends = Registered::with_noise(world, 20_000_000);
        let [mut sender, mut receiver] = ends.start(&["--carrier", "tcp", "--limit", limit]);
        assert_done(&mut receiver);
        assert_done(&mut sender);
        assert_same(&ends.from, &ends.to.join("noise"));
        let told = shown_events(&receiver);
        assert!(
            has_told_carrier(&receiver, carrier, reason),
            "{kinds:?} {answer}: {told}"
        );
        let others = ["TCP", "QUIC"].into_iter().filter(|other| *other != carrier);
        for other in others {
            assert!(
                !has_told_carrier(&receiver, other, ""),
                "{kinds:?} {answer}: {told}"
            );
        }
        let end = event(&receiver, "end");
        assert!(end["carrier_reason"].as_str().unwrap().contains(reason), "{end}");
        let is_said = sender.stderr().contains("QUIC carries everything");
        assert_eq!(is_said, carrier == "QUIC", "{}", sender.stderr());
    }
}
