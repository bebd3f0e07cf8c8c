//! A client's settings, and how it connects: the socket, then the handshake, with an error that names the cause.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use noq::{Connection, ConnectionError, TransportErrorCode};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::address::{Address, SocketKind, usable_datagram_bytes};
use crate::error::ConnectError;
use crate::farewell::Code;
use crate::hub::Hub;
use crate::limits::{
    BACKLOG_PAUSE, BACKLOG_PAUSE_MAX, CONNECT_TIMEOUT_DEFAULT, DATAGRAM_BYTES_DEFAULT, DATAGRAM_BYTES_MAX,
    DATAGRAM_BYTES_MIN,
};
use crate::peer::PeerCred;
use crate::socket::UdsSocket;
use crate::transport::{client_config, endpoint_config};

/// The settings of a client.
///
/// Each connection has a socket of its own, which nothing in the file system stands for, and ends with its last handle.
#[derive(Clone, Debug)]
pub struct UdsConnector {
    address: Address,
    kind: SocketKind,
    datagram_bytes: u16,
    spin: Duration,
    timeout: Duration,
}

impl UdsConnector {
    /// Will connect to the server at `path`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::to(Address::from(path.as_ref()))
    }

    /// Will connect to a server in the abstract namespace (Linux).
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn abstract_name(name: impl AsRef<[u8]>) -> Self {
        Self::to(Address::Abstract(name.as_ref().to_vec()))
    }

    fn to(address: Address) -> Self {
        Self {
            address,
            kind: SocketKind::default(),
            datagram_bytes: DATAGRAM_BYTES_DEFAULT,
            spin: Duration::ZERO,
            timeout: CONNECT_TIMEOUT_DEFAULT,
        }
    }

    /// Largest datagram in either direction, in bytes; see [`crate::UdsListener::datagram_bytes`].
    #[must_use]
    pub fn datagram_bytes(mut self, bytes: u16) -> Self {
        self.datagram_bytes = bytes.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX);
        self
    }

    /// How long to look for datagrams before sleeping; see [`crate::UdsListener::spin`].
    #[must_use]
    pub fn spin(mut self, bound: Duration) -> Self {
        self.spin = bound;
        self
    }

    /// The kind of socket, which is the server's choice.
    #[must_use]
    pub fn kind(mut self, kind: SocketKind) -> Self {
        self.kind = kind;
        self
    }

    /// How long connecting may take, [`crate::CONNECT_TIMEOUT_DEFAULT`] unless set.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Connects and completes the handshake.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        match timeout(self.timeout, self.attempt()).await {
            Ok(done) => done,
            Err(_) => Err(ConnectError::TimedOut {
                path: self.address.display_path(),
                timeout: self.timeout,
            }),
        }
    }

    /// Connects to the server of service `S`.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn client<S: irpc::Service>(&self) -> Result<irpc::Client<S>, ConnectError> {
        Ok(irpc::Client::boxed(self.connect().await?))
    }

    async fn attempt(&self) -> Result<Connection, ConnectError> {
        let socket = self.socket().await?;
        let cred = PeerCred::of(&socket).map_err(self.failed("look at its server"))?;
        let datagram_bytes = usable_datagram_bytes(&socket, self.datagram_bytes)
            .map_err(self.failed("read its buffer size"))?;
        let hub = Hub::new(Handle::current(), self.spin);
        let mut sockets = UdsSocket::new(None, datagram_bytes);
        let server = sockets
            .add(socket, self.kind, cred)
            .map_err(self.failed("watch it"))?;
        let config = endpoint_config(datagram_bytes);
        let endpoint = noq::Endpoint::new_with_abstract_socket(config, None, Box::new(sockets), hub)
            .map_err(self.failed("start its endpoint"))?;
        let connecting = endpoint
            .connect_with(client_config(datagram_bytes), server, "localhost")
            .map_err(|error| self.failed("start the handshake")(io::Error::other(error)))?;
        connecting.await.map_err(|source| self.handshake_error(source))
    }

    /// A connected socket; waits where the server's backlog is full, which the system tells at once.
    async fn socket(&self) -> Result<OwnedFd, ConnectError> {
        let path = || self.address.display_path();
        let address = self
            .address
            .checked()
            .map_err(|bytes| ConnectError::PathTooLong { path: path(), bytes })?;
        let socket = self.kind.socket().map_err(self.failed("make a socket"))?;
        let mut pause = BACKLOG_PAUSE;
        loop {
            return match rustix::net::connect(&socket, &address) {
                Ok(()) | Err(Errno::ISCONN) => Ok(socket),
                Err(Errno::AGAIN | Errno::INTR | Errno::INPROGRESS | Errno::ALREADY) => {
                    sleep(pause).await;
                    pause = (pause * 2).min(BACKLOG_PAUSE_MAX);
                    continue;
                }
                Err(Errno::NOENT | Errno::NOTDIR) => Err(ConnectError::Missing { path: path() }),
                Err(Errno::ACCESS | Errno::PERM) => Err(ConnectError::Denied { path: path() }),
                Err(Errno::PROTOTYPE) => Err(ConnectError::Foreign { path: path() }),
                Err(Errno::CONNREFUSED) => Err(self.nobody_listens()),
                Err(error) => Err(self.failed("connect")(error.into())),
            };
        }
    }

    /// The system says the same of a dead socket, of any other file, and of an abstract name without a server.
    fn nobody_listens(&self) -> ConnectError {
        use std::os::unix::fs::FileTypeExt;
        let path = self.address.display_path();
        if matches!(self.address, Address::Abstract(_)) {
            return ConnectError::Missing { path };
        }
        match std::fs::metadata(&path) {
            Ok(metadata) if !metadata.file_type().is_socket() => ConnectError::Foreign { path },
            _ => ConnectError::Stale { path },
        }
    }

    fn handshake_error(&self, source: ConnectionError) -> ConnectError {
        let path = self.address.display_path();
        match &source {
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED && !close.reason.is_empty() =>
            {
                ConnectError::Refused {
                    path,
                    reason: String::from_utf8_lossy(&close.reason).into_owned(),
                }
            }
            _ => ConnectError::Handshake { path, source },
        }
    }

    fn failed(&self, step: &'static str) -> impl FnOnce(io::Error) -> ConnectError {
        let path = self.address.display_path();
        move |source| ConnectError::Io { path, step, source }
    }
}

const _: () = assert!(
    Code::Refused as u8 == 2,
    "RFC 9000 section 20.1: CONNECTION_REFUSED"
);
