//! A connection's side of the program: what has come for it, and who waits for what.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use peer_proto::{Attempt, CloseReason, Direction, DropReason, Failure, Outcome, PeerId, StreamId, Ticket};

use crate::events::{News, PeerEvent};
use crate::intake::{Lane, Submission};
use crate::room::Room;
use crate::ticket::TicketState;
use crate::wakers::Wakers;

/// A connection's side of the program.
pub(crate) struct Face {
    pub(crate) lane: Arc<Lane>,
    /// Messages that the program was told are taken, which found no room after all.
    pub(crate) delayed: VecDeque<Submission>,
    pub(crate) id: Option<PeerId>,
    pub(crate) failures: Option<Vec<Failure>>,
    /// What was tried to reach the peer, until nobody can ask any more.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) closed: Option<CloseReason>,
    /// Changes of the two above, and the handshake's end.
    pub(crate) state: Wakers,
    pub(crate) inbox: Wakers,
    /// Room to send, and who waits for it.
    pub(crate) room: Room,
    /// As the lane has it.
    is_contested: bool,
    /// Streams that the peer opened and the program has not accepted, by direction.
    pub(crate) opened: [VecDeque<StreamId>; 2],
    pub(crate) acceptors: [Wakers; 2],
    pub(crate) openers: [Wakers; 2],
    pub(crate) readers: BTreeMap<StreamId, Wakers>,
    pub(crate) writers: BTreeMap<StreamId, Wakers>,
    /// Codes with which the peer stopped our streams.
    pub(crate) stopped: BTreeMap<StreamId, u64>,
    /// Streams that the peer has completely.
    pub(crate) finished: BTreeSet<StreamId>,
    pub(crate) tickets: HashMap<Ticket, Arc<TicketState>>,
    /// What changed about the path.
    pub(crate) news: News<PeerEvent>,
}

pub(crate) fn side(direction: Direction) -> usize {
    usize::from(direction == Direction::Unidirectional)
}

impl Face {
    pub(crate) fn new(lane: Lane) -> Self {
        Self {
            lane: Arc::new(lane),
            delayed: VecDeque::new(),
            id: None,
            failures: None,
            attempts: Vec::new(),
            closed: None,
            state: Wakers::default(),
            inbox: Wakers::default(),
            room: Room::default(),
            is_contested: false,
            opened: Default::default(),
            acceptors: Default::default(),
            openers: Default::default(),
            readers: BTreeMap::new(),
            writers: BTreeMap::new(),
            stopped: BTreeMap::new(),
            finished: BTreeSet::new(),
            tickets: HashMap::new(),
            news: News::default(),
        }
    }

    pub(crate) fn watch(&mut self, ticket: Ticket) -> Arc<TicketState> {
        let state = Arc::<TicketState>::default();
        self.tickets.insert(ticket, Arc::clone(&state));
        state
    }

    /// No outcome will follow: the connection, or its last handle, is gone.
    pub(crate) fn end_tickets(&mut self, woken: &mut Vec<Waker>) {
        self.lane.close();
        let delayed = self
            .delayed
            .drain(..)
            .map(|submission| Arc::clone(&submission.ticket));
        for state in self.tickets.drain().map(|(_, state)| state).chain(delayed) {
            woken.extend(state.end(Outcome::Dropped(DropReason::ConnectionEnded)));
        }
    }

    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.room.wake_all(woken);
        let lists = [&mut self.state, &mut self.inbox, &mut self.news.readers];
        let lists = lists
            .into_iter()
            .chain(&mut self.acceptors)
            .chain(&mut self.openers);
        let streams = self.readers.values_mut().chain(self.writers.values_mut());
        for wakers in lists.chain(streams) {
            wakers.take(woken);
        }
    }

    /// Tells the program of room: `held` bytes wait or are under way.
    pub(crate) fn tell_room(&mut self, held: usize) {
        self.lane.set_held(held + self.room.kept());
        let is_contested = self.room.is_contested();
        if std::mem::replace(&mut self.is_contested, is_contested) != is_contested {
            self.lane.set_contested(is_contested);
        }
    }
}
