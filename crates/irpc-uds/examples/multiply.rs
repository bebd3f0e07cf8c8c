//! Numbers go one way and their multiples the other, in one stream: `cargo run -p irpc-uds --example multiply`.

use std::error::Error;

use irpc::channel::mpsc;
use irpc::rpc::RemoteService;
use irpc::{Client, WithChannels, rpc_requests};
use serde::{Deserialize, Serialize};

#[rpc_requests(message = ComputeMessage)]
#[derive(Debug, Serialize, Deserialize)]
enum Compute {
    #[rpc(rx = mpsc::Receiver<u64>, tx = mpsc::Sender<u64>)]
    #[wrap(Multiply)]
    Multiply(u64),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("compute");
    let endpoint = irpc_uds::server_endpoint(&path)?;
    let (requests, mut inbox) = tokio::sync::mpsc::channel(16);
    tokio::spawn(irpc::rpc::listen(
        endpoint,
        Compute::remote_handler(requests.into()),
    ));
    tokio::spawn(async move {
        while let Some(ComputeMessage::Multiply(WithChannels {
            inner, mut rx, tx, ..
        })) = inbox.recv().await
        {
            // A task for each stream, so that a slow one holds up no other.
            tokio::spawn(async move {
                while let Ok(Some(number)) = rx.recv().await {
                    if tx.send(number * inner.0).await.is_err() {
                        break;
                    }
                }
            });
        }
    });

    let client: Client<Compute> = irpc_uds::client(&path).await?;
    let (numbers, mut multiples) = client.bidi_streaming(Multiply(3), 16, 16).await?;
    let writer = tokio::spawn(async move {
        for number in 1..=5 {
            numbers.send(number).await.expect("the server reads");
        }
    });
    let mut received = Vec::new();
    while let Some(multiple) = multiples.recv().await? {
        received.push(multiple);
    }
    writer.await?;
    println!("{received:?}");
    assert_eq!(received, [3, 6, 9, 12, 15]);
    Ok(())
}
