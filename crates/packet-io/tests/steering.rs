//! Steering by connection ID with real sockets on the loopback interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::BTreeSet;

use common::{address, options, receive, receive_once, without_offloads, without_privileges};
use packet_io::steering::{self, ConnectionIds, STEERING_ROUNDS};
use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, UdpSocket};

const MARK: u32 = 0x6d_b5c4;
const SHARDS: usize = 4;

/// IDs of shards 0 and 1 with the count 1, as the QUIC crate makes them with the key of [`Cipher::new`].
const VECTORS: [[u8; 8]; 2] = [
    [0x1a, 0x0b, 0x1b, 0x2f, 0x6f, 0xe6, 0x94, 0x5d],
    [0xfc, 0xf2, 0x9b, 0xa7, 0x5b, 0x96, 0xf6, 0x51],
];

/// Speck64/128, as in its paper.
struct Cipher([u32; STEERING_ROUNDS]);

fn round(x: u32, y: u32, key: u32) -> (u32, u32) {
    let x = x.rotate_right(8).wrapping_add(y) ^ key;
    (x, y.rotate_left(3) ^ x)
}

impl Cipher {
    /// With the key of the paper's test vector.
    fn new() -> Self {
        let (mut left, mut key) = ([0x0b0a_0908, 0x1312_1110, 0x1b1a_1918], 0x0302_0100);
        Self(std::array::from_fn(|number| {
            let current = key;
            (left[number % 3], key) = round(left[number % 3], key, number as u32);
            current
        }))
    }

    /// How IDs of so many bytes are made.
    fn ids(&self, bytes: u8) -> ConnectionIds<'_> {
        ConnectionIds {
            round_keys: &self.0,
            mark: MARK,
            bytes,
        }
    }

    fn id(&self, shard: u8, mark: u32, count: u32) -> [u8; 8] {
        let words = (u32::from(shard) << 24 | mark, count);
        let (x, y) = self.0.iter().fold(words, |(x, y), key| round(x, y, *key));
        (u64::from(x) << 32 | u64::from(y)).to_be_bytes()
    }
}

fn short_header(id: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x40; 100];
    packet[1..=id.len()].copy_from_slice(id);
    packet
}

fn long_header(id: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc0, 0, 0, 0, 1, id.len() as u8];
    packet.extend_from_slice(id);
    packet.resize(100, 0);
    packet
}

fn group(at: &str) -> (Vec<UdpSocket>, Cipher) {
    let (sockets, cipher) = (
        UdpSocket::bind_group(address(at), SHARDS, &options()).unwrap(),
        Cipher::new(),
    );
    steering::attach(&sockets[0], cipher.ids(8), SHARDS as u8).unwrap();
    (sockets, cipher)
}

fn sender(group: &[UdpSocket]) -> UdpSocket {
    UdpSocket::connect(None, group[0].local_addr().unwrap(), &without_offloads()).unwrap()
}

/// The only socket of the group at which `payload` arrives.
fn place_of(group: &mut [UdpSocket], from: &mut UdpSocket, payload: &[u8]) -> usize {
    assert_eq!(from.send(&[Outgoing::connected(payload, 0)]).unwrap().segments, 1);
    let mut batch = ReceiveBatch::new(1, 65_536);
    // The loopback interface delivers within the send.
    let places: Vec<_> = (0..group.len())
        .filter(|place| group[*place].receive(&mut batch).unwrap() > 0)
        .collect();
    assert_eq!(places.len(), 1, "{places:?}");
    places[0]
}

#[test]
fn the_ids_of_the_quic_crate_are_understood() {
    let cipher = Cipher::new();
    assert_eq!(cipher.id(0, MARK, 1), VECTORS[0]);
    assert_eq!(cipher.id(1, MARK, 1), VECTORS[1]);
}

#[test]
fn every_id_of_ours_reaches_the_socket_of_its_shard_without_privileges() {
    without_privileges(|| {
        for at in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let (mut group, cipher) = group(at);
            let port = group[0].local_addr().unwrap().port();
            let to = if at.starts_with("127") {
                "127.0.0.1:0"
            } else {
                "[::1]:0"
            };
            let mut to = address(to);
            to.set_port(port);
            let mut from = UdpSocket::connect(None, to, &without_offloads()).unwrap();
            for number in 0..500_u32 {
                let shard = number as usize % SHARDS;
                let id = cipher.id(shard as u8, MARK, number.wrapping_mul(0x9e37_79b9));
                assert_eq!(place_of(&mut group, &mut from, &short_header(&id)), shard);
                assert_eq!(place_of(&mut group, &mut from, &long_header(&id)), shard);
            }
        }
    });
}

/// QR1-27.
#[test]
fn ids_of_the_longest_length_are_steered_by_their_block() {
    let (mut group, cipher) = group("127.0.0.1:0");
    steering::attach(&group[0], cipher.ids(20), SHARDS as u8).unwrap();
    let mut strangers = BTreeSet::new();
    for number in 0..100 {
        let mut from = sender(&group);
        let shard = number as usize % SHARDS;
        let block = cipher.id(shard as u8, MARK, number);
        let id = [&block[..], &[number as u8; 12]].concat();
        assert_eq!(place_of(&mut group, &mut from, &short_header(&id)), shard);
        assert_eq!(place_of(&mut group, &mut from, &long_header(&id)), shard);
        strangers.insert((shard, place_of(&mut group, &mut from, &long_header(&block))));
        strangers.insert((shard, place_of(&mut group, &mut from, &short_header(&id)[..25])));
    }
    assert!(strangers.len() > SHARDS, "by addresses: {strangers:?}");
}

#[test]
fn a_client_at_a_new_address_keeps_its_shard() {
    let (mut group, cipher) = group("127.0.0.1:0");
    for number in 0..50 {
        let mut from = sender(&group);
        let id = cipher.id(2, MARK, number);
        assert_eq!(place_of(&mut group, &mut from, &short_header(&id)), 2);
    }
}

#[test]
fn foreign_ids_follow_addresses_and_ports() {
    let (mut group, cipher) = group("127.0.0.1:0");
    let mut places = BTreeSet::new();
    for number in 0..40 {
        let mut from = sender(&group);
        let own = cipher.id(3, MARK, number);
        let payloads = [
            short_header(&cipher.id(3, MARK ^ 1, number)),
            long_header(&cipher.id(1, MARK ^ 0x80_0000, number)),
            // A shard that does not exist any more.
            short_header(&cipher.id(SHARDS as u8, MARK, number)),
            short_header(&cipher.id(255, MARK, number)),
            // IDs of other lengths.
            long_header(&[own, own].concat()),
            long_header(&own[..7]),
            long_header(&[]),
            // Too short for QUIC.
            short_header(&own)[..13].to_vec(),
            vec![0x40],
            Vec::new(),
        ];
        let here: BTreeSet<_> = payloads
            .iter()
            .map(|payload| place_of(&mut group, &mut from, payload))
            .collect();
        assert_eq!(here.len(), 1, "one sender, one place: {here:?}");
        places.extend(here);
    }
    assert!(places.len() > 1, "forty senders all went to {places:?}");
}

#[test]
fn a_coalesced_message_goes_where_its_first_datagram_belongs() {
    let (mut group, cipher) = group("127.0.0.1:0");
    let mut from = UdpSocket::connect(None, group[0].local_addr().unwrap(), &options()).unwrap();
    let train = [
        short_header(&cipher.id(1, MARK, 1)),
        short_header(&cipher.id(2, MARK, 2)),
        short_header(&cipher.id(1, MARK, 3)),
    ]
    .concat();
    assert_eq!(
        from.send(&[Outgoing::connected(&train, 100)]).unwrap().segments,
        3
    );
    let mut batch = ReceiveBatch::new(1, 65_536);
    receive_once(&mut group[1], &mut batch);
    assert_eq!((batch.len(), batch.get(0).meta.segments()), (1, 3));
    assert_eq!(batch.get(0).payload, train);
}

#[test]
fn a_socket_that_shares_no_port_cannot_be_steered() {
    let alone = UdpSocket::bind(address("127.0.0.1:0"), &options()).unwrap();
    let error = steering::attach(&alone, Cipher::new().ids(8), 1).unwrap_err();
    assert!(error.to_string().starts_with("cannot steer"), "{error}");
    let mut group = UdpSocket::bind_group(address("127.0.0.1:0"), 1, &options()).unwrap();
    assert_eq!(group.len(), 1);
    let mut from = sender(&group);
    from.send(&[Outgoing::connected(b"hello", 0)]).unwrap();
    assert_eq!(receive(&mut group[0], 1)[0].payload, b"hello");
}
