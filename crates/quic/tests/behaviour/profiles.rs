//! The `fixed` profile keeps its rate whatever happens; the others mark their packets ECN-capable.

use std::time::{Duration, Instant};

use packet::Ecn;
use quic::{Direction, Profile};

use crate::support::{Link, Pair, Sent, Setup};

const WINDOW: Duration = Duration::from_millis(100);

/// Most bytes of UDP payload that left within any window that begins at or after `from`.
fn most_in_a_window(sent: &[Sent], from: Instant) -> usize {
    let sent: Vec<&Sent> = sent.iter().filter(|sent| sent.at >= from).collect();
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for train in &sent {
        sum += train.bytes;
        while train.at - sent[first].at >= WINDOW {
            sum -= sent[first].bytes;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Sends for three seconds at most at `bits_per_second`: bits of the fullest window per second, and of the last two
/// seconds on average.
fn fixed_rate(
    bits_per_second: u64,
    link: Link,
    streams: bool,
    size: Option<usize>,
    ceiling: u16,
) -> (u64, u64) {
    let profile = Profile::Fixed { bits_per_second };
    let (mut pair, client, _) = Pair::connected(Setup {
        profile,
        link,
        ceiling,
        ..Setup::default()
    });
    if streams {
        let stream = pair
            .client
            .endpoint
            .open_stream(client, Direction::Bidirectional)
            .unwrap();
        pair.client.bulk = Some((client, stream));
    }
    pair.client.saturate(client, size);
    pair.drive(Duration::from_secs(1));
    let warm = pair.now;
    pair.drive(Duration::from_secs(2));
    assert!(
        pair.client
            .sent
            .iter()
            .chain(&pair.server.sent)
            .all(|sent| sent.ecn == Ecn::NotEct)
    );
    pair.client.assert_every_datagram_is_accounted_for();
    let total: usize = pair
        .client
        .sent
        .iter()
        .filter(|sent| sent.at >= warm)
        .map(|sent| sent.bytes)
        .sum();
    (
        most_in_a_window(&pair.client.sent, warm) as u64 * 80,
        total as u64 * 4,
    )
}

#[test]
fn the_fixed_profile_never_exceeds_its_rate_in_any_tenth_of_a_second_and_reaches_it() {
    for rate in [2_000_000, 20_000_000, 200_000_000] {
        for round_trip in [100, 2_000, 40_000] {
            for streams in [false, true] {
                let link = Link::with_delay(Duration::from_micros(round_trip / 2));
                let (most, average) = fixed_rate(rate, link, streams, Some(1_150), 1_452);
                assert!(most <= rate, "{most} bit/s of {rate} at {round_trip} µs");
                assert!(
                    average * 100 >= rate * 90,
                    "{average} bit/s of {rate} at {round_trip} µs"
                );
            }
        }
    }
}

#[test]
fn the_fixed_profile_keeps_its_rate_over_a_path_that_loses_a_tenth() {
    let rate = 20_000_000;
    let link = Link {
        loss_per_mille: [100, 0],
        ..Link::with_delay(Duration::from_millis(10))
    };
    let (most, average) = fixed_rate(rate, link, true, None, 1_452);
    assert!(most <= rate, "{most} bit/s");
    assert!(average * 100 >= rate * 90, "{average} bit/s");
}

#[test]
fn the_fixed_profile_works_with_packets_of_any_size() {
    for ceiling in [1_200, 9_000, 65_507] {
        let rate = 50_000_000;
        let (most, average) = fixed_rate(
            rate,
            Link::with_delay(Duration::from_millis(1)),
            false,
            None,
            ceiling,
        );
        assert!(most <= rate, "{most} bit/s with {ceiling}");
        assert!(average * 100 >= rate * 80, "{average} bit/s with {ceiling}");
    }
}

#[test]
fn the_adaptive_profiles_mark_their_packets_as_ecn_capable() {
    for profile in [Profile::Throughput, Profile::Latency] {
        let (mut pair, client, _) = Pair::connected(Setup {
            profile,
            ..Setup::default()
        });
        pair.client.sent.clear();
        pair.client.saturate(client, None);
        pair.drive(Duration::from_millis(50));
        assert!(
            pair.client.sent.iter().all(|sent| sent.ecn == Ecn::Ect0),
            "{profile:?}"
        );
    }
}

#[test]
fn a_window_does_not_grow_while_a_slow_source_leaves_it_unused() {
    let (mut pair, client, _) = Pair::connected(Setup::default());
    for _ in 0..5_000 {
        for _ in 0..4 {
            pair.client.send_datagram(client, vec![1; 1_150]);
        }
        pair.drive(Duration::from_millis(1));
    }
    let window = pair.client.endpoint.report(client).unwrap().congestion_window;
    // What datagrams may have in flight before the path was ever full.
    assert!(window <= 1 << 20, "{window} bytes");
}
