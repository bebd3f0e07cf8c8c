//! The paths of one connection, below QUIC: which addresses lead to the peer, and which of them is in use.
//!
//! QUIC knows one address of the peer, the *nominal* one, at which the connection came about. [`routes`] exchanges it
//! for that of the path in use, so that a connection moves without QUIC's help: QUIC version 1 lets only a client
//! change its address, and a client drops what comes from elsewhere. This file decides on the path:
//!
//! - A path is used only after a check on it was answered ([`crate::check`]), which proves both directions. A check
//!   that comes from a new address makes that address a path.
//! - While the path in use is relayed, the direct ones are *searched*: checked at growing pauses. The first that
//!   answers is taken; one that was left before has to answer several times in a row. While a direct path is in use,
//!   relayed ones are searched until they have answered once, so that they can take its place.
//! - Where an answer is due and nothing comes on the path in use, or the peer sends by another path, it is in
//!   *doubt*: all paths are checked. If another one has answered after a while, and this one has not, that is taken.
//! - A doubt that nothing resolves is a wish to be told of the peer's addresses by the rendezvous again.
//!
//! Both ends decide for what they send. Packets that come by any path that has been checked are the connection's.

mod known;
mod routes;
mod seen;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::check::{Meeting, PathCheck};
use crate::limits::{
    DOUBT_PAUSE, DOUBT_PAUSE_MAX, DOUBT_TIME_MIN, FALLS_FORGOTTEN, FALLS_MAX, MEETING_PAUSE,
    MEETING_PAUSE_MAX, PATH_ANSWERS_MAX, PATHS_MAX, SEARCH_PAUSE, SEARCH_PAUSE_MAX, SEARCH_TIME_MAX,
    SILENCE_MIN, SILENCE_ROUND_TRIPS,
};
use known::Known;
pub(crate) use routes::Routes;
use seen::Seen;

/// Whether an address is one that a rendezvous relays for: of the discard prefix 100::/64 (RFC 6666), to which no
/// socket sends.
#[must_use]
pub fn is_relayed(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(six) if six.ip().segments()[..4] == [0x100, 0, 0, 0])
}

/// Checks of the path in use, about which there is a doubt, and of all others.
#[derive(Debug)]
struct Doubt {
    since: Instant,
    rounds: u32,
    /// Rounds without an answer after which another path is taken.
    rounds_min: u32,
    next: Instant,
    pause: Duration,
}

/// Checks of paths that are better than the one in use, or that could take its place.
#[derive(Debug)]
struct Search {
    until: Instant,
    next: Instant,
    pause: Duration,
}

/// The next wish to meet again.
#[derive(Debug)]
struct Wish {
    next: Instant,
    pause: Duration,
}

/// A path that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) to: SocketAddr,
    /// QUIC itself found that its client's address has changed, and began anew.
    pub(crate) by_quic: bool,
}

#[derive(Debug)]
pub(crate) struct Paths {
    meeting: Meeting,
    is_caller: bool,
    nominal: SocketAddr,
    present: SocketAddr,
    known: Vec<Known>,
    /// Requests that were sent.
    number: u64,
    seen: Seen,
    outgoing: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The first packet that left on the path in use since something came there.
    sent_at: Option<Instant>,
    /// It was checked since, because nothing else has to be answered.
    is_asked: bool,
    doubt: Option<Doubt>,
    search: Option<Search>,
    wish: Option<Wish>,
    is_wished: bool,
    /// How often direct paths were left lately.
    falls: u32,
    moved_at: Instant,
    moves: VecDeque<Move>,
    forgotten: Vec<SocketAddr>,
    round_trip: Duration,
    /// As it stands among the timers of all peers.
    pub(crate) timer: Option<Instant>,
}

impl Paths {
    /// Of a connection that uses its nominal address. `meeting` is that of the connection.
    pub(crate) fn new(now: Instant, meeting: Meeting, is_caller: bool, nominal: SocketAddr) -> Self {
        Self {
            meeting,
            is_caller,
            nominal,
            present: nominal,
            known: vec![Known::new(now, nominal)],
            number: 0,
            seen: Seen::default(),
            outgoing: VecDeque::new(),
            sent_at: None,
            is_asked: false,
            doubt: None,
            search: None,
            wish: None,
            is_wished: false,
            falls: 0,
            moved_at: now,
            moves: VecDeque::new(),
            forgotten: Vec::new(),
            round_trip: Duration::ZERO,
            timer: None,
        }
    }

    pub(crate) fn meeting(&self) -> &Meeting {
        &self.meeting
    }

    pub(crate) fn nominal(&self) -> SocketAddr {
        self.nominal
    }

    /// Where the peer may be.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.known.iter().map(|known| known.address).collect()
    }

    /// Whether it may lead to the peer.
    pub(crate) fn knows(&self, address: SocketAddr) -> bool {
        self.known.iter().any(|known| known.address == address)
    }

    /// The path in use.
    pub(crate) fn present(&self) -> SocketAddr {
        self.present
    }

    /// Addresses where the peer may be: they are searched.
    pub(crate) fn add(&mut self, now: Instant, addresses: &[SocketAddr]) {
        for address in addresses {
            self.learn(now, *address);
        }
        self.begin_search(now);
    }

    /// The path of this address; `None` where there are too many that are in use or have answered.
    fn learn(&mut self, now: Instant, address: SocketAddr) -> Option<&mut Known> {
        if let Some(place) = self.known.iter().position(|known| known.address == address) {
            return self.known.get_mut(place);
        }
        if self.known.len() >= PATHS_MAX {
            let kept = [self.nominal, self.present];
            let oldest = self
                .known
                .iter()
                .enumerate()
                .filter(|(_, known)| known.answered.is_none() && !kept.contains(&known.address))
                .min_by_key(|(_, known)| known.heard_at);
            let (place, _) = oldest?;
            let known = self.known.swap_remove(place);
            self.forgotten.push(known.address);
        }
        self.known.push(Known::new(now, address));
        self.known.last_mut()
    }

    /// Another connection is at this address from here on. It may be a path again once that one has ended.
    pub(crate) fn forbid(&mut self, now: Instant, address: SocketAddr) {
        if self.present == address && address != self.nominal {
            self.take(now, self.nominal);
        }
    }

    /// QUIC itself follows its client to a new address.
    pub(crate) fn nominal_changed(&mut self, now: Instant, nominal: SocketAddr) {
        self.nominal = nominal;
        self.take(now, nominal);
        if self.learn(now, nominal).is_none() {
            // All others have answered: the one that was not heard of for longest goes.
            let places = self.known.iter().enumerate();
            let oldest = places.min_by_key(|(_, known)| known.heard_at);
            if let Some((place, _)) = oldest {
                self.forgotten.push(self.known.swap_remove(place).address);
            }
            self.known.push(Known::new(now, nominal));
        }
        if let Some(last) = self.moves.back_mut() {
            last.by_quic = true;
        }
    }

    /// An authentic check: whether `from` is a path of the connection.
    pub(crate) fn take_check(&mut self, now: Instant, from: SocketAddr, check: PathCheck) -> bool {
        // Our own, sent back by somebody.
        if check.is_answer != (check.of_caller == self.is_caller) {
            return false;
        }
        if check.is_answer {
            let Some(known) = self.known.iter_mut().find(|known| known.address == from) else {
                return false;
            };
            if !known.take_answer(now, check.number) {
                return false;
            }
        } else {
            if !self.seen.take(check.number) {
                return false;
            }
            let Some(known) = self.learn(now, from) else {
                return false;
            };
            let asks_back = known.is_worth_asking(now);
            self.push(
                from,
                PathCheck {
                    is_answer: true,
                    ..check
                },
            );
            if asks_back {
                self.ask(now, from);
            }
        }
        self.heard(now, from);
        self.decide(now);
        true
    }

    /// Something authentic came from there. Whether that began or ended a doubt.
    pub(crate) fn heard(&mut self, now: Instant, from: SocketAddr) -> bool {
        let silence = self.silence();
        for known in self.known.iter_mut().filter(|known| known.address == from) {
            known.heard_at = now;
        }
        if from == self.present {
            self.sent_at = None;
            self.is_asked = false;
            self.wish = None;
            return self.doubt.take().is_some();
        }
        let present = self.known.iter().find(|known| known.address == self.present);
        let is_silent = present.is_none_or(|known| known.heard_at + silence < now);
        is_silent && self.doubt.is_none() && {
            self.begin_doubt(now, 1);
            true
        }
    }

    /// A packet of the connection leaves on the path in use. Whether the timer is due sooner by that.
    pub(crate) fn sent(&mut self, now: Instant) -> bool {
        let due = *self.sent_at.get_or_insert(now) + self.silence();
        self.timer.is_none_or(|timer| due < timer)
    }

    /// `is_waiting`: an acknowledgement is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, round_trip: Duration, is_waiting: bool) {
        self.round_trip = round_trip;
        if self.sent_at.is_some_and(|at| at + self.silence() <= now) && self.doubt.is_none() {
            if is_waiting || std::mem::replace(&mut self.is_asked, true) {
                self.begin_doubt(now, 2);
            } else {
                // What left needs no answer, e.g. an acknowledgement: this does.
                self.sent_at = Some(now);
                self.ask(now, self.present);
            }
        }
        // Before further checks leave: an answer to the last ones may have come long ago.
        self.decide(now);
        self.check_in_doubt(now);
        self.check_in_search(now);
        if let Some(wish) = self.wish.as_mut().filter(|wish| wish.next <= now) {
            wish.next = now + wish.pause;
            wish.pause = (wish.pause * 2).min(MEETING_PAUSE_MAX);
            self.is_wished = true;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.sent_at.filter(|_| self.doubt.is_none());
        [
            silent.map(|at| at + self.silence()),
            self.doubt.as_ref().map(|doubt| doubt.next),
            self.search.as_ref().map(|search| search.next),
            self.wish.as_ref().map(|wish| wish.next),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next check that leaves, and where to.
    pub(crate) fn poll_check(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.outgoing.pop_front()
    }

    pub(crate) fn has_checks(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// A path that was taken.
    pub(crate) fn poll_move(&mut self) -> Option<Move> {
        self.moves.pop_front()
    }

    /// An address that is no path any more.
    pub(crate) fn poll_forgotten(&mut self) -> Option<SocketAddr> {
        self.forgotten.pop()
    }

    /// Whether both ends should meet at the rendezvous again.
    pub(crate) fn take_wish(&mut self) -> bool {
        std::mem::take(&mut self.is_wished)
    }

    fn silence(&self) -> Duration {
        SILENCE_MIN.max(self.round_trip * SILENCE_ROUND_TRIPS)
    }

    fn begin_doubt(&mut self, now: Instant, rounds_min: u32) {
        self.doubt = Some(Doubt {
            since: now,
            rounds: 0,
            rounds_min,
            next: now,
            pause: DOUBT_PAUSE,
        });
        self.wish.get_or_insert(Wish {
            next: now + MEETING_PAUSE,
            pause: MEETING_PAUSE,
        });
    }

    fn begin_search(&mut self, now: Instant) {
        self.search = Some(Search {
            until: now + SEARCH_TIME_MAX,
            next: now,
            pause: SEARCH_PAUSE,
        });
    }

    fn check_in_doubt(&mut self, now: Instant) {
        let Some(doubt) = self.doubt.as_mut().filter(|doubt| doubt.next <= now) else {
            return;
        };
        doubt.rounds += 1;
        doubt.next = now + doubt.pause;
        doubt.pause = (doubt.pause * 2).min(DOUBT_PAUSE_MAX);
        let all: Vec<SocketAddr> = self.known.iter().map(|known| known.address).collect();
        for address in all {
            self.ask(now, address);
        }
    }

    fn check_in_search(&mut self, now: Instant) {
        if self.search.as_ref().is_none_or(|search| now < search.next) {
            return;
        }
        let is_relayed = is_relayed(self.present);
        let is_wanted = |known: &&Known| match is_relayed {
            true => !known.is_relayed,
            false => known.is_relayed && known.answered.is_none(),
        };
        let wanted: Vec<SocketAddr> = self
            .known
            .iter()
            .filter(is_wanted)
            .map(|known| known.address)
            .collect();
        if let Some(search) = &mut self.search {
            search.next = now + search.pause;
            search.pause = (search.pause * 2).min(SEARCH_PAUSE_MAX);
        }
        self.search = self
            .search
            .take()
            .filter(|search| !wanted.is_empty() && now < search.until);
        for address in wanted {
            self.ask(now, address);
        }
    }

    /// Sends a request there.
    fn ask(&mut self, now: Instant, address: SocketAddr) {
        self.number += 1;
        let number = self.number;
        if let Some(known) = self.known.iter_mut().find(|known| known.address == address) {
            known.asked(now, number);
        }
        let of_caller = self.is_caller;
        self.push(
            address,
            PathCheck {
                is_answer: false,
                of_caller,
                number,
            },
        );
    }

    fn push(&mut self, to: SocketAddr, check: PathCheck) {
        // What is too much is like what a path loses.
        if self.outgoing.len() < PATHS_MAX + PATH_ANSWERS_MAX {
            self.outgoing.push_back((to, self.meeting.path_check(check)));
        }
    }

    /// Takes another path, where it is time.
    fn decide(&mut self, now: Instant) {
        let present = self.present;
        let others = self.known.iter().filter(|known| known.address != present);
        let best = if let Some(doubt) = &self.doubt {
            let patience = DOUBT_TIME_MIN.max(self.round_trip * 2);
            if doubt.rounds < doubt.rounds_min || now < doubt.since + patience {
                return;
            }
            others
                .filter(|known| known.answered.is_some_and(|answered| doubt.since <= answered))
                .min_by_key(|known| (known.is_relayed, known.round_trip))
        } else if is_relayed(present) {
            let answers = 1 + self.falls.min(FALLS_MAX);
            others
                .filter(|known| !known.is_relayed && known.in_a_row >= answers)
                .filter(|known| now < known.heard_at + self.silence())
                .min_by_key(|known| known.round_trip)
        } else {
            None
        };
        if let Some(best) = best.map(|known| known.address) {
            let is_fall = self.doubt.is_some() && !is_relayed(present);
            if now >= self.moved_at + FALLS_FORGOTTEN {
                self.falls = 0;
            }
            self.falls += u32::from(is_fall);
            self.take(now, best);
        }
    }

    fn take(&mut self, now: Instant, address: SocketAddr) {
        self.present = address;
        self.moved_at = now;
        self.sent_at = None;
        self.is_asked = false;
        self.doubt = None;
        self.wish = None;
        for known in &mut self.known {
            // What a direct path answered before it was left tells nothing of the time after.
            known.in_a_row = 0;
            if known.address == address {
                known.heard_at = now;
            }
        }
        self.moves.push_back(Move {
            to: address,
            by_quic: false,
        });
        self.begin_search(now);
    }
}
