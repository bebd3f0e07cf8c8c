//! The keeper in virtual time: what commands change, what is counted, and a store that fails.

use std::ops::RangeInclusive;
use std::time::Duration;

use store::{Period, Quota, Rights, Snapshot};
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
        bits_per_second: None,
        rights: Rights {
            udp: true,
            tcp: false,
            ip: true,
        },
        reach: Vec::new(),
        listen: Vec::new(),
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
        let keeper = Keeper::load(&directory).unwrap();
        assert!(keeper.damaged.is_none());
        Self {
            _guard: guard,
            directory,
            other,
            now: Instant::now(),
            unix_now: keeper.day.begin() + 100,
            keeper,
        }
    }

    /// One whose database was damaged before its keeper read it, and what is in the file.
    fn damaged() -> (Self, Vec<u8>) {
        let mut world = Self::new();
        world.keeper.store = None;
        drop(std::mem::replace(
            &mut world.other,
            Sqlite::create(&world.directory.file("other.db")).unwrap(),
        ));
        let garbage = vec![0x5a; 20_000];
        std::fs::write(world.directory.file(FILE), &garbage).unwrap();
        world.keeper = Keeper::load(&world.directory).unwrap();
        (world, garbage)
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

/// On the thread, whose looks by itself come half a second apart.
#[test]
fn after_a_look_that_was_asked_for_everything_changed_before_is_known() {
    let World {
        _guard,
        mut other,
        keeper,
        ..
    } = World::new();
    let register = keeper.register();
    let running = keeper.start().unwrap();
    let follower = running.follower();
    for number in 3..20 {
        other.add(&user(number, &format!("user-{number}"))).unwrap();
        // A slow disk may take longer than one call waits.
        while !follower.look() {}
        let granted = register.grant(&Credentials::Token(&token(number).reveal()));
        assert!(granted.is_some());
    }
    drop(running);
    assert!(follower.look(), "nobody waits for a thread that has ended");
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

/// A copy that is put back may have it so.
#[test]
fn who_may_reach_or_use_something_else_loses_its_connections_and_keeps_its_use() {
    let mut world = World::new();
    let edits: [fn(&mut store::User); 2] = [
        |user| user.reach = vec!["10.0.0.0/8".to_owned()],
        |user| user.rights.ip = false,
    ];
    for edit in edits {
        let former = world.account(1).unwrap();
        former.add_bytes(500);
        world.change("alice", edit);
        assert_eq!(former.exclusion(), Some(Exclusion::TermsChanged));
        let register = world.keeper.register();
        let grant = register.grant(&Credentials::Token(&token(1).reveal())).unwrap();
        assert_eq!(grant.user.exclusion(), None);
        assert!(!grant.reach.covers("192.0.2.1:80".parse().unwrap()));
        // The rest of a change leaves connections alone.
        world.change("alice", |user| user.bits_per_second = Some(1_000_000));
        assert_eq!(grant.user.exclusion(), None);
        if grant.rights.ip {
            assert_eq!(world.account(1).unwrap().id(), former.id());
        }
    }
    assert_eq!(world.keeper.accounts[&UserId([1; 16])].member.used, 1_000);
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
    let keeper = Keeper::load(&world.directory).unwrap();
    // What was not recorded is lost with the process; nothing is counted twice.
    world.keeper = keeper;
    world.account(1).unwrap().add_bytes(1_000);
    world.keeper.turn(world.now, world.unix_now, true);
    assert_eq!(world.used(1), 1_300);
}

#[test]
fn a_copy_that_is_put_back_is_followed_and_gets_what_this_run_has_counted() {
    let mut world = World::new();
    let [alice, bob] = [1, 2].map(|number| world.account(number).unwrap());
    let copy = world.directory.file("copy");
    std::fs::write(&copy, world.other.copy().unwrap()).unwrap();
    world.change("alice", |user| user.is_disabled = true);
    world.other.remove("bob").unwrap();
    alice.add_bytes(100);
    world.keeper.turn(world.now, world.unix_now, true);
    assert_eq!(
        (alice.exclusion(), bob.exclusion(), world.used(1)),
        (Some(Exclusion::Disabled), Some(Exclusion::Removed), 100)
    );
    world.other.restore(&Snapshot::read(&copy).unwrap()).unwrap();
    assert_eq!(world.used(1), 0);
    world.turn();
    assert_eq!((alice.exclusion(), world.used(1)), (None, 100));
    assert!(world.account(2).is_some());
}

#[test]
fn another_file_in_the_place_of_the_database_is_told_and_left_alone() {
    let mut world = World::new();
    let path = world.directory.file(FILE);
    let [copy, away] = ["copy", "away"].map(|name| world.directory.file(name));
    std::fs::write(&copy, world.other.copy().unwrap()).unwrap();
    world.other.remove("bob").unwrap();
    world.turn();
    std::fs::rename(&path, &away).unwrap();
    world.turn();
    let gone = format!("{} is gone", path.display());
    assert_eq!(world.keeper.trouble, Some(gone));
    std::fs::copy(&copy, &path).unwrap();
    let alice = world.account(1).unwrap();
    alice.add_bytes(100);
    let bytes = std::fs::read(&path).unwrap();
    for is_last in [false, true] {
        world.now += USAGE_RECORD_INTERVAL;
        world.keeper.turn(world.now, world.unix_now, is_last);
        let told = world.keeper.trouble.clone().unwrap();
        assert!(told.contains("was replaced while the server runs"), "{told}");
    }
    assert_eq!(alice.exclusion(), None);
    assert!(world.account(2).is_none());
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    // Back in its place it is as it was.
    std::fs::rename(&away, &path).unwrap();
    world.turn();
    assert_eq!((world.keeper.trouble.clone(), world.used(1)), (None, 100));
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

/// A database on a disk that answers when the test lets it.
struct Slow {
    store: Sqlite,
    asked: mpsc::Sender<()>,
    answers: mpsc::Receiver<()>,
}

impl Slow {
    fn wait(&self) {
        let _ = self.asked.send(());
        // At once where the test has nothing against it any more.
        let _ = self.answers.recv();
    }
}

impl Store for Slow {
    fn users(&mut self) -> Result<Vec<store::User>, StoreError> {
        self.wait();
        self.store.users()
    }
    fn add(&mut self, user: &store::User) -> Result<(), StoreError> {
        self.wait();
        self.store.add(user)
    }
    fn change(
        &mut self,
        name: &str,
        edit: &mut dyn FnMut(&mut store::User),
    ) -> Result<store::User, StoreError> {
        self.wait();
        self.store.change(name, edit)
    }
    fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        self.wait();
        self.store.remove(name)
    }
    fn record(&mut self, day: Day, epoch: Epoch, used: &[(store::UserId, u64)]) -> Result<(), StoreError> {
        self.wait();
        self.store.record(day, epoch, used)
    }
    fn used(&mut self, user: store::UserId, days: RangeInclusive<Day>) -> Result<u64, StoreError> {
        self.wait();
        self.store.used(user, days)
    }
    fn changes(&mut self) -> Result<u64, StoreError> {
        self.wait();
        self.store.changes()
    }
}

#[test]
fn a_store_that_takes_its_time_keeps_nobody_waiting() {
    let mut world = World::new();
    world.turn();
    let [alice, bob] = [1, 2].map(|number| world.account(number).unwrap());
    let (asked, is_asked) = mpsc::channel();
    let (answers_now, answers) = mpsc::channel::<()>();
    world.keeper.store = Some(Box::new(Slow {
        store: Sqlite::open(&world.directory.file(FILE)).unwrap(),
        asked,
        answers,
    }));
    world
        .other
        .change("alice", &mut |user| user.is_disabled = true)
        .unwrap();
    let idle = Keeper::load(&world.directory).unwrap();
    let keeper = std::mem::replace(&mut world.keeper, idle);
    let register = keeper.register();
    let running = keeper.start().unwrap();
    let limit = Duration::from_secs(30);
    is_asked.recv_timeout(limit).unwrap();
    // The store has not answered yet.
    for number in [1, 2] {
        let granted = register.grant(&Credentials::Token(&token(number).reveal()));
        assert_eq!(granted.unwrap().user.exclusion(), None);
    }
    assert_eq!(register.name(bob.id()), "bob");
    drop(answers_now);
    let deadline = Instant::now() + limit;
    while alice.exclusion() != Some(Exclusion::Disabled) {
        assert!(
            Instant::now() < deadline,
            "the change holds once the store answers"
        );
        thread::yield_now();
    }
    assert_eq!(bob.exclusion(), None);
    drop(running);
}

#[test]
fn a_slow_store_is_told_once_until_it_is_quick_again() {
    let mut keeper = World::new().keeper;
    let told = keeper.judge_speed(Duration::from_secs(5)).unwrap();
    assert!(
        told.contains("users.db took 5.0 s to answer; users who are known"),
        "{told}"
    );
    assert_eq!(keeper.judge_speed(Duration::from_secs(6)), None);
    assert_eq!(keeper.judge_speed(Duration::from_millis(5)), None);
    assert!(keeper.judge_speed(STORE_SLOW).is_some());
}

#[test]
fn a_clock_that_jumps_ends_nobody_but_those_whose_time_is_over_by_it() {
    let mut world = World::new();
    let end = world.unix_now + DAY_SECONDS;
    world.change("alice", |user| user.expires = Some(end));
    world.change("bob", |user| {
        user.quota = Some(Quota {
            bytes: 1_000,
            period: Period::Month,
        });
    });
    let [alice, bob] = [1, 2].map(|number| world.account(number).unwrap());
    bob.add_bytes(400);
    for (jump, is_over) in [(400, true), (-800, false), (400, false)] {
        world.unix_now = world
            .unix_now
            .saturating_add_signed(jump * DAY_SECONDS.cast_signed());
        world.turn();
        let expected = is_over.then_some(Exclusion::Expired);
        assert_eq!(
            (alice.exclusion(), bob.exclusion()),
            (expected, None),
            "{jump} days"
        );
    }
    // What was used before the jumps still counts.
    bob.add_bytes(600);
    world.turn();
    assert_eq!(bob.exclusion(), Some(Exclusion::QuotaReached));
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
fn a_day_ends_also_where_its_use_cannot_be_recorded() {
    let mut world = World::new();
    world.change("alice", |user| {
        user.quota = Some(Quota {
            bytes: 100,
            period: Period::Day,
        });
    });
    let alice = world.account(1).unwrap();
    alice.add_bytes(60);
    world.keeper.turn(world.now, world.unix_now, true);
    let full = Full(Sqlite::open(&world.directory.file(FILE)).unwrap());
    let store = world.keeper.store.replace(Box::new(full));
    alice.add_bytes(40);
    world.turn();
    assert_eq!(alice.exclusion(), Some(Exclusion::QuotaReached));
    let first = Day::of(world.unix_now);
    world.unix_now += DAY_SECONDS;
    world.turn();
    assert_eq!(alice.exclusion(), None);
    alice.add_bytes(99);
    world.turn();
    assert_eq!(alice.exclusion(), None);
    // In all it has used both days', those that are not recorded too.
    world.change("alice", |user| {
        user.quota = Some(Quota {
            bytes: 200,
            period: Period::Total,
        });
    });
    assert_eq!(alice.exclusion(), None);
    alice.add_bytes(1);
    world.turn();
    assert_eq!(alice.exclusion(), Some(Exclusion::QuotaReached));
    world.keeper.store = store;
    world.turn();
    let id = store::UserId([1; 16]);
    assert_eq!(world.other.used(id, first..=first), Ok(100));
    assert_eq!(world.used(1), 200);
}

#[test]
fn a_damaged_database_stays_where_it_is_until_nobody_else_serves_and_lets_nobody_in() {
    let (mut world, garbage) = World::damaged();
    world.turn();
    assert_eq!(world.keeper.trouble, None);
    assert!(world.account(1).is_none());
    assert_eq!(std::fs::read(world.directory.file(FILE)).unwrap(), garbage);
    let warning = world.keeper.set_damaged_aside(world.unix_now).unwrap().unwrap();
    assert!(
        warning.contains("is damaged") && warning.contains("users are refused"),
        "{warning}"
    );
    world.turn();
    assert_eq!(world.keeper.trouble, None, "it was told");
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
fn a_copy_that_was_put_in_the_place_of_a_damaged_database_is_used() {
    let (mut world, _) = World::damaged();
    let copy = world.directory.file("copy.db");
    Sqlite::create(&copy).unwrap().add(&user(1, "alice")).unwrap();
    std::fs::rename(&copy, world.directory.file(FILE)).unwrap();
    assert_eq!(world.keeper.set_damaged_aside(world.unix_now).unwrap(), None);
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
    let keeper = Keeper::load(&world.directory).unwrap();
    let register = keeper.register();
    let running = std::mem::replace(&mut world.keeper, keeper).start().unwrap();
    account.add_bytes(77);
    drop(running);
    assert_eq!(world.used(1), 77);
    assert_eq!(register.name(account.id()), "alice");
    assert!(USERS_CHECK_INTERVAL < Duration::from_secs(1));
}
