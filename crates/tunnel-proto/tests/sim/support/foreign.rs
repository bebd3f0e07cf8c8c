//! A peer that is not our engine: bare QUIC, on which a test says whatever it likes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use masque::{HeaderList, Item, MessageReader, Role};
use packet::Ecn;
use quic::{
    AcceptParameters, CloseReason, ConnectionKey, DatagramSource, Direction, Endpoint, Event, Outbox, Path,
    Read, Receiver, ServerIdentity, StreamId,
};

use super::front_door::{Admitted, Doorman, GivenAway};

#[derive(Default)]
struct Source {
    waiting: VecDeque<Bytes>,
}

impl DatagramSource for Source {
    fn waits(&self, _: ConnectionKey) -> bool {
        !self.waiting.is_empty()
    }

    fn next_datagram(&mut self, _: ConnectionKey, _: usize, room: usize) -> Option<Bytes> {
        self.waiting.pop_front_if(|front| front.len() <= room)
    }
}

#[derive(Default)]
struct Sink {
    datagrams: Vec<Bytes>,
    /// Of which QUIC reads nothing.
    given_away: Vec<GivenAway>,
}

impl Receiver for Sink {
    fn datagram(&mut self, _: ConnectionKey, payload: Bytes) {
        self.datagrams.push(payload);
    }

    fn given_away(&mut self, path: Path, ecn: Ecn, datagrams: BytesMut, segment_size: usize) {
        self.given_away.push(GivenAway {
            path,
            ecn,
            datagrams,
            segment_size,
        });
    }

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        super::CEILING
    }
}

/// A foreign peer with at most one connection.
pub(crate) struct Foreign {
    pub(crate) endpoint: Endpoint,
    pub(crate) outbox: Outbox,
    pub(crate) connection: Option<ConnectionKey>,
    pub(crate) is_connected: bool,
    /// Why the connection ended.
    pub(crate) closed: Option<CloseReason>,
    /// Opens the streams of HTTP/3, in this role.
    greets: Option<Role>,
    source: Source,
    sink: Sink,
    streams: BTreeMap<StreamId, Vec<u8>>,
    requests: Vec<StreamId>,
    /// Of a server behind a cover.
    pub(super) doorman: Option<Doorman>,
    /// With what the next connection is accepted.
    expected: Option<ServerIdentity>,
}

impl Foreign {
    pub(crate) fn new(endpoint: Endpoint, connection: Option<ConnectionKey>, greets: Option<Role>) -> Self {
        Self {
            endpoint,
            outbox: Outbox::default(),
            connection,
            is_connected: false,
            closed: None,
            greets,
            source: Source::default(),
            sink: Sink::default(),
            streams: BTreeMap::new(),
            requests: Vec::new(),
            doorman: None,
            expected: None,
        }
    }

    pub(crate) fn receive(&mut self, now: Instant, remote: SocketAddr, ecn: Ecn, bytes: &[u8]) {
        let (path, length) = (Path { remote, local: None }, bytes.len());
        let (bytes, sink) = (BytesMut::from(bytes), &mut self.sink);
        self.endpoint
            .handle_received(now, path, ecn, bytes, length, sink, &mut self.outbox);
        self.take_given_away(now);
    }

    fn take_given_away(&mut self, now: Instant) {
        for given in std::mem::take(&mut self.sink.given_away) {
            let doorman = self.doorman.as_mut();
            for admitted in doorman
                .map(|doorman| doorman.receive(now, &given))
                .unwrap_or_default()
            {
                match admitted {
                    Admitted::Connection(_, _, identity) => self.expected = Some(identity),
                    Admitted::Datagram(path, ecn, bytes) => {
                        let (sink, outbox) = (&mut self.sink, &mut self.outbox);
                        self.endpoint.handle_admitted(now, path, ecn, bytes, sink, outbox);
                    }
                }
            }
        }
    }

    pub(crate) fn work(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming(new) => {
                    let parameters = AcceptParameters {
                        identity: self.expected.take(),
                        ..AcceptParameters::default()
                    };
                    let accepted = self.endpoint.accept(now, new.key, &parameters);
                    accepted.expect("the client's first packet is whole");
                }
                Event::Connected { connection } => {
                    self.connection = Some(connection);
                    self.is_connected = true;
                    self.greet();
                }
                Event::Closed { reason, .. } => self.closed = Some(reason),
                Event::StreamOpened { stream, .. } | Event::StreamReadable { stream, .. } => {
                    self.read(stream)
                }
                _ => {}
            }
        }
    }

    fn greet(&mut self) {
        if let Some(role) = self.greets {
            for bytes in masque::Connection::new(role).opening_streams() {
                let stream = self
                    .open(Direction::Unidirectional)
                    .expect("a peer takes three unidirectional streams");
                assert_eq!(self.write(stream, &bytes), bytes.len());
            }
        }
    }

    fn read(&mut self, stream: StreamId) {
        let connection = self.key();
        while let Ok(Read::Data(bytes)) = self.endpoint.read(connection, stream, usize::MAX) {
            self.streams.entry(stream).or_default().extend_from_slice(&bytes);
        }
    }

    /// Whether there is more to send than the outbox takes.
    pub(crate) fn flush(&mut self, now: Instant) -> bool {
        let more = self.endpoint.flush(now, &mut self.source, &mut self.outbox);
        if let Some(doorman) = &mut self.doorman {
            doorman.note_sent(&self.outbox);
        }
        more
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout().map(|(due, _)| due)
    }

    fn key(&self) -> ConnectionKey {
        self.connection.expect("there is a connection")
    }

    /// The peer is no stranger, whose connection would end soon.
    pub(crate) fn trust(&mut self, now: Instant) {
        let connection = self.key();
        self.endpoint.authenticate(now, connection);
    }

    pub(crate) fn open(&mut self, direction: Direction) -> Option<StreamId> {
        self.endpoint.open_stream(self.key(), direction)
    }

    /// How many bytes the stream took.
    pub(crate) fn write(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        let connection = self.key();
        self.endpoint.write(connection, stream, bytes).unwrap_or(0)
    }

    /// Ends what this side sends on a stream.
    pub(crate) fn finish(&mut self, stream: StreamId) {
        let connection = self.key();
        self.endpoint.finish(connection, stream);
    }

    /// Sends a request on a new stream.
    pub(crate) fn request(&mut self, list: &HeaderList) -> StreamId {
        let stream = self
            .open(Direction::Bidirectional)
            .expect("the peer takes a request");
        let frame = masque::headers_frame(list);
        assert_eq!(self.write(stream, &frame), frame.len());
        self.requests.push(stream);
        stream
    }

    /// Streams of the requests so far.
    pub(crate) fn requests(&self) -> &[StreamId] {
        &self.requests
    }

    /// Whether the peer has sent anything beyond its handshake.
    pub(crate) fn has_heard(&self) -> bool {
        !self.streams.is_empty() || !self.sink.datagrams.is_empty()
    }

    /// Requests of the peer so far, in its order.
    pub(crate) fn requests_taken(&self) -> Vec<(StreamId, HeaderList)> {
        let of = |(stream, bytes): (&StreamId, &Vec<u8>)| {
            let mut bytes = Bytes::from(bytes.clone());
            match MessageReader::new(Role::Server).next(&mut bytes) {
                Ok(Some(Item::Headers(list))) => Some((*stream, list)),
                _ => None,
            }
        };
        let bidirectional = self
            .streams
            .iter()
            .filter(|(stream, _)| stream.direction() == Direction::Bidirectional);
        bidirectional.filter_map(of).collect()
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self, now: Instant, code: u32) {
        let connection = self.key();
        self.endpoint.close(now, connection, code, b"");
    }

    /// Sends a DATAGRAM frame.
    pub(crate) fn datagram(&mut self, payload: Vec<u8>) {
        self.source.waiting.push_back(payload.into());
        self.endpoint.mark_ready(self.key());
    }

    /// Payloads of DATAGRAM frames that have come.
    pub(crate) fn datagrams(&self) -> &[Bytes] {
        &self.sink.datagrams
    }

    /// The response on a stream.
    pub(crate) fn response(&self, stream: StreamId) -> Option<HeaderList> {
        let mut bytes = Bytes::from(self.streams.get(&stream)?.clone());
        match MessageReader::new(Role::Client).next(&mut bytes) {
            Ok(Some(Item::Headers(list))) => Some(list),
            _ => None,
        }
    }

    /// Status of the response on a stream.
    pub(crate) fn status(&self, stream: StreamId) -> Option<u16> {
        masque::response::status_of(&self.response(stream)?).ok()
    }
}
