//! Who waits for room to send to a peer, in the order in which they came. While somebody waits nobody passes by, so
//! that a long message finds its room however many short ones others send. Turns come when half of all room is free,
//! so that whoever was woken sends much before it waits again; only those are woken whose turn has come. Their room is
//! kept for them until they take it or give up: a program may be busy with something else before it does.
//!
//! It may be busy with another message that fits only there, and would be so for ever. So turns lapse, where the first
//! that waits would fit but for what is kept and nobody's turn has come for [`TURN_TIME_MAX`]: all of them, none of
//! which is younger, so that those behind do not wait for one after the other. Their messages are not among those that
//! wait any more, and nobody waits for them, until they are looked at again: each has the same number then, and with
//! that its place.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

use crate::limits::TURN_TIME_MAX;

struct Waiter {
    /// What its message takes.
    cost: usize,
    /// Until it is woken.
    waker: Option<Waker>,
}

/// The room of one connection, as far as somebody waits for it.
#[derive(Default)]
pub(crate) struct Room {
    /// Those whose turn has not come, by their numbers.
    waiting: BTreeMap<u64, Waiter>,
    /// Those whose turn has come, and how many bytes are kept for each.
    turns: BTreeMap<u64, usize>,
    /// How many have waited.
    count: u64,
    /// Bytes that are kept for those whose turn has come.
    kept: usize,
    /// Since when the first that waits would fit but for what is kept, and nobody's turn came.
    kept_back_since: Option<Instant>,
}

/// When the next turn may come, besides when somebody comes or leaves.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Next {
    /// Once no more bytes are held.
    pub(crate) held_max: Option<usize>,
    /// Once turns lapse.
    pub(crate) lapse: Option<Instant>,
}

impl Room {
    /// Bytes that are kept for those whose turn has come.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Whether somebody waits whose turn has not come.
    pub(crate) fn is_contested(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a message of this cost may be sent beside `held` bytes of `bytes_max`; `number` is that of one that
    /// waits. A message that costs more than all room is measured by others.
    pub(crate) fn admits(&self, number: Option<u64>, cost: usize, held: usize, bytes_max: usize) -> bool {
        number.is_some_and(|number| self.turns.contains_key(&number))
            || (!self.is_contested() && (cost > bytes_max || held + self.kept + cost <= bytes_max))
    }

    /// A message waits, or waits on; the number by which it does, and a waker that is in the way of another one.
    pub(crate) fn wait(&mut self, number: Option<u64>, cost: usize, waker: &Waker) -> (u64, Option<Waker>) {
        let number = number.unwrap_or_else(|| {
            self.count += 1;
            self.count
        });
        self.kept -= self.turns.remove(&number).unwrap_or(0);
        let waiter = self.waiting.entry(number).or_insert(Waiter { cost, waker: None });
        match &waiter.waker {
            Some(own) if own.will_wake(waker) => (number, None),
            _ => (number, waiter.waker.replace(waker.clone())),
        }
    }

    /// It waits no longer; its waker, where it was not woken.
    pub(crate) fn leave(&mut self, number: u64) -> Option<Waker> {
        self.kept -= self.turns.remove(&number).unwrap_or(0);
        self.waiting.remove(&number).and_then(|waiter| waiter.waker)
    }

    /// Gives turns to the first who wait, as far as there is room beside `held` bytes of `bytes_max`; when the next one
    /// may come, where somebody waits on.
    pub(crate) fn give_turns(
        &mut self,
        now: Instant,
        held: usize,
        bytes_max: usize,
        woken: &mut Vec<Waker>,
    ) -> Next {
        while let Some(first) = self.waiting.first_entry() {
            // One that costs more than all room fits where no other such one is, which would be held.
            let cost = Some(first.get().cost).filter(|cost| *cost <= bytes_max);
            let cost = cost.unwrap_or(0);
            let held_max = (bytes_max - cost).min(bytes_max / 2);
            if held > held_max {
                self.kept_back_since = None;
                return Next {
                    held_max: Some(held_max),
                    lapse: None,
                };
            }
            let free = (bytes_max - cost).checked_sub(self.kept);
            if free.is_some_and(|free| held <= free) {
                let (number, waiter) = first.remove_entry();
                self.turns.insert(number, cost);
                self.kept += cost;
                self.kept_back_since = None;
                woken.extend(waiter.waker);
                continue;
            }
            let lapse = *self.kept_back_since.get_or_insert(now) + TURN_TIME_MAX;
            if now < lapse {
                return Next {
                    held_max: free,
                    lapse: Some(lapse),
                };
            }
            self.turns.clear();
            self.kept = 0;
        }
        self.kept_back_since = None;
        Next::default()
    }

    /// Who waits is to look again.
    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        let waiting = self.waiting.values_mut();
        woken.extend(waiting.filter_map(|waiter| waiter.waker.take()));
    }
}

#[cfg(test)]
mod tests {
    //! On a clock of its own.

    use std::sync::{Arc, Mutex};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    const MAX: usize = 1_000;

    /// A room in use, and what is held beside it.
    struct World {
        room: Room,
        now: Instant,
    }

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    /// A task that writes down when it is woken.
    struct Noting {
        number: usize,
        order: Arc<Mutex<Vec<usize>>>,
    }

    impl Wake for Noting {
        fn wake(self: Arc<Self>) {
            self.order.lock().unwrap().push(self.number);
        }
    }

    impl World {
        fn new() -> Self {
            Self {
                room: Room::default(),
                now: Instant::now(),
            }
        }

        fn wait(&mut self, cost: usize) -> u64 {
            self.wait_on(None, cost)
        }

        fn wait_on(&mut self, number: Option<u64>, cost: usize) -> u64 {
            self.room.wait(number, cost, Waker::noop()).0
        }

        /// How many are woken, and when the next ones are.
        fn look(&mut self, held: usize) -> (usize, Next) {
            let mut woken = Vec::new();
            let next = self.room.give_turns(self.now, held, MAX, &mut woken);
            (woken.len(), next)
        }

        fn turns(&mut self, held: usize) -> usize {
            self.look(held).0
        }

        fn admits(&self, number: u64, cost: usize, held: usize) -> bool {
            self.room.admits(Some(number), cost, held, MAX)
        }

        /// Whether a message that has not waited is sent.
        fn admits_new(&self, cost: usize, held: usize) -> bool {
            self.room.admits(None, cost, held, MAX)
        }
    }

    fn next(held_max: Option<usize>, lapse: Option<Instant>) -> Next {
        Next { held_max, lapse }
    }

    #[test]
    fn nobody_passes_by_a_long_message_that_waits() {
        let mut world = World::new();
        assert!(world.admits_new(100, 900) && !world.admits_new(101, 900));
        let long = world.wait(750);
        assert!(!world.admits_new(1, 500), "it would never find its room");
        let short = world.wait(100);
        assert_eq!((world.turns(500), world.turns(251)), (0, 0));
        assert_eq!(world.turns(250), 1);
        assert!(world.admits(long, 750, 250) && !world.admits(short, 100, 250));
        world.room.leave(long);
        // It is held from here on.
        assert_eq!((world.turns(950), world.turns(400)), (0, 1));
        world.room.leave(short);
        assert!(!world.room.is_contested() && world.room.kept() == 0);
    }

    #[test]
    fn whoever_does_not_take_its_turn_keeps_its_room_and_no_more() {
        let mut world = World::new();
        let late = world.wait(600);
        assert_eq!(world.turns(0), 1);
        assert!(world.admits_new(400, 0) && !world.admits_new(401, 0));
        let other = world.wait(500);
        assert_eq!(world.turns(0), 0);
        world.room.leave(late);
        assert_eq!(world.turns(0), 1);
        assert!(world.admits(other, 500, 0));
        // It found none after all, and is the first all the same.
        assert_eq!(world.wait_on(Some(other), 500), other);
        assert!(world.room.is_contested() && world.room.kept() == 0);
    }

    #[test]
    fn a_turn_that_is_not_taken_lapses_where_another_message_would_fit() {
        let mut world = World::new();
        let late = world.wait(700);
        assert_eq!(world.turns(0), 1);
        let other = world.wait(400);
        let lapse = world.now + TURN_TIME_MAX;
        assert_eq!(world.look(0), (0, next(None, Some(lapse))));
        world.now = lapse - Duration::from_millis(1);
        assert_eq!(world.look(0), (0, next(None, Some(lapse))));
        world.now = lapse;
        assert_eq!(world.look(0), (1, Next::default()));
        assert!(world.admits(other, 400, 0) && !world.admits(late, 700, 0));
        world.room.leave(other);
        // Nobody waits for it, until it is looked at again.
        assert!(!world.room.is_contested() && world.room.kept() == 0);
        assert!(world.admits(late, 700, 300) && world.admits_new(600, 400));
        let second = world.wait(500);
        assert_eq!(world.wait_on(Some(late), 700), late);
        assert_eq!(world.look(400), (0, next(Some(300), None)));
        assert_eq!(world.turns(300), 1);
        assert!(world.admits(late, 700, 300) && !world.admits(second, 500, 300));
    }

    #[test]
    fn turns_lapse_together_and_only_where_what_is_kept_is_in_the_way() {
        let mut world = World::new();
        let late = [300, 300, 300].map(|cost| world.wait(cost));
        assert_eq!(world.turns(0), 3);
        let other = world.wait(600);
        // It would not fit in any case.
        assert_eq!(world.look(450), (0, next(Some(400), None)));
        world.now += 2 * TURN_TIME_MAX;
        assert_eq!(world.look(100), (0, next(None, Some(world.now + TURN_TIME_MAX))));
        // One that is taken leaves less to miss.
        world.room.leave(late[2]);
        assert_eq!(world.look(0), (0, next(None, Some(world.now + TURN_TIME_MAX))));
        world.now += TURN_TIME_MAX;
        assert_eq!(world.turns(0), 1);
        assert!(world.admits(other, 600, 0));
        assert!(late.iter().all(|late| !world.admits(*late, 300, 300)));
        world.room.leave(other);
        assert!(world.admits(late[0], 300, 600) && world.admits(late[1], 300, 600));
    }

    #[test]
    fn however_many_turns_are_not_taken_those_behind_them_wait_for_one_time() {
        let mut world = World::new();
        for _ in 0..10 {
            world.wait(100);
        }
        assert_eq!(world.turns(0), 10);
        let one = world.wait(100);
        let lapse = world.now + TURN_TIME_MAX;
        assert_eq!(world.look(0), (0, next(None, Some(lapse))));
        world.now = lapse;
        assert_eq!(world.turns(0), 1);
        world.room.leave(one);
        let two = world.wait(100);
        assert_eq!(world.look(100), (1, Next::default()));
        assert!(world.admits(two, 100, 100));
    }

    #[test]
    fn those_whose_turns_come_together_are_woken_in_the_order_in_which_they_wait() {
        let (mut room, order) = (Room::default(), Arc::<Mutex<Vec<usize>>>::default());
        let waker = |number: usize| {
            let order = Arc::clone(&order);
            Waker::from(Arc::new(Noting { number, order }))
        };
        let numbers = [0, 1, 2].map(|number| room.wait(None, 100, &waker(number)).0);
        // One has its turn, finds no room after all, and is before the others again.
        let mut woken = Vec::new();
        room.give_turns(Instant::now(), 0, 100, &mut woken);
        woken.drain(..).for_each(Waker::wake);
        assert_eq!(order.lock().unwrap().drain(..).collect::<Vec<_>>(), [0]);
        room.wait(Some(numbers[0]), 100, &waker(0));
        room.give_turns(Instant::now(), 0, MAX, &mut woken);
        woken.into_iter().for_each(Waker::wake);
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    }

    #[test]
    fn turns_come_when_half_of_all_room_is_free_to_all_that_fit() {
        let mut world = World::new();
        for _ in 0..10 {
            world.wait(100);
        }
        assert_eq!(world.look(501), (0, next(Some(500), None)));
        assert_eq!(world.turns(500), 5);
    }

    #[test]
    fn a_message_that_costs_more_than_all_room_waits_for_half_of_it() {
        let mut world = World::new();
        assert!(
            world.admits_new(5_000, 999),
            "it is measured by others of its kind"
        );
        let first = world.wait(5_000);
        assert_eq!((world.turns(4_000), world.turns(500)), (0, 1));
        assert_eq!(world.room.kept(), 0);
        world.room.leave(first);
    }

    /// Quadratic work would take hours.
    #[test]
    fn of_very_many_each_is_woken_once_when_its_turn_comes() {
        const COUNT: usize = 1_000_000;
        let mut world = World::new();
        for _ in 0..COUNT {
            world.wait(1);
        }
        let (mut woken, mut first) = (0, 1);
        while woken < COUNT {
            let turns = world.turns(MAX / 2);
            assert_eq!(turns, MAX / 2);
            woken += turns;
            for number in first..=woken as u64 {
                assert!(world.admits(number, 1, MAX / 2));
                assert!(world.room.leave(number).is_none(), "it was woken");
                assert_eq!(world.turns(MAX), 0);
            }
            first = woken as u64 + 1;
        }
        assert!(!world.room.is_contested() && world.room.kept() == 0);
    }

    #[test]
    fn a_message_has_one_waker_the_latest_and_leaves_none() {
        let mut room = Room::default();
        let tasks = [Arc::new(Task), Arc::new(Task)];
        let wakers = tasks.clone().map(Waker::from);
        let (number, former) = room.wait(None, 1, &wakers[0]);
        assert!(former.is_none() && room.wait(Some(number), 1, &wakers[0]).1.is_none());
        let former = room.wait(Some(number), 1, &wakers[1]).1;
        assert!(former.is_some_and(|former| former.will_wake(&wakers[0])));
        assert!(room.leave(number).is_some_and(|own| own.will_wake(&wakers[1])));
        drop(wakers);
        assert_eq!(tasks.each_ref().map(Arc::strong_count), [1, 1]);
        let (number, _) = room.wait(None, 1, Waker::noop());
        let mut woken = Vec::new();
        room.wake_all(&mut woken);
        room.wake_all(&mut woken);
        assert_eq!(woken.len(), 1);
        assert!(room.leave(number).is_none());
    }
}
