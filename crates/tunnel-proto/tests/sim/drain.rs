//! A server that goes: GOAWAY, no new requests and connections, what runs goes on; and its clients, which go on with
//! another one without a gap.

use std::net::SocketAddr;

use tunnel_proto::{ClientAction, DropReason, Ending, ServerAction};

use crate::support::{DELAY, End, MILLISECOND, SECOND, Script, Setup, Way, World, user};

#[test]
fn a_draining_server_finishes_what_runs_and_takes_nothing_new() {
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
    // What is new waits for another server, and is not asked for here.
    let late = world.book.session();
    world.send("echo", late, &[100]);
    let opened = |action: &ServerAction| matches!(action, ServerAction::Open { .. });
    let before = world.server().count(opened);
    world.run(5 * SECOND);
    assert_eq!(world.book.count(running, Way::Down), 2);
    assert_eq!(world.server().tcp(connection).read, 2_000);
    assert!(world.server().tcp(connection).read_end);
    assert_eq!(world.server().count(opened), before);
    assert_eq!(world.client().ingress_drops(DropReason::NoTunnel), 1);
    // The connection stays up while all attempts to replace it are refused.
    assert!(world.server().engine.incoming_totals().refused > 1);
    assert!(world.client().data.is_up());
    assert_eq!(world.server().engine.connections(), 1);
}

/// A client that knows two servers and is connected to the first, and the second.
fn with_two_servers(setup: Setup) -> (World, SocketAddr) {
    let mut world = World::with_server(setup);
    let first = world.server;
    let second = SocketAddr::from(([198, 51, 100, 2], 443));
    world.start_shards(second, 1);
    let servers = [("first.test", first), ("second.test", second)];
    world.client = world.add_stripes(&user(), &servers, 1)[0];
    let client = world.client;
    world.wait_until_up(client);
    world.run(2 * SECOND);
    assert_eq!(world.server().engine.connections(), 1);
    (world, second)
}

#[test]
fn a_client_goes_on_with_another_server_before_the_draining_one_ends() {
    let (mut world, second) = with_two_servers(Setup::default());
    let session = world.book.session();
    let connection = world.open_tcp(
        Script {
            ends: false,
            ..Script::sending(1_000)
        },
        Script::listening(),
    );
    world.send("echo", session, &[100]);
    world.run(SECOND);
    world.server().engine.start_drain();
    // Datagrams of all the time, in both directions: none is lost, doubled or given to another session.
    for _ in 0..1_000 {
        world.send("echo", session, &[100, 200]);
        world.run(MILLISECOND);
    }
    let late = world.book.session();
    world.send("echo", late, &[100]);
    world.run(SECOND);
    for way in [Way::Up, Way::Down] {
        assert_eq!(world.book.count(session, way), 2_001, "{way:?}");
        assert_eq!(world.book.count(late, way), 1);
    }
    assert_eq!(world.shards(second)[0].sessions_open(), 2);

    // The stream goes on where it was, and the former connection ends with it.
    world.run(5 * SECOND);
    assert_eq!(world.server().engine.connections(), 1);
    world.client().tcp(connection).script = Script::sending(100_000);
    world.client().resume(connection);
    world.run(5 * SECOND);
    assert_eq!(world.server().tcp(connection).read, 100_000);
    world.client().abort(connection);
    world.run(3 * SECOND);
    assert_eq!(world.server().engine.connections(), 0);
    assert_eq!(world.client().engine.attempts(), 1);
    assert!(world.client().endings().is_empty());
    assert!(world.client().data.is_up());
}

/// RFC 9114 section 5.2: below the number that GOAWAY names are all requests that the server may have acted on, ended ones
/// as well.
#[test]
fn what_a_draining_server_has_finished_is_not_asked_again() {
    let (mut world, second) = with_two_servers(Setup::default());
    let script = Script {
        ends: false,
        ..Script::sending(1_000)
    };
    let connection = world.open_tcp(script, script);
    world.run(SECOND);
    assert_eq!(world.server().tcp(connection).read, 1_000);
    let at_server = world.server().request_of(connection).expect("it is open there");
    // Its end and GOAWAY leave together.
    world.server().engine.end(at_server, tunnel_proto::End::Failed);
    world.server().engine.start_drain();
    world.run(2 * SECOND);
    let opened = |action: &ServerAction| matches!(action, ServerAction::Open { .. });
    assert_eq!(world.shards(second)[0].count(opened), 0);
    let endings = world.client().endings();
    assert_eq!(endings.len(), 1, "{endings:?}");
}

/// The server refuses what reaches it after its GOAWAY left, and the client asks for it again.
#[test]
fn what_is_asked_for_while_the_goaway_is_under_way_is_asked_again_at_the_next_server() {
    let (mut world, second) = with_two_servers(Setup::default());
    world.server().engine.start_drain();
    world.run(DELAY / 2);
    let session = world.book.session();
    world.send("echo", session, &[100]);
    let connection = world.open_tcp(Script::sending(1_000), None);
    world.shards(second)[0]
        .data
        .scripts
        .insert(connection, Script::sending(1_000));
    world.run(2 * SECOND);
    assert_eq!(world.shards(second)[0].tcp(connection).read, 1_000);
    assert!(
        world.client().endings().is_empty(),
        "{:?}",
        world.client().endings()
    );
    let refused = |action: &ClientAction| matches!(action, ClientAction::Refused { .. });
    assert_eq!(world.client().count(refused), 0);
    world.send("echo", session, &[100]);
    world.run(SECOND);
    assert!(world.book.numbers(session, Way::Down).contains(&1));
}

#[test]
fn a_draining_server_that_is_lost_costs_what_was_left_there_alone() {
    let (mut world, second) = with_two_servers(Setup::default());
    let connection = world.open_tcp(Script::listening(), Script::listening());
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(SECOND);
    world.server().engine.start_drain();
    world.run(SECOND);
    let now = world.now();
    world.server().engine.close_all(now);
    world.run(SECOND);
    assert!(world.client().endings().contains(&&Ending::ConnectionLost));
    assert!(world.client().request_of(connection).is_none());
    world.send("echo", session, &[100]);
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Down), 2);
    assert_eq!(world.shards(second)[0].sessions_open(), 1);
    assert!(world.client().data.is_up());
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
