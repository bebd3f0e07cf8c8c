//! What the endpoint's thread and the program's handles share: the peers, who waits for what, and how the thread is
//! woken.
//!
//! The lock is held for the work on one received message or one call of the program, never during a system call.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use peer_proto::{
    CloseReason, Direction, DropReason, Event, Failure, Outcome, PeerId, PeerKey, Peers, Received, StreamId,
    Ticket,
};

use crate::limits::ACCEPT_QUEUE_MAX;
use crate::ticket::TicketState;

/// Who waits for one thing; all are woken together, and look again.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    pub(crate) fn wait(&mut self, waker: &Waker) {
        if !self.0.iter().any(|waiting| waiting.will_wake(waker)) {
            self.0.push(waker.clone());
        }
    }
}

/// A connection's side of the program.
#[derive(Debug, Default)]
pub(crate) struct Face {
    pub(crate) id: Option<PeerId>,
    pub(crate) failures: Option<Vec<Failure>>,
    pub(crate) closed: Option<CloseReason>,
    /// Changes of the two above, and the handshake's end.
    pub(crate) state: Wakers,
    /// Messages of a connection that has ended.
    pub(crate) unread: VecDeque<Received>,
    pub(crate) inbox: Wakers,
    pub(crate) room: Wakers,
    /// Streams that the peer opened and the program has not accepted, by direction.
    pub(crate) opened: [VecDeque<StreamId>; 2],
    pub(crate) acceptors: [Wakers; 2],
    pub(crate) openers: [Wakers; 2],
    pub(crate) readers: HashMap<StreamId, Wakers>,
    pub(crate) writers: HashMap<StreamId, Wakers>,
    /// Codes with which the peer stopped our streams.
    pub(crate) stopped: HashMap<StreamId, u64>,
    /// Streams that the peer has completely.
    pub(crate) finished: HashSet<StreamId>,
    tickets: HashMap<Ticket, Arc<TicketState>>,
}

pub(crate) fn side(direction: Direction) -> usize {
    usize::from(direction == Direction::Unidirectional)
}

impl Face {
    pub(crate) fn watch(&mut self, ticket: Ticket) -> Arc<TicketState> {
        let state = Arc::<TicketState>::default();
        self.tickets.insert(ticket, Arc::clone(&state));
        state
    }

    /// No outcome will follow: the connection, or its last handle, is gone.
    pub(crate) fn end_tickets(&mut self, woken: &mut Vec<Waker>) {
        for (_, state) in self.tickets.drain() {
            woken.extend(state.end(Outcome::Dropped(DropReason::ConnectionEnded)));
        }
    }

    fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        let lists = [&mut self.state, &mut self.inbox, &mut self.room];
        let lists = lists
            .into_iter()
            .chain(&mut self.acceptors)
            .chain(&mut self.openers);
        let streams = self.readers.values_mut().chain(self.writers.values_mut());
        for wakers in lists.chain(streams) {
            woken.append(&mut wakers.0);
        }
    }
}

/// The locked part.
pub(crate) struct State {
    pub(crate) peers: Peers,
    /// By the number of the peer's key. The face of a connection that has ended stays until its handle is dropped.
    pub(crate) faces: HashMap<PeerKey, Face>,
    pub(crate) incoming: VecDeque<PeerKey>,
    pub(crate) acceptors: Wakers,
    /// The endpoint is closing, or has closed.
    pub(crate) is_closed: bool,
}

impl State {
    /// Sorts what the peers report; who is to be woken once the lock is given back.
    pub(crate) fn take_events(&mut self, now: Instant, woken: &mut Vec<Waker>) {
        while let Some(event) = self.peers.poll_event(now) {
            self.take_event(now, event, woken);
        }
    }

    fn take_event(&mut self, now: Instant, event: Event, woken: &mut Vec<Waker>) {
        match event {
            Event::Connected {
                peer,
                id,
                is_incoming: true,
            } => {
                if self.is_closed || self.incoming.len() >= ACCEPT_QUEUE_MAX {
                    return self.peers.close(now, peer, 0, b"too many connections wait");
                }
                let face = Face {
                    id: Some(id),
                    ..Face::default()
                };
                self.faces.insert(peer, face);
                self.incoming.push_back(peer);
                woken.append(&mut self.acceptors.0);
            }
            Event::Connected { peer, id, .. } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.id = Some(id);
                    woken.append(&mut face.state.0);
                }
            }
            Event::Failed { peer, failures } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.failures = Some(failures);
                    face.wake_all(woken);
                }
            }
            Event::Closed { peer, reason, unread } => {
                if let Some(face) = self.faces.get_mut(&peer) {
                    face.closed = Some(reason);
                    face.unread = unread.into();
                    face.wake_all(woken);
                    if face.unread.is_empty()
                        && let Some(place) = self.incoming.iter().position(|waiting| *waiting == peer)
                    {
                        // It must not take the place of a living one.
                        self.incoming.remove(place);
                        self.faces.remove(&peer);
                    }
                }
            }
            Event::Received { peer } => self.wake(peer, woken, |face| Some(&mut face.inbox)),
            Event::Room { peer } => self.wake(peer, woken, |face| Some(&mut face.room)),
            Event::Ended {
                peer,
                ticket,
                outcome,
            } => {
                let face = self.faces.get_mut(&peer);
                let state = face.and_then(|face| face.tickets.remove(&ticket));
                woken.extend(state.and_then(|state| state.end(outcome)));
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
            Event::StreamsAvailable { peer, direction } => {
                self.wake(peer, woken, |face| Some(&mut face.openers[side(direction)]));
            }
        }
    }

    fn wake(
        &mut self,
        peer: PeerKey,
        woken: &mut Vec<Waker>,
        wakers: impl FnOnce(&mut Face) -> Option<&mut Wakers>,
    ) {
        if let Some(wakers) = self.faces.get_mut(&peer).and_then(wakers) {
            woken.append(&mut wakers.0);
        }
    }

    /// The endpoint has ended: whoever waits learns of it.
    pub(crate) fn end(&mut self, reason: &CloseReason, woken: &mut Vec<Waker>) {
        self.is_closed = true;
        woken.append(&mut self.acceptors.0);
        for face in self.faces.values_mut() {
            face.closed.get_or_insert_with(|| reason.clone());
            face.wake_all(woken);
            face.end_tickets(woken);
        }
        let faces = &mut self.faces;
        self.incoming.retain(|peer| {
            let has_unread = faces.get(peer).is_some_and(|face| !face.unread.is_empty());
            if !has_unread {
                faces.remove(peer);
            }
            has_unread
        });
    }
}

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) id: PeerId,
    pub(crate) local: SocketAddr,
    waker: packet_io::Waker,
    /// The thread waits for its socket, or is about to.
    sleeps: AtomicBool,
    /// The program changed something since the thread last was about to wait.
    has_changed: AtomicBool,
    /// The last handle of the endpoint is gone.
    pub(crate) is_abandoned: AtomicBool,
}

impl Shared {
    pub(crate) fn new(peers: Peers, local: SocketAddr, waker: packet_io::Waker) -> Self {
        let id = peers.id();
        let state = State {
            peers,
            faces: HashMap::new(),
            incoming: VecDeque::new(),
            acceptors: Wakers::default(),
            is_closed: false,
        };
        Self {
            state: Mutex::new(state),
            id,
            local,
            waker,
            sleeps: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
        }
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
        let result = change(&mut state, now);
        state.take_events(now, &mut woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        self.wake_thread();
        result
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
