//! Who may talk to whom.

use std::collections::BTreeSet;
use std::time::Duration;

use peer_proto::{AddressSource, Attempt, AttemptState, CloseReason, ConnectError, Delivery, SendError};
use sim::LinkConfig;

use crate::world::{World, id, parameters};

fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    }
}

/// PEER-2.
#[test]
fn both_ends_learn_each_others_keys() {
    let world = World::connected(link(), 1);
    let [(_, of_second, first_accepted), (_, of_first, second_accepted)] =
        [0, 1].map(|end| world.ends[end].connected[0]);
    assert_eq!((of_second, of_first), (id(2), id(1)));
    assert_eq!((first_accepted, second_accepted), (false, true));
}

#[test]
fn who_connects_learns_what_was_tried_and_what_became_of_it() {
    let mut world = World::new(link(), 1, [parameters(1), parameters(2)]);
    let (now, remote) = (world.now(), world.ends[1].address);
    let silent = "192.0.2.99:1".parse().unwrap();
    let peer = world.ends[0]
        .peers
        .connect(now, id(2), &[silent, remote])
        .unwrap();
    let states = |attempts: &[Attempt]| -> Vec<_> {
        let states = attempts.iter();
        states
            .map(|attempt| (attempt.address, attempt.state.clone()))
            .collect()
    };
    let before = states(&world.ends[0].peers.attempts(peer));
    assert_eq!(
        before,
        [
            (silent, AttemptState::Unanswered),
            (remote, AttemptState::Waiting)
        ]
    );
    world.drive_until(|world| !world.ends[0].connected.is_empty());
    let after = states(&world.ends[0].tried[0]);
    assert_eq!(
        after,
        [
            (silent, AttemptState::Unanswered),
            (remote, AttemptState::Connected)
        ]
    );
    assert!(world.ends[0].peers.attempts(peer).is_empty());
}

/// PEER-3.
#[test]
fn another_key_at_the_address_ends_the_attempt() {
    let mut world = World::new(link(), 1, [parameters(1), parameters(2)]);
    let (now, remote) = (world.now(), world.ends[1].address);
    world.ends[0].peers.connect(now, id(3), &[remote]).unwrap();
    world.drive_until(|world| !world.ends[0].failed.is_empty());
    let failures = &world.ends[0].failed[0];
    assert_eq!(
        (failures[0].address, &failures[0].reason),
        (remote, &CloseReason::WrongPeer)
    );
    let attempt = &world.ends[0].tried[0][0];
    assert_eq!(
        (attempt.address, attempt.source),
        (remote, AddressSource::Program)
    );
    assert_eq!(attempt.begun_after, Some(Duration::ZERO));
    assert_eq!(attempt.state, AttemptState::Failed(CloseReason::WrongPeer));
    world.drive(Duration::from_secs(5));
    assert!(world.ends.iter().all(|end| end.connected.is_empty()));
}

/// PEER-3.
#[test]
fn who_is_not_allowed_is_refused_with_a_reason() {
    let only_third = peer_proto::Parameters {
        allowed: Some(BTreeSet::from([id(3)])),
        ..parameters(2)
    };
    let mut world = World::new(link(), 1, [parameters(1), only_third]);
    world.connect();
    world.drive_until(|world| !world.ends[0].closed.is_empty());
    let CloseReason::ApplicationClosed { code, reason } = &world.ends[0].closed[0] else {
        panic!("{:?}", world.ends[0].closed);
    };
    assert_eq!(*code, u64::from(peer_proto::code::REFUSED));
    assert!(reason.contains("not allowed"), "{reason}");
    assert_eq!(world.ends[1].peers.refusals().not_allowed, 1);
    assert!(world.ends[1].connected.is_empty());
}

#[test]
fn the_first_address_that_answers_wins() {
    let mut world = World::new(link(), 1, [parameters(1), parameters(2)]);
    let (now, remote) = (world.now(), world.ends[1].address);
    let nobody = "203.0.113.9:9".parse().unwrap();
    let peers = &mut world.ends[0].peers;
    let key = peers.connect(now, id(2), &[nobody, remote]).unwrap();
    world.drive_until(|world| !world.ends[0].connected.is_empty());
    assert_eq!(world.ends[0].connected[0].0, key);
    assert_eq!(world.ends[0].peers.path_stats(key).unwrap().remote, remote);
    world.drive(Duration::from_secs(40));
    assert!(world.ends[0].closed.is_empty() && world.ends[0].failed.is_empty());
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    let mut world = World::new(link(), 1, [parameters(1), parameters(2)]);
    let (now, remote) = (world.now(), world.ends[1].address);
    let peers = &mut world.ends[0].peers;
    assert_eq!(peers.connect(now, id(1), &[remote]), Err(ConnectError::Ourselves));
    assert_eq!(peers.connect(now, id(2), &[]), Err(ConnectError::NoAddress));
    assert_eq!(
        peers.connect(now, id(2), &[remote; 9]),
        Err(ConnectError::TooManyAddresses(9))
    );
    let port_0 = peers.connect(now, id(2), &["192.0.2.2:0".parse().unwrap()]);
    assert!(matches!(port_0, Err(ConnectError::Address { .. })));
    let key = peers.connect(now, id(2), &[remote]).unwrap();
    let sent = peers.send(now, key, "early".into(), Delivery::unordered());
    assert_eq!(sent, Err(SendError::NotConnected));
}

#[test]
fn a_peer_that_closes_says_why_and_all_tickets_end() {
    let mut world = World::connected(link(), 1);
    let ticket = world
        .send(0, "lost with the connection", Delivery::unordered())
        .unwrap();
    let (now, peer) = (world.now(), world.ends[1].peer());
    world.ends[1].peers.close(now, peer, 7, b"good night");
    world.drive_until(|world| !world.ends[0].closed.is_empty());
    let reason = world.ends[0].closed[0].to_string();
    assert!(
        reason.contains("good night") && reason.contains("0x7"),
        "{reason}"
    );
    assert!(world.ends[0].ended.contains_key(&ticket));
    let late = world.send(0, "too late", Delivery::unordered());
    assert_eq!(late, Err(SendError::NotConnected));
}
