//! The laws of messages where the connection ends in the middle, and where an end takes no long messages: each ticket
//! ends once, what was acknowledged can be read, and nothing comes twice.

use std::collections::BTreeMap;
use std::time::Duration;

use peer_proto::limits::MESSAGE_BYTES_MAX;
use peer_proto::{DropReason, Outcome, SendCounters, SendError, Ticket};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sim::LinkConfig;

use crate::laws::{
    MESSAGES, SEEDS, Sent, Terms, body, check_delivered, length, random_delivery, random_link,
};
use crate::world::{World, parameters};

/// The longest message of one of the ends: more than a packet holds.
const NARROW_BYTES: usize = 20_000;

/// Longer than a connection lives in silence, which its last keep-alive prolongs.
const SLEEP: Duration = Duration::from_secs(60);

/// How many tickets of an end have ended, by reason, of `accepted`.
fn tally(ended: &BTreeMap<Ticket, Outcome>, accepted: usize) -> SendCounters {
    let count = |outcome| ended.values().filter(|ended| **ended == outcome).count() as u64;
    SendCounters {
        accepted: accepted as u64,
        acked: count(Outcome::Acked),
        expired: count(Outcome::Expired),
        superseded: count(Outcome::Dropped(DropReason::Superseded)),
        lost: count(Outcome::Dropped(DropReason::Lost)),
        refused: count(Outcome::Dropped(DropReason::Refused)),
        connection_ended: count(Outcome::Dropped(DropReason::ConnectionEnded)),
        pending: (accepted - ended.len()) as u64,
        repeated: 0,
    }
}

/// Sends at random from ends that read at once, or not before the end.
fn talk(world: &mut World, narrow: usize, random: &mut StdRng) -> BTreeMap<u32, Sent> {
    let mut sent = BTreeMap::new();
    for number in 0..random.random_range(1..=MESSAGES) {
        let (end, delivery) = (random.random_range(0..2), random_delivery(random));
        let body = body(number, length(random));
        let length = body.len();
        match world.send(end, body, delivery) {
            Ok(ticket) => {
                let message = Sent {
                    end,
                    ticket,
                    delivery,
                    length,
                };
                sent.insert(number, message);
            }
            Err(error) => {
                let (bytes, max) = (length, NARROW_BYTES);
                assert_eq!(error, SendError::TooLarge { bytes, max });
                assert!(end == narrow && length > NARROW_BYTES);
            }
        }
        if random.random_range(0..3) > 0 {
            world.drive(Duration::from_micros(random.random_range(0..20_000)));
        }
    }
    sent
}

/// The connection is closed by either end, or falls silent at either or both.
fn end_somehow(world: &mut World, link: LinkConfig, random: &mut StdRng) {
    let end = random.random_range(0..2);
    match random.random_range(0..4) {
        0 | 1 => {
            let before = world.ends[end].ended.clone();
            let (now, peer) = (world.now(), world.ends[end].peer());
            world.ends[end].peers.close(now, peer, 0, b"enough");
            world.ends[end].handle_events(now);
            let ended = &world.ends[end].ended;
            let since = ended.iter().filter(|(ticket, _)| !before.contains_key(ticket));
            let mut outcomes = since.map(|(_, outcome)| *outcome);
            assert!(outcomes.all(|outcome| outcome == Outcome::Dropped(DropReason::ConnectionEnded)));
        }
        2 => world.set_link(LinkConfig { loss: 1.0, ..link }),
        _ => {
            world.ends[end].is_suspended = true;
            world.drive(SLEEP);
            world.ends[end].is_suspended = false;
        }
    }
    // What waited in the socket of an end that slept looks like a long round trip, and so does its timeout (RFC 9000
    // section 10.1).
    let is_open = |world: &World| world.ends.iter().any(|end| end.closed.is_empty());
    let limit = world.now() + 20 * SLEEP;
    while is_open(world) {
        assert!(world.now() < limit, "the connection does not end");
        world.drive(Duration::from_secs(1));
    }
}

/// PEER-5, PEER-7, PEER-8, PEER-9, PEER-14.
#[test]
fn messages_keep_their_laws_when_their_connection_ends_and_an_end_refuses_long_ones() {
    let mut seen = [0; 3];
    sim::for_each_seed(SEEDS / 4, |seed| {
        let mut random = StdRng::seed_from_u64(seed);
        let link = random_link(&mut random);
        let narrow = random.random_range(0..2);
        let mut ends = [parameters(1), parameters(2)];
        ends[narrow].message_bytes_max = NARROW_BYTES;
        let mut world = World::connected_as(link, seed, ends);
        for end in &mut world.ends {
            end.reads = random.random_range(0..2) == 0;
        }
        let sent = talk(&mut world, narrow, &mut random);
        world.drive(Duration::from_millis(random.random_range(0..1_000)));
        let accepted = [0, 1].map(|end| sent.values().filter(|message| message.end == end).count());
        for (end, accepted) in world.ends.iter_mut().zip(accepted) {
            let stats = end.peers.path_stats(end.connected[0].0).unwrap();
            let told = SendCounters {
                repeated: 0,
                ..stats.sent
            };
            assert_eq!(told, tally(&end.ended, accepted));
        }
        end_somehow(&mut world, link, &mut random);
        let now = world.now();
        for (end, accepted) in world.ends.iter_mut().zip(accepted) {
            let peer = end.peer();
            end.read_messages(now, peer);
            assert_eq!(end.peers.unread_bytes(), 0);
            let sums = tally(&end.ended, accepted);
            assert_eq!(sums.pending, 0);
            for (seen, sum) in seen
                .iter_mut()
                .zip([sums.acked, sums.refused, sums.connection_ended])
            {
                *seen += sum;
            }
        }
        let mut bytes_max = [MESSAGE_BYTES_MAX; 2];
        bytes_max[narrow] = NARROW_BYTES;
        let terms = Terms {
            has_ended: true,
            bytes_max,
        };
        for end in 0..2 {
            check_delivered(&world, &sent, end, &terms);
        }
    });
    assert!(seen.iter().all(|count| *count > SEEDS / 20), "{seen:?}");
}
