//! What comes of each input: events of QUIC, and what follows from them for the peers that they touch.

use std::time::Instant;

use quic::{AcceptParameters, ConnectionKey};

use super::{PeerKey, Peers};
use crate::event::Event;
use crate::peer::Stage;
use crate::receiver::Violation;
use crate::sender::Sender;

impl Peers {
    pub(super) fn touch(&mut self, index: usize) {
        if let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut)
            && !std::mem::replace(&mut peer.is_touched, true)
        {
            self.touched.push(index);
        }
    }

    /// The next event. To be asked until `None` after every call that takes input.
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        if self.events.is_empty() {
            self.settle(now);
        }
        self.events.pop_front()
    }

    /// Processes what QUIC reports, and what follows for touched peers.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.quic.poll_event() {
                self.take_event(now, event);
            }
            let Some(index) = self.touched.pop() else {
                return self.end_paths();
            };
            if let Some(peer) = self.peers[index].as_deref_mut() {
                peer.is_touched = false;
                if let Err(violation) = self.settle_peer(now, index) {
                    self.condemn(now, index, violation);
                }
            }
        }
    }

    pub(super) fn settle_peer(&mut self, now: Instant, index: usize) -> Result<(), Violation> {
        self.share_windows(now, index);
        self.resume_incoming(now, index)?;
        self.write_messages(index);
        let key = self.key(index);
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return Ok(());
        };
        if let Some(sender) = peer.sender.get_mut() {
            while let Some((ticket, outcome)) = sender.poll_ended() {
                self.events.push_back(Event::Ended {
                    peer: key,
                    ticket,
                    outcome,
                });
            }
            if sender.take_room() {
                self.events.push_back(Event::Room { peer: key });
            }
        }
        if peer.waiting() > 0 && !std::mem::replace(&mut peer.told, true) {
            self.events.push_back(Event::Received { peer: key });
        }
        if let Stage::Connected(connection) = peer.stage {
            let round_trip = self.quic.round_trip(connection).unwrap_or_default();
            let ack = peer.ack_due();
            if peer.sender.get().is_some_and(Sender::waits) || ack.is_some_and(|due| due <= now) {
                self.quic.mark_ready(connection);
            }
            // An acknowledgement that is due leaves with the next flush that congestion control lets go.
            let ack = ack.filter(|due| *due > now);
            let stalled = peer.incoming.poll_timeout(now);
            let sender = peer.sender.get_mut();
            let of_sender = sender.and_then(|sender| sender.poll_timeout(now, round_trip));
            let due = [of_sender, ack, stalled];
            self.set_timer(index, due.into_iter().flatten().min());
        }
        Ok(())
    }

    pub(super) fn take_event(&mut self, now: Instant, event: quic::Event) {
        use quic::Event as Quic;
        match event {
            Quic::Incoming(incoming) => {
                // A first packet that cannot be used is counted by QUIC.
                if let Ok(connection) = self.quic.accept(now, incoming.key, &AcceptParameters::default()) {
                    let key = self.insert(Stage::Accepting(connection), None);
                    self.belongs_to(connection, key.index());
                }
            }
            Quic::Connected { connection } => self.connected(now, connection),
            Quic::RemoteChanged { connection, remote } => self.remote_changed(now, connection, remote),
            Quic::Closed {
                connection, reason, ..
            } => self.closed(now, connection, reason),
            Quic::IncomingExpired { .. } | Quic::Redirected { .. } | Quic::DatagramsDropped { .. } => {}
            Quic::PathMtuChanged { connection, path_mtu } => {
                self.tell(connection, |peer| Event::PathMtuChanged { peer, path_mtu });
            }
            Quic::Congestion {
                connection,
                congestion,
            } => self.tell(connection, |peer| Event::Congestion { peer, congestion }),
            Quic::StreamOpened { connection, stream } => self.stream_opened(now, connection, stream),
            Quic::StreamReadable { connection, stream } => self.stream_readable(now, connection, stream),
            Quic::StreamWritable { connection, stream } => self.stream_writable(connection, stream),
            Quic::StreamStopped {
                connection,
                stream,
                code,
            } => self.stream_stopped(connection, stream, code),
            Quic::StreamFinished { connection, stream } => self.stream_finished(connection, stream),
            Quic::CreditWanted { connection } => self.credit_wanted(connection),
            Quic::StreamsAvailable {
                connection,
                direction,
            } => {
                if let Some(index) = self.index_of(connection) {
                    self.touch(index);
                    let peer = self.key(index);
                    self.events.push_back(Event::StreamsAvailable { peer, direction });
                }
            }
        }
    }

    /// Reports what is new of a complete connection.
    fn tell(&mut self, connection: ConnectionKey, event: impl FnOnce(PeerKey) -> Event) {
        let index = self.index_of(connection);
        let is_connected = |index: &usize| {
            self.peers[*index]
                .as_deref()
                .is_some_and(|peer| peer.connection() == Some(connection))
        };
        if let Some(index) = index.filter(is_connected) {
            let peer = self.key(index);
            self.events.push_back(event(peer));
        }
    }
}
