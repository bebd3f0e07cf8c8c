//! Whom the local network is asked for, and what it has answered.

use std::net::SocketAddr;
use std::time::Instant;

use peer_proto::{PeerId, PeerKey};

use crate::limits::{
    LAN_ADDRESSES_MAX, LAN_NUMBER_AGE_MAX, LAN_NUMBERS_KNOWN_MAX, LAN_NUMBERS_MAX, LAN_PEERS_MAX,
    LAN_SEARCHES_MAX,
};

/// A peer that is being connected.
#[derive(Debug)]
struct Search {
    peer: PeerKey,
    id: PeerId,
    until: Instant,
    /// Addresses that were named for it.
    named: Vec<SocketAddr>,
}

impl Search {
    /// Takes the addresses that are new, within the bound (LAN-3).
    fn take(&mut self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let before = self.named.len();
        for address in addresses {
            if self.named.len() < LAN_ADDRESSES_MAX && !self.named.contains(address) {
                self.named.push(*address);
            }
        }
        self.named[before..].to_vec()
    }
}

/// A peer that waits for somebody with a number.
#[derive(Clone, Copy, Debug)]
struct Waits {
    number: u32,
    id: PeerId,
    heard: Instant,
}

impl Waits {
    /// Whether it was heard of lately.
    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < LAN_NUMBER_AGE_MAX
    }
}

/// All of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    open: Vec<Search>,
    /// What was answered last of each peer, the oldest first.
    answers: Vec<(PeerId, Vec<SocketAddr>)>,
    /// Who waits for somebody with a number, the oldest first (LAN-5).
    known_numbers: Vec<Waits>,
    /// Numbers that are looked for, and until when.
    numbers: Vec<(u32, Instant)>,
    /// A thread asks the network.
    is_asking: bool,
}

impl Searches {
    /// Looks for a peer: what the network has said of it already; `None` where too many are looked for.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        peer: PeerKey,
        id: PeerId,
        until: Instant,
    ) -> Option<Vec<SocketAddr>> {
        self.open.retain(|search| now < search.until);
        if self.open.len() >= LAN_SEARCHES_MAX {
            return None;
        }
        let mut search = Search {
            peer,
            id,
            until,
            named: Vec::new(),
        };
        let known = self.answers.iter().find(|(known, _)| *known == id);
        let known = known.map(|(_, addresses)| search.take(addresses));
        self.open.push(search);
        Some(known.unwrap_or_default())
    }

    /// Looks for the peer that waits for somebody with a number. Whether there is room.
    pub(crate) fn begin_number(&mut self, now: Instant, number: u32, until: Instant) -> bool {
        self.numbers.retain(|(_, until)| now < *until);
        let has_room = self.numbers.len() < LAN_NUMBERS_KNOWN_MAX;
        if has_room {
            self.numbers.push((number, until));
        }
        has_room
    }

    /// Whether such a search still goes on.
    pub(crate) fn seeks(&self, now: Instant, number: u32) -> bool {
        let mut numbers = self.numbers.iter();
        numbers.any(|(sought, until)| *sought == number && now < *until)
    }

    /// The peer that waits for somebody with this number, as the local network said last.
    pub(crate) fn inviter(&self, now: Instant, number: u32) -> Option<PeerId> {
        let mut known = self.known_numbers.iter().rev();
        let waits = known.find(|waits| waits.number == number && waits.is_fresh(now));
        waits.map(|waits| waits.id)
    }

    /// An answer: the numbers that a peer waits for.
    pub(super) fn found_numbers(&mut self, now: Instant, id: PeerId, numbers: &[u32]) {
        self.known_numbers
            .retain(|known| known.id != id && known.is_fresh(now));
        let kept = numbers.iter().take(LAN_NUMBERS_MAX);
        self.known_numbers.extend(kept.map(|number| Waits {
            number: *number,
            id,
            heard: now,
        }));
        let surplus = self.known_numbers.len().saturating_sub(LAN_NUMBERS_KNOWN_MAX);
        self.known_numbers.drain(..surplus);
    }

    /// Whether a thread has to be begun that asks the network: there is none yet.
    pub(crate) fn take_start(&mut self) -> bool {
        !std::mem::replace(&mut self.is_asking, true)
    }

    /// Whether the thread goes on; where it does not, the next search needs another one.
    pub(super) fn goes_on(&mut self, now: Instant) -> bool {
        self.open.retain(|search| now < search.until);
        self.numbers.retain(|(_, until)| now < *until);
        self.is_asking = !self.open.is_empty() || !self.numbers.is_empty();
        self.is_asking
    }

    /// The thread has ended, or could not begin: who is looked for is not found here.
    pub(super) fn end(&mut self) -> Vec<PeerKey> {
        self.is_asking = false;
        self.numbers.clear();
        self.open.drain(..).map(|search| search.peer).collect()
    }

    /// An answer: the addresses that are new, for each connection that looks for the peer.
    pub(super) fn found(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
    ) -> Vec<(PeerKey, Vec<SocketAddr>)> {
        self.answers.retain(|(known, _)| *known != id);
        if self.answers.len() >= LAN_PEERS_MAX {
            self.answers.remove(0);
        }
        let kept = addresses.iter().take(LAN_ADDRESSES_MAX).copied();
        self.answers.push((id, kept.collect()));
        let wanted = self
            .open
            .iter_mut()
            .filter(|search| search.id == id && now < search.until);
        let news = wanted.map(|search| (search.peer, search.take(addresses)));
        news.filter(|(_, news)| !news.is_empty()).collect()
    }

    /// Where the local network last said that a peer is.
    pub(crate) fn answer(&self, id: PeerId) -> &[SocketAddr] {
        let answer = self.answers.iter().find(|(known, _)| *known == id);
        answer.map_or(&[], |(_, addresses)| addresses)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peer_proto::{Parameters, Peers};

    use super::*;
    use crate::SecretKey;

    const SECOND: Duration = Duration::from_secs(1);

    /// Keys of peers that are being connected, which only their owner makes.
    fn keys(now: Instant, count: u8) -> Vec<PeerKey> {
        let mut peers = Peers::new(Parameters::new(
            SecretKey::from_bytes([255; 32]).identity(),
            [1; 32],
        ));
        let connect = |number| {
            peers
                .connect_and_search(now, id(number), &[], now + SECOND)
                .unwrap()
        };
        (0..count).map(connect).collect()
    }

    fn id(number: u8) -> PeerId {
        SecretKey::from_bytes([number; 32]).id()
    }

    fn places(count: u16) -> Vec<SocketAddr> {
        (1..=count)
            .map(|port| SocketAddr::from(([192, 0, 2, 1], port)))
            .collect()
    }

    #[test]
    fn an_answer_goes_to_all_who_look_for_the_peer_and_is_remembered() {
        let now = Instant::now();
        let keys = keys(now, 3);
        let mut searches = Searches::default();
        assert_eq!(searches.begin(now, keys[0], id(1), now + SECOND), Some(vec![]));
        assert!(
            searches.take_start() && !searches.take_start(),
            "one thread asks for all"
        );
        searches.begin(now, keys[1], id(2), now + SECOND);
        assert_eq!(searches.found(now, id(1), &places(1)), [(keys[0], places(1))]);
        assert_eq!(searches.found(now, id(1), &places(1)), [], "nothing is new");
        assert_eq!(
            searches.found(now, id(1), &places(2)),
            [(keys[0], places(2)[1..].to_vec())]
        );
        assert_eq!(searches.begin(now, keys[2], id(1), now + SECOND), Some(places(2)));
        assert_eq!(searches.answer(id(1)), places(2));
        assert_eq!(searches.answer(id(2)), []);
    }

    #[test]
    fn a_search_ends_in_time_and_the_next_one_needs_another_thread() {
        let now = Instant::now();
        let keys = keys(now, 1);
        let mut searches = Searches::default();
        searches.begin(now, keys[0], id(1), now + SECOND);
        assert!(searches.take_start());
        assert!(searches.goes_on(now));
        assert_eq!(searches.found(now + SECOND, id(1), &places(1)), []);
        assert!(!searches.goes_on(now + SECOND));
        searches.begin(now + SECOND, keys[0], id(1), now + 2 * SECOND);
        assert!(searches.take_start());
        assert_eq!(searches.end(), keys);
        assert!(searches.take_start());
    }

    /// LAN-5.
    #[test]
    fn numbers_are_those_that_their_peer_said_last_and_are_bounded() {
        let now = Instant::now();
        let mut searches = Searches::default();
        assert!(searches.begin_number(now, 4_711, now + SECOND));
        assert!(searches.take_start() && searches.goes_on(now));
        assert_eq!(searches.inviter(now, 4_711), None);
        searches.found_numbers(now, id(1), &[4_711, 5_000]);
        assert_eq!(searches.inviter(now, 4_711), Some(id(1)));
        searches.found_numbers(now, id(1), &[5_000]);
        assert_eq!(
            (searches.inviter(now, 4_711), searches.inviter(now, 5_000)),
            (None, Some(id(1)))
        );
        assert!(searches.seeks(now, 4_711) && !searches.seeks(now, 5_000));
        assert!(!searches.seeks(now + SECOND, 4_711) && !searches.goes_on(now + SECOND));
        for number in 0..=255 {
            let numbers: Vec<u32> = (1_000..1_100).collect();
            searches.found_numbers(now, id(number), &numbers);
            searches.begin_number(now, 4_711, now + SECOND);
        }
        assert_eq!(searches.known_numbers.len(), LAN_NUMBERS_KNOWN_MAX);
        assert_eq!(searches.numbers.len(), LAN_NUMBERS_KNOWN_MAX);
        assert!(!searches.begin_number(now, 4_711, now + SECOND));
        searches.end();
        assert!(!searches.seeks(now, 4_711));
    }

    /// LAN-5: a peer that closed without a word is not named for ever, and does not hide one that took its number over.
    #[test]
    fn a_number_that_was_not_heard_of_for_long_is_forgotten() {
        let now = Instant::now();
        let mut searches = Searches::default();
        searches.found_numbers(now, id(1), &[4_711]);
        let late = now + LAN_NUMBER_AGE_MAX - SECOND;
        assert_eq!(searches.inviter(late, 4_711), Some(id(1)));
        assert_eq!(searches.inviter(late + SECOND, 4_711), None);
        searches.found_numbers(late, id(1), &[4_711]);
        assert_eq!(
            searches.inviter(late + SECOND, 4_711),
            Some(id(1)),
            "it is there still"
        );
        searches.found_numbers(late + 2 * LAN_NUMBER_AGE_MAX, id(2), &[5_000]);
        assert_eq!(searches.known_numbers.len(), 1);
    }

    /// LAN-3.
    #[test]
    fn searches_addresses_and_what_is_remembered_are_bounded() {
        let now = Instant::now();
        let key = keys(now, 1)[0];
        let mut searches = Searches::default();
        for _ in 0..LAN_SEARCHES_MAX {
            assert!(searches.begin(now, key, id(1), now + SECOND).is_some());
        }
        assert_eq!(searches.begin(now, key, id(1), now + SECOND), None);
        let most = places(LAN_ADDRESSES_MAX as u16);
        for (_, named) in searches.found(now, id(1), &places(100)) {
            assert_eq!(named, most);
        }
        assert_eq!(searches.found(now, id(1), &places(200)[100..]), []);
        for number in 0..1_000_u16 {
            let mut key = [0; 32];
            key[..2].copy_from_slice(&number.to_be_bytes());
            searches.found(now, PeerId::from(key), &most);
        }
        assert_eq!(searches.answers.len(), LAN_PEERS_MAX);
        assert!(
            searches
                .begin(now + SECOND, key, id(1), now + 2 * SECOND)
                .is_some()
        );
    }
}
