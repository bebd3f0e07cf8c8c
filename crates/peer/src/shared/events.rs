//! What events do to the faces of connections and to those who wait: of the peers, of the rendezvous, and of what
//! threads beside the endpoint's keep up.

use std::task::Waker;
use std::time::Instant;

use peer_proto::{Direction, Event, PeerKey, code};

use super::State;
use crate::events::{EndpointEvent, PeerEvent};
use crate::face::{Face, side};
use crate::wakers::Wakers;

impl State {
    /// Sorts what the peers report; who is to be woken once the lock is given back.
    pub(crate) fn take_events(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        if let Some(meetings) = &mut self.meetings {
            meetings.settle(now, &mut self.peers);
            meetings.take_woken(woken);
            let observed = meetings.observed();
            if observed != self.observed {
                self.observed = observed;
                self.registration.take(woken);
                let registered = observed.map(|observed| EndpointEvent::Registered { observed });
                self.news
                    .tell(registered.unwrap_or(EndpointEvent::Unregistered), woken);
            }
            let relayed = meetings.relayed();
            if relayed != self.relayed {
                self.relayed = relayed;
                let event = relayed.map(|relayed| match relayed {
                    Ok(()) => EndpointEvent::Relayed,
                    Err(_) => EndpointEvent::NotRelayed,
                });
                if let Some(event) = event {
                    self.news.tell(event, woken);
                }
            }
        }
        self.take_reports(woken);
        while let Some(event) = self.peers.poll_event(now) {
            self.take_event(now, event, woken);
        }
        self.give_turns(now, woken);
    }

    /// What the threads beside the endpoint's keep up, where that changed.
    fn take_reports(&mut self, woken: &mut Vec<Waker>) {
        let mapping = self.mapping.poll_report().map(|kept| match kept {
            Some(address) => EndpointEvent::Mapped { address },
            None => EndpointEvent::NotMapped,
        });
        let pinhole = self.pinhole.poll_report().map(|kept| match kept {
            Some(address) => EndpointEvent::LetIn { address },
            None => EndpointEvent::NotLetIn,
        });
        let announcement = self.lan.announcement.poll_report().map(|kept| match kept {
            Some(()) => EndpointEvent::Announced,
            None => EndpointEvent::NotAnnounced,
        });
        for event in [mapping, pinhole, announcement].into_iter().flatten() {
            self.news.tell(event, woken);
        }
    }

    fn take_event(&mut self, now: Instant, event: Event, woken: &mut Vec<Waker>) {
        match event {
            Event::Connected {
                peer,
                id,
                is_incoming: true,
            } => {
                if self.is_closed {
                    return self.peers.close(now, peer, 0, b"the endpoint is closed");
                }
                if self.incoming.len() >= self.accept_queue_max && !self.give_up_ended(now) {
                    // PEER-23.
                    self.queue_full += 1;
                    let reason = b"too many connections wait to be accepted; try again later";
                    return self.peers.close(now, peer, code::QUEUE_FULL, reason);
                }
                let mut face = self.new_face();
                face.id = Some(id);
                self.faces.insert(peer, face);
                self.incoming.push_back(peer);
                self.acceptors.take(woken);
            }
            Event::Connected { peer, id, .. } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.id = Some(id);
                    face.state.take(woken);
                }
            }
            Event::Tried { peer, attempts } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.attempts = attempts;
                }
            }
            Event::Failed { peer, failures } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.failures = Some(failures);
                    face.wake_all(woken);
                }
            }
            Event::Closed {
                peer,
                reason,
                has_unread,
            } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.closed = Some(reason);
                    face.end_tickets(woken);
                    face.wake_all(woken);
                    if !has_unread
                        && let Some(place) = self.incoming.iter().position(|waiting| *waiting == peer)
                    {
                        // It must not take the place of a living one.
                        self.incoming.remove(place);
                        self.faces.remove(&peer);
                    }
                } else {
                    // Nobody can read what it left.
                    self.peers.close(now, peer, 0, b"");
                }
            }
            // What it is at present can be asked for at any time.
            Event::PathChanged {
                peer,
                remote,
                is_relayed,
            } => self.tell(peer, PeerEvent::PathChanged { remote, is_relayed }, woken),
            Event::Received { peer } => self.wake(peer, woken, |face| Some(&mut face.inbox)),
            Event::Room { peer } => {
                let delayed = self
                    .faces
                    .get_mut(&peer)
                    .map(|face| std::mem::take(&mut face.delayed));
                for submission in delayed.into_iter().flatten() {
                    self.submit(now, submission, woken);
                }
                self.tell_room(peer);
            }
            Event::Ended {
                peer,
                ticket,
                outcome,
            } => {
                let held = self.peers.waiting_bytes(peer);
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.tell_room(held);
                    if !face.tickets.is_empty() {
                        let state = face.tickets.remove(&ticket);
                        woken.extend(state.and_then(|state| state.end(outcome)));
                    }
                }
            }
            Event::StreamOpened { peer, stream } => {
                let side = side(stream.direction());
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.opened[side].push_back(stream);
                    if stream.direction() == Direction::Bidirectional {
                        // The peer may stop our side before the program accepts the stream.
                        face.writers.entry(stream).or_default();
                    }
                }
                self.wake(peer, woken, |face| Some(&mut face.acceptors[side]));
            }
            Event::StreamReadable { peer, stream } => {
                self.wake(peer, woken, |face| face.readers.get_mut(&stream));
            }
            Event::StreamWritable { peer, stream } => {
                self.wake(peer, woken, |face| face.writers.get_mut(&stream));
            }
            Event::StreamStopped { peer, stream, code } => {
                if let Some(face) = self
                    .faces
                    .get_mut(&peer)
                    .filter(|face| face.writers.contains_key(&stream))
                {
                    face.stopped.insert(stream, code);
                }
                self.wake(peer, woken, |face| face.writers.get_mut(&stream));
            }
            Event::StreamFinished { peer, stream } => {
                if let Some(face) = self
                    .faces
                    .get_mut(&peer)
                    .filter(|face| face.writers.contains_key(&stream))
                {
                    face.finished.insert(stream);
                }
                self.wake(peer, woken, |face| face.writers.get_mut(&stream));
            }
            Event::PathMtuChanged { peer, path_mtu } => {
                self.tell(peer, PeerEvent::PathMtuChanged(path_mtu), woken);
            }
            Event::Congestion { peer, congestion } => {
                self.tell(peer, PeerEvent::Congestion(congestion), woken);
            }
            Event::StreamsAvailable { peer, direction } => {
                self.wake(peer, woken, |face| Some(&mut face.openers[side(direction)]));
            }
        }
    }

    /// Makes room for a peer among those that wait for the program: who has left goes, the oldest first, with the
    /// messages that it left. Whether there was one.
    fn give_up_ended(&mut self, now: Instant) -> bool {
        let has_ended = |peer: &PeerKey| self.faces.get(peer).is_none_or(|face| face.closed.is_some());
        let place = self.incoming.iter().position(has_ended);
        let Some(peer) = place.and_then(|place| self.incoming.remove(place)) else {
            return false;
        };
        self.faces.remove(&peer);
        self.peers.close(now, peer, 0, b"");
        true
    }

    fn tell(&mut self, peer: PeerKey, event: PeerEvent, woken: &mut Vec<Waker>) {
        if let Some(face) = self.faces.get_mut(&peer) {
            face.news.tell(event, woken);
        }
    }

    fn wake(
        &mut self,
        peer: PeerKey,
        woken: &mut Vec<Waker>,
        wakers: impl FnOnce(&mut Face) -> Option<&mut Wakers>,
    ) {
        if let Some(wakers) = self.faces.get_mut(&peer).and_then(|face| wakers(face)) {
            wakers.take(woken);
        }
    }
}
