//! Keeps what a running server knows of its users and what the store has of them the same: a thread of its own, because
//! disks take their time.
//!
//! Every half second it counts what users have moved, looks whether a command has changed somebody, and says in the
//! accounts who may do nothing (any more); every five seconds it records what was used. Where the store fails, it tells
//! so once and goes on with what it knows: nobody who is here is affected, and nothing counted is forgotten.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use store::{Day, Epoch, Sqlite, Store, StoreError};
use tunnel_proto::{Exclusion, User, UserId};

use super::register::{Member, Register};
use super::{FILE, FILE_SUFFIXES, open, problem, unix_now};
use crate::exit::Problem;
use crate::limits::{USAGE_RECORD_INTERVAL, USERS_CHECK_INTERVAL};
use crate::output;
use crate::server_state::random;
use crate::state::StateDirectory;

/// What the thread works with.
pub(crate) struct Keeper {
    directory: StateDirectory,
    register: Arc<Register>,
    store: Option<Box<dyn Store>>,
    /// The files that are open, by their inodes: others may be put in their place.
    inodes: [Option<u64>; FILE_SUFFIXES.len()],
    /// Of the store, when it was read last.
    changes: Option<u64>,
    accounts: BTreeMap<UserId, Accounted>,
    day: Day,
    epoch: Epoch,
    record_due: Instant,
    /// What was told of the store, which fails.
    trouble: Option<String>,
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

impl Keeper {
    /// Reads the users before the server listens. A damaged database is set aside, which is told; it lets nobody in.
    ///
    /// # Errors
    /// It cannot be opened although it is whole.
    pub(crate) fn load(directory: &StateDirectory) -> Result<(Self, Option<String>), Problem> {
        let now = unix_now();
        let mut keeper = Self {
            directory: directory.clone(),
            register: Arc::default(),
            store: None,
            inodes: [None; FILE_SUFFIXES.len()],
            changes: None,
            accounts: BTreeMap::new(),
            day: Day::of(now),
            epoch: new_epoch()?,
            record_due: Instant::now(),
            trouble: None,
        };
        if !directory.has_secret(FILE)? {
            return Ok((keeper, None));
        }
        let read = Sqlite::open(&directory.file(FILE)).and_then(|store| {
            keeper.store = Some(Box::new(store));
            keeper.inodes = inodes(directory);
            keeper.read(now)
        });
        match read {
            Ok(()) => Ok((keeper, None)),
            Err(StoreError::Damaged(what)) => {
                keeper.store = None;
                let warning = set_aside(directory, &what, now)?;
                Ok((keeper, Some(warning)))
            }
            Err(error) => Err(problem(directory, &error)),
        }
    }

    /// The users, for shards and `status`.
    pub(crate) fn register(&self) -> Arc<Register> {
        Arc::clone(&self.register)
    }

    /// Starts the thread, which ends with what is returned.
    pub(crate) fn start(mut self) -> Result<Running, Problem> {
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            loop {
                let is_over =
                    stopped.recv_timeout(USERS_CHECK_INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout);
                self.turn(Instant::now(), unix_now(), is_over);
                if is_over {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("users".to_owned()).spawn(work);
        let thread = thread.map_err(|error| Problem::unavailable(format!("no thread for users: {error}")))?;
        Ok(Running {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// One look at accounts, store and clock.
    fn turn(&mut self, now: Instant, unix_now: u64, is_last: bool) {
        self.count();
        let done = self.follow_store(now, unix_now, is_last);
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
                    output::event("the users' database can be used again");
                }
            }
            Err(text) if self.trouble.as_ref() != Some(&text) => {
                output::event(&format!(
                    "warning: {text}; users who are known are served on, changes wait"
                ));
                self.trouble = Some(text);
            }
            Err(_) => {}
        }
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
        let found = inodes(&self.directory);
        if self.store.is_some() && found[0] == self.inodes[0] {
            self.inodes = found;
        } else if !self.open_another(found)? {
            return Ok(());
        }
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let tell = |error: StoreError| problem(&self.directory, &error).to_string();
        let has_changed = self.changes != Some(store.changes().map_err(tell)?);
        let is_new_day = Day::of(unix_now) != self.day;
        let is_due = now >= self.record_due || has_changed || is_new_day || is_last;
        let recorded = if is_due { self.record() } else { Ok(()) };
        if is_due && recorded.is_ok() {
            self.record_due = now + USAGE_RECORD_INTERVAL;
        }
        if is_new_day && recorded.is_ok() {
            // What was counted until here belongs to the day before, and is recorded.
            self.epoch = new_epoch().map_err(|problem| problem.to_string())?;
            self.day = Day::of(unix_now);
            for account in self.accounts.values_mut() {
                (account.in_epoch, account.recorded) = (0, 0);
            }
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

    /// Opens the database that was put where there was none, or another one. Whether there is one.
    fn open_another(&mut self, found: [Option<u64>; FILE_SUFFIXES.len()]) -> Result<bool, String> {
        let path = self.directory.file(FILE);
        if found[0].is_none() {
            // Nobody is removed with it: whoever took it away may be about to put another in its place.
            return match self.inodes[0] {
                Some(_) => Err(format!("{} is gone", path.display())),
                None => Ok(false),
            };
        }
        self.store = None;
        // The former database's log is no other's, and SQLite knows it by its name.
        for (index, suffix) in FILE_SUFFIXES.iter().enumerate().skip(1) {
            if found[index].is_some() && found[index] == self.inodes[index] {
                let log = self.directory.file(&format!("{FILE}{suffix}"));
                std::fs::remove_file(&log)
                    .map_err(|error| Problem::file("remove", &log, &error).to_string())?;
            }
        }
        let Some(opened) = open(&self.directory).map_err(|problem| problem.to_string())? else {
            return Ok(false);
        };
        self.store = Some(Box::new(opened));
        (self.inodes, self.changes) = (inodes(&self.directory), None);
        for account in self.accounts.values_mut() {
            account.recorded = 0;
        }
        Ok(true)
    }

    fn record(&mut self) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else {
            return Ok(());
        };
        let accounts = self.accounts.iter();
        let due: Vec<_> = accounts
            .filter(|(_, account)| account.in_epoch > account.recorded)
            .map(|(id, account)| (store::UserId(id.0), account.in_epoch))
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        store.record(self.day, self.epoch, &due)?;
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
            let used = store.used(kept.id, since..=self.day)?;
            found.push((kept, used));
        }
        let mut accounts = BTreeMap::new();
        for (kept, used) in found {
            let id = UserId(kept.id.0);
            let mut account = self
                .accounts
                .remove(&id)
                .unwrap_or_else(|| Accounted::new(kept.clone()));
            if account.member.kept.token_digest != kept.token_digest {
                // Those who came with the former token go. What they still move, for a second or two, is not counted.
                account.member.account.exclude(Some(Exclusion::TokenReplaced));
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

/// The keeper's thread. Dropping it records what was used, and ends it.
pub(crate) struct Running {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            let _ = thread.join();
        }
    }
}

fn inodes(directory: &StateDirectory) -> [Option<u64>; FILE_SUFFIXES.len()] {
    FILE_SUFFIXES.map(|suffix| {
        let metadata = std::fs::metadata(directory.file(&format!("{FILE}{suffix}"))).ok()?;
        Some(metadata.ino())
    })
}

fn new_epoch() -> Result<Epoch, Problem> {
    Ok(Epoch(u64::from_be_bytes(random()?)))
}

/// Gives the damaged database another name. What to tell.
fn set_aside(directory: &StateDirectory, what: &str, now: u64) -> Result<String, Problem> {
    let path = directory.file(FILE);
    let name = format!("{FILE}.damaged-{now}");
    for suffix in FILE_SUFFIXES {
        let from = directory.file(&format!("{FILE}{suffix}"));
        match std::fs::rename(&from, directory.file(&format!("{name}{suffix}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Problem::file("set aside", &from, &error));
            }
            _ => {}
        }
    }
    Ok(format!(
        "{} is damaged ({what}) and is kept as {name}: its users are refused until they are added again, or a copy is \
         put in its place",
        path.display()
    ))
}

#[cfg(test)]
mod tests;
