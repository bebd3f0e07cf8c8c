//! Memory that strangers hold by pieces of streams behind gaps that are never filled; alone in its program, so that
//! nothing else is measured.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

#[path = "support/memory.rs"]
mod memory;
#[allow(dead_code, unused_imports, reason = "the other test program uses the rest")]
mod support;

use std::time::Duration;

use bytes::BytesMut;
use memory::resident_bytes;
use packet::Ecn;
use quic::limits::{
    STRANGER_BYTES_MAX, STRANGERS_BYTES_MAX, UNAUTHENTICATED_STREAMS, UNIDIRECTIONAL_STREAMS,
};
use quic::{CloseReason, ConnectionKey, Direction, Path, StreamId};
use support::{Link, Pair, Setup};

/// Strangers, each from a network of its own, within the time that a token may take: more than there are places for, and so
/// many that they reach the bound of all of them.
const STRANGERS: usize = 1_000;

/// Packets that each sends after its handshake, every second of which arrives.
const ROUNDS: usize = 150;

/// Bytes of a receive slot, of which a short packet touches the first page.
const SLOT_BYTES: usize = 64 << 10;

/// Resident memory of them all, in bytes, at most.
const HELD_MAX: usize = 96 << 20;

/// Between two packets of a stranger.
const BETWEEN: Duration = Duration::from_micros(20);

const MILLISECOND: Duration = Duration::from_millis(1);

fn open_all(pair: &mut Pair, client: ConnectionKey) -> Vec<StreamId> {
    let counts = [
        (Direction::Bidirectional, UNAUTHENTICATED_STREAMS),
        (Direction::Unidirectional, UNIDIRECTIONAL_STREAMS),
    ];
    let all = counts
        .into_iter()
        .flat_map(|(direction, count)| (0..count).map(move |_| direction));
    all.map(|direction| pair.client.endpoint.open_stream(client, direction).unwrap())
        .collect()
}

/// Connects from a network of its own, and then sends one byte on every stream in each packet. The first packet and every
/// second one are lost, and the server's answers, too.
fn attack(pair: &mut Pair, number: usize) {
    let (high, low) = (number / 250, number % 250);
    pair.replace_client(&format!("10.{high}.{low}.1:4000"), number as u8);
    let client = pair.connect();
    pair.drive_until(Duration::from_secs(1), |pair| {
        pair.client.connected.first().copied()
    });
    pair.drive(MILLISECOND);
    let streams = open_all(pair, client);
    for round in 0..ROUNDS {
        for stream in &streams {
            assert_eq!(pair.client.endpoint.write(client, *stream, &[7]).unwrap(), 1);
        }
        pair.client.work(pair.now);
        for train in pair.client.take_trains(pair.now) {
            let path = Path {
                remote: pair.client.address,
                local: None,
            };
            for segment in packet::segments(&train.bytes, train.segment_size).filter(|_| round % 2 == 1) {
                let mut slot = BytesMut::with_capacity(SLOT_BYTES);
                slot.extend_from_slice(segment);
                pair.server.receive(pair.now, path, Ecn::NotEct, slot.split(), 0);
            }
        }
        pair.now += BETWEEN;
        pair.server.work(pair.now);
        pair.server.take_trains(pair.now);
    }
    pair.server.sent.clear();
}

#[test]
fn pieces_behind_gaps_cost_what_was_sent_and_never_more_than_the_bound_of_all_strangers() {
    let mut pair = Pair::new(Setup {
        link: Link::with_delay(Duration::from_micros(100)),
        ..Setup::default()
    });
    pair.server.authenticates = false;
    pair.connect();
    let honest = pair.drive_until(Duration::from_secs(1), |pair| {
        pair.server.connected.first().copied()
    });
    // What allocator, TLS and the test's own tables need once is not counted.
    attack(&mut pair, 0);
    let before = resident_bytes();
    for number in 1..=STRANGERS {
        attack(&mut pair, number);
    }
    let held = resident_bytes().saturating_sub(before);
    let frames = pair.server.endpoint.totals().stream_frames_received;
    println!(
        "{} MiB for {STRANGERS} strangers and {frames} STREAM frames",
        held >> 20
    );
    // Enough to fill the bound of all, by less than each may hold.
    let closed = &pair.server.closed;
    let pushed_out = |reason: &CloseReason| *reason == CloseReason::PushedOut;
    assert!(
        !closed.is_empty() && closed.iter().all(|(_, reason)| pushed_out(reason)),
        "{closed:?}"
    );
    let stay = pair.server.endpoint.open_connections();
    assert!(stay >= STRANGERS_BYTES_MAX / STRANGER_BYTES_MAX, "{stay}");
    assert!(
        pair.server.endpoint.report(honest).is_some(),
        "it holds less than they do"
    );
    assert!(held <= HELD_MAX, "{held} bytes");
}
