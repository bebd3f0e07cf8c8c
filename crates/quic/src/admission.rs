//! Which new connections are let in. Whoever has shown no valid token is a stranger: strangers are bounded per prefix and
//! altogether, from their first packet until the token. Each shard of a process has its part of the bounds, so that they
//! hold for all together.
//!
//! Nobody is refused for want of room: a newcomer whose prefix is full takes the place of the oldest stranger there, and
//! where all places are taken that of the oldest in the fullest prefix. So a network that opens many connections pushes out
//! its own, and many networks that open some push out each other's before they reach somebody who came alone. A part of the
//! room is kept for prefixes whose users were here lately. Forged addresses cannot push anybody out: above half of the
//! bounds, and above a named rate, an address has to prove itself by a Retry first (RFC 9000 section 8.1.2). Between peers
//! the rate is not for addresses of the machine itself, which nobody outside can forge; the bounds are, because a program
//! of the machine may forward what others forge.

mod lately;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use packet::customer_prefix as prefix;

use crate::event::{ConnectionKey, IncomingKey};
use crate::limits;
use lately::Lately;

/// What to do with a new connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Begin the handshake.
    Accept,
    /// Ask for address validation first.
    Retry,
    /// Do not answer.
    Ignore,
}

/// What speaks for the address of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    Nothing,
    /// It is the machine's own.
    Local,
    /// A Retry, an earlier token or a handshake below QUIC has shown it.
    Shown,
}

/// Who has a place among the strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// The caller has not decided on it.
    Undecided(IncomingKey),
    /// It shakes hands, or has done so.
    Connection(ConnectionKey),
}

/// A stranger's place; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// The strangers of one prefix.
#[derive(Debug, Default)]
struct Group {
    places: BTreeSet<Place>,
    /// Somebody from there showed a valid token lately.
    is_known: bool,
}

/// All strangers, and the rate of attempts.
#[derive(Debug)]
pub(crate) struct Admission {
    shards: u8,
    strangers: BTreeMap<Place, (IpAddr, Stranger)>,
    /// By prefix; none is empty.
    groups: BTreeMap<IpAddr, Group>,
    lately: Lately,
    places_given: u64,
    window_start: Option<Instant>,
    attempts: u32,
}

impl Admission {
    /// For one of so many shards, at least one.
    pub(crate) fn new(shards: u8) -> Self {
        Self {
            shards,
            strangers: BTreeMap::new(),
            groups: BTreeMap::new(),
            lately: Lately::new(shards),
            places_given: 0,
            window_start: None,
            attempts: 0,
        }
    }

    /// Judges an attempt from `remote`.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        remote: IpAddr,
        proof: Proof,
        connections: usize,
    ) -> Verdict {
        if connections >= self.part(limits::CONNECTIONS_MAX) {
            return Verdict::Ignore;
        }
        let is_half_full = self.count_of(prefix(remote)) >= self.part(limits::STRANGERS_PER_PREFIX) / 2
            || self.strangers.len() >= self.part(limits::STRANGERS_MAX) / 2;
        if proof != Proof::Shown && is_half_full {
            return Verdict::Retry;
        }
        let fresh = self
            .window_start
            .is_some_and(|start| now.duration_since(start) < Duration::from_secs(1));
        if !fresh {
            self.window_start = Some(now);
            self.attempts = 0;
        }
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts > limits::RETRY_ABOVE_PER_SECOND / u32::from(self.shards) && proof == Proof::Nothing
        {
            Verdict::Retry
        } else {
            Verdict::Accept
        }
    }

    /// Who has to go before a newcomer from `remote` can have a place.
    pub(crate) fn in_the_way_of(&self, now: Instant, remote: IpAddr) -> Option<Stranger> {
        let prefix = prefix(remote);
        let group = if self.count_of(prefix) >= self.part(limits::STRANGERS_PER_PREFIX) {
            self.groups.get(&prefix)
        } else if !self.lately.has(now, prefix) && self.is_full_for_unknown() {
            fullest(self.unknown())
        } else if self.strangers.len() >= self.part(limits::STRANGERS_MAX) {
            fullest(self.groups.values())
        } else {
            None
        };
        let oldest = group?.places.first()?;
        self.strangers.get(oldest).map(|(_, stranger)| *stranger)
    }

    /// A stranger came.
    pub(crate) fn begin(&mut self, now: Instant, remote: IpAddr, stranger: Stranger) -> Place {
        let prefix = prefix(remote);
        let place = Place(self.places_given);
        self.places_given += 1;
        let is_known = self.lately.has(now, prefix);
        let group = self.groups.entry(prefix).or_default();
        group.is_known = is_known;
        group.places.insert(place);
        self.strangers.insert(place, (prefix, stranger));
        place
    }

    /// The caller has accepted who has this place.
    pub(crate) fn accepted(&mut self, place: Place, connection: ConnectionKey) {
        if let Some((_, stranger)) = self.strangers.get_mut(&place) {
            *stranger = Stranger::Connection(connection);
        }
    }

    /// A stranger has shown a valid token, and is none any more.
    pub(crate) fn authenticated(&mut self, now: Instant, place: Place) {
        if let Some(prefix) = self.end(place) {
            self.lately.remember(now, prefix);
            if let Some(group) = self.groups.get_mut(&prefix) {
                group.is_known = true;
            }
        }
    }

    /// A stranger is gone; the prefix it came from.
    pub(crate) fn end(&mut self, place: Place) -> Option<IpAddr> {
        let (prefix, _) = self.strangers.remove(&place)?;
        let group = self.groups.get_mut(&prefix)?;
        group.places.remove(&place);
        if group.places.is_empty() {
            self.groups.remove(&prefix);
        }
        Some(prefix)
    }

    /// The strangers that shake hands, or have done so.
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnectionKey> {
        self.strangers
            .values()
            .filter_map(|(_, stranger)| match stranger {
                Stranger::Connection(connection) => Some(*connection),
                Stranger::Undecided(_) => None,
            })
    }

    /// Whether prefixes that showed no token lately have all of their part.
    fn is_full_for_unknown(&self) -> bool {
        let count: usize = self.unknown().map(|group| group.places.len()).sum();
        count >= self.part(limits::STRANGERS_MAX - limits::STRANGERS_RESERVED)
    }

    fn unknown(&self) -> impl Iterator<Item = &Group> {
        self.groups.values().filter(|group| !group.is_known)
    }

    fn count_of(&self, prefix: IpAddr) -> usize {
        self.groups.get(&prefix).map_or(0, |group| group.places.len())
    }

    /// This shard's part of a bound.
    fn part(&self, bound: usize) -> usize {
        bound / usize::from(self.shards)
    }
}

/// The group with the most strangers; of several, the one whose oldest came first.
fn fullest<'a>(groups: impl Iterator<Item = &'a Group>) -> Option<&'a Group> {
    groups.max_by_key(|group| {
        (
            group.places.len(),
            std::cmp::Reverse(group.places.first().copied()),
        )
    })
}

#[cfg(test)]
mod tests;
