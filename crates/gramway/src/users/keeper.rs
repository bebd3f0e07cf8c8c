//! Keeps what a running server knows of its users and what the store has of them the same: a thread of its own, because
//! disks take their time.
//!
//! Every half second it counts what users have moved, looks whether a command has changed somebody, and says in the
//! accounts who may do nothing (any more); every five seconds it records what was used. Where the store fails, it tells
//! so once and goes on with what it knows: nobody who is here is affected, and nothing counted is forgotten. So it does
//! where another file is put in the place of the database, whose log would be taken for that one's. It also tells of a
//! store that is slow, and of a clock that jumps, because ends and quotas go by the clock.

mod clock;
mod damaged;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use store::{Day, Epoch, Sqlite, Store, StoreError};
use tunnel_proto::{Exclusion, User, UserId};

use self::clock::ClockWatch;
use self::damaged::Damaged;
use super::register::{Member, Register};
use super::{FILE, open, problem, unix_now};
use crate::exit::Problem;
use crate::limits::{
    STORE_SLOW, UNRECORDED_DAYS_MAX, USAGE_RECORD_INTERVAL, USERS_CHECK_INTERVAL, USERS_FOLLOW_LIMIT,
};
use crate::log;
use crate::server_state::random;
use crate::state::StateDirectory;

/// What the thread works with.
pub(crate) struct Keeper {
    directory: StateDirectory,
    register: Arc<Register>,
    store: Option<Box<dyn Store>>,
    /// The inode of the store's file.
    inode: Option<u64>,
    /// What was found instead of a store, and is still in its place.
    damaged: Option<Damaged>,
    /// Of the store, when it was read last. None: it is to be read.
    changes: Option<u64>,
    accounts: BTreeMap<UserId, Accounted>,
    day: Day,
    epoch: Epoch,
    /// What was used before this epoch and could not be recorded.
    earlier: Vec<Due>,
    /// Whether also what was recorded is recorded again.
    is_everything_due: bool,
    record_due: Instant,
    /// What was told of the store, which fails.
    trouble: Option<String>,
    /// It was told that the store is slow.
    is_slow: bool,
    clock: ClockWatch,
}

/// One user's account, and what the store has of it.
struct Accounted {
    member: Member,
    /// Bytes of the account that are counted.
    seen: u64,
    /// Bytes in this epoch.
    in_epoch: u64,
    /// Those that the store has.
    recorded: u64,
}

/// Use of one epoch that is to be recorded.
struct Due {
    day: Day,
    epoch: Epoch,
    used: Vec<Unrecorded>,
}

/// One user's.
struct Unrecorded {
    user: store::UserId,
    /// Bytes.
    in_epoch: u64,
    /// Those of them that the store has not.
    missing: u64,
}

impl Keeper {
    /// Reads the users before the server listens. A damaged database lets nobody in; it stays where it is until
    /// [`Running::set_damaged_aside`], because this process may still fail, and another one may serve.
    ///
    /// # Errors
    /// It cannot be opened although it is whole.
    pub(crate) fn load(directory: &StateDirectory) -> Result<Self, Problem> {
        let now = unix_now();
        let mut keeper = Self {
            directory: directory.clone(),
            register: Arc::default(),
            store: None,
            inode: None,
            damaged: None,
            changes: None,
            accounts: BTreeMap::new(),
            day: Day::of(now),
            epoch: new_epoch()?,
            earlier: Vec::new(),
            is_everything_due: false,
            record_due: Instant::now(),
            trouble: None,
            is_slow: false,
            clock: ClockWatch::default(),
        };
        if !directory.has_secret(FILE)? {
            return Ok(keeper);
        }
        let read = Sqlite::open(&directory.file(FILE)).and_then(|store| {
            keeper.store = Some(Box::new(store));
            keeper.inode = inode(directory);
            keeper.read(now)
        });
        match read {
            Ok(()) => Ok(keeper),
            Err(StoreError::Damaged(what)) => {
                (keeper.store, keeper.inode) = (None, None);
                keeper.damaged = Some(Damaged::found(directory, what));
                Ok(keeper)
            }
            Err(error) => Err(problem(directory, &error)),
        }
    }

    /// Sets aside what was damaged when it was loaded. What to tell.
    fn set_damaged_aside(&mut self, unix_now: u64) -> Result<Option<String>, Problem> {
        let damaged = self.damaged.take();
        damaged.map_or(Ok(None), |damaged| damaged.set_aside(&self.directory, unix_now))
    }

    /// The users, for shards and `status`.
    pub(crate) fn register(&self) -> Arc<Register> {
        Arc::clone(&self.register)
    }

    /// Starts the thread, which ends with what is returned.
    pub(crate) fn start(mut self) -> Result<Running, Problem> {
        let (orders, ordered) = mpsc::channel();
        let work = move || {
            loop {
                let first = ordered.recv_timeout(USERS_CHECK_INTERVAL).ok();
                // One look is for all who have asked before it. They hear of it when these are dropped.
                let orders: Vec<_> = first.into_iter().chain(ordered.try_iter()).collect();
                if orders.iter().any(|order| matches!(order, Order::SetAside { .. })) {
                    match self.set_damaged_aside(unix_now()) {
                        Ok(None) => {}
                        Ok(Some(told)) => log::warning("users_database", told),
                        Err(problem) => log::warning("users_database", problem.to_string()),
                    }
                }
                let is_over = orders.iter().any(|order| matches!(order, Order::End));
                self.turn(Instant::now(), unix_now(), is_over);
                if is_over {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("users".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Problem::unavailable(format!("no thread for users: {error}")))?;
        Ok(Running {
            orders,
            thread: Some(thread),
        })
    }

    /// One look at accounts, store and clock.
    fn turn(&mut self, now: Instant, unix_now: u64, is_last: bool) {
        self.count();
        if let Some(told) = self.clock.look(now, unix_now) {
            log::line("clock", &told);
        }
        let begun = Instant::now();
        let done = self.follow_store(now, unix_now, is_last);
        if let Some(told) = self.judge_speed(begun.elapsed()) {
            log::line("users_database", &told);
        }
        for account in self.accounts.values() {
            account.member.judge(unix_now);
        }
        let used = self
            .accounts
            .iter()
            .map(|(id, account)| (*id, account.member.used));
        self.register.set_used(used);
        match done {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    log::info("users_database", "the users' database can be used again");
                }
            }
            Err(text) if self.trouble.as_ref() != Some(&text) => {
                log::warning(
                    "users_database",
                    format!("{text}; users who are known are served on, changes wait"),
                );
                self.trouble = Some(text);
            }
            Err(_) => {}
        }
    }

    /// What to tell of a store that took so long.
    fn judge_speed(&mut self, took: Duration) -> Option<String> {
        let is_slow = took >= STORE_SLOW;
        let is_news = is_slow && !self.is_slow;
        self.is_slow = is_slow;
        is_news.then(|| {
            format!(
                "warning: {} took {:.1} s to answer; users who are known are served on, changes wait",
                self.directory.file(FILE).display(),
                took.as_secs_f64()
            )
        })
    }

    /// Adds up what was moved since the last time.
    fn count(&mut self) {
        for account in self.accounts.values_mut() {
            let bytes = account.member.account.bytes();
            let more = bytes.saturating_sub(account.seen);
            account.seen = bytes;
            account.in_epoch += more;
            account.member.used += more;
        }
    }

    /// Records what is due, and reads what others have changed.
    fn follow_store(&mut self, now: Instant, unix_now: u64, is_last: bool) -> Result<(), String> {
        if !self.has_store()? {
            return Ok(());
        }
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let tell = |error: StoreError| problem(&self.directory, &error).to_string();
        let has_changed = self.changes != Some(store.changes().map_err(tell)?);
        let is_new_day = Day::of(unix_now) != self.day;
        // A copy that was put back may lack what this run has recorded; what is there is not recorded twice.
        self.is_everything_due |= has_changed;
        let is_due = now >= self.record_due || has_changed || is_new_day || is_last;
        let recorded = if is_due { self.record() } else { Ok(()) };
        if is_due && recorded.is_ok() {
            self.record_due = now + USAGE_RECORD_INTERVAL;
        }
        if is_new_day {
            self.begin_day(Day::of(unix_now))
                .map_err(|problem| problem.to_string())?;
        }
        // Also where nothing can be written: who was removed is not let in because a disk is full.
        let read = if has_changed || is_new_day {
            self.read(unix_now)
        } else {
            Ok(())
        };
        recorded
            .and(read)
            .map_err(|error| problem(&self.directory, &error).to_string())
    }

    /// Whether there is a database; one that was made meanwhile is opened.
    fn has_store(&mut self) -> Result<bool, String> {
        if self.damaged.is_some() {
            return Ok(false);
        }
        let path = self.directory.file(FILE);
        match (self.inode, inode(&self.directory)) {
            (None, None) => Ok(false),
            (None, Some(found)) => {
                let opened = open(&self.directory).map_err(|problem| problem.to_string())?;
                (self.store, self.inode) = (opened.map(|store| Box::new(store) as _), Some(found));
                Ok(self.store.is_some())
            }
            // Nobody is removed with it.
            (Some(_), None) => Err(format!("{} is gone", path.display())),
            (Some(known), Some(found)) if known == found => Ok(true),
            (Some(_), Some(_)) => Err(format!(
                "{} was replaced while the server runs, which records no use until it is restarted (a copy is put back \
                 by: gramway user restore FILE)",
                path.display()
            )),
        }
    }

    /// What was counted until here belongs to the day before.
    fn begin_day(&mut self, day: Day) -> Result<(), Problem> {
        let epoch = new_epoch()?;
        let used = self.unrecorded(false);
        if !used.is_empty() {
            if self.earlier.len() == UNRECORDED_DAYS_MAX {
                self.earlier.remove(0);
            }
            self.earlier.push(Due {
                day: self.day,
                epoch: self.epoch,
                used,
            });
        }
        (self.day, self.epoch, self.changes) = (day, epoch, None);
        for account in self.accounts.values_mut() {
            (account.in_epoch, account.recorded) = (0, 0);
        }
        Ok(())
    }

    /// What users have used in this epoch, where the store has less, or where everything is due.
    fn unrecorded(&self, everything: bool) -> Vec<Unrecorded> {
        let accounts = self.accounts.iter();
        accounts
            .filter(|(_, account)| account.in_epoch > account.recorded || everything && account.in_epoch > 0)
            .map(|(id, account)| Unrecorded {
                user: store::UserId(id.0),
                in_epoch: account.in_epoch,
                missing: account.in_epoch - account.recorded,
            })
            .collect()
    }

    fn record(&mut self) -> Result<(), StoreError> {
        let now = Due {
            day: self.day,
            epoch: self.epoch,
            used: self.unrecorded(self.is_everything_due),
        };
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        for due in self.earlier.iter().chain([&now]) {
            let used: Vec<_> = due.used.iter().map(|used| (used.user, used.in_epoch)).collect();
            if !used.is_empty() {
                store.record(due.day, due.epoch, &used)?;
            }
        }
        self.earlier.clear();
        self.is_everything_due = false;
        for account in self.accounts.values_mut() {
            account.recorded = account.in_epoch;
        }
        Ok(())
    }

    /// Takes over everything that the store has. What was counted and is not recorded counts besides.
    fn read(&mut self, unix_now: u64) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        // Before the users: what changes while they are read is read again.
        let changes = store.changes()?;
        let mut found = Vec::new();
        for kept in store.users()? {
            let since = kept
                .quota
                .map_or(Day::FIRST, |quota| quota.period.first_day(self.day));
            let days = since..=self.day;
            let earlier = self.earlier.iter().filter(|due| days.contains(&due.day));
            let missing = earlier.flat_map(|due| due.used.iter().filter(|used| used.user == kept.id));
            let missing: u64 = missing.map(|used| used.missing).sum();
            let used = store.used(kept.id, days)? + missing;
            found.push((kept, used));
        }
        let mut accounts = BTreeMap::new();
        for (kept, used) in found {
            let id = UserId(kept.id.0);
            let mut account = self
                .accounts
                .remove(&id)
                .unwrap_or_else(|| Accounted::new(kept.clone()));
            if let Some(reason) = replaced(&account.member.kept, &kept) {
                // A connection keeps what it was granted, so it ends. What it still moves, for a second or two, is not
                // counted.
                account.member.account.exclude(Some(reason));
                (account.member.account, account.seen) = (User::new(id), 0);
            }
            let unrecorded = account.in_epoch - account.recorded;
            (account.member.kept, account.member.used) = (kept, used + unrecorded);
            account.member.judge(unix_now);
            accounts.insert(id, account);
        }
        for gone in std::mem::replace(&mut self.accounts, accounts).into_values() {
            gone.member.account.exclude(Some(Exclusion::Removed));
        }
        let members = self
            .accounts
            .iter()
            .map(|(id, account)| (*id, account.member.clone()));
        self.register.replace(members.collect());
        self.changes = Some(changes);
        Ok(())
    }
}

/// Why nothing that was granted to a user before holds for what it is now; `None` where it does.
fn replaced(before: &store::User, now: &store::User) -> Option<Exclusion> {
    if before.token_digest != now.token_digest {
        return Some(Exclusion::TokenReplaced);
    }
    let terms = |user: &store::User| (user.rights, user.reach.clone(), user.listen.clone());
    (terms(before) != terms(now)).then_some(Exclusion::TermsChanged)
}

impl Accounted {
    fn new(kept: store::User) -> Self {
        let account = User::new(UserId(kept.id.0));
        Self {
            member: Member {
                kept,
                account,
                used: 0,
            },
            seen: 0,
            in_epoch: 0,
            recorded: 0,
        }
    }
}

/// What the thread is asked for besides its regular looks.
enum Order {
    /// A look, now. Whoever waits hears of it when this is dropped.
    Look {
        _done: mpsc::Sender<()>,
    },
    /// A damaged database is out of the way before the look.
    SetAside {
        _done: mpsc::Sender<()>,
    },
    End,
}

/// The keeper's thread. Dropping it records what was used, and ends it.
pub(crate) struct Running {
    orders: mpsc::Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn follower(&self) -> Follower {
        Follower(self.orders.clone())
    }

    /// To be called once nothing but this process serves: a damaged database is set aside, which is told.
    pub(crate) fn set_damaged_aside(&self) {
        let (done, is_done) = mpsc::channel();
        let _ = self.orders.send(Order::SetAside { _done: done });
        let _ = is_done.recv_timeout(USERS_FOLLOW_LIMIT);
    }
}

/// Has the keeper look at the database at once.
#[derive(Clone)]
pub(crate) struct Follower(mpsc::Sender<Order>);

impl Follower {
    /// Returns when a look that began after the call is over; `false` if that takes longer than [`USERS_FOLLOW_LIMIT`].
    pub(crate) fn look(&self) -> bool {
        let (done, is_done) = mpsc::channel();
        let _ = self.0.send(Order::Look { _done: done });
        is_done.recv_timeout(USERS_FOLLOW_LIMIT) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::End);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            let _ = thread.join();
        }
    }
}

fn inode(directory: &StateDirectory) -> Option<u64> {
    let metadata = std::fs::metadata(directory.file(FILE)).ok()?;
    Some(metadata.ino())
}

fn new_epoch() -> Result<Epoch, Problem> {
    Ok(Epoch(u64::from_be_bytes(random()?)))
}

#[cfg(test)]
mod tests;
