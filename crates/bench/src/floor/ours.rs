//! Our `quic` crate as an end of [`super::quic_driver`].

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use quic::{
    AcceptParameters, ClientParameters, ConnectionKey, DatagramSource, Endpoint, EndpointParameters, Event,
    Outbox, OutgoingTrain, Path, Profile, Receiver, ServerParameters,
};

use super::end::{Arrived, End, UDP_PAYLOAD_MAX, payload};
use super::identity::{Identity, SERVER_NAME};
use crate::Error;

/// One endpoint with one connection.
pub(super) struct Ours {
    endpoint: Endpoint,
    outbox: Outbox,
    connection: Option<ConnectionKey>,
    connected: bool,
    peer: SocketAddr,
    counter: Counter,
    payload: Bytes,
}

struct Counter(u64);

impl Receiver for Counter {
    fn datagram(&mut self, _: ConnectionKey, _: Bytes) {
        self.0 += 1;
    }

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        UDP_PAYLOAD_MAX
    }
}

struct Feed<'a> {
    left: &'a mut u64,
    payload: &'a Bytes,
}

impl DatagramSource for Feed<'_> {
    fn waits(&self, _: ConnectionKey) -> bool {
        *self.left > 0
    }

    fn next_datagram(&mut self, _: ConnectionKey, _: usize, room: usize) -> Option<Bytes> {
        if *self.left == 0 || self.payload.len() > room {
            return None;
        }
        *self.left -= 1;
        Some(self.payload.clone())
    }
}

impl Ours {
    /// A client that has begun to connect, and its server.
    ///
    /// # Errors
    /// When the certificate is refused.
    pub(super) fn pair(identity: &Identity) -> Result<[Self; 2], Error> {
        let failed = |error: &dyn std::fmt::Display| Error::Setup(format!("cannot set QUIC up: {error}"));
        let parameters = |seed| EndpointParameters {
            udp_payload_max: Some(UDP_PAYLOAD_MAX),
            profile: Profile::Throughput,
            aead: quic::Aead::default(),
            reset_key: [seed; 64],
            id_length: quic::IdLength::default(),
            is_covered: false,
            shard: quic::Shard::SOLE,
            generation: quic::Generation::default(),
            seed: [seed; 32],
        };
        let server = ServerParameters {
            certificates: quic::Certificates::new(
                vec![identity.certificate.clone()],
                identity.private_key.clone(),
            )
            .map_err(|error| failed(&error))?,
            token_key: [3; 64],
        };
        let [client_address, server_address] = [1, 2].map(|last| SocketAddr::from(([10, 0, 0, last], 443)));
        let server = Endpoint::new(&parameters(2), Some(server)).map_err(|error| failed(&error))?;
        let mut client = Endpoint::new(&parameters(1), None).map_err(|error| failed(&error))?;
        let pin = quic::public_key_pin(&identity.certificate).map_err(|error| failed(&error))?;
        let pinned = ClientParameters::Pin(pin);
        let connection = client
            .connect(
                Instant::now(),
                server_address,
                SERVER_NAME,
                &pinned,
                UDP_PAYLOAD_MAX,
            )
            .map_err(|error| failed(&error))?;
        Ok([
            Self::new(client, Some(connection), server_address),
            Self::new(server, None, client_address),
        ])
    }

    fn new(endpoint: Endpoint, connection: Option<ConnectionKey>, peer: SocketAddr) -> Self {
        let (outbox, counter) = (Outbox::default(), Counter(0));
        Self {
            endpoint,
            outbox,
            connection,
            connected: false,
            peer,
            counter,
            payload: payload(),
        }
    }

    fn poll_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                // Where it fails, the client's attempt times out.
                Event::Incoming(new) => {
                    drop(self.endpoint.accept(now, new.key, &AcceptParameters::default()));
                }
                Event::Connected { connection } => {
                    self.connection = Some(connection);
                    self.connected = true;
                    self.endpoint.authenticate(now, connection);
                }
                _ => {}
            }
        }
    }
}

impl End for Ours {
    fn take(&mut self, now: Instant, arrived: Arrived) {
        let path = Path {
            remote: self.peer,
            local: None,
        };
        let Arrived {
            data,
            segment_size,
            ecn,
        } = arrived;
        self.endpoint.handle_received(
            now,
            path,
            ecn,
            data,
            segment_size,
            &mut self.counter,
            &mut self.outbox,
        );
        self.poll_events(now);
    }

    fn flush(&mut self, now: Instant, feed: &mut u64) {
        if let Some(connection) = self.connection
            && *feed > 0
        {
            self.endpoint.mark_ready(connection);
        }
        let mut source = Feed {
            left: feed,
            payload: &self.payload,
        };
        self.endpoint.flush(now, &mut source, &mut self.outbox);
        self.poll_events(now);
    }

    fn trains(&self) -> &[OutgoingTrain] {
        self.outbox.trains()
    }

    fn release(&mut self) {
        self.outbox.release(usize::MAX);
    }

    fn timeout(&mut self) -> Option<Instant> {
        self.endpoint.poll_timeout().map(|(due, _)| due)
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.endpoint.handle_timeout(now);
        self.poll_events(now);
    }

    fn is_connected(&self) -> bool {
        self.connected
    }

    fn received(&self) -> u64 {
        self.counter.0
    }
}
