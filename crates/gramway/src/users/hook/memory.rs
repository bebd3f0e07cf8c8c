//! What a hook has answered, for a while, and the accounts of the users whom it named. Of tokens there are digests
//! alone.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use aws_lc_rs::digest::{SHA256, digest};
use tunnel_proto::{Decision, Grant, ListenRights, Reach, Rights, User, UserId, UserLimits};

use crate::limits::{HOOK_ACCOUNTS_MAX, HOOK_ANSWERS_KEPT, HOOK_FRESH, HOOK_STALE};

/// What is known of a token.
pub(super) enum Known {
    /// It was answered lately.
    Fresh(Decision),
    /// It was answered some time ago, and let in.
    Stale(Decision),
    Nothing,
}

struct Answer {
    /// Whom it lets in.
    name: Option<String>,
    at: Instant,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Memory {
    answers: HashMap<[u8; 32], Answer>,
    accounts: BTreeMap<String, User>,
}

impl Memory {
    pub(super) fn recall(&self, token: &[u8; 32], now: Instant) -> Known {
        let Some(answer) = self.answers.get(token) else {
            return Known::Nothing;
        };
        let age = now.saturating_duration_since(answer.at);
        let Some(name) = &answer.name else {
            return if age < HOOK_FRESH {
                Known::Fresh(Decision::Refused)
            } else {
                Known::Nothing
            };
        };
        // One whose account had to make room is asked about again.
        match self.accounts.get(name).map(granted) {
            Some(decision) if age < HOOK_FRESH => Known::Fresh(decision),
            Some(decision) if age < HOOK_STALE => Known::Stale(decision),
            _ => Known::Nothing,
        }
    }

    /// Keeps an answer; the oldest refusal makes room, and only without one the oldest yes. What it means, if there is
    /// room for the user, and whose account is gone for it.
    pub(super) fn remember(
        &mut self,
        token: [u8; 32],
        now: Instant,
        name: Option<&str>,
    ) -> (Option<Decision>, Option<UserId>) {
        if self.answers.len() >= HOOK_ANSWERS_KEPT && !self.answers.contains_key(&token) {
            let oldest = self.answers.iter();
            let oldest = oldest.min_by_key(|(_, answer)| (answer.name.is_some(), answer.at));
            let oldest = oldest.map(|(token, _)| *token);
            oldest.and_then(|token| self.answers.remove(&token));
        }
        let answer = Answer {
            name: name.map(str::to_owned),
            at: now,
        };
        self.answers.insert(token, answer);
        let Some(name) = name else {
            return (Some(Decision::Refused), None);
        };
        let forgotten = self.make_room_for(name);
        (self.account(name).map(granted), forgotten)
    }

    /// Forgets the account of somebody who is not here, where there are too many.
    fn make_room_for(&mut self, name: &str) -> Option<UserId> {
        if self.accounts.len() < HOOK_ACCOUNTS_MAX || self.accounts.contains_key(name) {
            return None;
        }
        let mut accounts = self.accounts.iter();
        let gone = accounts.find_map(|(name, user)| (!user.is_here()).then(|| name.clone()))?;
        self.accounts.remove(&gone).map(|user| user.id())
    }

    /// The account of this name, in which all shards count; none where there are too many.
    fn account(&mut self, name: &str) -> Option<&User> {
        if self.accounts.len() >= HOOK_ACCOUNTS_MAX && !self.accounts.contains_key(name) {
            return None;
        }
        let account = self.accounts.entry(name.to_owned());
        Some(account.or_insert_with(|| User::new(id_of(name))))
    }
}

fn granted(user: &User) -> Decision {
    Decision::Granted(Grant {
        user: user.clone(),
        rights: Rights::ALL,
        reach: Reach::default(),
        listen: ListenRights::default(),
        limits: UserLimits::default(),
    })
}

/// The same for the same name, over restarts.
fn id_of(name: &str) -> UserId {
    let hash = digest(&SHA256, format!("hook:{name}").as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_ref()[..16]);
    UserId(id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn is_granted(known: Known) -> (char, bool) {
        match known {
            Known::Fresh(decision) => ('f', matches!(decision, Decision::Granted(_))),
            Known::Stale(decision) => ('s', matches!(decision, Decision::Granted(_))),
            Known::Nothing => ('n', false),
        }
    }

    #[test]
    fn an_answer_holds_for_a_minute_and_a_yes_for_an_hour_where_nobody_answers() {
        let (start, mut memory) = (Instant::now(), Memory::default());
        memory.remember([1; 32], start, Some("alice"));
        memory.remember([2; 32], start, None);
        let known = |token, seconds| {
            let now = start + Duration::from_secs(seconds);
            is_granted(memory.recall(&[token; 32], now))
        };
        assert_eq!((known(1, 59), known(2, 59)), (('f', true), ('f', false)));
        assert_eq!((known(1, 61), known(2, 61)), (('s', true), ('n', false)));
        assert_eq!(known(1, 3_700), ('n', false));
        assert_eq!(known(3, 0), ('n', false));
    }

    #[test]
    fn answers_and_accounts_are_bounded_and_a_name_is_one_account() {
        let (start, mut memory) = (Instant::now(), Memory::default());
        for number in 0..HOOK_ANSWERS_KEPT as u64 + 10 {
            let mut token = [0; 32];
            token[..8].copy_from_slice(&number.to_be_bytes());
            memory.remember(token, start + Duration::from_millis(number), Some("alice"));
        }
        assert_eq!(memory.answers.len(), HOOK_ANSWERS_KEPT);
        assert_eq!(memory.accounts.len(), 1);
        assert!(matches!(memory.recall(&[0; 32], start), Known::Nothing));
    }

    #[test]
    fn whoever_is_not_here_makes_room_for_another_user() {
        let (start, mut memory) = (Instant::now(), Memory::default());
        for number in 0..HOOK_ACCOUNTS_MAX {
            let (decision, forgotten) = memory.remember([9; 32], start, Some(&format!("user {number:04}")));
            assert!(matches!(decision, Some(Decision::Granted(_))) && forgotten.is_none());
        }
        memory.remember([1; 32], start, Some("user 0000"));
        let (decision, forgotten) = memory.remember([2; 32], start, Some("one more"));
        assert!(matches!(decision, Some(Decision::Granted(_))));
        assert_eq!(forgotten, Some(id_of("user 0000")));
        assert_eq!(memory.accounts.len(), HOOK_ACCOUNTS_MAX);
        // It is asked about when it comes back.
        assert_eq!(is_granted(memory.recall(&[1; 32], start)), ('n', false));
        assert_eq!(is_granted(memory.recall(&[2; 32], start)), ('f', true));
    }

    #[test]
    fn a_stranger_makes_nobody_forgotten() {
        let (start, mut memory) = (Instant::now(), Memory::default());
        memory.remember([1; 32], start, Some("alice"));
        for number in 0..HOOK_ANSWERS_KEPT as u64 + 10 {
            let mut token = [0; 32];
            token[..8].copy_from_slice(&number.to_be_bytes());
            memory.remember(token, start, None);
        }
        assert_eq!(memory.answers.len(), HOOK_ANSWERS_KEPT);
        assert_eq!(is_granted(memory.recall(&[1; 32], start)), ('f', true));
    }
}
