//! Telemetry: a sensor publishes two gauges far more often than its reader looks, who always sees the newest values.
//!
//! ```text
//! cargo run -p peer --example telemetry
//! ```

use std::error::Error;
use std::time::Duration;

use peer::{Delivery, Endpoint, Order, Outcome, SecretKey};

const TEMPERATURE: u32 = 1;
const PRESSURE: u32 = 2;

/// Values of each gauge.
const VALUES: u32 = 5_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let reader = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let sensor = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
    let to_reader = sensor.connect(reader.id(), &[reader.local_addr()]).await?;
    let from_sensor = reader.accept().await.ok_or("the endpoint was closed")?;

    let publishing = tokio::spawn(async move {
        let mut last = None;
        for value in 0..VALUES {
            for key in [TEMPERATURE, PRESSURE] {
                let body = value.to_be_bytes().to_vec();
                last = Some(to_reader.send(body, Delivery::latest(key)).await?);
            }
            tokio::task::yield_now().await;
        }
        let outcome = match last {
            Some(ticket) => ticket.await,
            None => Outcome::Acked,
        };
        println!("the last value: {outcome:?}");
        Ok::<_, peer::SendError>(to_reader)
    });

    let (mut newest, mut messages, mut seen) = ([None; 2], Vec::new(), 0);
    while newest != [Some(VALUES - 1); 2] {
        seen += from_sensor.receive_many(&mut messages, 100).await?;
        for message in messages.drain(..) {
            let value = u32::from_be_bytes(message.body[..].try_into()?);
            match message.order {
                Order::Latest(TEMPERATURE) => newest[0] = Some(value),
                Order::Latest(PRESSURE) => newest[1] = Some(value),
                _ => {}
            }
        }
        // A display draws no faster.
        tokio::time::sleep(Duration::from_millis(16)).await;
    }
    println!(
        "read {seen} of {} values, the newest of each gauge last",
        2 * VALUES
    );
    publishing.await??;
    Ok(())
}
