//! Key updates in the middle of a connection (RFC 9001 section 6).

use std::time::Duration;

use bytes::BytesMut;
use packet::Ecn;
use quic::{ConnectionKey, Path};

use crate::support::{Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

/// A packet of the client that was kept back, sealed with the keys of its time.
fn kept_back(pair: &mut Pair, client: ConnectionKey) -> Vec<u8> {
    pair.client.send_datagram(client, &[9; 500][..]);
    pair.client.work(pair.now);
    let mut trains = pair.client.take_trains(pair.now);
    assert_eq!(trains.len(), 1);
    trains.remove(0).bytes.to_vec()
}

/// How many datagrams the server takes of it.
fn opened(pair: &mut Pair, packet: &[u8]) -> usize {
    let before = pair.server.recorder.datagrams.len();
    let path = Path {
        remote: pair.client.address,
        local: None,
    };
    let bytes = BytesMut::from(packet);
    pair.server
        .receive(pair.now, path, Ecn::NotEct, bytes, packet.len());
    pair.drive(Duration::ZERO);
    pair.server.recorder.datagrams.len() - before
}

/// RFC 9001 section 6.5: the former keys open what was delayed, for a while.
#[test]
fn either_end_may_update_its_keys_and_what_was_sealed_long_before_opens_no_more() {
    for is_server in [false, true] {
        let (mut pair, client, server) = Pair::connected(Setup::default());
        let update = |pair: &mut Pair| {
            if is_server {
                pair.server.endpoint.update_keys(server);
            } else {
                pair.client.endpoint.update_keys(client);
            }
            // As long as a round trip, so that the former keys are still there.
            pair.client.send_datagram(client, &[1; 100][..]);
            pair.server.send_datagram(server, &[2; 100][..]);
            pair.drive(2 * pair.link.delay);
        };
        let [delayed, old] = [0; 2].map(|_| kept_back(&mut pair, client));
        update(&mut pair);
        assert_eq!(opened(&mut pair, &delayed), 1, "sealed just before the update");
        let before = pair.server.recorder.datagrams.len();
        for _ in 0..4 {
            pair.drive(SECOND);
            update(&mut pair);
        }
        assert_eq!(pair.server.recorder.datagrams.len(), before + 4);
        assert_eq!(opened(&mut pair, &old), 0, "sealed five keys ago");
        // Without updates the same packet opens, however late it comes.
        let late = kept_back(&mut pair, client);
        pair.drive(5 * SECOND);
        assert_eq!(opened(&mut pair, &late), 1);
    }
}
