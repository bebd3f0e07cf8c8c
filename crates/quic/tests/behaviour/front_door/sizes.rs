//! Lengths that a watcher sees: of the client's first datagrams, and of connection IDs.

use std::time::Duration;

use quic::IdLength;

use super::wire::Initial;
use super::world::{COVER, Door};
use crate::support::Setup;

/// QR1-3.
#[test]
fn a_client_begins_as_a_browser_does() {
    let mut door = Door::new(&COVER);
    door.connect();
    door.arrival();
    let datagrams = Door::datagrams(&door.pair.client);
    let sizes: Vec<usize> = datagrams.iter().map(Vec::len).collect();
    assert_eq!(sizes, [1_250, 1_250]);
    for datagram in datagrams {
        let initial = Initial::open(&datagram).unwrap();
        assert_eq!((initial.destination_id.len(), initial.source_id.len()), (8, 0));
        assert!(initial.token.is_empty());
    }
}

/// QR1-3.
#[test]
fn over_ipv6_a_clients_first_datagrams_are_twenty_bytes_shorter() {
    let mut door = Door::new(&COVER);
    let (remote, parameters) = ("[2001:db8::1]:443".parse().unwrap(), door.client_parameters());
    let client = &mut door.pair.client;
    client
        .endpoint
        .connect(door.pair.now, remote, "localhost", &parameters, 1_432)
        .unwrap();
    client.work(door.pair.now);
    let trains = client.take_trains(door.pair.now);
    let sizes = trains
        .iter()
        .flat_map(|train| train.bytes.chunks(train.segment_size).map(<[u8]>::len));
    assert!(sizes.eq([1_230, 1_230]));
}

/// QR1-27.
#[test]
fn a_server_has_ids_of_the_covers_length_from_its_first_packet_on() {
    for bytes in [8, 13, 20] {
        let mut door = Door::with(
            &COVER,
            Setup {
                server_ids: IdLength::new(bytes).unwrap(),
                ..Setup::default()
            },
        );
        let (client, _) = door.meet();
        let hello = Initial::open(&Door::datagrams(&door.pair.client)[0]).unwrap();
        let answers = Door::datagrams(&door.pair.server);
        let first = Initial::of_server(&answers[0], &hello.destination_id).unwrap();
        assert_eq!((first.destination_id.len(), first.source_id.len()), (0, bytes));
        door.pair.client.captured = Some(Vec::new());
        door.pair.client.send_datagram(client, &[5; 100][..]);
        door.pair.drive(Duration::from_secs(1));
        assert_eq!(door.pair.server.recorder.datagrams.len(), 1);
        let packet = Door::datagrams(&door.pair.client).swap_remove(0);
        let key = quic::SteerKey::derive(&[7; 64], IdLength::new(bytes).unwrap());
        assert_eq!(quic::shard_of(&key, &packet), Some(0));
    }
}
