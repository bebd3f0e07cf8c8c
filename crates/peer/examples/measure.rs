//! Measures two endpoints of this machine, over loopback.
//!
//! ```text
//! cargo run --release -p peer --example measure
//! ```
//!
//! Both ends run in this process, each with its thread, beside the runtime's. Each row is the median of five runs of
//! a second.

use std::error::Error;
use std::time::{Duration, Instant};

use peer::{Bytes, Delivery, Endpoint, Peer, SecretKey};

const RUNS: usize = 5;
const RUN: Duration = Duration::from_secs(1);

/// Answers that the row of round trips waits for.
const ROUND_TRIPS: usize = 2_000;

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let receiver = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let sender = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let to_receiver = sender.connect(receiver.id(), &[receiver.local_addr()]).await?;
    let from_sender = receiver.accept().await.ok_or("the endpoint was closed")?;
    // The search of the path MTU is over, and the rate is known.
    messages(&to_receiver, &from_sender, 1_024, Delivery::unordered()).await?;

    let reliable = Delivery::unordered();
    for (name, bytes, delivery) in [
        ("1 KiB messages, reliable", 1_024, reliable),
        ("32 KiB messages, reliable", 32 << 10, reliable),
        ("1,150 B messages, unreliable", 1_150, reliable.unreliable()),
    ] {
        let mut rates = Vec::new();
        for _ in 0..RUNS {
            rates.push(messages(&to_receiver, &from_sender, bytes, delivery).await?);
        }
        show(name, &mut rates, bytes);
    }
    let mut rates = Vec::new();
    for _ in 0..RUNS {
        rates.push(bulk(&to_receiver, &from_sender).await?);
    }
    show("bulk stream", &mut rates, 1);
    round_trips(&to_receiver, &from_sender).await
}

/// Delivered a second, and what it is in bits.
fn show(name: &str, rates: &mut [f64], bytes: usize) {
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    let megabits = median * bytes as f64 * 8.0 / 1e6;
    println!("{name:30} {median:>12.0} /s {megabits:>8.0} Mbit/s");
}

/// Messages that arrive in a second, while as many are sent as may be under way.
async fn messages(to: &Peer, from: &Peer, bytes: usize, delivery: Delivery) -> Result<f64, Failed> {
    let body = Bytes::from(vec![7; bytes]);
    let start = Instant::now();
    let sending = tokio::spawn({
        let to = to.clone();
        async move {
            let mut last = None;
            while start.elapsed() < RUN {
                last = Some(to.send(body.clone(), delivery).await?);
            }
            // Nothing is left over for the next run.
            if let Some(last) = last {
                last.await;
            }
            Ok::<_, Failed>(())
        }
    });
    let (mut batch, mut count) = (Vec::new(), 0);
    while start.elapsed() < RUN {
        let waiting = tokio::time::timeout(RUN, from.receive_many(&mut batch, 256));
        if let Ok(received) = waiting.await {
            count += received?;
        }
        batch.clear();
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    while !sending.is_finished() {
        let rest = from.receive_many(&mut batch, 256);
        drop(tokio::time::timeout(Duration::from_millis(10), rest).await);
        batch.clear();
    }
    sending.await??;
    Ok(rate)
}

/// Bytes of a stream that arrive in a second.
async fn bulk(to: &Peer, from: &Peer) -> Result<f64, Failed> {
    let chunk = Bytes::from(vec![7; 256 << 10]);
    let start = Instant::now();
    let mut sending = to.open_one_way(0).await?;
    let writer = tokio::spawn(async move {
        while start.elapsed() < RUN {
            sending.write_chunk(chunk.clone()).await?;
        }
        sending.finish();
        Ok::<_, Failed>(())
    });
    let mut receiving = from.accept_one_way().await?;
    let mut bytes = 0;
    while let Some(chunk) = receiving.read_chunk(usize::MAX).await? {
        bytes += chunk.len();
    }
    writer.await??;
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

/// How long 64 bytes and their answer take while nothing else happens.
async fn round_trips(to: &Peer, from: &Peer) -> Result<(), Failed> {
    tokio::time::sleep(RUN / 4).await;
    let echo = tokio::spawn({
        let from = from.clone();
        async move {
            while let Ok(message) = from.receive().await {
                drop(from.send(message.body, Delivery::unordered()).await?);
            }
            Ok::<_, Failed>(())
        }
    });
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        drop(to.send(vec![7; 64], Delivery::unordered()).await?);
        to.receive().await?;
        times.push(start.elapsed());
    }
    echo.abort();
    times.sort();
    let at = |share: usize| times[times.len() * share / 100];
    println!(
        "round trip of 64 B             p50 {:?}, p99 {:?}",
        at(50),
        at(99)
    );
    Ok(())
}
