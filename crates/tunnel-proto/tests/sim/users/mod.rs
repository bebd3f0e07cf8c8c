//! Several users of one server: known at once or later, counted, and held each to its own limits.

mod answers;
mod bounds;
mod rates;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use masque::{HeaderList, datagram, ip, request, response};
use quic::{CloseReason, Direction, StreamId, limits as quic_limits};
use tunnel_proto::{
    Answer, AuthorizationId, Authorizer, ClientAction, Credentials, Decision, DropReason, Ending,
    EngineConfig, Exclusion, Grant, LineRates, ListenRights, ProxyError, Reach, Rights, Target, Token, User,
    UserId, UserLimits, UserSnapshot, limits,
};

use crate::services;
use crate::support::{DELAY, End, SECOND, Script, Setup, Way, World, packets, stranger, user};

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
            reach: Reach::default(),
            listen: ListenRights::default(),
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
    fn authorize(
        &mut self,
        _: Instant,
        id: AuthorizationId,
        credentials: &Credentials<'_>,
        _: SocketAddr,
    ) -> Answer {
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
fn asking(world: &mut World, token: &Token) -> (SocketAddr, StreamId, u32) {
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

/// The reason that a client gives for its last failed round.
fn reason(world: &mut World, client: SocketAddr) -> String {
    let reason = world.client_at(client).data.reconnection.last_reason();
    reason.to_owned()
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

/// A client opens a TCP connection whose target listens.
fn open_tcp(world: &mut World, client: SocketAddr) -> u32 {
    world.client = client;
    let session = world.open_tcp(Script::listening(), Script::listening());
    world.run(SECOND);
    session
}

#[test]
fn a_user_without_a_right_is_refused_what_it_is_for_and_nothing_else() {
    // Packets could carry TCP.
    let rights = Rights {
        udp: true,
        tcp: false,
        ip: true,
        services: false,
    };
    let (mut world, _) = world_with(rights, UserLimits::default());
    world.serve_ip(&["10.86.0.0/24"], &["10.86.0.0/24"], false);
    let (foreign, stream, _) = asking(&mut world, &user());
    let target = Target::new("tcp-0", 7).expect("a well-formed target");
    let list = request::connect(&target, &user().reveal());
    let tcp = world.foreign(foreign).request(&list);
    services::register(&mut world);
    let service = world
        .foreign(foreign)
        .request(&services::request("echo", &user()));
    let token = user().reveal();
    let list = ip::connect_ip(
        "server.test:443",
        &ip::Scope::ANY,
        &token,
        &ip::Extensions::default(),
    );
    let packets = world.foreign(foreign).request(&list);
    world.run(SECOND);
    assert_eq!(world.foreign(foreign).status(stream), Some(200));
    for refused in [tcp, service, packets] {
        assert_eq!(world.foreign(foreign).status(refused), Some(403));
    }
    assert_eq!(world.server().engine.refused_requests()["403"], 3);
}

#[test]
fn packets_leave_to_the_networks_of_their_user_alone() {
    let mut world = World::with_server(Setup::default());
    let (mut register, _) = Register::new(Rights::ALL, UserLimits::default());
    register.alice.reach = Reach::only(vec!["198.51.100.0/24:7".parse().expect("a network")]);
    world.start_server_for(Box::new(register), 1);
    world.serve_ip(&["10.9.0.0/24"], &["0.0.0.0/0"], false);
    world.client = world.add_ip_client(1, 1);
    let client = world.client;
    world.run_until(20 * SECOND, |world| {
        world.client_at(client).assignment().is_some()
    });
    for (destination, is_reached) in [("198.51.100.1", true), ("203.0.113.1", false)] {
        world.server().packets.clear();
        let before = world.server().egress_drops(DropReason::PolicyDenied);
        world.send_packet(client, &packets::udp("10.9.0.2", destination, 100));
        world.run(SECOND);
        assert_eq!(
            world.server().packets.len(),
            usize::from(is_reached),
            "{destination}"
        );
        let dropped = world.server().egress_drops(DropReason::PolicyDenied) - before;
        assert_eq!(dropped, u64::from(!is_reached), "{destination}");
    }
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
