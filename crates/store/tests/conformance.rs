//! What every store does, held against each of them: SQLite's, and one in memory that shows what the trait asks for.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use store::{Day, Epoch, Period, Quota, Rights, Sqlite, Store, StoreError, User, UserId};

/// A store and what shall live as long, and another way to the same.
struct Opened {
    store: Box<dyn Store>,
    other: Option<Box<dyn Store>>,
    _place: Option<tempfile::TempDir>,
}

fn sqlite() -> Opened {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("users.db");
    Opened {
        store: Box::new(Sqlite::create(&path).expect("a new file")),
        other: Some(Box::new(Sqlite::open(&path).expect("the same file"))),
        _place: Some(place),
    }
}

fn memory() -> Opened {
    Opened {
        store: Box::new(Memory::default()),
        other: None,
        _place: None,
    }
}

const ALL_DAYS: RangeInclusive<Day> = Day::FIRST..=Day(u32::MAX);

const STORES: [fn() -> Opened; 2] = [sqlite, memory];

/// A whole store that forgets.
#[derive(Default)]
struct Memory {
    users: BTreeMap<String, User>,
    used: BTreeMap<(UserId, Day, u64), u64>,
}

impl Store for Memory {
    fn users(&mut self) -> Result<Vec<User>, StoreError> {
        Ok(self.users.values().cloned().collect())
    }

    fn add(&mut self, user: &User) -> Result<(), StoreError> {
        User::check_name(&user.name)?;
        if self.users.contains_key(&user.name) {
            return Err(StoreError::NameTaken(user.name.clone()));
        }
        self.users.insert(user.name.clone(), user.clone());
        Ok(())
    }

    fn change(&mut self, name: &str, edit: &mut dyn FnMut(&mut User)) -> Result<User, StoreError> {
        let before = self
            .users
            .get(name)
            .ok_or_else(|| StoreError::NoSuchUser(name.to_owned()))?;
        let mut user = before.clone();
        edit(&mut user);
        user.id = before.id;
        User::check_name(&user.name)?;
        if user.name != name && self.users.contains_key(&user.name) {
            return Err(StoreError::NameTaken(user.name));
        }
        self.users.remove(name);
        self.users.insert(user.name.clone(), user.clone());
        Ok(user)
    }

    fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        let user = self
            .users
            .remove(name)
            .ok_or_else(|| StoreError::NoSuchUser(name.to_owned()))?;
        self.used.retain(|(id, ..), _| *id != user.id);
        Ok(())
    }

    fn record(&mut self, day: Day, epoch: Epoch, used: &[(UserId, u64)]) -> Result<(), StoreError> {
        for (id, bytes) in used {
            if self.users.values().any(|user| user.id == *id) {
                let before = self.used.entry((*id, day, epoch.0)).or_default();
                *before = (*before).max(*bytes);
            }
        }
        Ok(())
    }

    fn used(&mut self, user: UserId, days: RangeInclusive<Day>) -> Result<u64, StoreError> {
        let days = self
            .used
            .range((user, *days.start(), 0)..=(user, *days.end(), u64::MAX));
        Ok(days.map(|(_, bytes)| bytes).sum())
    }

    fn changes(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }
}

fn user(number: u8, name: &str) -> User {
    User {
        id: UserId([number; 16]),
        name: name.to_owned(),
        token_digest: [number; 32],
        front_door_key: [number; 40],
        created: 1_764_000_000,
        expires: Some(1_765_000_000),
        quota: Some(Quota {
            bytes: 100_000_000_000,
            period: Period::Month,
        }),
        bits_per_second: Some(20_000_000),
        rights: Rights {
            udp: true,
            tcp: false,
            ip: true,
        },
        reach: vec!["10.0.0.0/8".to_owned(), "192.0.2.1/32:443".to_owned()],
        listen: vec!["8000-8010".to_owned(), ":80".to_owned()],
        is_disabled: false,
    }
}

#[test]
fn users_come_back_as_they_were_by_name() {
    for open in STORES {
        let mut opened = open();
        let (bob, mut alice) = (user(2, "bob"), user(1, "alice"));
        (alice.expires, alice.quota, alice.is_disabled) = (None, None, true);
        alice.reach.clear();
        alice.bits_per_second = None;
        opened.store.add(&bob).unwrap();
        opened.store.add(&alice).unwrap();
        assert_eq!(opened.store.users().unwrap(), [alice, bob]);
    }
}

#[test]
fn a_name_is_one_users_and_a_word() {
    for open in STORES {
        let mut opened = open();
        let store = &mut opened.store;
        store.add(&user(1, "alice")).unwrap();
        assert_eq!(
            store.add(&user(2, "alice")),
            Err(StoreError::NameTaken("alice".to_owned()))
        );
        for name in ["", "owner", "-x", "a b", "é", "x\n", &"x".repeat(33)] {
            assert_eq!(
                store.add(&user(3, name)),
                Err(StoreError::BadName(name.to_owned()))
            );
        }
        for name in ["a", "Alice.B-c_9", &"x".repeat(32)] {
            store.add(&user(name.len() as u8 + 10, name)).unwrap();
        }
    }
}

#[test]
fn a_change_is_kept_and_keeps_who_it_is() {
    for open in STORES {
        let mut opened = open();
        let store = &mut opened.store;
        store.add(&user(1, "alice")).unwrap();
        store.add(&user(2, "bob")).unwrap();
        store.record(Day(1), Epoch(1), &[(UserId([1; 16]), 5)]).unwrap();
        let changed = store
            .change("alice", &mut |user| {
                user.id = UserId([9; 16]);
                user.is_disabled = true;
                user.token_digest = [7; 32];
            })
            .unwrap();
        assert!(changed.id == UserId([1; 16]) && changed.is_disabled && changed.token_digest == [7; 32]);
        assert_eq!(store.users().unwrap()[0], changed);
        assert_eq!(store.used(changed.id, ALL_DAYS), Ok(5), "its use stays");
        let taken = store.change("alice", &mut |user| user.name = "bob".to_owned());
        assert_eq!(taken, Err(StoreError::NameTaken("bob".to_owned())));
        let nobody = store.change("carol", &mut |_| {});
        assert_eq!(nobody, Err(StoreError::NoSuchUser("carol".to_owned())));
    }
}

#[test]
fn a_removed_user_leaves_nothing_and_its_name_is_free() {
    for open in STORES {
        let mut opened = open();
        let store = &mut opened.store;
        let alice = user(1, "alice");
        store.add(&alice).unwrap();
        store.record(Day(1), Epoch(1), &[(alice.id, 5)]).unwrap();
        store.remove("alice").unwrap();
        assert_eq!(
            store.remove("alice"),
            Err(StoreError::NoSuchUser("alice".to_owned()))
        );
        assert_eq!(store.users().unwrap(), []);
        store.record(Day(1), Epoch(1), &[(alice.id, 9)]).unwrap();
        assert_eq!(store.used(alice.id, ALL_DAYS), Ok(0));
        store.add(&user(2, "alice")).unwrap();
    }
}

#[test]
fn use_adds_up_over_days_and_epochs_and_no_repeated_call_counts_twice() {
    for open in STORES {
        let mut opened = open();
        let store = &mut opened.store;
        let (alice, bob) = (user(1, "alice"), user(2, "bob"));
        store.add(&alice).unwrap();
        store.add(&bob).unwrap();
        let (early, late) = (Epoch(u64::MAX), Epoch(3));
        store
            .record(Day(10), early, &[(alice.id, 100), (bob.id, 7)])
            .unwrap();
        store.record(Day(10), early, &[(alice.id, 250)]).unwrap();
        for _ in 0..2 {
            store.record(Day(10), early, &[(alice.id, 250)]).unwrap();
        }
        store.record(Day(10), early, &[(alice.id, 20)]).unwrap();
        store.record(Day(10), late, &[(alice.id, 1_000)]).unwrap();
        store.record(Day(12), late, &[(alice.id, 10_000)]).unwrap();
        for (since, used) in [(0, 11_250), (10, 11_250), (11, 10_000), (12, 10_000), (13, 0)] {
            assert_eq!(store.used(alice.id, Day(since)..=Day(13)), Ok(used));
        }
        // A clock that was ahead does not count against the days that come.
        assert_eq!(store.used(alice.id, Day(10)..=Day(11)), Ok(1_250));
        assert_eq!(store.used(bob.id, ALL_DAYS), Ok(7));
    }
}

#[test]
fn what_others_change_is_noticed_and_what_is_done_here_is_not() {
    for open in STORES {
        let mut opened = open();
        let Some(mut other) = opened.other.take() else {
            continue;
        };
        let store = &mut opened.store;
        let before = store.changes().unwrap();
        store.add(&user(1, "alice")).unwrap();
        assert_eq!(store.changes().unwrap(), before);
        other
            .change("alice", &mut |user| user.is_disabled = true)
            .unwrap();
        assert_ne!(store.changes().unwrap(), before);
        assert!(store.users().unwrap()[0].is_disabled);
    }
}
