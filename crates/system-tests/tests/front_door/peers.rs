//! Two machines whose rendezvous is a server with a cover.

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::{require_python, require_root};

use super::Scene;
use crate::peer_command::{assert_meets, id, run, start};

/// The client's machine exchanges UDP with the server's port alone.
const APART: &str = "table inet apart {
    chain in { type filter hook input priority 0; meta l4proto udp udp sport != 4433 drop; }
    chain out { type filter hook output priority 0; meta l4proto udp udp dport != 4433 drop; }
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
    assert!(text.contains("relayed, over UDP"), "{text}");
    assert!(text.contains("2 sent, 2 answered, 0 % lost"), "{text}");
}
