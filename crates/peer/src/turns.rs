//! Which connections are to be looked at, because turns to send may have to be given there ([`crate::room`]): those
//! whose room or waiting messages changed, and those where a turn that is not taken lapses. All others cost nothing,
//! however many messages wait there.

use std::collections::BTreeSet;
use std::time::Instant;

use peer_proto::PeerKey;

#[derive(Default)]
pub(crate) struct Turns {
    changed: BTreeSet<PeerKey>,
    /// Some of them may have changed meanwhile: a look then finds nothing to do.
    due: BTreeSet<(Instant, PeerKey)>,
}

impl Turns {
    pub(crate) fn change(&mut self, peer: PeerKey) {
        self.changed.insert(peer);
    }

    pub(crate) fn look_at(&mut self, at: Instant, peer: PeerKey) {
        self.due.insert((at, peer));
    }

    /// When the next look is due, unless something changes before.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next one to be looked at.
    pub(crate) fn next(&mut self, now: Instant) -> Option<PeerKey> {
        if self.due.first().is_some_and(|(at, _)| *at <= now) {
            return self.due.pop_first().map(|(_, peer)| peer);
        }
        self.changed.pop_first()
    }
}

#[cfg(test)]
mod tests {
    //! By keys of connections that go nowhere.

    use std::time::Duration;

    use peer_proto::{Parameters, Peers};

    use super::*;
    use crate::SecretKey;

    fn keys<const COUNT: usize>(now: Instant) -> [PeerKey; COUNT] {
        let secret = || SecretKey::generate().unwrap();
        let mut peers = Peers::new(Parameters::new(secret().identity(), [1; 32]));
        [(); COUNT].map(|()| {
            let address = "127.0.0.1:9".parse().unwrap();
            peers.connect(now, secret().id(), &[address]).unwrap()
        })
    }

    #[test]
    fn only_what_changed_or_is_due_is_looked_at_and_once() {
        let now = Instant::now();
        let [one, two, three] = keys(now);
        let mut turns = Turns::default();
        assert_eq!((turns.next(now), turns.poll_timeout()), (None, None));
        for _ in 0..3 {
            turns.change(two);
        }
        let later = now + Duration::from_secs(1);
        turns.look_at(later, three);
        turns.look_at(later + Duration::from_secs(1), one);
        assert_eq!((turns.next(now), turns.next(now)), (Some(two), None));
        assert_eq!(turns.poll_timeout(), Some(later));
        assert_eq!((turns.next(later), turns.next(later)), (Some(three), None));
        assert!(turns.poll_timeout() > Some(later));
    }
}
