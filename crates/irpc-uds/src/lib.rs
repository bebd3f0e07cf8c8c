//! QUIC over Unix sockets for [irpc]: calls between processes of one machine with file permissions and the caller's
//! identity, without ports and certificates, and with the streams and flow control of QUIC.
//!
//! The socket is SOCK_SEQPACKET on Linux and SOCK_STREAM with a length prefix on other Unix systems; elsewhere this
//! library is empty. irpc needs no change: a server is a [`noq::Endpoint`], a client an [`irpc::Client`].
//!
//! - [`server_endpoint`], [`connect`] and [`client`] are all that a program needs that trusts the socket file's mode,
//!   0600.
//! - [`UdsListener`] sets mode, owner, policy and bounds before it binds; [`UdsConnector`] those of a client.
//! - [`peer_cred`] tells a handler who calls.
//!
//! Packets are neither encrypted nor congestion controlled, since no network lies between. Only [`UdsEndpoint`] and
//! [`UdsConnector`] make such endpoints, with a QUIC version of their own and addresses that no network routes, and
//! these refuse to be rebound to a UDP socket.
//!
//! ```
//! use irpc::channel::oneshot;
//! use irpc::rpc::RemoteService;
//! use irpc::{WithChannels, rpc_requests};
//! use serde::{Deserialize, Serialize};
//!
//! #[rpc_requests(message = ClockMessage)]
//! #[derive(Debug, Serialize, Deserialize)]
//! enum Clock {
//!     #[rpc(tx = oneshot::Sender<u64>)]
//!     #[wrap(Add)]
//!     Add(u64, u64),
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("clock");
//! let endpoint = irpc_uds::server_endpoint(&path)?;
//! let (requests, mut inbox) = tokio::sync::mpsc::channel(64);
//! tokio::spawn(irpc::rpc::listen(endpoint, Clock::remote_handler(requests.into())));
//! tokio::spawn(async move {
//!     while let Some(ClockMessage::Add(WithChannels { inner, tx, .. })) = inbox.recv().await {
//!         tx.send(inner.0 + inner.1).await.ok();
//!     }
//! });
//!
//! let clock: irpc::Client<Clock> = irpc_uds::client(&path).await?;
//! assert_eq!(clock.rpc(Add(40, 2)).await?, 42);
//! # Ok(())
//! # }
//! ```
//!
//! [irpc]: https://docs.rs/irpc

#![cfg(unix)]

mod address;
mod claim;
mod connector;
mod endpoint;
mod error;
mod farewell;
mod frame;
mod hub;
mod limits;
mod link;
mod listener;
mod peer;
mod plaintext;
mod ready;
mod sender;
mod socket;
mod spin;
mod timer;
mod transport;

use std::path::Path;

pub use address::SocketKind;
pub use connector::UdsConnector;
pub use endpoint::UdsEndpoint;
pub use error::{BindError, ConnectError};
pub use limits::{
    BACKLOG_DEFAULT, CONNECT_TIMEOUT_DEFAULT, CONNECTION_WINDOW_BYTES, DATAGRAM_BYTES_DEFAULT,
    DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, MODE_DEFAULT, PATH_BYTES_MAX, PEERS_MAX_DEFAULT,
    SEND_WINDOW_BYTES, SPIN_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
pub use listener::UdsListener;
pub use peer::{PeerCred, peer_cred};

/// The parsers of bytes from outside, for fuzzing; not a stable interface.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::farewell::fuzz as farewell;
    pub use crate::frame::fuzz as frame;
    pub use crate::plaintext::fuzz as handshake;
}

/// Serves at `path` with every setting at its default: mode 0600, so that only this user and root can connect.
///
/// The result goes to [`irpc::rpc::listen`]. Dropping every handle of it removes the socket file.
///
/// # Errors
/// See [`BindError`].
///
/// # Panics
/// Outside of a tokio runtime with I/O and time enabled.
pub fn server_endpoint(path: impl AsRef<Path>) -> Result<noq::Endpoint, BindError> {
    Ok(UdsListener::new(path).bind()?.into_endpoint())
}

/// Connects to the server at `path` and completes the handshake.
///
/// # Errors
/// See [`ConnectError`].
pub async fn connect(path: impl AsRef<Path>) -> Result<noq::Connection, ConnectError> {
    UdsConnector::new(path).connect().await
}

/// Connects to the server of service `S` at `path`.
///
/// # Errors
/// See [`ConnectError`].
pub async fn client<S: irpc::Service>(path: impl AsRef<Path>) -> Result<irpc::Client<S>, ConnectError> {
    UdsConnector::new(path).client().await
}
