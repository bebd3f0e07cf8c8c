//! Users of a server besides its owner: `gramway user`, and what a running server knows and counts of them.
//!
//! They are in a database in the state directory, which the first `gramway user add` makes. Commands write it whether a
//! server runs or not; a running one looks for changes every half second (`keeper.rs`).

mod actions;
mod amounts;
mod command;
mod copies;
mod hook;
mod keeper;
mod register;

use std::time::{SystemTime, UNIX_EPOCH};

use store::{Rights, Sqlite, StoreError, User};

use crate::exit::Problem;
use crate::state::StateDirectory;
pub(crate) use actions::{Action, Terms, apply};
pub(crate) use command::run;
pub(crate) use hook::Hook;
pub(crate) use keeper::{Follower, Keeper};
pub(crate) use register::{Register, describe};

/// The database; SQLite has two more files beside it.
const FILE: &str = "users.db";
/// What their names end with.
const FILE_SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// The database, where there is one.
fn open(directory: &StateDirectory) -> Result<Option<Sqlite>, Problem> {
    if !directory.has_secret(FILE)? {
        return Ok(None);
    }
    let opened = Sqlite::open(&directory.file(FILE));
    opened.map(Some).map_err(|error| problem(directory, &error))
}

/// Gives the damaged database another name, which is returned.
fn set_aside(directory: &StateDirectory, now: u64) -> Result<String, Problem> {
    let name = format!("{FILE}.damaged-{now}");
    for suffix in FILE_SUFFIXES {
        let from = directory.file(&format!("{FILE}{suffix}"));
        match std::fs::rename(&from, directory.file(&format!("{name}{suffix}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let shown = directory.shown_file(&format!("{FILE}{suffix}"));
                return Err(Problem::file("set aside", &shown, &error));
            }
            _ => {}
        }
    }
    Ok(name)
}

/// What to tell of the store's error.
fn problem(directory: &StateDirectory, error: &StoreError) -> Problem {
    let path = directory.shown_file(FILE);
    let told = format!("cannot use {}: {error}", path.display());
    match error {
        StoreError::NoSuchUser(_) => {
            Problem::usage(format!("{error}; `gramway user list` shows who there is"))
        }
        StoreError::NameTaken(_) | StoreError::BadName(_) => Problem::usage(error.to_string()),
        StoreError::Damaged(_) => Problem::configuration(format!(
            "{told}; put back a copy with `gramway user restore FILE`, or restart the server, which sets it aside"
        )),
        StoreError::Newer { .. } => Problem::configuration(told),
        StoreError::Denied | StoreError::ReadOnly => Problem::permission(told),
        StoreError::Full | StoreError::Busy | StoreError::Other(_) => Problem::unavailable(told),
    }
}

/// What a user may ask for, by name.
fn rights_of(rights: Rights) -> [(&'static str, bool); 3] {
    [("udp", rights.udp), ("tcp", rights.tcp), ("ip", rights.ip)]
}

/// Why a user may do nothing at this time, having used so many bytes of its quota.
fn exclusion_of(user: &User, used: u64, now: u64) -> Option<tunnel_proto::Exclusion> {
    use tunnel_proto::Exclusion;
    if user.is_disabled {
        Some(Exclusion::Disabled)
    } else if user.expires.is_some_and(|expires| expires <= now) {
        Some(Exclusion::Expired)
    } else if user.quota.is_some_and(|quota| used >= quota.bytes) {
        Some(Exclusion::QuotaReached)
    } else {
        None
    }
}

/// In seconds of Unix time.
fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
