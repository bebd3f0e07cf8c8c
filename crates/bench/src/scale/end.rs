//! What both ends have: QUIC's parameters, the token, messages on their way, and the side of the driver that takes
//! deliveries.

use std::net::SocketAddr;

use bytes::BytesMut;
use packet::Ecn;
use packet::checksum::ChecksumState;
use quic::{Endpoint, EndpointParameters, OutgoingTrain, Path, Profile, ServerParameters};
use tunnel_proto::{Budget, Deliver, RequestId, ServerShard, Token};

use crate::floor::identity::Identity;
use crate::{Error, limits};

/// Largest QUIC packet, in bytes of UDP payload: an Ethernet path over IPv6.
pub(super) const UDP_PAYLOAD_MAX: u16 = 1_452;

/// The engines' shard: there is one.
pub(super) const SHARD: ServerShard = ServerShard { index: 0, count: 1 };

/// The server, whose certificate is made once for all worlds.
pub(super) struct Setting {
    certificate: Vec<u8>,
    private_key: Vec<u8>,
    /// What clients know of it.
    pub(super) pin: [u8; 32],
    /// What opens it: a token for each user.
    pub(super) tokens: Vec<Token>,
}

impl Setting {
    /// A server with this certificate.
    ///
    /// # Errors
    /// The certificate cannot be read.
    pub(super) fn new(identity: &Identity) -> Result<Self, Error> {
        let pin = quic::public_key_pin(&identity.certificate).map_err(|error| failed(&error))?;
        Ok(Self {
            certificate: identity.certificate.clone(),
            private_key: identity.private_key.clone(),
            pin,
            tokens: (0..limits::SCALE_USERS).map(token).collect(),
        })
    }

    /// The token of the client with this number.
    pub(super) fn token_of(&self, client: u32) -> &Token {
        &self.tokens[client as usize % self.tokens.len()]
    }

    /// QUIC of the server.
    pub(super) fn server_endpoint(&self) -> Result<Endpoint, Error> {
        let server = ServerParameters {
            certificates: quic::Certificates::new(vec![self.certificate.clone()], self.private_key.clone())
                .map_err(|error| failed(&error))?,
            token_key: [9; 64],
        };
        Endpoint::new(&parameters(0), Some(server)).map_err(|error| failed(&error))
    }

    /// QUIC of the client with this number.
    pub(super) fn client_endpoint(&self, number: u32) -> Result<Endpoint, Error> {
        Endpoint::new(&parameters(number + 1), None).map_err(|error| failed(&error))
    }
}

fn token(user: usize) -> Token {
    let mut bytes = [42; 32];
    bytes[..8].copy_from_slice(&(user as u64).to_be_bytes());
    Token::from_bytes(bytes)
}

fn parameters(number: u32) -> EndpointParameters {
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    EndpointParameters {
        udp_payload_max: None,
        profile: Profile::default(),
        aead: quic::Aead::default(),
        reset_key: [7; 64],
        id_length: quic::IdLength::default(),
        is_covered: false,
        shard: quic::Shard::SOLE,
        generation: quic::Generation::default(),
        seed,
    }
}

/// Room for as many UDP sessions as a case has; what is shipped stops at `tunnel_proto::limits::UDP_SESSIONS_MAX`.
pub(super) fn sessions() -> Budget {
    Budget::whole(limits::SCALE_FLOWS_MAX)
}

/// Why something could not be set up.
pub(super) fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::Setup(format!("bench scale: {error}"))
}

/// A train on its way, as a kernel with receive offload would hand it over.
pub(super) struct Message {
    /// The other end: whom it is from, or for.
    pub(super) peer: SocketAddr,
    pub(super) ecn: Ecn,
    pub(super) segment_size: usize,
    pub(super) bytes: BytesMut,
}

impl Message {
    /// The copy stands for the network.
    pub(super) fn new(train: &OutgoingTrain, peer: SocketAddr) -> Self {
        Self {
            peer,
            ecn: train.ecn,
            segment_size: train.segment_size,
            bytes: BytesMut::from(&train.bytes[..]),
        }
    }

    pub(super) fn path(&self) -> Path {
        Path {
            remote: self.peer,
            local: None,
        }
    }
}

/// The requests of delivered datagrams, in order.
#[derive(Default)]
pub(super) struct Taken(pub(super) Vec<RequestId>);

impl Deliver for Taken {
    fn deliver(&mut self, request: RequestId, _: &[u8]) {
        self.0.push(request);
    }

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        UDP_PAYLOAD_MAX
    }

    /// There are no IP sessions.
    fn deliver_packet(&mut self, _: &[u8], _: ChecksumState) {}
}

/// The payload of every datagram.
pub(super) const PAYLOAD: [u8; limits::SCALE_PAYLOAD_BYTES] = [0x5a; limits::SCALE_PAYLOAD_BYTES];
