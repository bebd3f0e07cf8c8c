//! What repair costs for each payload, at both ends of a flow on a path of 5 % loss; beside it, what one block of four
//! payloads with one loss costs the block decoder of the same Reed-Solomon crate.
//!
//! `cargo run --release -p repair --example cost`

use std::hint::black_box;
use std::time::{Duration, Instant};

use reed_solomon_simd::ReedSolomonDecoder;
use repair::{Decoder, Encoder, Field, Plan, SOURCE_HEADER_BYTES};

const PAYLOADS: u32 = 200_000;

fn main() {
    println!(
        "{:>12} {:>6} {:>12} {:>14} {:>14} {:>16}",
        "flow", "bytes", "parity", "send, ns", "receive, ns", "clean path, ns"
    );
    for (per_second, bytes) in [(100, 160), (1_000, 300), (3_000, 1_150), (100_000, 1_150)] {
        let lossy = run(per_second, bytes, 20);
        let clean = run(per_second, bytes, 0);
        println!(
            "{:>10}/s {bytes:>6} {:>10.1} % {:>14} {:>14} {:>16}",
            per_second,
            f64::from(lossy.parity) * 100.0 / f64::from(PAYLOADS),
            (lossy.sending / PAYLOADS).as_nanos(),
            (lossy.receiving / PAYLOADS).as_nanos(),
            (clean.receiving / PAYLOADS).as_nanos(),
        );
    }
    println!("block of 4 + 2, one loss, 166 bytes: {} ns", block().as_nanos());
}

fn block() -> Duration {
    const BLOCKS: u32 = 500;
    let shard = [7; 166];
    let mut decoder = ReedSolomonDecoder::new(4, 2, shard.len()).expect("a small code exists");
    // tidy-allow(pure): a measurement
    let start = Instant::now();
    for _ in 0..BLOCKS {
        for index in 0..3 {
            decoder
                .add_original_shard(index, shard)
                .expect("it is one of four");
        }
        decoder.add_recovery_shard(0, shard).expect("it is one of two");
        black_box(decoder.decode().expect("four of six are there"));
    }
    start.elapsed() / BLOCKS
}

struct Cost {
    parity: u32,
    sending: Duration,
    receiving: Duration,
}

/// Loses every `lost_each`th datagram; none for 0, and the parity then is for nothing.
fn run(per_second: u32, bytes: usize, lost_each: usize) -> Cost {
    let mut field = Field::default();
    let mut plan = Plan::default();
    plan.follow(0.05);
    let mut encoder = Encoder::new(Duration::from_millis(40));
    let mut decoder = Decoder::default();
    let payload = vec![7; bytes];
    let mut cost = Cost {
        parity: 0,
        sending: Duration::ZERO,
        receiving: Duration::ZERO,
    };
    // tidy-allow(pure): a measurement
    let mut now = Instant::now();
    let mut place = 0;
    let mut is_lost = || {
        place += 1;
        // Not in step with parity.
        lost_each > 0 && (place * 7_919_usize).is_multiple_of(lost_each)
    };
    for _ in 0..PAYLOADS {
        now += Duration::from_secs(1) / per_second;
        let mut parity = Vec::new();
        // tidy-allow(pure): a measurement
        let start = Instant::now();
        let header = encoder.push(now, &payload, 2 + SOURCE_HEADER_BYTES + bytes, 1_400, &plan);
        while let Some(made) = encoder.parity(now, 2, &mut field) {
            parity.push([&made.header[..], made.symbol].concat());
        }
        cost.sending += start.elapsed();
        cost.parity += parity.len() as u32;
        let source = [&header[..], &payload].concat();
        let source = (!is_lost()).then_some(source);
        parity.retain(|_| !is_lost());
        // tidy-allow(pure): a measurement
        let start = Instant::now();
        if let Some(source) = &source {
            let _ = black_box(decoder.source(&mut field, source));
        }
        for parity in &parity {
            let _ = black_box(decoder.parity(&mut field, parity));
        }
        while let Some(rebuilt) = decoder.rebuilt() {
            black_box(rebuilt);
        }
        cost.receiving += start.elapsed();
    }
    cost
}
