//! Single laws of messages, each with the path that shows it.

use std::time::Duration;

use peer_proto::limits::RECEIVE_BYTES_MAX;
use peer_proto::{Delivery, DropReason, Outcome, ReceiveCounters, SendError};
use quic::limits::STREAM_WINDOW_BYTES_MAX;
use sim::LinkConfig;

use crate::world::{World, parameters};

const MILLISECOND: Duration = Duration::from_millis(1);

fn link(delay_ms: u32) -> LinkConfig {
    LinkConfig {
        delay: MILLISECOND * delay_ms,
        rate_bits_per_second: Some(100_000_000),
        queue_bytes: 500_000,
        ..LinkConfig::default()
    }
}

fn blackout(delay_ms: u32) -> LinkConfig {
    LinkConfig {
        loss: 1.0,
        ..link(delay_ms)
    }
}

#[test]
fn a_message_of_one_packet_arrives_after_half_a_round_trip_and_is_acknowledged_after_one() {
    let mut world = World::connected(link(20), 1);
    world.drive(Duration::from_secs(1));
    let start = world.now();
    let ticket = world.send(0, vec![7; 1_000], Delivery::unordered()).unwrap();
    world.drive_until(|world| !world.ends[1].received.is_empty());
    assert!(world.now() - start < 21 * MILLISECOND);
    world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
    assert!(world.now() - start < 44 * MILLISECOND);
}

#[test]
fn a_question_and_its_answer_take_one_packet_each_and_acknowledge_the_last_ones() {
    let path = LinkConfig {
        delay: MILLISECOND / 20,
        ..link(1)
    };
    let mut world = World::connected(path, 1);
    world.drive(Duration::from_secs(1));
    let before = world.ends.each_ref().map(|end| end.packets);
    for round in 1..=100 {
        world.send(0, "question", Delivery::unordered()).unwrap();
        world.drive_until(|world| world.ends[1].received.len() == round);
        world.send(1, "answer", Delivery::unordered()).unwrap();
        world.drive_until(|world| world.ends[0].received.len() == round);
        world.drive(MILLISECOND);
    }
    for (end, before) in world.ends.iter().zip(before) {
        // A few probe the path.
        assert!(end.packets - before <= 105, "{}", end.packets - before);
    }
}

#[test]
fn a_message_that_fills_its_packet_has_no_ack_follow_it_earlier_than_others() {
    let path = LinkConfig {
        delay: MILLISECOND / 20,
        ..link(1)
    };
    let mut world = World::connected(path, 1);
    world.drive(Duration::from_secs(1));
    let peer = world.ends[0].peer();
    let fits = world.ends[0].peers.path_stats(peer).unwrap().packet_body_max;
    let before = world.ends.each_ref().map(|end| end.packets);
    for round in 1..=100 {
        world.send(0, vec![1; fits], Delivery::unordered()).unwrap();
        world.drive_until(|world| world.ends[1].received.len() == round);
        world.send(1, vec![2; fits], Delivery::unordered()).unwrap();
        world.drive_until(|world| world.ends[0].received.len() == round);
    }
    for (end, before) in world.ends.iter().zip(before) {
        // ACKs after 2 ms, of several messages each.
        assert!(end.packets - before < 150, "{}", end.packets - before);
    }
}

#[test]
fn a_message_of_64_mib_arrives_whole() {
    let mut world = World::connected(
        LinkConfig {
            rate_bits_per_second: Some(1_000_000_000),
            queue_bytes: 2_000_000,
            ..link(1)
        },
        1,
    );
    let body: Vec<u8> = (0..64 << 20)
        .map(|index: u32| ((index * 31) >> 8) as u8)
        .collect();
    let ticket = world.send(0, body.clone(), Delivery::ordered(1)).unwrap();
    let refused = world.send(0, "no room", Delivery::unordered());
    assert_eq!(refused, Err(SendError::Full));
    world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
    world.drive_until(|world| !world.ends[1].received.is_empty());
    assert!(world.ends[1].received[0].body == body, "the body changed");
    assert_eq!(
        (world.ends[0].ended[&ticket], world.ends[0].rooms),
        (Outcome::Acked, 1)
    );
}

#[test]
fn one_message_that_is_longer_than_all_room_is_taken_beside_shorter_ones() {
    let mut world = World::connected(link(5), 1);
    while world.send(0, vec![1; 100_000], Delivery::unordered()).is_ok() {}
    let long = vec![2; 20 << 20];
    let ticket = world.send(0, long.clone(), Delivery::unordered()).unwrap();
    let second = world.send(0, long.clone(), Delivery::unordered());
    assert_eq!(second, Err(SendError::Full));
    world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
    world.send(0, long, Delivery::unordered()).unwrap();
}

#[test]
fn room_that_is_wanted_is_told_of_once_also_where_no_ticket_ends() {
    let mut world = World::connected(link(5), 1);
    let peer = world.ends[0].peer();
    world.set_link(blackout(5));
    let hasty = Delivery::ordered(1).with_deadline(30 * MILLISECOND);
    world.send(0, "expires", hasty).unwrap();
    world.drive_until(|world| world.ends[0].ended.len() == 1);
    let held = world.ends[0].peers.waiting_bytes(peer);
    assert!(held > 0, "what tells the peer of it is under way");
    for held_max in [held - 1, 0] {
        world.ends[0].peers.want_room(peer, held_max);
    }
    assert_eq!(world.ends[0].rooms, 0);
    world.set_link(link(5));
    world.drive_until(|world| world.ends[0].rooms > 0);
    assert_eq!(world.ends[0].peers.waiting_bytes(peer), 0);
    let ticket = world.send(0, "later", Delivery::unordered()).unwrap();
    world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
    assert_eq!(world.ends[0].rooms, 1);
}

#[test]
fn room_that_is_wanted_and_there_already_is_told_of_at_once() {
    let mut world = World::connected(link(5), 1);
    let peer = world.ends[0].peer();
    let ticket = world.send(0, "one", Delivery::unordered()).unwrap();
    world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
    world.ends[0].peers.want_room(peer, usize::MAX);
    let now = world.now();
    world.ends[0].handle_events(now);
    assert_eq!(world.ends[0].rooms, 1);
}

/// PEER-14.
#[test]
fn a_message_that_is_too_long_for_the_peer_is_refused_and_later_ones_of_its_channel_arrive() {
    let small = peer_proto::Parameters {
        message_bytes_max: 10_000,
        ..parameters(2)
    };
    let mut world = World::connected_as(link(5), 1, [parameters(1), small]);
    let large = world.send(0, vec![1; 10_001], Delivery::ordered(1)).unwrap();
    world.send(0, "after it", Delivery::ordered(1)).unwrap();
    world.drive_until(|world| world.ends[1].received.len() == 1 && world.ends[0].ended.len() == 2);
    assert_eq!(world.ends[0].ended[&large], Outcome::Dropped(DropReason::Refused));
    let peer = world.ends[1].peer();
    let stats = world.ends[1].peers.path_stats(peer).unwrap();
    assert_eq!((stats.received.too_large, stats.received.received), (1, 1));
    let refused = world.send(1, vec![1; 10_001], Delivery::unordered());
    let max = 10_000;
    assert_eq!(refused, Err(SendError::TooLarge { bytes: 10_001, max }));
}

/// PEER-14: not all of it can have come before that is said.
#[test]
fn a_message_that_is_longer_than_the_default_limit_is_refused_however_packets_are_lost() {
    let max = parameters(2).message_bytes_max;
    assert!(max >= STREAM_WINDOW_BYTES_MAX as usize);
    for seed in 1..=10 {
        let mut patient = parameters(1);
        patient.message_bytes_max = max + 1;
        let lossy = LinkConfig { loss: 0.1, ..link(5) };
        let mut world = World::connected_as(lossy, seed, [patient, parameters(2)]);
        let ticket = world.send(0, vec![1; max + 1], Delivery::unordered()).unwrap();
        world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
        let refused = Outcome::Dropped(DropReason::Refused);
        assert_eq!(world.ends[0].ended[&ticket], refused, "with seed {seed}");
    }
}

/// PEER-8, PEER-14.
#[test]
fn a_deadline_ends_its_message_on_time_and_later_ones_do_not_wait_for_it() {
    let mut world = World::connected(link(5), 1);
    world.set_link(blackout(5));
    let start = world.now();
    let hasty = Delivery::ordered(1).with_deadline(30 * MILLISECOND);
    let short = world.send(0, "short", hasty).unwrap();
    let long = world.send(0, vec![2; 50_000], hasty).unwrap();
    let patient = world.send(0, "patient", Delivery::ordered(1)).unwrap();
    world.drive_until(|world| world.ends[0].ended.len() == 2);
    assert_eq!(world.now() - start, 30 * MILLISECOND);
    assert_eq!(
        [short, long].map(|ticket| world.ends[0].ended[&ticket]),
        [Outcome::Expired; 2]
    );
    world.set_link(link(5));
    world.drive_until(|world| world.ends[0].ended.contains_key(&patient));
    world.drive_until(|world| !world.ends[1].received.is_empty());
    let bodies: Vec<_> = world.ends[1]
        .received
        .iter()
        .map(|received| received.body.clone())
        .collect();
    assert_eq!(bodies, ["patient"]);
}

#[test]
fn an_unreliable_message_is_sent_once_and_its_loss_is_told() {
    let mut world = World::connected(link(5), 1);
    world.set_link(blackout(5));
    let ticket = world.send(0, "once", Delivery::unordered().unreliable()).unwrap();
    world.drive(10 * MILLISECOND);
    world.set_link(link(5));
    world.drive_until(|world| world.ends[0].ended.contains_key(&ticket));
    world.drive(Duration::from_secs(2));
    assert_eq!(world.ends[0].ended[&ticket], Outcome::Dropped(DropReason::Lost));
    assert!(world.ends[1].received.is_empty());
}

/// PEER-9.
#[test]
fn of_values_that_wait_only_the_newest_is_sent_and_of_unread_ones_only_the_newest_is_read() {
    let mut world = World::connected(link(5), 1);
    world.ends[1].reads = false;
    let tickets: Vec<_> = (0..10)
        .map(|value| {
            world
                .send(0, format!("value {value}"), Delivery::latest(7))
                .unwrap()
        })
        .collect();
    world.drive_until(|world| world.ends[0].ended.len() == 10);
    for ticket in &tickets[..9] {
        assert_eq!(
            world.ends[0].ended[ticket],
            Outcome::Dropped(DropReason::Superseded)
        );
    }
    world.send(0, "value 10", Delivery::latest(7)).unwrap();
    world.drive_until(|world| world.ends[0].ended.len() == 11);
    let (now, peer) = (world.now(), world.ends[1].peer());
    world.ends[1].read_messages(now, peer);
    let bodies: Vec<_> = world.ends[1]
        .received
        .iter()
        .map(|received| received.body.clone())
        .collect();
    assert_eq!(bodies, ["value 10"]);
}

#[test]
fn urgent_messages_overtake_those_that_wait() {
    let slow = LinkConfig {
        rate_bits_per_second: Some(1_000_000),
        ..link(5)
    };
    let mut world = World::connected(slow, 1);
    for _ in 0..500 {
        world.send(0, vec![0; 1_000], Delivery::unordered()).unwrap();
    }
    world
        .send(0, "urgent", Delivery::unordered().with_priority(9))
        .unwrap();
    world.drive_until(|world| {
        world.ends[1]
            .received
            .iter()
            .any(|received| received.body == "urgent")
    });
    assert!(
        world.ends[1].received.len() < 250,
        "{} came before it",
        world.ends[1].received.len()
    );
}

/// Sends messages of this length while they are taken to a program that does not read, and has it read all of them
/// then. What it had not read until then, by its counters.
fn unread(bytes: usize) -> ReceiveCounters {
    let mut world = World::connected(
        LinkConfig {
            rate_bits_per_second: Some(1_000_000_000),
            queue_bytes: 2_000_000,
            ..link(1)
        },
        1,
    );
    world.ends[1].reads = false;
    let mut sent = 0_usize;
    for _ in 0..80 {
        while world.send(0, vec![3; bytes], Delivery::unordered()).is_ok() {
            sent += 1;
        }
        world.drive(20 * MILLISECOND);
    }
    let peer = world.ends[1].peer();
    let unread = world.ends[1].peers.path_stats(peer).unwrap().received;
    world.ends[1].reads = true;
    let now = world.now();
    world.ends[1].read_messages(now, peer);
    world.drive_until(|world| world.ends[0].ended.len() == sent);
    world.drive(Duration::from_secs(1));
    assert_eq!(world.ends[1].received.len(), sent);
    unread
}

/// PEER-11, PEER-12.
#[test]
fn a_program_that_does_not_read_holds_the_sender_back_and_nothing_is_lost() {
    let small = unread(1_000);
    assert!(small.received > 5_000 && small.no_room == 0, "{small:?}");
    assert!(small.received * 1_000 <= RECEIVE_BYTES_MAX as u64, "{small:?}");
    // One message may go beyond the bound, and others were whole when it was reached.
    let large = unread(300_000);
    assert!(
        large.received * 300_000 <= RECEIVE_BYTES_MAX as u64 + 600_000,
        "{large:?}"
    );
}

/// PEER-15.
#[test]
fn messages_survive_a_path_that_becomes_narrower() {
    let mut world = World::connected(link(5), 1);
    world.drive(Duration::from_secs(3));
    let narrow = LinkConfig {
        mtu: 1_250,
        ..link(5)
    };
    world.set_link(narrow);
    for number in 0..50_u8 {
        world.send(0, vec![number; 1_390], Delivery::ordered(1)).unwrap();
    }
    world.drive_until(|world| world.ends[0].ended.len() == 50);
    world.drive(Duration::from_secs(1));
    let first_bytes: Vec<u8> = world.ends[1]
        .received
        .iter()
        .map(|received| received.body[0])
        .collect();
    assert_eq!(first_bytes, (0..50).collect::<Vec<u8>>());
}

/// PEER-12.
#[test]
fn messages_that_use_up_the_credit_go_on_when_the_one_that_they_wait_for_expires() {
    let sender = peer_proto::Parameters {
        send_bytes_max: 128 << 20,
        ..parameters(1)
    };
    let mut world = World::connected_as(link(5), 1, [sender, parameters(2)]);
    // It needs five seconds, so the others use up the credit before it can arrive.
    let hasty = Delivery::ordered(1).with_deadline(Duration::from_secs(4));
    world.send(0, vec![1; 60 << 20], hasty).unwrap();
    for _ in 0..20_000 {
        world.send(0, vec![2; 1_000], Delivery::ordered(1)).unwrap();
    }
    world.drive_until(|world| world.ends[1].received.len() == 20_000);
}

/// PEER-12.
#[test]
fn urgent_messages_of_a_channel_do_not_use_up_the_credit_of_an_earlier_one() {
    let mut world = World::connected(link(5), 1);
    world.send(0, "first", Delivery::ordered(1)).unwrap();
    let urgent = Delivery::ordered(1).with_priority(9);
    let mut sent = 1;
    while sent < 40_000 {
        while world.send(0, vec![2; 1_000], urgent).is_ok() {
            sent += 1;
        }
        let before = world.ends[1].received.len();
        world.drive_until(|world| world.ends[1].received.len() > before);
    }
    world.drive_until(|world| world.ends[1].received.len() == sent);
    assert_eq!(world.ends[1].received[0].body, "first");
}
