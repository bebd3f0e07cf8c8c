//! Every payload size passes, on every path: split over several datagrams where one does not hold it.

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::service::Service;
use system_tests::source::{Source, pattern};
use system_tests::topology::CLIENT_V4;
use testbed::wait::wait_until;

use crate::scene::{LISTEN, Scene};

/// Around every edge: empty, below and above one datagram on the paths of these tests, and the largest.
const SIZES: [usize; 27] = [
    0, 1, 2, 3, 63, 64, 100, 1000, 1150, 1180, 1200, 1201, 1220, 1252, 1280, 1350, 1400, 1420, 1452, 1472,
    1500, 4096, 9000, 32_768, 65_000, 65_506, 65_507,
];

fn count(status: &Value, direction: &str, counter: &str) -> u64 {
    status[direction][counter].as_u64().expect("the counter is there")
}

fn all_sizes_pass(scene: &mut Scene) {
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    for (number, size) in SIZES.into_iter().enumerate() {
        source.ask(&pattern(number as u64, size), PROGRAM_LIMIT);
    }
    for status in [scene.client.status(), scene.server.status()] {
        assert!(count(&status, "ingress", "split") > 0, "{status}");
        assert!(count(&status, "egress", "joined") > 0, "{status}");
        assert!(
            count(&status, "ingress", "accepted") >= SIZES.len() as u64,
            "{status}"
        );
    }
    scene.check();
}

#[test]
fn every_payload_size_passes_both_ways_on_an_ethernet_path() {
    require_root!();
    let mut scene = Scene::new(&["udp:7000=127.0.0.1:7000"]);
    let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
    all_sizes_pass(&mut scene);
    for status in [scene.client.status(), scene.server.status()] {
        let unsplit = status["peers"][0]["payload_unsplit"].as_u64();
        assert!(
            unsplit.is_some_and(|bytes| (1150..1472).contains(&bytes)),
            "{status}"
        );
    }
}

#[test]
fn every_payload_size_passes_both_ways_on_a_1280_byte_path() {
    require_root!();
    // UDP payload that the path holds: 1,280 bytes without the headers of IP and UDP.
    for (listen, path_mtu_max) in [(LISTEN, 1252), ("[fd77::1]:4433", 1232)] {
        let mut scene = Scene::with(1280, listen, &["udp:7000=127.0.0.1:7000"]);
        let _echo = Service::udp_echo(&scene.pair.server, "127.0.0.1:7000");
        all_sizes_pass(&mut scene);
        for status in [scene.client.status(), scene.server.status()] {
            let path_mtu = status["peers"][0]["path_mtu"].as_u64();
            let expected = 1200..=path_mtu_max;
            assert!(
                path_mtu.is_some_and(|bytes| expected.contains(&bytes)),
                "{status}"
            );
        }
    }
}

#[test]
fn a_payload_too_large_for_the_path_to_its_target_is_dropped_with_that_reason() {
    require_root!();
    // The target is behind the server's cable, where 1,500 bytes leave 1,472 for the payload.
    let mut scene = Scene::new(&["udp:7000=10.77.0.2:9000"]);
    let _echo = Service::udp_echo(&scene.pair.client, &format!("{CLIENT_V4}:9000"));
    let mut source = Source::new(&scene.pair.client, "127.0.0.1:7000");
    source.ask(&pattern(1, 1472), PROGRAM_LIMIT);
    let reason = |scene: &Scene| scene.server.status()["egress"]["drops"]["target_too_large"].as_u64();
    assert_eq!(reason(&scene), None);
    wait_until("the drop", PROGRAM_LIMIT, || {
        source.send(&pattern(2, 1473));
        source.send(&pattern(3, 30_000));
        reason(&scene).is_some_and(|count| count >= 2)
    });
    // It costs nobody else anything.
    source.ask(&pattern(4, 1472), PROGRAM_LIMIT);
    scene.check();
}
