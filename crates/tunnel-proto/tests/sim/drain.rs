//! A server that goes: GOAWAY, no new requests, what runs goes on.

use tunnel_proto::{ClientAction, Ending, ProxyError};

use crate::support::{End, SECOND, Script, Setup, Way, World};

#[test]
fn a_draining_server_finishes_what_runs_and_refuses_what_is_new() {
    let mut world = World::connected(Setup::default());
    let running = world.book.session();
    world.send("echo", running, &[100]);
    let connection = world.open_tcp(
        Script {
            ends: false,
            ..Script::sending(1_000)
        },
        Script::listening(),
    );
    world.run(SECOND);
    world.server().engine.start_drain();
    world.run(SECOND);
    assert_eq!(
        world.client().count(|action| *action == ClientAction::GoingAway),
        1
    );

    world.send("echo", running, &[100]);
    world.client().tcp(connection).script = Script::sending(2_000);
    world.client().resume(connection);
    world.run(SECOND);
    assert_eq!(world.book.count(running, Way::Down), 2);
    assert_eq!(world.server().tcp(connection).read, 2_000);
    assert!(world.server().tcp(connection).read_end);

    let late = world.book.session();
    world.send("echo", late, &[100]);
    world.open_tcp(Script::sending(10), Script::sending(10));
    world.run(SECOND);
    let refused = |action: &ClientAction| matches!(action, ClientAction::Refused { status: 503, .. });
    assert_eq!(world.client().count(refused), 1);
    let refusal = Ending::Refused {
        status: 503,
        error: Some(ProxyError::DestinationUnavailable),
    };
    assert!(world.client().endings().contains(&&refusal));
    assert_eq!(world.book.count(late, Way::Up), 0);
}

#[test]
fn a_server_that_closes_is_known_to_be_gone_at_once() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(SECOND);
    let now = world.now();
    world.server().engine.close_all(now);
    world.run_until(SECOND, |world| !world.client().data.is_up());
    assert!(world.client().endings().contains(&&Ending::ConnectionLost));
}
