//! While the client lives: before its first connection, without its server, with it again, and while all sleep.

use system_tests::{require_program, require_root};
use testbed::process::Signal;

use super::*;

#[test]
fn nothing_leaves_before_the_first_connection_without_the_server_and_while_all_sleep() {
    require_root!();
    require_program!("nft", "ping");
    let watched = Watched::new();
    let mut server = watched.machines.serve(&["--nat"], &watched.directory);
    let link = server.link();
    server.kill();
    let mut client = watched.start_client(&link, &[]);
    watched.send();
    watched.assert_closed("before the first connection");
    server.start_again();
    client.wait_until_connected(1, PROGRAM_LIMIT);
    reaches(&watched.machines.first, WORLD_V4);
    reaches(&watched.machines.first, WORLD_V6);
    watched.assert_closed("with a tunnel");
    let status = watched.status(&client);
    assert!(status.contains("kill switch of the client"), "{status}");
    assert!(status.contains("the server: 198.51.100.1/32"), "{status}");

    let guardian = guardians(&watched.machines.first);
    suspend(&mut client, &guardian, Signal::STOP);
    watched.sender.wait_for_turns(5 * TURNS);
    watched.assert_closed("while client and guardian are stopped");
    suspend(&mut client, &guardian, Signal::CONT);
    reaches(&watched.machines.first, WORLD_V4);

    server.kill();
    watched.assert_closed("without a server");
    server.start_again();
    reaches(&watched.machines.first, WORLD_V4);
    watched.assert_closed("with the server again");
    assert!(watched.underlay.outer() > 0, "the tunnel is seen");

    // An end that the user asked for gives the network back.
    assert_eq!(client.stop(), Some(0));
    assert!(!watched.has_kill_switch());
    watched.assert_open("after the end");
}

fn suspend(client: &mut Client, guardians: &[i32], signal: Signal) {
    client.process().signal(signal);
    for guardian in guardians {
        send_signal(*guardian, signal);
    }
}
