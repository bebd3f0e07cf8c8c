//! The contestants that speak irpc: within the process, over Unix sockets, over UDP with TLS.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use irpc::rpc::RemoteService;
use irpc_uds::{UdsConnector, UdsListener};
use noq::crypto::rustls::QuicClientConfig;
use noq::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TransportConfig};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::outcome::failed;
use super::service::{self, Echo, Multiply, Square, Whole};
use crate::Error;
use crate::floor::identity::{Identity, SERVER_NAME};
use crate::limits::LOAD_BUFFER_BYTES;

/// How long the spinning contestant looks for datagrams before it sleeps: longer than a call takes on machines with
/// slow wake-ups, so that neither end sleeps between two calls.
pub(super) const SPIN: Duration = Duration::from_micros(200);

/// Streams that QUIC on the loopback device allows at once, so that 256 parallel calls are not throttled to its
/// default of 100.
const QUIC_STREAMS: u32 = 1_024;

/// Capacity of a stream's channels, in messages, where no transport is between.
const STREAM_CAPACITY: usize = 256;

/// One client's connection.
#[derive(Clone)]
pub(super) struct Client {
    calls: irpc::Client<Echo>,
    /// `None` within the process.
    connection: Option<noq::Connection>,
}

impl Client {
    pub(super) fn local(calls: irpc::Client<Echo>) -> Self {
        Self {
            calls,
            connection: None,
        }
    }

    fn remote(connection: noq::Connection) -> Self {
        Self {
            calls: irpc::Client::boxed(connection.clone()),
            connection: Some(connection),
        }
    }

    /// Datagrams sent and received so far, where there are any.
    pub(super) fn datagrams(&self) -> Option<u64> {
        let stats = self.connection.as_ref()?.stats();
        Some(stats.udp_tx.datagrams + stats.udp_rx.datagrams)
    }

    pub(super) async fn square(&self, number: u64) -> Result<u64, Error> {
        self.calls.rpc(Square(number)).await.map_err(failed("call"))
    }

    pub(super) async fn echo(&self, payload: Bytes) -> Result<Bytes, Error> {
        self.calls.rpc(Whole(payload)).await.map_err(failed("call"))
    }

    /// Sends numbers for `span` and returns how many answers came, all of them right.
    pub(super) async fn messages(&self, span: Duration) -> Result<u64, Error> {
        let streaming = self
            .calls
            .bidi_streaming(Multiply, STREAM_CAPACITY, STREAM_CAPACITY);
        let (send, mut receive) = streaming.await.map_err(failed("open a stream"))?;
        let sender = tokio::spawn(async move {
            let start = Instant::now();
            let mut number = 0_u64;
            while start.elapsed() < span {
                for _ in 0..STREAM_CAPACITY {
                    send.send(number).await?;
                    number += 1;
                }
            }
            Ok::<u64, irpc::channel::SendError>(number)
        });
        let mut answers = 0;
        while let Some(answer) = receive.recv().await.map_err(failed("read the stream"))? {
            super::outcome::check(answer == service::multiply(answers))?;
            answers += 1;
        }
        let sent = sender.await.map_err(failed("send into the stream"))?;
        super::outcome::check(sent.map_err(failed("send into the stream"))? == answers)?;
        Ok(answers)
    }
}

/// A client within the process of the server.
pub(super) fn in_process() -> irpc::Client<Echo> {
    irpc::Client::local(service::start_actor())
}

/// Serves at a Unix socket.
pub(super) fn serve_unix(path: &Path, spin: Duration) -> Result<(), Error> {
    let endpoint = UdsListener::new(path)
        .spin(spin)
        .bind()
        .map_err(failed("listen"))?;
    tokio::spawn(endpoint.listen(Echo::remote_handler(service::start_actor().into())));
    Ok(())
}

/// Connects to [`serve_unix`].
pub(super) async fn connect_unix(path: &Path, spin: Duration) -> Result<Client, Error> {
    let connecting = UdsConnector::new(path).spin(spin);
    Ok(Client::remote(
        connecting.connect().await.map_err(failed("connect"))?,
    ))
}

/// Serves on the loopback device; returns the address and the certificate.
pub(super) fn serve_quic() -> Result<(SocketAddr, Vec<u8>), Error> {
    let Identity {
        certificate,
        private_key,
    } = Identity::new()?;
    let chain = vec![CertificateDer::from(certificate.clone())];
    let mut config = ServerConfig::with_single_cert(chain, PrivatePkcs8KeyDer::from(private_key).into())
        .map_err(failed("make a TLS server"))?;
    config.transport_config(transport());
    let endpoint = endpoint(Some(config))?;
    let address = endpoint.local_addr().map_err(failed("listen"))?;
    let handler = Echo::remote_handler(service::start_actor().into());
    tokio::spawn(irpc::rpc::listen(endpoint, handler));
    Ok((address, certificate))
}

/// The socket of all clients of [`serve_quic`] in one process.
pub(super) fn quic_clients(certificate: &[u8]) -> Result<Endpoint, Error> {
    let mut roots = RootCertStore::empty();
    let added = roots.add(CertificateDer::from(certificate.to_vec()));
    added.map_err(failed("trust the server"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed("make a TLS client"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = QuicClientConfig::try_from(tls).map_err(failed("make a TLS client"))?;
    let mut config = ClientConfig::new(Arc::new(tls));
    config.transport_config(transport());
    let endpoint = endpoint(None)?;
    endpoint.set_default_client_config(config);
    Ok(endpoint)
}

/// Connects to [`serve_quic`].
pub(super) async fn connect_quic(clients: &Endpoint, address: SocketAddr) -> Result<Client, Error> {
    let connecting = clients.connect(address, SERVER_NAME).map_err(failed("connect"))?;
    Ok(Client::remote(connecting.await.map_err(failed("connect"))?))
}

/// An endpoint on the loopback device whose buffers hold a burst of the other end. With the system's default, datagrams
/// are lost while messages stream, and noq ends a connection whose stream has too many gaps.
fn endpoint(server: Option<ServerConfig>) -> Result<Endpoint, Error> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("open a socket"))?;
    set_socket_recv_buffer_size(&socket, LOAD_BUFFER_BYTES).map_err(failed("set its buffer"))?;
    set_socket_send_buffer_size(&socket, LOAD_BUFFER_BYTES).map_err(failed("set its buffer"))?;
    let runtime = Arc::new(noq::TokioRuntime);
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).map_err(failed("start an endpoint"))
}

fn transport() -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.max_concurrent_bidi_streams(QUIC_STREAMS.into());
    Arc::new(config)
}
