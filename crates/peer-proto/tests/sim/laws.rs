//! The laws of messages, whatever a path does: it loses, doubles, reorders and delays, blacks out, and an end's
//! address changes in the middle of each run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use peer_proto::limits::MESSAGE_BYTES_MAX;
use peer_proto::{Delivery, Order, Outcome, Reliability, SendCounters, Ticket};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sim::LinkConfig;

use crate::world::World;

/// Runs of the test command.
pub(crate) const SEEDS: u64 = 1_000;

/// Messages of a run, in both directions together.
pub(crate) const MESSAGES: u32 = 40;

/// What was sent, by its number in the body.
pub(crate) struct Sent {
    pub(crate) end: usize,
    pub(crate) ticket: Ticket,
    pub(crate) delivery: Delivery,
    pub(crate) length: usize,
}

/// Under what the laws are to hold.
pub(crate) struct Terms {
    /// The connection has ended.
    pub(crate) has_ended: bool,
    /// The longest message of each end.
    pub(crate) bytes_max: [usize; 2],
}

/// A connection that lives, of ends that take all messages.
const LIVING: Terms = Terms {
    has_ended: false,
    bytes_max: [MESSAGE_BYTES_MAX; 2],
};

pub(crate) fn body(number: u32, length: usize) -> Vec<u8> {
    let mut body = vec![number as u8; length.max(4)];
    body[..4].copy_from_slice(&number.to_be_bytes());
    body
}

pub(crate) fn random_link(random: &mut StdRng) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_micros(random.random_range(100..40_000)),
        jitter: Duration::from_micros(random.random_range(0..5_000)),
        loss: [0.0, 0.01, 0.05, 0.25][random.random_range(0..4)],
        duplicate: [0.0, 0.1][random.random_range(0..2)],
        reorder: [0.0, 0.2][random.random_range(0..2)],
        rate_bits_per_second: Some([2_000_000, 20_000_000, 200_000_000][random.random_range(0..3)]),
        queue_bytes: 100_000,
        ..LinkConfig::default()
    }
}

pub(crate) fn random_delivery(random: &mut StdRng) -> Delivery {
    let order = match random.random_range(0..4) {
        0 => Order::Unordered,
        1 => Order::Latest(random.random_range(0..2)),
        _ => Order::Ordered(random.random_range(0..2)),
    };
    let reliability = match random.random_range(0..4) {
        0 => Reliability::Unreliable,
        1 => Reliability::Deadline(Duration::from_millis(random.random_range(1..400))),
        _ => Reliability::Reliable,
    };
    let priority = random.random_range(0..3);
    Delivery {
        order,
        reliability,
        priority,
    }
}

pub(crate) fn length(random: &mut StdRng) -> usize {
    match random.random_range(0..8) {
        0 => random.random_range(1_100..1_500),
        1 => random.random_range(1_500..60_000),
        _ => random.random_range(4..1_000),
    }
}

/// Sends at random, with faults in between, and waits until all tickets have ended.
fn run(seed: u64) -> (World, BTreeMap<u32, Sent>) {
    let mut random = StdRng::seed_from_u64(seed);
    let link = random_link(&mut random);
    let world = World::connected(link, seed);
    run_in(world, seed, link, random)
}

/// The same where a rendezvous relays: the direct path opens in the middle, and most of the time closes again.
fn run_relayed(seed: u64) -> (World, BTreeMap<u32, Sent>) {
    let mut random = StdRng::seed_from_u64(seed);
    let link = random_link(&mut random);
    let relay = random_link(&mut random);
    let world = World::met(LinkConfig { loss: 1.0, ..link }, relay, seed);
    run_in(world, seed, link, random)
}

fn run_in(mut world: World, seed: u64, link: LinkConfig, mut random: StdRng) -> (World, BTreeMap<u32, Sent>) {
    let closes = world.is_relayed() == Some(true) && !seed.is_multiple_of(4);
    let mut sent = BTreeMap::new();
    for number in 0..MESSAGES {
        let (end, delivery, length) = (
            random.random_range(0..2),
            random_delivery(&mut random),
            length(&mut random),
        );
        let body = body(number, length);
        let length = body.len();
        let ticket = world.send(end, body, delivery).unwrap();
        sent.insert(
            number,
            Sent {
                end,
                ticket,
                delivery,
                length,
            },
        );
        match random.random_range(0..3) {
            0 => {}
            _ => world.drive(Duration::from_micros(random.random_range(0..20_000))),
        }
        if number == MESSAGES / 3 {
            let node = world.ends[0].address;
            world.network.rebind(node, "198.51.100.7:999".parse().unwrap());
            world.set_link(random_link(&mut random));
        }
        if number == MESSAGES / 2 && random.random_range(0..4) == 0 {
            world.set_link(LinkConfig { loss: 1.0, ..link });
            world.drive(Duration::from_millis(random.random_range(100..3_000)));
            world.set_link(link);
        }
    }
    if closes {
        world.drive(Duration::from_millis(random.random_range(0..3_000)));
        world.set_link(LinkConfig { loss: 1.0, ..link });
    }
    world.drive_until(|world| {
        let pending = |end: &crate::world::End| end.ended.len() as u64;
        sent.len() as u64 == pending(&world.ends[0]) + pending(&world.ends[1])
    });
    // SKIPs are repeated until they are acknowledged, and what was given up may still come.
    world.drive_until(|world| {
        let waiting = |end: &crate::world::End| end.peers.waiting_bytes(end.peer());
        world.ends.iter().all(|end| waiting(end) == 0)
    });
    world.drive(Duration::from_secs(2));
    (world, sent)
}

/// PEER-5, PEER-7, PEER-8, PEER-9, PEER-14.
#[test]
fn messages_keep_their_laws_whatever_the_path_does() {
    sim::for_each_seed(SEEDS, |seed| {
        let (mut world, sent) = run(seed);
        assert!(world.ends.iter().all(|end| end.closed.is_empty()));
        for end in 0..2 {
            check_delivered(&world, &sent, end, &LIVING);
            check_counters(&mut world, end);
        }
    });
}

/// The same laws, and PEER-19, PEER-20.
#[test]
fn messages_keep_their_laws_while_their_connection_moves_between_paths() {
    let mut moves = 0;
    sim::for_each_seed(SEEDS, |seed| {
        let (mut world, sent) = run_relayed(seed);
        assert!(world.ends.iter().all(|end| end.closed.is_empty()));
        for end in 0..2 {
            check_delivered(&world, &sent, end, &LIVING);
            check_counters(&mut world, end);
            moves += world.ends[end].taken.len();
        }
    });
    assert!(moves as u64 > 2 * SEEDS, "{moves}");
}

/// What came to the peer of `end` against what `end` sent.
pub(crate) fn check_delivered(world: &World, sent: &BTreeMap<u32, Sent>, end: usize, terms: &Terms) {
    let (from, to) = (&world.ends[end], &world.ends[1 - end]);
    let mut delivered = BTreeSet::new();
    let mut last: BTreeMap<(u8, u32), u32> = BTreeMap::new();
    for received in &to.received {
        let number = u32::from_be_bytes(received.body[..4].try_into().unwrap());
        let message = &sent[&number];
        assert_eq!(message.end, end);
        assert_eq!(received.body, body(number, message.length), "half of it came");
        assert_eq!(received.order, message.delivery.order);
        assert!(delivered.insert(number), "message {number} came twice");
        let group = match received.order {
            Order::Unordered => continue,
            Order::Ordered(channel) => (0, channel),
            Order::Latest(key) => (1, key),
        };
        let before = last.insert(group, number);
        assert!(
            before.is_none_or(|before| before < number),
            "message {number} came late"
        );
    }
    let takes = |message: &Sent| message.length <= terms.bytes_max[1 - end];
    for (number, message) in sent.iter().filter(|(_, message)| message.end == end) {
        let is_lasting = message.delivery.reliability == Reliability::Reliable;
        match (from.ended[&message.ticket], message.delivery.order) {
            // It may have come whole before its refusal did.
            (Outcome::Acked, _) if !takes(message) => assert!(!delivered.contains(number)),
            (Outcome::Acked, Order::Unordered) => {
                assert!(
                    delivered.contains(number),
                    "message {number} was acknowledged, not delivered"
                );
            }
            (Outcome::Acked, Order::Ordered(_)) if is_lasting => {
                assert!(
                    delivered.contains(number),
                    "message {number} was acknowledged, not delivered"
                );
            }
            // A later one may have overtaken it.
            (Outcome::Acked, _) => {}
            (Outcome::Expired, _) => {
                assert!(matches!(message.delivery.reliability, Reliability::Deadline(_)));
            }
            (Outcome::Dropped(reason), order) => {
                use peer_proto::DropReason as Reason;
                let fits = match reason {
                    Reason::Superseded => matches!(order, Order::Latest(_)),
                    Reason::Lost => message.delivery.reliability == Reliability::Unreliable,
                    Reason::Refused => !takes(message),
                    Reason::ConnectionEnded => terms.has_ended,
                };
                assert!(fits, "message {number} was dropped as {reason:?}");
            }
        }
    }
    // The newest value of each key that is repeated on loss has come.
    for key in 0..2 {
        let of_key = |message: &&Sent| message.end == end && message.delivery.order == Order::Latest(key);
        let newest = sent.iter().rfind(|(_, message)| of_key(message));
        if let Some((number, message)) = newest
            && message.delivery.reliability == Reliability::Reliable
            && takes(message)
            && (!terms.has_ended || from.ended[&message.ticket] == Outcome::Acked)
        {
            assert_eq!(from.ended[&message.ticket], Outcome::Acked);
            assert!(
                delivered.contains(number),
                "the newest value of key {key} did not come"
            );
        }
    }
}

/// Conservation, by reason, at both ends.
fn check_counters(world: &mut World, end: usize) {
    let peer = world.ends[end].peer();
    let stats = world.ends[end].peers.path_stats(peer).unwrap();
    let SendCounters {
        accepted,
        acked,
        expired,
        superseded,
        lost,
        refused,
        connection_ended,
        pending,
        repeated: _,
    } = stats.sent;
    assert_eq!(
        accepted,
        acked + expired + superseded + lost + refused + connection_ended + pending
    );
    assert_eq!((accepted, pending), (world.ends[end].ended.len() as u64, 0));
    let received = stats.received;
    assert_eq!(
        received.received,
        received.delivered + received.superseded + received.overtaken + received.held
    );
    assert_eq!(received.held, 0);
    assert_eq!(received.delivered, world.ends[end].received.len() as u64);
}

/// A run repeats with its seed.
#[test]
fn a_run_repeats_with_its_seed() {
    let trace = |seed| {
        let (world, _) = run(seed);
        world.ends.map(|end| (end.packets, end.received.len()))
    };
    assert_eq!(trace(3), trace(3));
}
