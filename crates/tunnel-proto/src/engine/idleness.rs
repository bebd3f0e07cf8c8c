//! UDP sessions by how long they have been idle, so that the idlest is found without a look at all of them.
//!
//! A datagram does not move its session: a session is listed under a moment at which it was active, and listed anew
//! when it comes to the front and was active since. So each move is paid for by a datagram, and a datagram pays for one
//! move at most.

use std::collections::BTreeSet;
use std::time::Instant;

use slab::Slab;

use super::request::{Request, RequestId};

#[derive(Debug, Default)]
pub(super) struct Idleness {
    order: BTreeSet<(Instant, RequestId)>,
}

impl Idleness {
    /// Lists a session that has begun.
    pub(super) fn add(&mut self, id: RequestId, request: &mut Request) {
        request.listed = Some(request.last_active);
        self.order.insert((request.last_active, id));
    }

    /// A session has ended.
    pub(super) fn remove(&mut self, id: RequestId, request: &mut Request) {
        if let Some(listed) = request.listed.take() {
            self.order.remove(&(listed, id));
        }
    }

    /// The session that was active longest ago; `None` where there is none.
    pub(super) fn idlest(&mut self, requests: &mut Slab<Request>) -> Option<RequestId> {
        loop {
            let (listed, id) = *self.order.first()?;
            let request = requests.get_mut(id.0).expect("a session is listed until it ends");
            if request.last_active == listed {
                return Some(id);
            }
            self.order.pop_first();
            self.add(id, request);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
