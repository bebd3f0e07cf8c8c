//! Paths of a connection below QUIC: relayed at first, direct where routers open, relayed again where they close.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use packet::{Ecn, Path};
use peer_proto::{AddressSource, Delivery, Peers, limits};
use sim::LinkConfig;

use crate::world::{MEETING, World, id, parameters};

const SECOND: Duration = Duration::from_secs(1);

fn open() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        rate_bits_per_second: Some(20_000_000),
        queue_bytes: 200_000,
        ..LinkConfig::default()
    }
}

fn closed() -> LinkConfig {
    LinkConfig { loss: 1.0, ..open() }
}

fn relay() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(40),
        ..open()
    }
}

/// Sends numbered messages both ways, a hundred a second.
fn talk(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 100 {
        for end in 0..2 {
            world.send(end, vec![0; 400], Delivery::ordered(1)).unwrap();
        }
        world.drive(Duration::from_millis(10));
    }
}

/// All that was sent has come, in order: the channel has no gaps.
fn has_all(world: &mut World) {
    world.drive_until(|world| {
        world.ends.iter().all(|end| {
            let stats = end.peers.waiting_bytes(end.peer());
            stats == 0
        })
    });
    for end in 0..2 {
        let sent = world.ends[end].ended.len();
        assert_eq!(world.ends[1 - end].received.len(), sent, "of end {end}");
    }
}

/// RDV-3, PEER-19.
#[test]
fn a_pair_without_a_direct_path_is_relayed_within_a_second_and_moves_when_it_opens() {
    let mut world = World::meeting(closed(), relay(), 1);
    let begin = world.now();
    world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
    assert!(world.now() - begin < SECOND, "{:?}", world.now() - begin);
    assert_eq!(world.is_relayed(), Some(true));
    talk(&mut world, 3);
    assert_eq!(world.is_relayed(), Some(true));
    world.set_link(open());
    talk(&mut world, 10);
    assert_eq!(world.is_relayed(), Some(false));
    let remote = world.ends[1].address;
    assert_eq!(world.ends[0].taken, [(remote, false)]);
    // Estimates are those of the direct path.
    let peer = world.ends[0].peer();
    let round_trip = world.ends[0].peers.path_stats(peer).unwrap().round_trip;
    assert!(round_trip < Duration::from_millis(40), "{round_trip:?}");
    has_all(&mut world);
}

/// RDV-3.
#[test]
fn a_direct_path_wins_where_there_is_one() {
    let mut world = World::meeting(open(), relay(), 1);
    world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
    assert_eq!(world.is_relayed(), Some(false));
    world.drive(10 * SECOND);
    assert!(world.ends.iter().all(|end| end.taken.is_empty()));
}

/// PEER-20.
#[test]
fn a_direct_path_that_falls_silent_is_left_for_the_relay_and_taken_again_later() {
    let mut world = World::met(open(), relay(), 1);
    talk(&mut world, 1);
    for _ in 0..3 {
        world.set_link(closed());
        let begin = world.now();
        for end in 0..2 {
            world.send(end, vec![1; 400], Delivery::ordered(1)).unwrap();
        }
        world.drive_until(|world| world.is_relayed() == Some(true));
        let took = world.now() - begin;
        assert!(took < 2 * SECOND, "{took:?}");
        talk(&mut world, 3);
        assert_eq!(world.is_relayed(), Some(true));
        world.set_link(open());
        talk(&mut world, 30);
        assert_eq!(world.is_relayed(), Some(false));
    }
    has_all(&mut world);
}

/// PEER-20.
#[test]
fn an_end_that_only_acknowledges_follows_its_peer_to_the_relay() {
    for sender in 0..2 {
        let mut world = World::met(open(), relay(), 1);
        talk(&mut world, 1);
        world.set_link(closed());
        for _ in 0..300 {
            world.send(sender, vec![2; 400], Delivery::ordered(1)).unwrap();
            world.drive(Duration::from_millis(10));
        }
        assert_eq!(world.is_relayed(), Some(true), "end {sender} sends");
        has_all(&mut world);
    }
}

/// PEER-19.
#[test]
fn the_callee_moves_to_another_address_which_quic_alone_does_not_follow() {
    let mut world = World::met(open(), relay(), 1);
    talk(&mut world, 1);
    for port in [1_000, 1_001, 1_002] {
        let (node, outside) = (world.ends[1].address, ([198, 51, 100, 7], port).into());
        world.network.rebind(node, outside);
        talk(&mut world, 20);
        let peer = world.ends[0].peer();
        assert_eq!(world.ends[0].peers.path(peer), Some((outside, false)));
    }
    has_all(&mut world);
}

/// PEER-19.
#[test]
fn the_caller_moves_to_another_address_on_the_way() {
    let mut world = World::met(closed(), relay(), 1);
    talk(&mut world, 1);
    world.set_link(open());
    talk(&mut world, 5);
    let (node, outside) = (world.ends[0].address, "198.51.100.7:1000".parse().unwrap());
    world.network.rebind(node, outside);
    talk(&mut world, 20);
    assert_eq!(world.is_relayed(), Some(false));
    let peer = world.ends[1].peer();
    assert_eq!(world.ends[1].peers.path(peer), Some((outside, false)));
    has_all(&mut world);
}

/// PEER-19.
#[test]
fn a_caller_that_goes_on_moving_has_a_bounded_number_of_paths() {
    let mut world = World::met(open(), relay(), 1);
    talk(&mut world, 1);
    let node = world.ends[0].address;
    let outside = |port| SocketAddr::from(([198, 51, 100, 7], port));
    let places: Vec<_> = (1_000..1_000 + 2 * limits::PATHS_MAX as u16)
        .map(outside)
        .collect();
    for place in &places {
        world.network.rebind(node, *place);
        talk(&mut world, 2);
    }
    let peers = &world.ends[1].peers;
    let known = places.iter().filter(|place| peers.knows(**place)).count();
    assert!((2..=limits::PATHS_MAX).contains(&known), "{known}");
    has_all(&mut world);
}

/// PEER-19.
#[test]
fn a_relayed_connection_is_searched_for_a_bounded_time_at_growing_pauses() {
    let mut world = World::met(closed(), relay(), 1);
    world.drive(limits::SEARCH_TIME_MAX + 60 * SECOND);
    let before = world.ends.each_ref().map(|end| end.packets);
    // Beside keep-alives and their acknowledgements, every ten seconds.
    assert!(before.iter().all(|packets| *packets < 500), "{before:?}");
    world.drive(600 * SECOND);
    let after = world.ends.each_ref().map(|end| end.packets);
    assert!(after[0] - before[0] <= 200, "{before:?} {after:?}");
    assert_eq!(world.is_relayed(), Some(true));
    // A new address begins another search.
    world.set_link(open());
    world.drive(60 * SECOND);
    assert_eq!(world.is_relayed(), Some(true));
    for end in 0..2 {
        let (now, peer) = (world.now(), world.ends[end].peer());
        let address = world.ends[1 - end].address;
        world.ends[end]
            .peers
            .add_addresses(now, peer, AddressSource::Rendezvous, &[address]);
    }
    world.drive_until(|world| world.is_relayed() == Some(false));
}

/// Gives both ends a datagram from this address.
fn hand_to_both(world: &mut World, remote: SocketAddr, datagram: &[u8]) {
    let (now, path) = (world.now(), Path { remote, local: None });
    for end in &mut world.ends {
        let data = BytesMut::from(datagram);
        end.peers
            .handle_received(now, path, Ecn::NotEct, data, 0, &mut end.outbox);
    }
}

/// PEER-18, PEER-19.
#[test]
fn whoever_repeats_or_reflects_a_check_makes_no_path() {
    let mut world = World::met(closed(), relay(), 1);
    world.drive(SECOND);
    let now = world.now();
    let mut checks = Vec::new();
    for end in 0..2 {
        let (own, other) = (world.ends[end].address, world.ends[1 - end].address);
        let peer = world.ends[end].peer();
        let end = &mut world.ends[end];
        end.peers
            .add_addresses(now, peer, AddressSource::Rendezvous, &[other]);
        end.peers.handle_timeout(now);
        end.peers.flush(now, &mut end.outbox);
        let trains = end.outbox.trains().iter();
        checks.extend(trains.map(|train| (own, train.bytes.clone())));
    }
    checks.retain(|(_, check)| check.len() == limits::PATH_CHECK_BYTES);
    assert!(!checks.is_empty());
    // All of them come, and once more from an address of somebody's own.
    let stranger = "203.0.113.66:6".parse().unwrap();
    for (own, check) in &checks {
        hand_to_both(&mut world, *own, check);
    }
    for (_, check) in &checks {
        hand_to_both(&mut world, stranger, check);
    }
    world.drive(5 * SECOND);
    assert!(world.ends.iter().all(|end| !end.peers.knows(stranger)));
    talk(&mut world, 1);
    has_all(&mut world);
}

/// PEER-20.
#[test]
fn nothing_moves_while_the_peer_sleeps() {
    let mut world = World::met(open(), relay(), 1);
    talk(&mut world, 1);
    world.set_link(closed());
    world.set_relay(closed());
    for end in 0..2 {
        world.send(end, vec![3; 400], Delivery::ordered(1)).unwrap();
    }
    world.drive(15 * SECOND);
    assert!(world.ends.iter().all(|end| end.taken.is_empty()));
    let wish = world.ends[0].peers.poll_wish().unwrap();
    assert_eq!(wish.0, world.ends[0].peer());
    world.set_link(open());
    world.set_relay(relay());
    has_all(&mut world);
    assert_eq!(world.is_relayed(), Some(false));
}

/// PEER-17.
#[test]
fn an_address_at_which_another_connection_came_about_is_no_path() {
    for opens_before in [false, true] {
        let mut world = World::met(closed(), relay(), 1);
        let first = world.ends[0].peer();
        world.set_link(open());
        if opens_before {
            world.drive_until(|world| world.is_relayed() == Some(false));
        }
        world.connect();
        world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == 2));
        world.drive(20 * SECOND);
        let path = |world: &World| world.ends[0].peers.path(first).unwrap().1;
        assert!(path(&world), "the second connection is there");
        let now = world.now();
        let sent = world.ends[0]
            .peers
            .send(now, first, "relayed".into(), Delivery::ordered(1));
        assert!(sent.is_ok());
        talk(&mut world, 1);
        let came = |body: &str| world.ends[1].received.iter().any(|message| message.body == body);
        assert!(came("relayed"));
        let (now, second) = (world.now(), world.ends[0].peer());
        world.ends[0].peers.close(now, second, 0, b"done");
        world.drive_until(|world| !path(world));
    }
}

/// PEER-20: also where the other end has nothing to send.
#[test]
fn an_end_that_only_acknowledges_finds_its_way_from_another_address() {
    for mover in 0..2 {
        for sender in 0..2 {
            let mut world = World::met(open(), relay(), 1);
            talk(&mut world, 1);
            let (node, outside) = (world.ends[mover].address, "198.51.100.7:1000".parse().unwrap());
            world.network.rebind(node, outside);
            let begin = world.now();
            let other = world.ends[1 - mover].peer();
            while world.ends[1 - mover].peers.path(other) != Some((outside, false)) {
                world.send(sender, vec![4; 400], Delivery::ordered(1)).unwrap();
                world.drive(Duration::from_millis(10));
                let took = world.now() - begin;
                assert!(took < 3 * SECOND, "end {mover} moves, {sender} sends");
            }
            has_all(&mut world);
        }
    }
}

/// PEER-19: two attempts may complete at the callee, of which the caller closes one.
#[test]
fn the_connection_that_is_left_has_the_paths_of_one_that_has_ended() {
    for closes in 0..2 {
        let mut world = World::met(open(), relay(), 1);
        world.connect();
        world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == 2));
        let (now, key) = (world.now(), world.ends[0].connected[closes].0);
        world.ends[0].peers.close(now, key, 0, b"another path was faster");
        world.drive(SECOND);
        let left = |world: &World, end: usize| world.ends[end].connected[1 - closes].0;
        world.set_link(closed());
        let (now, key) = (world.now(), left(&world, 1));
        let sent = world.ends[1]
            .peers
            .send(now, key, "over the relay".into(), Delivery::ordered(1));
        assert!(sent.is_ok());
        world.drive_until(|world| (0..2).all(|end| world.ends[end].peers.path(left(world, end)).unwrap().1));
    }
}

/// The end is said by the path in use, also where QUIC knows another address.
#[test]
fn whoever_has_moved_to_another_path_is_told_of_the_end_there() {
    for closes in 0..2 {
        for to_relay in [false, true] {
            let (before, after) = if to_relay {
                (open(), closed())
            } else {
                (closed(), open())
            };
            let mut world = World::meeting(before, relay(), 1);
            world.drive_until(|world| world.ends.iter().all(|end| !end.connected.is_empty()));
            assert_eq!(world.is_relayed(), Some(!to_relay));
            world.set_link(after);
            talk(&mut world, 10);
            assert_eq!(world.is_relayed(), Some(to_relay));
            if !to_relay {
                world.set_relay(LinkConfig { loss: 1.0, ..relay() });
            }
            let (now, peer) = (world.now(), world.ends[closes].peer());
            world.ends[closes].peers.close(now, peer, 7, b"enough");
            world.drive_until(|world| !world.ends[1 - closes].closed.is_empty());
            let took = world.now() - now;
            assert!(
                took < SECOND,
                "end {closes} closes, relayed: {to_relay}, after {took:?}"
            );
            world.drive(SECOND);
            assert!(!world.ends[closes].peers.is_closing());
        }
    }
}

/// How long both ends' first messages take by the second connection, once both have it.
fn greet_by_second(world: &mut World) -> Duration {
    world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == 2));
    for end in &mut world.ends {
        end.ended.clear();
        end.received.clear();
    }
    let begin = world.now();
    for end in 0..2 {
        world.send(end, "again", Delivery::unordered()).unwrap();
    }
    world.drive_until(|world| world.ends.iter().all(|end| !end.received.is_empty()));
    world.now() - begin
}

/// A connection that is closing leaves nothing behind, and its path is one of the next.
#[test]
fn a_peer_that_was_told_of_the_end_can_be_met_again_at_the_same_addresses() {
    let mut world = World::met(open(), relay(), 1);
    world.set_link(closed());
    talk(&mut world, 5);
    let (now, peer) = (world.now(), world.ends[0].peer());
    world.set_relay(LinkConfig { loss: 1.0, ..relay() });
    world.ends[0].peers.close(now, peer, 7, b"enough");
    world.set_link(open());
    world.connect();
    let took = greet_by_second(&mut world);
    assert!(took < SECOND / 5, "{took:?}");
    talk(&mut world, 2);
    assert_eq!(world.is_relayed(), Some(false));
    assert!(!world.ends[0].peers.is_closing());
}

/// PEER-17: where it is of the same peer, which has begun anew, or of another one.
#[test]
fn a_connection_goes_its_own_way_where_another_one_came_about_that_left_for_the_relay() {
    for number in [1, 3] {
        let mut world = World::met(open(), relay(), 1);
        world.set_link(closed());
        talk(&mut world, 5);
        assert_eq!(world.is_relayed(), Some(true));
        // Packets of the former connection are under way still.
        world.set_relay(LinkConfig { loss: 1.0, ..relay() });
        world.ends[0].peers = Peers::new(parameters(number));
        world.set_link(open());
        world.connect();
        let took = greet_by_second(&mut world);
        assert!(took < SECOND / 5, "of peer {number}: {took:?}");
        // The paths are those of the connection that lives, where they lead to the same peer.
        world.set_relay(relay());
        let (now, peer) = (world.now(), world.ends[0].peer());
        let relayed = world.ends[1].relayed;
        world.ends[0]
            .peers
            .add_addresses(now, peer, AddressSource::Rendezvous, &[relayed]);
        talk(&mut world, 1);
        world.set_link(closed());
        talk(&mut world, 10);
        let is_same = number == 1;
        assert_eq!(world.is_relayed() == Some(true), is_same, "of peer {number}");
    }
}

/// RDV-8: the former connection of a peer that has begun anew does not take the paths of the one that lives.
#[test]
fn who_meets_again_is_given_addresses_for_its_last_connection() {
    let mut world = World::connected(open(), 1);
    // Nothing is under way.
    world.drive(5 * SECOND);
    let [one, two] = world.ends.each_ref().map(|end| end.relayed);
    world.network.join(one, two, relay());
    world.ends[0].peers = Peers::new(parameters(1));
    world.connect();
    world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == 2));
    assert!(world.ends[1].closed.is_empty(), "the former one lives on");
    let now = world.now();
    let address = world.ends[0].address;
    assert!(
        world.ends[1]
            .peers
            .send_checks(now, id(1), MEETING, &[address, one])
    );
    let peer = world.ends[0].peer();
    world.ends[0]
        .peers
        .add_addresses(now, peer, AddressSource::Rendezvous, &[two]);
    world.set_link(closed());
    for end in &mut world.ends {
        end.ended.clear();
        end.received.clear();
    }
    talk(&mut world, 5);
    assert_eq!(world.is_relayed(), Some(true));
    has_all(&mut world);
}
