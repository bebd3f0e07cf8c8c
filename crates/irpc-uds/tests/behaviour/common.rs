//! What the tests share: a service, a server of it, and waiting with a deadline.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use irpc::channel::{mpsc, oneshot};
use irpc::rpc::RemoteService;
use irpc::{WithChannels, rpc_requests};
use irpc_uds::UdsEndpoint;
use serde::{Deserialize, Serialize};

/// Longest wait for anything; far above what it takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of the tests.
#[rpc_requests(message = EchoMessage)]
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Echo {
    /// Sends the bytes back.
    #[rpc(tx = oneshot::Sender<Vec<u8>>)]
    #[wrap(Back)]
    Back(Vec<u8>),
    /// Sends the text back. It is serialized as a whole, other than bytes, each of which is an element.
    #[rpc(tx = oneshot::Sender<String>)]
    #[wrap(TextBack)]
    TextBack(String),
    /// Sends each number back, doubled.
    #[rpc(rx = mpsc::Receiver<u64>, tx = mpsc::Sender<u64>)]
    #[wrap(Doubled)]
    Doubled,
    /// Never answers.
    #[rpc(tx = oneshot::Sender<()>)]
    #[wrap(Never)]
    Never,
}

/// Serves on the current runtime.
pub(crate) fn serve(endpoint: UdsEndpoint) {
    let (requests, mut inbox) = tokio::sync::mpsc::channel(64);
    tokio::spawn(endpoint.listen(Echo::remote_handler(requests.into())));
    tokio::spawn(async move {
        let mut unanswered = Vec::new();
        while let Some(message) = inbox.recv().await {
            match message {
                EchoMessage::Back(WithChannels { inner, tx, .. }) => {
                    tx.send(inner.0).await.ok();
                }
                EchoMessage::TextBack(WithChannels { inner, tx, .. }) => {
                    tx.send(inner.0).await.ok();
                }
                EchoMessage::Doubled(WithChannels { mut rx, tx, .. }) => {
                    tokio::spawn(async move {
                        while let Ok(Some(value)) = rx.recv().await {
                            if tx.send(value * 2).await.is_err() {
                                break;
                            }
                        }
                    });
                }
                EchoMessage::Never(WithChannels { tx, .. }) => unanswered.push(tx),
            }
        }
    });
}

/// Takes connections for ever: short bidirectional streams are echoed, others are held and never read.
pub(crate) async fn hoard(endpoint: noq::Endpoint) {
    let mut held = Vec::new();
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await.expect("a handshake");
        held.push(connection.clone());
        tokio::spawn(async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let bytes = receive.read_to_end(100).await.expect("short");
                send.write_all(&bytes).await.expect("room");
                send.finish().expect("open");
            }
        });
    }
}

/// Waits for `future`, at most [`PATIENCE`].
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {PATIENCE:?}"),
    }
}

/// A directory of its own, and a path in it.
pub(crate) fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("socket");
    (directory, path)
}

/// The names in a directory, sorted.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("readable");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}
