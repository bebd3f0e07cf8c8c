//! Relayed addresses that lead nowhere.

use std::net::SocketAddr;
use std::time::Duration;

use peer_proto::limits::CHECKED_PEERS_MAX;
use peer_proto::{AddressSource, AttemptState, CloseReason, Meeting, PeerId};
use sim::LinkConfig;

use crate::world::{MEETING, World, id, parameters};

fn closed() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        loss: 1.0,
        ..LinkConfig::default()
    }
}

/// RDV-12: the server relays nothing there, which is known before a connection would have given up.
#[test]
fn an_address_to_which_nothing_is_relayed_fails_with_that_reason_whether_it_waits_or_is_tried() {
    for wait in [Duration::ZERO, Duration::from_secs(1)] {
        let mut world = World::meeting(closed(), closed(), 1);
        world.drive(wait);
        let (now, relayed) = (world.now(), world.ends[1].relayed);
        world.ends[0]
            .peers
            .fail_at(now, relayed, &CloseReason::NotRelayed);
        world.drive_until(|world| !world.ends[0].failed.is_empty());
        let tried = &world.ends[0].tried[0];
        let attempt = tried.iter().find(|attempt| attempt.address == relayed).unwrap();
        assert_eq!(attempt.state, AttemptState::Failed(CloseReason::NotRelayed));
        assert_eq!((attempt.source, tried.len()), (AddressSource::Relay, 2));
        assert_eq!(attempt.begun_after.is_some(), wait > Duration::ZERO);
    }
}

#[test]
fn a_peer_without_another_address_has_failed_at_once() {
    let mut world = World::new(closed(), 1, [parameters(1), parameters(2)]);
    let now = world.now();
    let (other, relayed) = (world.ends[1].peers.id(), world.ends[1].relayed);
    let until = now + Duration::from_secs(10);
    let peers = &mut world.ends[0].peers;
    let key = peers.connect_and_meet(now, other, &[], MEETING, until).unwrap();
    peers.add_addresses(now, key, AddressSource::Rendezvous, &[relayed]);
    peers.expect_no_more_addresses(now, key, AddressSource::Rendezvous);
    peers.fail_at(now, relayed, &CloseReason::NotRelayed);
    world.drive(Duration::ZERO);
    let failures = &world.ends[0].failed[0];
    assert_eq!(
        (failures.len(), &failures[0].reason),
        (1, &CloseReason::NotRelayed)
    );
}

/// Who is asked first whether there is room asks for no context in vain.
#[test]
fn there_is_room_for_checks_of_so_many_peers() {
    let mut world = World::new(closed(), 1, [parameters(1), parameters(2)]);
    let (now, peers) = (world.now(), &mut world.ends[0].peers);
    let address: SocketAddr = "192.0.2.9:1".parse().unwrap();
    let other = |number: usize| PeerId::from([number as u8; 32]);
    for number in 0..CHECKED_PEERS_MAX {
        let meeting = Meeting {
            transaction: [number as u8; 12],
            ..MEETING
        };
        assert!(peers.has_room_for_checks(now, other(number)));
        assert!(peers.send_checks(now, other(number), meeting, &[address]));
    }
    assert!(!peers.has_room_for_checks(now, id(2)));
    assert!(!peers.send_checks(now, id(2), MEETING, &[address]));
    // Whoever has checks has room for others in their place.
    assert!(peers.has_room_for_checks(now, other(0)));
}
