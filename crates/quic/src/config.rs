//! Parameters of endpoints and connections.

use std::time::Duration;

use crate::certificates::Certificates;
use crate::connection_id::{Generation, IdLength, Shard};
use crate::front_door::{FrontDoorClient, TrustedRoots};
use crate::limits;
use crate::tls::{KeyIdentity, ServerIdentity};

/// How a connection weighs throughput against delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Sparse acknowledgements, and a queue of half a round trip at most; the default.
    #[default]
    Throughput,
    /// Prompt acknowledgements, and a queue of two milliseconds at most.
    Latency,
    /// A rate that the operator names, never exceeded and not reduced by loss; packets are Not-ECT.
    Fixed {
        /// Bits per second of QUIC packets, at least 1,000,000.
        bits_per_second: u64,
    },
}

/// Which library seals and opens packets. Which one is faster depends on the processor: [`crate::sealing_probe`] lets the
/// caller measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aead {
    /// aws-lc-rs: AES-GCM with AVX-512.
    #[default]
    AwsLc,
    /// ring: AES-GCM with AVX2 and VAES.
    Ring,
}

/// What an endpoint needs in either role.
pub struct EndpointParameters {
    /// Upper bound of UDP payloads that we send and that the peer may send us, in bytes; `None`: 65,507.
    pub udp_payload_max: Option<u16>,
    /// Throughput against delay.
    pub profile: Profile,
    /// Which library seals and opens packets.
    pub aead: Aead,
    /// Key of stateless resets (RFC 9000 section 10.3.2), the same over restarts of a server and in all its shards. The
    /// key of connection IDs is derived from it.
    pub reset_key: [u8; 64],
    /// Length of connection IDs that the endpoint issues.
    pub id_length: IdLength,
    /// Nothing leaves but packets of connections, and none that ends a handshake; what belongs to no connection goes to
    /// [`crate::Receiver::given_away`]. A server behind a cover, and its clients.
    pub is_covered: bool,
    /// Which shard the endpoint is; every connection ID that it issues names it.
    pub shard: Shard,
    /// Which process of those that took over each other's sockets; connection IDs name it, too.
    pub generation: Generation,
    /// Seed of connection IDs and packet-number gaps; from the operating system outside tests.
    pub seed: [u8; 32],
}

impl EndpointParameters {
    /// A client that is the only endpoint of its process and has no past: throughput, payloads of any size, no front door.
    #[must_use]
    pub fn of_client(seed: [u8; 32]) -> Self {
        Self {
            udp_payload_max: None,
            profile: Profile::Throughput,
            aead: Aead::default(),
            reset_key: [0; 64],
            id_length: IdLength::default(),
            is_covered: false,
            shard: Shard::SOLE,
            generation: Generation::default(),
            seed,
        }
    }
}

/// What a server needs besides.
pub struct ServerParameters {
    /// What it shows those that it accepts as a matter of course.
    pub certificates: Certificates,
    /// Key of address validation tokens (RFC 9000 section 8.1), the same over restarts.
    pub token_key: [u8; 64],
}

/// What an endpoint among peers needs besides.
pub struct PeerParameters {
    /// The key pair that it proves to others.
    pub identity: KeyIdentity,
    /// The application protocol that both ends name (RFC 7301).
    pub protocol: &'static [u8],
    /// Key of address validation tokens (RFC 9000 section 8.1).
    pub token_key: [u8; 64],
    /// A connection without traffic is given up after this, or after what the other end says where that is less;
    /// [`limits::IDLE_TIMEOUT_MIN`] to [`limits::IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// Receive window of a stream, and what a connection may have sent and unacknowledged, in bytes:
    /// [`limits::STREAM_WINDOW_BYTES`] to [`limits::STREAM_WINDOW_BYTES_MAX`].
    pub stream_window_bytes: u32,
}

/// How one new connection is accepted; the default is what the endpoint does for all.
#[derive(Clone, Debug, Default)]
pub struct AcceptParameters {
    /// Throughput against delay; `None`: the endpoint's.
    pub profile: Option<Profile>,
    /// What the peer may do.
    pub limits: ConnectionLimits,
    /// Certificate and key; `None`: the endpoint's, which a covered endpoint never shows.
    pub identity: Option<ServerIdentity>,
}

/// What the peer of an accepted connection may do; each value is reduced to the named limit where it is above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Without [`crate::Endpoint::authenticate`] it is closed after this; at most [`limits::AUTHENTICATION_DEADLINE`].
    pub authentication_deadline: Duration,
    /// Request streams before that; at most [`limits::UNAUTHENTICATED_STREAMS`].
    pub unauthenticated_streams: u32,
    /// Bytes of stream data before that; at most [`limits::UNAUTHENTICATED_CREDIT_BYTES`].
    pub unauthenticated_credit_bytes: u32,
    /// Request streams after it; at most [`limits::AUTHENTICATED_STREAMS`].
    pub streams: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            authentication_deadline: limits::AUTHENTICATION_DEADLINE,
            unauthenticated_streams: limits::UNAUTHENTICATED_STREAMS,
            unauthenticated_credit_bytes: limits::UNAUTHENTICATED_CREDIT_BYTES,
            streams: limits::AUTHENTICATED_STREAMS,
        }
    }
}

impl ConnectionLimits {
    /// None above the named limit.
    pub(crate) fn bounded(self) -> Self {
        let most = Self::default();
        Self {
            authentication_deadline: self.authentication_deadline.min(most.authentication_deadline),
            unauthenticated_streams: self.unauthenticated_streams.min(most.unauthenticated_streams),
            unauthenticated_credit_bytes: self
                .unauthenticated_credit_bytes
                .min(most.unauthenticated_credit_bytes),
            streams: self.streams.min(most.streams),
        }
    }
}

/// How a client knows its server.
#[derive(Clone, Debug)]
pub enum ClientParameters {
    /// By SHA-256 of the server's SubjectPublicKeyInfo.
    Pin([u8; 32]),
    /// Not at all: it proves any key, and may be anybody. Nothing secret may be told it.
    AnyKey,
    /// By a certificate for the name that it is asked for.
    WebPki {
        /// Who vouches for it.
        roots: TrustedRoots,
        /// The present time, in seconds of Unix time.
        unix_seconds: u64,
    },
    /// By what the server proves behind its front door. The endpoint must have no connection IDs ([`IdLength::NONE`]).
    FrontDoor(FrontDoorClient),
}

impl Profile {
    /// Its name as settings and `status` have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Fixed { .. } => "fixed",
        }
    }

    /// Whether ECN marks are used: a rate that does not react to congestion must not claim to (RFC 9298 section 6).
    pub(crate) fn uses_ecn(self) -> bool {
        !matches!(self, Self::Fixed { .. })
    }
}
