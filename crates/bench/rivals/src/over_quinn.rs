//! quinn with tokio as its users have it: a uni stream for each reliable message, datagrams for those that are sent
//! once, one stream of high priority for round trips. Both ends show a certificate, and each knows the other's key.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection as QuinnConnection, Endpoint, EndpointConfig, Incoming, RecvStream, SendStream,
    ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::version::TLS13;
use socket2::{Domain, Protocol, Socket, Type};

use crate::known_keys::{AnyClient, OneServer};
use crate::trial::contestant::{Arrived, Connection, Outcome, Transport, failed};
use crate::trial::{Bounds, Contact};

/// Application protocol of the trial.
const PROTOCOL: &[u8] = b"trial";

/// Buffer of the socket in each direction, in bytes: what Gramway's endpoints ask for.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// What certificates are issued for; nobody looks at it.
const NAME: &str = "trial";

/// Above streams with bulk.
const URGENT: i32 = 1;

#[derive(Clone)]
pub(crate) struct Quinn {
    endpoint: Endpoint,
    identity: Arc<Identity>,
    transport: Arc<TransportConfig>,
}

/// A key, and the certificate that shows it.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

#[derive(Clone)]
pub(crate) struct Carried(QuinnConnection);

impl Identity {
    fn generate() -> Outcome<Self> {
        let key = KeyPair::generate_for(&PKCS_ED25519).map_err(failed("make a key"))?;
        let parameters =
            CertificateParams::new([NAME.to_owned()]).map_err(failed("describe a certificate"))?;
        let certificate = parameters
            .self_signed(&key)
            .map_err(failed("make a certificate"))?;
        Ok(Self {
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        })
    }

    fn server_config(&self) -> Outcome<rustls::ServerConfig> {
        let builder = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(failed("set up TLS"))?;
        let chain = vec![self.certificate.clone()];
        let mut config = builder
            .with_client_cert_verifier(Arc::new(AnyClient::default()))
            .with_single_cert(chain, self.key.clone_key())
            .map_err(failed("use a certificate"))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Strangers have no tickets: every handshake is a whole one.
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client_config(&self, server: CertificateDer<'static>) -> Outcome<rustls::ClientConfig> {
        let builder = rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder
            .with_protocol_versions(&[&TLS13])
            .map_err(failed("set up TLS"))?;
        let chain = vec![self.certificate.clone()];
        let mut config = builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OneServer::new(server)))
            .with_client_auth_cert(chain, self.key.clone_key())
            .map_err(failed("use a certificate"))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(config)
    }
}

fn transport(bounds: Bounds) -> Outcome<TransportConfig> {
    let window = VarInt::try_from(bounds.bytes as u64).map_err(failed("set a window"))?;
    let messages = VarInt::try_from(bounds.messages as u64).map_err(failed("bound messages"))?;
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_uni_streams(messages)
        .stream_receive_window(window)
        .send_window(bounds.bytes as u64)
        .datagram_receive_buffer_size(Some(bounds.bytes))
        .datagram_send_buffer_size(bounds.bytes);
    Ok(transport)
}

fn socket(address: SocketAddr) -> std::io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.set_send_buffer_size(SOCKET_BUFFER_BYTES)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

impl Transport for Quinn {
    type Connection = Carried;
    type Incoming = Incoming;

    async fn bind(address: SocketAddr, bounds: Bounds) -> Outcome<Self> {
        let identity = Identity::generate()?;
        let transport = Arc::new(transport(bounds)?);
        let tls = QuicServerConfig::try_from(identity.server_config()?).map_err(failed("use TLS in QUIC"))?;
        let mut server = ServerConfig::with_crypto(Arc::new(tls));
        server.transport_config(Arc::clone(&transport));
        let socket = socket(address).map_err(failed("bind a socket"))?;
        let endpoint = Endpoint::new(
            EndpointConfig::default(),
            Some(server),
            socket,
            Arc::new(TokioRuntime),
        );
        Ok(Self {
            endpoint: endpoint.map_err(failed("bind an endpoint"))?,
            identity: Arc::new(identity),
            transport,
        })
    }

    fn contact(&self) -> Outcome<Contact> {
        Ok(Contact {
            address: self.endpoint.local_addr().map_err(failed("name an address"))?,
            identity: HEXLOWER.encode(&self.identity.certificate),
        })
    }

    async fn connect(&self, contact: &Contact) -> Outcome<Carried> {
        let server = HEXLOWER.decode(contact.identity.as_bytes());
        let server = CertificateDer::from(server.map_err(failed("read a certificate"))?);
        let tls = QuicClientConfig::try_from(self.identity.client_config(server)?);
        let mut config = ClientConfig::new(Arc::new(tls.map_err(failed("use TLS in QUIC"))?));
        config.transport_config(Arc::clone(&self.transport));
        let connecting = self.endpoint.connect_with(config, contact.address, NAME);
        let connected = connecting.map_err(failed("begin to connect"))?.await;
        connected.map(Carried).map_err(failed("connect"))
    }

    async fn accept(&self) -> Option<Incoming> {
        self.endpoint.accept().await
    }

    async fn establish(incoming: Incoming) -> Outcome<Carried> {
        incoming.await.map(Carried).map_err(failed("accept"))
    }
}

impl Connection for Carried {
    type Writer = SendStream;
    type Reader = RecvStream;
    type Pinger = (SendStream, RecvStream);

    async fn send(&self, body: Bytes) -> Outcome<()> {
        let mut stream = self.0.open_uni().await.map_err(failed("open a stream"))?;
        stream
            .write_chunk(body)
            .await
            .map_err(failed("write a message"))?;
        stream.finish().map_err(failed("finish a message"))
    }

    async fn receive(&self) -> Outcome<Arrived> {
        let mut stream = self.0.accept_uni().await.map_err(failed("accept a stream"))?;
        let body = stream
            .read_to_end(usize::MAX)
            .await
            .map_err(failed("read a message"))?;
        Ok(Arrived {
            messages: 1,
            bytes: body.len() as u64,
        })
    }

    async fn send_once(&self, body: Bytes) -> Outcome<()> {
        self.0
            .send_datagram_wait(body)
            .await
            .map_err(failed("send a datagram"))
    }

    async fn receive_once(&self) -> Outcome<Arrived> {
        let datagram = self
            .0
            .read_datagram()
            .await
            .map_err(failed("receive a datagram"))?;
        Ok(Arrived {
            messages: 1,
            bytes: datagram.len() as u64,
        })
    }

    async fn open_bulk(&self) -> Outcome<SendStream> {
        self.0.open_uni().await.map_err(failed("open a stream"))
    }

    async fn write(writer: &mut SendStream, chunk: Bytes) -> Outcome<()> {
        writer.write_chunk(chunk).await.map_err(failed("write"))
    }

    async fn accept_bulk(&self) -> Outcome<RecvStream> {
        self.0.accept_uni().await.map_err(failed("accept a stream"))
    }

    async fn read(reader: &mut RecvStream) -> Outcome<u64> {
        let chunk = reader
            .read_chunk(usize::MAX, true)
            .await
            .map_err(failed("read"))?;
        chunk
            .map(|chunk| chunk.bytes.len() as u64)
            .ok_or_else(|| "the stream ended".to_owned())
    }

    async fn open_pinger(&self) -> Outcome<Self::Pinger> {
        let (sender, receiver) = self.0.open_bi().await.map_err(failed("open a stream"))?;
        sender.set_priority(URGENT).map_err(failed("set a priority"))?;
        Ok((sender, receiver))
    }

    async fn ping((sender, receiver): &mut Self::Pinger, body: Bytes) -> Outcome<()> {
        let mut answer = vec![0; body.len()];
        sender.write_chunk(body).await.map_err(failed("ask"))?;
        receiver
            .read_exact(&mut answer)
            .await
            .map_err(failed("read the answer"))
    }

    async fn answer_pings(&self, bytes: usize) -> Outcome<()> {
        let (mut sender, mut receiver) = self.0.accept_bi().await.map_err(failed("accept a stream"))?;
        sender.set_priority(URGENT).map_err(failed("set a priority"))?;
        let mut question = vec![0; bytes];
        loop {
            receiver
                .read_exact(&mut question)
                .await
                .map_err(failed("read a question"))?;
            sender.write_all(&question).await.map_err(failed("answer"))?;
        }
    }

    fn close(&self) {
        self.0.close(VarInt::from_u32(0), b"");
    }

    async fn closed(&self) {
        self.0.closed().await;
    }
}
