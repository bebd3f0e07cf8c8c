//! What a user's rate holds up. Whoever waits for it takes turns in going first.
//!
//! Datagrams to a client wait in its queue, which drops what is too much; content of TCP stays in QUIC's windows and in
//! the target's socket. Datagrams from a client, in frames or in capsules, do not wait: those beyond the rate are dropped.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use quic::ConnectionKey;

use super::life::Life;
use super::request::{Request, RequestId};
use super::{Action, Engine, Role, Server, State};
use crate::access::{Line, LineRates, User, Way};
use crate::drops::DropReason;
use crate::limits;

/// What goes on when there may be more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paced {
    /// The queue of a connection.
    Datagrams(ConnectionKey),
    /// Reading of a TCP connection's content.
    Read(RequestId),
    /// Writing of it.
    Write(RequestId),
}

/// All of them on this shard.
#[derive(Default)]
pub(super) struct Pacing {
    /// When this turn began.
    turn: Option<Instant>,
    /// How often somebody was let go on: who goes first.
    rounds: usize,
    waiting: RefCell<Waiting>,
    /// Server: what all users share.
    line: Option<Arc<Line>>,
}

#[derive(Default)]
struct Waiting {
    known: BTreeSet<Paced>,
    order: Vec<Paced>,
    due: Option<Instant>,
}

impl Pacing {
    /// A turn begins.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        self.turn = Some(now);
        if let Some(line) = &self.line {
            line.divide(now);
        }
    }

    /// A user is here.
    pub(super) fn user_came(&self, user: &User) {
        if let Some(line) = &self.line {
            line.join(user);
        }
    }

    /// What the line carries from here on.
    pub(super) fn set_line(&self, rates: LineRates) {
        if let Some(line) = &self.line {
            line.set(rates);
        }
    }

    /// Whether `user` has to wait at this moment; `paced` then goes on later.
    pub(super) fn waits(&self, now: Instant, user: &User, way: Way, paced: Paced) -> bool {
        let Some(free_at) = user.free_at(way, now) else {
            return false;
        };
        let mut waiting = self.waiting.borrow_mut();
        if waiting.known.insert(paced) {
            waiting.order.push(paced);
        }
        // Many who wait are not looked at for each packet; the burst makes up for it.
        let due = free_at.max(now + limits::USER_PACING_INTERVAL);
        waiting.due = Some(waiting.due.map_or(due, |before| before.min(due)));
        true
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.borrow().due
    }

    fn take_due(&mut self, now: Instant) -> Vec<Paced> {
        let waiting = self.waiting.get_mut();
        if waiting.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let mut order = std::mem::take(waiting).order;
        self.rounds = self.rounds.wrapping_add(1);
        let first = self.rounds % order.len().max(1);
        order.rotate_left(first);
        order
    }
}

impl<R: Role> State<R> {
    /// Whether the user of a TCP connection has to wait at this moment; `paced` then goes on later.
    pub(super) fn is_paced(&self, id: RequestId, way: Way, paced: Paced) -> bool {
        let (Some(now), Some(user)) = (self.pacing.turn, self.user_of(id)) else {
            return false;
        };
        self.pacing.waits(now, user, way, paced)
    }

    /// Content of a TCP connection goes.
    pub(super) fn charge(&self, id: RequestId, way: Way, bytes: usize) {
        if let (Some(now), Some(user)) = (self.pacing.turn, self.user_of(id)) {
            user.charge(way, now, bytes);
        }
    }

    /// Whether a datagram of so many bytes from the client is within its user's rate, in a DATAGRAM frame or in a capsule.
    /// One that is not is dropped.
    pub(super) fn admits_datagram(&mut self, now: Instant, connection: ConnectionKey, bytes: usize) -> bool {
        let Some(user) = self.user_of_connection(connection) else {
            return true;
        };
        if user.free_at(Way::FromClient, now).is_some() {
            self.ledger.egress.drop(DropReason::RateLimit, 1);
            return false;
        }
        user.charge(Way::FromClient, now, bytes);
        true
    }

    /// The same for a datagram in a capsule of a request.
    pub(super) fn admits_capsule(&mut self, now: Instant, id: RequestId, bytes: usize) -> bool {
        let stream = self.requests.get(id.0).and_then(Request::stream);
        stream.is_none_or(|stream| self.admits_datagram(now, stream.connection, bytes))
    }

    fn user_of(&self, id: RequestId) -> Option<&User> {
        self.user_of_connection(self.requests.get(id.0)?.stream()?.connection)
    }

    fn user_of_connection(&self, connection: ConnectionKey) -> Option<&User> {
        let peer = self.peers.get(connection.index())?.as_ref()?;
        peer.user.as_ref()
    }
}

impl Engine<Server> {
    /// The server's line, the same for all of its shards; before clients connect.
    pub fn share_line(&mut self, line: Arc<Line>) {
        line.set(self.state.config.line);
        self.state.pacing.line = Some(line);
    }
}

impl<R: Role> Engine<R> {
    /// Lets go on what has waited long enough; who has to wait on comes back.
    pub(super) fn handle_pacing_timeout(&mut self, now: Instant) {
        self.state.pacing.begin_turn(now);
        for paced in self.state.pacing.take_due(now) {
            let (Paced::Read(id) | Paced::Write(id)) = paced else {
                if let Paced::Datagrams(connection) = paced {
                    self.endpoint.mark_ready(connection);
                }
                continue;
            };
            let Some(request) = self.state.requests.get(id.0) else {
                continue;
            };
            if !matches!(request.life, Life::Open(_)) || !request.is_read_by_driver() {
                continue;
            }
            if paced == Paced::Read(id) {
                self.state.actions.push_back(Action::BodyReadable { request: id });
            } else if request.output.is_empty() && !self.state.is_paced(id, Way::ToClient, paced) {
                self.state.actions.push_back(Action::BodyWritable { request: id });
            }
        }
    }
}
