//! A server that is bound: the endpoint for irpc, and a way to give each client handlers of its own.

use std::path::{Path, PathBuf};

use irpc::Service;
use irpc::rpc::Handler;
use noq::{Endpoint, VarInt};
use tokio::task::JoinSet;

use crate::peer::{PeerCred, peer_cred};

/// A server on a Unix socket. The only maker of endpoints whose packets are not encrypted; see the crate's
/// documentation for what keeps them off the network.
///
/// The socket file goes when the last handle of the endpoint and its connections does.
#[derive(Debug)]
pub struct UdsEndpoint {
    endpoint: Endpoint,
    path: PathBuf,
}

impl UdsEndpoint {
    pub(crate) fn new(endpoint: Endpoint, path: PathBuf) -> Self {
        Self { endpoint, path }
    }

    /// Where it listens; an abstract name has `@` before it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The endpoint as irpc and noq know it.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The endpoint, for [`irpc::rpc::listen`].
    pub fn into_endpoint(self) -> Endpoint {
        self.endpoint
    }

    /// Serves every client with `handler` until the endpoint is closed.
    pub async fn listen<S: Service>(self, handler: Handler<S>) {
        irpc::rpc::listen(self.endpoint, handler).await;
    }

    /// Serves each client with the handler that `handler_for` makes for the process it is, until the endpoint is
    /// closed.
    ///
    /// Handlers that check the caller are made this way: each knows its one caller.
    ///
    /// ```
    /// # use irpc::{channel::oneshot, rpc::RemoteService, rpc_requests, WithChannels};
    /// # use serde::{Deserialize, Serialize};
    /// #[rpc_requests(message = WhoMessage)]
    /// #[derive(Debug, Serialize, Deserialize)]
    /// enum Who {
    ///     #[rpc(tx = oneshot::Sender<u32>)]
    ///     #[wrap(AmI)]
    ///     AmI,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("who");
    /// let endpoint = irpc_uds::UdsListener::new(&path).mode(0o666).bind()?;
    /// tokio::spawn(endpoint.listen_with_peer(|peer| {
    ///     let (requests, mut inbox) = tokio::sync::mpsc::channel(16);
    ///     tokio::spawn(async move {
    ///         while let Some(WhoMessage::AmI(WithChannels { tx, .. })) = inbox.recv().await {
    ///             tx.send(peer.uid).await.ok();
    ///         }
    ///     });
    ///     Who::remote_handler(requests.into())
    /// }));
    /// let client: irpc::Client<Who> = irpc_uds::client(&path).await?;
    /// assert_eq!(client.rpc(AmI).await?, rustix::process::geteuid().as_raw());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn listen_with_peer<S: Service>(self, mut handler_for: impl FnMut(PeerCred) -> Handler<S>) {
        let mut clients = JoinSet::new();
        let mut connected = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = clients.join_next() => {}
                Some(done) = connected.join_next() => {
                    let Ok(Ok(connection)) = done else { continue };
                    // Every connection of this endpoint has a peer as long as it is open.
                    let Some(peer) = peer_cred(&connection) else { continue };
                    let handler = handler_for(peer);
                    clients.spawn(async move {
                        if let Err(error) = irpc::rpc::handle_connection(connection, handler).await {
                            tracing::debug!("the connection of a client ({peer}) has ended: {error}");
                        }
                    });
                }
                incoming = self.endpoint.accept() => {
                    let Some(incoming) = incoming else { break };
                    connected.spawn(async move { incoming.await });
                }
            }
        }
    }

    /// Closes all connections and lets nobody else in. The socket file goes when their last handles do.
    pub fn close(&self) {
        self.endpoint.close(VarInt::from_u32(0), b"the server is closing");
    }
}

impl From<UdsEndpoint> for Endpoint {
    fn from(server: UdsEndpoint) -> Self {
        server.endpoint
    }
}
