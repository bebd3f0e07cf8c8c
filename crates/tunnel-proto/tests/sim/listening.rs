//! Connections that come to a port of the server and lead to a client (`specs/listen.md`).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use masque::listen::PROTOCOL;
use masque::request::extended_connect;
use tunnel_proto::{
    Answer, AuthorizationId, Authorizer, Body, CONNECTION_CAME, Credentials, Decision, Ending, Engine, Grant,
    ListenPath, ListenRights, ProxyError, Reach, RequestId, Rights, Role, ServerAction, User, UserId,
    UserLimits,
};

use crate::support::{DELAY, End, SECOND, Script, Setup, World, stranger, user};

fn path() -> ListenPath {
    ListenPath {
        client: 7,
        address: "127.0.0.1:8080".parse().expect("an address"),
    }
}

fn open(world: &mut World) -> RequestId {
    let now = world.now();
    world.client().engine.open_listener(now, path())
}

/// Requests at the server that have waited for a connection, the first one first.
fn waiting(world: &mut World) -> Vec<RequestId> {
    let asked = |action: &ServerAction| match action {
        ServerAction::Listen {
            request, path: asked, ..
        } => {
            assert_eq!(*asked, path());
            Some(*request)
        }
        _ => None,
    };
    world
        .server()
        .actions()
        .filter_map(|(_, action)| asked(action))
        .collect()
}

/// A connection comes to the server's port.
fn come(world: &mut World, id: RequestId) {
    let now = world.now();
    let engine = &mut world.server().engine;
    assert!(engine.connection_came(now, id));
    assert!(engine.announce_connection(id));
}

fn read<R: Role>(engine: &mut Engine<R>, id: RequestId) -> (Vec<u8>, Body) {
    let mut pieces = VecDeque::new();
    let body = engine.read_body(id, &mut pieces, 100_000);
    (pieces.iter().flatten().copied().collect(), body)
}

/// LISTEN-3, LISTEN-5.
#[test]
fn a_request_waits_as_long_as_it_takes_and_carries_its_connection_from_the_byte_that_announces_it() {
    let mut world = World::connected(Setup::default());
    let at_client = open(&mut world);
    world.run(SECOND);
    let established = |action: &tunnel_proto::ClientAction| {
        *action == tunnel_proto::ClientAction::Established { request: at_client }
    };
    assert_eq!(world.client().count(established), 1, "the server listens");
    let [at_server] = waiting(&mut world)[..] else {
        panic!("the server was asked once");
    };
    // Longer than a TCP connection may be idle.
    world.run(3 * 3_600 * SECOND);
    assert_eq!(
        read(&mut world.client().engine, at_client),
        (Vec::new(), Body::Blocked)
    );
    come(&mut world, at_server);
    assert!(
        world
            .server()
            .engine
            .write_body(at_server, Bytes::from_static(b"hello"))
    );
    world.run(2 * DELAY);
    let expected = [&[CONNECTION_CAME][..], b"hello"].concat();
    assert_eq!(
        read(&mut world.client().engine, at_client),
        (expected, Body::Blocked)
    );
    assert!(
        world
            .client()
            .engine
            .write_body(at_client, Bytes::from_static(b"answer"))
    );
    world.client().engine.finish_body(at_client);
    world.run(2 * DELAY);
    assert_eq!(
        read(&mut world.server().engine, at_server),
        (b"answer".to_vec(), Body::Finished)
    );
    // From here on it is a connection like others, which may be idle for so long.
    world.run(3 * 3_600 * SECOND);
    assert_eq!(
        read(&mut world.client().engine, at_client),
        (Vec::new(), Body::Reset)
    );
}

/// LISTEN-5.
#[test]
fn a_request_whose_port_is_closed_ends_without_the_byte() {
    let mut world = World::connected(Setup::default());
    let at_client = open(&mut world);
    world.run(SECOND);
    let at_server = waiting(&mut world)[0];
    let engine = &mut world.server().engine;
    engine.finish_body(at_server);
    engine.end(at_server, tunnel_proto::End::Done);
    world.run(SECOND);
    assert_eq!(
        read(&mut world.client().engine, at_client),
        (Vec::new(), Body::Finished)
    );
}

#[test]
fn what_waits_for_a_connection_holds_no_place_of_those_that_have_one() {
    let mut world = World::connected(Setup::default());
    world.server().data.tcp_places = Some(1);
    open(&mut world);
    world.run(SECOND);
    let session = world.open_tcp(Script::sending(1_000), Script::sending(1_000));
    world.run(SECOND);
    let server = world.server;
    assert_eq!(world.tunnel(server).tcp(session).read, 1_000);
    assert!(world.client().endings().is_empty(), "nobody gave way");
}

#[test]
fn what_waits_for_a_connection_is_no_session_of_its_user_before_one_comes() {
    let user_of_one = User::new(UserId([0xa1; 16]));
    let grant = Grant {
        user: user_of_one.clone(),
        rights: Rights::ALL,
        reach: Reach::default(),
        listen: ListenRights::only(vec!["8080".parse().expect("a range")]),
        limits: UserLimits {
            sessions: 1,
            ..UserLimits::default()
        },
    };
    let mut world = World::with_server(Setup::default());
    world.start_server_for(Box::new(Sole(grant)), 1);
    world.client = world.add_client(&user());
    open(&mut world);
    open(&mut world);
    world.run(SECOND);
    let [first, second] = waiting(&mut world)[..] else {
        panic!("two requests wait: {:?}", world.client().endings());
    };
    assert_eq!(user_of_one.snapshot().sessions, 0);
    come(&mut world, first);
    assert_eq!(user_of_one.snapshot().sessions, 1);
    let now = world.now();
    assert!(
        !world.server().engine.connection_came(now, second),
        "it has its session"
    );
    let engine = &mut world.server().engine;
    engine.finish_body(first);
    engine.end(first, tunnel_proto::End::Done);
    world.run(SECOND);
    assert_eq!(user_of_one.snapshot().sessions, 0);
    come(&mut world, second);
}

/// LISTEN-1, LISTEN-2.
#[test]
fn who_has_no_token_hears_of_no_such_protocol_and_a_path_that_is_none_is_refused() {
    let mut world = World::with_server(Setup::default());
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let good = path().to_string();
    for (token, protocol, path, status) in [
        (stranger(), PROTOCOL, &good[..], 404),
        (stranger(), "nothing", &good, 404),
        (user(), PROTOCOL, "/", 400),
        (user(), PROTOCOL, "/0000000000000007/udp/127.0.0.1/80/", 400),
        (user(), PROTOCOL, &good, 200),
    ] {
        let request = extended_connect("server.test:443", protocol, path, &token.reveal());
        let stream = world.foreign(foreign).request(&request);
        world.run(SECOND);
        assert_eq!(
            world.foreign(foreign).status(stream),
            Some(status),
            "{protocol} {path}"
        );
    }
    assert_eq!(waiting(&mut world).len(), 1);
}

/// Knows one user.
struct Sole(Grant);

impl Authorizer for Sole {
    fn authorize(
        &mut self,
        _: Instant,
        _: AuthorizationId,
        shown: &Credentials<'_>,
        _: SocketAddr,
    ) -> Answer {
        let is_known = matches!(shown, Credentials::Token(text) if user().matches(text));
        Answer::Now(if is_known {
            Decision::Granted(self.0.clone())
        } else {
            Decision::Refused
        })
    }
}

/// LISTEN-2, LISTEN-4.
#[test]
fn a_user_listens_where_it_may_and_is_told_where_it_may_not() {
    let everywhere = || vec!["8080".parse().expect("a range")];
    for (rights, listen, refusal) in [
        (
            Rights::ALL,
            vec!["8081".parse().expect("a range")],
            Some(Some(ProxyError::DestinationIpProhibited)),
        ),
        (
            Rights {
                tcp: false,
                ..Rights::ALL
            },
            everywhere(),
            Some(None),
        ),
        (Rights::ALL, everywhere(), None),
    ] {
        let grant = Grant {
            user: User::new(UserId([0xa1; 16])),
            rights,
            reach: Reach::default(),
            listen: ListenRights::only(listen),
            limits: UserLimits::default(),
        };
        let mut world = World::with_server(Setup::default());
        world.start_server_for(Box::new(Sole(grant)), 1);
        world.client = world.add_client(&user());
        open(&mut world);
        world.run(SECOND);
        let refused = refusal.map(|error| Ending::Refused { status: 403, error });
        assert_eq!(world.client().endings().first().copied().cloned(), refused);
        assert_eq!(waiting(&mut world).len(), usize::from(refused.is_none()));
    }
}

#[test]
fn a_server_that_drains_listens_for_nobody_new() {
    let mut world = World::connected(Setup::default());
    world.server().engine.start_drain();
    open(&mut world);
    world.run(SECOND);
    let endings = world.client().endings();
    // The client asks elsewhere as soon as it can: GOAWAY says that nothing came of the request.
    assert!(endings.is_empty(), "{endings:?}");
    assert_eq!(waiting(&mut world), []);
}
