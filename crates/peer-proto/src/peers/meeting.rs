//! How a connection comes about: the race of a peer's addresses, and the checks by which routers between both ends are
//! opened (`specs/rendezvous.md`).

use std::net::SocketAddr;
use std::time::Instant;

use packet::{Ecn, Path};
use quic::{CloseReason, Outbox, OutgoingTrain};

use super::{PeerKey, Peers};
use crate::attempt::{AddressSource, Attempt};
use crate::check::{Meeting, is_stun};
use crate::error::ConnectError;
use crate::event::Event;
use crate::id::PeerId;
use crate::limits::{
    ADDRESSES_MAX, CANDIDATES_MAX, CHECK_BYTES, CHECK_DELAYS, CHECKED_PEERS_MAX, MEETINGS_MAX, MET_PEERS_MAX,
    MET_TIME,
};
use crate::paths::is_relayed;
use crate::peer::{Peer, Stage};
use crate::race::Race;

/// Checks that go to one peer.
#[derive(Debug)]
pub(super) struct Checks {
    to: PeerId,
    meeting: Meeting,
    /// Also the relayed ones, to which no checks are sent.
    addresses: Vec<SocketAddr>,
    /// Checks are sent at these times after this one.
    since: Instant,
    /// Rounds that have left.
    rounds: usize,
}

impl Checks {
    fn due(&self) -> Option<Instant> {
        CHECK_DELAYS.get(self.rounds).map(|delay| self.since + *delay)
    }
}

impl Peers {
    /// Connects to a peer at whichever of its addresses answers first; they are begun one after the other
    /// ([`crate::limits::CANDIDATE_INTERVAL`]), IPv6 first. [`Event::Connected`] or [`Event::Failed`] follows.
    ///
    /// # Errors
    /// [`ConnectError`] where the addresses cannot be used.
    pub fn connect(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
    ) -> Result<PeerKey, ConnectError> {
        if addresses.is_empty() && id != self.own {
            return Err(ConnectError::NoAddress);
        }
        self.begin_race(now, id, addresses, Race::default())
    }

    /// The same where a rendezvous may name more addresses by [`Self::add_addresses`], or checks of `meeting` come,
    /// until `more_until`.
    ///
    /// # Errors
    /// As of [`Self::connect`]; there need not be an address yet.
    pub fn connect_and_meet(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
        meeting: Meeting,
        more_until: Instant,
    ) -> Result<PeerKey, ConnectError> {
        let mut race = Race::default();
        race.expect(AddressSource::Rendezvous, more_until);
        race.meet(meeting);
        let key = self.begin_race(now, id, addresses, race)?;
        if self.meeting_peers.len() < MEETINGS_MAX {
            self.meeting_peers.push(key.index());
        }
        Ok(key)
    }

    /// The same where the local network may name more addresses until `more_until`, and no rendezvous is asked.
    ///
    /// # Errors
    /// As of [`Self::connect`]; there need not be an address yet.
    pub fn connect_and_search(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
        more_until: Instant,
    ) -> Result<PeerKey, ConnectError> {
        let mut race = Race::default();
        race.expect(AddressSource::Lan, more_until);
        self.begin_race(now, id, addresses, race)
    }

    fn begin_race(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
        mut race: Race,
    ) -> Result<PeerKey, ConnectError> {
        if id == self.own {
            return Err(ConnectError::Ourselves);
        }
        if addresses.len() > ADDRESSES_MAX {
            return Err(ConnectError::TooManyAddresses(addresses.len()));
        }
        race.add(now, AddressSource::Program, addresses);
        let key = self.insert(Stage::Connecting(Box::new(race)), Some(id));
        let refused = self.advance_race(now, key.index());
        let is_lost = matches!(
            self.peers[key.index()].as_deref().map(|peer| &peer.stage),
            Some(Stage::Connecting(race)) if race.is_lost(now)
        );
        match refused {
            Some(error) if is_lost => {
                self.remove(key.index());
                Err(error)
            }
            _ => Ok(key),
        }
    }

    /// Addresses of a peer that `source` names: of one that is being connected they are tried, of one that is connected
    /// they may be better paths.
    pub fn add_addresses(
        &mut self,
        now: Instant,
        peer: PeerKey,
        source: AddressSource,
        addresses: &[SocketAddr],
    ) {
        match self.peer(peer).map(|entry| &mut entry.stage) {
            Some(Stage::Connecting(race)) => {
                race.add(now, source, addresses);
                self.advance_race(now, peer.index());
            }
            Some(Stage::Connected(_)) => self.add_paths(now, peer.index(), addresses),
            _ => {}
        }
    }

    /// What is tried to reach a peer that is being connected, in the order in which it was begun.
    pub fn attempts(&mut self, peer: PeerKey) -> Vec<Attempt> {
        match self.peer(peer).map(|entry| &entry.stage) {
            Some(Stage::Connecting(race)) => race.attempts(None),
            _ => Vec::new(),
        }
    }

    /// This source, too, may name addresses of a peer that is being connected until then.
    pub fn expect_addresses(&mut self, now: Instant, peer: PeerKey, source: AddressSource, until: Instant) {
        if let Some(entry) = self.peer(peer)
            && let Stage::Connecting(race) = &mut entry.stage
        {
            race.expect(source, until);
            self.advance_race(now, peer.index());
        }
    }

    /// This source names no more addresses of the peer: it is unreachable where none is left, nor expected.
    pub fn expect_no_more_addresses(&mut self, now: Instant, peer: PeerKey, source: AddressSource) {
        if let Some(entry) = self.peer(peer)
            && let Stage::Connecting(race) = &mut entry.stage
        {
            race.expect_no_more(source);
            self.advance_race(now, peer.index());
            self.end_lost_race(now, peer.index());
        }
    }

    /// Peers that are being connected are not reached at this address, for this reason: it is not tried, or no longer.
    pub fn fail_at(&mut self, now: Instant, address: SocketAddr, reason: &CloseReason) {
        for index in 0..self.peers.len() {
            let Some(ended) = self.race(index).and_then(|race| race.fail(address, reason)) else {
                continue;
            };
            for connection in ended {
                self.by_connection[connection.index()] = None;
                self.quic.close(now, connection, 0, b"nothing leads there");
            }
            self.advance_race(now, index);
            self.end_lost_race(now, index);
        }
    }

    /// Begins what may be begun, and sets the timer of the rest. The first address that could not be used at all.
    pub(super) fn advance_race(&mut self, now: Instant, index: usize) -> Option<ConnectError> {
        let mut first_error = None;
        while let Some(address) = self.race(index).and_then(|race| race.poll(now)) {
            if let Err(error) = self.begin_attempt(now, index, address) {
                first_error.get_or_insert(ConnectError::Address { address, error });
                if let Some(race) = self.race(index) {
                    // Nothing went out that the next one would have to wait for.
                    race.not_begun();
                }
            }
        }
        let due = self.race(index).and_then(|race| race.poll_timeout());
        self.set_timer(index, due);
        first_error
    }

    fn race(&mut self, index: usize) -> Option<&mut Race> {
        match &mut self.peers.get_mut(index)?.as_deref_mut()?.stage {
            Stage::Connecting(race) => Some(race),
            Stage::Accepting(_) | Stage::Connected(_) | Stage::Ended => None,
        }
    }

    fn begin_attempt(
        &mut self,
        now: Instant,
        index: usize,
        address: SocketAddr,
    ) -> Result<(), quic::ConnectError> {
        let Some(id) = self.peers[index].as_deref().and_then(|peer| peer.id) else {
            return Ok(());
        };
        let payload_max = self.payloads.towards(now, address).min(self.udp_payload_max);
        let begun = self
            .quic
            .connect_peer(now, address, *id.as_bytes(), payload_max)?;
        self.belongs_to(begun, index);
        if let Some(race) = self.race(index) {
            race.begun(now, begun, address);
        }
        Ok(())
    }

    /// The race's timer has fired.
    pub(super) fn race_is_due(&mut self, now: Instant, index: usize) {
        if let Some(race) = self.race(index) {
            race.handle_timeout(now);
            self.advance_race(now, index);
            self.end_lost_race(now, index);
        }
    }

    /// An attempt has ended, or no more addresses come: the peer is unreachable where nothing is left.
    pub(super) fn end_lost_race(&mut self, now: Instant, index: usize) {
        let Some(race) = self.race(index).filter(|race| race.is_lost(now)) else {
            return;
        };
        let attempts = race.attempts(None);
        let failures = attempts.iter().filter_map(Attempt::failure).collect();
        let peer = self.key(index);
        self.events.push_back(Event::Tried { peer, attempts });
        self.events.push_back(Event::Failed { peer, failures });
        self.remove(index);
    }

    pub(super) fn set_timer(&mut self, index: usize, due: Option<Instant>) {
        let Some(peer) = self.peers[index].as_deref_mut() else {
            return;
        };
        if due != peer.timer {
            if let Some(old) = std::mem::replace(&mut peer.timer, due) {
                self.timers.remove(&(old, index));
            }
            self.timers.extend(due.map(|due| (due, index)));
        }
    }

    /// Whether a peer may connect to us.
    #[must_use]
    pub fn admits(&self, id: PeerId) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&id))
    }

    /// Whether there is room for checks of another peer ([`Self::send_checks`]).
    #[must_use]
    pub fn has_room_for_checks(&self, now: Instant, to: PeerId) -> bool {
        let is_sending =
            |checks: &&Checks| checks.to != to && now < checks.since + MET_TIME && checks.due().is_some();
        self.checks.iter().filter(is_sending).count() < CHECKED_PEERS_MAX
    }

    /// Sends checks to the addresses of a peer that is about to connect to us, so that routers let its packets in
    /// (RDV-2). They end when it has connected, or after [`CHECK_DELAYS`]. Whether there was room for them. Where the
    /// peer is connected already, the addresses may be better paths, too.
    pub fn send_checks(
        &mut self,
        now: Instant,
        to: PeerId,
        meeting: Meeting,
        addresses: &[SocketAddr],
    ) -> bool {
        self.checks
            .retain(|checks| checks.to != to && now < checks.since + MET_TIME);
        if !self.has_room_for_checks(now, to) {
            return false;
        }
        if self.checks.len() >= MET_PEERS_MAX {
            self.checks.remove(0);
        }
        let usable = |address: &&SocketAddr| address.port() != 0 && !address.ip().is_unspecified();
        let is_met = |peer: &Peer| peer.id == Some(to) && peer.connection().is_some();
        // Of several the last one: of one that began anew the former connection has not ended yet.
        let peers = self.peers.iter().enumerate();
        let met = peers.filter_map(|(index, peer)| Some((index, peer.as_deref()?)));
        let last = met
            .filter(|(_, peer)| is_met(peer))
            .max_by_key(|(_, peer)| peer.generation);
        if let Some((index, _)) = last {
            let usable: Vec<SocketAddr> = addresses.iter().filter(usable).copied().collect();
            self.add_paths(now, index, &usable);
        }
        self.checks.push(Checks {
            to,
            meeting,
            addresses: addresses
                .iter()
                .filter(usable)
                .take(CANDIDATES_MAX)
                .copied()
                .collect(),
            since: now,
            rounds: 0,
        });
        true
    }

    pub(super) fn checks_due(&self) -> Option<Instant> {
        self.checks.iter().filter_map(Checks::due).min()
    }

    /// Puts the checks that are due into `outbox`.
    pub(super) fn flush_checks(&mut self, now: Instant, outbox: &mut Outbox) {
        for checks in &mut self.checks {
            while checks.due().is_some_and(|due| due <= now) {
                checks.rounds += 1;
                for address in checks.addresses.iter().filter(|address| !is_relayed(**address)) {
                    // A full outbox is like a path that loses: there are more rounds.
                    if !outbox.is_full() {
                        outbox.push(OutgoingTrain {
                            destination: *address,
                            source: None,
                            ecn: Ecn::NotEct,
                            segment_size: CHECK_BYTES,
                            bytes: checks.meeting.check(),
                        });
                    }
                }
            }
        }
        self.checks.retain(|checks| now < checks.since + MET_TIME);
    }

    /// Whether a peer that is about to connect may be there.
    pub(super) fn is_met_at(&self, address: SocketAddr) -> bool {
        self.checks
            .iter()
            .any(|checks| checks.addresses.contains(&address))
    }

    /// The peer has connected: where it may be. Other attempts of it may complete as well.
    pub(super) fn end_checks(&mut self, now: Instant, id: PeerId) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for checks in self.checks.iter_mut().filter(|checks| checks.to == id) {
            checks.rounds = CHECK_DELAYS.len();
            if now < checks.since + MET_TIME {
                addresses.extend_from_slice(&checks.addresses);
            }
        }
        addresses
    }

    /// Looks for checks among datagrams that came while peers are being met.
    pub(super) fn take_checks(&mut self, now: Instant, path: Path, data: &[u8], segment_size: usize) {
        let size = if segment_size == 0 {
            data.len()
        } else {
            segment_size
        };
        if size == 0 {
            return;
        }
        for datagram in data.chunks(size).filter(|datagram| is_stun(datagram)) {
            let belongs = |peer: &Peer| match &peer.stage {
                Stage::Connecting(race) => race.meeting().is_some_and(|meeting| meeting.is_check(datagram)),
                Stage::Accepting(_) | Stage::Connected(_) | Stage::Ended => false,
            };
            self.take_path_check(now, path.remote, datagram);
            let index = self
                .meeting_peers
                .iter()
                .find(|index| self.peers[**index].as_deref().is_some_and(belongs))
                .copied();
            if let Some(index) = index
                && self.race(index).is_some_and(|race| race.is_open(path.remote))
            {
                // Where the address cannot be used, others may come.
                let _ = self.begin_attempt(now, index, path.remote);
            }
        }
    }
}
