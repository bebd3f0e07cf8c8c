//! The program's messages, and the frames that bring the peer's.

use std::time::Instant;

use bytes::Bytes;
use quic::ConnectionKey;

use super::{PeerKey, Peers};
use crate::delivery::{Delivery, Received, Ticket};
use crate::error::SendError;
use crate::frame::Frame;
use crate::receiver::{Receiver, Violation};
use crate::sender::Sender;

impl Peers {
    /// Takes a message for sending; its ticket ends in [`crate::Event::Ended`].
    ///
    /// # Errors
    /// [`SendError`]; the message is the caller's then.
    pub fn send(
        &mut self,
        now: Instant,
        peer: PeerKey,
        body: Bytes,
        delivery: Delivery,
    ) -> Result<Ticket, SendError> {
        let max = self.message_bytes_max;
        if body.len() > max {
            let bytes = body.len();
            return Err(SendError::TooLarge { bytes, max });
        }
        let connection = self.peer(peer).and_then(|peer| peer.connection());
        let connection = connection.ok_or(SendError::NotConnected)?;
        let frame_bytes_max = self.quic.datagram_max(connection).unwrap_or(0);
        let bytes_max = self.send_bytes_max;
        let entry = self.peer(peer).ok_or(SendError::NotConnected)?;
        let sender = entry.sender.used(|| Sender::new(bytes_max));
        let ticket = sender.send(now, body, delivery, frame_bytes_max)?;
        self.touch(peer.index());
        Ok(ticket)
    }

    /// [`crate::Event::Room`] is to come once no more than `held_max` bytes are among [`Self::waiting_bytes`], or
    /// earlier where it was asked for more; where that is so already, by the next [`Self::poll_event`]. Nothing comes
    /// of a peer to which no message was sent.
    pub fn want_room(&mut self, peer: PeerKey, held_max: usize) {
        let sender = self.peer(peer).and_then(|peer| peer.sender.get_mut());
        if let Some(sender) = sender {
            sender.want_room(held_max);
            self.touch(peer.index());
        }
    }

    /// The next message of a peer.
    pub fn read_message(&mut self, now: Instant, peer: PeerKey) -> Option<Received> {
        let entry = self.peer(peer)?;
        let received = entry.receiver.get_mut().and_then(|receiver| receiver.read(now));
        entry.told &= received.is_some();
        self.recount(peer.index());
        self.touch(peer.index());
        self.remove_if_read(peer.index());
        received
    }

    pub(super) fn take_frame(
        &mut self,
        now: Instant,
        index: usize,
        connection: ConnectionKey,
        datagram: Bytes,
    ) -> Result<(), Violation> {
        let bytes_max = self.send_bytes_max;
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return Ok(());
        };
        let make = || Receiver::new(self.message_bytes_max, self.udp_payload_max);
        let receiver = self
            .bound
            .use_receiver(index, peer.is_accepted, &mut peer.receiver, make);
        match Frame::read(datagram).ok_or("a frame that cannot be read")? {
            Frame::Ack(ack) => {
                let round_trip = self.quic.round_trip(connection).unwrap_or_default();
                let sender = peer.sender.used(|| Sender::new(bytes_max));
                sender.handle_ack(now, &ack, round_trip)?;
            }
            Frame::Probe => receiver.handle_probe(now),
            Frame::Skip { number, place } => receiver.handle_skip(now, number, place)?,
            Frame::Message { number, head, body } => {
                receiver.set_packets_are_copies(self.copies_received);
                receiver.handle_message(now, number, head, body)?;
            }
        }
        self.recount(index);
        self.touch(index);
        Ok(())
    }
}
