//! Two peers behind routers meet by the link of a Gramway server, which both have (`gramway up` prints it).
//!
//! ```text
//! cargo run -p peer --example meet -- LINK_FILE                 there: waits, and prints its peer ID
//! cargo run -p peer --example meet -- LINK_FILE PEER_ID         here: connects to it by that alone
//! ```

use std::error::Error;
use std::fs;
use std::str::FromStr;

use peer::{Delivery, Endpoint, EndpointEvent, PeerEvent, PeerId, Rendezvous, SecretKey};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (link, other) = match &arguments[..] {
        [link] => (link, None),
        [link, id] => (link, Some(PeerId::from_str(id)?)),
        _ => return Err("usage: meet LINK_FILE [PEER_ID]".into()),
    };
    let rendezvous = Rendezvous::from_link(fs::read_to_string(link)?.trim())?;
    // Beside the server both the local network and the routers are asked.
    let builder = Endpoint::builder(SecretKey::generate()?).rendezvous(rendezvous);
    match other {
        Some(id) => call(&builder.find_on_lan().bind_anywhere()?, id).await,
        None => listen(&builder.announce_on_lan().map_port().bind_anywhere()?).await,
    }
}

async fn listen(endpoint: &Endpoint) -> Result<(), Box<dyn Error>> {
    println!("{}", endpoint.id());
    let mut events = endpoint.events();
    tokio::spawn(async move {
        while let Some(event) = events.next_event().await {
            match event {
                EndpointEvent::Registered { observed } => println!("registered, seen at {observed}"),
                other => println!("{other:?}"),
            }
        }
    });
    while let Some(peer) = endpoint.accept().await {
        tokio::spawn(async move {
            while let Ok(message) = peer.receive().await {
                drop(peer.send(message.body, Delivery::ordered(0)).await);
            }
        });
    }
    Ok(())
}

async fn call(endpoint: &Endpoint, id: PeerId) -> Result<(), Box<dyn Error>> {
    let peer = endpoint.connect(id, &[]).await?;
    let path = peer.path().ok_or("the connection has ended")?;
    println!("connected at {path}");
    let mut events = peer.events();
    tokio::spawn(async move {
        while let Some(event) = events.next_event().await {
            if let PeerEvent::PathChanged { remote, is_relayed } = event {
                println!("goes on by {remote}, relayed: {is_relayed}");
            }
        }
    });
    drop(peer.send("hello", Delivery::ordered(0)).await?);
    println!("{}", String::from_utf8_lossy(&peer.receive().await?.body));
    // The other end hears of it before the program ends.
    endpoint.close(0, "done");
    endpoint.ended().await;
    Ok(())
}
