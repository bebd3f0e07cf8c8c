//! The web site before which the server stands, and strangers who visit it: by noq, which is not the tunnel's QUIC.
//!
//! The site speaks QUIC with HTTP/3's name, and answers each request with a byte: what is inside is nothing to those who
//! pass it on. Its process and the visitors' is a hidden command each.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{ClientConfig, Endpoint, EndpointConfig, Incoming, ServerConfig};
use rcgen::generate_simple_self_signed;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use crate::hidden::{say, stop_at_end_of_input};
use crate::rpc::failed;
use crate::{Error, limits};

/// Its name.
pub(super) const NAME: &str = "www.harbour.example";

/// The protocol that both say they speak.
const HTTP3: &[u8] = b"h3";

/// Names in its certificate: as many as make it as long as those of web sites are at least.
const NAMES: usize = 20;

/// A site that runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Site {
    /// Where.
    pub(super) address: SocketAddr,
    /// Its certificate, DER.
    pub(super) certificate: Vec<u8>,
}

/// What visitors do: each comes from a port of its own, makes one request, waits for the first byte of the answer and
/// goes; one at each address in turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct VisitOptions {
    /// Where they come to.
    pub(super) addresses: Vec<SocketAddr>,
    /// The site's certificate, DER.
    pub(super) certificate: Vec<u8>,
    /// Visits at each address.
    pub(super) rounds: usize,
}

/// For each address, milliseconds from the first packet to the first byte of the answer.
pub(super) type Visits = Vec<Vec<f64>>;

/// Serves at `address` until stdin ends.
///
/// # Errors
/// When it cannot be served there.
pub(super) fn serve(address: SocketAddr) -> Result<(), Error> {
    let names = (0..NAMES).map(|number| match number {
        0 => NAME.to_owned(),
        _ => format!("quay-{number}.{NAME}"),
    });
    let made =
        generate_simple_self_signed(names.collect::<Vec<_>>()).map_err(failed("make a certificate"))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let certificate = made.cert.der().to_vec();
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed("make a TLS server"))?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate.clone())], key.into())
        .map_err(failed("make a TLS server"))?;
    tls.alpn_protocols = vec![HTTP3.to_vec()];
    let tls = QuicServerConfig::try_from(tls).map_err(failed("make a TLS server"))?;
    let config = ServerConfig::with_crypto(Arc::new(tls));
    let stop = stop_at_end_of_input();
    runtime()?.block_on(async move {
        let endpoint = endpoint(address, Some(config))?;
        let address = endpoint.local_addr().map_err(failed("listen"))?;
        say(&Site { address, certificate })?;
        while !stop.load(std::sync::atomic::Ordering::Relaxed) {
            let next = tokio::time::timeout(limits::STOP_CHECK, endpoint.accept()).await;
            if let Ok(Some(incoming)) = next {
                // What a visitor does not finish ends by itself.
                tokio::spawn(answer(incoming));
            }
        }
        Ok(())
    })
}

/// Answers each request of one visitor with a byte.
async fn answer(incoming: Incoming) -> Option<()> {
    let connection = incoming.await.ok()?;
    loop {
        let (mut send, mut receive) = connection.accept_bi().await.ok()?;
        let mut request = [0; 16];
        receive.read(&mut request).await.ok()?;
        send.write_all(b"!").await.ok()?;
        send.finish().ok()?;
    }
}

/// Makes the visits, one after the other.
///
/// # Errors
/// When a visit fails.
pub(super) fn visit(options: &VisitOptions) -> Result<Visits, Error> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from(options.certificate.clone());
    roots.add(certificate).map_err(failed("trust the site"))?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(failed("make a TLS client"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![HTTP3.to_vec()];
    // Each visitor is a new one.
    tls.resumption = rustls::client::Resumption::disabled();
    let tls = QuicClientConfig::try_from(tls).map_err(failed("make a TLS client"))?;
    let config = ClientConfig::new(Arc::new(tls));
    runtime()?.block_on(async {
        let mut visits = vec![Vec::new(); options.addresses.len()];
        for _ in 0..options.rounds {
            for (address, times) in options.addresses.iter().zip(&mut visits) {
                let time = tokio::time::timeout(limits::VISIT_TIMEOUT, first_byte(&config, *address));
                let time = time.await.map_err(failed("visit the site in time"))??;
                times.push(time.as_secs_f64() * 1e3);
                tokio::time::sleep(limits::VISIT_PAUSE).await;
            }
        }
        Ok(visits)
    })
}

async fn first_byte(config: &ClientConfig, address: SocketAddr) -> Result<Duration, Error> {
    let endpoint = endpoint((Ipv4Addr::UNSPECIFIED, 0).into(), None)?;
    let start = Instant::now();
    let connecting = endpoint
        .connect_with(config.clone(), address, NAME)
        .map_err(failed("visit"))?;
    let connection = connecting.await.map_err(failed("visit"))?;
    let (mut send, mut receive) = connection.open_bi().await.map_err(failed("ask"))?;
    send.write_all(b"GET").await.map_err(failed("ask"))?;
    receive
        .read_exact(&mut [0])
        .await
        .map_err(failed("read the answer"))?;
    let time = start.elapsed();
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(time)
}

fn endpoint(address: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint, Error> {
    let socket = UdpSocket::bind(address).map_err(failed("open a socket"))?;
    let runtime = Arc::new(noq::TokioRuntime);
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).map_err(failed("start an endpoint"))
}

fn runtime() -> Result<Runtime, Error> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().map_err(failed("start a runtime"))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
