//! How a client begins: a hello as close to a browser's as unmodified rustls lets, with the authenticator in its random.
//!
//! The authenticator covers the whole hello, and rustls draws the random before the rest exists. So the hello is composed
//! twice: the first pass gives all bytes but the random, the second one, with the same keys and random numbers, the
//! connection that goes on. That both agree is asserted for every connection.

use std::sync::Arc;
use std::time::Duration;

use reality::authenticator::{Binding, ChannelKeys, seal};
use reality::client_hello::ClientHello;
use reality::credentials::{ServerPublicKey, UserKey};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use rustls::quic::{ClientConnection, Suite, Version};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};

use super::outcome::Outcome;
use super::session::{Begun, Session};
use super::verifier::Verifier;
use super::{brotli, parameters, shares};
use crate::config::Aead;
use crate::error::{ConfigurationError, ConnectError};
use crate::tls;

/// QUIC version 1 (RFC 9000 section 15).
const QUIC_VERSION: u32 = 1;

/// Bytes of the destination connection ID that a browser chooses.
pub(super) const DESTINATION_ID_BYTES: usize = 8;

/// What a client has for a server with a front door.
#[derive(Clone, Debug)]
pub struct FrontDoorClient {
    /// The public half of the server's key.
    pub server: ServerPublicKey,
    /// The user's.
    pub user: UserKey,
    /// The present time.
    pub unix_seconds: u32,
    /// Who vouches for genuine sites.
    pub roots: TrustedRoots,
}

/// The authorities that certify web sites; a clone shares them.
#[derive(Clone)]
pub struct TrustedRoots(pub(super) Arc<RootCertStore>);

impl TrustedRoots {
    /// Those that browsers trust, as Mozilla keeps them, and besides these certificates (DER).
    ///
    /// # Errors
    /// [`ConfigurationError::Unreadable`] where one of these is no certificate.
    pub fn web_pki_and(certificates: &[Vec<u8>]) -> Result<Self, ConfigurationError> {
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        for certificate in certificates {
            roots
                .add(CertificateDer::from(&certificate[..]))
                .map_err(|error| ConfigurationError::Unreadable(error.to_string()))?;
        }
        Ok(Self(Arc::new(roots)))
    }

    /// Looks whether one of them vouches for a certificate, which is for this name.
    pub(crate) fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.0, intermediates, now, algorithms)?;
        verify_server_name(&parsed, name)
    }
}

impl std::fmt::Debug for TrustedRoots {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "TrustedRoots of {}", self.0.len())
    }
}

/// Composes the hello to `server_name`. The endpoint that sends it has no connection IDs.
///
/// # Errors
/// [`ConnectError`] where the name is none, the server's key is not one, or the system gives no random numbers.
pub(crate) fn begin(aead: Aead, server_name: &str, door: &FrontDoorClient) -> Result<Begun, ConnectError> {
    let name = ServerName::try_from(server_name)
        .map_err(|_| ConnectError::ServerName(server_name.to_owned()))?
        .to_owned();
    let composed = compose(aead, &name, door).map_err(|error| ConnectError::FrontDoor(error.to_string()))?;
    Ok(Begun::new(
        composed.session,
        composed.destination_id,
        composed.outcome,
    ))
}

/// What the two passes give.
struct Composed {
    destination_id: [u8; DESTINATION_ID_BYTES],
    session: Session,
    outcome: Arc<Outcome>,
}

fn compose(aead: Aead, name: &ServerName<'static>, door: &FrontDoorClient) -> Result<Composed, Error> {
    let outcome = Arc::new(Outcome::new());
    let (config, initial_suite) = configuration(aead, door, &outcome)?;
    let random = provider::default_provider().secure_random;
    let mut destination_id = [0; DESTINATION_ID_BYTES];
    random.fill(&mut destination_id)?;
    let parameters = parameters::encode(random)?;
    let pass = || begin_tls(&config, name, &parameters);
    let binding = Binding {
        version: QUIC_VERSION,
        destination_id: &destination_id,
    };
    let session = shares::compose(
        |shares| {
            let (_, hello) = pass()?;
            let (random, keys) = authenticate(&hello, &binding, shares, door)?;
            Ok(((hello, keys), random))
        },
        |(first, keys)| {
            let (tls, hello) = pass()?;
            assert_only_the_random_differs(&first, &hello);
            outcome.set_keys(keys);
            Ok(Session::new(tls, hello, initial_suite))
        },
    )?;
    Ok(Composed {
        destination_id,
        session,
        outcome,
    })
}

/// The hello's random, and the keys that follow from it.
fn authenticate(
    hello: &[u8],
    binding: &Binding<'_>,
    shares: &shares::Shares,
    door: &FrontDoorClient,
) -> Result<([u8; 32], ChannelKeys), Error> {
    let shared = door.server.agree(shares.ephemeral());
    let shared = shared.ok_or_else(|| Error::General("the server's key is not a key".to_owned()))?;
    seal(
        hello,
        binding,
        &shared,
        &door.server,
        &door.user,
        door.unix_seconds,
    )
    .map_err(|error| Error::General(format!("rustls wrote a hello that cannot be read: {error}")))
}

fn begin_tls(
    config: &Arc<rustls::ClientConfig>,
    name: &ServerName<'static>,
    parameters: &[u8],
) -> Result<(ClientConnection, Vec<u8>), Error> {
    let mut tls = ClientConnection::new(Arc::clone(config), Version::V1, name.clone(), parameters.to_vec())?;
    let mut hello = Vec::new();
    let keys = tls.write_hs(&mut hello);
    debug_assert!(keys.is_none(), "no keys before the server's answer");
    Ok((tls, hello))
}

/// The server finds a MAC over the second hello, and the first one was sealed.
fn assert_only_the_random_differs(first: &[u8], second: &[u8]) {
    let random = ClientHello::parse(first).map(|hello| hello.random_range());
    let random = random.expect("the first hello was read when it was sealed");
    let around = |hello: &[u8]| [&hello[..random.start], &hello[random.end..]].concat();
    assert!(
        first.len() == second.len() && around(first) == around(second),
        "with the same keys and random numbers rustls writes the same hello"
    );
}

/// TLS of one connection, and the suite of its Initial packets.
fn configuration(
    aead: Aead,
    door: &FrontDoorClient,
    outcome: &Arc<Outcome>,
) -> Result<(Arc<rustls::ClientConfig>, Suite), Error> {
    let provider = CryptoProvider {
        kx_groups: shares::GROUPS.to_vec(),
        secure_random: &shares::RANDOM,
        ..tls::crypto_provider(aead)
    };
    let verifier = Verifier {
        roots: door.roots.clone(),
        now: UnixTime::since_unix_epoch(Duration::from_secs(door.unix_seconds.into())),
        algorithms: provider.signature_verification_algorithms,
        outcome: Arc::clone(outcome),
    };
    let mut config = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![tls::ALPN.to_vec()];
    config.enable_early_data = false;
    config.resumption = rustls::client::Resumption::disabled();
    config.cert_decompressors = vec![&brotli::Brotli];
    Ok((Arc::new(config), tls::initial_suite(aead)))
}

/// A client's TLS, its hello, and the connection ID that the hello is bound to.
#[cfg(test)]
pub(super) fn composed_for_test(
    name: &'static str,
    door: &FrontDoorClient,
) -> (
    ClientConnection,
    Arc<Outcome>,
    Vec<u8>,
    [u8; DESTINATION_ID_BYTES],
) {
    let name = ServerName::try_from(name).expect("a name");
    let composed = compose(Aead::default(), &name, door).expect("keys and random numbers");
    let (tls, hello) = composed.session.into_parts();
    (tls, composed.outcome, hello, composed.destination_id)
}

#[cfg(test)]
mod tests;
