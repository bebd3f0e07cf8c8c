//! A handler that answers by who asks: `cargo run -p irpc-uds --example check_uid`.
//!
//! Everyone may connect (mode 0666) and read; only root and the server's own user may change anything.

use std::error::Error;

use irpc::channel::oneshot;
use irpc::rpc::RemoteService;
use irpc::{Client, WithChannels, rpc_requests};
use irpc_uds::UdsListener;
use serde::{Deserialize, Serialize};

#[rpc_requests(message = SwitchMessage)]
#[derive(Debug, Serialize, Deserialize)]
enum Switch {
    #[rpc(tx = oneshot::Sender<Result<bool, String>>)]
    #[wrap(Turn)]
    Turn(bool),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("switch");
    let own_uid = rustix::process::geteuid().as_raw();
    let endpoint = UdsListener::new(&path).mode(0o666).bind()?;
    tokio::spawn(endpoint.listen_with_peer(move |peer| {
        let (requests, mut inbox) = tokio::sync::mpsc::channel(16);
        tokio::spawn(async move {
            while let Some(SwitchMessage::Turn(WithChannels { inner, tx, .. })) = inbox.recv().await {
                let allowed = peer.uid == 0 || peer.uid == own_uid;
                let answer = if allowed {
                    Ok(inner.0)
                } else {
                    Err(format!("{peer} may not turn the switch"))
                };
                tx.send(answer).await.ok();
            }
        });
        Switch::remote_handler(requests.into())
    }));

    let client: Client<Switch> = irpc_uds::client(&path).await?;
    println!("turned on: {:?}", client.rpc(Turn(true)).await?);
    Ok(())
}
