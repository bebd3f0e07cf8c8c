//! Where datagrams come from and where trains go.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use packet::Ecn;

use crate::event::ConnectionKey;
use crate::limits;

/// Gives datagrams to a connection when its next transmit can take them.
pub trait DatagramSource {
    /// Whether a datagram waits for `connection`.
    fn waits(&self, connection: ConnectionKey) -> bool;

    /// The next datagram for `connection`, or `None` where nothing waits or the next one is longer than `room` bytes.
    ///
    /// What is longer than `size_max` bytes can never be sent: the source drops and counts it, and goes on.
    fn next_datagram(&mut self, connection: ConnectionKey, size_max: usize, room: usize) -> Option<Bytes>;
}

/// A train of QUIC packets to one address.
#[derive(Debug)]
pub struct OutgoingTrain {
    /// Where to.
    pub destination: SocketAddr,
    /// Local address to send from, where the peer's packets came to one of several.
    pub source: Option<IpAddr>,
    /// ECN codepoint of all packets.
    pub ecn: Ecn,
    /// Bytes of every packet but the last, which may be shorter.
    pub segment_size: usize,
    /// The packets.
    pub bytes: Vec<u8>,
}

/// Trains that wait for the socket, in order; their buffers are reused.
#[derive(Debug, Default)]
pub struct Outbox {
    trains: Vec<OutgoingTrain>,
    spare: Vec<Vec<u8>>,
    /// Bytes of all trains that were ever added.
    bytes: usize,
}

impl Outbox {
    /// The trains, oldest first.
    #[must_use]
    pub fn trains(&self) -> &[OutgoingTrain] {
        &self.trains
    }

    /// The same, so that their destinations can be exchanged.
    pub fn trains_mut(&mut self) -> &mut [OutgoingTrain] {
        &mut self.trains
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Whether [`limits::OUTBOX_TRAINS`] trains wait: nothing is added until some have left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.trains.len() >= limits::OUTBOX_TRAINS
    }

    /// Forgets the first `count` trains, which have been sent or given up.
    pub fn release(&mut self, count: usize) {
        for mut train in self.trains.drain(..count.min(self.trains.len())) {
            train.bytes.clear();
            self.spare.push(train.bytes);
        }
    }

    /// Forgets the trains of which `is_gone` says so.
    pub fn discard(&mut self, is_gone: impl Fn(&OutgoingTrain) -> bool) {
        for mut train in self.trains.extract_if(.., |train| is_gone(train)) {
            train.bytes.clear();
            self.spare.push(train.bytes);
        }
    }

    /// Cuts `segments` packets, which have been sent, from the front of the first train.
    pub fn advance(&mut self, segments: usize) {
        if let Some(train) = self.trains.first_mut() {
            let sent = (segments * train.segment_size).min(train.bytes.len());
            train.bytes.drain(..sent);
        }
    }

    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back a buffer that is not sent, whatever was written into it.
    pub(crate) fn return_buffer(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.spare.push(buffer);
    }

    /// Bytes of all trains that were ever added.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a train that its caller has composed.
    pub fn push(&mut self, train: OutgoingTrain) {
        self.bytes = self.bytes.wrapping_add(train.bytes.len());
        self.trains.push(train);
    }
}
