//! Who gets in: tokens, what strangers may use, refused targets.

use masque::{HeaderList, datagram, request};
use quic::{CloseReason, Direction, limits as quic_limits};
use tunnel_proto::{ClientAction, DropReason, Ending, ProxyError, ServerAction, Target, limits};

use crate::support::{DELAY, End, MILLISECOND, SECOND, Script, Setup, Way, World, stranger, user};

fn opened(world: &mut World) -> usize {
    world
        .server()
        .count(|action| matches!(action, ServerAction::Open { .. }))
}

fn target() -> Target {
    Target::new("echo-0", 7).expect("a well-formed target")
}

#[test]
fn a_wrong_token_is_refused_and_opens_nothing() {
    let mut world = World::with_server(Setup::default());
    world.client = world.add_client(&stranger());
    let session = world.book.session();
    world.send("echo", session, &[100]);
    world.run(SECOND);
    let refused = |action: &ClientAction| *action == ClientAction::TokenRefused { status: 401 };
    assert!(world.client().count(refused) >= 1);
    assert!(!world.client().data.is_up());
    assert_eq!(opened(&mut world), 0);
    assert_eq!(world.book.count(session, Way::Up), 0);
    let lost = world
        .client()
        .count(|action| matches!(action, ClientAction::Lost { .. }));
    assert_eq!(lost, 0);
}

#[test]
fn the_third_wrong_token_closes_the_connection() {
    let mut world = World::with_server(Setup::default());
    world.client = world.add_client(&stranger());
    let [one, other] = [0; 2].map(|_| world.book.session());
    world.send("echo", one, &[100]);
    world.send("echo", other, &[100]);
    world.open_tcp(Script::sending(10), Script::sending(10));
    world.run(3 * SECOND);
    assert!(
        world
            .client()
            .count(|action| matches!(action, ClientAction::TokenRefused { .. }))
            >= 1
    );
    let lost = world.client().count(|action| {
        matches!(
            action,
            ClientAction::Lost {
                reason: CloseReason::ApplicationClosed { code: 0x100, .. },
                ..
            }
        )
    });
    assert_eq!(lost, 1);
    assert_eq!(opened(&mut world), 0);
    let refused = world.server().engine.refused_requests();
    assert!((3..=4).contains(&refused.values().sum::<u64>()), "{refused:?}");
    assert_eq!(world.server().engine.gauges()[1].0, 0);
}

#[test]
fn requests_without_a_valid_token_get_the_answers_of_any_web_server() {
    let mut world = World::with_server(Setup::default());
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let authority = "server.test:443";
    let plain = HeaderList::new()
        .with(":method", "GET")
        .with(":scheme", "https")
        .with(":authority", authority)
        .with(":path", "/");
    let wrong_path = HeaderList::new()
        .with(":method", "CONNECT")
        .with(":protocol", "connect-udp")
        .with(":scheme", "https")
        .with(":authority", authority)
        .with(":path", "/guess/echo-0/7/");
    let udp = request::connect_udp(authority, &target(), &stranger().reveal(), None);
    let tcp = request::connect(&target(), &stranger().reveal());
    for (list, status) in [(plain, 404), (wrong_path, 404), (udp, 401), (tcp, 407)] {
        let stream = world.foreign(foreign).request(&list);
        world.run(SECOND);
        assert_eq!(world.foreign(foreign).status(stream), Some(status));
    }
    assert_eq!(opened(&mut world), 0);
}

/// They are credentials of clients that know no token.
#[test]
fn the_third_wrong_path_segment_closes_the_connection_and_other_wrong_paths_do_not() {
    for (path, closes) in [("/guess/echo-0/7/", true), ("/guess/", false)] {
        let mut world = World::with_server(Setup::default());
        let foreign = world.add_foreign_client();
        world.run(SECOND);
        let list = HeaderList::new()
            .with(":method", "CONNECT")
            .with(":protocol", "connect-udp")
            .with(":scheme", "https")
            .with(":authority", "server.test:443")
            .with(":path", path);
        for _ in 0..limits::WRONG_TOKENS_PER_CONNECTION {
            assert_eq!(world.foreign(foreign).closed, None, "{path}");
            let stream = world.foreign(foreign).request(&list);
            world.run(200 * MILLISECOND);
            assert_eq!(world.foreign(foreign).status(stream), Some(404), "{path}");
        }
        world.run(2 * limits::SWEEP_INTERVAL);
        assert_eq!(world.foreign(foreign).closed.is_some(), closes, "{path}");
    }
}

#[test]
fn a_stranger_gets_four_streams_and_little_memory_for_ten_seconds() {
    let mut world = World::with_server(Setup::default());
    let foreign = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
    let streams: Vec<_> =
        std::iter::from_fn(|| world.foreign(foreign).open(Direction::Bidirectional)).collect();
    assert_eq!(streams.len(), quic_limits::UNAUTHENTICATED_STREAMS as usize);
    // A frame of an unknown type without end (RFC 9114 section 9): read and forgotten.
    let mut written = 0;
    for stream in &streams {
        written += world
            .foreign(foreign)
            .write(*stream, &[0x21, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }
    for _ in 0..100 {
        for stream in &streams {
            written += world.foreign(foreign).write(*stream, &[0; 4_096]);
            let (prefix, used) = datagram::prefix(u64::from(*stream) / 4, 0);
            let payload = [&prefix[..used], &[0; 1_000]].concat();
            world.foreign(foreign).datagram(payload);
        }
        world.run(20 * MILLISECOND);
        let waiting = world.server().engine.egress_waiting() as usize;
        assert!(waiting * 1_000 <= limits::EARLY_BYTES_MAX, "{waiting}");
    }
    assert!(
        written <= quic_limits::UNAUTHENTICATED_CREDIT_BYTES as usize,
        "{written}"
    );
    assert!(world.server().egress_drops(DropReason::UnknownSession) > 0);
    world.run(quic_limits::AUTHENTICATION_DEADLINE);
    assert!(matches!(
        world.foreign(foreign).closed,
        Some(CloseReason::ApplicationClosed { .. })
    ));
    assert_eq!(world.server().engine.egress_waiting(), 0);
    assert_eq!(world.server().engine.gauges()[1].0, 0);
    assert_eq!(opened(&mut world), 0);
}

#[test]
fn a_user_gets_more_streams_than_a_stranger() {
    let mut world = World::with_server(Setup::default());
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let list = request::connect_udp("server.test:443", &target(), &user().reveal(), None);
    world.foreign(foreign).request(&list);
    world.run(SECOND);
    let more = std::iter::from_fn(|| world.foreign(foreign).open(Direction::Bidirectional)).count();
    assert_eq!(more + 1, quic_limits::AUTHENTICATED_STREAMS_AT_FIRST as usize);
    world.run(2 * quic_limits::AUTHENTICATION_DEADLINE);
    assert_eq!(world.foreign(foreign).closed, None);
}

#[test]
fn a_refused_target_is_asked_for_again_only_after_a_while() {
    let mut world = World::connected(Setup::default());
    let session = world.book.session();
    world.send("refused", session, &[100]);
    world.run(SECOND);
    let refused = |action: &ClientAction| {
        let expected = Some(ProxyError::ConnectionRefused);
        matches!(action, ClientAction::Refused { status: 502, error, .. } if *error == expected)
    };
    assert_eq!(world.client().count(refused), 1);
    for _ in 0..30 {
        world.send("refused", session, &[100]);
        world.run(100 * MILLISECOND);
    }
    assert_eq!(world.client().ingress_drops(DropReason::SessionClosed), 30);
    assert_eq!(opened(&mut world), 1);
    world.run(limits::REFUSED_HOLD);
    assert_eq!(world.client().endings().last(), Some(&&Ending::Idle));
    world.send("refused", session, &[100]);
    world.run(4 * DELAY);
    assert_eq!(opened(&mut world), 2);
}
