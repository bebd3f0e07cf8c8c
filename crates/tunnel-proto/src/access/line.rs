//! What each user may have of a server's line while it is full: as much as every other one who asks for it.
//!
//! The operator says what the line carries in each direction, because only a server that sends less than that decides whose
//! packets wait. Several times a second, shares are computed anew (max-min fairness): who asks for less than an even part
//! gets all of it, and the others have the rest in even parts, whatever number of flows and connections each has. A share
//! is held like the user's own rate ([`super::rate`]), for all shards together.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use super::rate::Way;
use super::user::{Account, User};
use crate::limits::{LINE_INTERVAL, LINE_SHARE_MIN};

/// What a server's line carries, in bits per second of payload; `None`: it is never the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineRates {
    /// Of all clients together.
    pub from_clients: Option<u64>,
    /// To all clients together.
    pub to_clients: Option<u64>,
}

/// A server's line, which all of its shards share.
#[derive(Debug, Default)]
pub struct Line {
    /// By [`Way`]; 0: any.
    bits_per_second: [AtomicU64; 2],
    /// There is a rate, or shares of a former one are to be taken back.
    is_in_use: AtomicBool,
    /// Of those who are here.
    accounts: Mutex<Vec<Weak<Account>>>,
    begin: OnceLock<Instant>,
    /// When shares were computed last, in nanoseconds since `begin`.
    divided_at: AtomicU64,
}

const WAYS: [Way; 2] = [Way::FromClient, Way::ToClient];

impl Line {
    /// What it carries from here on.
    pub(crate) fn set(&self, rates: LineRates) {
        for (way, rate) in [
            (Way::FromClient, rates.from_clients),
            (Way::ToClient, rates.to_clients),
        ] {
            self.bits_per_second[way as usize].store(rate.unwrap_or(0), Ordering::Relaxed);
        }
        if rates != LineRates::default() {
            self.is_in_use.store(true, Ordering::Relaxed);
        }
    }

    /// A user is here: it has a connection.
    pub(crate) fn join(&self, user: &User) {
        let account = user.account();
        if let Ok(mut accounts) = self.accounts.lock()
            && !account.set_on_line(true)
        {
            if accounts.len() == accounts.capacity() {
                accounts.retain(stays);
            }
            accounts.push(Arc::downgrade(account));
        }
    }

    /// Computes shares where it is time to; one of the shards does it for all.
    pub(crate) fn divide(&self, now: Instant) {
        if !self.is_in_use.load(Ordering::Relaxed) {
            return;
        }
        let begin = self.begin.get_or_init(|| now);
        let at = now.saturating_duration_since(*begin) + LINE_INTERVAL;
        let last = self.divided_at.load(Ordering::Relaxed);
        let passed = at.saturating_sub(Duration::from_nanos(last));
        if passed < LINE_INTERVAL {
            return;
        }
        let mut accounts = match self.accounts.try_lock() {
            Ok(accounts) => accounts,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Somebody comes, or another shard divides; the next turn finds it due.
            Err(TryLockError::WouldBlock) => return,
        };
        if self
            .divided_at
            .compare_exchange(last, at.as_nanos() as u64, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        accounts.retain(stays);
        let here: Vec<_> = accounts.iter().filter_map(Weak::upgrade).collect();
        let mut has_rate = false;
        for way in WAYS {
            let line = self.bits_per_second[way as usize].load(Ordering::Relaxed);
            has_rate |= line > 0;
            let mut demands: Vec<_> = here
                .iter()
                .map(|account| account.rate().take_demand(way, passed))
                .collect();
            let share = if line > 0 { share(line, &mut demands) } else { 0 };
            here.iter()
                .for_each(|account| account.rate().set_share(way, share));
        }
        if !has_rate {
            self.is_in_use.store(false, Ordering::Relaxed);
            // A rate that was set meanwhile counts.
            if WAYS
                .iter()
                .any(|&way| self.bits_per_second[way as usize].load(Ordering::Relaxed) > 0)
            {
                self.is_in_use.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Whether a user is still here; one that has left is not counted any more, and has no share.
fn stays(account: &Weak<Account>) -> bool {
    let Some(account) = account.upgrade() else {
        return false;
    };
    let is_here = account.is_here();
    if !is_here {
        account.set_on_line(false);
        WAYS.iter().for_each(|way| account.rate().set_share(*way, 0));
    }
    is_here
}

/// The most that anybody may have of a line of so many bits per second, where users ask for so much; `u64::MAX`: for all
/// that there is.
fn share(line: u64, demands: &mut [u64]) -> u64 {
    demands.sort_unstable();
    let (mut left, count) = (line, demands.len());
    for (place, demand) in demands.iter().enumerate() {
        let even = left / (count - place) as u64;
        if *demand > even {
            return even.max(LINE_SHARE_MIN);
        }
        left -= demand;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::user::{UserId, UserLimits};
    use super::*;

    #[test]
    fn who_asks_for_less_than_an_even_part_gets_it_and_the_rest_is_divided_evenly() {
        const ALL: u64 = u64::MAX;
        for (demands, expected) in [
            (vec![], 100),
            (vec![ALL], 100),
            (vec![30], 100),
            (vec![ALL, ALL], 50),
            (vec![ALL, 10], 90),
            (vec![60, 60], 50),
            (vec![ALL, 10, 20, ALL], 35),
            (vec![49, 49], 100),
        ] {
            let scale = LINE_SHARE_MIN;
            let mut scaled: Vec<_> = demands
                .iter()
                .map(|demand| u64::saturating_mul(*demand, scale))
                .collect();
            assert_eq!(share(100 * scale, &mut scaled), expected * scale, "{demands:?}");
        }
        let mut thousands = vec![ALL; 1_000_000];
        assert_eq!(share(1_000_000, &mut thousands), LINE_SHARE_MIN);
    }

    /// A user with a connection.
    fn here(number: u8) -> User {
        let user = User::new(UserId([number; 16]));
        assert!(user.take_connection(&UserLimits::default()));
        user
    }

    #[test]
    fn who_has_left_is_not_counted_until_it_comes_back() {
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        let line = Line::default();
        line.set(LineRates {
            to_clients: Some(80_000_000),
            ..LineRates::default()
        });
        let users: Vec<_> = (0..100).map(here).collect();
        users.iter().for_each(|user| line.join(user));
        let counted = |line: &Line| line.accounts.lock().unwrap().len();
        let mut divide = || {
            now += LINE_INTERVAL;
            line.divide(now);
        };
        divide();
        assert_eq!(counted(&line), 100);
        users[1..].iter().for_each(User::give_connection_back);
        divide();
        assert_eq!(counted(&line), 1);
        assert!(users[1].take_connection(&UserLimits::default()));
        line.join(&users[1]);
        line.join(&users[1]);
        divide();
        assert_eq!(counted(&line), 2);
    }

    #[test]
    fn shares_follow_those_who_are_there_and_go_with_the_rate() {
        // tidy-allow(pure): first instant of virtual time
        let mut now = Instant::now();
        let line = Line::default();
        let users = [1, 2].map(here);
        users.iter().for_each(|user| line.join(user));
        users.iter().for_each(|user| line.join(user));
        let rates = LineRates {
            to_clients: Some(80_000_000),
            ..LineRates::default()
        };
        line.set(rates);
        // A byte in 0.1 us: what each gets in a second where both ask for all.
        let mut second = |asking: &[&User]| {
            let mut got = vec![0; asking.len()];
            for _ in 0..1_000 {
                now += Duration::from_millis(1);
                line.divide(now);
                for (user, got) in asking.iter().zip(&mut got) {
                    while user.free_at(Way::ToClient, now).is_none() && *got < 1_000_000_000 {
                        user.charge(Way::ToClient, now, 1_000);
                        *got += 1_000;
                    }
                    assert_eq!(user.free_at(Way::FromClient, now), None);
                }
            }
            got
        };
        let [alice, bob] = &users;
        second(&[alice]);
        let alone = second(&[alice])[0];
        assert!((9_900_000..=10_100_000).contains(&alone), "{alone}");
        second(&[alice, bob]);
        for got in second(&[alice, bob]) {
            assert!((4_900_000..=5_100_000).contains(&got), "{got}");
        }
        // Who is held to a rate of its own leaves the rest to others.
        alice.set_rate(Some(10_000_000));
        second(&[alice, bob]);
        let got = second(&[alice, bob]);
        assert!((1_200_000..=1_300_000).contains(&got[0]), "{got:?}");
        assert!((8_600_000..=8_900_000).contains(&got[1]), "{got:?}");
        alice.set_rate(None);
        line.set(LineRates::default());
        now += LINE_INTERVAL;
        line.divide(now);
        assert_eq!(alice.free_at(Way::ToClient, now + Duration::from_secs(1)), None);
        alice.charge(Way::ToClient, now, 1_000_000_000);
        assert_eq!(alice.free_at(Way::ToClient, now + Duration::from_secs(1)), None);
        assert_eq!(line.accounts.lock().unwrap().len(), 2, "each is there once");
    }
}
