//! A peer's stages: its connection is complete, is closed, and is gone.

use std::time::Instant;

use quic::{CloseReason, ConnectionKey};

use super::{PeerKey, Peers, Share, code};
use crate::event::Event;
use crate::id::PeerId;
use crate::incoming::Incoming;
use crate::peer::{Peer, Stage};
use crate::receiver::Violation;

impl Peers {
    pub(super) fn connected(&mut self, now: Instant, connection: ConnectionKey) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let Some(id) = self.quic.peer_key(connection).map(PeerId::from) else {
            return self.condemn(now, index, "no Ed25519 key");
        };
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let is_incoming = matches!(peer.stage, Stage::Accepting(_));
        let is_admitted = self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&id));
        if is_incoming && !is_admitted {
            self.refusals.not_allowed += 1;
            let refused = "this peer ID is not allowed here";
            peer.verdict = Some(CloseReason::Protocol(refused.to_owned()));
            return self
                .quic
                .close(now, connection, code::REFUSED, refused.as_bytes());
        }
        peer.id = Some(id);
        let former = std::mem::replace(&mut peer.stage, Stage::Connected(connection));
        self.quic.authenticate_narrow(now, connection);
        self.occupy(now, connection);
        let mut addresses = self.end_checks(now, id);
        if let Stage::Connecting(race) = former {
            if race.meeting().is_some() {
                addresses.extend(race.known());
            }
            let attempts = race.attempts(Some(connection));
            let peer = self.key(index);
            self.events.push_back(Event::Tried { peer, attempts });
            self.set_timer(index, None);
            self.meeting_peers.retain(|meeting| *meeting != index);
            for other in race.connections().filter(|other| *other != connection) {
                self.by_connection[other.index()] = None;
                self.quic.close(now, other, 0, b"another path was faster");
            }
        }
        if !addresses.is_empty() {
            self.add_paths(now, index, &addresses);
        }
        let peer = self.key(index);
        self.events.push_back(Event::Connected {
            peer,
            id,
            is_incoming,
        });
        self.touch(index);
    }

    /// Ends the connection, or the attempts, with a code below 0xff00 and a reason for the peer's log.
    /// [`Event::Closed`] or [`Event::Failed`] follows. Where the connection has ended already, what is unread goes.
    pub fn close(&mut self, now: Instant, peer: PeerKey, code: u32, reason: &[u8]) {
        let Some(entry) = self.peer(peer) else {
            return;
        };
        if let Stage::Connecting(race) = &mut entry.stage {
            race.give_up();
        }
        if matches!(entry.stage, Stage::Ended) {
            return self.remove(peer.index());
        }
        let connections: Vec<ConnectionKey> = match &entry.stage {
            Stage::Connecting(race) => race.connections().collect(),
            Stage::Accepting(connection) | Stage::Connected(connection) => vec![*connection],
            Stage::Ended => Vec::new(),
        };
        for connection in connections {
            self.quic.close(now, connection, code, reason);
        }
        // A race without an attempt has nothing that would end.
        self.end_lost_race(now, peer.index());
    }

    /// Ends all connections. What is unread can be read still.
    pub fn close_all(&mut self, now: Instant, code: u32, reason: &[u8]) {
        let has_ended = |peer: &Peer| matches!(peer.stage, Stage::Ended);
        for index in 0..self.peers.len() {
            if self.peers[index].as_deref().is_none_or(has_ended) {
                continue;
            }
            self.close(now, self.key(index), code, reason);
        }
    }

    /// The peer broke a rule (PEER-16).
    pub(super) fn condemn(&mut self, now: Instant, index: usize, violation: Violation) {
        if let Some(peer) = self.peers[index].as_deref_mut()
            && let Stage::Connected(connection) | Stage::Accepting(connection) = peer.stage
        {
            if peer.verdict.is_none() {
                self.refusals.violations += 1;
                peer.verdict = Some(CloseReason::Protocol(format!("the peer sent {violation}")));
            }
            self.quic
                .close(now, connection, code::PROTOCOL, violation.as_bytes());
        }
    }

    pub(super) fn closed(&mut self, now: Instant, connection: ConnectionKey, reason: CloseReason) {
        self.routes.closed(connection);
        let Some(index) = self.index_of(connection) else {
            return;
        };
        self.by_connection[connection.index()] = None;
        self.hand_paths_on(now, index, connection);
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        let reason = peer.verdict.take().unwrap_or(reason);
        match &mut peer.stage {
            Stage::Connecting(race) => {
                race.ended(connection, reason);
                self.advance_race(now, index);
                self.end_lost_race(now, index);
            }
            Stage::Accepting(_) | Stage::Ended => self.remove(index),
            Stage::Connected(_) => {
                if let Some(sender) = peer.sender.get_mut() {
                    sender.end_all();
                }
                // What waits in QUIC waits for room at a receiver.
                let untold = peer.receiver.get_mut().map_or_else(Vec::new, |receiver| {
                    let untold = peer.incoming.take_rest(&mut self.quic, connection, receiver);
                    receiver.end();
                    untold
                });
                for stream in &untold {
                    peer.inbound.opened(*stream);
                }
                peer.inbound.take_rests(&mut self.quic, connection);
                peer.incoming = Incoming::new(self.message_bytes_max);
                peer.stage = Stage::Ended;
                let has_unread = peer.has_unread();
                for stream in untold.into_iter().filter(|stream| peer.inbound.has_rest(*stream)) {
                    self.events.push_back(Event::StreamOpened { peer: key, stream });
                }
                self.set_timer(index, None);
                self.recount(index);
                // It fails only with a connection.
                let _ = self.settle_peer(now, index);
                self.events.push_back(Event::Closed {
                    peer: key,
                    reason,
                    has_unread,
                });
                if !has_unread {
                    self.remove(index);
                }
            }
        }
    }

    /// Forgets a peer whose connection has ended and of which everything is read.
    pub(super) fn remove_if_read(&mut self, index: usize) {
        let is_over = |peer: &Peer| matches!(peer.stage, Stage::Ended) && !peer.has_unread();
        if self.peers[index].as_deref().is_some_and(is_over) {
            self.remove(index);
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        if let Some(peer) = self.peers[index].take() {
            self.discount(index, peer.counted);
            if peer.share == Share::Whole {
                self.windows.give_back();
            }
            if let Some(timer) = peer.timer {
                self.timers.remove(&(timer, index));
            }
            self.touched.retain(|touched| *touched != index);
            self.meeting_peers.retain(|meeting| *meeting != index);
            self.free.push(index);
        }
    }
}
