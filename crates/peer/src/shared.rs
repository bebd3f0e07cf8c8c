//! What the endpoint's thread and the program's handles share: the peers, who waits for what, and how the thread is
//! woken.
//!
//! The lock is held for the work on one received message, on one outbox or on one call of the program, never during a
//! system call of the thread. Most messages of the program do without it ([`crate::intake`]).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::Instant;

use bytes::BytesMut;
use packet::{Ecn, Path};
use packet_io::{DatagramSocket, UdpSocket};
use peer_proto::{
    CloseReason, Direction, DropReason, Event, Outbox, Outcome, Parameters, PeerId, PeerKey, Peers,
    SendError, code,
};

use crate::companion::{Companion, Companions};
use crate::error::RelayProblem;
use crate::events::{EndpointEvent, News, PeerEvent};
use crate::face::{Face, side};
use crate::intake::{Intake, Lane, Submission, cost};
use crate::lan::Lan;
use crate::limits::ACCEPT_QUEUE_MAX;
use crate::mapping::MappingProblem;
use crate::rendezvous::Meetings;
use crate::transmit::{Caller, socket_options, transmit};
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
    observed: Option<SocketAddr>,
    /// What was told last of the relay.
    relayed: Option<Result<(), RelayProblem>>,
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
    comes_in_bursts: bool,
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

    fn submit(&mut self, now: Instant, submission: Submission, woken: &mut Vec<Waker>) {
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
    fn is_due_before_waking(&self) -> bool {
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
    fn give_turns(&mut self, now: Instant, woken: &mut Vec<Waker>) {
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
    fn is_sent_by_thread(&self) -> bool {
        self.meetings.as_ref().is_some_and(Meetings::is_sent_by_thread)
    }

    /// Whether something may be sent, so that [`Self::flush`] is not in vain.
    fn may_send(&self) -> bool {
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

/// How the event loop is woken.
pub(crate) enum DriverWaker {
    /// Of a thread.
    Thread(packet_io::Waker),
    /// Of a task, from its first turn on.
    Task(OnceLock<Waker>),
}

impl DriverWaker {
    /// Whether waking takes as long as the system's scheduler does. A task runs on the caller's thread as soon as the
    /// caller waits, where that is one of the runtime's, and with all that it has sent by then.
    fn is_thread(&self) -> bool {
        matches!(self, Self::Thread(_))
    }

    fn wake(&self) {
        match self {
            Self::Thread(waker) => waker.wake(),
            Self::Task(waker) => {
                if let Some(waker) = waker.get() {
                    waker.wake_by_ref();
                }
            }
        }
    }
}

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) intake: Intake,
    caller: Mutex<Caller>,
    pub(crate) id: PeerId,
    pub(crate) local: SocketAddr,
    pub(crate) waker: DriverWaker,
    /// Threads that end with the endpoint.
    pub(crate) companions: Companions,
    /// The thread waits for its socket, or is about to.
    sleeps: AtomicBool,
    /// The program changed something since the thread last was about to wait.
    has_changed: AtomicBool,
    /// The last handle of the endpoint is gone.
    pub(crate) is_abandoned: AtomicBool,
}

impl Shared {
    pub(crate) fn new(parameters: Parameters, socket: &UdpSocket, waker: DriverWaker) -> io::Result<Self> {
        let lane = LaneBounds {
            bytes_max: parameters.send_bytes_max,
            body_bytes_max: parameters.message_bytes_max,
        };
        let peers = Peers::new(parameters);
        let id = peers.id();
        let local = socket.local_addr()?;
        let caller = Caller {
            socket: UdpSocket::adopt(socket.as_fd().try_clone_to_owned()?, &socket_options())?,
            outbox: Outbox::default(),
            sent_at: None,
            handed_at: None,
            is_followed: false,
        };
        let state = State {
            peers,
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
        };
        Ok(Self {
            state: Mutex::new(state),
            intake: Intake::default(),
            caller: Mutex::new(caller),
            id,
            local,
            waker,
            companions: Companions::default(),
            sleeps: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// The state as it is, for the thread and for calls that change nothing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call of the program that may give the thread something to do.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State, Instant) -> T) -> T {
        let now = Instant::now();
        let mut woken = Vec::new();
        let mut state = self.lock();
        // In the order in which the program sent.
        state.take_in(now, &self.intake, &mut woken);
        let result = change(&mut state, now);
        state.take_events(now, &mut woken);
        let (may_send, is_due) = (state.may_send(), state.is_due_before_waking());
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        if may_send {
            self.hand_over();
        } else if is_due {
            self.wake_thread();
        }
        result
    }

    /// There is something to send.
    pub(crate) fn hand_over(&self) {
        if !(self.sleeps.load(Ordering::SeqCst) && self.flush_here()) {
            self.wake_thread();
        }
    }

    /// Sends in the place of the sleeping thread, which saves the time until it runs; whether nothing is left for it to
    /// do. What the socket does not take is lost like what the path loses.
    ///
    /// A task runs soon, and with all that the caller has sent by then: in its place what comes alone is sent.
    fn flush_here(&self) -> bool {
        let Ok(mut caller) = self.caller.try_lock() else {
            return false;
        };
        let now = Instant::now();
        let is_task = !self.waker.is_thread();
        if is_task && !caller.comes_alone(now) || !caller.may_send(now) {
            return false;
        }
        let mut woken = Vec::new();
        let mut state = self.lock();
        if state.is_sent_by_thread() || is_task && state.comes_in_bursts {
            return false;
        }
        caller.sent_at = Some(now);
        state.take_in(now, &self.intake, &mut woken);
        let Caller { socket, outbox, .. } = &mut *caller;
        let more = state.flush(now, outbox);
        state.take_events(now, &mut woken);
        let is_done = !more && !state.is_due_before_waking();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        transmit(socket, outbox);
        outbox.release(usize::MAX);
        is_done
    }

    /// A name of the rendezvous is resolved, to no address where it cannot be.
    pub(crate) fn resolved(&self, number: u64, addresses: &[SocketAddr]) {
        self.change(|state, now| {
            if let Some(meetings) = &mut state.meetings {
                meetings.handle_resolved(now, number, addresses);
            }
        });
    }

    pub(crate) fn wake_thread(&self) {
        self.has_changed.store(true, Ordering::SeqCst);
        if self.sleeps.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// The thread is about to wait; whoever changes something from here on wakes it. Whether somebody did so before.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        self.has_changed.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn awake(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }
}
