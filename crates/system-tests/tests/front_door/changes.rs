//! What changes at a cover while the server in front of it runs: it falls silent, comes back as another, and moves.

use std::net::UdpSocket;
use std::time::Duration;

use serde_json::Value;
use system_tests::cover::{Cover, Stack};
use system_tests::tunnel::{Server, with_mounts};
use system_tests::{require_go, require_python, require_root};
use testbed::wait::wait_until;

use super::*;

const X25519_MLKEM768: u64 = 0x11ec;

/// For a cover to be looked at: it is given ten seconds to answer, and looked at again ten after that.
const LOOK_LIMIT: Duration = Duration::from_secs(90);

/// What any server that speaks QUIC answers: an unknown version (RFC 9000 section 6.1).
fn ask_for_versions(scene: &Scene) {
    let stranger = scene.pair.client.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let probe = [&[0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8][..], &[7; 1_194]].concat();
    stranger.send_to(&probe, LISTEN).unwrap();
}

/// Waits until `status` shows of the cover what is wanted.
fn wait_for_cover(server: &Server, what: &str, is_so: impl Fn(&Value) -> bool) {
    wait_until(what, LOOK_LIMIT, || is_so(&server.status()["cover"]));
}

fn is_silent(cover: &Value) -> bool {
    cover["silent_seconds"].is_number()
}

/// QR1-26, QR1-27.
#[test]
fn a_cover_that_falls_silent_is_told_of_and_one_that_comes_back_as_another_is_followed() {
    require_root!();
    let (python, programs) = (require_python!(), require_go!());
    let mut scene = Scene::new(python, &[]);
    assert!(!is_silent(&scene.server.status()["cover"]));
    scene.cover.process().kill();
    ask_for_versions(&scene);
    wait_for_cover(&scene.server, "silence of the cover", is_silent);
    let looks = scene.server.status()["cover"]["looks"].clone();
    assert_eq!(looks["unanswered"], looks["total"], "{looks}");
    let told = scene.server.process().stderr();
    assert!(told.contains("the cover 127.0.0.1 does not answer"), "{told}");
    let _client = scene.client("client", &both!("7000"), &[]);
    assert_carries(&scene);

    let place = scene.pair.server.place();
    let (stack, site) = (Stack::QuicGo(&programs), (&scene.authority, NAME));
    scene.cover = Cover::start(stack, &place, COVER, site, &[]);
    assert_eq!(scene.visit()["status"], 200);
    wait_for_cover(&scene.server, "the cover's new look", |cover| !is_silent(cover));
    let profile = scene.server.status()["cover"]["profile"].clone();
    assert_eq!(profile["group"], X25519_MLKEM768, "{profile}");
    let told = scene.server.process().stderr();
    assert!(told.contains("the cover 127.0.0.1 answers again"), "{told}");
    let kept = std::fs::read_to_string(scene.server.state().join("cover.profile")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    for name in [
        "suite",
        "group",
        "id_bytes",
        "certificate_bytes",
        "is_version_first",
    ] {
        assert_eq!(kept[name], profile[name], "{name}");
    }
    let mut late = scene.client("late", &both!("7001"), &[]);
    assert_eq!(late.stop(), Some(0));
}

/// QR1-27.
#[test]
fn what_a_server_follows_only_after_a_restart_is_told_also_where_the_cover_was_away_at_its_start() {
    require_root!();
    let mut scene = Scene::new(require_python!(), &[]);
    scene.server.kill();
    scene.cover.process().kill();
    scene.server.start_again();
    assert!(is_silent(&scene.server.status()["cover"]));
    let place = scene.pair.server.place();
    let (stack, site) = (Stack::Aioquic(&scene.python), (&scene.authority, NAME));
    scene.cover = Cover::start(stack, &place, COVER, site, &["--id-length", "20"]);
    wait_for_cover(&scene.server, "the cover's new look", |cover| !is_silent(cover));
    let cover = scene.server.status()["cover"].clone();
    assert_eq!(cover["id_bytes_after_restart"], 20, "{cover}");
    assert_eq!(cover["profile"]["id_bytes"], 8, "{cover}");
    let told = scene.server.process().stderr();
    assert!(
        told.contains("connection IDs of 20 bytes now: start the server again"),
        "{told}"
    );
    scene.server.stop();
    scene.server.start_again();
    let cover = scene.server.status()["cover"].clone();
    assert_eq!(cover["id_bytes_after_restart"], Value::Null, "{cover}");
    assert_eq!(cover["profile"]["id_bytes"], 20, "{cover}");
}

/// One of a cover's addresses is used at a time: the next one when it falls silent, and at the start.
#[test]
fn a_cover_with_two_addresses_is_where_it_answers() {
    require_root!();
    let python = require_python!();
    let (pair, directory) = (Pair::new(1500), Directory::create_for_test().unwrap());
    let authority = Authority::create(directory.path());
    let hosts = directory.path().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 {NAME}\n127.0.0.2 {NAME}\n")).unwrap();
    let place = pair.server.place();
    let both_places = ["127.0.0.1:8443", "127.0.0.2:8443"];
    let [mut first, second] = both_places.map(|at| {
        let stack = Stack::Aioquic(&python);
        Cover::start(stack, &place, at, (&authority, NAME), &[])
    });
    let wrapper = with_mounts(&format!("mount --bind '{}' /etc/hosts", hosts.display()));
    let site = format!("{NAME}:8443");
    let options = [&["--cover", &site][..], &OPEN_LOOPBACK].concat();
    let server = Server::start_by(&wrapper, &place, "server", LISTEN, &options, directory.path());
    let uses = |address: &'static str| move |cover: &Value| cover["addresses"][0] == address;
    wait_for_cover(&server, "the first address", uses(both_places[0]));
    first.process().kill();
    let mut scene = Scene {
        server,
        cover: second,
        authority,
        python,
        pair,
        directory,
    };
    ask_for_versions(&scene);
    wait_for_cover(&scene.server, "the second address", uses(both_places[1]));
    assert_eq!(scene.visit()["status"], 200);
    let told = scene.server.process().stderr();
    assert!(!told.contains("does not answer"), "{told}");
    scene.server.kill();
    scene.server.start_again();
    wait_for_cover(&scene.server, "the address that answered", uses(both_places[1]));
    assert_eq!(scene.visit()["status"], 200);
}
