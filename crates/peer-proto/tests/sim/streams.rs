//! The program's streams, beside messages.

use std::time::Duration;

use bytes::Bytes;
use peer_proto::{Delivery, Direction, PeerKey, Read, StreamError, StreamId};
use sim::LinkConfig;

use crate::world::{ENDINGS, Ending, World};

fn link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(5),
        rate_bits_per_second: Some(20_000_000),
        queue_bytes: 100_000,
        ..LinkConfig::default()
    }
}

fn read_all(world: &mut World, end: usize, stream: StreamId) -> (Vec<u8>, Result<Read, StreamError>) {
    let peer = world.ends[end].peer();
    let mut bytes = Vec::new();
    loop {
        match world.ends[end].peers.read(peer, stream, usize::MAX) {
            Ok(Read::Data(data)) => bytes.extend_from_slice(&data),
            other => return (bytes, other),
        }
    }
}

fn write(world: &mut World, peer: PeerKey, stream: StreamId, data: &'static [u8]) {
    let mut data = Bytes::from_static(data);
    let written = world.ends[0].peers.write(peer, stream, &mut data);
    assert!(written.is_ok() && data.is_empty());
}

/// PEER-13.
#[test]
fn streams_of_both_kinds_carry_bytes_in_both_directions() {
    let mut world = World::connected(link(), 1);
    let peer = world.ends[0].peer();
    for direction in [Direction::Unidirectional, Direction::Bidirectional] {
        let stream = world.ends[0].peers.open_stream(peer, direction, 0).unwrap();
        write(&mut world, peer, stream, b"hello");
        world.ends[0].peers.finish(peer, stream);
    }
    world.drive_until(|world| world.ends[1].opened.len() == 2 && world.ends[0].finished.len() == 2);
    for stream in world.ends[1].opened.clone() {
        assert_eq!(
            read_all(&mut world, 1, stream),
            (b"hello".to_vec(), Ok(Read::Finished))
        );
        if stream.direction() == Direction::Bidirectional {
            let answering = world.ends[1].peer();
            let mut answer = Bytes::from_static(b"good bye");
            world.ends[1].peers.write(answering, stream, &mut answer).unwrap();
            world.ends[1].peers.finish(answering, stream);
            world.drive(Duration::from_millis(50));
            assert_eq!(
                read_all(&mut world, 0, stream),
                (b"good bye".to_vec(), Ok(Read::Finished))
            );
        }
    }
}

#[test]
fn the_first_stream_brings_room_for_many() {
    let mut world = World::connected(link(), 1);
    world.drive(Duration::from_millis(100));
    for direction in [Direction::Unidirectional, Direction::Bidirectional] {
        let peer = world.ends[0].peer();
        let open = |world: &mut World| world.ends[0].peers.open_stream(peer, direction, 0);
        let at_first: Vec<_> = std::iter::from_fn(|| open(&mut world)).collect();
        assert!((3..=4).contains(&at_first.len()), "{} at first", at_first.len());
        write(&mut world, peer, at_first[0], b"hello");
        world.drive(Duration::from_millis(100));
        let more = std::iter::from_fn(|| open(&mut world)).count();
        assert!(at_first.len() + more >= 32, "{more} more");
    }
}

#[test]
fn a_stream_is_reset_and_stopped_with_a_code() {
    let mut world = World::connected(link(), 1);
    let peer = world.ends[0].peer();
    let stream = world.ends[0]
        .peers
        .open_stream(peer, Direction::Bidirectional, 0)
        .unwrap();
    write(&mut world, peer, stream, b"half");
    world.drive_until(|world| !world.ends[1].opened.is_empty());
    world.ends[0].peers.reset(peer, stream, 41);
    world.drive(Duration::from_millis(50));
    let (_, end) = read_all(&mut world, 1, stream);
    assert_eq!(end, Err(StreamError::Reset(41)));

    let second = world.ends[0]
        .peers
        .open_stream(peer, Direction::Unidirectional, 0)
        .unwrap();
    write(&mut world, peer, second, b"unwanted");
    world.drive_until(|world| world.ends[1].opened.len() == 2);
    let reader = world.ends[1].peer();
    world.ends[1].peers.stop(reader, second, 42);
    world.drive_until(|world| !world.ends[0].stopped.is_empty());
    assert_eq!(world.ends[0].stopped, [(second, 42)]);
}

#[test]
fn stopped_streams_make_room_for_others() {
    let mut world = World::connected(link(), 1);
    let peer = world.ends[0].peer();
    let count = quic::limits::PEER_STREAMS as usize + 1;
    for number in 1..=count {
        let stream = world.ends[0].peers.open_stream(peer, Direction::Bidirectional, 0);
        let stream = stream.expect("the peer grants a stream for each that is gone");
        write(&mut world, peer, stream, b"unwanted");
        world.drive_until(|world| world.ends[1].opened.len() == number);
        let reader = world.ends[1].peer();
        world.ends[1].peers.stop(reader, stream, 42);
        world.ends[1].peers.finish(reader, stream);
        world.drive_until(|world| world.ends[0].stopped.len() == number);
        assert_eq!(read_all(&mut world, 0, stream).1, Ok(Read::Finished));
        world.drive(Duration::from_millis(50));
    }
}

#[test]
fn bytes_of_an_urgent_stream_and_small_messages_do_not_wait_for_bulk() {
    let mut world = World::connected(link(), 1);
    let peer = world.ends[0].peer();
    let bulk = world.ends[0]
        .peers
        .open_stream(peer, Direction::Unidirectional, 0)
        .unwrap();
    let mut data = Bytes::from(vec![0; 4 << 20]);
    world.ends[0].peers.write(peer, bulk, &mut data).unwrap();
    world.drive(Duration::from_secs(1));
    let start = world.now();
    let urgent = world.ends[0]
        .peers
        .open_stream(peer, Direction::Unidirectional, 9)
        .unwrap();
    write(&mut world, peer, urgent, b"now");
    world.send(0, "also now", Delivery::unordered()).unwrap();
    world.drive_until(|world| world.ends[1].opened.len() == 2 && !world.ends[1].received.is_empty());
    let took = world.now() - start;
    assert!(took < Duration::from_millis(100), "{took:?}");
}

#[test]
fn more_streams_are_granted_as_they_are_used() {
    let mut world = World::connected(link(), 1);
    let peer = world.ends[0].peer();
    let mut opened = 0;
    for _ in 0..40 {
        while let Some(stream) = world.ends[0].peers.open_stream(peer, Direction::Bidirectional, 0) {
            write(&mut world, peer, stream, b"x");
            opened += 1;
        }
        world.drive(Duration::from_millis(20));
    }
    assert_eq!(opened, quic::limits::PEER_STREAMS);
}

/// Reads a stream of the second end, in pieces, to its end.
fn read_rest(world: &mut World, peer: PeerKey, stream: StreamId) -> (usize, Result<Read, StreamError>) {
    let mut bytes = 0;
    loop {
        match world.ends[1].peers.read(peer, stream, 1_000) {
            Ok(Read::Data(data)) => bytes += data.len(),
            other => return (bytes, other),
        }
    }
}

#[test]
fn streams_that_came_whole_are_read_after_the_end_of_the_connection_and_others_are_not() {
    for ending in ENDINGS {
        check_rests(ending);
    }
}

fn check_rests(ending: Ending) {
    const BYTES: usize = 100_000;
    let mut world = World::connected(link(), 1);
    world.ends[1].reads = false;
    // Until it is accepted, a connection carries little.
    world.drive(Duration::from_millis(100));
    let peer = world.ends[0].peer();
    let open = |world: &mut World, direction| {
        let stream = world.ends[0].peers.open_stream(peer, direction, 0).unwrap();
        let mut data = Bytes::from(vec![7; BYTES]);
        // There is more credit once some of the first is used.
        while !data.is_empty() {
            world.ends[0].peers.write(peer, stream, &mut data).unwrap();
            world.drive(Duration::from_millis(100));
        }
        stream
    };
    let whole = [Direction::Unidirectional, Direction::Bidirectional].map(|direction| {
        let stream = open(&mut world, direction);
        world.ends[0].peers.finish(peer, stream);
        stream
    });
    let unfinished = open(&mut world, Direction::Unidirectional);
    world.drive_until(|world| world.ends[0].finished.len() == whole.len());
    world.drive_until(|world| world.ends[1].opened.len() == whole.len() + 1);
    // Part of one is read before.
    let reader = world.ends[1].peer();
    let begun = world.ends[1].peers.read(reader, whole[0], 1_000);
    assert!(matches!(begun, Ok(Read::Data(data)) if data.len() == 1_000));
    world.end_by(ending);

    assert!(world.ends[1].peers.has_unread(reader), "{ending:?}");
    assert_eq!(world.ends[1].peers.unread_bytes(), 2 * BYTES - 1_000);
    assert_eq!(
        read_rest(&mut world, reader, unfinished),
        (0, Err(StreamError::Closed))
    );
    let first = read_rest(&mut world, reader, whole[0]);
    assert_eq!(first, (BYTES - 1_000, Ok(Read::Finished)));
    assert!(world.ends[1].peers.has_unread(reader));
    let second = read_rest(&mut world, reader, whole[1]);
    assert_eq!(second, (BYTES, Ok(Read::Finished)));
    assert!(!world.ends[1].peers.has_unread(reader));
    assert_eq!(world.ends[1].peers.unread_bytes(), 0);
    assert_eq!(
        read_rest(&mut world, reader, whole[1]),
        (0, Err(StreamError::Closed))
    );
}

#[test]
fn a_stream_that_nobody_wants_after_the_end_of_the_connection_is_forgotten() {
    let mut world = World::connected(link(), 1);
    let peer = world.ends[0].peer();
    let stream = world.ends[0]
        .peers
        .open_stream(peer, Direction::Unidirectional, 0)
        .unwrap();
    write(&mut world, peer, stream, b"unwanted");
    world.ends[0].peers.finish(peer, stream);
    world.drive_until(|world| !world.ends[0].finished.is_empty());
    let (now, reader) = (world.now(), world.ends[1].peer());
    world.ends[0].peers.close(now, peer, 0, b"");
    world.drive_until(|world| !world.ends[1].closed.is_empty());
    assert_eq!(world.ends[1].peers.unread_bytes(), b"unwanted".len());
    world.ends[1].peers.stop(reader, stream, 0);
    assert_eq!(world.ends[1].peers.unread_bytes(), 0);
    assert!(!world.ends[1].peers.has_unread(reader));
}
