//! Received messages: each run of datagrams goes where its class says; of ours, each segment is answered, given to its
//! connection, or begins one.

use std::time::Instant;

use bytes::BytesMut;
use packet::Ecn;
use quinn_proto::{ConnectionEvent, DatagramEvent, EcnCodepoint};

use super::{Endpoint, Path, Receiver};
use crate::classifier::{Arrived, Class};
use crate::connection_id::{Block, IdLength, destination_block};
use crate::event::{ConnectionKey, Event};
use crate::transmit::Outbox;
use crate::{initial, translate};

/// What is the same for all segments of one message.
#[derive(Clone, Copy)]
struct Message {
    now: Instant,
    path: Path,
    ecn: Ecn,
    segment_size: usize,
}

impl Endpoint {
    /// Takes one received message: one UDP datagram, or several of `segment_size` bytes that the kernel coalesced.
    ///
    /// Answers that belong to no connection (Retry, version negotiation, stateless reset) go to `outbox`, or are left
    /// out where it is full.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one received message, and the two ways on"
    )]
    pub fn handle_received(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        mut data: BytesMut,
        segment_size: usize,
        receiver: &mut impl Receiver,
        outbox: &mut Outbox,
    ) {
        let segment_size = if segment_size == 0 {
            data.len()
        } else {
            segment_size
        };
        let message = Message {
            now,
            path,
            ecn,
            segment_size,
        };
        while !data.is_empty() {
            let run = self.classifier.classify(&Arrived {
                now,
                path,
                ecn,
                segment_size,
                bytes: &data,
            });
            let bytes = run.bytes(segment_size, data.len());
            self.classified
                .count(run.class, bytes.div_ceil(segment_size) as u64);
            let run_of = if bytes < data.len() {
                data.split_to(bytes)
            } else {
                std::mem::take(&mut data)
            };
            match run.class {
                Class::Ours => self.take_ours(message, run_of, receiver, outbox),
                Class::OtherShard(shard) => {
                    for segment in packet::segments(&run_of, segment_size) {
                        receiver.foreign_segment(shard, path, ecn, segment);
                    }
                }
                Class::Predecessor(shard) => {
                    receiver.predecessor_datagrams(shard, path, ecn, &run_of, segment_size);
                }
                Class::GivenAway => receiver.given_away(path, ecn, run_of, segment_size),
                Class::Dropped(_) => {}
            }
        }
    }

    /// Takes one datagram that the [`Classifier`](crate::Classifier) gave away and that the caller lets in all the same. It
    /// has been counted.
    pub fn handle_admitted(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: BytesMut,
        receiver: &mut impl Receiver,
        outbox: &mut Outbox,
    ) {
        let message = Message {
            now,
            path,
            ecn,
            segment_size: datagram.len(),
        };
        self.take_ours(message, datagram, receiver, outbox);
    }

    /// Says how many streams of `connection` hold received data that their reader does not take: while there are some,
    /// received packets are copied out of the batch buffers, so that unread bytes pin no more than themselves, and the
    /// connection's window is wide enough for the other streams to go on.
    pub fn set_standing_readers(&mut self, connection: ConnectionKey, count: usize) {
        let Some(entry) = self.live(connection) else {
            return;
        };
        let before = std::mem::replace(&mut entry.standing_readers, count);
        entry.widen_receive_window();
        self.standing_readers = self.standing_readers + count - before;
    }

    /// Whether packets are copied out of the buffers that they are received in, since too many of these are kept by unread
    /// pieces of streams. A caller with a large buffer for each message says so before it hands messages over.
    pub fn set_copies_received(&mut self, copies: bool) {
        self.copies_received = copies;
    }

    /// QUIC reads what is ours.
    fn take_ours(
        &mut self,
        message: Message,
        mut data: BytesMut,
        receiver: &mut impl Receiver,
        outbox: &mut Outbox,
    ) {
        let mut touched = None;
        while !data.is_empty() {
            let segment = data.split_to(message.segment_size.min(data.len()));
            self.take_segment(message, segment, &mut touched, receiver, outbox);
        }
        self.drain_datagrams(touched, receiver);
    }

    /// QUIC reads one segment; `touched` is the connection whose datagrams were not yet given to `receiver`.
    fn take_segment(
        &mut self,
        message: Message,
        mut segment: BytesMut,
        touched: &mut Option<usize>,
        receiver: &mut impl Receiver,
        outbox: &mut Outbox,
    ) {
        let Message { now, path, .. } = message;
        let codepoint = EcnCodepoint::from_bits(message.ecn.bits());
        let length = segment.len();
        let is_long_header = initial::is_long_header(&segment);
        let id = destination_block(&segment, self.id_length);
        // Unread stream data and handshakes that wait pin the whole receive buffer that they arrived in.
        let taken = if is_long_header || self.must_copy(id) {
            BytesMut::from(&segment[..])
        } else {
            std::mem::take(&mut segment)
        };
        let mut response = outbox.buffer();
        let event = self
            .proto
            .handle(now, path.remote, path.local, codepoint, taken, &mut response);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                outbox.return_buffer(response);
                if *touched != Some(handle.0) {
                    self.drain_datagrams(*touched, receiver);
                    *touched = Some(handle.0);
                }
                self.take_packet(now, handle.0, event, id, length);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                outbox.return_buffer(response);
                self.admit(now, incoming, &segment, receiver, outbox);
            }
            Some(DatagramEvent::Response(_)) if self.is_covered => {
                outbox.return_buffer(response);
                self.give_back(message, segment, id, receiver);
            }
            Some(DatagramEvent::Response(transmit)) => {
                let is_reset = self.server.is_none() || !is_long_header;
                if outbox.is_full() || is_reset && !self.resets.take(now, path.remote.ip()) {
                    outbox.return_buffer(response);
                } else {
                    outbox.push(translate::train(&transmit, false, response));
                }
            }
            None => {
                outbox.return_buffer(response);
                // An Initial may wait in the core for the decision on its connection.
                if self.is_covered && !initial::is_initial(&segment) {
                    self.give_back(message, segment, id, receiver);
                }
            }
        }
    }

    /// QUIC knows nothing of a segment that the classifier let through, e.g. because its connection has ended: it is the
    /// caller's again. One whose connection ID was a user's until now was not copied, and is lost.
    fn give_back(
        &mut self,
        message: Message,
        segment: BytesMut,
        id: Option<Block>,
        receiver: &mut impl Receiver,
    ) {
        if let Some(id) = id {
            self.trusted_ids.forget(id);
        }
        if segment.is_empty() {
            return;
        }
        self.classified.returned += 1;
        let size = segment.len();
        receiver.given_away(message.path, message.ecn, segment, size);
    }

    /// Whether a packet with this connection ID is copied, so that what QUIC keeps of it pins no more than itself.
    fn must_copy(&self, id: Option<Block>) -> bool {
        self.standing_readers > 0 || self.copies_received || self.is_unknown(id)
    }

    /// Whether an ID, or none, may lead to a stranger. Where we have no IDs, we began all connections.
    fn is_unknown(&self, id: Option<Block>) -> bool {
        self.id_length != IdLength::NONE && !id.is_some_and(|id| self.trusted_ids.has(id))
    }

    /// The packet of a connection. A stranger that keeps as much as it may is heard no more until its token was judged,
    /// and one that is drained never again.
    fn take_packet(
        &mut self,
        now: Instant,
        index: usize,
        event: ConnectionEvent,
        id: Option<Block>,
        length: usize,
    ) {
        let entry = self.connections.get_mut(index).and_then(Option::as_mut);
        let Some(connection) = entry.filter(|connection| !connection.proto.is_drained()) else {
            return;
        };
        if self.peers.is_some() {
            connection.unread.packet(length);
        }
        if !connection.is_stranger() {
            if self.peers.is_some() {
                connection.handle_packet_of_peer(now, event);
            } else {
                connection.proto.handle_event(event);
            }
            if let Some(id) = id.filter(|id| !self.trusted_ids.has(*id)) {
                self.trusted_ids.remember(id);
            }
        } else if !connection.charge.is_full() {
            connection.proto.handle_event(event);
            self.charge(now, index, length);
        }
    }

    fn drain_datagrams(&mut self, index: Option<usize>, receiver: &mut impl Receiver) {
        let Some(index) = index else { return };
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        while let Some(payload) = connection.proto.datagrams().recv() {
            if !connection.closed {
                receiver.datagram(ConnectionKey(index), payload);
            }
        }
        if self.peers.is_some() && connection.look_at_streams() {
            let connection = ConnectionKey(index);
            self.events.push_back(Event::CreditWanted { connection });
        }
        self.touch(index);
    }
}
