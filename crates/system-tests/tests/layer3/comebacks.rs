//! A client or a server comes back, again and again: nothing wears off.

use system_tests::{require_program, require_root};

use super::*;

/// How often either end comes back.
const COMEBACKS: usize = 20;

/// A client's connections; all but the first begin when the device has its routes.
const CONNECTIONS: &str = "2";

/// What a TUN carries over 1,500 bytes of IPv4.
const WHOLE_MTU: u64 = 1_432;

/// Waits until each of the client's connections was made again so often and has found how much its path carries, and
/// the device has that MTU.
fn wait_for_whole_mtu(tunnel: &Tunnel, reconnects: usize) {
    let mut seen = Value::Null;
    let found = holds_within(PATH_LIMIT, || {
        // A client learns of a restart when it sends something.
        ping(&tunnel.machines.first, SERVER_V4, &["-W", "0.1"]);
        seen = tunnel.client.status();
        let mut stripes = seen["shards"].as_array().unwrap().iter();
        let is_whole = |shard: &Value| {
            let path_mtu = shard["stripe"]["path_mtu"].as_u64();
            shard["reconnects"].as_u64() >= Some(reconnects as u64)
                && path_mtu.is_some_and(|bytes| bytes >= WHOLE_MTU)
        };
        stripes.all(is_whole) && mtu(&tunnel.machines.first) == WHOLE_MTU
    });
    assert!(found, "TUN {}: {:#}", mtu(&tunnel.machines.first), seen["shards"]);
}

#[test]
fn the_mtu_is_the_whole_one_after_each_of_twenty_reconnects_and_twenty_starts() {
    require_root!();
    require_program!("ping");
    let mut tunnel = Tunnel::new(
        1500,
        &["--nat", "--connections", CONNECTIONS],
        &["--default-route", "--connections", CONNECTIONS],
    );
    wait_for_whole_mtu(&tunnel, 0);
    for reconnects in 1..=COMEBACKS {
        tunnel.server.start_again();
        wait_for_whole_mtu(&tunnel, reconnects);
    }
    for _ in 0..COMEBACKS {
        tunnel.client.start_again();
        wait_for_whole_mtu(&tunnel, 0);
    }
}
