//! Repair (specs/repair.md): what a lossy path loses comes back in time, for no more bytes than are allowed; a clean path, and
//! peers without repair, see nothing of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use masque::repair::RepairOffer;
use masque::{datagram, request, response};
use packet::checksum::{self, ChecksumState};
use packet::ip::decrement_hop_limit;
use sim::LinkConfig;
use tunnel_proto::{DropReason, EngineConfig, Target};

use crate::support::packets::{udp, unfinished};
use crate::support::{DELAY, End, MILLISECOND, SECOND, Setup, Way, World, user};

const LATENCY: Duration = Duration::from_millis(40);

fn repairing(latency: Duration) -> EngineConfig {
    EngineConfig {
        repair: Some(latency),
        ..EngineConfig::default()
    }
}

fn lossy(loss: f64) -> LinkConfig {
    LinkConfig {
        delay: DELAY,
        loss,
        ..LinkConfig::default()
    }
}

fn setup(loss: f64) -> Setup {
    Setup {
        client: repairing(LATENCY),
        ..Setup::on(lossy(loss))
    }
}

/// A flow of one session, and what is missing of it.
struct Flow {
    session: u32,
    size: usize,
    between: Duration,
    sent: u32,
    missing: BTreeMap<u32, Instant>,
    latest: Duration,
}

impl Flow {
    fn new(world: &mut World, per_second: u32, size: usize) -> Self {
        Self {
            session: world.book.session(),
            size,
            between: SECOND / per_second,
            sent: 0,
            missing: BTreeMap::new(),
            latest: Duration::ZERO,
        }
    }

    /// Sends for `time`; afterwards what has not come stays lost.
    fn run(&mut self, world: &mut World, time: Duration) {
        let end = world.now() + time;
        while world.now() < end {
            self.missing.insert(self.sent, world.now());
            self.sent += 1;
            world.send("sink", self.session, &[self.size]);
            let next = world.now() + self.between;
            while world.now() < next {
                world.run(MILLISECOND.min(next - world.now()));
                self.look(world);
            }
        }
        world.run(SECOND);
        let numbers = world.book.numbers(self.session, Way::Up);
        self.missing.retain(|number, _| !numbers.contains(number));
    }

    /// Takes what came in the last half second; the rest is missing, or told at the end.
    fn look(&mut self, world: &World) {
        let now = world.now();
        let numbers = world.book.numbers(self.session, Way::Up);
        let latest = &mut self.latest;
        let first_young = self
            .sent
            .saturating_sub((SECOND.div_duration_f64(self.between) / 2.0) as u32);
        let young: Vec<u32> = self
            .missing
            .range(first_young..)
            .map(|(number, _)| *number)
            .collect();
        for number in young.into_iter().filter(|number| numbers.contains(number)) {
            let since = self.missing.remove(&number).expect("it is missing");
            *latest = (*latest).max(now - since);
        }
    }
}

/// Counters of both ends.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    parity: u64,
    parity_bytes: u64,
    repaired: u64,
}

fn sums(world: &mut World) -> Sums {
    let ingress = world.client().engine.ledger().ingress;
    Sums {
        parity: ingress.parity_sent,
        parity_bytes: ingress.parity_sent_bytes,
        repaired: world.server().engine.ledger().egress.repaired,
    }
}

fn at_five_percent(setup: Setup, per_second: u32, size: usize, time: Duration) {
    let mut world = World::connected(setup);
    let mut flow = Flow::new(&mut world, per_second, size);
    // Until the path's loss is known.
    flow.run(&mut world, 10 * SECOND);
    flow.missing.clear();
    let (before, sent_before) = (sums(&mut world), flow.sent);
    flow.run(&mut world, time);
    let after = sums(&mut world);
    let sent = flow.sent - sent_before;
    let residual = flow.missing.len() as f64 / f64::from(sent);
    let repaired = after.repaired - before.repaired;
    let parity_bytes = (after.parity_bytes - before.parity_bytes) as f64;
    let extra = parity_bytes / (f64::from(sent) * size as f64);
    println!(
        "{per_second}/s of {size} bytes (dropped before QUIC: {}): {sent} sent, {} missing ({:.4} %), {repaired} repaired, extra {:.1} %, latest {:?}",
        world.client().engine.ledger().ingress.dropped_total(),
        flow.missing.len(),
        residual * 100.0,
        extra * 100.0,
        flow.latest,
    );
    assert!(residual <= 0.001, "{residual}");
    assert!(extra <= 0.5, "{extra}");
    assert!(repaired > u64::from(sent) / 25, "{repaired}");
    // A millisecond for what counts as whole ones, one for how often we look.
    assert!(
        flow.latest <= DELAY + LATENCY + 2 * MILLISECOND,
        "{:?}",
        flow.latest
    );
}

#[test]
fn a_hundred_datagrams_a_second_keep_their_latency_and_lose_less_than_a_thousandth() {
    at_five_percent(setup(0.05), 100, 160, 600 * SECOND);
}

#[test]
fn three_thousand_datagrams_a_second_lose_less_than_a_thousandth() {
    at_five_percent(setup(0.05), 3_000, 1_150, 30 * SECOND);
}

/// REPAIR-11: small datagrams of one batch would share packets.
#[test]
fn a_burst_of_small_datagrams_is_repaired_too() {
    let mut world = World::connected(setup(0.05));
    let session = world.book.session();
    for _ in 0..1_500 {
        world.send("sink", session, &[300; 8]);
        world.run(20 * MILLISECOND);
    }
    world.run(SECOND);
    let (before, arrived) = (sums(&mut world), world.book.count(session, Way::Up));
    for _ in 0..2_500 {
        world.send("sink", session, &[300; 8]);
        world.run(20 * MILLISECOND);
    }
    world.run(SECOND);
    let missing = 20_000 - (world.book.count(session, Way::Up) - arrived);
    let repaired = sums(&mut world).repaired - before.repaired;
    println!("bursts of 8: {missing} of 20000 missing, {repaired} repaired");
    assert!(
        missing < 100 && repaired > 800,
        "{missing} missing, {repaired} repaired"
    );
}

#[test]
fn a_clean_path_sees_nothing_of_repair() {
    let mut datagrams = Vec::new();
    for setup in [setup(0.0), Setup::default()] {
        let mut world = World::connected(setup);
        let mut flow = Flow::new(&mut world, 100, 500);
        flow.run(&mut world, 20 * SECOND);
        assert!(flow.missing.is_empty());
        let sums = sums(&mut world);
        assert_eq!((sums.parity, sums.repaired), (0, 0));
        let quic = world.client().engine.quic_totals();
        datagrams.push((quic.datagrams_sent, quic.bytes_sent / 10_000));
    }
    assert_eq!(datagrams[0], datagrams[1]);
}

/// Both directions have their own parity; what comes twice, or after it was rebuilt, is dropped once.
#[test]
fn both_directions_are_repaired_on_a_path_that_reorders() {
    let link = LinkConfig {
        reorder: 0.02,
        duplicate: 0.02,
        ..lossy(0.03)
    };
    let mut world = World::connected(Setup {
        client: repairing(100 * MILLISECOND),
        ..Setup::on(link)
    });
    let session = world.book.session();
    for _ in 0..6_000 {
        world.send("echo", session, &[400]);
        world.run(5 * MILLISECOND);
    }
    world.run(SECOND);
    for way in [Way::Up, Way::Down] {
        let count = world.book.count(session, way);
        assert!(count > 5_850, "{way:?}: {count}");
    }
    let (server, client) = (*world.server().engine.ledger(), *world.client().engine.ledger());
    for ledger in [server, client] {
        assert!(
            ledger.egress.repaired > 100 && ledger.ingress.parity_sent > 500,
            "{ledger:?}"
        );
        assert!(ledger.egress.parity_received > 500, "{ledger:?}");
    }
    let late = server.egress.dropped(DropReason::AlreadyRepaired)
        + client.egress.dropped(DropReason::AlreadyRepaired);
    assert!(late > 0, "{server:?} {client:?}");
}

/// REPAIR-2: a peer that knows nothing of it.
#[test]
fn a_server_that_does_not_accept_gets_plain_payloads() {
    let mut world = World::new(setup(0.0));
    world.replace_server_by_a_foreign_one();
    world.run(SECOND);
    let (server, client) = (world.server, world.client);
    let session = world.book.session();
    world.send("sink", session, &[100]);
    world.run(SECOND);
    let asked = world.foreign(server).requests_taken();
    let offers = asked.iter().filter_map(|(_, list)| RepairOffer::of(list));
    assert_eq!(offers.map(|offer| offer.latency_ms).collect::<Vec<_>>(), [40]);
    let (stream, _) = asked.last().expect("the token check and a session");
    let accepted = masque::headers_frame(&response::connect_udp_accepted(None));
    world.foreign(server).write(*stream, &accepted);
    world.run(SECOND);
    world.set_link(lossy(0.1));
    for _ in 0..1_000 {
        world.send_from(client, "sink", session, &[100]);
        world.run(10 * MILLISECOND);
    }
    let contexts = world.foreign(server).datagrams().iter().map(|bytes| {
        let view = datagram::decode(bytes).expect("our datagrams are well-formed");
        view.context_id
    });
    assert!(contexts.clone().count() > 800 && contexts.clone().all(|context| context == 0));
    assert_eq!(world.client().engine.ledger().ingress.parity_sent, 0);
}

/// REPAIR-4 to REPAIR-6, REPAIR-14: a client that says what it likes in the contexts keeps its session.
#[test]
fn broken_datagrams_are_counted_and_cost_nothing_else() {
    let mut world = World::with_server(Setup::default());
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let session = world.book.session();
    let target = Target::new(&format!("sink-{session}"), 7).expect("a well-formed target");
    let mut list = request::connect_udp("server.test:443", &target, &user().reveal(), None);
    let offer = RepairOffer {
        context_id: 10,
        latency_ms: 20,
    };
    offer.push_to(&mut list);
    let stream = world.foreign(foreign).request(&list);
    world.run(SECOND);
    let quarter = u64::from(stream) / 4;
    let payload = world.book.payload(session, 50);
    let parts: [(u64, Vec<u8>); 6] = [
        (10, vec![0, 0]),
        (12, vec![0, 0, 0, 1, 0]),
        (12, vec![0, 0, 0, 200, 0, 0, 0]),
        (10, [&[0, 0, 1][..], &payload].concat()),
        (10, [&[0, 0, 1][..], &payload].concat()),
        (12, vec![0, 0, 2, 1, 0, 0xff, 0xff]),
    ];
    for (context, part) in parts {
        let (prefix, used) = datagram::prefix(quarter, context);
        world.foreign(foreign).datagram([&prefix[..used], &part].concat());
    }
    world.run(SECOND);
    assert_eq!(world.book.count(session, Way::Up), 1);
    assert_eq!(world.server().egress_drops(DropReason::Malformed), 3);
    assert_eq!(world.server().egress_drops(DropReason::AlreadyRepaired), 1);
    let egress = world.server().engine.ledger().egress;
    assert_eq!((egress.parity_received, egress.repaired), (1, 0));
    assert_eq!(world.server().endings().len(), 0);
}

/// REPAIR-13: copies for 120 sessions of one peer would take more than there is for them; payloads pass all the same. The
/// bound itself is asserted where bytes are counted.
#[test]
fn a_peer_with_many_sessions_gets_its_payloads_without_copies_beyond_the_bound() {
    let mut world = World::with_server(Setup::default());
    let foreign = world.add_foreign_client();
    world.run(SECOND);
    let mut sessions = Vec::new();
    for _ in 0..120 {
        let session = world.book.session();
        let target = Target::new(&format!("sink-{session}"), 7).expect("a well-formed target");
        let mut list = request::connect_udp("server.test:443", &target, &user().reveal(), None);
        let offer = RepairOffer {
            context_id: 6,
            latency_ms: 500,
        };
        offer.push_to(&mut list);
        let stream = world.foreign(foreign).request(&list);
        sessions.push((session, u64::from(stream) / 4));
        world.run(100 * MILLISECOND);
    }
    for number in 0..130_u8 {
        for (session, quarter) in &sessions {
            let (prefix, used) = datagram::prefix(*quarter, 6);
            let payload = world.book.payload(*session, 1_200);
            let datagram = [&prefix[..used], &[0, 0, number], &payload].concat();
            world.foreign(foreign).datagram(datagram);
        }
        world.run(5 * MILLISECOND);
    }
    world.run(10 * SECOND);
    assert_eq!(world.book.total(Way::Up), 120 * 130);
}

/// REPAIR-15: only packets that ask for little delay. REPAIR-3: with finished checksums; others stay in their context.
#[test]
fn urgent_ip_packets_are_repaired_and_others_are_not() {
    for (traffic_class, is_urgent) in [(46 << 2, true), (0, false)] {
        let mut world = World::with_server(setup(0.05));
        world.serve_ip(&["10.9.0.0/24"], &["0.0.0.0/0"], false);
        world.client = world.add_ip_client(1, 7);
        let client = world.client;
        world.run_until(20 * SECOND, |world| {
            world.client_at(client).assignment().is_some()
        });
        let mut packet = udp("10.9.0.2", "198.51.100.9", 200);
        packet[1] = traffic_class;
        packet[10..12].fill(0);
        let sum = !checksum::sum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let (header, partial) = unfinished(packet.clone());
        for _ in 0..6_000 {
            let now = world.now();
            world.tunnel(client).send_packet(now, &header, &partial);
            world.run(10 * MILLISECOND);
        }
        world.run(SECOND);
        let arrived = world.server().packets.len();
        let sums = sums(&mut world);
        assert_eq!(sums.repaired > 200, is_urgent, "{sums:?}");
        assert_eq!(sums.parity > 0, is_urgent, "{sums:?}");
        // Until loss is known, some stay lost.
        assert_eq!(arrived > 5_900, is_urgent, "{arrived}");
        let (mut whole, mut partial) = (packet, partial);
        assert!(decrement_hop_limit(&mut whole) && decrement_hop_limit(&mut partial));
        let (mut finished, mut others) = (0, 0);
        for (packet, state) in &world.server().packets {
            match state {
                ChecksumState::Full => {
                    assert_eq!(*packet, whole);
                    finished += 1;
                }
                ChecksumState::Partial => {
                    assert_eq!(*packet, partial);
                    others += 1;
                }
            }
        }
        assert_eq!(finished > 5_000, is_urgent, "{finished} finished, {others} not");
        assert_eq!(finished > 0, is_urgent);
    }
}
