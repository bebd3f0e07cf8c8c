//! What a client knows its server by, and how each connection asks for it.

use quic::{
    ClientParameters, ConfigurationError, EndpointParameters, FrontDoorClient, IdLength, TrustedRoots,
};
use reality::credentials::{ServerPublicKey, UserKey};

use crate::Token;
use crate::link::Proof;

/// What a server is known by; it holds secrets, so it has no `Debug`.
#[derive(Clone)]
pub enum ServerProof {
    /// SHA-256 of its SubjectPublicKeyInfo.
    Pin([u8; 32]),
    /// A certificate for the name in its address.
    WebPki {
        /// Certificates, DER, of those who vouch for it besides the authorities of the web.
        authorities: Vec<Vec<u8>>,
    },
    /// It has a cover (specs/qr1.md).
    Cover {
        /// The public half of its X25519 key.
        key: [u8; 32],
        /// The name to ask for.
        name: String,
        /// Certificates, DER, of those who vouch for the cover besides the authorities of the web.
        authorities: Vec<Vec<u8>>,
    },
}

impl ServerProof {
    /// What a link says, and certificates (DER) of authorities besides those of the web, which a pin does not need.
    #[must_use]
    pub fn new(proof: Proof, authorities: Vec<Vec<u8>>) -> Self {
        match proof {
            Proof::Pin(pin) => Self::Pin(pin),
            Proof::WebPki => Self::WebPki { authorities },
            Proof::Cover { key, name } => Self::Cover {
                key,
                name,
                authorities,
            },
        }
    }
}

/// The same, ready for connections.
#[derive(Clone)]
pub struct KnownServer(Known);

#[derive(Clone)]
enum Known {
    Nothing,
    Pin([u8; 32]),
    WebPki(TrustedRoots),
    Cover {
        server: ServerPublicKey,
        user: UserKey,
        /// The name to ask for.
        name: String,
        roots: TrustedRoots,
    },
}

impl KnownServer {
    /// For the user with this token.
    ///
    /// # Errors
    /// One of the authorities is no certificate.
    pub fn new(proof: &ServerProof, token: &Token) -> Result<Self, ConfigurationError> {
        let roots = |authorities: &[Vec<u8>]| TrustedRoots::web_pki_and(authorities);
        Ok(Self(match proof {
            ServerProof::Pin(pin) => Known::Pin(*pin),
            ServerProof::WebPki { authorities } => Known::WebPki(roots(authorities)?),
            ServerProof::Cover {
                key,
                name,
                authorities,
            } => Known::Cover {
                server: ServerPublicKey(*key),
                user: token.user_key(),
                name: name.clone(),
                roots: roots(authorities)?,
            },
        }))
    }

    /// For a guest, who knows nothing of the server and tells it nothing secret (`specs/rendezvous.md`, RDV-15).
    #[must_use]
    pub fn by_nothing() -> Self {
        Self(Known::Nothing)
    }

    /// Whether it has a cover.
    #[must_use]
    pub fn is_cover(&self) -> bool {
        matches!(self.0, Known::Cover { .. })
    }

    /// Has an endpoint look as those do that talk to such a server.
    pub fn prepare(&self, endpoint: &mut EndpointParameters) {
        if self.is_cover() {
            (endpoint.id_length, endpoint.is_covered) = (IdLength::NONE, true);
        }
    }

    /// The name to ask for, where the settings name the server so.
    #[must_use]
    pub fn name<'a>(&'a self, server: &'a str) -> &'a str {
        match &self.0 {
            Known::Nothing | Known::Pin(_) | Known::WebPki(_) => server,
            Known::Cover { name, .. } => name,
        }
    }

    /// For a connection that begins now, in seconds of Unix time.
    #[must_use]
    pub fn parameters(&self, unix_seconds: u64) -> ClientParameters {
        match &self.0 {
            Known::Nothing => ClientParameters::AnyKey,
            Known::Pin(pin) => ClientParameters::Pin(*pin),
            Known::WebPki(roots) => ClientParameters::WebPki {
                roots: roots.clone(),
                unix_seconds,
            },
            Known::Cover {
                server, user, roots, ..
            } => ClientParameters::FrontDoor(FrontDoorClient {
                server: *server,
                user: user.clone(),
                unix_seconds: u32::try_from(unix_seconds).unwrap_or(u32::MAX),
                roots: roots.clone(),
            }),
        }
    }
}
