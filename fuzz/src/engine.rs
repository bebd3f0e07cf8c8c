//! The tunnel's engine after the handshake: a hostile user beside an honest one, or a client at a hostile server, over
//! the simulated network of tunnel-proto's tests, with real handshakes and packets, in virtual time.
//!
//! The input is a sequence of operations of both sides. After each turn the model of these tests checks what holds
//! always: every datagram is accounted for, none comes twice, or damaged, or to another session. At the end an honest
//! user's datagrams are answered, and nothing that the hostile one left waits.

#[allow(dead_code, unused_imports, reason = "tests of tunnel-proto use the rest")]
#[path = "../../crates/tunnel-proto/tests/sim/support/mod.rs"]
mod support;

use std::net::SocketAddr;

use masque::ip::{
    AddressEntry, ClientId, Extensions, Routes, Scope, accepted, address_assign, route_advertisement,
};
use masque::{HeaderList, Target, data_frame_header, headers_frame, request, response};
use quic::{Direction, StreamId};

use crate::input::Input;
use support::packets::udp;
use support::{MILLISECOND, SECOND, Script, Setup, Way, World, user};

/// Operations of one input: a virtual minute at most.
const OPERATIONS_MAX: usize = 200;

/// Streams that a hostile peer opens; the engine grants more, but a few say all there is.
const STREAMS_MAX: usize = 32;

const POOLS: [&str; 2] = ["10.9.0.0/24", "fd09::/64"];

/// A byte of role, then operations with their bytes.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    if input.byte() & 1 == 0 {
        hostile_user(&mut input);
    } else {
        hostile_server(&mut input);
    }
}

/// The hostile peer and its streams.
struct Hostile {
    address: SocketAddr,
    streams: Vec<StreamId>,
}

impl Hostile {
    /// Whether its connection still is.
    fn lives(&self, world: &mut World) -> bool {
        let foreign = world.foreign(self.address);
        foreign.is_connected && foreign.closed.is_none()
    }

    fn stream(&self, choice: u8) -> Option<StreamId> {
        self.streams
            .get(usize::from(choice) % self.streams.len().max(1))
            .copied()
    }

    /// What any peer can say: datagrams, streams of both kinds, bytes and ends on them.
    fn say(&mut self, world: &mut World, kind: u8, choice: u8, bytes: &[u8]) {
        let stream = self.stream(choice);
        let foreign = world.foreign(self.address);
        match kind {
            0 => foreign.datagram(bytes.to_vec()),
            1 | 2 if self.streams.len() < STREAMS_MAX => {
                let direction = [Direction::Bidirectional, Direction::Unidirectional][usize::from(kind - 1)];
                let opened = foreign.open(direction);
                self.streams.extend(opened);
                if let Some(stream) = opened {
                    foreign.write(stream, bytes);
                }
            }
            3 => {
                stream.map(|stream| foreign.write(stream, bytes));
            }
            4 => {
                let (header, used) = data_frame_header(bytes.len() as u64);
                let framed = [&header[..used], bytes].concat();
                if let Some(stream) = stream {
                    foreign.write(stream, &framed);
                }
            }
            5 => {
                if let Some(stream) = stream {
                    foreign.finish(stream);
                }
            }
            _ => {}
        }
    }
}

fn hostile_user(input: &mut Input<'_>) {
    let mut world = World::with_server(Setup::default());
    world.serve_ip(&POOLS, &["0.0.0.0/0"], false);
    world.client = world.add_ip_client(1, 1);
    let address = world.add_foreign_client();
    let honest = world.client;
    world.wait_until_up(honest);
    world.run_until(20 * SECOND, |world| world.foreign(address).is_connected);
    let (session, taken) = (world.book.session(), world.book.session());
    world.book.is_hostile(taken);
    let mut hostile = Hostile {
        address,
        streams: Vec::new(),
    };
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        let (operation, choice, length) = (input.byte(), input.byte(), input.byte());
        match operation % 12 {
            kind @ 0..6 if hostile.lives(&mut world) => {
                let bytes = input.take(usize::from(length));
                hostile.say(&mut world, kind, choice, bytes);
            }
            6 if hostile.lives(&mut world) && hostile.streams.len() < STREAMS_MAX => {
                let list = asked(choice, length, taken);
                if let Some(stream) = world.foreign(address).open(Direction::Bidirectional) {
                    hostile.streams.push(stream);
                    world.foreign(address).write(stream, &headers_frame(&list));
                }
            }
            7 => world.send("echo", session, &[usize::from(length) * 8 + 8]),
            8 => {
                let bytes = u64::from(length) * 64;
                world.open_tcp(Script::sending(bytes), Script::answering(bytes));
            }
            9 => {
                let packet = udp(["10.9.0.2", "10.9.0.3"][usize::from(choice & 1)], "10.9.0.1", 100);
                world.send_packet(honest, &packet);
            }
            _ => world.run(u32::from(length) * MILLISECOND),
        }
    }
    world.run(SECOND);
    let answered = world.book.count(session, Way::Down);
    world.send("echo", session, &[100; 3]);
    if hostile.lives(&mut world) {
        let now = world.now();
        world.foreign(address).close(now, 0x100);
    }
    world.run(15 * SECOND);
    assert_eq!(
        world.book.count(session, Way::Down) - answered,
        3,
        "an honest user is not answered"
    );
    assert_eq!(
        world.server().engine.gauges()[1].0,
        1,
        "a connection is left of the hostile one"
    );
    for end in [world.server, honest] {
        assert_eq!(world.tunnel(end).waiting(), (0, 0));
    }
}

/// A request with the right token: CONNECT-UDP with and without split, CONNECT-IP with and without extensions, CONNECT.
fn asked(choice: u8, detail: u8, session: u32) -> HeaderList {
    let token = user().reveal();
    let target = |kind: &str| Target::new(&format!("{kind}-{session}"), 7).expect("a well-formed target");
    match choice % 5 {
        0 => request::connect_udp("server.test:443", &target("sink"), &token, None),
        1 => request::connect_udp(
            "server.test:443",
            &target("echo"),
            &token,
            Some(u64::from(detail)),
        ),
        2 => masque::ip::connect_ip("server.test:443", &Scope::ANY, &token, &Extensions::default()),
        3 => masque::ip::connect_ip("server.test:443", &Scope::ANY, &token, &extensions(detail)),
        _ => request::connect(&target("tcp"), &token),
    }
}

fn extensions(detail: u8) -> Extensions {
    Extensions {
        client: Some(ClientId([detail % 3; 16])),
        run: Some(u32::from(detail)),
        split: (detail & 1 != 0).then_some(2),
        checksum: (detail & 2 != 0).then_some(4),
        ..Extensions::default()
    }
}

fn hostile_server(input: &mut Input<'_>) {
    let mut world = World::with_server(Setup::default());
    world.replace_server_by_a_foreign_one();
    let address = world.server;
    world.client = world.add_ip_client(1, 7);
    world.run_until(20 * SECOND, |world| {
        world.foreign(address).requests_taken().len() == 2
    });
    let session = world.book.session();
    world.book.is_hostile(session);
    let mut hostile = Hostile {
        address,
        streams: Vec::new(),
    };
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() || !hostile.lives(&mut world) {
            break;
        }
        for (stream, _) in world.foreign(address).requests_taken() {
            if !hostile.streams.contains(&stream) && hostile.streams.len() < STREAMS_MAX {
                hostile.streams.push(stream);
            }
        }
        let (operation, choice, length) = (input.byte(), input.byte(), input.byte());
        match operation % 12 {
            kind @ 0..6 => {
                let bytes = input.take(usize::from(length));
                hostile.say(&mut world, kind, choice, bytes);
            }
            6 => {
                let answer = headers_frame(&answered(length));
                hostile.say(&mut world, 3, choice, &answer);
            }
            7 => hostile.say(&mut world, 4, choice, &capsule(length)),
            8 => world.send("echo", session, &[usize::from(length) * 8 + 8]),
            9 => {
                let client = world.client;
                world.send_packet(client, &udp("10.9.0.2", "198.51.100.9", 100));
            }
            _ => world.run(u32::from(length) * MILLISECOND),
        }
    }
    // Whatever was said, the client rests at last.
    let now = world.now();
    world.client().leave(now);
    world.run(15 * SECOND);
    let client = world.client;
    assert_eq!(world.tunnel(client).waiting(), (0, 0));
}

/// An answer to a request: of no kind that fits, or one that agrees.
fn answered(detail: u8) -> HeaderList {
    match detail % 5 {
        0 => response::response(200),
        1 => response::connect_udp_accepted(Some(u64::from(detail))),
        2 => accepted(&extensions(detail)),
        3 => response::unauthorized(),
        _ => response::response(100 + u16::from(detail) * 2),
    }
}

/// Addresses and routes, of which some overlap and some mean everything.
fn capsule(detail: u8) -> Vec<u8> {
    let prefixes = [
        "10.9.0.2/32",
        "fd09::2/128",
        "0.0.0.0/0",
        "127.0.0.1/32",
        "10.9.0.0/24",
    ];
    let prefix = prefixes[usize::from(detail) % prefixes.len()]
        .parse()
        .expect("a well-formed prefix");
    if detail & 0x80 == 0 {
        address_assign(&[AddressEntry {
            request_id: u64::from(detail & 3),
            prefix,
        }])
    } else {
        route_advertisement(&Routes::of(&[prefix]))
    }
}

/// Each operation alone and in likely orders, in both roles.
pub fn seeds() -> Vec<Vec<u8>> {
    let operation =
        |kind: u8, choice: u8, bytes: &[u8]| [&[kind, choice, bytes.len() as u8][..], bytes].concat();
    let pause = [11, 0, 40];
    let user = [
        vec![0, 6, 0, 0, 11, 0, 40],
        operation(0, 0, &[0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        vec![6, 1, 2, 7, 0, 100, 11, 0, 40],
        operation(0, 0, &[1, 2, 0, 0, 0, 0, 0, 1, 7]),
        operation(0, 0, &[1, 2, 0, 0, 0, 0, 1, 1, 7]),
        vec![6, 3, 3, 11, 0, 40],
        operation(4, 2, &[1, 5, 0, 4, 10, 9, 0]),
        operation(
            0,
            0,
            &[
                2, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 3, 10, 9, 0, 1,
            ],
        ),
        vec![6, 4, 0, 8, 0, 90, 9, 0, 0, 9, 1, 0],
        operation(5, 0, &[]),
        operation(2, 0, &[0x21, 1, 2]),
        operation(1, 0, &[1, 2, 0, 0]),
        pause.to_vec(),
    ];
    let server = [
        vec![
            1, 6, 0, 4, 6, 1, 2, 11, 0, 40, 7, 1, 0, 7, 1, 133, 11, 0, 40, 9, 0, 0,
        ],
        operation(
            0,
            0,
            &[
                1, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 3, 10, 9, 0, 2,
            ],
        ),
        vec![8, 0, 10, 11, 0, 40, 6, 2, 1, 11, 0, 40],
        operation(0, 0, &[2, 0, 1, 2, 3]),
        operation(4, 1, &[3, 1, 9]),
        operation(3, 2, &[0, 3, 1, 2, 3]),
        operation(5, 1, &[]),
        pause.to_vec(),
    ];
    let beginnings = |parts: &[Vec<u8>]| -> Vec<Vec<u8>> {
        [3, 7, parts.len()]
            .iter()
            .map(|count| parts[..*count].concat())
            .collect()
    };
    [beginnings(&user), beginnings(&server)].concat()
}
