//! Two machines whose rendezvous is a server with a cover.

use std::process::Command;

use system_tests::cover::{Cover, Stack};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{UNAVAILABLE, gramway_binary};
use system_tests::topology::CLIENT_V4;
use system_tests::{require_go, require_python, require_root};
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs::run as run_to_end;
use testbed::wait::wait_until;

use super::{COVER, NAME, Scene};
use crate::peer_command::{assert_meets, id, run, start};

/// The client's machine exchanges UDP with the server's port alone.
const APART: &str = "table inet apart {
    chain in { type filter hook input priority 0; meta l4proto udp udp sport != 4433 drop; }
    chain out { type filter hook output priority 0; meta l4proto udp udp dport != 4433 drop; }
}";

/// It exchanges none at all.
const NO_UDP: &str = "table inet apart {
    chain in { type filter hook input priority 0; meta l4proto udp drop; }
    chain out { type filter hook output priority 0; meta l4proto udp drop; }
}";

/// RDV-4.
#[test]
fn two_machines_meet_at_a_server_with_a_cover() {
    require_root!();
    let scene = Scene::new(require_python!(), &[]);
    let root = scene.authority.root().to_str().unwrap();
    let roots = ["--rendezvous-roots", root];
    assert_meets(&scene.pair, &scene.directory, &scene.server.link(), &roots);
}

/// RDV-4, RDV-10.
#[test]
fn two_machines_that_reach_nothing_but_a_server_with_a_cover_are_relayed_by_it() {
    require_root!();
    let scene = Scene::new(require_python!(), &[]);
    scene.pair.client.nft(APART).unwrap();
    assert_relayed(&scene, "relayed, over UDP");
}

/// RDV-4, RDV-10: UDP is blocked altogether.
#[test]
fn a_machine_whose_network_blocks_udp_is_relayed_by_a_server_with_a_cover_in_tcps_shape() {
    require_root!();
    // Connections to the port of UDP go to the web site.
    let scene = Scene::new(require_python!(), &["--tcp=:8443"]);
    scene.pair.client.nft(NO_UDP).unwrap();
    assert_relayed(&scene, "relayed, over TCP's shape");
}

/// The client's machine reaches a listener at the server's one by the server alone, and `ping` says `how`.
fn assert_relayed(scene: &Scene, how: &str) {
    let (near, far, directory) = (&scene.pair.client, &scene.pair.server, &scene.directory);
    let link = directory.write("rendezvous", &scene.server.link()).unwrap();
    let rendezvous = [
        "--no-lan",
        "--rendezvous-file",
        link.to_str().unwrap(),
        "--rendezvous-roots",
        scene.authority.root().to_str().unwrap(),
    ];
    let (caller, listening) = (id(near, directory, "caller"), id(far, directory, "listener"));
    let listen = [
        &["listen", "--no-port-mapping", "--allow", &caller],
        &rendezvous[..],
    ]
    .concat();
    let mut listener = start(far, directory, "listener", &listen);
    listener
        .wait_for_line("registered at the rendezvous", PROGRAM_LIMIT)
        .unwrap();
    let ping = [
        &["ping", &listening, "-c", "2", "--interval", "10"],
        &rendezvous[..],
    ]
    .concat();
    let (code, text, errors) = run(near, directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains(how), "{text}");
    assert!(text.contains("2 sent, 2 answered, 0 % lost"), "{text}");
}

/// RDV-18: two users of one server exchange by a code, which does not name the server; without a link it is not enough.
#[test]
fn a_file_goes_by_a_code_between_users_of_a_server_with_a_cover() {
    require_root!();
    let scene = Scene::new(require_python!(), &[]);
    scene.pair.client.nft(APART).unwrap();
    let directory = &scene.directory;
    let of_sender = directory.write("sender.link", &scene.server.link()).unwrap();
    let of_receiver = scene.server.user(&["add", "friend"]);
    let of_receiver = directory.write("receiver.link", &of_receiver).unwrap();
    let roots = ["--rendezvous-roots", scene.authority.root().to_str().unwrap()];
    let file = directory.write("file", "what is sent").unwrap();
    let to = directory.join("to");
    let run = |machine: &Namespace, name: &str, words: &[&str]| {
        let mut command = machine.command(gramway_binary());
        command.args(words).args(roots).arg("--no-lan");
        command.arg("--state").arg(directory.join(name));
        Process::start(command, "gramway").unwrap()
    };
    let send = [
        "send",
        file.to_str().unwrap(),
        "--rendezvous-file",
        of_sender.to_str().unwrap(),
    ];
    let mut sender = run(&scene.pair.server, "sender", &send);
    let shown = sender.next_line_where(PROGRAM_LIMIT, |line| line.starts_with("gramway receive "));
    let shown = shown.unwrap_or_else(|| panic!("{}", sender.stderr()));
    assert!(shown.ends_with(" --rendezvous-file LINK"), "{shown}");
    sender
        .wait_for_line("the receiver needs a link of its own", PROGRAM_LIMIT)
        .unwrap();
    let code = shown.split_whitespace().nth(2).unwrap();
    assert!(!code.contains('@'), "{code}");
    let receive = [
        "receive",
        code,
        "--to",
        to.to_str().unwrap(),
        "--rendezvous-file",
        of_receiver.to_str().unwrap(),
    ];
    let mut receiver = run(&scene.pair.client, "receiver", &receive);
    let ended = receiver.wait(PROGRAM_LIMIT).unwrap();
    assert!(ended.success(), "{}", receiver.stderr());
    assert!(
        sender.wait(PROGRAM_LIMIT).unwrap().success(),
        "{}",
        sender.stderr()
    );
    assert_eq!(std::fs::read_to_string(to.join("file")).unwrap(), "what is sent");
    // Everything has come: nobody has this number any more, once the server knows.
    wait_until("the server knows that both have left", PROGRAM_LIMIT, || {
        scene.server.status()["rendezvous"]["registered"] == 0
    });
    let again = [&receive[..], &["--timeout", "5"]].concat();
    wait_until("the server says that nobody waits", PROGRAM_LIMIT, || {
        let mut late = run(&scene.pair.client, "late", &again);
        assert_eq!(late.wait(PROGRAM_LIMIT).unwrap().code(), Some(UNAVAILABLE));
        let told = late.stderr();
        let is_told = told.contains("nobody waits with this code at the server of the link");
        // A busy machine may take longer to be registered.
        assert!(is_told || told.contains("was not reached within 5 s"), "{told}");
        is_told
    });
}

/// RDV-9: a registration behind a cover ends with the GOAWAY, and another one is begun. The server's drain would wait
/// for it for an hour.
#[test]
fn a_registration_leaves_a_server_with_a_cover_that_drains() {
    require_root!();
    let mut scene = Scene::new(require_python!(), &[]);
    let far = &scene.pair.client;
    let link = scene.directory.write("rendezvous", &scene.server.link()).unwrap();
    let root = scene.authority.root().to_str().unwrap();
    let (link, files) = (link.to_str().unwrap(), &scene.directory);
    let rendezvous = ["--no-lan", "--rendezvous-file", link, "--rendezvous-roots", root];
    let listen = [&["listen", "--no-port-mapping", "--any"], &rendezvous[..]].concat();
    let mut listener = start(far, files, "listener", &listen);
    listener
        .wait_for_line("registered at the rendezvous", PROGRAM_LIMIT)
        .unwrap();
    let mut drain = Command::new(gramway_binary());
    drain.args(["ctl", "drain", "--timeout", "3600", "--state"]);
    run_to_end(drain.arg(scene.server.state())).unwrap();
    let ended = scene.server.process().wait(PROGRAM_LIMIT).unwrap();
    assert_eq!(ended.code(), Some(0));
}

/// RDV-19: the cover's resets answer what the listener sends on its lost connection, so that the server started anew
/// has led its port to the cover.
#[test]
fn a_registration_is_made_again_at_a_server_with_a_cover_that_was_killed() {
    require_root!();
    let (python, programs) = (require_python!(), require_go!());
    let mut scene = Scene::new(python, &[]);
    let link = scene.directory.write("rendezvous", &scene.server.link()).unwrap();
    let root = scene.authority.root().to_str().unwrap();
    let rendezvous = [
        "--no-lan",
        "--rendezvous-file",
        link.to_str().unwrap(),
        "--rendezvous-roots",
        root,
    ];
    let (caller, listening) = (
        id(&scene.pair.server, &scene.directory, "caller"),
        id(&scene.pair.client, &scene.directory, "listener"),
    );
    let listen = [
        &["listen", "--no-port-mapping", "--allow", &caller],
        &rendezvous[..],
    ]
    .concat();
    let mut listener = start(&scene.pair.client, &scene.directory, "listener", &listen);
    let told = listener
        .wait_for_line("registered at the rendezvous", PROGRAM_LIMIT)
        .unwrap();
    let own = told.rsplit(' ').next().unwrap();
    scene.server.kill();
    scene.cover.process().kill();
    let (stack, site) = (Stack::QuicGo(&programs), (&scene.authority, NAME));
    scene.cover = Cover::start(stack, &scene.pair.server.place(), COVER, site, &[]);
    scene.server.start_again();
    wait_until("the listener is registered again", PROGRAM_LIMIT, || {
        scene.server.status()["rendezvous"]["registered"] == 1
    });
    let ping = [
        &["ping", &listening, "-c", "2", "--interval", "10"],
        &rendezvous[..],
    ]
    .concat();
    let (code, text, errors) = run(&scene.pair.server, &scene.directory, "caller", &ping);
    assert_eq!(code, 0, "{errors}");
    // The server names the port of the listener that peers reach.
    let named = text.matches(&format!("{CLIENT_V4}:")).count();
    assert!(named > 0 && named == text.matches(own).count(), "{own}: {text}");
}
