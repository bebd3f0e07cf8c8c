//! Connections that we begin, and what both ends of one can prove to each other when it stands.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustls::pki_types::UnixTime;

use super::Endpoint;
use crate::config::ClientParameters;
use crate::congestion::Gate;
use crate::connection::{Connection, Peer, StreamGrants};
use crate::connection_id::IdLength;
use crate::error::ConnectError;
use crate::event::ConnectionKey;
use crate::tls::Known;
use crate::transport::{Payloads, Rights};
use crate::{front_door, limits, tls, trace, translate, transport};

/// The name that TLS has for peers and does not send.
const PEER_NAME: &str = "peer";

impl Endpoint {
    /// Begins a connection to `remote`, over an interface that carries `udp_payload_ceiling` bytes of UDP payload.
    ///
    /// # Errors
    /// [`ConnectError`] where the name, the address or the front door cannot be used, or no connection ID is left.
    ///
    /// # Panics
    /// Where an endpoint with connection IDs is to enter by a front door.
    pub fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        server_name: &str,
        parameters: &ClientParameters,
        udp_payload_ceiling: u16,
    ) -> Result<ConnectionKey, ConnectError> {
        if self.id_length == IdLength::NONE {
            self.give_up_closed(remote)?;
        }
        let openly = |known| {
            let (config, refusal) = tls::client(self.aead, known);
            (config, limits::UDP_PAYLOAD_MIN, Peer::Server(refusal))
        };
        let (client, start, peer) = match parameters {
            ClientParameters::Pin(pin) => openly(Known::Pin(*pin)),
            ClientParameters::AnyKey => openly(Known::Nothing),
            ClientParameters::WebPki { roots, unix_seconds } => {
                let now = UnixTime::since_unix_epoch(Duration::from_secs(*unix_seconds));
                openly(Known::WebPki(roots.clone(), now))
            }
            ClientParameters::FrontDoor(door) => {
                assert!(
                    self.id_length == IdLength::NONE,
                    "browsers have no connection IDs"
                );
                let begun = front_door::begin(self.aead, server_name, door)?;
                let start = limits::BROWSER_PAYLOADS[usize::from(remote.is_ipv6())];
                (begun.config, start, Peer::FrontDoor(begun.outcome))
            }
        };
        let rights = Rights::SERVER;
        self.begin(
            now,
            remote,
            server_name,
            client,
            Payloads::probed(start, udp_payload_ceiling.min(self.udp_payload_max)),
            peer,
            rights,
        )
    }

    /// Begins a connection to the peer with this Ed25519 key at `remote`, over an interface that carries
    /// `udp_payload_ceiling` bytes of UDP payload. Whoever proves another key there ends it with
    /// [`crate::CloseReason::WrongPeer`].
    ///
    /// # Errors
    /// [`ConnectError`] where the address cannot be used, or no connection ID is left.
    ///
    /// # Panics
    /// Where the endpoint is not one [`Endpoint::of_peers`].
    pub fn connect_peer(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        key: [u8; 32],
        udp_payload_ceiling: u16,
    ) -> Result<ConnectionKey, ConnectError> {
        let peers = self.peers.as_ref().expect("the endpoint is one of peers");
        let (client, refusal) = tls::connecting_peer(self.aead, &peers.identity, peers.protocol, key);
        let payloads = Payloads::between_peers(remote, udp_payload_ceiling.min(self.udp_payload_max));
        let peer = Peer::Server(refusal);
        let stream_window = self.stream_window();
        let rights = Rights::peer_with(stream_window);
        let begun = self.begin(now, remote, PEER_NAME, client, payloads, peer, rights)?;
        if let Some(connection) = self.live(begun) {
            connection.streams = StreamGrants::PEER;
            connection.stream_window = stream_window;
        }
        Ok(begun)
    }

    /// Window of a stream of a new connection.
    pub(super) fn stream_window(&self) -> u32 {
        let of_peers = self.peers.as_ref().map(|peers| peers.stream_window_bytes);
        let (least, most) = (limits::STREAM_WINDOW_BYTES, limits::STREAM_WINDOW_BYTES_MAX);
        of_peers.map_or(least, |bytes| bytes.clamp(least, most))
    }

    /// The gate of a new connection.
    pub(super) fn gate(&self) -> Gate {
        match self.peers {
            Some(_) => Gate::bounded(limits::PEER_LOCAL_WINDOW_BYTES),
            None => Gate::default(),
        }
    }

    /// The Ed25519 key that the other end has proved to hold; `None` before the handshake is complete, and where ends are
    /// known by certificates.
    pub fn peer_key(&mut self, connection: ConnectionKey) -> Option<[u8; 32]> {
        tls::proved_key(self.live(connection)?.proto.crypto_session())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "what the kinds of servers and peers differ in"
    )]
    fn begin(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        name: &str,
        mut client: quinn_proto::ClientConfig,
        payloads: Payloads,
        peer: Peer,
        rights: Rights,
    ) -> Result<ConnectionKey, ConnectError> {
        let gate = self.gate();
        let trace = self.tracer.as_mut().and_then(|tracer| tracer.begin());
        let stream = trace.as_ref().and_then(|trace| trace::stream(trace, now, true));
        client.transport_config(transport::settings(
            self.profile,
            payloads,
            rights,
            self.idle_timeout(),
            &gate,
            stream,
        ));
        let (handle, proto) = self
            .proto
            .connect(now, client, remote, name)
            .map_err(translate::connect_error)?;
        let key = ConnectionKey(handle.0);
        let connection = Connection::new(now, proto, key, self.profile, gate, peer, self.is_covered);
        self.insert(key, connection);
        Ok(key)
    }

    /// Without connection IDs, late packets of a connection that has ended here would be taken for the next one's, and its
    /// removal would take the next one's way from quinn-proto's table.
    fn give_up_closed(&mut self, remote: SocketAddr) -> Result<(), ConnectError> {
        let same: Vec<usize> = (0..self.connections.len())
            .filter(|index| {
                let connection = self.connections[*index].as_ref();
                connection.is_some_and(|connection| connection.proto.remote_address() == remote)
            })
            .collect();
        if same
            .iter()
            .any(|index| self.live(ConnectionKey(*index)).is_some())
        {
            return Err(ConnectError::AlreadyConnected(remote));
        }
        for index in same {
            self.drain(index);
        }
        Ok(())
    }

    /// TLS's exporter of a connection whose handshake is complete (RFC 8446 section 7.5); `None` before and after.
    pub fn exporter(&mut self, connection: ConnectionKey, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        let entry = self.live(connection)?;
        let mut output = [0; 32];
        let session = entry.proto.crypto_session();
        session.export_keying_material(&mut output, label, context).ok()?;
        Some(output)
    }

    /// What proves to the other end of a connection through a front door that nobody stands between (QR1-17); `None` on
    /// other connections, and as [`Endpoint::exporter`].
    pub fn channel_binding(&mut self, connection: ConnectionKey) -> Option<[u8; 32]> {
        let keys = self.live(connection)?.peer.channel_keys()?.clone();
        let exporter = self.exporter(connection, front_door::EXPORTER_LABEL, keys.transcript())?;
        Some(keys.channel_binding(&exporter))
    }
}
