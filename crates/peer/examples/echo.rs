//! Echo: sends back every message, in the order of its channel.
//!
//! ```text
//! cargo run -p peer --example echo -- listen 127.0.0.1:4000
//! cargo run -p peer --example echo -- send PEER_ID 127.0.0.1:4000 hello world
//! ```

use std::error::Error;

use peer::{Delivery, Endpoint, PeerId, SecretKey};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", address] => listen(address).await,
        ["send", id, address, ref words @ ..] => send(id, address, words).await,
        _ => Err("usage: echo listen ADDRESS:PORT | echo send PEER_ID ADDRESS:PORT WORD…".into()),
    }
}

async fn listen(address: &str) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::bind(SecretKey::generate()?, address.parse()?)?;
    println!("{} at {}", endpoint.id(), endpoint.local_addr());
    while let Some(peer) = endpoint.accept().await {
        tokio::spawn(async move {
            while let Ok(message) = peer.receive().await {
                if peer.send(message.body, Delivery::ordered(0)).await.is_err() {
                    break;
                }
            }
            println!("{} left: {}", peer.id(), peer.closed().await);
        });
    }
    Ok(())
}

async fn send(id: &str, address: &str, words: &[&str]) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::bind(SecretKey::generate()?, "[::]:0".parse()?)?;
    let peer = endpoint
        .connect(id.parse::<PeerId>()?, &[address.parse()?])
        .await?;
    for word in words {
        drop(peer.send((*word).to_owned(), Delivery::ordered(0)).await?);
    }
    for _ in words {
        println!("{}", String::from_utf8_lossy(&peer.receive().await?.body));
    }
    // The listener hears of it before the program ends.
    endpoint.close(0, "done");
    endpoint.ended().await;
    Ok(())
}
