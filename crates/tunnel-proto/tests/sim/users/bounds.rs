//! What each user may have, and what becomes of what is scarce.

use super::*;

#[test]
fn where_tcp_places_run_out_the_user_who_has_most_gives_its_idlest_and_keeps_nobody_out() {
    let (mut world, questions) = world(UserLimits::default());
    let [alice, bob] = [user(), bobs_token()].map(|token| world.add_client(&token));
    world.run(SECOND);
    questions.answer(&mut world);
    world.run(SECOND);
    world.server().data.tcp_places = Some(4);
    let refused = |world: &mut World, client| {
        let endings = world.client_at(client).endings();
        let error = Some(ProxyError::ConnectionLimitReached);
        let expected = Ending::Refused { status: 503, error };
        endings.iter().filter(|ending| ***ending == expected).count()
    };
    let is_open = |world: &mut World, session| world.server().request_of(session).is_some();
    let alices = [0; 4].map(|_| open_tcp(&mut world, alice));
    assert_eq!(alices.map(|session| is_open(&mut world, session)), [true; 4]);
    // She has most, and moved something in all of them lately: her next one is refused.
    open_tcp(&mut world, alice);
    assert_eq!(refused(&mut world, alice), 1);
    let bobs = [0; 2].map(|_| open_tcp(&mut world, bob));
    assert_eq!(bobs.map(|session| is_open(&mut world, session)), [true; 2]);
    assert_eq!(
        alices.map(|session| is_open(&mut world, session)),
        [false, false, true, true]
    );
    // Nobody has more than the other: neither takes from the other.
    for (client, count) in [(bob, 1), (alice, 2)] {
        open_tcp(&mut world, client);
        assert_eq!(refused(&mut world, client), count);
    }
    world.run(limits::TCP_YIELD_IDLE);
    let third = open_tcp(&mut world, bob);
    assert_eq!(
        [bobs[0], bobs[1], third, alices[2], alices[3]].map(|session| is_open(&mut world, session)),
        [false, true, true, true, true]
    );
    assert_eq!(snapshot(&mut world, ALICE).sessions, 2);
    assert_eq!(snapshot(&mut world, BOB).sessions, 2);
}

#[test]
fn a_user_has_no_more_connections_than_it_may_and_hears_why() {
    let (mut world, _) = world(UserLimits {
        connections: 1,
        ..UserLimits::default()
    });
    let first = world.add_client(&user());
    world.wait_until_up(first);
    let (foreign, stream, _) = asking(&mut world, &user());
    let answer = world
        .foreign(foreign)
        .response(stream)
        .expect("the request was answered");
    assert_eq!(response::status_of(&answer), Ok(503));
    assert_eq!(
        response::proxy_error_of(&answer),
        Some(ProxyError::ConnectionLimitReached)
    );
    assert_eq!(refused(&mut world, ALICE, "connections"), 1);
    // It stays a stranger, for whom ten seconds are enough.
    world.run(quic_limits::AUTHENTICATION_DEADLINE + SECOND);
    assert!(matches!(
        world.foreign(foreign).closed,
        Some(CloseReason::ApplicationClosed { .. })
    ));
    assert!(world.client_at(first).data.is_up());
    let now = world.now();
    world.client_at(first).data.stop_reconnecting();
    world.client_at(first).engine.disconnect(now);
    world.run(5 * SECOND);
    let (foreign, stream, _) = asking(&mut world, &user());
    assert_eq!(
        world.foreign(foreign).status(stream),
        Some(200),
        "a place was given back"
    );
    assert_eq!(snapshot(&mut world, ALICE).connections, 1);
}

#[test]
fn a_client_beyond_the_limit_is_told_so_and_gets_in_later() {
    let (mut world, _) = world(UserLimits {
        connections: 1,
        ..UserLimits::default()
    });
    let first = world.add_client(&user());
    world.wait_until_up(first);
    let second = world.add_client(&user());
    world.run(10 * SECOND);
    assert_eq!(world.connections_opened(second), 0);
    let told = reason(&mut world, second);
    assert!(told.contains("as many connections as it may have"), "{told}");
    // Every two seconds at most, and no connection of it stays.
    let lost = |action: &ClientAction| matches!(action, ClientAction::Lost { .. });
    assert!((4..=15).contains(&world.client_at(second).count(lost)));
    let now = world.now();
    world.client_at(first).data.stop_reconnecting();
    world.client_at(first).engine.disconnect(now);
    world.run(5 * SECOND);
    assert_eq!(world.connections_opened(second), 1);
    assert_eq!(snapshot(&mut world, ALICE).connections, 1);
}

#[test]
fn a_user_has_no_more_sessions_than_it_may_and_one_users_limit_is_not_anothers() {
    let mut setup = Setup::default();
    setup.server.udp_idle_timeout = 10 * SECOND;
    setup.client.udp_idle_timeout = 10 * SECOND;
    let mut world = World::with_server(setup);
    let (register, questions) = Register::new(
        Rights::ALL,
        UserLimits {
            sessions: 2,
            ..UserLimits::default()
        },
    );
    world.start_server_for(Box::new(register), 1);
    let [alice, bob] = [user(), bobs_token()].map(|token| world.add_client(&token));
    world.run(SECOND);
    questions.answer(&mut world);
    world.run(SECOND);
    let sessions = [0; 5].map(|_| world.book.session());
    for session in &sessions[..3] {
        world.send_from(alice, "echo", *session, &[100]);
        world.run(SECOND / 10);
    }
    world.send_from(bob, "echo", sessions[3], &[100]);
    world.run(SECOND);
    assert_eq!(world.client_at(alice).count(is_limit_error), 1);
    assert_eq!(world.client_at(bob).count(is_limit_error), 0);
    let arrived = sessions.map(|session| world.book.count(session, Way::Up));
    assert_eq!(arrived, [1, 1, 0, 1, 0]);
    assert_eq!(
        (
            refused(&mut world, ALICE, "sessions"),
            refused(&mut world, BOB, "sessions")
        ),
        (1, 0)
    );
    world.run(15 * SECOND);
    assert_eq!(snapshot(&mut world, ALICE).sessions, 0);
    world.send_from(alice, "echo", sessions[4], &[100]);
    world.run(SECOND);
    assert_eq!(world.book.count(sessions[4], Way::Up), 1);
    assert_eq!(snapshot(&mut world, ALICE).sessions_total, 3);
}

#[test]
fn a_user_whose_bytes_are_used_up_is_told_so_and_gets_no_further() {
    let (mut world, _) = world(UserLimits {
        bytes: 100_000,
        ..UserLimits::default()
    });
    let alice = world.add_client(&user());
    world.wait_until_up(alice);
    let session = world.book.session();
    for _ in 0..15 {
        world.send_from(alice, "sink", session, &[1_000; 10]);
        world.run(SECOND / 100);
    }
    world.client_at(alice).data.stop_reconnecting();
    world.run(3 * SECOND);
    let told = |action: &ClientAction| {
        matches!(action, ClientAction::Lost { reason: CloseReason::ApplicationClosed { reason, .. }, .. }
            if reason.contains("bytes"))
    };
    assert_eq!(world.client_at(alice).count(told), 1);
    let counted = snapshot(&mut world, ALICE);
    assert!(
        counted.bytes >= 150_000 && counted.connections == 0,
        "{counted:?}"
    );
    let before = refused(&mut world, ALICE, "bytes");
    assert!(before >= 1);
    let (foreign, stream, _) = asking(&mut world, &user());
    assert_eq!(world.foreign(foreign).status(stream), Some(503));
    assert_eq!(refused(&mut world, ALICE, "bytes"), before + 1);
}

#[test]
fn leases_are_kept_by_user_and_name_and_limited_by_user() {
    let (mut world, questions) = world(UserLimits {
        leases: 1,
        ..UserLimits::default()
    });
    world.serve_ip(&["10.9.0.0/24"], &["0.0.0.0/0"], false);
    let alice = world.add_ip_client_of(&user(), 1, 7);
    let bob = world.add_ip_client_of(&bobs_token(), 1, 7);
    world.run(SECOND);
    questions.answer(&mut world);
    world.run(SECOND);
    let address = |world: &mut World, client| {
        let assignment = world.client_at(client).assignment();
        assignment.map(|assignment| assignment.addresses[0].to_string())
    };
    assert_eq!(address(&mut world, alice).as_deref(), Some("10.9.0.2/32"));
    assert_eq!(
        address(&mut world, bob).as_deref(),
        Some("10.9.0.3/32"),
        "one name, two users"
    );
    let second = world.add_ip_client_of(&user(), 2, 7);
    world.run(2 * SECOND);
    let is_refused = |action: &ClientAction| {
        let expected = Some(ProxyError::ConnectionLimitReached);
        matches!(action, ClientAction::IpRefused { status: 503, error } if *error == expected)
    };
    assert!(world.client_at(second).count(is_refused) >= 1);
    assert!(refused(&mut world, ALICE, "leases") >= 1);
    assert_eq!(refused(&mut world, BOB, "leases"), 0);
    assert_eq!(
        snapshot(&mut world, ALICE).sessions,
        1,
        "a refused session holds no place"
    );
}

#[test]
fn who_is_excluded_is_told_why_keeps_nothing_and_comes_back_when_it_may() {
    let mut world = World::with_server(Setup::default());
    let (register, questions) = Register::new(Rights::ALL, UserLimits::default());
    let account = register.alice.user.clone();
    world.start_server_for(Box::new(register), 1);
    let [alice, bob] = [user(), bobs_token()].map(|token| world.add_client(&token));
    world.run(SECOND);
    questions.answer(&mut world);
    world.run(SECOND);
    account.exclude(Some(Exclusion::Disabled));
    world.run(2 * SECOND);
    let told = reason(&mut world, alice);
    assert_eq!(told, "the server closed it: this user is disabled");
    assert!(!world.client_at(alice).data.is_up() && world.client_at(bob).data.is_up());
    assert_eq!(snapshot(&mut world, ALICE).connections, 0);
    // Whoever comes again hears the same.
    world.run(5 * SECOND);
    assert_eq!(reason(&mut world, alice), told);
    assert!(!world.client_at(alice).data.is_up());
    account.exclude(None);
    world.run(5 * SECOND);
    assert!(world.client_at(alice).data.is_up());
    assert_eq!(world.connections_opened(bob), 1, "nobody else noticed");
}
