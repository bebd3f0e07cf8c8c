//! Path MTU: found, capped at either end, and lost again.

use std::time::Duration;

use quic::ConnectionKey;
use quic::limits::{BLACK_HOLE_COOLDOWN, IDLE_TIMEOUT};

use crate::support::{Link, Pair, Setup};

const SECOND: Duration = Duration::from_secs(1);

fn path_mtus(setup: Setup) -> (u16, u16) {
    let (mut pair, client, server) = Pair::connected(setup);
    pair.drive(5 * SECOND);
    let client = pair.client.endpoint.report(client).unwrap().path_mtu;
    (client, pair.server.endpoint.report(server).unwrap().path_mtu)
}

#[test]
fn path_mtu_discovery_reaches_the_interface_where_the_link_carries_it() {
    for ceiling in [1_200, 1_452, 9_000, 65_507] {
        assert_eq!(
            path_mtus(Setup {
                ceiling,
                ..Setup::default()
            }),
            (ceiling, ceiling)
        );
    }
}

#[test]
fn path_mtu_discovery_stops_at_what_the_link_carries() {
    let link = Link {
        mtu: 1_400,
        ..Link::default()
    };
    let (client, server) = path_mtus(Setup {
        ceiling: 9_000,
        link,
        ..Setup::default()
    });
    for found in [client, server] {
        assert!((1_370..=1_400).contains(&found), "{found}");
    }
}

#[test]
fn the_largest_payload_at_either_end_caps_both_directions() {
    let base = Setup {
        ceiling: 9_000,
        ..Setup::default()
    };
    let at_client = Setup {
        client_payload_max: Some(1_452),
        ..base.clone()
    };
    assert_eq!(path_mtus(at_client), (1_452, 1_452));
    let at_server = Setup {
        server_payload_max: Some(1_452),
        ..base.clone()
    };
    assert_eq!(path_mtus(at_server), (1_452, 1_452));
    let smallest = Setup {
        server_payload_max: Some(1_200),
        ..base
    };
    assert_eq!(path_mtus(smallest), (1_200, 1_200));
}

#[test]
fn no_packet_is_longer_than_the_cap_of_the_peer() {
    let setup = Setup {
        ceiling: 9_000,
        server_payload_max: Some(1_452),
        ..Setup::default()
    };
    let (mut pair, client, _) = Pair::connected(setup);
    pair.client.saturate(client, None);
    pair.drive(Duration::from_millis(200));
    assert!(pair.client.sent.iter().all(|sent| sent.segment_size <= 1_452));
    assert!(pair.server.recorder.datagram_count > 100);
}

fn flood(pair: &mut Pair, client: ConnectionKey, duration: Duration) {
    pair.client.saturate(client, None);
    pair.drive(duration);
    pair.client.source.calm();
}

#[test]
fn a_connection_survives_a_path_that_carries_less_than_before() {
    for (ceiling, mtu) in [(1_452, 1_300), (9_000, 1_452), (65_507, 1_280)] {
        let (mut pair, client, _) = Pair::connected(Setup {
            ceiling,
            ..Setup::default()
        });
        flood(&mut pair, client, Duration::from_millis(100));
        pair.client.assert_every_datagram_is_accounted_for();
        pair.link.mtu = mtu;
        for _ in 0..100 {
            flood(&mut pair, client, Duration::from_millis(100));
            // Datagrams of the size that was right until now still come in.
            for _ in 0..10 {
                pair.client
                    .send_datagram(client, vec![1; usize::from(ceiling) - 50]);
            }
            pair.drive(Duration::from_millis(20));
            pair.client.assert_every_datagram_is_accounted_for();
        }
        let report = pair.client.endpoint.report(client).expect("the connection lives");
        assert!(
            usize::from(report.path_mtu) <= mtu,
            "path MTU {} on {mtu}",
            report.path_mtu
        );
        assert!(report.counters.black_holes >= 1);
        let before = pair.server.recorder.datagram_count;
        flood(&mut pair, client, SECOND);
        assert!(
            pair.server.recorder.datagram_count > before + 100,
            "datagrams pass again"
        );
        assert!(
            pair.client.source.too_long > 0,
            "what is too long now was dropped where it is counted"
        );
        pair.client.assert_every_datagram_is_accounted_for();
    }
}

#[test]
fn a_path_that_lost_large_packets_for_a_moment_carries_them_again_within_seconds() {
    let (mut pair, client, _) = Pair::connected(Setup {
        ceiling: 1_452,
        ..Setup::default()
    });
    flood(&mut pair, client, Duration::from_millis(100));
    pair.link.mtu = 1_300;
    let path_mtu = |pair: &mut Pair| pair.client.endpoint.report(client).unwrap().path_mtu;
    let deadline = pair.now + IDLE_TIMEOUT / 2;
    while path_mtu(&mut pair) > 1_200 {
        flood(&mut pair, client, Duration::from_millis(10));
        assert!(pair.now < deadline, "no black hole was seen");
    }
    pair.link.mtu = usize::MAX;
    flood(&mut pair, client, 2 * BLACK_HOLE_COOLDOWN);
    assert_eq!(path_mtu(&mut pair), 1_452);
}
