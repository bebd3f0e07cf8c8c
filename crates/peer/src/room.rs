//! Who waits for room to send to a peer, in the order in which they came. While somebody waits nobody passes by, so
//! that a long message finds its room however many short ones others send. Turns come when half of all room is free,
//! so that whoever was woken sends much before it waits again. The room of those whose turn has come is kept for them
//! until they take it or give up: a program may be busy with something else before it does, e.g. with another message,
//! which finds the rest.

use std::collections::VecDeque;

struct Waiter {
    number: u64,
    /// What its message takes.
    cost: usize,
    has_turn: bool,
}

/// The room of one connection, as far as somebody waits for it.
#[derive(Default)]
pub(crate) struct Room {
    waiters: VecDeque<Waiter>,
    /// How many have waited.
    count: u64,
    /// Bytes that are kept for those whose turn has come.
    kept: usize,
}

impl Room {
    /// Bytes that are kept for those whose turn has come.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Whether somebody waits whose turn has not come.
    pub(crate) fn is_contested(&self) -> bool {
        self.waiters.iter().any(|waiter| !waiter.has_turn)
    }

    /// Whether a message of this cost may be sent beside `held` bytes of `bytes_max`; `number` is that of one that
    /// waits. A message that costs more than all room is measured by others.
    pub(crate) fn admits(&self, number: Option<u64>, cost: usize, held: usize, bytes_max: usize) -> bool {
        if number.is_some() {
            return self
                .waiters
                .iter()
                .any(|waiter| Some(waiter.number) == number && waiter.has_turn);
        }
        !self.is_contested() && (cost > bytes_max || held + self.kept + cost <= bytes_max)
    }

    /// A message waits, or waits on; the number by which it does.
    pub(crate) fn wait(&mut self, number: Option<u64>, cost: usize) -> u64 {
        let mut waiters = self.waiters.iter_mut();
        if let Some(waiter) = waiters.find(|waiter| Some(waiter.number) == number) {
            self.kept -= waiter.kept();
            waiter.has_turn = false;
            return waiter.number;
        }
        self.count += 1;
        self.waiters.push_back(Waiter {
            number: self.count,
            cost,
            has_turn: false,
        });
        self.count
    }

    /// It waits no longer.
    pub(crate) fn leave(&mut self, number: u64) {
        let place = self.waiters.iter().position(|waiter| waiter.number == number);
        if let Some(waiter) = place.and_then(|place| self.waiters.remove(place)) {
            self.kept -= waiter.kept();
        }
    }

    /// Gives turns to the first who wait, as far as there is room beside `held` bytes of `bytes_max`; how many, who are
    /// to be woken.
    pub(crate) fn give_turns(&mut self, held: usize, bytes_max: usize) -> usize {
        let mut given = 0;
        if held > bytes_max / 2 {
            return given;
        }
        for waiter in self.waiters.iter_mut().filter(|waiter| !waiter.has_turn) {
            // One that costs more than all room fits where no other such one is, which would be held.
            let cost = if waiter.cost > bytes_max { 0 } else { waiter.cost };
            if held + self.kept + cost > bytes_max {
                break;
            }
            waiter.cost = cost;
            waiter.has_turn = true;
            self.kept += cost;
            given += 1;
        }
        given
    }
}

impl Waiter {
    fn kept(&self) -> usize {
        if self.has_turn { self.cost } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1_000;

    fn turns(room: &mut Room, held: usize) -> usize {
        room.give_turns(held, MAX)
    }

    fn wait(room: &mut Room, cost: usize) -> u64 {
        room.wait(None, cost)
    }

    #[test]
    fn nobody_passes_by_a_long_message_that_waits() {
        let mut room = Room::default();
        assert!(room.admits(None, 100, 900, MAX) && !room.admits(None, 101, 900, MAX));
        let long = wait(&mut room, 750);
        assert!(!room.admits(None, 1, 500, MAX), "it would never find its room");
        let short = wait(&mut room, 100);
        assert_eq!((turns(&mut room, 500), turns(&mut room, 251)), (0, 0));
        assert_eq!(turns(&mut room, 250), 1);
        assert!(room.admits(Some(long), 750, 250, MAX) && !room.admits(Some(short), 100, 250, MAX));
        room.leave(long);
        // It is held from here on.
        assert_eq!((turns(&mut room, 950), turns(&mut room, 400)), (0, 1));
        room.leave(short);
        assert!(!room.is_contested() && room.kept() == 0);
    }

    #[test]
    fn whoever_does_not_take_its_turn_keeps_its_room_and_no_more() {
        let mut room = Room::default();
        let late = wait(&mut room, 600);
        assert_eq!(turns(&mut room, 0), 1);
        assert!(room.admits(None, 400, 0, MAX) && !room.admits(None, 401, 0, MAX));
        let other = wait(&mut room, 500);
        assert_eq!(turns(&mut room, 0), 0);
        room.leave(late);
        assert_eq!(turns(&mut room, 0), 1);
        assert!(room.admits(Some(other), 500, 0, MAX));
        // It found none after all, and is the first all the same.
        assert_eq!(room.wait(Some(other), 500), other);
        assert!(room.is_contested() && room.kept() == 0);
    }

    #[test]
    fn turns_come_when_half_of_all_room_is_free_to_all_that_fit() {
        let mut room = Room::default();
        for _ in 0..10 {
            wait(&mut room, 100);
        }
        assert_eq!(turns(&mut room, 501), 0);
        assert_eq!(turns(&mut room, 500), 5);
    }

    #[test]
    fn a_message_that_costs_more_than_all_room_waits_for_half_of_it() {
        let mut room = Room::default();
        assert!(
            room.admits(None, 5_000, 999, MAX),
            "it is measured by others of its kind"
        );
        let first = wait(&mut room, 5_000);
        assert_eq!((turns(&mut room, 4_000), turns(&mut room, 500)), (0, 1));
        assert_eq!(room.kept(), 0);
        room.leave(first);
    }
}
