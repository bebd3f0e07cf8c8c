//! Relays that end, are killed, or may not begin.

use std::process::Command;
use std::time::Duration;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, UNAVAILABLE, gramway_binary};
use system_tests::service::Service;
use system_tests::source::Source;
use system_tests::topology::Routed;
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs::run;
use testbed::wait::wait_until;

use crate::confinement::{NET_ADMIN, NET_RAW, assert_confined, fields, threads};

use super::{ENTRANCE, TARGET, end, start, start_pair, watch, watched};

/// What of a machine's network a relay could change.
pub(crate) fn network(namespace: &Namespace) -> String {
    let of = |program: &str, arguments: &[&str]| namespace.run(program, arguments).unwrap();
    [
        of("nft", &["list", "ruleset"]),
        of("ip", &["-o", "link"]),
        of("ip", &["rule"]),
        of("ip", &["-4", "route", "show", "table", "all"]),
        of("cat", &["/proc/net/packet"]),
        of("cat", &["/proc/sys/net/ipv4/ip_forward"]),
    ]
    .concat()
}

#[test]
fn a_killed_relay_leaves_nothing_and_its_peers_connect_again() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    let before = [&net.client, &net.server].map(network);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (mut near, mut far) = start_pair(&net, &[]);
    let mut source = Source::new(&net.client, ENTRANCE);
    source.ask(b"before", PROGRAM_LIMIT);
    assert_ne!(before[0], network(&net.client), "a relay has sockets");

    far.kill();
    far.wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(before[1], network(&net.server));
    // Whoever goes on sending hears from the kernel that nobody is there, and does not try again with each datagram.
    let resets = watched(&net, "resets");
    for _ in 0..1_000 {
        source.send(b"nobody there");
        std::thread::sleep(Duration::from_millis(1));
    }
    let resets = watched(&net, "resets") - resets;
    assert!((1..=12).contains(&resets), "{resets}");
    let far = start(&net.server, "tcp:10.78.0.1:443", &format!("udp:{TARGET}"), &[]);
    // The same UDP peer, by another connection.
    source.ask(b"again", PROGRAM_LIMIT);

    near.kill();
    near.wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(before[0], network(&net.client));
    let near = start(&net.client, &format!("udp:{ENTRANCE}"), "tcp:10.78.0.1:443", &[]);
    source.ask(b"once more", PROGRAM_LIMIT);
    let counters = end(near);
    assert_eq!(counters["flows"]["all"], 1, "{counters}");
    end(far);
    assert_eq!([&net.client, &net.server].map(network), before);
}

#[test]
fn a_flow_that_carries_nothing_is_forgotten_and_comes_back() {
    require_root!();
    require_program!("nft");
    let net = Routed::new(1500);
    watch(&net);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &["--idle", "1"]);
    let mut source = Source::new(&net.client, ENTRANCE);
    source.ask(b"one", PROGRAM_LIMIT);
    std::thread::sleep(Duration::from_millis(2_500));
    source.ask(b"two", PROGRAM_LIMIT);
    let counters = end(near);
    assert_eq!(counters["flows"]["all"], 2, "{counters}");
    assert_eq!(counters["flows"]["expired"], 1, "{counters}");
    end(far);
    assert_eq!(watched(&net, "resets"), 0);
    assert_eq!(watched(&net, "invalid"), 0);
}

/// Another user's command of the program, which stands in `directory` for everybody, with these capabilities.
fn as_nobody(namespace: &Namespace, directory: &Directory, capabilities: &[&str]) -> Command {
    let program = directory.join("gramway");
    run(Command::new("cp")
        .arg("--remove-destination")
        .arg(gramway_binary())
        .arg(&program))
    .unwrap();
    run(Command::new("chmod").args(["-R", "a+rx"]).arg(directory.path())).unwrap();
    let mut command = namespace.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.args(capabilities).arg(&program);
    command
}

#[test]
fn cap_net_raw_alone_suffices_and_the_kernel_resets_nothing() {
    require_root!();
    require_program!("nft");
    require_program!("setpriv");
    let net = Routed::new(1500);
    watch(&net);
    let directory = Directory::create_for_test().unwrap();
    let _echo = Service::udp_echo(&net.server, TARGET);
    let start = |namespace: &Namespace, listen: &str, to: &str| {
        let capabilities = ["--inh-caps=-all,+net_raw", "--ambient-caps=-all,+net_raw"];
        let mut command = as_nobody(namespace, &directory, &capabilities);
        command.args(["relay", "--json", "--listen", listen, "--to", to]);
        let mut relay = Process::start(command, "relay").unwrap();
        relay.wait_for_line("relaying ", PROGRAM_LIMIT).unwrap();
        relay
    };
    let far = start(&net.server, "tcp:10.78.0.1:4443", &format!("udp:{TARGET}"));
    let near = start(&net.client, &format!("udp:{ENTRANCE}"), "tcp:10.78.0.1:4443");
    let mut source = Source::new(&net.client, ENTRANCE);
    for _ in 0..20 {
        source.ask(b"with one capability", PROGRAM_LIMIT);
    }
    end(near);
    end(far);
    assert_eq!(watched(&net, "resets"), 0);
    assert_eq!(watched(&net, "invalid"), 0);
}

#[test]
fn relays_keep_what_they_go_on_needing_alone() {
    require_root!();
    let net = Routed::new(1500);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, &[]);
    let mut source = Source::new(&net.client, ENTRANCE);
    source.ask(b"confined", PROGRAM_LIMIT);
    // The system's limits of buffers decide about NET_ADMIN.
    for (relay, allowed) in [(&near, NET_RAW), (&far, NET_ADMIN)] {
        let threads = threads(relay.id());
        assert!(threads.len() > 2, "workers and signals");
        assert_confined(&threads, allowed);
        assert!(!relay.stderr().contains("does not hold"), "{}", relay.stderr());
    }
    end(near);
    end(far);
    let open = start(
        &net.server,
        "tcp:10.78.0.1:443",
        &format!("udp:{TARGET}"),
        &["--no-sandbox"],
    );
    let status = fields(format!("/proc/{}/status", open.id()).into());
    assert_eq!(
        (status["Seccomp"].as_str(), status["NoNewPrivs"].as_str()),
        ("0", "0")
    );
}

/// A relay near the client goes on after `change` of its way, with so many new connections. The relay has `options`.
fn goes_on_after(change: impl Fn(&Routed), options: &[&str], reconnects: u64) {
    let net = Routed::new(1500);
    let _echo = Service::udp_echo(&net.server, TARGET);
    let (near, far) = start_pair(&net, options);
    let mut source = Source::new(&net.client, ENTRANCE);
    source.ask(b"by the first way", PROGRAM_LIMIT);
    // Every machine says something to its gateway now and then, so that the kernel has it in its cache.
    net.client.run("ping", ["-n", "-c", "1", "10.77.0.1"]).unwrap();
    change(&net);
    // What is sent before the relay has looked is lost.
    wait_until("an answer by the second way", PROGRAM_LIMIT, || {
        source
            .try_ask(b"by the second way", Duration::from_millis(200))
            .is_some()
    });
    let counters = end(near);
    assert_eq!(counters["flows"]["all"], 1, "{counters}");
    assert_eq!(counters["reconnects"], reconnects, "{counters}");
    end(far);
}

#[test]
fn a_relay_follows_another_route_to_another_address_of_its_machine() {
    require_root!();
    require_program!("ping");
    goes_on_after(Routed::add_second_uplink, &["--workers", "2"], 1);
}

#[test]
fn a_relay_follows_another_gateway_on_the_same_cable() {
    require_root!();
    require_program!("nft", "ping");
    goes_on_after(Routed::replace_gateway, &[], 0);
}

#[test]
fn a_relay_follows_its_gateway_to_another_hardware_address() {
    require_root!();
    require_program!("ping");
    goes_on_after(Routed::replace_router, &[], 0);
}

#[test]
fn who_may_not_relay_is_told_what_is_missing() {
    require_root!();
    require_program!("setpriv");
    let directory = Directory::create_for_test().unwrap();
    let net = Routed::new(1500);
    let refused = |arguments: &[&str]| {
        let mut command = as_nobody(&net.client, &directory, &[]);
        command.arg("relay").args(arguments);
        let mut relay = Process::start(command, "relay").unwrap();
        let code = relay.wait(PROGRAM_LIMIT).unwrap().code();
        (code, relay.stderr())
    };
    for (listen, to) in [
        ("tcp:10.77.0.2:4443", "udp:127.0.0.1:7001"),
        ("udp:127.0.0.1:7000", "tcp:10.78.0.1:443"),
    ] {
        let (code, told) = refused(&["--listen", listen, "--to", to]);
        assert_eq!(code, Some(PERMISSION), "{told}");
        assert!(told.contains("needs the capability CAP_NET_RAW"), "{told}");
        assert!(told.contains("AmbientCapabilities=CAP_NET_RAW"), "{told}");
    }
}

#[test]
fn a_port_in_use_is_told() {
    require_root!();
    let net = Routed::new(1500);
    let _listener = Service::tcp_echo(&net.server, "10.78.0.1:443");
    let mut command = net.server.command(gramway_binary());
    command.args([
        "relay",
        "--listen",
        "tcp:10.78.0.1:443",
        "--to",
        "udp:127.0.0.1:7001",
    ]);
    let mut relay = Process::start(command, "relay").unwrap();
    assert_eq!(relay.wait(PROGRAM_LIMIT).unwrap().code(), Some(UNAVAILABLE));
    assert!(
        relay.stderr().contains("the address is in use"),
        "{}",
        relay.stderr()
    );
}
