//! What a handshake costs the client and the server, by a pin and through the front door, and what reading a stranger's
//! hello costs besides: in memory, one thread, the best of many.
//!
//! `cargo run --release -p quic --example handshakes`

#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on fails")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::Ecn;
use quic::{
    AcceptParameters, Aead, Certificates, ClientParameters, CoverTls, Endpoint, EndpointParameters, Event,
    FrontDoorClient, FrontDoorIdentity, IdLength, IncomingKey, NoDatagrams, Outbox, Path, ServerParameters,
    TrustedRoots,
};
use reality::authenticator::{Binding, open};
use reality::client_hello::ClientHello;
use reality::credentials::{ServerKey, UserKey};
use reality::hello_assembly::{HelloAssembly, Progress, first_initial};

const HANDSHAKES: u8 = 200;

/// What the clients' clocks say.
const NOW: u32 = 1_800_000_000;

/// A cover as there are many: AES-128-GCM, X25519MLKEM768.
const COVER: CoverTls = CoverTls {
    cipher_suite: 0x1301,
    group: 0x11ec,
    certificate_message_bytes: 2_977,
    is_version_first: false,
};

/// Time spent at each place.
#[derive(Clone, Copy, Default)]
struct Spent {
    client: Duration,
    server: Duration,
    /// Part of the server's: until the hello is recognised.
    reading: Duration,
}

/// How a client is let in.
enum Entrance {
    Pin([u8; 32]),
    FrontDoor(Box<Door>),
}

struct Door {
    server: ServerKey,
    user: UserKey,
    identity: FrontDoorIdentity,
    roots: TrustedRoots,
}

struct Party {
    endpoint: Endpoint,
    address: SocketAddr,
    outbox: Outbox,
}

fn main() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().to_vec();
    let pin = quic::public_key_pin(&certificate).unwrap();
    let identity = (certificate, made.signing_key.serialize_der());
    let server = ServerKey::from_bytes(&[0x42; 32]);
    let entrances = [
        ("pin", Entrance::Pin(pin)),
        (
            "front door",
            Entrance::FrontDoor(Box::new(Door {
                server,
                user: UserKey::derive(&[7; 32]),
                identity: FrontDoorIdentity::generate(Aead::default(), &COVER).unwrap(),
                roots: TrustedRoots::web_pki_and(&[]).unwrap(),
            })),
        ),
    ];
    println!(
        "{:>12} {:>12} {:>12} {:>16} {:>22}",
        "entrance", "client, us", "server, us", "of it reading", "handshakes/s, server"
    );
    for (name, entrance) in &entrances {
        let all: Vec<Spent> = (0..HANDSHAKES)
            .map(|number| handshake(entrance, &identity, number))
            .collect();
        let best = |part: fn(&Spent) -> Duration| all.iter().map(part).min().unwrap_or_default();
        let server = best(|spent| spent.server);
        println!(
            "{name:>12} {:>12} {:>12} {:>16} {:>22.0}",
            best(|spent| spent.client).as_micros(),
            server.as_micros(),
            best(|spent| spent.reading).as_micros(),
            1.0 / server.as_secs_f64(),
        );
    }
}

fn party(entrance: &Entrance, address: &str, seed: u8, server: Option<ServerParameters>) -> Party {
    let is_covered = matches!(entrance, Entrance::FrontDoor(_));
    let parameters = EndpointParameters {
        reset_key: [seed; 64],
        id_length: match (is_covered, &server) {
            (true, None) => IdLength::NONE,
            _ => IdLength::default(),
        },
        is_covered,
        ..EndpointParameters::of_client([seed; 32])
    };
    Party {
        endpoint: Endpoint::new(&parameters, server).unwrap(),
        address: address.parse().unwrap(),
        outbox: Outbox::default(),
    }
}

fn handshake(entrance: &Entrance, identity: &(Vec<u8>, Vec<u8>), seed: u8) -> Spent {
    let mut spent = Spent::default();
    let parameters = ServerParameters {
        certificates: Certificates::new(vec![identity.0.clone()], identity.1.clone())
            .expect("they belong together"),
        token_key: [9; 64],
    };
    let mut server = party(entrance, "198.51.100.1:443", 1, Some(parameters));
    let mut client = party(entrance, "192.0.2.1:40000", seed.wrapping_add(2), None);
    // tidy-allow(pure): a measurement
    let start = Instant::now();
    let known_by = match entrance {
        Entrance::Pin(pin) => ClientParameters::Pin(*pin),
        Entrance::FrontDoor(door) => ClientParameters::FrontDoor(FrontDoorClient {
            server: *door.server.public(),
            user: door.user.clone(),
            unix_seconds: NOW,
            roots: door.roots.clone(),
        }),
    };
    client
        .endpoint
        .connect(start, server.address, "localhost", &known_by, 1_452)
        .unwrap();
    let mut flight = client.send(start);
    spent.client += start.elapsed();
    let mut hello = flight.clone();
    let mut connected = 0;
    while !flight.is_empty() {
        // tidy-allow(pure): a measurement
        let begin = Instant::now();
        connected += server.receive(start, client.address, &flight, |server, incoming| {
            // tidy-allow(pure): a measurement
            let begin = Instant::now();
            let accepted = accept_with(entrance, &std::mem::take(&mut hello));
            spent.reading += begin.elapsed();
            server.accept(start, incoming, &accepted).unwrap();
        });
        flight = server.send(start);
        spent.server += begin.elapsed();
        // tidy-allow(pure): a measurement
        let begin = Instant::now();
        connected += client.receive(start, server.address, &flight, |_, _| unreachable!("a client's"));
        flight = client.send(start);
        spent.client += begin.elapsed();
    }
    assert_eq!(connected, 2, "both have completed the handshake");
    spent
}

/// What the client with this first flight is accepted with.
fn accept_with(entrance: &Entrance, flight: &[Vec<u8>]) -> AcceptParameters {
    let Entrance::FrontDoor(door) = entrance else {
        return AcceptParameters::default();
    };
    let mut assembly = HelloAssembly::new(&first_initial(&flight[0]).unwrap());
    let mut space = Vec::new();
    let mut states = flight.iter().map(|datagram| assembly.push(datagram, &mut space));
    assert_eq!(states.by_ref().last(), Some(Progress::Complete));
    let binding = Binding {
        version: 1,
        destination_id: assembly.destination_id(),
    };
    let hello = ClientHello::parse(assembly.message()).unwrap();
    let keys = std::slice::from_ref(&door.server);
    let found = open(&hello, &binding, keys, &door.user, NOW, Duration::from_secs(120)).unwrap();
    AcceptParameters {
        identity: Some(door.identity.for_client(found.keys)),
        ..AcceptParameters::default()
    }
}

impl Party {
    /// The datagrams that leave now.
    fn send(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.endpoint.flush(now, &mut no_datagrams(), &mut self.outbox);
        let trains = self.outbox.trains();
        let datagrams = trains
            .iter()
            .flat_map(|train| train.bytes.chunks(train.segment_size));
        let datagrams = datagrams.map(<[u8]>::to_vec).collect();
        let count = trains.len();
        self.outbox.release(count);
        datagrams
    }

    /// Takes datagrams; how many connections have completed their handshake.
    fn receive(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        datagrams: &[Vec<u8>],
        mut accept: impl FnMut(&mut Endpoint, IncomingKey),
    ) -> usize {
        let path = Path { remote, local: None };
        let mut connected = 0;
        for datagram in datagrams {
            let bytes = BytesMut::from(&datagram[..]);
            let Self { endpoint, outbox, .. } = self;
            endpoint.handle_received(now, path, Ecn::NotEct, bytes, 0, &mut no_datagrams(), outbox);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming(incoming) => accept(&mut self.endpoint, incoming.key),
                Event::Connected { .. } => connected += 1,
                _ => {}
            }
        }
        connected
    }
}

/// Nothing is carried in datagrams, and none is expected.
fn no_datagrams() -> NoDatagrams {
    NoDatagrams {
        udp_payload_ceiling: 1_452,
    }
}
