//! Peers that connect and send what nobody reads: what QUIC may keep of them all is bounded, and the others go on.

use peer_proto::limits::WINDOW_BYTES;
use peer_proto::{CloseReason, Delivery, Direction, Outcome, Parameters, PeerKey, StreamId, code};
use quic::limits::{CREDIT_WANTED_BYTES, UNAUTHENTICATED_CREDIT_BYTES};
use sim::LinkConfig;

use std::time::Duration;

use crate::world::{World, parameters};

/// Whole windows that the second end gives.
const WINDOWS: usize = 2;

/// Connections that send what nobody reads.
const HOSTILE: usize = 12;

fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(1),
        rate_bits_per_second: Some(10_000_000_000),
        queue_bytes: 10_000_000,
        ..LinkConfig::default()
    }
}

fn world() -> World {
    let bounded = Parameters {
        accepted_window_bytes_max: WINDOWS * WINDOW_BYTES,
        ..parameters(2)
    };
    World::new(link(), 1, [parameters(1), bounded])
}

/// One more connection of the first end.
fn connect(world: &mut World) -> PeerKey {
    let count = world.ends[0].connected.len() + 1;
    world.connect();
    world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == count));
    // What ends of the former connection from here on is not noted.
    world.ends[0].ended.clear();
    world.ends[0].peer()
}

/// Sends 100 messages that fit no packet, and sees all of them read.
fn exchange(world: &mut World, peer: PeerKey) {
    let (now, before) = (world.now(), world.ends[1].received.len());
    for _ in 0..100 {
        let sent = world.ends[0]
            .peers
            .send(now, peer, vec![1; 10_000].into(), Delivery::ordered(1));
        sent.unwrap();
    }
    world.drive_until(|world| world.ends[1].received.len() == before + 100);
}

/// Writes to both streams of a connection as long as something is taken; how many bytes were.
fn fill(world: &mut World, peer: PeerKey, streams: [StreamId; 2]) -> usize {
    let (mut written, mut idle) = (0, 0);
    while idle < 3 {
        let before = written;
        for stream in streams {
            let mut bytes = vec![1; 1 << 20].into();
            written += world.ends[0].peers.write(peer, stream, &mut bytes).unwrap_or(0);
        }
        idle = if written == before { idle + 1 } else { 0 };
        world.drive(Duration::from_millis(20));
    }
    written
}

/// PEER-22.
#[test]
fn a_crowd_that_fills_its_windows_is_bounded_and_does_not_keep_others_from_theirs() {
    let mut world = world();
    let honest = connect(&mut world);
    exchange(&mut world, honest);
    let mut written = 0;
    for _ in 0..HOSTILE {
        let peer = connect(&mut world);
        let streams = [(); 2].map(|()| {
            let peers = &mut world.ends[0].peers;
            peers.open_stream(peer, Direction::Bidirectional, 0).unwrap()
        });
        written += fill(&mut world, peer, streams);
        exchange(&mut world, honest);
    }
    let narrow = UNAUTHENTICATED_CREDIT_BYTES as usize;
    let most = WINDOW_BYTES + (HOSTILE - 1) * narrow;
    assert!(written > WINDOW_BYTES / 2 && written <= most, "{written} bytes");
    assert_eq!(
        world.ends[1].peers.accepted_window_bytes(),
        WINDOWS * WINDOW_BYTES
    );
    assert_eq!(world.ends[1].peers.refusals().crowded, HOSTILE as u64 - 1);
    assert_eq!(world.ends[1].closed, vec![CloseReason::Crowded; HOSTILE - 1]);
    for reason in &world.ends[0].closed {
        let CloseReason::ApplicationClosed { code, .. } = reason else {
            panic!("{reason}");
        };
        assert_eq!(*code, u64::from(code::CROWDED));
    }

    // Whoever sends little needs no window, and one that is given back is there for the next.
    let quiet = connect(&mut world);
    let now = world.now();
    let sent = world.ends[0].peers.send(
        now,
        quiet,
        vec![1; CREDIT_WANTED_BYTES as usize / 2].into(),
        Delivery::unordered(),
    );
    let ticket = sent.unwrap();
    world.drive_until(|world| world.ends[0].ended.get(&ticket) == Some(&Outcome::Acked));
    let now = world.now();
    world.ends[0].peers.close(now, honest, 0, b"");
    world.drive_until(|world| world.ends[1].closed.len() == HOSTILE);
    assert_eq!(world.ends[1].peers.accepted_window_bytes(), WINDOW_BYTES);
    exchange(&mut world, quiet);
}

/// PEER-22: bytes that were lost and then given up have used credit, though the other end never saw them.
#[test]
fn a_stream_that_is_given_up_while_nothing_arrives_leaves_credit_for_others() {
    let mut world = world();
    let peer = connect(&mut world);
    world.set_link(LinkConfig { loss: 1.0, ..link() });
    let opened = world.ends[0]
        .peers
        .open_stream(peer, Direction::Unidirectional, 0);
    let stream = opened.unwrap();
    let mut bytes = vec![1; UNAUTHENTICATED_CREDIT_BYTES as usize].into();
    world.ends[0].peers.write(peer, stream, &mut bytes).unwrap();
    // Long enough for a turn of QUIC, too short for the end of the connection.
    world.drive(Duration::from_secs(1));
    world.ends[0].peers.reset(peer, stream, 0);
    world.set_link(link());
    exchange(&mut world, peer);
}

#[test]
fn peers_that_were_connected_to_have_whole_windows_beside_a_crowd() {
    let mut world = world();
    for _ in 0..WINDOWS {
        let peer = connect(&mut world);
        exchange(&mut world, peer);
    }
    let (now, remote, id) = (world.now(), world.ends[0].address, world.ends[0].peers.id());
    let peer = world.ends[1].peers.connect(now, id, &[remote]).unwrap();
    world.drive_until(|world| world.ends.iter().all(|end| end.connected.len() == WINDOWS + 1));
    let back = world.ends[0].peer();
    let stream = world.ends[0]
        .peers
        .open_stream(back, Direction::Bidirectional, 0)
        .unwrap();
    let other = world.ends[0]
        .peers
        .open_stream(back, Direction::Bidirectional, 0)
        .unwrap();
    let written = fill(&mut world, back, [stream, other]);
    assert!(written > WINDOW_BYTES / 2, "{written} bytes");
    assert!(world.ends[1].peers.path(peer).is_some() && world.ends[1].closed.is_empty());
}
