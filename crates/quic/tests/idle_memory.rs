//! Memory of idle connections that showed no token; alone in its program, so that nothing else is measured.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

#[path = "support/memory.rs"]
mod memory;
#[allow(dead_code, unused_imports, reason = "the other test program uses the rest")]
mod support;

use std::time::Duration;

use memory::resident_bytes;
use support::{Link, Pair, Setup};

/// Connections that wait for their token.
const CONNECTIONS: usize = 700;

/// Resident bytes of one of them at the server, at most: 17,589 measured, and 20 % for others' allocators.
const BYTES_PER_CONNECTION_MAX: usize = 21 << 10;

/// Handshakes at once: fewer than one prefix may have without a token.
const BATCH: usize = 50;

/// Connects one batch from a client of its own, whose memory the next client uses again.
fn connect_batch(pair: &mut Pair, number: usize) {
    pair.replace_client(&format!("10.0.{}.1:4000", number % 250), number as u8);
    for _ in 0..BATCH {
        pair.connect();
    }
    // Long enough for acknowledgements and the search for the path MTU.
    pair.drive(Duration::from_millis(60));
    assert_eq!(pair.client.connected.len(), BATCH);
    pair.server.sent.clear();
}

#[test]
fn idle_connections_without_a_token_stay_under_the_named_memory_bound() {
    let mut pair = Pair::new(Setup {
        link: Link::with_delay(Duration::from_micros(100)),
        ..Setup::default()
    });
    pair.server.authenticates = false;
    // What allocator, TLS and the test's own tables need once is not counted.
    connect_batch(&mut pair, 0);
    let before = resident_bytes();
    for number in 1..=CONNECTIONS / BATCH {
        connect_batch(&mut pair, number);
    }
    let after = resident_bytes();
    assert_eq!(
        pair.server.endpoint.open_connections(),
        CONNECTIONS + BATCH,
        "all of them are still there"
    );
    assert!(pair.server.closed.is_empty());
    let each = after.saturating_sub(before) / CONNECTIONS;
    println!(
        "{each} bytes per idle connection without a token, {} MiB for {CONNECTIONS}",
        (after - before) >> 20
    );
    assert!(each <= BYTES_PER_CONNECTION_MAX, "{each} bytes per connection");
}
