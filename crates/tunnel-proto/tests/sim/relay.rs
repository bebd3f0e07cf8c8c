//! Peers that are relayed by a server: who gets a bound socket, whom it reaches, and what a hostile one gets.

use std::net::SocketAddr;

use masque::bind::{self, BindCapsule};
use masque::request as request_headers;
use quic::StreamId;
use sim::LinkConfig;
use tunnel_proto::rendezvous::{Message, PROTOCOL};
use tunnel_proto::{ClientAction, DropReason, End, Ending, Engine, NoContext, RequestId, limits};

use crate::rendezvous::{Site, call, id, path};
use crate::support::{DELAY, MILLISECOND, SECOND, user};

/// Clients that are registered, and have a bound socket each.
pub(crate) struct Relayed {
    pub(crate) site: Site,
    sockets: Vec<RequestId>,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Relayed {
    fn new(shards: u8, clients: usize) -> Self {
        Self::of(Site::registered(shards, clients))
    }

    pub(crate) fn of(mut site: Site) -> Self {
        let clients = site.clients.len();
        let now = site.world.now();
        let sockets: Vec<_> = (0..clients)
            .map(|client| site.client(client).open_relay(now))
            .collect();
        site.run();
        let addresses = (0..clients).map(|client| {
            let address = site.client(client).relayed_address(sockets[client]);
            address.expect("the socket is open")
        });
        Self {
            addresses: addresses.collect(),
            sockets,
            site,
        }
    }

    fn open_context(&mut self, from: usize, to: SocketAddr) -> Result<(), NoContext> {
        let socket = self.sockets[from];
        self.site.client(from).open_context(socket, to)
    }

    /// Both ends ask for each other.
    pub(crate) fn join(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let to = self.addresses[to];
            assert_eq!(self.open_context(from, to), Ok(()));
        }
        self.site.run();
    }

    pub(crate) fn send(&mut self, from: usize, to: SocketAddr, payloads: &[Vec<u8>]) {
        let (now, socket) = (self.site.world.now(), self.sockets[from]);
        let payloads = payloads.iter().map(Vec::as_slice);
        self.site.client(from).send_relayed(now, socket, to, payloads);
    }

    /// What has come for a client since the last time.
    pub(crate) fn received(&mut self, client: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let address = self.site.clients[client];
        std::mem::take(&mut self.site.world.client_at(address).relayed)
    }

    fn count(&mut self, client: usize, is: impl Fn(&ClientAction) -> bool) -> usize {
        let address = self.site.clients[client];
        self.site.world.client_at(address).count(is)
    }

    fn closed(&mut self, client: usize, closed: SocketAddr) -> usize {
        let socket = self.sockets[client];
        let action = ClientAction::ContextClosed {
            request: socket,
            address: closed,
        };
        self.count(client, |other| *other == action)
    }

    /// Datagrams that the shards of the server have dropped, on both ways.
    fn dropped(&mut self, reason: DropReason) -> u64 {
        let server = self.site.world.server;
        let shards = self.site.world.shards(server).iter_mut();
        shards
            .map(|shard| shard.ingress_drops(reason) + shard.egress_drops(reason))
            .sum()
    }
}

fn payloads(sizes: &[usize]) -> Vec<Vec<u8>> {
    let payload = |(number, size): (usize, &usize)| vec![number as u8; *size];
    sizes.iter().enumerate().map(payload).collect()
}

/// RDV-10, RDV-11, RDV-12, RDV-13: also where payloads do not fit a DATAGRAM frame, and peers are on several shards.
#[test]
fn peers_reach_each_other_by_their_sockets_across_shards() {
    let mut relayed = Relayed::new(3, 4);
    assert_eq!(relayed.site.relayed(), (4, 0));
    for one in 0..4 {
        for other in one + 1..4 {
            relayed.join(one, other);
        }
    }
    assert_eq!(relayed.site.relayed(), (4, 12));
    let sent = payloads(&[0, 1, 1_200, 1_452, 9_000, 65_507]);
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            let open = ClientAction::ContextOpen {
                request: relayed.sockets[from],
                address: relayed.addresses[to],
            };
            assert_eq!(relayed.count(from, |action| *action == open), 1);
            relayed.send(from, relayed.addresses[to], &sent);
            relayed.site.run();
            let source = relayed.addresses[from];
            let expected: Vec<_> = sent.iter().map(|payload| (source, payload.clone())).collect();
            assert_eq!(relayed.received(to), expected, "{from} to {to}");
        }
    }
    // Each was counted once, for its sender and in all.
    let bytes: usize = sent.iter().map(Vec::len).sum();
    let bytes = 4 * 3 * bytes as u64;
    assert_eq!(relayed.site.rendezvous.counters().relayed_bytes, bytes);
    let server = relayed.site.world.server;
    let shards = relayed.site.world.shards(server).iter();
    let of_users = shards.flat_map(|shard| shard.engine.users().into_values());
    assert_eq!(of_users.map(|user| user.relayed_bytes).sum::<u64>(), bytes);
    let fits = relayed.sockets[0];
    let fits = relayed.site.client(0).relayed_payload_max(fits);
    assert!(
        fits.is_some_and(|fits| (1_100..1_452).contains(&fits)),
        "{fits:?}"
    );
}

/// RDV-11.
#[test]
fn each_peer_is_told_the_socket_of_the_other_one_by_the_server() {
    let mut relayed = Relayed::new(2, 3);
    relayed.site.heard(0);
    relayed.site.heard(1);
    relayed.site.say(0, &[call(1)]);
    relayed.site.run();
    let heard = relayed.site.heard(1);
    let [
        Message::Called {
            caller,
            transaction,
            relayed: socket,
            ..
        },
    ] = heard[..]
    else {
        panic!("{heard:?}");
    };
    assert_eq!((caller, socket), (id(0), Some(relayed.addresses[0])));
    relayed.site.say(1, &[Message::Answer { caller, transaction }]);
    relayed.site.run();
    let heard = relayed.site.heard(0);
    let [Message::Answered { relayed: socket, .. }] = heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(socket, Some(relayed.addresses[1]));
    // Who gives its socket back has none to tell of.
    let socket = relayed.sockets[0];
    relayed.site.client(0).end(socket, End::Done);
    relayed.site.run();
    relayed.site.say(0, &[call(1)]);
    relayed.site.run();
    let heard = relayed.site.heard(1);
    assert!(
        matches!(heard[..], [Message::Called { relayed: None, .. }]),
        "{heard:?}"
    );
}

/// RDV-10.
#[test]
fn only_who_is_registered_on_the_connection_has_a_socket_and_only_one() {
    let mut site = Site::new(1, 1);
    let now = site.world.now();
    site.client(0).open_relay(now);
    site.run();
    let refused = |status| Ending::Refused { status, error: None };
    assert_eq!(site.endings(0), [refused(403)]);
    site.register(0, 0);
    site.run();
    let now = site.world.now();
    let first = site.client(0).open_relay(now);
    site.client(0).open_relay(now);
    site.run();
    assert_eq!(site.endings(0), [refused(403), refused(503)]);
    assert_eq!(site.relayed(), (1, 0));
    // The place of one that was given back is free, and its address is not given again.
    let former = site.client(0).relayed_address(first);
    site.client(0).end(first, End::Done);
    site.run();
    let now = site.world.now();
    let next = site.client(0).open_relay(now);
    site.run();
    let next = site.client(0).relayed_address(next);
    assert!(next.is_some() && next != former, "{former:?}, {next:?}");
}

/// RDV-10.
#[test]
fn a_registration_has_a_socket_also_after_a_later_one_of_its_connection_has_ended() {
    let mut site = Site::new(1, 1);
    let first = site.register(0, 0);
    site.run();
    let last = site.register(0, 1);
    site.run();
    site.client(0).end(last, End::Failed);
    site.run();
    assert_eq!(site.rendezvous.counters().registered, 1);
    let now = site.world.now();
    let socket = site.client(0).open_relay(now);
    site.run();
    assert!(site.client(0).relayed_address(socket).is_some());
    site.client(0).end(first, End::Failed);
    site.run();
    assert_eq!(site.relayed(), (0, 0));
    let now = site.world.now();
    site.client(0).open_relay(now);
    site.run();
    let refused = Ending::Refused {
        status: 403,
        error: None,
    };
    assert!(site.endings(0).contains(&refused));
}

/// RDV-10: the socket ends with its registration, and RDV-12: contexts to it with it.
#[test]
fn a_socket_ends_with_its_registration_and_its_peers_hear_of_it() {
    for shards in [1, 3] {
        let mut relayed = Relayed::new(shards, 3);
        relayed.join(0, 1);
        relayed.join(0, 2);
        // The first peer comes again over another connection.
        relayed.site.register(2, 1);
        relayed.site.run();
        assert_eq!(relayed.site.relayed().0, 2);
        let socket = relayed.sockets[1];
        assert_eq!(relayed.site.client(1).relayed_address(socket), None);
        assert!(relayed.site.endings(1).contains(&Ending::Finished));
        let gone = relayed.addresses[1];
        assert_eq!(relayed.closed(0, gone), 0);
        relayed.send(0, gone, &payloads(&[100, 100]));
        relayed.site.run();
        assert_eq!(relayed.closed(0, gone), 1);
        assert_eq!(relayed.dropped(DropReason::SessionClosed), 2);
        assert_eq!(relayed.open_context(0, gone), Ok(()));
        relayed.site.run();
        assert_eq!(relayed.closed(0, gone), 2);
        // The others go on.
        let other = relayed.addresses[2];
        relayed.send(0, other, &payloads(&[100]));
        relayed.site.run();
        assert_eq!(relayed.received(2).len(), 1);
        assert_eq!(relayed.site.relayed(), (2, 2));
    }
}

/// RDV-12.
#[test]
fn what_has_no_context_at_either_end_is_dropped_and_counted() {
    let mut relayed = Relayed::new(2, 2);
    let (own, other) = (relayed.addresses[0], relayed.addresses[1]);
    // Neither end has asked.
    relayed.send(0, other, &payloads(&[100]));
    let address = relayed.site.clients[0];
    let client = relayed.site.world.client_at(address);
    assert_eq!(client.ingress_drops(DropReason::UnknownContext), 1);
    // One has.
    assert_eq!(relayed.open_context(0, other), Ok(()));
    relayed.site.run();
    relayed.send(0, other, &payloads(&[100, 2_000, 100]));
    relayed.site.run();
    assert_eq!(relayed.dropped(DropReason::UnknownContext), 3);
    assert!(relayed.received(1).is_empty());
    // Both had, and one has given it up.
    assert_eq!(relayed.open_context(1, own), Ok(()));
    relayed.site.run();
    let socket = relayed.sockets[1];
    relayed.site.client(1).close_context(socket, own);
    relayed.site.run();
    relayed.send(0, other, &payloads(&[100]));
    relayed.site.run();
    assert_eq!(relayed.dropped(DropReason::UnknownContext), 4);
    assert_eq!(relayed.site.relayed(), (2, 1));
}

/// RDV-12.
#[test]
fn contexts_lead_to_sockets_of_the_rendezvous_alone_and_are_bounded() {
    let mut relayed = Relayed::new(1, 2);
    let own = relayed.addresses[0];
    for foreign in ["127.0.0.1:53", "192.0.2.1:443", "[100::ffff]:1", "[100::1]:2"] {
        let foreign = foreign.parse().expect("an address");
        assert_eq!(relayed.open_context(0, foreign), Ok(()));
        relayed.send(0, foreign, &payloads(&[100]));
        relayed.site.run();
        assert_eq!(relayed.closed(0, foreign), 1, "{foreign}");
    }
    assert_eq!(relayed.dropped(DropReason::UnknownContext), 4);
    assert_eq!(relayed.open_context(0, own), Ok(()));
    relayed.site.run();
    assert_eq!(relayed.closed(0, own), 1);
    assert_eq!(relayed.site.relayed(), (2, 0));
    let many = limits::RELAY_CONTEXTS_PER_SOCKET_MAX as u16;
    for port in 1..=many {
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        assert_eq!(relayed.open_context(0, address), Ok(()));
    }
    let other = relayed.addresses[1];
    assert_eq!(relayed.open_context(0, other), Err(NoContext::TooMany));
    relayed.site.run();
    assert_eq!(relayed.open_context(0, other), Ok(()));
}

/// RDV-13: a path that carries little, flooded by a peer; others of the same client get their share, what others read
/// from the TUN or inner sockets does not wait for it, and nothing waits for long.
#[test]
fn a_flood_is_dropped_by_reason_and_keeps_no_other_peer_from_the_client() {
    let mut relayed = Relayed::new(2, 3);
    relayed.join(0, 2);
    relayed.join(1, 2);
    let (victim, flooder) = (relayed.site.clients[2], relayed.addresses[0]);
    let slow = LinkConfig {
        delay: DELAY,
        rate_bits_per_second: Some(2_000_000),
        queue_bytes: 50_000,
        ..LinkConfig::default()
    };
    relayed.site.world.set_link_of(victim, slow);
    let to = relayed.addresses[2];
    for round in 0..400 {
        relayed.send(0, to, &payloads(&[1_100; 40]));
        if round % 4 == 0 {
            relayed.send(1, to, &payloads(&[100]));
        }
        relayed.site.world.run(5 * MILLISECOND);
        relayed.site.world.server();
        let server = relayed.site.world.server;
        let shards = relayed.site.world.shards(server).iter();
        assert!(!shards.map(|shard| &shard.engine).any(Engine::queue_is_long));
    }
    // What waits is younger than [`limits::QUEUE_TIME_MAX`], but for the last payload of each flow.
    let waiting = |relayed: &mut Relayed| {
        let server = relayed.site.world.server;
        let shards = relayed.site.world.shards(server).iter();
        shards.map(|shard| shard.engine.ingress_waiting()).sum::<u64>()
    };
    assert!(waiting(&mut relayed) > 5, "the queue is not full");
    relayed.site.world.run(limits::QUEUE_TIME_MAX + 20 * MILLISECOND);
    assert!(waiting(&mut relayed) <= 2, "{}", waiting(&mut relayed));
    assert!(relayed.dropped(DropReason::QueueExpired) > 1_000);
    relayed.site.world.run(SECOND);
    let received = relayed.received(2);
    let of_flooder = received.iter().filter(|(from, _)| *from == flooder).count();
    let of_other = received.len() - of_flooder;
    assert!(of_other >= 45, "{of_other} of 50");
    assert!((100..1_500).contains(&of_flooder), "{of_flooder}");
}

/// A hostile client that is registered, and its bound request.
fn hostile(site: &mut Site) -> (SocketAddr, StreamId) {
    let foreign = site.world.add_foreign_client();
    site.world.run(SECOND);
    let peer = site.world.foreign(foreign);
    let connection = peer.connection.expect("it is connected");
    let exporter = peer
        .endpoint
        .exporter(connection, b"EXPORTER-gramway-service", &[]);
    let path = path(9, &exporter.expect("TLS is complete")).to_string();
    let bearer = user().reveal();
    let list = request_headers::extended_connect("server.test:443", PROTOCOL, &path, &bearer);
    let registration = peer.request(&list);
    site.run();
    let peer = site.world.foreign(foreign);
    assert_eq!(peer.status(registration), Some(200));
    let stream = peer.request(&bind::bind("server.test:443", &bearer, Some(2)));
    site.run();
    let answer = site.world.foreign(foreign).response(stream);
    assert!(answer.is_some_and(|answer| bind::address_of(&answer).is_some()));
    (foreign, stream)
}

/// Sends capsules, for which there has to be credit.
fn say(site: &mut Site, foreign: SocketAddr, stream: StreamId, capsules: &[u8]) {
    let (header, used) = masque::data_frame_header(capsules.len() as u64);
    let bytes = [&header[..used], capsules].concat();
    let written = site.world.foreign(foreign).write(stream, &bytes);
    assert_eq!(written, bytes.len());
    site.run();
}

fn assign(context_id: u64, address: Option<SocketAddr>) -> Vec<u8> {
    let capsule = BindCapsule::Assign { context_id, address };
    capsule.encode().expect("it is of contexts")
}

/// RDV-12, SPLIT-10: also uncompressed contexts, and context 0.
#[test]
fn a_hostile_client_reaches_nothing_else_and_its_broken_capsules_cost_its_socket() {
    let broken = [
        assign(3, None),
        assign(2, None),
        BindCapsule::Ack(10).encode().expect("it is of contexts"),
        vec![0x11, 1, 10],
    ];
    for capsules in broken {
        let mut site = Site::registered(1, 1);
        let (foreign, stream) = hostile(&mut site);
        assert_eq!(site.relayed(), (1, 0));
        say(&mut site, foreign, stream, &capsules);
        assert_eq!(site.relayed(), (0, 0), "{capsules:?}");
        assert_eq!(site.rendezvous.counters().registered, 2);
    }
    let mut site = Site::registered(1, 1);
    let now = site.world.now();
    let socket = site.client(0).open_relay(now);
    site.run();
    let victim = site.client(0).relayed_address(socket);
    let (foreign, stream) = hostile(&mut site);
    // Without an address, and to itself: neither is there afterwards. Twice to the same: broken.
    say(&mut site, foreign, stream, &assign(10, None));
    assert_eq!(site.relayed(), (2, 0));
    say(&mut site, foreign, stream, &assign(12, victim));
    assert_eq!(site.relayed(), (2, 1));
    let quarter = (u64::from(stream) / 4) as u8;
    let datagrams = [
        (vec![quarter, 0, 1], DropReason::UnknownContext),
        (vec![quarter, 10, 1], DropReason::UnknownContext),
        // The victim has not asked for it.
        (vec![quarter, 12, 1], DropReason::UnknownContext),
        // A fragment that is whole, and has no context in it, or another one.
        (vec![quarter, 2, 0, 0, 0, 0, 0, 0], DropReason::Malformed),
        (vec![quarter, 2, 0, 0, 0, 1, 0, 0, 14], DropReason::UnknownContext),
    ];
    for (datagram, reason) in datagrams {
        let dropped = |site: &mut Site| {
            let server = site.world.server();
            server.ingress_drops(reason) + server.egress_drops(reason)
        };
        let before = dropped(&mut site);
        site.world.foreign(foreign).datagram(datagram.clone());
        site.run();
        assert_eq!(dropped(&mut site), before + 1, "{datagram:?}");
    }
    // The same in a capsule.
    say(&mut site, foreign, stream, &[0, 2, 12, 1, 0, 1, 14]);
    say(&mut site, foreign, stream, &assign(14, victim));
    assert_eq!(site.relayed(), (1, 0));
}

/// RDV-12: the server itself bounds them, too.
#[test]
fn contexts_of_a_hostile_clients_socket_are_bounded() {
    let mut site = Site::registered(1, 1);
    let (foreign, stream) = hostile(&mut site);
    let many = limits::RELAY_CONTEXTS_PER_SOCKET_MAX as u64;
    for number in 1..=many + 1 {
        let now = site.world.now();
        let socket = site.client(0).open_relay(now);
        site.run();
        let address = site.client(0).relayed_address(socket);
        assert!(address.is_some());
        say(&mut site, foreign, stream, &assign(8 + 2 * number, address));
        assert_eq!(site.relayed(), (2, number.min(many)));
        // Contexts to a socket that is gone stay until something is sent there.
        site.client(0).end(socket, End::Done);
        site.run();
    }
}

/// RDV-12: who asks endlessly has its socket, and who asks faster than anybody needs to loses it.
#[test]
fn endless_assigns_are_bounded() {
    const BURST: u64 = limits::RELAY_ASKED_BURST as u64;
    let mut site = Site::registered(1, 1);
    let now = site.world.now();
    let socket = site.client(0).open_relay(now);
    site.run();
    let victim = site.client(0).relayed_address(socket);
    let (foreign, stream) = hostile(&mut site);
    say(&mut site, foreign, stream, &assign(10, victim));
    let mut context_ids = (1 << 30..).step_by(2);
    let mut ask = |site: &mut Site, count: u64| {
        let ids = context_ids.by_ref().take(count as usize);
        let capsules: Vec<u8> = ids.flat_map(|id| assign(id, None)).collect();
        say(site, foreign, stream, &capsules);
    };
    ask(&mut site, BURST - 1);
    for _ in 0..20 {
        site.world.run(limits::RELAY_ASKED_INTERVAL * 10);
        ask(&mut site, 10);
    }
    assert_eq!(site.relayed(), (2, 1));
    site.world.run(limits::RELAY_ASKED_INTERVAL * BURST as u32);
    ask(&mut site, 2 * BURST);
    assert_eq!(site.relayed(), (1, 0));
    // The server is there for others.
    assert!(site.endings(0).is_empty());
    assert_eq!(site.client(0).relayed_address(socket), victim);
}
