//! Chat by keys: whoever is named may join, and every line goes to all who are there.
//!
//! ```text
//! cargo run -p peer --example chat -- KEY_FILE 127.0.0.1:4000 [PEER_ID 127.0.0.1:4001]…
//! ```
//!
//! The first run makes the key file and prints the peer ID; give it to the others.

use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use peer::{Delivery, Endpoint, Peer, PeerId, SecretKey};
use tokio::io::{AsyncBufReadExt, BufReader};

type Room = Arc<Mutex<HashMap<PeerId, Peer>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [key_file, address, others @ ..] = &arguments[..] else {
        return Err("usage: chat KEY_FILE ADDRESS:PORT [PEER_ID ADDRESS:PORT]…".into());
    };
    let friends: Vec<(PeerId, SocketAddr)> = others
        .chunks_exact(2)
        .map(|pair| Ok((pair[0].parse()?, pair[1].parse()?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let key = SecretKey::load_or_create(key_file)?;
    let mut builder = Endpoint::builder(key);
    if !friends.is_empty() {
        builder = builder.allow(friends.iter().map(|(id, _)| *id));
    }
    let endpoint = builder.bind(address.parse()?)?;
    println!("you are {} at {}", endpoint.id(), endpoint.local_addr());

    let room = Room::default();
    for (id, address) in friends {
        // Who is not there yet will connect to us.
        if let Ok(peer) = endpoint.connect(id, &[address]).await {
            enter(&room, peer);
        }
    }
    tokio::spawn({
        let (endpoint, room) = (endpoint.clone(), Arc::clone(&room));
        async move {
            while let Some(peer) = endpoint.accept().await {
                enter(&room, peer);
            }
        }
    });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let present: Vec<Peer> = members(&room).values().cloned().collect();
        for peer in present {
            // Who has left is told of by its reader.
            drop(peer.send(line.clone(), Delivery::ordered(0)).await);
        }
    }
    endpoint.close(0, "bye");
    endpoint.ended().await;
    Ok(())
}

fn members(room: &Room) -> std::sync::MutexGuard<'_, HashMap<PeerId, Peer>> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows what the peer says until it leaves.
fn enter(room: &Room, peer: Peer) {
    let room = Arc::clone(room);
    let name = peer.id().to_string()[..8].to_owned();
    println!("{name} is here");
    members(&room).insert(peer.id(), peer.clone());
    tokio::spawn(async move {
        while let Ok(message) = peer.receive().await {
            println!("{name}: {}", String::from_utf8_lossy(&message.body));
        }
        println!("{name} left: {}", peer.closed().await);
        let mut members = members(&room);
        // Who has come back meanwhile is here by another connection.
        if members.get(&peer.id()) == Some(&peer) {
            members.remove(&peer.id());
        }
    });
}
