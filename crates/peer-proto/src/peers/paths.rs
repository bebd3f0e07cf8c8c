//! Between QUIC and the paths of connections ([`crate::paths`]): what comes by any of them, what leaves by which, and
//! the checks.

use std::net::SocketAddr;
use std::time::Instant;

use packet::Ecn;
use quic::{ConnectionKey, Outbox, OutgoingTrain};

use super::{PeerKey, Peers};
use crate::check::{Meeting, transaction_of};
use crate::event::Event;
use crate::id::PeerId;
use crate::paths::{Paths, is_relayed};
use crate::peer::{Peer, Stage};

/// Label of what both ends know by the handshake (PEER-18).
const EXPORTER_LABEL: &[u8] = b"EXPORTER-gramway-peer-paths";

impl Peers {
    fn paths(&mut self, index: usize) -> Option<&mut Paths> {
        self.peers.get_mut(index)?.as_deref_mut()?.paths.as_deref_mut()
    }

    /// A connection has come about: no other one has a path at its address, and none that came about there before leads
    /// it elsewhere. Where that one is of the same peer, which may have begun anew since, its paths are this one's from
    /// here on.
    pub(super) fn occupy(&mut self, now: Instant, connection: ConnectionKey) {
        let Some((own, nominal)) = self.forbid_others(now, connection) else {
            return;
        };
        if let Some(former) = self.routes.tracked_at(nominal).filter(|former| *former != own) {
            let addresses = self.paths(former).map(|paths| paths.addresses());
            let id = |index: usize| self.peers[index].as_deref().and_then(|peer| peer.id);
            let is_same = id(former) == id(own);
            self.drop_paths(former);
            if let Some(addresses) = addresses.filter(|_| is_same) {
                self.add_paths(now, own, &addresses);
            }
        }
    }

    /// No other connection has a path at the address of this one, which is new; whose it is, and where.
    fn forbid_others(&mut self, now: Instant, connection: ConnectionKey) -> Option<(usize, SocketAddr)> {
        let (nominal, own) = (self.quic.remote(connection)?, self.index_of(connection)?);
        let other = self.routes.connected(connection, nominal);
        if let Some(other) = other.filter(|other| *other != own) {
            if let Some(paths) = self.paths(other) {
                paths.forbid(now, nominal);
            }
            self.settle_paths(now, other);
        }
        Some((own, nominal))
    }

    /// A connected peer may be at these addresses, too: a better path is looked for among them.
    pub(super) fn add_paths(&mut self, now: Instant, index: usize, addresses: &[SocketAddr]) {
        self.track(now, index);
        if let Some(paths) = self.paths(index) {
            paths.add(now, addresses);
        }
        self.settle_paths(now, index);
    }

    /// Gives a connected peer several paths.
    fn track(&mut self, now: Instant, index: usize) {
        let Some(peer) = self.peers[index].as_deref().filter(|peer| peer.paths.is_none()) else {
            return;
        };
        let is_caller = peer.is_caller;
        let Some(connection) = peer.connection() else {
            return;
        };
        let secret = self.quic.exporter(connection, EXPORTER_LABEL, b"");
        let (Some(secret), Some(nominal)) = (secret, self.quic.remote(connection)) else {
            return;
        };
        let meeting = Meeting::of_connection(&secret);
        if let Some(former) = self.routes.track(index, nominal, meeting.transaction) {
            // Where this one came about, the other one goes on.
            self.drop_paths(former);
        }
        if let Some(peer) = self.peers[index].as_deref_mut() {
            peer.paths = Some(Box::new(Paths::new(now, meeting, is_caller, nominal)));
        }
    }

    /// The connection of a peer has ended. Where it has another one, e.g. by another attempt to connect, that has its
    /// paths from here on.
    pub(super) fn hand_paths_on(&mut self, now: Instant, index: usize, connection: ConnectionKey) {
        let Some(addresses) = self.paths(index).map(|paths| paths.addresses()) else {
            return;
        };
        if self.quic.is_closing(connection) {
            self.leave_paths(index, connection);
        } else {
            self.drop_paths(index);
        }
        let id = self.peers[index].as_deref().and_then(|peer| peer.id);
        let is_other = |(place, peer): &(usize, &Option<Box<Peer>>)| {
            let peer = peer.as_deref().filter(|_| *place != index);
            peer.is_some_and(|peer| peer.id == id && peer.connection().is_some() && peer.paths.is_none())
        };
        if let Some((other, _)) = self.peers.iter().enumerate().find(is_other) {
            self.add_paths(now, other, &addresses);
        }
    }

    /// It has one path from here on.
    pub(super) fn drop_paths(&mut self, index: usize) {
        if let Some(paths) = self.take_paths(index) {
            self.routes
                .untrack(index, paths.nominal(), &paths.meeting().transaction);
        }
    }

    /// Nothing is decided any more about paths of a connection that is closing; what is said to its peer goes by the
    /// one in use.
    fn leave_paths(&mut self, index: usize, connection: ConnectionKey) {
        if let Some(paths) = self.take_paths(index) {
            let nominal = paths.nominal();
            self.routes
                .close(index, connection, nominal, &paths.meeting().transaction);
            self.closing.push((connection, nominal));
        }
    }

    fn take_paths(&mut self, index: usize) -> Option<Box<Paths>> {
        let paths = self.peers.get_mut(index)?.as_deref_mut()?.paths.take()?;
        if let Some(timer) = paths.timer {
            self.path_timers.remove(&(timer, index));
        }
        Some(paths)
    }

    /// Ends the paths of connections whose peers know that they are closed, or will not be told any more.
    pub(super) fn end_paths(&mut self) {
        let (quic, routes) = (&self.quic, &mut self.routes);
        self.closing.retain(|(connection, nominal)| {
            let is_closing = quic.is_closing(*connection);
            if !is_closing {
                routes.end(*connection, *nominal);
            }
            is_closing
        });
    }

    /// QUIC follows its client to another address.
    pub(super) fn remote_changed(&mut self, now: Instant, connection: ConnectionKey, remote: SocketAddr) {
        let Some(index) = self.index_of(connection) else {
            return;
        };
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        if peer.connection().is_none() {
            return;
        }
        self.forbid_others(now, connection);
        if let Some(paths) = self.paths(index) {
            let former = paths.nominal();
            paths.nominal_changed(now, remote);
            if let Some(other) = self.routes.rename(index, former, remote) {
                self.drop_paths(other);
            }
            self.settle_paths(now, index);
        } else {
            self.tell_path(index, remote);
        }
    }

    fn tell_path(&mut self, index: usize, remote: SocketAddr) {
        let peer = self.key(index);
        self.events.push_back(Event::PathChanged {
            peer,
            remote,
            is_relayed: is_relayed(remote),
        });
    }

    /// Carries out what the paths of a peer have decided.
    pub(super) fn settle_paths(&mut self, now: Instant, index: usize) {
        let Some(peer) = self.peers.get_mut(index).and_then(Option::as_deref_mut) else {
            return;
        };
        let connection = peer.connection();
        let Some(paths) = peer.paths.as_deref_mut() else {
            return;
        };
        let nominal = paths.nominal();
        let mut moves = Vec::new();
        while let Some(taken) = paths.poll_move() {
            moves.push(taken);
        }
        while let Some(forgotten) = paths.poll_forgotten() {
            self.routes.forget(forgotten, nominal);
        }
        let (is_wished, has_checks) = (paths.take_wish(), paths.has_checks());
        let due = paths.poll_timeout();
        // One that fires sooner than needed costs a look, so that packets need not move it.
        if let Some(due) = due.filter(|due| paths.timer.is_none_or(|timer| *due < timer)) {
            if let Some(old) = paths.timer.replace(due) {
                self.path_timers.remove(&(old, index));
            }
            self.path_timers.insert((due, index));
        }
        if has_checks && !self.checking.contains(&index) {
            self.checking.push(index);
        }
        if is_wished {
            self.wish(index);
        }
        for taken in moves {
            self.routes.set_present(nominal, taken.to);
            if let Some(connection) = connection.filter(|_| !taken.by_quic) {
                self.quic.path_changed(now, connection);
            }
            self.tell_path(index, taken.to);
        }
    }

    pub(super) fn path_timeouts(&mut self, now: Instant) {
        while let Some((due, index)) = self.path_timers.first().copied()
            && due <= now
        {
            self.path_timers.remove(&(due, index));
            let connection = self.peers[index].as_deref().and_then(|peer| peer.connection());
            let round_trip = connection.and_then(|connection| self.quic.round_trip(connection));
            let in_flight = connection.and_then(|connection| self.quic.in_flight(connection));
            if let Some(paths) = self.paths(index) {
                paths.timer = None;
                paths.handle_timeout(now, round_trip.unwrap_or_default(), in_flight.unwrap_or(0) > 0);
            }
            self.settle_paths(now, index);
        }
    }

    /// Puts the checks of paths into `outbox`.
    pub(super) fn flush_paths(&mut self, outbox: &mut Outbox) {
        while let Some(index) = self.checking.pop() {
            while let Some((destination, bytes)) = self.paths(index).and_then(Paths::poll_check) {
                // A full outbox is like a path that loses.
                if !outbox.is_full() {
                    outbox.push(OutgoingTrain {
                        destination,
                        source: None,
                        ecn: Ecn::NotEct,
                        segment_size: bytes.len(),
                        bytes,
                    });
                }
            }
        }
    }

    /// Sends QUIC's trains from the `first` on by the paths in use.
    pub(super) fn direct_trains(&mut self, now: Instant, first: usize, outbox: &mut Outbox) {
        if self.routes.is_empty() {
            return;
        }
        let mut last = None;
        for train in outbox.trains_mut().iter_mut().skip(first) {
            if let Some((present, index)) = self.routes.outward(train.destination, &train.bytes) {
                if present != train.destination {
                    train.destination = present;
                    // Where the nominal path leaves from says nothing of this one.
                    train.source = None;
                }
                let is_another = last.replace(index) != Some(index);
                if let Some(index) = index.filter(|_| is_another)
                    && self.paths(index).is_some_and(|paths| paths.sent(now))
                {
                    self.settle_paths(now, index);
                }
            }
        }
    }

    /// A check of a path (PEER-18).
    pub(super) fn take_path_check(&mut self, now: Instant, from: SocketAddr, datagram: &[u8]) {
        let index = transaction_of(datagram).and_then(|transaction| self.routes.by_transaction(&transaction));
        let Some(index) = index else {
            return;
        };
        let Some(paths) = self.peers.get_mut(index).and_then(Option::as_deref_mut) else {
            return;
        };
        let Some(paths) = paths.paths.as_deref_mut() else {
            return;
        };
        let Some(check) = paths.meeting().read_path_check(datagram) else {
            return;
        };
        let nominal = paths.nominal();
        if self.routes.may_belong(from, nominal) && paths.take_check(now, from, check) {
            self.routes.belong(from, nominal);
        }
        self.settle_paths(now, index);
    }

    /// Frames that came of a peer, so that one can tell whether packets were authentic.
    pub(super) fn frames_of(&self, index: usize) -> Option<u64> {
        let connection = self.peers.get(index)?.as_deref()?.connection()?;
        self.quic.frames_received(connection)
    }

    pub(super) fn heard_on(&mut self, now: Instant, index: usize, from: SocketAddr) {
        if self.paths(index).is_some_and(|paths| paths.heard(now, from)) {
            self.settle_paths(now, index);
        }
    }

    /// A connected peer on whose paths nothing comes: its rendezvous should be asked for addresses again, which
    /// [`Self::add_addresses`] takes.
    pub fn poll_wish(&mut self) -> Option<(PeerKey, PeerId)> {
        while let Some(key) = self.wishes.pop() {
            if let Some(peer) = self.peer(key)
                && peer.connection().is_some()
                && let Some(id) = peer.id
            {
                return Some((key, id));
            }
        }
        None
    }

    /// Our own addresses have changed: all peers that a rendezvous brought together should meet again.
    pub fn wish_all(&mut self) {
        for index in 0..self.peers.len() {
            if self.paths(index).is_some() {
                self.wish(index);
            }
        }
    }

    /// Each peer's wish waits once, also where nobody asks for any.
    fn wish(&mut self, index: usize) {
        let wish = self.key(index);
        if !self.wishes.contains(&wish) {
            self.wishes.retain(|other| other.index() != index);
            self.wishes.push(wish);
        }
    }

    /// Whether an address is one of a peer that is being met or is connected.
    #[must_use]
    pub fn knows(&self, address: SocketAddr) -> bool {
        let knows = |peer: &Peer| {
            let paths = peer.paths.as_deref();
            let races = match &peer.stage {
                Stage::Connecting(race) => race.known().any(|known| known == address),
                Stage::Accepting(_) | Stage::Connected(_) | Stage::Ended => false,
            };
            races || paths.is_some_and(|paths| paths.knows(address))
        };
        self.peers.iter().flatten().any(|peer| knows(peer)) || self.is_met_at(address)
    }

    /// The path in use: the peer's address, and whether the rendezvous relays for it.
    #[must_use]
    pub fn path(&self, peer: PeerKey) -> Option<(SocketAddr, bool)> {
        let entry = self.peers.get(peer.index())?.as_deref()?;
        let connection = entry
            .connection()
            .filter(|_| entry.generation == peer.generation)?;
        let present = entry.paths.as_ref().map(|paths| paths.present());
        let address = present.or_else(|| self.quic.remote(connection))?;
        Some((address, is_relayed(address)))
    }
}
