//! The matrix of cells: every line, round trip, loss and queue that the benchmark `paths` measures too.
//!
//! A run of the test command gives each cell one seed; `GRAMWAY_SIM_SEEDS` gives each more.

use std::time::Duration;

use sim::for_each_seed;

use crate::cell::{Cell, bulk, datagrams};
use crate::world::Way;

/// The cells of a line.
fn cells(megabits: u64) -> Vec<Cell> {
    let mut cells = Vec::new();
    for round_trip_ms in [20, 100, 250] {
        for loss in [0.0, 0.1, 1.0, 3.0, 5.0, 10.0] {
            for queue in [0.25, 1.0, 4.0] {
                cells.push(Cell {
                    megabits,
                    round_trip_ms,
                    loss,
                    queue,
                });
            }
        }
    }
    cells
}

/// Runs `check` for every cell of a line, with its own seeds, up and down in turns.
fn for_each_cell(megabits: u64, check: impl Fn(Cell, u64, Way)) {
    for (index, cell) in cells(megabits).into_iter().enumerate() {
        for_each_seed(1, |seed| {
            let way = if (index as u64 + seed).is_multiple_of(2) {
                Way::Up
            } else {
                Way::Down
            };
            check(cell, seed * 1_000 + index as u64, way);
        });
    }
}

// One test for each line, so that every core has one.

#[test]
fn a_stream_fills_every_path_of_a_fast_line_and_makes_no_long_queue() {
    assert_streams_fill_their_paths(100);
}

#[test]
fn a_stream_fills_every_path_of_a_slow_line_and_makes_no_long_queue() {
    assert_streams_fill_their_paths(20);
}

fn assert_streams_fill_their_paths(megabits: u64) {
    for_each_cell(megabits, |cell, seed, way| {
        let bulk = bulk(cell, seed, way);
        println!("{cell:>16} seed {seed:6} {way:?}: {bulk:?}");
        let share = if cell.loss > 5.0 { 0.6 } else { 0.75 };
        assert!(bulk.share >= share, "{cell} seed {seed} {way:?}: {bulk:?}");
        let queue = cell.round_trip() / 2 + Duration::from_millis(3);
        assert!(bulk.queue_p95 <= queue, "{cell} seed {seed} {way:?}: {bulk:?}");
    });
}

#[test]
fn datagrams_at_a_third_of_the_line_lose_what_the_line_loses_and_no_more() {
    let check = |cell: Cell, seed, way| {
        let lost = datagrams(cell, seed, way);
        println!("{cell:>16} seed {seed:6} {way:?}: {lost:?}");
        assert!(
            lost.beyond_the_link <= 0.005,
            "{cell} seed {seed} {way:?}: {lost:?}"
        );
        assert!(
            lost.by_the_sender <= 0.005,
            "{cell} seed {seed} {way:?}: {lost:?}"
        );
    };
    for megabits in [100, 20] {
        for_each_cell(megabits, check);
    }
}
