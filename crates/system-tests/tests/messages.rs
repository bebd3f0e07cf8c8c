//! What a client says when connections come and go: one line each, in words that tell what to do.

use std::io::{ErrorKind, Read};

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::UNAVAILABLE;
use system_tests::service::try_connect;
use system_tests::tunnel::Client;
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::process::Signal;
use testbed::wait::wait_until;

use crate::scene::Scene;

const FORWARD: &str = "tcp:7000=127.0.0.1:7000";

#[test]
fn a_path_is_told_by_one_line_with_its_connections() {
    require_root!();
    let scene = Scene::new(&[FORWARD]);
    let Scene {
        server,
        pair,
        directory,
        ..
    } = &scene;
    let place = pair.client.place();
    let options = ["--connections", "2"];
    let forward = ["tcp:7001=127.0.0.1:7000"];
    let mut client = Client::start(
        &place,
        "two",
        &server.link(),
        &forward,
        &options,
        directory.path(),
    );
    client
        .process()
        .wait_for_line("path MTU 1472, 2 connections", PROGRAM_LIMIT)
        .unwrap();
    let told = client.process().stderr();
    assert!(!told.contains("unsplit") && !told.contains("stripe"), "{told}");
}

#[test]
fn a_server_that_ends_says_so_and_one_that_died_no_longer_knows_its_clients() {
    require_root!();
    require_program!("nft");
    let mut scene = Scene::new(&[FORWARD]);
    // One that was answered and comes no further would be told instead of silence.
    scene.client.wait_until_all_connected();
    let deaf =
        "table ip deaf {\nchain input { type filter hook input priority 0; udp dport 4433 drop; }\n}\n";
    scene.pair.server.nft(deaf).unwrap();
    assert_eq!(scene.server.stop(), Some(0));
    let client = scene.client.process();
    let line = client
        .wait_for_starts("connecting again", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("the server is shutting down") && !line.contains("0x"),
        "{line}"
    );
    // Nobody answers at all, then the machine says more. After that, silence is no news.
    let silence = "cannot reach 10.77.0.1 (UDP 4433, no answer; a firewall?), retrying";
    client.wait_for_line(silence, PROGRAM_LIMIT).unwrap();
    scene.pair.server.nft("delete table ip deaf").unwrap();
    let closed = "cannot reach 10.77.0.1 (UDP 4433, nothing listens on its port), retrying";
    client.wait_for_line(closed, PROGRAM_LIMIT).unwrap();
    scene.server.start_again();
    scene.client.wait_until_connected(2, PROGRAM_LIMIT);
    scene.client.wait_until_all_connected();
    // While the server is away the client would be told that nothing listens there.
    scene.client.process().signal(Signal::STOP);
    scene.server.kill();
    scene.server.start_again();
    scene.client.process().signal(Signal::CONT);
    // One of its connections may be back before the other is lost, so that it never says that all are.
    scene
        .client
        .process()
        .wait_for_line("the server no longer knows it", PROGRAM_LIMIT)
        .unwrap();
    let told = scene.client.process().stderr();
    assert!(!told.contains("stripe"), "{told}");
    assert_eq!(told.matches(silence).count(), 1, "{told}");
}

#[test]
fn every_refused_target_is_told_once_and_by_its_name() {
    require_root!();
    let forwards = [
        "tcp:7000=127.0.0.1:7000",
        "tcp:7001=127.0.0.1:7001",
        "tcp:7002=10.77.0.1:22",
    ];
    let mut scene = Scene::new(&forwards);
    for _ in 0..3 {
        for port in [7000, 7001, 7002] {
            // The refusal may be there before the connection is seen to be open.
            let end = try_connect(&scene.pair.client, &format!("127.0.0.1:{port}"))
                .and_then(|mut stream| stream.read_exact(&mut [0]));
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
    wait_until("the refusals", PROGRAM_LIMIT, || {
        scene.client.status()["tcp"]["failed"] == 9
    });
    let told = scene.client.process().stderr();
    for line in [
        "warning: the server refused TCP to 127.0.0.1:7000: nothing listens at the target",
        "warning: the server refused TCP to 127.0.0.1:7001: nothing listens at the target",
        "warning: the server refused TCP to 10.77.0.1:22: the target's address is not allowed there",
    ] {
        assert_eq!(told.matches(line).count(), 1, "{told}");
    }
}

#[test]
fn a_name_that_is_taken_is_told_without_the_advice_to_delete_it() {
    require_root!();
    let scene = Scene::new(&[FORWARD]);
    let directory = Directory::create_for_test().unwrap();
    scene
        .pair
        .client
        .run(
            "ip",
            ["link", "add", "mine", "type", "veth", "peer", "name", "other"],
        )
        .unwrap();
    let mut client = Client::start_unconnected(
        &scene.pair.client.place(),
        "taken",
        &scene.server.link(),
        &[],
        &["--tun=mine"],
        directory.path(),
    );
    let status = client.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(status.code(), Some(UNAVAILABLE));
    let told = client.process().stderr();
    assert!(
        told.contains("there is an interface mine already") && !told.contains("delete"),
        "{told}"
    );
}
