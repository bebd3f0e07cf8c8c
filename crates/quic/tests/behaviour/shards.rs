//! Several endpoints of one process: each knows its own segments from those of the others.

use std::time::Duration;

use bytes::BytesMut;
use packet::Ecn;
use quic::{IdLength, Path, Shard, SteerKey, shard_of};

use crate::support::{Pair, Setup, Side, server_endpoint};

const RESET_KEY: [u8; 64] = [7; 64];

/// A server that is shard 1 of 2, with a client that has told it something, and shard 0 beside it.
fn two_shards() -> (Pair, Side, Vec<u8>) {
    let setup = Setup {
        server_shard: Shard { index: 1, count: 2 },
        ..Setup::default()
    };
    let (mut pair, client, _) = Pair::connected(setup);
    pair.client.captured = Some(Vec::new());
    pair.client.send_datagram(client, &[5; 500][..]);
    pair.drive(Duration::from_secs(1));
    assert_eq!(pair.server.endpoint.classified().other_shard, 0);
    let packet = pair.client.captured.take().unwrap().swap_remove(0);
    let setup = Setup {
        server_shard: Shard { index: 0, count: 2 },
        ..Setup::default()
    };
    let endpoint = server_endpoint(&setup, &pair.identity, RESET_KEY);
    let sibling = Side::new(endpoint, pair.server.address, setup.ceiling);
    (pair, sibling, packet)
}

fn path(pair: &Pair) -> Path {
    Path {
        remote: pair.client.address,
        local: None,
    }
}

#[test]
fn a_segment_of_another_shard_is_handed_over_and_never_answered() {
    let (pair, mut sibling, packet) = two_shards();
    assert_eq!(
        shard_of(&SteerKey::derive(&RESET_KEY, IdLength::default()), &packet),
        Some(1)
    );
    let foreign = BytesMut::from(&packet.repeat(3)[..]);
    sibling.receive(pair.now, path(&pair), Ecn::Ect0, foreign, packet.len());
    assert_eq!(sibling.endpoint.classified().other_shard, 3);
    assert_eq!(sibling.recorder.foreign, vec![(1, Ecn::Ect0, packet); 3]);
    sibling.work(pair.now);
    assert!(sibling.take_trains(pair.now).is_empty());
}

#[test]
fn a_segment_handed_over_reaches_its_connection() {
    let (mut pair, mut sibling, _) = two_shards();
    let client = pair.client.connected[0];
    pair.client.captured = Some(Vec::new());
    pair.client.send_datagram(client, &[6; 500][..]);
    pair.client.work(pair.now);
    let trains = pair.client.take_trains(pair.now);
    let path = path(&pair);
    for train in trains {
        let bytes = BytesMut::from(&train.bytes[..]);
        sibling.receive(pair.now, path, train.ecn, bytes, train.segment_size);
    }
    let before = pair.server.recorder.datagrams.len();
    for (shard, ecn, segment) in std::mem::take(&mut sibling.recorder.foreign) {
        assert_eq!(shard, 1);
        let len = segment.len();
        pair.server
            .receive(pair.now, path, ecn, BytesMut::from(&segment[..]), len);
    }
    assert_eq!(pair.server.recorder.datagrams[before..], [vec![6; 500]]);
    assert_eq!(pair.server.endpoint.classified().other_shard, 0);
}

#[test]
fn of_a_mixed_buffer_each_shard_gets_its_own() {
    let (pair, mut sibling, packet) = two_shards();
    let mut stranger = packet.clone();
    stranger[1..9].copy_from_slice(&[0x11; 8]);
    let mixed = [&stranger[..], &packet, &stranger, &packet].concat();
    let mixed = BytesMut::from(&mixed[..]);
    sibling.receive(pair.now, path(&pair), Ecn::NotEct, mixed, packet.len());
    assert_eq!(sibling.recorder.foreign.len(), 2);
    sibling.work(pair.now);
    // An ID that nobody here can have issued is not worth a stateless reset.
    assert!(sibling.take_trains(pair.now).is_empty());
}

#[test]
fn a_server_restarted_with_fewer_shards_still_tells_clients_of_those_that_are_gone() {
    let (mut pair, _, packet) = two_shards();
    pair.setup.server_shard = Shard::SOLE;
    pair.restart_server(RESET_KEY);
    let path = path(&pair);
    let len = packet.len();
    pair.server
        .receive(pair.now, path, Ecn::NotEct, BytesMut::from(&packet[..]), len);
    assert!(pair.server.recorder.foreign.is_empty());
    pair.server.work(pair.now);
    assert_eq!(pair.server.take_trains(pair.now).len(), 1, "a stateless reset");
}
