//! One end of a pair: its endpoint, the datagrams that wait, and everything that came out.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use quic::{
    AcceptParameters, CloseReason, ConnectionKey, DatagramSource, Endpoint, Event, Incoming, IncomingKey,
    Outbox, OutgoingTrain, Path, Read, Receiver, StreamId, Timer,
};

/// Received datagrams that are kept for inspection; later ones are only counted.
const KEPT: usize = 10_000;

/// Bytes of one stream that are kept, about.
const STREAM_KEPT: usize = 2 << 20;

/// Datagrams that wait, bounded in number; `saturated` makes new ones without end.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) queues: BTreeMap<ConnectionKey, VecDeque<Bytes>>,
    saturated: BTreeMap<ConnectionKey, Option<usize>>,
    /// Taken in from the application.
    pub(crate) accepted: u64,
    /// Dropped here because no packet takes them any more.
    pub(crate) too_long: u64,
}

impl Source {
    /// Datagrams that one connection may have waiting.
    pub(crate) const CAPACITY: usize = 512;

    /// Takes a datagram in where there is room.
    pub(crate) fn push(&mut self, connection: ConnectionKey, datagram: Bytes) -> bool {
        let queue = self.queues.entry(connection).or_default();
        if queue.len() >= Self::CAPACITY {
            return false;
        }
        queue.push_back(datagram);
        self.accepted += 1;
        true
    }

    /// From now on `connection` always has a datagram of `size` bytes, or of the largest size.
    pub(crate) fn saturate(&mut self, connection: ConnectionKey, size: Option<usize>) {
        self.saturated.insert(connection, size);
    }

    pub(crate) fn calm(&mut self) {
        self.saturated.clear();
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.queues.values().map(|queue| queue.len() as u64).sum()
    }
}

impl DatagramSource for Source {
    fn waits(&self, connection: ConnectionKey) -> bool {
        self.saturated.contains_key(&connection)
            || self
                .queues
                .get(&connection)
                .is_some_and(|queue| !queue.is_empty())
    }

    fn next_datagram(&mut self, connection: ConnectionKey, size_max: usize, room: usize) -> Option<Bytes> {
        if let Some(size) = self.saturated.get(&connection) {
            let size = size.unwrap_or(size_max).min(size_max);
            if size > room {
                return None;
            }
            self.accepted += 1;
            return Some(Bytes::from(vec![self.accepted as u8; size]));
        }
        let queue = self.queues.get_mut(&connection)?;
        while queue.front()?.len() > size_max {
            queue.pop_front();
            self.too_long += 1;
        }
        if queue.front()?.len() > room {
            return None;
        }
        queue.pop_front()
    }
}

/// Records what arrives.
pub(crate) struct Recorder {
    pub(crate) ceiling: u16,
    /// The first [`KEPT`] payloads.
    pub(crate) datagrams: Vec<Bytes>,
    pub(crate) datagram_count: u64,
    pub(crate) datagram_bytes: u64,
    /// Segments of other shards.
    pub(crate) foreign: Vec<(u8, Ecn, Vec<u8>)>,
    /// Datagrams that were given away: from whom, and the size of each.
    pub(crate) given_away: Vec<(SocketAddr, Vec<u8>, usize)>,
}

impl Receiver for Recorder {
    fn datagram(&mut self, _connection: ConnectionKey, payload: Bytes) {
        self.datagram_count += 1;
        self.datagram_bytes += payload.len() as u64;
        if self.datagrams.len() < KEPT {
            self.datagrams.push(payload);
        }
    }

    fn udp_payload_ceiling(&mut self, _remote: SocketAddr) -> u16 {
        self.ceiling
    }

    fn foreign_segment(&mut self, shard: u8, _path: Path, ecn: Ecn, segment: &[u8]) {
        self.foreign.push((shard, ecn, segment.to_vec()));
    }

    fn given_away(&mut self, path: Path, _: Ecn, datagrams: BytesMut, segment_size: usize) {
        self.given_away
            .push((path.remote, datagrams.to_vec(), segment_size));
    }
}

/// One train as it left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) bytes: usize,
    pub(crate) segment_size: usize,
    pub(crate) ecn: Ecn,
    pub(crate) first_byte: u8,
}

pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) address: SocketAddr,
    pub(crate) source: Source,
    pub(crate) recorder: Recorder,
    pub(crate) outbox: Outbox,
    /// Every connection gets the rights of a user as soon as it stands.
    pub(crate) authenticates: bool,
    /// How new connections are accepted as they come; `None`: the test decides.
    pub(crate) accepts: Option<AcceptParameters>,
    /// New connections as they were offered, decided on or not.
    pub(crate) incoming: Vec<Incoming>,
    pub(crate) expired: Vec<(Instant, IncomingKey)>,
    /// Streams are read as data comes.
    pub(crate) reads: bool,
    pub(crate) connected: Vec<ConnectionKey>,
    pub(crate) redirected: Vec<ConnectionKey>,
    pub(crate) closed: Vec<(Instant, CloseReason)>,
    pub(crate) opened: Vec<StreamId>,
    pub(crate) finished: Vec<(Instant, StreamId)>,
    pub(crate) datagrams_dropped: u64,
    pub(crate) timers_seen: Vec<Timer>,
    pub(crate) stream_bytes: u64,
    /// The first [`STREAM_KEPT`] bytes of each.
    pub(crate) streams: BTreeMap<(ConnectionKey, StreamId), Vec<u8>>,
    pub(crate) ended_streams: Vec<StreamId>,
    /// A stream that always has more to say.
    pub(crate) bulk: Option<(ConnectionKey, StreamId)>,
    pub(crate) bulk_written: u64,
    pub(crate) sent: Vec<Sent>,
    /// Whether trains are recorded in `sent`.
    pub(crate) keeps_sent: bool,
    /// Copies of first packets, where wanted.
    pub(crate) captured: Option<Vec<Vec<u8>>>,
}

impl Side {
    pub(crate) fn new(endpoint: Endpoint, address: SocketAddr, ceiling: u16) -> Self {
        let recorder = Recorder {
            ceiling,
            datagrams: Vec::new(),
            datagram_count: 0,
            datagram_bytes: 0,
            foreign: Vec::new(),
            given_away: Vec::new(),
        };
        Self {
            endpoint,
            address,
            source: Source::default(),
            recorder,
            outbox: Outbox::default(),
            authenticates: true,
            accepts: Some(AcceptParameters::default()),
            incoming: Vec::new(),
            expired: Vec::new(),
            reads: true,
            connected: Vec::new(),
            redirected: Vec::new(),
            closed: Vec::new(),
            opened: Vec::new(),
            finished: Vec::new(),
            datagrams_dropped: 0,
            timers_seen: Vec::new(),
            stream_bytes: 0,
            streams: BTreeMap::new(),
            ended_streams: Vec::new(),
            bulk: None,
            bulk_written: 0,
            sent: Vec::new(),
            keeps_sent: true,
            captured: None,
        }
    }

    pub(crate) fn receive(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        bytes: BytesMut,
        segment_size: usize,
    ) {
        let Self {
            endpoint,
            recorder,
            outbox,
            ..
        } = self;
        endpoint.handle_received(now, path, ecn, bytes, segment_size, recorder, outbox);
    }

    /// Offers a datagram to the source.
    pub(crate) fn send_datagram(&mut self, connection: ConnectionKey, datagram: impl Into<Bytes>) -> bool {
        let taken = self.source.push(connection, datagram.into());
        self.endpoint.mark_ready(connection);
        taken
    }

    pub(crate) fn saturate(&mut self, connection: ConnectionKey, size: Option<usize>) {
        self.source.saturate(connection, size);
        self.endpoint.mark_ready(connection);
    }

    /// Timers that are due, events, stream reads and writes, and one flush. Whether a connection had to wait.
    pub(crate) fn work(&mut self, now: Instant) -> bool {
        if let Some((due, timer)) = self.endpoint.poll_timeout()
            && due <= now
        {
            self.timers_seen.push(timer);
            self.endpoint.handle_timeout(now);
        }
        self.handle_events(now);
        self.write_bulk();
        let more = self.endpoint.flush(now, &mut self.source, &mut self.outbox);
        self.handle_events(now);
        more
    }

    fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Incoming(incoming) => {
                    if let Some(parameters) = &self.accepts {
                        // A first packet that cannot be used is counted by the endpoint.
                        let _ = self.endpoint.accept(now, incoming.key, parameters);
                    }
                    self.incoming.push(incoming);
                }
                Event::IncomingExpired { incoming } => self.expired.push((now, incoming)),
                Event::Connected { connection } => {
                    self.connected.push(connection);
                    if self.authenticates {
                        self.endpoint.authenticate(now, connection);
                    }
                }
                Event::Redirected { connection } => self.redirected.push(connection),
                Event::Closed { reason, .. } => self.closed.push((now, reason)),
                Event::DatagramsDropped { count, .. } => self.datagrams_dropped += count,
                Event::StreamOpened { connection, stream } => {
                    self.opened.push(stream);
                    self.read_stream(connection, stream);
                }
                Event::StreamReadable { connection, stream } => self.read_stream(connection, stream),
                Event::StreamFinished { stream, .. } => self.finished.push((now, stream)),
                Event::RemoteChanged { .. }
                | Event::StreamWritable { .. }
                | Event::StreamStopped { .. }
                | Event::PathMtuChanged { .. }
                | Event::CreditWanted { .. }
                | Event::Congestion { .. }
                | Event::StreamsAvailable { .. } => {}
            }
        }
    }

    fn read_stream(&mut self, connection: ConnectionKey, stream: StreamId) {
        if self.reads {
            self.read_all(connection, stream);
        }
    }

    /// Reads what is there.
    pub(crate) fn read_all(&mut self, connection: ConnectionKey, stream: StreamId) {
        loop {
            match self.endpoint.read(connection, stream, usize::MAX) {
                Ok(Read::Data(bytes)) => {
                    self.stream_bytes += bytes.len() as u64;
                    let kept = self.streams.entry((connection, stream)).or_default();
                    if kept.len() < STREAM_KEPT {
                        kept.extend_from_slice(&bytes);
                    }
                }
                Ok(Read::Finished) => {
                    self.ended_streams.push(stream);
                    return;
                }
                Ok(Read::Blocked) | Err(_) => return,
            }
        }
    }

    /// Begins the bulk stream where nothing else wakes this side.
    pub(crate) fn mark(&mut self) {
        self.write_bulk();
    }

    fn write_bulk(&mut self) {
        let Some((connection, stream)) = self.bulk else {
            return;
        };
        while let Ok(written @ 1..) = self.endpoint.write(connection, stream, &[0x5a; 64 << 10]) {
            self.bulk_written += written as u64;
        }
    }

    /// The trains in the outbox, which are thereby sent.
    pub(crate) fn take_trains(&mut self, now: Instant) -> Vec<OutgoingTrain> {
        let trains: Vec<OutgoingTrain> = self
            .outbox
            .trains()
            .iter()
            .map(|train| OutgoingTrain {
                destination: train.destination,
                source: train.source,
                ecn: train.ecn,
                segment_size: train.segment_size,
                bytes: train.bytes.clone(),
            })
            .collect();
        for train in trains.iter().filter(|_| self.keeps_sent) {
            let (bytes, segment_size, ecn) = (train.bytes.len(), train.segment_size, train.ecn);
            self.sent.push(Sent {
                at: now,
                bytes,
                segment_size,
                ecn,
                first_byte: train.bytes[0],
            });
            if let Some(captured) = &mut self.captured {
                captured.push(train.bytes.clone());
            }
        }
        self.outbox.release(trains.len());
        trains
    }

    /// Where every accepted datagram is: sent, given up, still waiting, inside quinn-proto.
    pub(crate) fn assert_every_datagram_is_accounted_for(&self) {
        let totals = self.endpoint.totals();
        let known = totals.datagrams_sent
            + self.datagrams_dropped
            + self.source.too_long
            + self.source.waiting()
            + self.endpoint.datagrams_held();
        assert_eq!(
            self.source.accepted,
            known,
            "sent {}, dropped {}, too long {}, waiting {}, held {}",
            totals.datagrams_sent,
            self.datagrams_dropped,
            self.source.too_long,
            self.source.waiting(),
            self.endpoint.datagrams_held()
        );
    }
}
