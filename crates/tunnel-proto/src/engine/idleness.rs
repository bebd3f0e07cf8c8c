//! UDP sessions, or TCP connections, by user and by how long they have been idle, so that the one to evict is found without
//! a look at all of them: the idlest of the user who has most. Sessions stand for both here.
//!
//! A datagram does not move its session: a session is listed under a moment at which it was active, and listed anew
//! when it comes to the front and was active since. So each move is paid for by a datagram, and a datagram pays for one
//! move at most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use slab::Slab;

use super::request::{Request, RequestId};
use crate::access::UserId;

#[derive(Debug, Default)]
pub(super) struct Idleness {
    /// Without a user at a client.
    by_user: BTreeMap<Option<UserId>, BTreeSet<(Instant, RequestId)>>,
}

impl Idleness {
    /// Lists a session that has begun.
    pub(super) fn add(&mut self, id: RequestId, request: &mut Request) {
        request.listed = Some(request.last_active);
        let order = self.by_user.entry(request.user).or_default();
        order.insert((request.last_active, id));
    }

    /// A session has ended.
    pub(super) fn remove(&mut self, id: RequestId, request: &mut Request) {
        let Some(listed) = request.listed.take() else {
            return;
        };
        if let Some(order) = self.by_user.get_mut(&request.user) {
            order.remove(&(listed, id));
            if order.is_empty() {
                self.by_user.remove(&request.user);
            }
        }
    }

    /// Of the sessions of the user who has most, the one that was active longest ago; `None` where there is none.
    pub(super) fn idlest(&mut self, requests: &mut Slab<Request>) -> Option<RequestId> {
        let (user, _) = self.user_with_most()?;
        self.idlest_of(user, requests)
    }

    /// Which session gives its place to one of `user`, which is listed already: the idlest of the user who has most. Where
    /// that is `user` itself, only one that has been idle for `rest`.
    pub(super) fn yielding(
        &mut self,
        now: Instant,
        user: Option<UserId>,
        rest: Duration,
        requests: &mut Slab<Request>,
    ) -> Option<RequestId> {
        let own = self.by_user.get(&user).map_or(0, BTreeSet::len);
        let (most, count) = self.user_with_most()?;
        if count > own {
            return self.idlest_of(most, requests);
        }
        let idlest = self.idlest_of(user, requests)?;
        (now.saturating_duration_since(requests[idlest.0].last_active) >= rest).then_some(idlest)
    }

    /// The user who has most, and how many; of several, the one with the idlest as listed.
    fn user_with_most(&self) -> Option<(Option<UserId>, usize)> {
        let rank = |order: &BTreeSet<_>| (order.len(), Reverse(order.first().copied()));
        let most = self.by_user.iter().max_by_key(|(_, order)| rank(order));
        most.map(|(user, order)| (*user, order.len()))
    }

    fn idlest_of(&mut self, user: Option<UserId>, requests: &mut Slab<Request>) -> Option<RequestId> {
        let order = self.by_user.get_mut(&user)?;
        loop {
            let (listed, id) = *order.first()?;
            let request = requests.get_mut(id.0).expect("a session is listed until it ends");
            if request.last_active == listed {
                return Some(id);
            }
            order.pop_first();
            request.listed = Some(request.last_active);
            order.insert((request.last_active, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::life::Life;
    use crate::engine::request::Kind;
    use crate::engine::udp::{Offers, UdpSession};

    #[test]
    fn the_idlest_is_the_one_that_was_active_longest_ago_whenever_it_was_listed() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let (mut requests, mut idleness) = (Slab::new(), Idleness::default());
        let ids = [0, 1, 2].map(|second| {
            let kind = Kind::Udp(UdpSession::new(Offers::default()));
            let request = Request::new(masque::Role::Server, kind, Life::Ended, at(second));
            let id = RequestId(requests.insert(request));
            idleness.add(id, &mut requests[id.0]);
            id
        });
        assert_eq!(idleness.idlest(&mut requests), Some(ids[0]));
        requests[ids[0].0].last_active = at(5);
        requests[ids[1].0].last_active = at(4);
        assert_eq!(idleness.idlest(&mut requests), Some(ids[2]));
        idleness.remove(ids[2], &mut requests[ids[2].0]);
        assert_eq!(idleness.idlest(&mut requests), Some(ids[1]));
        for id in ids {
            idleness.remove(id, &mut requests[id.0]);
        }
        assert_eq!(idleness.idlest(&mut requests), None);
    }

    #[test]
    fn who_has_most_sessions_gives_its_idlest_however_idle_those_of_others_are() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let (mut requests, mut idleness) = (Slab::new(), Idleness::default());
        let mut open = |user: u8, second: u64| {
            let kind = Kind::Udp(UdpSession::new(Offers::default()));
            let at = start + Duration::from_secs(second);
            let mut request = Request::new(masque::Role::Server, kind, Life::Ended, at);
            request.user = Some(UserId([user; 16]));
            let id = RequestId(requests.insert(request));
            idleness.add(id, &mut requests[id.0]);
            id
        };
        let quiet = open(1, 0);
        let greedy = [10, 11, 12].map(|second| open(2, second));
        for id in [greedy[0], greedy[1], quiet, greedy[2]] {
            assert_eq!(idleness.idlest(&mut requests), Some(id));
            idleness.remove(id, &mut requests[id.0]);
        }
        assert_eq!(idleness.idlest(&mut requests), None);
    }
}
