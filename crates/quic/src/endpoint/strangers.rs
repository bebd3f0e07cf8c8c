//! Peers that have shown no valid token: what they may keep in memory, how they make room for newcomers, and how they
//! become users.

use std::time::Instant;

use quinn_proto::{ConnectionHandle, Dir, EndpointEvent};

use super::Endpoint;
use crate::admission::Stranger;
use crate::error::CloseReason;
use crate::event::ConnectionKey;

impl Endpoint {
    /// The peer has shown a valid token: it gets the streams and credit of a user, and no deadline.
    pub fn authenticate(&mut self, now: Instant, connection: ConnectionKey) {
        self.authenticate_narrow(now, connection);
        self.widen(connection);
    }

    /// The same without the credit: a stranger's goes on to hold, until [`Self::widen`].
    pub fn authenticate_narrow(&mut self, now: Instant, connection: ConnectionKey) {
        let Some(entry) = self.live(connection) else {
            return;
        };
        let Some(place) = entry.place.take() else {
            return;
        };
        (entry.deadline, entry.token_deadline) = (None, None);
        entry.grant_streams(Dir::Bi);
        entry.grant_streams(Dir::Uni);
        self.strangers_bytes -= entry.charge.bytes();
        self.admission.authenticated(now, place);
        self.touch(connection.0);
    }

    /// Gives a peer of [`Self::authenticate_narrow`] the credit of a user.
    pub fn widen(&mut self, connection: ConnectionKey) {
        if let Some(entry) = self.live(connection) {
            entry.widen_receive_window();
            self.touch(connection.0);
        }
    }

    /// A stranger's packet of `length` bytes has come: the stranger is charged for what QUIC keeps of it.
    pub(super) fn charge(&mut self, now: Instant, index: usize, length: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        self.strangers_bytes += connection.charge.add(length, connection.frames_kept());
        while self.strangers_bytes > self.strangers_bytes_max
            && let Some(greediest) = self.greediest_stranger()
        {
            self.push_out(now, Stranger::Connection(greediest));
        }
    }

    /// The stranger that keeps the most in memory.
    fn greediest_stranger(&self) -> Option<ConnectionKey> {
        let bytes = |key: &ConnectionKey| {
            let connection = self.connections.get(key.0)?.as_ref()?;
            Some(connection.charge.bytes())
        };
        self.admission.connections().max_by_key(bytes)
    }

    /// A stranger makes room.
    pub(super) fn push_out(&mut self, now: Instant, stranger: Stranger) {
        match stranger {
            Stranger::Undecided(incoming) => self.expire(incoming),
            Stranger::Connection(connection) => {
                self.incoming.pushed_out += 1;
                self.discard(
                    now,
                    connection.0,
                    CloseReason::PushedOut,
                    b"too many without a token",
                );
            }
        }
    }

    /// Ends a stranger's connection: it is told once, and nothing is kept of it, whereas others wait until late packets
    /// have come in.
    pub(super) fn discard(&mut self, now: Instant, index: usize, why: CloseReason, reason: &[u8]) {
        self.end(now, index, why, 0, reason);
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !connection.is_mute() {
            let mut farewell = Vec::new();
            let transmit = connection.farewell(now, &mut farewell);
            self.answer(transmit, farewell);
        }
        self.drain(index);
    }

    /// Forgets a connection that has ended, and does not wait for late packets.
    pub(super) fn drain(&mut self, index: usize) {
        self.proto
            .handle_event(ConnectionHandle(index), EndpointEvent::drained());
        self.remove(index);
    }
}
