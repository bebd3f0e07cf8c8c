//! After a kill: of the client, of its guardian, of both; until the next client, or until the user says so.

use system_tests::{require_program, require_root};

use super::*;

#[test]
fn nothing_leaves_after_a_kill_until_the_next_client_and_until_it_is_released() {
    require_root!();
    require_program!("nft", "ping");
    let watched = Watched::new();
    let server = watched.machines.serve(&["--nat"], &watched.directory);
    let link = server.link();
    let mut client = watched.start_client(&link, &[]);
    watched.send();
    reaches(&watched.machines.first, WORLD_V4);

    let refused = watched.release(&client);
    assert_eq!(refused.0, Some(UNAVAILABLE), "{}", refused.1);
    assert!(refused.1.contains("end it first"), "{}", refused.1);
    assert!(watched.has_kill_switch());

    client.kill();
    wait_until("the guardian's end", PROGRAM_LIMIT, || {
        guardians(&watched.machines.first).is_empty()
    });
    watched.assert_closed("after a kill of the client");
    let status = watched.status(&client);
    assert!(
        status.contains("of a client that has ended; `gramway release`"),
        "{status}"
    );

    client.start_again();
    reaches(&watched.machines.first, WORLD_V4);
    watched.assert_closed("with the next client");

    kill_guardians(&watched.machines.first);
    watched.assert_closed("after a kill of the guardian");
    client.kill();
    watched.assert_closed("after a kill of both");
    assert!(watched.has_kill_switch());

    let (code, told) = watched.release(&client);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("removed the kill switch"), "{told}");
    watched.assert_open("after the release");
    let (code, told) = watched.release(&client);
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("there is nothing to release"), "{told}");
}
