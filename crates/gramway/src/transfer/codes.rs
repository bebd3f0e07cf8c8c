//! The codes of a sender, each for one receiver: who may try one, and which are over (FILE-33).

use std::sync::{Mutex, MutexGuard, PoisonError};

use files_proto::code::{Code, ExchangeError};
use peer::PeerId;

use super::proof::Unproved;
use crate::limits::TRANSFER_ATTEMPTS_MAX;

/// Whether a peer may try a code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now(Code),
    /// Another one is trying it.
    Later,
    /// There is none, or it is another one's.
    Never,
    /// Its time is over.
    TooLate,
}

/// All of a command.
#[derive(Debug)]
pub(super) struct Codes(Mutex<Vec<Slot>>);

#[derive(Debug)]
struct Slot {
    code: Code,
    state: State,
    /// Exchanges that were begun.
    attempts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody has shown that it knows the words.
    Free,
    /// Somebody is about to.
    Tried(PeerId),
    /// This peer knows them, and may come again.
    Taken(PeerId),
    Over(Over),
}

/// Why nobody may try a code any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Somebody guessed wrongly.
    Guessed,
    /// Too many exchanges were begun, and none came to its end.
    TriedTooOften,
    /// Nobody proved to know it in its time.
    Expired,
    /// The same, and somebody was about to, or came afterwards.
    Late,
    /// Its receiver has everything, or gets nothing more.
    Served,
}

impl Codes {
    pub(super) fn new(codes: Vec<Code>) -> Self {
        let slot = |code| Slot {
            code,
            state: State::Free,
            attempts: 0,
        };
        Self(Mutex::new(codes.into_iter().map(slot).collect()))
    }

    /// The code with this number, which `peer` may try to prove; each is tried by one at a time, and others wait.
    pub(super) fn begin(&self, number: u32, peer: PeerId) -> Turn {
        let mut slots = self.slots();
        let Some(slot) = slots.iter_mut().find(|slot| slot.code.number() == number) else {
            return Turn::Never;
        };
        match slot.state {
            State::Free => slot.state = State::Tried(peer),
            State::Taken(known) if known == peer => {}
            State::Tried(_) => return Turn::Later,
            State::Over(Over::Expired | Over::Late) => {
                slot.state = State::Over(Over::Late);
                return Turn::TooLate;
            }
            State::Taken(_) | State::Over(_) => return Turn::Never,
        }
        Turn::Now(slot.code.clone())
    }

    /// Somebody takes part in an exchange about the code with this number. Who only names the number does not count,
    /// nor who has proved to know it before.
    ///
    /// # Errors
    /// The code was tried too often, or is over for another reason meanwhile.
    pub(super) fn count_attempt(&self, number: u32) -> Result<(), Unproved> {
        let mut slots = self.slots();
        let slot = slots.iter_mut().find(|slot| slot.code.number() == number);
        let slot = slot.ok_or(Unproved::NoCode)?;
        slot.attempts += u32::from(matches!(slot.state, State::Tried(_)));
        if slot.attempts > TRANSFER_ATTEMPTS_MAX {
            slot.state = State::Over(Over::TriedTooOften);
        }
        match slot.state {
            State::Over(Over::TriedTooOften) => Err(Unproved::TriedTooOften),
            State::Over(Over::Expired | Over::Late) => Err(Unproved::Expired),
            State::Over(_) => Err(Unproved::NoCode),
            _ => Ok(()),
        }
    }

    /// What became of that. Whoever has proved to know a code may have what is sent, unless it has had that meanwhile
    /// by another connection.
    ///
    /// # Errors
    /// It has proved nothing, or has everything.
    pub(super) fn end(
        &self,
        number: u32,
        peer: PeerId,
        proved: Result<(), Unproved>,
    ) -> Result<(), Unproved> {
        let mut slots = self.slots();
        let slot = slots.iter_mut().find(|slot| slot.code.number() == number);
        let slot = slot.ok_or(Unproved::NoCode)?;
        slot.state = match (&proved, slot.state) {
            (_, State::Over(Over::Served)) => return proved.and(Err(Unproved::NoCode)),
            (Ok(()), _) => State::Taken(peer),
            (Err(Unproved::Exchange(ExchangeError::WrongGuess)), _) => State::Over(Over::Guessed),
            // Who leaves before it has confirmed has learned nothing.
            (Err(_), State::Tried(_)) => State::Free,
            (Err(_), state) => state,
        };
        proved
    }

    /// Whoever had this code has everything, or gets nothing more. Whether that was not so before.
    pub(super) fn complete(&self, number: u32) -> bool {
        let mut slots = self.slots();
        let slot = slots.iter_mut().find(|slot| slot.code.number() == number);
        let served = State::Over(Over::Served);
        slot.is_some_and(|slot| std::mem::replace(&mut slot.state, served) != served)
    }

    /// Their time is over: a code that nobody has proved to know is not valid any more.
    pub(super) fn expire(&self) {
        for slot in self.slots().iter_mut() {
            match slot.state {
                State::Free => slot.state = State::Over(Over::Expired),
                State::Tried(_) => slot.state = State::Over(Over::Late),
                State::Taken(_) | State::Over(_) => {}
            }
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.slots().len() as u64
    }

    /// Whether somebody may still come with one of them.
    pub(super) fn are_open(&self) -> bool {
        let is_over = |slot: &Slot| matches!(slot.state, State::Over(_));
        !self.slots().iter().all(is_over)
    }

    /// Whether one of them is over for this reason.
    pub(super) fn are_over(&self, why: Over) -> bool {
        self.slots().iter().any(|slot| slot.state == State::Over(why))
    }

    /// Whether one of them is still to be told to somebody.
    pub(super) fn are_free(&self) -> bool {
        let is_free = |slot: &Slot| matches!(slot.state, State::Free | State::Tried(_));
        self.slots().iter().any(is_free)
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> PeerId {
        PeerId::from([number; 32])
    }

    fn codes() -> Codes {
        Codes::new(vec![
            "4711-maple-otter".parse().unwrap(),
            "4712-otter-maple".parse().unwrap(),
        ])
    }

    fn may_try(codes: &Codes, number: u32, who: u8) -> bool {
        matches!(codes.begin(number, peer(who)), Turn::Now(code) if code.number() == number)
    }

    /// Its exchange ends so.
    fn fail(codes: &Codes, number: u32, who: u8, why: Unproved) {
        assert_eq!(codes.end(number, peer(who), Err(why.clone())), Err(why));
    }

    /// FILE-33.
    #[test]
    fn a_code_is_one_peers_and_tried_by_one_at_a_time() {
        let codes = codes();
        assert_eq!(codes.begin(4_713, peer(1)), Turn::Never);
        assert!(may_try(&codes, 4_711, 1));
        assert_eq!(codes.begin(4_711, peer(2)), Turn::Later);
        fail(&codes, 4_711, 1, Unproved::Silent);
        assert!(may_try(&codes, 4_711, 2));
        assert_eq!(codes.end(4_711, peer(2), Ok(())), Ok(()));
        assert_eq!(codes.begin(4_711, peer(1)), Turn::Never);
        assert!(may_try(&codes, 4_711, 2));
        // What fails then says nothing of the code.
        fail(&codes, 4_711, 2, Unproved::Silent);
        assert!(may_try(&codes, 4_711, 2));
        assert!(codes.are_free() && codes.are_open());
    }

    /// FILE-33.
    #[test]
    fn a_wrong_guess_ends_a_code_and_leaves_the_others() {
        let codes = codes();
        assert!(may_try(&codes, 4_711, 1));
        fail(&codes, 4_711, 1, Unproved::Exchange(ExchangeError::WrongGuess));
        assert_eq!(codes.begin(4_711, peer(1)), Turn::Never);
        assert!(codes.are_free() && codes.are_over(Over::Guessed));
        assert!(may_try(&codes, 4_712, 1));
        assert_eq!(codes.end(4_712, peer(1), Ok(())), Ok(()));
        assert!(codes.are_open() && !codes.are_free());
        assert!(codes.complete(4_712) && !codes.are_open());
        assert_eq!(codes.begin(4_712, peer(1)), Turn::Never);
    }

    #[test]
    fn a_code_that_nobody_proved_to_know_ends_with_its_time() {
        let codes = codes();
        assert!(may_try(&codes, 4_711, 1));
        assert_eq!(codes.end(4_711, peer(1), Ok(())), Ok(()));
        // In the middle of an exchange, too: nobody has tried that one too often.
        assert!(may_try(&codes, 4_712, 2));
        codes.expire();
        assert_eq!(codes.count_attempt(4_712), Err(Unproved::Expired));
        fail(&codes, 4_712, 2, Unproved::Expired);
        assert_eq!(codes.begin(4_712, peer(2)), Turn::TooLate);
        assert!(codes.are_over(Over::Late) && !codes.are_over(Over::TriedTooOften));
        // Whoever has proved it may come again.
        assert!(may_try(&codes, 4_711, 1));
    }

    #[test]
    fn whoever_comes_after_a_codes_time_is_known_to_have_come() {
        let codes = codes();
        codes.expire();
        assert!(codes.are_over(Over::Expired) && !codes.are_over(Over::Late));
        assert_eq!(codes.begin(4_712, peer(2)), Turn::TooLate);
        codes.expire();
        assert!(codes.are_over(Over::Expired) && codes.are_over(Over::Late));
        assert_eq!(codes.begin(4_713, peer(2)), Turn::Never);
    }

    /// Its connection broke and it came again, and all that it lacked was that somebody said so.
    #[test]
    fn a_receiver_that_has_everything_meanwhile_is_not_served_another_time() {
        let codes = codes();
        assert!(may_try(&codes, 4_711, 1));
        assert_eq!(codes.end(4_711, peer(1), Ok(())), Ok(()));
        assert!(may_try(&codes, 4_711, 1));
        assert!(codes.complete(4_711));
        assert_eq!(codes.end(4_711, peer(1), Ok(())), Err(Unproved::NoCode));
        assert_eq!(codes.begin(4_711, peer(1)), Turn::Never);
        assert!(codes.are_over(Over::Served));
        // One that had proved it before counts once.
        assert!(!codes.complete(4_711));
    }

    #[test]
    fn a_code_is_not_tried_for_ever() {
        let codes = codes();
        // Who falls silent before it has said more than the number does not count.
        for _ in 0..2 * TRANSFER_ATTEMPTS_MAX {
            assert!(may_try(&codes, 4_711, 1));
            fail(&codes, 4_711, 1, Unproved::Silent);
        }
        for _ in 0..TRANSFER_ATTEMPTS_MAX {
            assert!(may_try(&codes, 4_711, 1));
            assert_eq!(codes.count_attempt(4_711), Ok(()));
            fail(&codes, 4_711, 1, Unproved::Silent);
        }
        assert!(may_try(&codes, 4_711, 1));
        assert_eq!(codes.count_attempt(4_711), Err(Unproved::TriedTooOften));
        fail(&codes, 4_711, 1, Unproved::TriedTooOften);
        assert_eq!(codes.begin(4_711, peer(1)), Turn::Never);
        codes.expire();
        assert!(codes.are_over(Over::TriedTooOften));
        assert!(!codes.are_over(Over::Guessed));
    }

    #[test]
    fn whoever_has_proved_to_know_a_code_comes_again_as_often_as_its_network_breaks() {
        let codes = codes();
        for _ in 0..2 * TRANSFER_ATTEMPTS_MAX {
            assert!(may_try(&codes, 4_711, 1));
            assert_eq!(codes.count_attempt(4_711), Ok(()));
            assert_eq!(codes.end(4_711, peer(1), Ok(())), Ok(()));
        }
    }
}
