//! What a bulk stream gets of lines of all kinds, and what small messages wait beside it. The whole table is printed by
//! `cargo run --release -p peer-proto --example matrix`; the tests leave out the long round trips of the fastest lines.

mod cell;

use std::cmp::Ordering;

use quic::limits::{STREAM_WINDOW_BYTES, STREAM_WINDOW_BYTES_MAX};
use sim::for_each_seed;

use cell::{Cell, Figures};

/// Where the queue is a few packets long and the sender fills it in a turn, small messages are lost with the bulk, and
/// repeated.
fn has_short_queue(cell: Cell) -> bool {
    cell.megabits == 10 && cell.round_trip_ms == 1
}

/// Runs every loss at these round trips.
fn assert_line(megabits: u64, round_trips_ms: &[u64], milliseconds: usize) {
    for &round_trip_ms in round_trips_ms {
        for loss in [0.0, 0.001, 0.01, 0.05] {
            let cell = Cell {
                loss,
                round_trip_ms,
                megabits,
                window_bytes: STREAM_WINDOW_BYTES,
                milliseconds,
            };
            assert_cell(cell);
        }
    }
}

/// Where messages are lost and repeated, the worst of a run are chance: medians of some runs are judged.
fn assert_cell(cell: Cell) {
    let mut runs = Vec::new();
    for_each_seed(if has_short_queue(cell) { 5 } else { 1 }, |seed| {
        let figures = cell.run(seed);
        println!("{cell:?} seed {seed}: {figures:?}");
        runs.push(figures);
    });
    let figures = median(&runs);
    let round_trip = cell.round_trip_ms as usize;
    // Headers take 2.5 % of a packet, and what is lost is sent again. What a gap held back in the first half of the
    // time counts in the second one.
    let share = 0.92 - cell.loss * 1.2;
    assert!(figures.share > share && figures.share < 1.02, "less than {share}");
    let full = 300 + 8 * round_trip;
    assert!(figures.full_ms <= full, "later than {full} ms");
    // Most messages meet no loss: their way, and a queue.
    let median = round_trip * 3 / 5 + 30;
    assert!(figures.p50_ms <= median, "p50 above {median} ms");
    // A message that is lost is repeated after one and a half round trips, where a later one was acknowledged.
    let p99 = match cell.loss {
        0.05.. => round_trip * 7 / 2 + 80,
        0.01.. => round_trip * 5 / 2 + 45,
        _ => round_trip + 20,
    };
    let p99 = if has_short_queue(cell) { p99 + 130 } else { p99 };
    assert!(figures.p99_ms <= p99, "p99 above {p99} ms");
}

/// The median of each figure.
fn median(runs: &[Figures]) -> Figures {
    fn of<T: Copy>(
        runs: &[Figures],
        figure: impl Fn(&Figures) -> T,
        order: impl Fn(&T, &T) -> Ordering,
    ) -> T {
        let mut values: Vec<T> = runs.iter().map(figure).collect();
        values.sort_by(order);
        values[values.len() / 2]
    }
    Figures {
        share: of(runs, |run| run.share, f64::total_cmp),
        full_ms: of(runs, |run| run.full_ms, usize::cmp),
        p50_ms: of(runs, |run| run.p50_ms, usize::cmp),
        p99_ms: of(runs, |run| run.p99_ms, usize::cmp),
    }
}

// One test for each line, so that every core has one.

#[test]
fn a_stream_fills_slow_lines_and_small_messages_pass_it() {
    assert_line(10, &[1, 20, 100, 200], 8_000);
}

#[test]
fn a_stream_fills_usual_lines_and_small_messages_pass_it() {
    assert_line(100, &[1, 20, 100, 200], 8_000);
}

#[test]
fn a_stream_fills_fast_lines_and_small_messages_pass_it() {
    assert_line(1_000, &[1, 20], 2_000);
}

/// With windows of 16 MiB it gets 0.59 of it.
#[test]
fn a_stream_with_a_larger_window_fills_a_fast_line_over_a_long_way() {
    let cell = Cell {
        loss: 0.0,
        round_trip_ms: 200,
        megabits: 1_000,
        window_bytes: STREAM_WINDOW_BYTES_MAX,
        milliseconds: 5_000,
    };
    let figures = cell.run(1);
    println!("{cell:?}: {figures:?}");
    assert!(figures.share > 0.9, "{figures:?}");
}
