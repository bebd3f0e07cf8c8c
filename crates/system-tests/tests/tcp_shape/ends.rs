//! Ends that are killed, or may not begin.

use std::process::Command;

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, USAGE, gramway_binary};
use system_tests::source::{Source, pattern};
use system_tests::tunnel::Client;
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs::run;

use super::{ENTRANCE, Scene};
use crate::relay::ends::network;
use crate::relay::watched;
use crate::scene::both;

/// Resets of a kernel whose server was killed: for what comes until the client knows, and for its attempts at a way
/// back.
const RESETS_MAX: u64 = 32;

/// Datagrams for a server that is killed.
const UNANSWERED: u64 = 2_000;

#[test]
fn either_end_that_is_killed_leaves_nothing_and_comes_back() {
    require_root!();
    require_program!("nft");
    let mut scene = Scene::new(&[]);
    let before = network(&scene.net.client);
    let mut client = scene.client(&["--carrier", "tcp", "--connections", "1"]);
    client.wait_until_connected(1, PROGRAM_LIMIT);
    let mut source = Source::new(&scene.net.client, ENTRANCE);
    source.ask(b"before", PROGRAM_LIMIT);
    assert_ne!(network(&scene.net.client), before, "a carrier has a socket");

    let with_server = network(&scene.net.server);
    scene.server.kill();
    assert_ne!(network(&scene.net.server), with_server);
    assert!(
        !network(&scene.net.server).contains("0003"),
        "no packet socket is left"
    );
    // Whoever answered each of these with another attempt would be reset as often.
    (0..UNANSWERED).for_each(|number| source.send(&pattern(number, 1_000)));
    scene.server.start_again();
    source.ask(b"the server is back", PROGRAM_LIMIT);
    let resets = watched(&scene.net, "resets");
    assert!(resets <= RESETS_MAX, "{resets} resets");

    client.kill();
    drop(client);
    assert_eq!(network(&scene.net.client), before);
    let (place, link) = (scene.net.client.place(), scene.server.link());
    let options = ["--carrier", "tcp", "--connections", "1"];
    let files = scene.directory.path();
    let _client = Client::start(&place, "second", &link, &both!(7000), &options, files);
    source.ask(b"the client is back", PROGRAM_LIMIT);
    assert_eq!(watched(&scene.net, "invalid"), 0);
}

/// What a command of another user's says, and its exit code.
fn refused(namespace: &Namespace, directory: &Directory, arguments: &[&str]) -> (Option<i32>, String) {
    let program = directory.join("gramway");
    run(Command::new("cp").arg(gramway_binary()).arg(&program)).unwrap();
    run(Command::new("chmod").args(["-R", "a+rx"]).arg(directory.path())).unwrap();
    let mut command = namespace.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .arg(&program)
        .args(arguments)
        .args(["--state", "/tmp/nobodys"]);
    let mut process = Process::start(command, "refused").unwrap();
    let code = process.wait(PROGRAM_LIMIT).unwrap().code();
    (code, process.stderr())
}

#[test]
fn who_lacks_the_privilege_or_the_port_is_told() {
    require_root!();
    require_program!("nft", "setpriv");
    let scene = Scene::new(&[]);
    let directory = Directory::create_for_test().unwrap();
    let client = &scene.net.client;
    let up = ["up", "--listen", "127.0.0.1:4433", "--tcp"];
    let link = scene.server.link();
    let connect = [
        "connect",
        &link,
        "-L",
        "udp:7000=127.0.0.1:7000",
        "--carrier",
        "tcp",
    ];
    for arguments in [&up[..], &connect] {
        let (code, told) = refused(client, &directory, arguments);
        assert_eq!(code, Some(PERMISSION), "{told}");
        assert!(told.contains("needs the capability CAP_NET_RAW"), "{told}");
        assert!(told.contains("AmbientCapabilities=CAP_NET_RAW"), "{told}");
    }
    let without = link.replace("&tcp=4433", "");
    let connect = [
        "connect",
        &without,
        "-L",
        "udp:7000=127.0.0.1:7000",
        "--carrier",
        "tcp",
    ];
    let (code, told) = refused(client, &directory, &connect);
    assert_eq!(code, Some(USAGE), "{told}");
    assert!(told.contains("the link names no TCP port"), "{told}");
}
