//! What the lock of an endpoint holds: the peers, how they are met, and who waits for what. Here is what concerns all
//! of it: what the program sends is taken in, what comes is given to whom it is for, what is to leave is collected, and
//! everything ends.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use bytes::BytesMut;
use packet::{Ecn, Path};
use peer_proto::{CloseReason, DropReason, Outbox, Outcome, Parameters, PeerKey, Peers, SendError};

use crate::companion::Companion;
use crate::error::RelayProblem;
use crate::events::{EndpointEvent, News};
use crate::face::Face;
use crate::intake::{Intake, Lane, Submission, cost};
use crate::lan::Lan;
use crate::limits::ACCEPT_QUEUE_MAX;
use crate::mapping::MappingProblem;
use crate::rendezvous::Meetings;
use crate::turns::Turns;
use crate::wakers::Wakers;

/// What the lanes of new connections have.
#[derive(Clone, Copy, Debug)]
struct LaneBounds {
    bytes_max: usize,
    body_bytes_max: usize,
}

/// The locked part.
pub(crate) struct State {
    pub(crate) peers: Peers,
    /// How peers behind routers are met; `None`: they are not.
    pub(crate) meetings: Option<Meetings>,
    /// Who waits for the registration.
    pub(crate) registration: Wakers,
    /// How they are met on the local network.
    pub(crate) lan: Lan,
    /// The address of the registration that was told last.
    pub(super) observed: Option<SocketAddr>,
    /// What was told last of the relay.
    pub(super) relayed: Option<Result<(), RelayProblem>>,
    /// What changed about the endpoint.
    pub(crate) news: News<EndpointEvent>,
    /// The router's port that leads to ours.
    pub(crate) mapping: Companion<SocketAddr, MappingProblem>,
    /// Our port, where a router's firewall of IPv6 lets others in.
    pub(crate) pinhole: Companion<SocketAddr, MappingProblem>,
    /// The face of a connection that has ended stays until its handle is dropped.
    pub(crate) faces: BTreeMap<PeerKey, Box<Face>>,
    /// Those of them where turns to send may have to be given.
    turns: Turns,
    /// Messages that are being handed over; empty otherwise.
    submissions: Vec<Submission>,
    /// The last of them came several at a time.
    pub(super) comes_in_bursts: bool,
    lane: LaneBounds,
    pub(crate) incoming: VecDeque<PeerKey>,
    /// How many of them may be.
    pub(crate) accept_queue_max: usize,
    /// How many were closed beyond that.
    pub(crate) queue_full: u64,
    pub(crate) acceptors: Wakers,
    /// The endpoint is closing, or has closed.
    pub(crate) is_closed: bool,
    /// The rendezvous is to be told of that.
    leaves_meetings: bool,
    /// Until when the thread sleeps, where it does, unless it is woken.
    pub(crate) wakes_at: Option<Instant>,
    /// Its thread has ended.
    pub(crate) has_ended: bool,
}

impl State {
    pub(super) fn new(parameters: Parameters) -> Self {
        let lane = LaneBounds {
            bytes_max: parameters.send_bytes_max,
            body_bytes_max: parameters.message_bytes_max,
        };
        Self {
            peers: Peers::new(parameters),
            meetings: None,
            registration: Wakers::default(),
            lan: Lan::default(),
            observed: None,
            relayed: None,
            news: News::default(),
            mapping: Companion::default(),
            pinhole: Companion::default(),
            faces: BTreeMap::new(),
            turns: Turns::default(),
            submissions: Vec::new(),
            comes_in_bursts: false,
            lane,
            incoming: VecDeque::new(),
            accept_queue_max: ACCEPT_QUEUE_MAX,
            queue_full: 0,
            acceptors: Wakers::default(),
            is_closed: false,
            leaves_meetings: false,
            wakes_at: None,
            has_ended: false,
        }
    }

    /// A face for a new connection.
    pub(crate) fn new_face(&self) -> Box<Face> {
        Box::new(Face::new(Lane::new(
            self.lane.bytes_max,
            self.lane.body_bytes_max,
        )))
    }

    /// Hands over what the program sent without the lock.
    pub(crate) fn take_in(&mut self, now: Instant, intake: &Intake, woken: &mut Vec<Waker>) {
        let mut submissions = std::mem::take(&mut self.submissions);
        intake.swap(&mut submissions);
        if !submissions.is_empty() {
            self.comes_in_bursts = submissions.len() > 1;
        }
        for submission in submissions.drain(..) {
            self.submit(now, submission, woken);
        }
        self.submissions = submissions;
    }

    pub(super) fn submit(&mut self, now: Instant, submission: Submission, woken: &mut Vec<Waker>) {
        let key = submission.peer;
        let cost = cost(&submission.body);
        let sent = self
            .peers
            .send(now, key, submission.body.clone(), submission.delivery);
        let Some(face) = self.faces.get_mut(&key) else {
            return woken.extend(
                submission
                    .ticket
                    .end(Outcome::Dropped(DropReason::ConnectionEnded)),
            );
        };
        match sent {
            // Nobody asks for a ticket that the program has dropped.
            Ok(_) if Arc::strong_count(&submission.ticket) == 1 => {}
            Ok(ticket) => drop(face.tickets.insert(ticket, Arc::clone(&submission.ticket))),
            Err(SendError::Full) => return face.delayed.push_back(submission),
            Err(_) => woken.extend(
                submission
                    .ticket
                    .end(Outcome::Dropped(DropReason::ConnectionEnded)),
            ),
        }
        face.tell_room(self.peers.waiting_bytes(key));
        face.lane.release(cost);
    }

    /// Whether a timer is due before the thread wakes, if it sleeps.
    pub(super) fn is_due_before_waking(&self) -> bool {
        let due = self.poll_timeout();
        due.is_some_and(|due| self.wakes_at.is_none_or(|at| due < at))
    }

    /// The room of a connection may have changed, or who waits for it.
    pub(crate) fn tell_room(&mut self, peer: PeerKey) {
        if let Some(face) = self.faces.get_mut(&peer) {
            face.tell_room(self.peers.waiting_bytes(peer));
            if face.room.is_contested() {
                self.turns.change(peer);
            }
        }
    }

    /// Gives turns to whoever waits for room.
    pub(super) fn give_turns(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        while let Some(peer) = self.turns.next(now) {
            let Some(face) = self.faces.get_mut(&peer) else {
                continue;
            };
            let held = self.peers.waiting_bytes(peer);
            let next = face.room.give_turns(now, held, face.lane.bytes_max(), woken);
            face.tell_room(held);
            if let Some(held_max) = next.held_max {
                self.peers.want_room(peer, held_max);
            }
            if let Some(lapse) = next.lapse {
                self.turns.look_at(lapse, peer);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let meetings = self.meetings.as_ref().and_then(Meetings::poll_timeout);
        let due = [self.peers.poll_timeout(), meetings, self.turns.poll_timeout()];
        due.into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.peers.poll_timeout().is_some_and(|due| due <= now) {
            self.peers.handle_timeout(now);
        }
        if let Some(meetings) = &mut self.meetings
            && meetings.poll_timeout().is_some_and(|due| due <= now)
        {
            meetings.handle_timeout(now);
        }
    }

    /// Gives a received message to whoever it is for.
    pub(crate) fn handle_received(
        &mut self,
        now: Instant,
        (path, ecn): (Path, Ecn),
        data: BytesMut,
        segment_size: usize,
        copies: bool,
        outbox: &mut Outbox,
    ) {
        match &mut self.meetings {
            Some(meetings) if meetings.is_server(path.remote) => {
                meetings.set_copies_received(copies);
                meetings.handle_received(now, path, ecn, data, segment_size, outbox);
                self.take_relayed(now, outbox);
            }
            _ => {
                self.peers.set_copies_received(copies);
                self.peers
                    .handle_received(now, path, ecn, data, segment_size, outbox);
            }
        }
    }

    /// Whether the thread alone may send, because it owns a socket that is in use.
    pub(super) fn is_sent_by_thread(&self) -> bool {
        self.meetings.as_ref().is_some_and(Meetings::is_sent_by_thread)
    }

    /// Whether something may be sent, so that [`Self::flush`] is not in vain.
    pub(super) fn may_send(&self) -> bool {
        self.peers.may_send() || self.meetings.is_some()
    }

    /// Gives peers what the rendezvous has relayed.
    fn take_relayed(&mut self, now: Instant, outbox: &mut Outbox) {
        let Some(meetings) = &mut self.meetings else {
            return;
        };
        for train in meetings.take_relayed() {
            let path = Path {
                remote: train.from,
                local: None,
            };
            // What a message keeps of a train would not be counted otherwise.
            self.peers.set_copies_received(true);
            self.peers
                .handle_received(now, path, Ecn::NotEct, train.bytes, train.segment_size, outbox);
        }
        meetings.relay(now, outbox);
    }

    /// Fills `outbox`; whether there is more.
    pub(crate) fn flush(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        self.take_relayed(now, outbox);
        // The rendezvous is told little, and others wait for it.
        let mut more = self
            .meetings
            .as_mut()
            .is_some_and(|meetings| meetings.flush(now, outbox));
        let peers_have_more = self.peers.flush(now, outbox);
        let mut waits = false;
        if let Some(meetings) = &mut self.meetings {
            if meetings.relay(now, outbox) {
                more |= meetings.flush(now, outbox);
            }
            waits = meetings.has_waiting();
        }
        // Relayed peers have been told: what says so has left, too, and was answered.
        if self.leaves_meetings && !peers_have_more && !waits && !self.peers.is_closing() {
            self.leave_meetings(now);
            more = true;
        }
        more || peers_have_more
    }

    /// The endpoint closes: all peers are told until they answer, and then the rendezvous, which relays to some of
    /// them.
    pub(crate) fn close(&mut self, now: Instant, code: u32, reason: &[u8]) {
        self.is_closed = true;
        self.peers.close_all(now, code, reason);
        if let Some(meetings) = &mut self.meetings {
            meetings.close();
            self.leaves_meetings = true;
        }
        self.end_companions();
    }

    /// Whether peers are still to be told of the end, and the rendezvous after them.
    pub(crate) fn is_telling_the_end(&self) -> bool {
        self.leaves_meetings || self.peers.is_closing()
    }

    /// Tells the rendezvous with the next [`Self::flush`], and gives up what still waits to be relayed.
    pub(crate) fn leave_meetings(&mut self, now: Instant) {
        if let Some(meetings) = &mut self.meetings
            && std::mem::take(&mut self.leaves_meetings)
        {
            meetings.leave(now);
        }
    }

    /// The threads beside the endpoint's take back what they keep up.
    pub(crate) fn end_companions(&mut self) {
        self.lan.announcement.end();
        self.mapping.end();
        self.pinhole.end();
    }

    /// The endpoint has ended: whoever waits learns of it.
    pub(crate) fn end(
        &mut self,
        now: Instant,
        reason: &CloseReason,
        intake: &Intake,
        woken: &mut Vec<Waker>,
    ) {
        self.is_closed = true;
        intake.end();
        self.take_in(now, intake, woken);
        self.has_ended = true;
        self.acceptors.take(woken);
        self.registration.take(woken);
        if let Some(meetings) = &mut self.meetings {
            meetings.end(woken);
        }
        self.lan.waiting.take(woken);
        self.end_companions();
        self.lan.announcement.waiting.take(woken);
        self.news.readers.take(woken);
        self.mapping.waiting.take(woken);
        self.pinhole.waiting.take(woken);
        for face in self.faces.values_mut() {
            face.closed.get_or_insert_with(|| reason.clone());
            face.wake_all(woken);
            face.end_tickets(woken);
        }
        let (faces, peers) = (&mut self.faces, &self.peers);
        self.incoming.retain(|peer| {
            let has_unread = peers.has_unread(*peer);
            if !has_unread {
                faces.remove(peer);
            }
            has_unread
        });
    }
}
