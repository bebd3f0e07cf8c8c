//! Several users of one server: known at once or later, counted, and held each to its own limits.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use masque::{HeaderList, datagram, request, response};
use quic::{CloseReason, Direction, StreamId, limits as quic_limits};
use tunnel_proto::{
    Answer, AuthorizationId, Authorizer, ClientAction, Credentials, Decision, Ending, Grant, ProxyError,
    Rights, Target, Token, User, UserId, UserLimits, UserSnapshot, limits,
};

use crate::services;
use crate::support::{DELAY, End, SECOND, Script, Setup, Way, World, stranger, user};

const ALICE: UserId = UserId([0xa1; 16]);
const BOB: UserId = UserId([0xb0; 16]);

fn bobs_token() -> Token {
    Token::from_bytes([44; 32])
}

/// Somebody whom another machine knows as locked out.
fn mallorys_token() -> Token {
    Token::from_bytes([45; 32])
}

/// Questions whose answers the test gives.
#[derive(Clone, Default)]
struct Questions(Arc<Mutex<Vec<(AuthorizationId, Decision)>>>);

impl Questions {
    /// Answers all of them; how many there were.
    fn answer(&self, world: &mut World) -> usize {
        let answers = std::mem::take(&mut *self.0.lock().expect("nobody panicked with it"));
        let now = world.now();
        let count = answers.len();
        for (id, decision) in answers {
            world.server().authorized(now, id, decision);
        }
        count
    }

    fn len(&self) -> usize {
        self.0.lock().expect("nobody panicked with it").len()
    }
}

/// Knows Alice itself; for Bob and Mallory it has to ask another machine; nobody else is known.
struct Register {
    alice: Grant,
    bob: Grant,
    questions: Questions,
}

impl Register {
    fn new(rights: Rights, limits: UserLimits) -> (Self, Questions) {
        let questions = Questions::default();
        let grant = |id| Grant {
            user: User::new(id),
            rights,
            limits,
        };
        let register = Self {
            alice: grant(ALICE),
            bob: grant(BOB),
            questions: questions.clone(),
        };
        (register, questions)
    }
}

impl Authorizer for Register {
    fn authorize(&mut self, _: Instant, id: AuthorizationId, credentials: &Credentials<'_>) -> Answer {
        let holds = |token: &Token| match credentials {
            Credentials::Token(text) => token.matches(text),
            Credentials::PathSegment(segment) => token.matches_path_segment(segment),
        };
        let decision = match () {
            () if holds(&user()) => return Answer::Now(Decision::Granted(self.alice.clone())),
            () if holds(&bobs_token()) => Decision::Granted(self.bob.clone()),
            () if holds(&mallorys_token()) => Decision::Refused,
            () => return Answer::Now(Decision::Refused),
        };
        self.questions
            .0
            .lock()
            .expect("nobody panicked with it")
            .push((id, decision));
        Answer::Later
    }
}

fn world_with(rights: Rights, limits: UserLimits) -> (World, Questions) {
    let mut world = World::with_server(Setup::default());
    let (register, questions) = Register::new(rights, limits);
    world.start_server_for(Box::new(register), 1);
    (world, questions)
}

fn world(limits: UserLimits) -> (World, Questions) {
    world_with(Rights::ALL, limits)
}

fn snapshot(world: &mut World, id: UserId) -> UserSnapshot {
    world.server().engine.users().remove(&id).unwrap_or_default()
}

fn refused(world: &mut World, id: UserId, limit: &str) -> u64 {
    snapshot(world, id).refused.get(limit).copied().unwrap_or(0)
}

fn udp_request(session: u32, token: &Token) -> HeaderList {
    let target = Target::new(&format!("echo-{session}"), 7).expect("a well-formed target");
    request::connect_udp("server.test:443", &target, &token.reveal(), None)
}

/// A foreign client that has sent a request for a UDP session.
fn asking(world: &mut World, token: &Token) -> (std::net::SocketAddr, StreamId, u32) {
    let foreign = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
    let session = world.book.session();
    let stream = world.foreign(foreign).request(&udp_request(session, token));
    world.run(SECOND / 10);
    (foreign, stream, session)
}

fn is_limit_error(action: &ClientAction) -> bool {
    let expected = Some(ProxyError::ConnectionLimitReached);
    matches!(action, ClientAction::Refused { status: 503, error, .. } if *error == expected)
}

#[test]
fn two_users_are_told_apart_and_each_is_counted() {
    let (mut world, questions) = world(UserLimits::default());
    let alice = world.add_client(&user());
    let bob = world.add_client(&bobs_token());
    world.run(SECOND / 2);
    assert!(world.client_at(alice).data.is_up() && !world.client_at(bob).data.is_up());
    assert_eq!(questions.answer(&mut world), 1);
    world.run(SECOND / 2);
    assert!(world.client_at(bob).data.is_up());
    let sessions = [0; 3].map(|_| world.book.session());
    world.send_from(alice, "echo", sessions[0], &[100, 200]);
    world.send_from(bob, "echo", sessions[1], &[1_000; 5]);
    world.send_from(bob, "echo", sessions[2], &[1_000; 5]);
    world.run(3 * SECOND);
    let counted = [ALICE, BOB].map(|id| snapshot(&mut world, id));
    let places = |user: &UserSnapshot| {
        (
            user.connections,
            user.connections_total,
            user.sessions,
            user.sessions_total,
        )
    };
    assert_eq!(counted.each_ref().map(places), [(1, 1, 1, 1), (1, 1, 2, 2)]);
    assert!(
        counted[0].bytes > 1_000 && counted[1].bytes > counted[0].bytes + 15_000,
        "{counted:?}"
    );
    // Each was asked about once, whatever it asked for.
    let totals = world.server().engine.authorizations();
    assert_eq!((totals.asked, totals.granted, totals.waiting), (2, 2, 0));
    let now = world.now();
    world.client_at(bob).data.stop_reconnecting();
    world.client_at(bob).engine.disconnect(now);
    world.run(5 * SECOND);
    let gone = snapshot(&mut world, BOB);
    assert_eq!(places(&gone), (0, 1, 0, 2));
    assert!(gone.bytes > counted[1].bytes, "the last bytes count, too");
}

#[test]
fn before_a_late_answer_a_peer_has_what_every_stranger_has_and_after_it_everything_goes_on() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, stream, session) = asking(&mut world, &bobs_token());
    let (prefix, used) = datagram::prefix(u64::from(stream) / 4, 0);
    for _ in 0..3 {
        let payload = world.book.payload(session, 300);
        world
            .foreign(foreign)
            .datagram([&prefix[..used], &payload].concat());
    }
    world.run(SECOND / 2);
    assert_eq!(world.foreign(foreign).status(stream), None);
    assert_eq!(world.server().engine.authorizations().waiting, 1);
    assert!(
        world
            .server()
            .engine
            .peers()
            .iter()
            .all(|peer| !peer.authenticated)
    );
    let more = std::iter::from_fn(|| world.foreign(foreign).open(Direction::Bidirectional)).count();
    assert_eq!(more + 1, quic_limits::UNAUTHENTICATED_STREAMS as usize);
    // What it writes behind its request stays in QUIC, within a stranger's credit.
    let written: usize = (0..100)
        .map(|_| world.foreign(foreign).write(stream, &[0; 4_096]))
        .sum();
    assert!(
        (1..=quic_limits::UNAUTHENTICATED_CREDIT_BYTES as usize).contains(&written),
        "{written}"
    );
    assert_eq!(world.book.count(session, Way::Up), 0);
    assert_eq!(questions.answer(&mut world), 1);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    assert_eq!(world.book.count(session, Way::Up), 3);
    let more = std::iter::from_fn(|| world.foreign(foreign).open(Direction::Bidirectional)).count();
    assert!(
        more > quic_limits::AUTHENTICATED_STREAMS_AT_FIRST as usize / 2,
        "{more}"
    );
    assert_eq!(snapshot(&mut world, BOB).sessions, 1);
}

#[test]
fn a_tcp_connection_waits_for_the_answer_and_then_opens() {
    let (mut world, questions) = world(UserLimits::default());
    let foreign = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
    let session = world.book.session();
    let scripts = &mut world.server().data.scripts;
    scripts.insert(session, Script::sending(10));
    let target = Target::new(&format!("tcp-{session}"), 7).expect("a well-formed target");
    let list = request::connect(&target, &bobs_token().reveal());
    let stream = world.foreign(foreign).request(&list);
    world.run(SECOND);
    assert_eq!(
        (world.foreign(foreign).status(stream), questions.len()),
        (None, 1)
    );
    questions.answer(&mut world);
    world.run(SECOND);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    assert_eq!(snapshot(&mut world, BOB).sessions_total, 1);
}

/// A client opens a TCP connection whose target listens.
fn open_tcp(world: &mut World, client: std::net::SocketAddr) -> u32 {
    world.client = client;
    let session = world.open_tcp(Script::listening(), Script::listening());
    world.run(SECOND);
    session
}

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
fn a_service_waits_for_the_answer_and_is_one_of_its_users_sessions() {
    let (mut world, questions) = world(UserLimits {
        sessions: 1,
        ..UserLimits::default()
    });
    let (echo, _) = services::register(&mut world);
    let foreign = world.add_foreign_client();
    world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
    let list = services::request("echo", &bobs_token());
    let streams = [0; 2].map(|_| world.foreign(foreign).request(&list));
    let (header, used) = masque::data_frame_header(5);
    world.foreign(foreign).write(streams[0], &header[..used]);
    world.foreign(foreign).write(streams[0], b"lines");
    world.run(SECOND);
    assert_eq!(services::received(&echo), 0);
    assert_eq!(questions.answer(&mut world), 2);
    world.run(SECOND);
    assert_eq!(services::received(&echo), 5);
    assert_eq!(world.foreign(foreign).status(streams[0]), Some(200));
    let second = world.foreign(foreign).response(streams[1]);
    let second = second.expect("it was answered");
    let cause = response::proxy_error_of(&second);
    assert_eq!(cause, Some(ProxyError::ConnectionLimitReached));
    assert_eq!(snapshot(&mut world, BOB).sessions, 1);
}

#[test]
fn a_late_refusal_is_the_same_as_one_at_once() {
    let (mut world, questions) = world(UserLimits::default());
    let (late, late_stream, _) = asking(&mut world, &mallorys_token());
    let (at_once, stream, _) = asking(&mut world, &stranger());
    questions.answer(&mut world);
    world.run(SECOND);
    let answers = [(late, late_stream), (at_once, stream)]
        .map(|(foreign, stream)| world.foreign(foreign).response(stream));
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].as_ref().map(response::status_of), Some(Ok(401)));
    assert_eq!(world.server().engine.refused_requests()["401"], 2);
    let totals = world.server().engine.authorizations();
    assert_eq!((totals.asked, totals.refused, totals.granted), (2, 2, 0));
    assert!(world.server().engine.users().is_empty());
}

#[test]
fn without_an_answer_the_request_ends_in_time_and_a_later_one_changes_nothing() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, stream, _) = asking(&mut world, &bobs_token());
    world.run(limits::AUTHORIZATION_TIME_MAX - SECOND / 5);
    assert_eq!(world.foreign(foreign).status(stream), None);
    world.run(SECOND / 5);
    let answer = world
        .foreign(foreign)
        .response(stream)
        .expect("the request was answered");
    assert_eq!(answer, response::response(503), "a stranger hears no cause");
    assert_eq!(questions.answer(&mut world), 1);
    world.run(SECOND);
    let totals = world.server().engine.authorizations();
    assert_eq!(
        (totals.expired, totals.too_late, totals.granted, totals.waiting),
        (1, 1, 0, 0)
    );
    assert_eq!(snapshot(&mut world, BOB), UserSnapshot::default());
}

#[test]
fn an_answer_for_a_connection_that_is_gone_changes_nothing() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, _, _) = asking(&mut world, &bobs_token());
    let now = world.now();
    world.foreign(foreign).close(now, 0x100);
    world.run(SECOND);
    // The authorizer is still at it.
    assert_eq!(world.server().engine.authorizations().waiting, 1);
    // Another one may have the request's place.
    let (other, other_stream, _) = asking(&mut world, &bobs_token());
    let gone = questions.0.lock().expect("nobody panicked with it").remove(0);
    let now = world.now();
    world.server().authorized(now, gone.0, gone.1);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(other).status(other_stream), None);
    assert_eq!(world.server().engine.authorizations().too_late, 1);
    questions.answer(&mut world);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(other).status(other_stream), Some(200));
}

#[test]
fn no_more_requests_wait_for_an_answer_than_the_named_limit() {
    let mut world = World::with_server(Setup::default());
    let (register, questions) = Register::new(Rights::ALL, UserLimits::default());
    // So many shards that each has room for 64 questions, and each network for eight of them.
    let shards = 16;
    world.start_server_for(Box::new(register), shards);
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (foreign, stream, _) = asking(&mut world, &bobs_token());
        streams.push((foreign, stream));
        for _ in 1..quic_limits::UNAUTHENTICATED_STREAMS {
            let session = world.book.session();
            let list = udp_request(session, &bobs_token());
            streams.push((foreign, world.foreign(foreign).request(&list)));
        }
    }
    world.run(SECOND / 2);
    let waiting_max = (limits::AUTHORIZATIONS_WAITING_MAX
        / usize::from(shards)
        / limits::AUTHORIZATIONS_PREFIX_PART) as u64;
    let totals = world.server().engine.authorizations();
    assert_eq!(
        (totals.waiting, totals.over_limit),
        (waiting_max, 12 - waiting_max)
    );
    questions.answer(&mut world);
    world.run(SECOND / 2);
    let mut statuses: Vec<_> = streams
        .iter()
        .map(|(foreign, stream)| world.foreign(*foreign).status(*stream))
        .collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[Some(200); 8].as_slice(), &[Some(503); 4]].concat());
    let put_off = streams.iter().filter_map(|(foreign, stream)| {
        let answer = world.foreign(*foreign).response(*stream);
        answer.filter(|answer| response::status_of(answer) == Ok(503))
    });
    let put_off: Vec<HeaderList> = put_off.collect();
    assert_eq!(
        put_off,
        vec![response::response(503); 4],
        "strangers hear no cause"
    );
}

#[test]
fn a_stranger_who_connects_again_and_again_has_no_more_open_questions_than_the_named_limit() {
    let (mut world, questions) = world(UserLimits::default());
    // The server has one shard.
    let most = limits::AUTHORIZATIONS_WAITING_MAX / limits::AUTHORIZATIONS_PREFIX_PART;
    let rounds = most / quic_limits::UNAUTHENTICATED_STREAMS as usize + 3;
    let started = world.now();
    for _ in 0..rounds {
        let foreign = world.add_foreign_client();
        world.run_until(SECOND, |world| world.foreign(foreign).is_connected);
        for _ in 0..quic_limits::UNAUTHENTICATED_STREAMS {
            let session = world.book.session();
            let list = udp_request(session, &bobs_token());
            world.foreign(foreign).request(&list);
        }
        world.run(2 * DELAY);
        let now = world.now();
        world.foreign(foreign).close(now, 0x100);
    }
    assert!(
        world.now() - started < limits::AUTHORIZATION_TIME_MAX,
        "none is too old"
    );
    assert_eq!(questions.len(), most);
    let totals = world.server().engine.authorizations();
    let over_limit = rounds as u64 * u64::from(quic_limits::UNAUTHENTICATED_STREAMS) - questions.len() as u64;
    assert_eq!(
        (totals.waiting, totals.over_limit),
        (questions.len() as u64, over_limit)
    );
    world.run(limits::AUTHORIZATION_TIME_MAX);
    let totals = world.server().engine.authorizations();
    assert_eq!((totals.waiting, totals.expired), (0, questions.len() as u64));
    let (foreign, stream, _) = asking(&mut world, &bobs_token());
    questions.answer(&mut world);
    world.run(SECOND / 10);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
}

#[test]
fn a_user_who_is_let_in_hears_why_another_credential_has_to_wait() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, _, _) = asking(&mut world, &user());
    let streams = [0; limits::AUTHORIZATIONS_PER_CONNECTION + 1].map(|_| {
        let list = udp_request(world.book.session(), &bobs_token());
        world.foreign(foreign).request(&list)
    });
    world.run(SECOND / 10);
    assert_eq!(questions.len(), limits::AUTHORIZATIONS_PER_CONNECTION);
    let last = streams[limits::AUTHORIZATIONS_PER_CONNECTION];
    let answer = world.foreign(foreign).response(last);
    let answer = answer.expect("it was answered at once");
    let cause = response::proxy_error_of(&answer);
    assert_eq!(cause, Some(ProxyError::ConnectionLimitReached));
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

/// The reason that a client gives for its last failed round.
fn reason(world: &mut World, client: std::net::SocketAddr) -> String {
    let reason = world.client_at(client).data.reconnection.last_reason();
    reason.to_owned()
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
fn a_client_whose_answer_does_not_come_in_time_tries_again() {
    let (mut world, questions) = world(UserLimits::default());
    let bob = world.add_client(&bobs_token());
    world.run(limits::AUTHORIZATION_TIME_MAX + 6 * DELAY);
    let told = reason(&mut world, bob);
    assert!(told.contains("no new connections at present"), "{told}");
    world.run_until(5 * SECOND, |world| {
        questions.answer(world);
        world.client_at(bob).data.is_up()
    });
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
fn a_user_without_a_right_is_refused_what_it_is_for_and_nothing_else() {
    let rights = Rights {
        udp: true,
        tcp: false,
        ip: false,
        services: false,
    };
    let (mut world, _) = world_with(rights, UserLimits::default());
    let (foreign, stream, _) = asking(&mut world, &user());
    let target = Target::new("tcp-0", 7).expect("a well-formed target");
    let list = request::connect(&target, &user().reveal());
    let tcp = world.foreign(foreign).request(&list);
    services::register(&mut world);
    let service = world
        .foreign(foreign)
        .request(&services::request("echo", &user()));
    world.run(SECOND);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    for refused in [tcp, service] {
        assert_eq!(world.foreign(foreign).status(refused), Some(403));
    }
    assert_eq!(world.server().engine.refused_requests()["403"], 2);
}

#[test]
fn a_connection_is_one_users() {
    let (mut world, questions) = world(UserLimits::default());
    let (foreign, stream, _) = asking(&mut world, &user());
    let session = world.book.session();
    let other = world
        .foreign(foreign)
        .request(&udp_request(session, &bobs_token()));
    world.run(SECOND / 10);
    questions.answer(&mut world);
    world.run(Duration::from_millis(100));
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    assert_eq!(world.foreign(foreign).status(other), Some(403));
    assert_eq!(snapshot(&mut world, ALICE).sessions, 1);
    assert_eq!(snapshot(&mut world, BOB), UserSnapshot::default());
}
