//! The addresses of a peer that is being connected: which are tried, in which order, and when (RFC 8305).
//!
//! An address is begun [`CANDIDATE_INTERVAL`] after the one before, or as soon as that one fails; attempts go on beside
//! each other, and the first that completes its handshake is the connection. Addresses may come later, from a source
//! that is expected to name some or from the peer's checks; while one is expected, a race without any is not lost.
//! Addresses that the rendezvous relays for are begun after [`RELAY_DELAY`], or when no other one is left.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use quic::{CloseReason, ConnectionKey};

use crate::attempt::{AddressSource, Attempt, AttemptState};
use crate::check::Meeting;
use crate::limits::{CANDIDATE_INTERVAL, CANDIDATES_MAX, RELAY_DELAY};
use crate::paths::is_relayed;

/// An address that was taken.
#[derive(Debug)]
struct Known {
    address: SocketAddr,
    source: AddressSource,
    /// When it was begun first.
    begun: Option<Instant>,
    end: Option<CloseReason>,
}

#[derive(Debug, Default)]
pub(crate) struct Race {
    /// When the connection was asked for.
    began: Option<Instant>,
    /// Every address that was taken, once.
    known: Vec<Known>,
    waiting: VecDeque<SocketAddr>,
    /// Relayed ones that wait.
    relayed: VecDeque<SocketAddr>,
    /// When they may be begun.
    relayed_from: Option<Instant>,
    attempts: Vec<(ConnectionKey, SocketAddr)>,
    /// When the next waiting address may be begun.
    next: Option<Instant>,
    /// Who may name more addresses, and until when; each source once.
    expected: Vec<(AddressSource, Instant)>,
    /// Whose checks name addresses.
    meeting: Option<Meeting>,
    /// Addresses that were begun because a check came from there.
    checked: Vec<SocketAddr>,
}

impl Race {
    /// Takes addresses that are new, up to [`CANDIDATES_MAX`] in all, IPv6 and IPv4 by turns (RFC 8305 section 4).
    pub(crate) fn add(&mut self, now: Instant, source: AddressSource, addresses: &[SocketAddr]) {
        self.began.get_or_insert(now);
        let (mut six, mut four): (VecDeque<_>, VecDeque<_>) =
            addresses.iter().partition(|address| address.is_ipv6());
        while let Some(address) = six.pop_front().or_else(|| four.pop_front()) {
            // The other family's turn is next.
            std::mem::swap(&mut six, &mut four);
            if self.known.len() < CANDIDATES_MAX && !self.knows(address) {
                let is_relayed = is_relayed(address);
                let source = if is_relayed { AddressSource::Relay } else { source };
                self.learn(address, source);
                if is_relayed {
                    self.relayed.push_back(address);
                    self.relayed_from.get_or_insert(now + RELAY_DELAY);
                } else {
                    self.waiting.push_back(address);
                }
            }
        }
    }

    /// Every address that was taken.
    pub(crate) fn known(&self) -> impl Iterator<Item = SocketAddr> {
        self.known.iter().map(|known| known.address)
    }

    fn knows(&self, address: SocketAddr) -> bool {
        self.known().any(|known| known == address)
    }

    fn learn(&mut self, address: SocketAddr, source: AddressSource) {
        self.known.push(Known {
            address,
            source,
            begun: None,
            end: None,
        });
    }

    /// What is tried, in the order in which it was begun; `connected` has become the connection.
    pub(crate) fn attempts(&self, connected: Option<ConnectionKey>) -> Vec<Attempt> {
        let address = |key: ConnectionKey| {
            let attempt = self.attempts.iter().find(|(attempt, _)| *attempt == key);
            attempt.map(|(_, address)| *address)
        };
        let winner = connected.and_then(address);
        let mut known: Vec<&Known> = self.known.iter().collect();
        known.sort_by_key(|known| (known.begun.is_none(), known.begun));
        let attempt = |known: &Known| Attempt {
            address: known.address,
            source: known.source,
            begun_after: known
                .begun
                .zip(self.began)
                .map(|(begun, began)| begun.saturating_duration_since(began)),
            state: self.state_of(known, winner),
        };
        known.into_iter().map(attempt).collect()
    }

    fn state_of(&self, known: &Known, winner: Option<SocketAddr>) -> AttemptState {
        if winner == Some(known.address) {
            return AttemptState::Connected;
        }
        let is_open = self.attempts.iter().any(|(_, address)| *address == known.address);
        match (&known.end, known.begun) {
            (Some(reason), _) if !is_open => AttemptState::Failed(reason.clone()),
            (_, Some(_)) => AttemptState::Unanswered,
            (_, None) => AttemptState::Waiting,
        }
    }

    /// This source may name addresses until then.
    pub(crate) fn expect(&mut self, source: AddressSource, until: Instant) {
        self.expect_no_more(source);
        self.expected.push((source, until));
    }

    /// It names no more.
    pub(crate) fn expect_no_more(&mut self, source: AddressSource) {
        self.expected.retain(|(expected, _)| *expected != source);
    }

    pub(crate) fn meet(&mut self, meeting: Meeting) {
        self.meeting = Some(meeting);
    }

    pub(crate) fn meeting(&self) -> Option<&Meeting> {
        self.meeting.as_ref()
    }

    /// A check has come from `address`, so the way there is open: whether it is to be tried at once, also where an
    /// attempt that began before is under way, whose first packets may have met a closed router.
    pub(crate) fn is_open(&mut self, address: SocketAddr) -> bool {
        if self.checked.contains(&address) || self.checked.len() >= CANDIDATES_MAX {
            return false;
        }
        self.checked.push(address);
        self.waiting.retain(|waiting| *waiting != address);
        if !self.knows(address) {
            self.learn(address, AddressSource::Check);
        }
        true
    }

    /// The next address to begin, if it is time.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<SocketAddr> {
        let is_alone = self.waiting.is_empty() && self.attempts.is_empty();
        if (is_alone || self.relayed_from.is_some_and(|from| from <= now))
            && let Some(address) = self.relayed.pop_front()
        {
            return Some(address);
        }
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        let address = self.waiting.pop_front()?;
        self.next = Some(now + CANDIDATE_INTERVAL);
        Some(address)
    }

    /// When there is something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let next = self.next.filter(|_| !self.waiting.is_empty());
        let relayed = self.relayed_from.filter(|_| !self.relayed.is_empty());
        let until = self.expected.iter().map(|(_, until)| *until);
        next.into_iter().chain(relayed).chain(until).min()
    }

    /// The address that was to be begun could not be used: the next one need not wait.
    pub(crate) fn not_begun(&mut self) {
        self.next = None;
    }

    pub(crate) fn begun(&mut self, now: Instant, connection: ConnectionKey, address: SocketAddr) {
        self.attempts.push((connection, address));
        if let Some(known) = self.known.iter_mut().find(|known| known.address == address) {
            known.begun.get_or_insert(now);
        }
    }

    /// An attempt has ended: the next address need not wait.
    pub(crate) fn ended(&mut self, connection: ConnectionKey, reason: CloseReason) {
        if let Some(place) = self
            .attempts
            .iter()
            .position(|(attempt, _)| *attempt == connection)
        {
            let (_, address) = self.attempts.remove(place);
            if let Some(known) = self.known.iter_mut().find(|known| known.address == address) {
                known.end = Some(reason);
            }
            self.next = None;
        }
    }

    /// An address that was taken leads nowhere: it is not begun, and the attempts there that are to be ended.
    pub(crate) fn fail(&mut self, address: SocketAddr, reason: &CloseReason) -> Option<Vec<ConnectionKey>> {
        let known = self.known.iter_mut().find(|known| known.address == address)?;
        known.end = Some(reason.clone());
        self.waiting.retain(|waiting| *waiting != address);
        self.relayed.retain(|relayed| *relayed != address);
        let failed = self.attempts.extract_if(.., |(_, begun)| *begun == address);
        let failed: Vec<ConnectionKey> = failed.map(|(connection, _)| connection).collect();
        if !failed.is_empty() {
            self.next = None;
        }
        Some(failed)
    }

    /// Whether no address is left, nor to come.
    pub(crate) fn is_lost(&self, now: Instant) -> bool {
        let more = self.expected.iter().any(|(_, until)| now < *until);
        self.attempts.is_empty() && self.waiting.is_empty() && self.relayed.is_empty() && !more
    }

    /// Forgets sources whose time is over.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.expected.retain(|(_, until)| now < *until);
    }

    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionKey> {
        self.attempts.iter().map(|(connection, _)| *connection)
    }

    /// Nothing is begun from here on.
    pub(crate) fn give_up(&mut self) {
        self.waiting.clear();
        self.relayed.clear();
        self.expected.clear();
        self.meeting = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// An instant to count from.
    fn now() -> Instant {
        sim::Clock::default().now()
    }

    #[test]
    fn families_take_turns_and_each_address_is_begun_once() {
        let mut race = Race::default();
        let four = addresses(&["192.0.2.1:1", "192.0.2.2:1", "192.0.2.1:1", "192.0.2.3:1"]);
        let six = addresses(&["[2001:db8::1]:1"]);
        race.add(now(), AddressSource::Program, &[&four[..], &six[..]].concat());
        race.add(now(), AddressSource::Program, &six);
        let mut now = now();
        let mut order = Vec::new();
        while let Some(address) = race.poll(now) {
            order.push(address);
            assert_eq!(race.poll(now), None, "the next one waits");
            now += CANDIDATE_INTERVAL;
        }
        assert_eq!(order, [six[0], four[0], four[1], four[3]]);
    }

    #[test]
    fn what_was_tried_is_told_in_its_order_with_who_named_it() {
        // Connections are made by an endpoint alone; what `begun` and `ended` note of them is noted here.
        fn note(race: &mut Race, address: SocketAddr) -> &mut Known {
            let mut known = race.known.iter_mut();
            known.find(|known| known.address == address).unwrap()
        }
        let mut race = Race::default();
        let began = now();
        let [given, found, relayed, idle] =
            ["192.0.2.1:1", "192.0.2.2:1", "[100::1]:1", "192.0.2.3:1"].map(|text| addresses(&[text])[0]);
        race.add(began, AddressSource::Program, &[idle]);
        race.add(began, AddressSource::Program, &[given]);
        race.add(began, AddressSource::Rendezvous, &[relayed]);
        let later = began + CANDIDATE_INTERVAL;
        race.add(later, AddressSource::Lan, &[found, given]);
        note(&mut race, given).begun = Some(began);
        note(&mut race, found).begun = Some(later);
        note(&mut race, found).end = Some(CloseReason::TimedOut);
        note(&mut race, relayed).begun = Some(later + CANDIDATE_INTERVAL);
        let told: Vec<_> = race
            .attempts(None)
            .into_iter()
            .map(|attempt| {
                (
                    attempt.address,
                    attempt.source,
                    attempt.begun_after,
                    attempt.state,
                )
            })
            .collect();
        let failed = AttemptState::Failed(CloseReason::TimedOut);
        let [first, second, third] = [0, 1, 2].map(|count| Some(count * CANDIDATE_INTERVAL));
        assert_eq!(
            told,
            [
                (given, AddressSource::Program, first, AttemptState::Unanswered),
                (found, AddressSource::Lan, second, failed),
                (relayed, AddressSource::Relay, third, AttemptState::Unanswered),
                (idle, AddressSource::Program, None, AttemptState::Waiting),
            ]
        );
        assert!(race.is_open(addresses(&["192.0.2.9:1"])[0]));
        assert_eq!(race.attempts(None)[4].source, AddressSource::Check);
    }

    #[test]
    fn a_race_takes_a_bounded_number_of_addresses() {
        let mut race = Race::default();
        let many: Vec<_> = (1..=1_000)
            .map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
            .collect();
        race.add(now(), AddressSource::Program, &many);
        assert_eq!(race.known.len(), CANDIDATES_MAX);
        let opened = many.iter().filter(|address| race.is_open(**address)).count();
        assert_eq!(opened, CANDIDATES_MAX);
        assert!(race.known.len() <= 2 * CANDIDATES_MAX);
    }

    #[test]
    fn a_race_without_addresses_is_lost_when_no_more_come() {
        let now = now();
        let until = now + Duration::from_secs(3);
        let mut race = Race::default();
        race.expect(AddressSource::Rendezvous, until);
        race.expect(AddressSource::Lan, until + Duration::from_secs(1));
        race.expect(AddressSource::Lan, until);
        assert!(!race.is_lost(now));
        race.expect_no_more(AddressSource::Rendezvous);
        assert!(!race.is_lost(now), "the other source may still name some");
        assert_eq!(race.poll_timeout(), Some(until));
        race.handle_timeout(until);
        assert!(race.is_lost(until));
        assert_eq!(race.poll_timeout(), None);
    }
}
