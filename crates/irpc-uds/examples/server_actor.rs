//! A key-value server as an actor, and its client: `cargo run -p irpc-uds --example server_actor`.
//!
//! With `serve PATH` or `call PATH` it is one side only, for two terminals.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

use irpc::channel::oneshot;
use irpc::rpc::RemoteService;
use irpc::{Client, WithChannels, rpc_requests};
use serde::{Deserialize, Serialize};

#[rpc_requests(message = StoreMessage)]
#[derive(Debug, Serialize, Deserialize)]
enum Store {
    #[rpc(tx = oneshot::Sender<Option<String>>)]
    #[wrap(Get)]
    Get(String),
    #[rpc(tx = oneshot::Sender<Option<String>>)]
    #[wrap(Set)]
    Set(String, String),
}

/// Owns the entries; requests come one after the other, so nothing is locked.
async fn actor(mut inbox: tokio::sync::mpsc::Receiver<StoreMessage>) {
    let mut entries = BTreeMap::new();
    while let Some(message) = inbox.recv().await {
        // A caller that has gone needs no answer.
        match message {
            StoreMessage::Get(WithChannels { inner, tx, .. }) => {
                tx.send(entries.get(&inner.0).cloned()).await.ok();
            }
            StoreMessage::Set(WithChannels { inner, tx, .. }) => {
                tx.send(entries.insert(inner.0, inner.1)).await.ok();
            }
        }
    }
}

async fn serve(path: &Path) -> Result<(), Box<dyn Error>> {
    let endpoint = irpc_uds::server_endpoint(path)?;
    let (requests, inbox) = tokio::sync::mpsc::channel(64);
    tokio::spawn(actor(inbox));
    irpc::rpc::listen(endpoint, Store::remote_handler(requests.into())).await;
    Ok(())
}

async fn call(path: &Path) -> Result<(), Box<dyn Error>> {
    let store: Client<Store> = irpc_uds::client(path).await?;
    store.rpc(Set("colour".into(), "green".into())).await?;
    let replaced = store.rpc(Set("colour".into(), "blue".into())).await?;
    let value = store.rpc(Get("colour".into())).await?;
    println!("colour was {replaced:?} and is {value:?}");
    assert_eq!(
        (replaced.as_deref(), value.as_deref()),
        (Some("green"), Some("blue"))
    );
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", path] => serve(Path::new(path)).await,
        ["call", path] => call(Path::new(path)).await,
        [] => {
            let directory = tempfile::tempdir()?;
            let path = directory.path().join("store");
            let endpoint = irpc_uds::server_endpoint(&path)?;
            let (requests, inbox) = tokio::sync::mpsc::channel(64);
            tokio::spawn(actor(inbox));
            tokio::spawn(irpc::rpc::listen(
                endpoint,
                Store::remote_handler(requests.into()),
            ));
            call(&path).await
        }
        _ => Err("usage: server_actor [serve PATH | call PATH]".into()),
    }
}
