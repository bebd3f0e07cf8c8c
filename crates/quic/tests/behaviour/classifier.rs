//! Received datagrams are ours, another shard's, given away or dropped, before QUIC sees them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use packet::Ecn;
use quic::{Arrived, Class, Classifier, ConnectionKey, IdLength, Path, Run, Shard, SteerKey, shard_of};

use crate::support::{Pair, Setup, Side, client_endpoint, server_endpoint};

const SECOND: Duration = Duration::from_secs(1);
const RESET_KEY: [u8; 64] = [7; 64];
const OWN_SHARD: u8 = 1;

/// Stands before a server that shares its address with a web site. Friends come from one network; whoever else begins a
/// connection is the site's visitor, with all that follows. Probes of other versions and crumbs are nobody's.
struct Cover {
    key: SteerKey,
    visitors: BTreeSet<SocketAddr>,
}

impl Cover {
    fn new() -> Self {
        Self {
            key: SteerKey::derive(&RESET_KEY, IdLength::default()),
            visitors: BTreeSet::new(),
        }
    }

    fn class(&mut self, remote: SocketAddr, segment: &[u8]) -> Class {
        if segment.len() < 21 {
            return Class::Dropped("crumb");
        }
        let is_long = segment[0] & 0x80 != 0;
        if is_long && segment[1..5] != [0, 0, 0, 1] {
            return Class::Dropped("version");
        }
        if let Some(other) = shard_of(&self.key, segment).filter(|shard| *shard != OWN_SHARD) {
            return Class::OtherShard(other);
        }
        let is_initial = segment[0] & 0xf0 == 0xc0;
        let is_friend = quic::customer_prefix(remote.ip()) == IpAddr::from([192, 0, 2, 0]);
        if is_initial && !is_friend {
            self.visitors.insert(remote);
        }
        if self.visitors.contains(&remote) {
            Class::GivenAway
        } else {
            Class::Ours
        }
    }
}

impl Classifier for Cover {
    fn classify(&mut self, arrived: &Arrived<'_>) -> Run {
        let remote = arrived.path.remote;
        let mut classes = arrived.segments().map(|segment| self.class(remote, segment));
        let class = classes.next().unwrap();
        Run {
            class,
            segments: 1 + classes.take_while(|next| *next == class).count(),
        }
    }
}

/// A server behind the cover, with a friend who is connected.
fn covered() -> (Pair, ConnectionKey) {
    let mut pair = Pair::new(Setup {
        server_shard: Shard {
            index: OWN_SHARD,
            count: 2,
        },
        ..Setup::default()
    });
    let endpoint = server_endpoint(&pair.setup, &pair.identity, RESET_KEY);
    let endpoint = endpoint.with_classifier(Box::new(Cover::new()));
    pair.server = Side::new(endpoint, pair.server.address, pair.setup.ceiling);
    let friend = pair.connect();
    pair.drive(2 * SECOND);
    assert_eq!((pair.client.connected.len(), pair.server.connected.len()), (1, 1));
    (pair, friend)
}

fn visitor(pair: &Pair) -> Side {
    let endpoint = client_endpoint(&pair.setup, 9);
    Side::new(endpoint, "203.0.113.9:5000".parse().unwrap(), pair.setup.ceiling)
}

fn arrive(pair: &mut Pair, remote: SocketAddr, bytes: &[u8], segment_size: usize) {
    let path = Path { remote, local: None };
    let bytes = BytesMut::from(bytes);
    pair.server
        .receive(pair.now, path, Ecn::Ect0, bytes, segment_size);
    pair.server.work(pair.now);
}

/// A packet of a version that nobody speaks, which QUIC would answer.
fn version_probe(length: usize) -> Vec<u8> {
    let mut probe = vec![0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8];
    probe.extend_from_slice(&[0x33; 8]);
    probe.resize(length, 0);
    probe
}

#[test]
fn a_visitors_datagrams_are_given_away_as_they_came_and_never_answered() {
    let (mut pair, friend) = covered();
    let mut visitor = visitor(&pair);
    let (server, now) = (pair.server.address, pair.now);
    let parameters = quic::ClientParameters::Pin(pair.identity.pin);
    visitor
        .endpoint
        .connect(now, server, "localhost", &parameters, 1_452)
        .unwrap();
    let before = pair.server.endpoint.classified().clone();
    let offered = pair.server.endpoint.incoming_totals().offered;
    let mut given = Vec::new();
    for _ in 0..10 {
        visitor.work(pair.now);
        for train in visitor.take_trains(pair.now) {
            arrive(&mut pair, visitor.address, &train.bytes, train.segment_size);
            given.push((visitor.address, train.bytes, train.segment_size));
        }
        pair.now += SECOND / 2;
    }
    // Even what belongs to no connection that begins here.
    arrive(&mut pair, visitor.address, &[0x40; 300], 100);
    given.push((visitor.address, vec![0x40; 300], 100));
    assert!(given.len() >= 3, "{}", given.len());
    assert_eq!(pair.server.recorder.given_away, given);
    let to_visitor = |train: &quic::OutgoingTrain| train.destination == visitor.address;
    assert!(!pair.server.take_trains(pair.now).iter().any(to_visitor));
    assert_eq!(pair.server.endpoint.incoming_totals().offered, offered);
    let after = pair.server.endpoint.classified();
    let segments: usize = given
        .iter()
        .map(|(_, bytes, size)| bytes.len().div_ceil(*size))
        .sum();
    assert_eq!(after.given_away - before.given_away, segments as u64);
    // The friend notices nothing.
    pair.client.send_datagram(friend, &[6; 500][..]);
    pair.drive(SECOND);
    assert_eq!(pair.server.recorder.datagrams, [vec![6; 500]]);
}

#[test]
fn probes_and_crumbs_are_dropped_in_silence_and_counted_by_reason() {
    let (mut pair, _) = covered();
    let stranger = "203.0.113.5:443".parse().unwrap();
    arrive(&mut pair, stranger, &version_probe(1_200), 0);
    arrive(&mut pair, stranger, &[0x40; 60], 20);
    assert!(pair.server.take_trains(pair.now).is_empty());
    let classified = pair.server.endpoint.classified();
    let dropped: Vec<_> = classified.dropped.clone().into_iter().collect();
    assert_eq!(dropped, [("crumb", 3), ("version", 1)]);
    assert!(pair.server.recorder.given_away.is_empty());
    // Without the cover, the probe is answered.
    let endpoint = server_endpoint(&pair.setup, &pair.identity, RESET_KEY);
    pair.server = Side::new(endpoint, pair.server.address, pair.setup.ceiling);
    arrive(&mut pair, stranger, &version_probe(1_200), 0);
    assert_eq!(pair.server.take_trains(pair.now).len(), 1);
}

#[test]
fn of_a_coalesced_message_each_run_goes_its_way_in_order() {
    let (mut pair, friend) = covered();
    let mut packets = Vec::new();
    for byte in [1, 2] {
        pair.client.send_datagram(friend, vec![byte; 500]);
        pair.client.work(pair.now);
        let trains = pair.client.take_trains(pair.now);
        assert_eq!(trains.len(), 1);
        packets.push(trains[0].bytes.clone());
    }
    let size = packets[0].len();
    assert!(packets[1].len() <= size);
    let sibling = sibling_segment(&pair, size);
    let probe = version_probe(size);
    let parts = [&packets[0], &sibling, &sibling, &probe, &packets[1]];
    let before = pair.server.endpoint.classified().clone();
    let address = pair.client.address;
    arrive(&mut pair, address, &parts.map(|part| &part[..]).concat(), size);
    assert_eq!(pair.server.recorder.datagrams, [vec![1; 500], vec![2; 500]]);
    assert_eq!(
        pair.server.recorder.foreign,
        vec![(0, Ecn::Ect0, sibling.clone()); 2]
    );
    let after = pair.server.endpoint.classified().clone();
    assert_eq!((after.ours - before.ours, after.other_shard), (2, 2));
    assert_eq!(after.dropped["version"], 1);
    // A visitor's run that a probe interrupts is given away in two parts.
    let visitor = "203.0.113.9:5000".parse().unwrap();
    let mut initial = version_probe(1_200);
    initial[1..5].copy_from_slice(&[0, 0, 0, 1]);
    let message = [&initial[..], &initial, &version_probe(1_200), &initial[..700]].concat();
    arrive(&mut pair, visitor, &message, 1_200);
    let expected = [
        (visitor, initial.repeat(2), 1_200),
        (visitor, initial[..700].to_vec(), 1_200),
    ];
    assert_eq!(pair.server.recorder.given_away, expected);
}

/// A segment of the other shard's connection.
fn sibling_segment(pair: &Pair, length: usize) -> Vec<u8> {
    let setup = Setup {
        server_shard: Shard { index: 0, count: 2 },
        ..pair.setup.clone()
    };
    let mut other = Pair::new(setup);
    let client = other.connect();
    other.drive(2 * SECOND);
    other.client.captured = Some(Vec::new());
    other.client.send_datagram(client, &[9; 500][..]);
    other.drive(SECOND);
    let mut segment = other.client.captured.take().unwrap().swap_remove(0);
    segment.resize(length, 0);
    segment
}

#[test]
fn without_a_classifier_of_its_own_an_endpoint_takes_everything_as_its_own() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    let before = pair.server.endpoint.classified().clone();
    assert_eq!((before.other_shard, before.given_away), (0, 0));
    assert!(before.ours > 0 && before.dropped.is_empty());
    pair.client.send_datagram(client, &[6; 500][..]);
    pair.client.work(pair.now);
    let trains = pair.client.take_trains(pair.now);
    let sent: usize = trains
        .iter()
        .map(|train| train.bytes.len().div_ceil(train.segment_size))
        .sum();
    for train in trains {
        let address = pair.client.address;
        arrive(&mut pair, address, &train.bytes, train.segment_size);
    }
    let after = pair.server.endpoint.classified();
    assert_eq!(after.ours - before.ours, sent as u64);
    assert_eq!(pair.server.recorder.datagrams, [vec![6; 500]]);
}
