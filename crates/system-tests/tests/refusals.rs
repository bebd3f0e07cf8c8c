//! Refusals and what cannot be resolved: one clear sentence each, the right exit code, or a client that keeps trying.

use std::path::Path;
use std::time::Duration;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, UNAVAILABLE};
use system_tests::require_root;
use system_tests::service::Service;
use system_tests::source::Source;
use system_tests::tunnel::Client;
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::scene::Scene;

/// How long a refused client may live.
const REFUSAL_LIMIT: Duration = Duration::from_secs(10);

const FORWARD: &str = "udp:7000=127.0.0.1:7000";

/// A client of this scene's network with another link.
fn stranger(scene: &Scene, name: &str, link: &str, forwards: &[&str], directory: &Path) -> Client {
    Client::start_unconnected(&scene.pair.client.place(), name, link, forwards, &[], directory)
}

fn ends_refused(process: &mut Process, part: &str) {
    let status = process.wait(REFUSAL_LIMIT).unwrap();
    let told = process.stderr();
    assert_eq!(status.code(), Some(PERMISSION), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.starts_with("gramway: ") && told.contains(part), "{told}");
    assert_eq!(process.stdout(), "");
}

#[test]
fn another_token_and_another_pin_end_a_client_within_ten_seconds_by_one_sentence() {
    require_root!();
    let scene = Scene::new(&[FORWARD]);
    let link = scene.server.link();
    let wrong = "A".repeat(43);
    let (_, after_token) = link.split_once('@').expect("a link has a token");
    let (before_pin, _) = link.split_once("sha256-").expect("a link has a pin");
    let token = format!("gramway://{wrong}@{after_token}");
    let pin = format!("{before_pin}sha256-{wrong}");
    for (name, link, part) in [("token", token, "refused the token"), ("pin", pin, "pin")] {
        let mut client = stranger(
            &scene,
            name,
            &link,
            &["udp:7001=127.0.0.1:7000"],
            scene.directory.path(),
        );
        ends_refused(client.process(), part);
    }
    let status = scene.server.status();
    assert!(status["refused_requests"]["401"].as_u64() >= Some(1), "{status}");
}

#[test]
fn a_server_with_a_new_token_ends_its_old_clients() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD]);
    scene.server.kill();
    std::fs::write(
        scene.server.state().join("owner.token"),
        format!("{}\n", "B".repeat(42) + "A"),
    )
    .unwrap();
    scene.server.start_again();
    let process = scene.client.process();
    assert_eq!(process.wait(PROGRAM_LIMIT).unwrap().code(), Some(PERMISSION));
    let told = process.stderr();
    assert!(
        told.lines()
            .last()
            .is_some_and(|line| line.contains("refused the token")),
        "{told}"
    );
}

#[test]
fn a_script_that_asks_for_it_gets_an_end_where_no_server_answers() {
    require_root!();
    let scene = Scene::new(&[FORWARD]);
    let link = scene.server.link().replace(":4433", ":4434");
    let mut client = Client::start_unconnected(
        &scene.pair.client.place(),
        "script",
        &link,
        &["udp:7001=127.0.0.1:7000"],
        &["--exit-on-failure"],
        scene.directory.path(),
    );
    let status = client.process().wait(PROGRAM_LIMIT).unwrap();
    let told = client.process().stderr();
    assert_eq!(status.code(), Some(UNAVAILABLE), "{told}");
    let last = told.lines().last().unwrap_or_default();
    // The kernel limits how often it says that nothing listens, so the last attempt may have heard nothing.
    assert!(
        last.starts_with("gramway: no connection in time: cannot reach 10.77.0.1 (UDP 4434, "),
        "{told}"
    );
    assert!(told.contains("nothing listens on its port"), "{told}");
}

#[test]
fn a_target_that_cannot_be_resolved_is_told_once_and_the_others_work() {
    require_root!();
    let mut scene = Scene::new(&[FORWARD, "udp:7001=no-such-host.invalid:53"]);
    let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    let lost = Source::new(&scene.pair.client, "127.0.0.1:7001");
    for _ in 0..10 {
        lost.send(b"question");
    }
    let line = scene
        .client
        .process()
        .wait_for_starts("warning: the server refused UDP", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("no-such-host.invalid:53: its name cannot be resolved there"),
        "{line}"
    );
    Source::new(&scene.pair.client, "127.0.0.1:7000").ask(b"others", PROGRAM_LIMIT);
    wait_until("the account of what was lost", PROGRAM_LIMIT, || {
        let status = [scene.client.status(), scene.server.status()];
        let drops =
            |index: usize| system_tests::conservation::dropped(&status[index][["ingress", "egress"][index]]);
        drops(0) + drops(1) >= 10
    });
    let told = scene.client.process().stderr();
    assert_eq!(told.matches("no-such-host.invalid:53: its").count(), 1, "{told}");
    scene.check();
}

#[test]
fn a_closed_target_is_refused_with_the_way_to_open_it() {
    require_root!();
    // An address of the server itself, other than those that it opens here.
    let mut scene = Scene::new(&["udp:7000=10.77.0.1:22"]);
    Source::new(&scene.pair.client, "127.0.0.1:7000").send(b"question");
    let line = scene
        .client
        .process()
        .wait_for_starts("warning: the server refused UDP", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("--allow-target"), "{line}");
    scene.check();
}

#[test]
fn a_server_that_cannot_be_resolved_is_tried_on_with_one_line() {
    require_root!();
    let scene = Scene::new(&[FORWARD]);
    let link = scene.server.link().replace("10.77.0.1", "no-such-host.invalid");
    let mut client = stranger(
        &scene,
        "nowhere",
        &link,
        &["udp:7001=127.0.0.1:7000"],
        scene.directory.path(),
    );
    let line = client
        .process()
        .wait_for_starts("cannot reach no-such-host.invalid (", 1, PROGRAM_LIMIT)
        .unwrap();
    assert!(
        line.contains("the name no-such-host.invalid cannot be resolved"),
        "{line}"
    );
    assert_eq!(client.stop(), Some(0));
    let told = client.process().stderr();
    assert_eq!(told.matches("cannot reach").count(), 1, "{told}");
}
