//! Which inner socket is served next, where those of several users are ready.
//!
//! Users take turns by what their sockets cost the shard, so that one with a thousand flows gets no more of a busy
//! shard than one with a single flow. Where only one user has ready sockets, each of them is served once in a turn of
//! the shard. Where others wait, or have had more in this turn, a socket that has more is served again, up to
//! [`limits::INNER_TURN_BYTES`] for all; what is left waits for the next turn, behind packets from clients. A client
//! has no users: its sockets are served in the order in which they became ready.

use packet::{OwnerKey, Turns};
use tunnel_proto::{RequestId, UserId};

use crate::limits;

/// What one service of an inner socket came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Served {
    /// What it cost the shard, in bytes of payload that cost as much.
    pub(super) cost_bytes: usize,
    pub(super) more: More,
}

/// Whether a socket can be served again at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum More {
    #[default]
    None,
    /// There may be more; the poller tells of it again.
    Polled,
    /// There is more, and nothing else tells of it.
    Untold,
}

impl Served {
    /// So many messages with so many bytes of payload came with one call.
    pub(super) fn of_messages(messages: usize, bytes: usize, more: More) -> Self {
        Self {
            cost_bytes: limits::INNER_CALL_BYTES + messages * limits::INNER_MESSAGE_BYTES + bytes,
            more,
        }
    }
}

/// The inner sockets of a shard that are ready.
#[derive(Default)]
pub(super) struct InnerTurns {
    turns: Turns<Option<UserId>, RequestId>,
    /// By request.
    places: Vec<Option<Place>>,
    /// Those that go on in the next turn of the shard.
    later: Vec<RequestId>,
    /// What may still be spent in this turn of the shard while several users wait.
    left_bytes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    owner: OwnerKey,
    is_queued: bool,
}

impl InnerTurns {
    /// A request of this user has an inner end, or another one than before.
    pub(super) fn enter(&mut self, id: RequestId, user: Option<UserId>) {
        self.leave(id);
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, None);
        }
        self.places[id.index()] = Some(Place {
            owner: self.turns.join(user),
            is_queued: false,
        });
    }

    /// It has none any more.
    pub(super) fn leave(&mut self, id: RequestId) {
        if let Some(place) = self.places.get_mut(id.index()).and_then(Option::take) {
            self.turns.leave(place.owner);
        }
    }

    /// The request's socket is ready.
    pub(super) fn push(&mut self, id: RequestId) {
        if let Some(Some(place)) = self.places.get_mut(id.index())
            && !std::mem::replace(&mut place.is_queued, true)
        {
            self.turns.push(place.owner, id);
        }
    }

    /// A turn of the shard begins.
    pub(super) fn begin_turn(&mut self) {
        self.left_bytes = limits::INNER_TURN_BYTES;
    }

    /// Whose socket is served next; nobody's where the rest has to wait for the next turn.
    pub(super) fn next(&mut self) -> Option<RequestId> {
        if self.left_bytes == 0 && self.turns.is_contended() {
            return None;
        }
        let (_, id) = self.turns.pop()?;
        if let Some(Some(place)) = self.places.get_mut(id.index()) {
            place.is_queued = false;
        }
        Some(id)
    }

    /// What came of serving the request.
    pub(super) fn note(&mut self, id: RequestId, served: Served) {
        let Some(Some(place)) = self.places.get(id.index()) else {
            return;
        };
        let owner = place.owner;
        self.turns.charge(owner, served.cost_bytes);
        self.left_bytes = self.left_bytes.saturating_sub(served.cost_bytes);
        // Who is kept here is not forgotten while the poller tells of a thousand sockets of another user.
        let is_kept = self.turns.others_wait(owner) || self.left_bytes > 0 && self.turns.is_behind(owner);
        match served.more {
            More::None => {}
            More::Polled | More::Untold if is_kept => self.push(id),
            More::Polled => {}
            More::Untold => self.later.push(id),
        }
    }

    /// The turn of the shard is over.
    pub(super) fn end_turn(&mut self) {
        self.turns.begin_period();
        let mut later = std::mem::take(&mut self.later);
        later.drain(..).for_each(|id| self.push(id));
        self.later = later;
    }

    /// Whether somebody goes on in the next turn.
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.later.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const ALICE: Option<UserId> = Some(UserId([1; 16]));
    const BOB: Option<UserId> = Some(UserId([2; 16]));

    /// What each socket has, in messages of 1,200 bytes, and what each user got.
    #[derive(Default)]
    struct World {
        turns: InnerTurns,
        sockets: BTreeMap<usize, (Option<UserId>, usize)>,
        got: BTreeMap<Option<UserId>, usize>,
    }

    impl World {
        fn add(&mut self, user: Option<UserId>, sockets: usize, messages: usize) {
            for _ in 0..sockets {
                let index = self.sockets.len();
                self.sockets.insert(index, (user, messages));
                self.turns.enter(RequestId::from_index(index), user);
            }
        }

        /// A turn in which at most `events` sockets are told of, from this one on; messages served.
        fn turn(&mut self, first: usize, events: usize) -> usize {
            let count = self.sockets.len();
            for index in (first..first + events).map(|index| index % count) {
                if self.sockets[&index].1 > 0 {
                    self.turns.push(RequestId::from_index(index));
                }
            }
            self.turns.begin_turn();
            let mut served = 0;
            while let Some(id) = self.turns.next() {
                let (user, waiting) = self.sockets.get_mut(&id.index()).unwrap();
                let taken = limits::INNER_RECEIVE_SLOTS.min(*waiting);
                *waiting -= taken;
                *self.got.entry(*user).or_default() += taken;
                served += taken;
                let is_full = taken == limits::INNER_RECEIVE_SLOTS;
                let more = if is_full { More::Polled } else { More::None };
                self.turns
                    .note(id, Served::of_messages(taken, 1_200 * taken, more));
            }
            self.turns.end_turn();
            served
        }
    }

    #[test]
    fn one_flow_of_a_user_gets_as_much_as_a_thousand_of_another() {
        let mut world = World::default();
        world.add(ALICE, 1_000, 1_000_000);
        world.add(BOB, 1, 1_000_000);
        // The poller tells of a quarter of them at a time, so that it takes some turns until it has told of all.
        for turn in 0..100 {
            if turn == 4 {
                world.got.clear();
            }
            world.turn(turn * 256, 256);
        }
        let [alice, bob] = [ALICE, BOB].map(|user| world.got[&user]);
        assert!(
            bob * 10 >= alice * 9 && alice * 10 >= bob * 9,
            "{alice} and {bob}"
        );
    }

    #[test]
    fn who_asks_for_little_gets_all_of_it_and_the_rest_goes_to_the_other() {
        let mut world = World::default();
        world.add(ALICE, 1_000, 1_000_000);
        world.add(BOB, 1, 0);
        let mut served = 0;
        for turn in 0..200 {
            world.sockets.get_mut(&1_000).unwrap().1 += 20;
            served += world.turn(turn * 256, 256);
        }
        assert!(world.got[&BOB] >= 199 * 20, "{:?}", world.got);
        assert_eq!(world.got[&ALICE] + world.got[&BOB], served);
        assert!(world.got[&ALICE] > 10 * world.got[&BOB], "{:?}", world.got);
    }

    #[test]
    fn sockets_of_one_user_are_each_served_once_in_a_turn() {
        let mut world = World::default();
        world.add(ALICE, 300, 1_000_000);
        assert_eq!(world.turn(0, 300), 300 * limits::INNER_RECEIVE_SLOTS);
        assert!(world.turns.is_empty(), "the poller tells of the rest");
    }

    #[test]
    fn what_nobody_else_tells_of_goes_on_in_the_next_turn() {
        let mut turns = InnerTurns::default();
        let id = RequestId::from_index(3);
        turns.enter(id, None);
        turns.push(id);
        turns.begin_turn();
        assert_eq!(turns.next(), Some(id));
        let served = Served {
            cost_bytes: 1_000,
            more: More::Untold,
        };
        turns.note(id, served);
        assert_eq!(turns.next(), None);
        assert!(!turns.is_empty());
        turns.end_turn();
        turns.begin_turn();
        assert_eq!(turns.next(), Some(id));
        turns.leave(id);
        turns.note(id, served);
        turns.end_turn();
        assert!(turns.is_empty());
    }

    #[test]
    fn what_a_user_had_outside_its_turns_counts() {
        let mut turns = InnerTurns::default();
        let [alices, bobs] = [0, 1].map(RequestId::from_index);
        turns.enter(alices, ALICE);
        turns.enter(bobs, BOB);
        let part = 100_000;
        let served = Served {
            cost_bytes: part,
            more: More::Untold,
        };
        turns.note(
            alices,
            Served {
                cost_bytes: 5 * part,
                more: More::None,
            },
        );
        turns.push(bobs);
        turns.begin_turn();
        let mut times = 0;
        while let Some(id) = turns.next() {
            assert_eq!(id, bobs);
            turns.note(id, served);
            times += 1;
        }
        assert_eq!(times, 5);
    }
}
