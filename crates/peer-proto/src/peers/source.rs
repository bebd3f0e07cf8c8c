//! Between the peers' messages and QUIC's datagrams.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quic::{ConnectionKey, DatagramSource, Receiver};

use crate::payloads::Payloads;
use crate::peer::Peer;
use crate::sender::{Sender, ack_frame};

/// Keeps datagrams until their batch is handled.
pub(super) struct Arrivals<'a> {
    pub(super) datagrams: &'a mut Vec<(ConnectionKey, Bytes)>,
    pub(super) now: Instant,
    pub(super) payloads: &'a mut Payloads,
}

impl Receiver for Arrivals<'_> {
    fn datagram(&mut self, connection: ConnectionKey, payload: Bytes) {
        self.datagrams.push((connection, payload));
    }

    fn udp_payload_ceiling(&mut self, remote: SocketAddr) -> u16 {
        self.payloads.towards(self.now, remote)
    }
}

/// Gives QUIC the frames of a flush.
pub(super) struct Source<'a> {
    pub(super) now: Instant,
    pub(super) peers: &'a mut [Option<Box<Peer>>],
    pub(super) by_connection: &'a [Option<usize>],
    pub(super) arena: &'a mut BytesMut,
    pub(super) touched: &'a mut Vec<usize>,
    /// The connection that had the last frame of a message, and the bytes of this one where it was its first of this
    /// flush.
    pub(super) last: Option<(ConnectionKey, Option<usize>)>,
}

impl Source<'_> {
    fn ack_is_due(&self, peer: &Peer) -> bool {
        peer.ack_due().is_some_and(|due| due <= self.now)
    }
}

impl DatagramSource for Source<'_> {
    fn waits(&self, connection: ConnectionKey) -> bool {
        let index = self.by_connection.get(connection.index()).copied().flatten();
        let peer = index.and_then(|index| self.peers[index].as_deref());
        peer.is_some_and(|peer| {
            peer.connection() == Some(connection)
                && (peer.sender.get().is_some_and(Sender::waits) || self.ack_is_due(peer))
        })
    }

    fn next_datagram(&mut self, connection: ConnectionKey, size_max: usize, room: usize) -> Option<Bytes> {
        let index = self.by_connection.get(connection.index()).copied().flatten()?;
        let now = self.now;
        let peer = self.peers[index].as_deref_mut()?;
        if peer.connection() != Some(connection) {
            return None;
        }
        if !std::mem::replace(&mut peer.is_touched, true) {
            self.touched.push(index);
        }
        if let Some(receiver) = peer.receiver.get_mut()
            && receiver.ack_due().is_some_and(|due| due <= now)
        {
            // Left for the next packet where it does not fit: an empty one has more room than the largest ACK.
            if room < size_max.min(ACK_ROOM_MIN) {
                return None;
            }
            return ack_frame(receiver.take_ack(), room, self.arena);
        }
        let sender = peer.sender.get_mut()?;
        let last = self.last.filter(|(last, _)| *last == connection);
        let frame = sender.next_frame(now, size_max, room, self.arena);
        if let Some(frame) = frame {
            self.last = Some((connection, last.is_none().then_some(frame.len())));
            return Some(frame);
        }
        let receiver = peer.receiver.get_mut()?;
        // A message that leaves alone, as answers do, takes along what would leave in a packet of its own; what is left
        // of its packet is less than this by what frames have before them.
        let left = last
            .and_then(|(_, alone)| alone)
            .map_or(0, |bytes| size_max.saturating_sub(bytes));
        if left >= 2 * ACK_ROOM_MIN && !sender.waits() && receiver.ack_due().is_some() {
            return ack_frame(receiver.take_ack(), room.min(left - ACK_ROOM_MIN), self.arena);
        }
        None
    }
}

/// Bytes of room in which an ACK tells of several ranges.
const ACK_ROOM_MIN: usize = 64;
