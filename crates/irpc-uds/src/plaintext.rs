//! The QUIC handshake without cryptography: both sides exchange their transport parameters, and packets stay as they
//! are.
//!
//! As in TLS there are two messages from each side, so that every packet number space of RFC 9000 is used as intended:
//! the transport parameters in Initial packets, and an empty message in Handshake packets once they were read. Each
//! message has its length before it, as two bytes. Nothing here is public: only this crate's endpoints, whose packets
//! never leave the machine, can be given these keys.

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bytes::BytesMut;
use noq_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HandshakeTokenKey, HeaderKey, HmacKey, KeyPair,
    Keys, PacketKey, ServerConfig, Session, UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, ConnectionId, PathId, Side, TransportError, TransportErrorCode};

use crate::limits::{HANDSHAKE_BYTES_MAX, SPARSE_PAYLOAD_BYTES};

/// QUIC version of these endpoints, "uds" and a number of our own. A peer that speaks QUIC over a network does not
/// know it and refuses, so the two can't be mixed up.
pub(crate) const VERSION: u32 = u32::from_be_bytes(*b"uds\x01");

/// What a side still has to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// The own parameters are not written, or, at the server, the client's not read.
    Hello,
    /// The client has written its own and waits for the server's.
    AwaitParameters,
    /// Handshake keys are due, and then the empty message.
    Finish,
    /// The peer's empty message has not come.
    AwaitFinish,
    /// All is exchanged.
    Done,
}

/// One side of one handshake.
struct PlainSession {
    side: Side,
    stage: Stage,
    own: Vec<u8>,
    inbox: Vec<u8>,
    peer: Option<TransportParameters>,
    handshake_keys_given: bool,
}

impl PlainSession {
    fn boxed(side: Side, params: &TransportParameters) -> Box<dyn Session> {
        let mut own = Vec::with_capacity(256);
        params.write(&mut own);
        Box::new(Self {
            side,
            stage: Stage::Hello,
            own,
            inbox: Vec::new(),
            peer: None,
            handshake_keys_given: false,
        })
    }

    /// Takes one whole message out of the inbox.
    fn take_message(&mut self) -> Result<Option<Vec<u8>>, TransportError> {
        let Some((head, rest)) = self.inbox.split_first_chunk::<2>() else {
            return Ok(None);
        };
        let len = usize::from(u16::from_be_bytes(*head));
        if len > HANDSHAKE_BYTES_MAX {
            return Err(violation(format!(
                "handshake message of {len} bytes, more than {HANDSHAKE_BYTES_MAX}"
            )));
        }
        let Some(message) = rest.get(..len) else {
            return Ok(None);
        };
        let message = message.to_vec();
        self.inbox.drain(..2 + len);
        Ok(Some(message))
    }

    /// What the next message is; whether it told the peer's parameters.
    fn read_message(&mut self, message: &[u8]) -> Result<bool, TransportError> {
        if self.peer.is_none() {
            self.peer = Some(TransportParameters::read(self.side, &mut &message[..])?);
            if self.stage == Stage::AwaitParameters {
                self.stage = Stage::Finish;
            }
            return Ok(true);
        }
        match self.stage {
            Stage::AwaitFinish if message.is_empty() => {
                // The client answers with its own, the server has sent its already.
                self.stage = if self.side.is_client() {
                    Stage::Finish
                } else {
                    Stage::Done
                };
                Ok(false)
            }
            stage => Err(violation(format!(
                "handshake message of {} bytes in stage {stage:?}",
                message.len()
            ))),
        }
    }

    fn write_message(buf: &mut Vec<u8>, message: &[u8]) {
        let len = u16::try_from(message.len()).expect("transport parameters are a few hundred bytes");
        buf.extend_from_slice(&len.to_be_bytes());
        buf.extend_from_slice(message);
    }
}

impl Session for PlainSession {
    fn initial_keys(&self, _: ConnectionId, _: Side) -> Keys {
        plain_keys()
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        None
    }

    /// None: [`crate::peer_cred`] knows the peer from the kernel.
    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    /// None: data before the handshake would be limited to 16 KiB packets and save less than one wake-up.
    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.stage != Stage::Done
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        if self.inbox.len() + buf.len() > 2 * HANDSHAKE_BYTES_MAX {
            return Err(violation("handshake messages too long".to_owned()));
        }
        self.inbox.extend_from_slice(buf);
        let mut news = false;
        while let Some(message) = self.take_message()? {
            news |= self.read_message(&message)?;
        }
        Ok(news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        Ok(self.peer)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        match (self.side, self.stage) {
            (Side::Client, Stage::Hello) => {
                Self::write_message(buf, &self.own);
                self.stage = Stage::AwaitParameters;
                None
            }
            (Side::Server, Stage::Hello) if self.peer.is_some() => {
                Self::write_message(buf, &self.own);
                self.handshake_keys_given = true;
                self.stage = Stage::Finish;
                Some(plain_keys())
            }
            (Side::Client, Stage::Finish) if !self.handshake_keys_given => {
                self.handshake_keys_given = true;
                self.stage = Stage::AwaitFinish;
                Some(plain_keys())
            }
            (side, Stage::Finish) => {
                Self::write_message(buf, &[]);
                self.stage = if side.is_client() {
                    Stage::Done
                } else {
                    Stage::AwaitFinish
                };
                Some(plain_keys())
            }
            _ => None,
        }
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(KeyPair {
            local: Box::new(PlainKey),
            remote: Box::new(PlainKey),
        })
    }

    fn is_valid_retry(&self, _: ConnectionId, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        Err(ExportKeyingMaterialError)
    }
}

fn violation(reason: String) -> TransportError {
    TransportError::new(TransportErrorCode::PROTOCOL_VIOLATION, reason)
}

fn plain_keys() -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(PlainKey),
            remote: Box::new(PlainKey),
        },
        packet: KeyPair {
            local: Box::new(PlainKey),
            remote: Box::new(PlainKey),
        },
    }
}

/// A copy of a small payload behind so much padding that noq takes it for badly used memory, and merges it with its
/// neighbours once there are many.
///
/// Otherwise a thousand small packets that wait unread in one stream end the connection. Besides, a payload that waits
/// in a buffer of its own does not keep the whole batch it came with.
fn sparse(payload: &[u8]) -> BytesMut {
    let padding = payload.len() / 4 + 1;
    let mut copy = BytesMut::with_capacity(padding + payload.len());
    copy.resize(padding, 0);
    copy.extend_from_slice(payload);
    copy
}

/// Leaves headers and packets as they are, but for padding.
struct PlainKey;

impl HeaderKey for PlainKey {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        0
    }
}

impl PacketKey for PlainKey {
    fn encrypt(&self, _: PathId, _: u64, _: &mut [u8], _: usize) {}

    fn decrypt(&self, _: PathId, _: u64, _: &[u8], payload: &mut BytesMut) -> Result<(), CryptoError> {
        if payload.len() < SPARSE_PAYLOAD_BYTES {
            *payload = sparse(payload);
        }
        Ok(())
    }

    fn tag_len(&self) -> usize {
        0
    }

    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        u64::MAX
    }
}

/// Starts handshakes of either side.
pub(crate) struct PlainConfig;

impl ClientConfig for PlainConfig {
    fn start_session(
        &self,
        _: u32,
        _: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        Ok(PlainSession::boxed(Side::Client, params))
    }
}

impl ServerConfig for PlainConfig {
    fn initial_keys(&self, version: u32, _: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if version == VERSION {
            Ok(plain_keys())
        } else {
            Err(UnsupportedVersion)
        }
    }

    /// Never valid: a client refuses every Retry, and no address needs validation.
    fn retry_tag(&self, _: u32, _: ConnectionId, _: &[u8]) -> [u8; 16] {
        [0; 16]
    }

    fn start_session(&self, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        PlainSession::boxed(Side::Server, params)
    }
}

/// Makes stateless reset tokens and handshake tokens. Each peer has a socket of its own, so a token proves nothing that
/// the socket does not; it only has to differ from others.
#[derive(Default)]
pub(crate) struct TokenHash(RandomState);

impl TokenHash {
    fn hash(&self, data: &[u8]) -> [u8; 16] {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&self.0.hash_one((0_u8, data)).to_be_bytes());
        hash[8..].copy_from_slice(&self.0.hash_one((1_u8, data)).to_be_bytes());
        hash
    }
}

impl HmacKey for TokenHash {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        for (chunk, index) in signature_out.chunks_mut(16).zip(0_u8..) {
            let hash = self.hash(&[&[index], data].concat());
            chunk.copy_from_slice(&hash[..chunk.len()]);
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = [0; 32];
        self.sign(data, &mut expected);
        if signature == expected {
            Ok(())
        } else {
            Err(CryptoError)
        }
    }
}

impl HandshakeTokenKey for TokenHash {
    fn seal(&self, nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        let tag = self.hash(&[&nonce.to_be_bytes(), &data[..]].concat());
        data.extend_from_slice(&tag);
        Ok(())
    }

    fn open<'a>(&self, nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let (data, tag) = data.split_last_chunk::<16>().ok_or(CryptoError)?;
        let expected = self.hash(&[&nonce.to_be_bytes(), data].concat());
        if *tag == expected {
            Ok(data)
        } else {
            Err(CryptoError)
        }
    }
}

/// Reads `input` as the handshake bytes of a client and of a server, in pieces whose length its first byte tells.
#[doc(hidden)]
pub fn fuzz(input: &[u8]) {
    let Some((piece, rest)) = input.split_first() else {
        return;
    };
    for side in [Side::Client, Side::Server] {
        let mut session = PlainSession {
            side,
            stage: Stage::Hello,
            own: vec![1; 64],
            inbox: Vec::new(),
            peer: None,
            handshake_keys_given: false,
        };
        let mut outgoing = Vec::new();
        session.write_handshake(&mut outgoing);
        for chunk in rest.chunks(usize::from(*piece).max(1)) {
            if session.read_handshake(chunk).is_err() {
                break;
            }
            session.write_handshake(&mut outgoing);
            assert!(
                session.inbox.len() <= 2 * HANDSHAKE_BYTES_MAX,
                "what waits for its end is bounded"
            );
        }
        if let Some(params) = session.peer {
            let mut written = Vec::new();
            params.write(&mut written);
            let read = TransportParameters::read(side, &mut &written[..]);
            assert_eq!(read, Ok(params), "what was understood can be said again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn session(side: Side) -> PlainSession {
        PlainSession {
            side,
            stage: Stage::Hello,
            own: Vec::new(),
            inbox: Vec::new(),
            peer: None,
            handshake_keys_given: false,
        }
    }

    /// Lets a session write until it has no more to say, as noq does; returns the bytes and the number of key changes.
    fn write_all(session: &mut PlainSession) -> (Vec<u8>, usize) {
        let (mut bytes, mut keys) = (Vec::new(), 0);
        loop {
            let before = bytes.len();
            let upgraded = session.write_handshake(&mut bytes).is_some();
            keys += usize::from(upgraded);
            if bytes.len() == before && !upgraded {
                return (bytes, keys);
            }
        }
    }

    #[test]
    fn both_sides_get_parameters_and_two_sets_of_keys_even_byte_by_byte() {
        let (mut client, mut server) = (session(Side::Client), session(Side::Server));
        let (hello, keys) = write_all(&mut client);
        assert_eq!(keys, 0);
        let mut news = 0;
        for byte in &hello {
            news += usize::from(server.read_handshake(&[*byte]).expect("valid"));
        }
        assert_eq!(news, 1);
        let (answer, keys) = write_all(&mut server);
        assert_eq!(keys, 2);
        let mut client_keys = 0;
        let mut finish = Vec::new();
        for byte in &answer {
            client.read_handshake(&[*byte]).expect("valid");
            let (bytes, keys) = write_all(&mut client);
            finish.extend(bytes);
            client_keys += keys;
        }
        assert_eq!(client_keys, 2);
        assert!(!client.is_handshaking() && server.is_handshaking());
        server.read_handshake(&finish).expect("valid");
        assert!(!server.is_handshaking());
        assert!(client.transport_parameters().expect("read").is_some());
        assert!(server.transport_parameters().expect("read").is_some());
    }

    #[test]
    fn bad_handshakes_are_errors_that_say_why() {
        let mut server = session(Side::Server);
        let too_long = u16::try_from(HANDSHAKE_BYTES_MAX + 1)
            .expect("fits")
            .to_be_bytes();
        let error = server.read_handshake(&too_long).expect_err("too long");
        assert!(error.to_string().contains("4097 bytes"), "{error}");

        let mut server = session(Side::Server);
        assert!(
            server.read_handshake(&[0, 2, 0xff, 0xff]).is_err(),
            "malformed parameters"
        );

        let mut server = session(Side::Server);
        server
            .read_handshake(&[0, 0])
            .expect("no parameters are the defaults");
        let error = server
            .read_handshake(&[0, 0])
            .expect_err("finished before it was answered");
        assert!(error.to_string().contains("Hello"), "{error}");
    }

    #[test]
    fn tokens_open_only_as_they_were_sealed() {
        let key = TokenHash::default();
        let mut token = b"token".to_vec();
        key.seal(7, &mut token).expect("always");
        assert_eq!(key.open(7, &mut token.clone()).expect("its own"), b"token");
        assert!(key.open(8, &mut token.clone()).is_err());
        token[0] ^= 1;
        assert!(key.open(7, &mut token).is_err());
        assert!(key.open(7, &mut [0; 15]).is_err());
    }

    proptest! {
        #[test]
        fn no_handshake_bytes_panic(input in prop::collection::vec(any::<u8>(), 0..600)) {
            fuzz(&input);
        }
    }
}
