//! The matrix of lines in virtual time, as a table: loss, round trip and rate against the bulk stream's share of the
//! line, the time to full speed, and the delay of small messages beside it.
//!
//! `cargo run --release -p peer-proto --example matrix`
#![expect(clippy::unwrap_used, reason = "a failed step ends the measurement")]
#![allow(dead_code, reason = "the world of the tests has more than is used here")]

#[path = "../tests/sim/matrix/cell.rs"]
mod cell;
#[path = "../tests/sim/world.rs"]
mod world;

use cell::Cell;

fn main() {
    println!("Mbit/s  round trip  loss    share  full after   small messages p50 / p99");
    for megabits in [10, 100, 1_000] {
        let milliseconds = if megabits == 1_000 { 4_000 } else { 10_000 };
        for round_trip_ms in [1, 20, 100, 200] {
            for loss in [0.0, 0.001, 0.01, 0.05] {
                let cell = Cell {
                    loss,
                    round_trip_ms,
                    megabits,
                    window_bytes: quic::limits::STREAM_WINDOW_BYTES,
                    milliseconds,
                };
                let figures = cell.run(1);
                println!(
                    "{megabits:>6}  {round_trip_ms:>7} ms  {:>3.1} %  {:>6.2}  {:>7} ms  {:>6} / {} ms",
                    loss * 100.0,
                    figures.share,
                    figures.full_ms,
                    figures.p50_ms,
                    figures.p99_ms,
                );
            }
        }
    }
}
