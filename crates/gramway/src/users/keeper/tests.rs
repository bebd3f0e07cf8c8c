//! The keeper in virtual time: what commands change, what is counted, and a store that fails.

use std::ops::RangeInclusive;
use std::time::Duration;

use store::{Period, Quota, Rights};
use tempfile::TempDir;
use tunnel::config::KnownUsers;
use tunnel_proto::{Credentials, Token};

use super::super::register::token_digest;
use super::*;
use crate::test_support::state_directory;

const DAY_SECONDS: u64 = 86_400;

struct World {
    _guard: TempDir,
    directory: StateDirectory,
    /// What commands use.
    other: Sqlite,
    keeper: Keeper,
    now: Instant,
    unix_now: u64,
}

fn token(number: u8) -> Token {
    Token::from_bytes([number; 32])
}

fn user(number: u8, name: &str) -> store::User {
    let token = token(number);
    store::User {
        id: store::UserId([number; 16]),
        name: name.to_owned(),
        token_digest: token_digest(&token.reveal()),
        front_door_key: token.user_key().to_bytes(),
        created: 0,
        expires: None,
        quota: None,
        rights: Rights {
            udp: true,
            tcp: false,
            ip: true,
        },
        is_disabled: false,
    }
}

impl World {
    /// With Alice and Bob.
    fn new() -> Self {
        let (guard, directory) = state_directory();
        directory.create().unwrap();
        let mut other = Sqlite::create(&directory.file(FILE)).unwrap();
        other.add(&user(1, "alice")).unwrap();
        other.add(&user(2, "bob")).unwrap();
        let (keeper, warning) = Keeper::load(&directory).unwrap();
        assert_eq!(warning, None);
        Self {
            _guard: guard,
            directory,
            other,
            now: Instant::now(),
            unix_now: keeper.day.begin() + 100,
            keeper,
        }
    }

    /// Half a second later.
    fn turn(&mut self) {
        self.now += USERS_CHECK_INTERVAL;
        self.keeper.turn(self.now, self.unix_now, false);
    }

    /// The account that a token stands for.
    fn account(&self, number: u8) -> Option<User> {
        let register = self.keeper.register();
        let grant = register.grant(&Credentials::Token(&token(number).reveal()))?;
        assert!(grant.rights.udp && !grant.rights.tcp && grant.rights.ip);
        Some(grant.user)
    }

    fn used(&mut self, number: u8) -> u64 {
        self.other
            .used(
                store::UserId([number; 16]),
                Day::FIRST..=Day::of(self.unix_now + DAY_SECONDS),
            )
            .unwrap()
    }

    fn change(&mut self, name: &str, mut edit: impl FnMut(&mut store::User)) {
        self.other.change(name, &mut edit).unwrap();
        self.turn();
    }
}

#[test]
fn what_a_command_changes_holds_at_the_next_turn_for_this_user_alone() {
    let mut world = World::new();
    let [alice, bob] = [1, 2].map(|number| world.account(number).unwrap());
    world.change("alice", |user| user.is_disabled = true);
    assert_eq!(alice.exclusion(), Some(Exclusion::Disabled));
    world.change("alice", |user| user.is_disabled = false);
    assert_eq!(alice.exclusion(), None);
    world.other.add(&user(3, "carol")).unwrap();
    assert!(world.account(3).is_none());
    world.turn();
    assert!(world.account(3).is_some());
    world.other.remove("alice").unwrap();
    world.turn();
    assert_eq!(alice.exclusion(), Some(Exclusion::Removed));
    assert!(world.account(1).is_none());
    assert_eq!(
        world.keeper.register().name(alice.id()),
        "alice",
        "its end is still to be told"
    );
    assert_eq!(bob.exclusion(), None);
    assert!(world.account(4).is_none());
}

#[test]
fn who_came_with_a_former_token_goes_and_its_use_stays() {
    let mut world = World::new();
    let former = world.account(1).unwrap();
    former.add_bytes(500);
    let new = token(9);
    world.change("alice", |user| {
        user.token_digest = token_digest(&new.reveal());
        user.front_door_key = new.user_key().to_bytes();
    });
    assert_eq!(former.exclusion(), Some(Exclusion::TokenReplaced));
    assert!(world.account(1).is_none());
    let account = world.account(9).unwrap();
    assert_eq!((account.exclusion(), account.id()), (None, former.id()));
    account.add_bytes(20);
    world.now += USAGE_RECORD_INTERVAL;
    world.turn();
    assert_eq!(world.used(1), 520);
    let register = world.keeper.register();
    assert!(register.key(&token(1).user_key().sid).is_none());
    assert!(register.key(&new.user_key().sid) == Some(new.user_key()));
}

#[test]
fn use_is_recorded_every_five_seconds_and_counts_against_the_quota_until_its_period_is_over() {
    let mut world = World::new();
    world.change("alice", |user| {
        user.quota = Some(Quota {
            bytes: 1_000,
            period: Period::Day,
        });
    });
    let alice = world.account(1).unwrap();
    alice.add_bytes(900);
    world.turn();
    assert_eq!((alice.exclusion(), world.used(1)), (None, 0));
    alice.add_bytes(100);
    world.now += USAGE_RECORD_INTERVAL;
    world.turn();
    assert_eq!(
        (alice.exclusion(), world.used(1)),
        (Some(Exclusion::QuotaReached), 1_000)
    );
    // More of it helps at once.
    world.change("alice", |user| {
        user.quota = Some(Quota {
            bytes: 2_000,
            period: Period::Day,
        });
    });
    assert_eq!(alice.exclusion(), None);
    alice.add_bytes(1_500);
    world.turn();
    assert_eq!(alice.exclusion(), Some(Exclusion::QuotaReached));
    world.unix_now += DAY_SECONDS;
    world.turn();
    assert_eq!((alice.exclusion(), world.used(1)), (None, 2_500));
    // A clock that goes back finds the day as it was.
    alice.add_bytes(7);
    world.unix_now -= DAY_SECONDS;
    world.turn();
    assert_eq!(
        (alice.exclusion(), world.used(1)),
        (Some(Exclusion::QuotaReached), 2_507)
    );
}

#[test]
fn a_user_expires_by_the_clock() {
    let mut world = World::new();
    let ends = world.unix_now + 10;
    world.change("alice", |user| user.expires = Some(ends));
    let alice = world.account(1).unwrap();
    assert_eq!(alice.exclusion(), None);
    world.unix_now = ends;
    world.turn();
    assert_eq!(alice.exclusion(), Some(Exclusion::Expired));
    world.change("alice", |user| user.expires = Some(ends + 10));
    assert_eq!(alice.exclusion(), None);
}

#[test]
fn another_start_goes_on_counting_where_the_last_one_was_killed() {
    let mut world = World::new();
    world.account(1).unwrap().add_bytes(300);
    world.now += USAGE_RECORD_INTERVAL;
    world.turn();
    world.account(1).unwrap().add_bytes(40);
    let (keeper, _) = Keeper::load(&world.directory).unwrap();
    // What was not recorded is lost with the process; nothing is counted twice.
    world.keeper = keeper;
    world.account(1).unwrap().add_bytes(1_000);
    world.keeper.turn(world.now, world.unix_now, true);
    assert_eq!(world.used(1), 1_300);
}

#[test]
fn a_copy_that_is_put_in_the_place_of_the_database_is_followed() {
    let mut world = World::new();
    let alice = world.account(1).unwrap();
    alice.add_bytes(100);
    world.keeper.turn(world.now, world.unix_now, true);
    let path = world.directory.file(FILE);
    let copy = world.directory.file("copy");
    drop(std::mem::replace(
        &mut world.other,
        Sqlite::create(&copy).unwrap(),
    ));
    world.other.add(&user(1, "alice")).unwrap();
    let away = world.directory.file("away");
    std::fs::rename(&path, &away).unwrap();
    world.turn();
    assert!(world.account(2).is_some(), "where there is none, nothing changes");
    let gone = format!("{} is gone", path.display());
    assert_eq!(world.keeper.trouble, Some(gone), "and that is told");
    std::fs::rename(&away, &path).unwrap();
    world.turn();
    assert_eq!(world.keeper.trouble, None);
    // The log, in which Bob is, stays where it is.
    assert!(
        std::fs::metadata(world.directory.file("users.db-wal"))
            .unwrap()
            .len()
            > 0
    );
    drop(std::mem::replace(
        &mut world.other,
        Sqlite::create(&world.directory.file("none")).unwrap(),
    ));
    std::fs::rename(&copy, &path).unwrap();
    world.turn();
    assert_eq!((alice.exclusion(), world.account(2).is_none()), (None, true));
    world.other = Sqlite::open(&path).unwrap();
    assert_eq!(world.used(1), 100, "what this run has counted is recorded again");
}

/// A database on a full disk.
struct Full(Sqlite);

impl Store for Full {
    fn users(&mut self) -> Result<Vec<store::User>, StoreError> {
        self.0.users()
    }
    fn add(&mut self, _: &store::User) -> Result<(), StoreError> {
        Err(StoreError::Full)
    }
    fn change(&mut self, _: &str, _: &mut dyn FnMut(&mut store::User)) -> Result<store::User, StoreError> {
        Err(StoreError::Full)
    }
    fn remove(&mut self, _: &str) -> Result<(), StoreError> {
        Err(StoreError::Full)
    }
    fn record(&mut self, _: Day, _: Epoch, _: &[(store::UserId, u64)]) -> Result<(), StoreError> {
        Err(StoreError::Full)
    }
    fn used(&mut self, user: store::UserId, days: RangeInclusive<Day>) -> Result<u64, StoreError> {
        self.0.used(user, days)
    }
    fn changes(&mut self) -> Result<u64, StoreError> {
        self.0.changes()
    }
}

#[test]
fn a_store_that_fails_affects_nobody_and_forgets_nothing() {
    let mut world = World::new();
    world.turn();
    let alice = world.account(1).unwrap();
    let full = Full(Sqlite::open(&world.directory.file(FILE)).unwrap());
    let store = world.keeper.store.replace(Box::new(full));
    alice.add_bytes(100);
    for _ in 0..3 {
        world.unix_now += DAY_SECONDS;
        world.turn();
    }
    let told = world.keeper.trouble.clone().unwrap();
    assert!(told.ends_with("users.db: the disk is full"), "{told}");
    assert_eq!(alice.exclusion(), None);
    assert!(world.account(1).is_some());
    alice.add_bytes(50);
    // What others could change there holds, and what is not recorded counts.
    world.change("alice", |user| {
        user.quota = Some(Quota {
            bytes: 150,
            period: Period::Total,
        });
    });
    assert_eq!(alice.exclusion(), Some(Exclusion::QuotaReached));
    world.change("alice", |user| user.is_disabled = true);
    assert_eq!(alice.exclusion(), Some(Exclusion::Disabled));
    world.keeper.store = store;
    world.turn();
    assert_eq!((world.keeper.trouble.clone(), world.used(1)), (None, 150));
}

#[test]
fn a_damaged_database_is_set_aside_and_lets_nobody_in() {
    let mut world = World::new();
    world.keeper.store = None;
    drop(std::mem::replace(
        &mut world.other,
        Sqlite::create(&world.directory.file("other.db")).unwrap(),
    ));
    let garbage = vec![0x5a; 20_000];
    std::fs::write(world.directory.file(FILE), &garbage).unwrap();
    let (keeper, warning) = Keeper::load(&world.directory).unwrap();
    let warning = warning.unwrap();
    assert!(
        warning.contains("is damaged") && warning.contains("users are refused"),
        "{warning}"
    );
    world.keeper = keeper;
    assert!(world.account(1).is_none());
    let name = warning
        .split("is kept as ")
        .nth(1)
        .and_then(|rest| rest.split(':').next())
        .unwrap();
    assert_eq!(std::fs::read(world.directory.file(name)).unwrap(), garbage);
    assert!(!world.directory.file(FILE).exists());
    // Whoever is added again comes in.
    Sqlite::create(&world.directory.file(FILE))
        .unwrap()
        .add(&user(1, "alice"))
        .unwrap();
    world.turn();
    assert!(world.account(1).is_some());
}

#[test]
fn a_database_that_others_may_read_stops_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let path = world.directory.file(FILE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let problem = Keeper::load(&world.directory).err().unwrap();
    assert!(problem.to_string().contains("chmod 600"), "{problem}");
}

#[test]
fn the_thread_records_at_its_end() {
    let mut world = World::new();
    let account = world.account(1).unwrap();
    let (keeper, _) = Keeper::load(&world.directory).unwrap();
    let register = keeper.register();
    let running = std::mem::replace(&mut world.keeper, keeper).start().unwrap();
    account.add_bytes(77);
    drop(running);
    assert_eq!(world.used(1), 77);
    assert_eq!(register.name(account.id()), "alice");
    assert!(USERS_CHECK_INTERVAL < Duration::from_secs(1));
}
