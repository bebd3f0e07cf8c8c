//! A server behind a cover (specs/qr1.md): its client proves itself with its first requests, and rests where it meets the
//! genuine site.

use std::net::SocketAddr;

use masque::binding::Binding;
use masque::{HeaderList, headers_frame, request, response};
use quic::CloseReason;
use tunnel_proto::{ServerAction, StripeNews, Target, limits};

use crate::support::{End, SECOND, Setup, World, user};

/// H3_NO_ERROR (RFC 9114 section 8.1).
const H3_NO_ERROR: u64 = 0x100;

fn setup() -> Setup {
    Setup {
        has_front_door: true,
        ..Setup::default()
    }
}

/// A client of another make that was recognised, and what proves that to the server.
fn recognised(world: &mut World) -> (SocketAddr, Binding) {
    let client = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(client).is_connected);
    let foreign = world.foreign(client);
    let connection = foreign.connection.expect("it is connected");
    let binding = foreign.endpoint.channel_binding(connection);
    (client, Binding(binding.expect("it came through the front door")))
}

/// The status that a request with the right token gets, and these bindings.
fn status(world: &mut World, client: SocketAddr, bindings: &[&Binding]) -> Option<u16> {
    let session = world.book.session();
    let target = Target::new(&format!("echo-{session}"), 7).expect("a well-formed target");
    let mut list = request::connect_udp("server.test:443", &target, &user().reveal(), None);
    for binding in bindings {
        binding.push_to(&mut list);
    }
    let stream = world.foreign(client).request(&list);
    world.run(SECOND / 10);
    world.foreign(client).status(stream)
}

fn turned_away(world: &mut World) -> usize {
    let is = |action: &ServerAction| matches!(action, ServerAction::TurnedAway { .. });
    world.server().count(is)
}

/// QR1-17.
#[test]
fn a_valid_token_without_the_right_binding_is_a_wrong_one_until_the_right_one_has_come() {
    let mut world = World::with_server(setup());
    let (_, others) = recognised(&mut world);
    for wrong in 0..4 {
        let (client, right) = recognised(&mut world);
        let bindings = [vec![], vec![&others], vec![&right, &right], vec![&others, &right]];
        assert_eq!(
            status(&mut world, client, &bindings[wrong]),
            Some(401),
            "case {wrong}"
        );
        assert_eq!(turned_away(&mut world), wrong + 1, "it counts as a wrong token");
    }
    let (client, right) = recognised(&mut world);
    assert_eq!(status(&mut world, client, &[]), Some(401));
    assert_eq!(status(&mut world, client, &[&right]), Some(200));
    // Requests that the first one overtook, and later ones.
    assert_eq!(status(&mut world, client, &[]), Some(200));
    assert_eq!(status(&mut world, client, &[&others]), Some(200));
    assert_eq!(turned_away(&mut world), 5);
}

/// QR1-17.
#[test]
fn who_goes_on_without_the_right_binding_loses_the_connection_as_with_wrong_tokens() {
    let mut world = World::with_server(setup());
    let (client, _) = recognised(&mut world);
    for _ in 0..limits::WRONG_TOKENS_PER_CONNECTION {
        assert_eq!(world.foreign(client).closed, None);
        assert_eq!(status(&mut world, client, &[]), Some(401));
    }
    world.run(2 * limits::SWEEP_INTERVAL);
    assert!(world.foreign(client).closed.is_some());
    assert_eq!(world.server().sessions_open(), 0);
}

/// QR1-17.
#[test]
fn a_client_proves_itself_with_every_request_until_one_is_answered() {
    let mut world = World::with_server(setup());
    world.replace_server_by_a_foreign_one();
    world.client = world.add_client(&user());
    let server = world.server;
    world.run_until(SECOND, |world| world.foreign(server).requests_taken().len() == 1);
    let foreign = world.foreign(server);
    let connection = foreign.connection.expect("it is connected");
    let right = Binding(
        foreign
            .endpoint
            .channel_binding(connection)
            .expect("a front door"),
    );
    let ask = |world: &mut World| -> Vec<bool> {
        let session = world.book.session();
        world.send("echo", session, &[100]);
        world.run(SECOND / 10);
        let taken = world.foreign(server).requests_taken();
        taken.iter().map(|(_, list)| right.is_shown_by(list)).collect()
    };
    assert_eq!(ask(&mut world), [true; 2]);
    assert_eq!(ask(&mut world), [true; 3]);
    let (first, _) = world.foreign(server).requests_taken()[0];
    let answer: HeaderList = response::response(502);
    world.foreign(server).write(first, &headers_frame(&answer));
    world.run(SECOND / 10);
    assert_eq!(ask(&mut world), [true, true, true, false]);
}

/// QR1-17. With the engine at both ends.
#[test]
fn a_client_comes_through_the_front_door() {
    let mut world = World::new(setup());
    let client = world.client;
    world.wait_until_up(client);
    assert_eq!(turned_away(&mut world), 0);
    assert_eq!(world.connections_opened(client), 1);
}

/// QR1-19. Whoever looks sees a browser that connects, rests, goes, and comes back now and then.
#[test]
fn a_client_that_is_led_to_the_genuine_site_says_nothing_rests_goes_and_waits_longer_each_time() {
    let mut world = World::with_server(setup());
    world.lead_to_the_genuine_site();
    world.client = world.add_client(&user());
    let (site, session) = (world.server, world.book.session());
    let mut before = None;
    let mut longest = limits::REDIRECTED_BACKOFF_MIN;
    for round in 0..8 {
        world.run_until(longest + SECOND, |world| world.foreign(site).is_connected);
        let come = world.now();
        world.foreign(site).trust(come);
        if let Some(before) = before.replace(come) {
            let pause = come - before;
            assert!(
                pause >= longest / 2 && pause <= longest + SECOND,
                "round {round}: {pause:?}"
            );
            longest = (2 * longest).min(limits::REDIRECTED_BACKOFF_MAX);
        }
        // What local programs send finds no way out.
        world.send("echo", session, &[100; 3]);
        world.run(limits::REDIRECTED_REST_MIN - SECOND);
        assert_eq!(world.foreign(site).closed, None, "round {round}");
        assert_eq!(world.client().data.reconnection.state_name(), "redirected");
        let limit = limits::REDIRECTED_REST_MAX - limits::REDIRECTED_REST_MIN + 2 * SECOND;
        world.run_until(limit, |world| world.foreign(site).closed.is_some());
        let rested = world.now() - come;
        // Both ends notice within a round trip.
        let (least, most) = (
            limits::REDIRECTED_REST_MIN - SECOND,
            limits::REDIRECTED_REST_MAX + SECOND,
        );
        assert!(rested >= least && rested <= most, "round {round}: {rested:?}");
        let foreign = world.foreign(site);
        assert!(!foreign.has_heard(), "round {round}");
        let reason = String::new();
        let farewell = CloseReason::ApplicationClosed {
            code: H3_NO_ERROR,
            reason,
        };
        assert_eq!(foreign.closed.take(), Some(farewell), "round {round}, {rested:?}");
        foreign.is_connected = false;
    }
    let shared = world.client().data.shared.clone();
    let news = &shared.borrow().news;
    assert!(
        matches!(&news[..], [StripeNews::Unreachable { reason, .. }] if reason.contains("the genuine site answered")),
        "{news:?}"
    );
}
