//! Users in a file of SQLite.
//!
//! The file has a log beside it (WAL), so that readers and the one who writes do not wait for each other, and each
//! transaction is on the disk when it has ended. Only this user may read the three files. Temporary tables stay in
//! memory, because a confined server has no other directory to write to.

mod copies;
mod rows;
mod schema;

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior};

use crate::Store;
use crate::error::StoreError;
use crate::limits::BUSY_TIME_MAX;
use crate::usage::{Day, Epoch};
use crate::user::{User, UserId};
pub use copies::Snapshot;

/// Users in a file.
///
/// ```
/// use store::{Sqlite, Store};
///
/// let directory = tempfile::tempdir().unwrap();
/// let mut store = Sqlite::create(&directory.path().join("users.db")).unwrap();
/// assert_eq!(store.users().unwrap(), []);
/// ```
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    /// Opens the file, or makes it with mode 0600.
    ///
    /// # Errors
    /// As of [`Self::open`]; the file cannot be made.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        // SQLite takes an empty file for an empty database, and gives the files beside it the same mode.
        make_file(OpenOptions::new().create(true), path)?;
        Self::open(path)
    }

    /// Opens a file that is there, looks whether it is whole, and brings it to the newest version.
    ///
    /// # Errors
    /// It is damaged, of a newer program, read-only, or not there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_file(path).map_err(|error| match error {
            // SQLite does not say why it cannot make its files beside the database.
            StoreError::Other(_) => refusal_beside(path).unwrap_or(error),
            other => other,
        })
    }

    fn open_file(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(of_sqlite)?;
        connection.busy_timeout(BUSY_TIME_MAX).map_err(of_sqlite)?;
        for (name, value) in [
            ("temp_store", "MEMORY"),
            ("foreign_keys", "ON"),
            ("trusted_schema", "OFF"),
        ] {
            connection.pragma_update(None, name, value).map_err(of_sqlite)?;
        }
        check(&connection)?;
        schema::bring_up(&mut connection)?;
        // Both answer with what holds from here on.
        connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .map_err(of_sqlite)?;
        connection
            .pragma_update(None, "synchronous", "FULL")
            .map_err(of_sqlite)?;
        Ok(Self { connection })
    }

    fn write(&mut self) -> Result<Transaction<'_>, StoreError> {
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(of_sqlite)
    }
}

impl Store for Sqlite {
    fn users(&mut self) -> Result<Vec<User>, StoreError> {
        let text = format!("SELECT {} FROM users ORDER BY name", rows::COLUMNS);
        let mut query = self.connection.prepare(&text).map_err(of_sqlite)?;
        let mut found = query.query([]).map_err(of_sqlite)?;
        let mut users = Vec::new();
        while let Some(row) = found.next().map_err(of_sqlite)? {
            users.push(rows::read(row)?);
        }
        Ok(users)
    }

    fn add(&mut self, user: &User) -> Result<(), StoreError> {
        User::check_name(&user.name)?;
        let transaction = self.write()?;
        if user_of(&transaction, &user.name)?.is_some() {
            return Err(StoreError::NameTaken(user.name.clone()));
        }
        rows::write(&transaction, user)?;
        transaction.commit().map_err(of_sqlite)
    }

    fn change(&mut self, name: &str, edit: &mut dyn FnMut(&mut User)) -> Result<User, StoreError> {
        let transaction = self.write()?;
        let before = user_of(&transaction, name)?.ok_or_else(|| StoreError::NoSuchUser(name.to_owned()))?;
        let mut user = before.clone();
        edit(&mut user);
        user.id = before.id;
        User::check_name(&user.name)?;
        if user.name != before.name && user_of(&transaction, &user.name)?.is_some() {
            return Err(StoreError::NameTaken(user.name));
        }
        rows::write(&transaction, &user)?;
        transaction.commit().map_err(of_sqlite)?;
        Ok(user)
    }

    fn remove(&mut self, name: &str) -> Result<(), StoreError> {
        let removed = self
            .connection
            .execute("DELETE FROM users WHERE name = ?1", [name])
            .map_err(of_sqlite)?;
        if removed == 0 {
            Err(StoreError::NoSuchUser(name.to_owned()))
        } else {
            Ok(())
        }
    }

    fn record(&mut self, day: Day, epoch: Epoch, used: &[(UserId, u64)]) -> Result<(), StoreError> {
        let transaction = self.write()?;
        {
            let mut upsert = transaction
                .prepare(
                    "INSERT INTO usage (user, day, epoch, bytes) SELECT id, ?2, ?3, ?4 FROM users WHERE id = ?1
                     ON CONFLICT DO UPDATE SET bytes = max(bytes, excluded.bytes)",
                )
                .map_err(of_sqlite)?;
            for (user, bytes) in used {
                upsert
                    .execute((user.0, day.0, epoch.0.cast_signed(), rows::number(*bytes)))
                    .map_err(of_sqlite)?;
            }
        }
        transaction.commit().map_err(of_sqlite)
    }

    fn used(&mut self, user: UserId, days: RangeInclusive<Day>) -> Result<u64, StoreError> {
        let sum: f64 = self
            .connection
            .query_row(
                "SELECT total(bytes) FROM usage WHERE user = ?1 AND day BETWEEN ?2 AND ?3",
                (user.0, days.start().0, days.end().0),
                |row| row.get(0),
            )
            .map_err(of_sqlite)?;
        Ok(sum as u64)
    }

    fn changes(&mut self) -> Result<u64, StoreError> {
        self.connection
            .pragma_query_value(None, "data_version", |row| row.get(0))
            .map_err(of_sqlite)
    }
}

/// Makes a file that this user alone may read.
fn make_file(how: &mut OpenOptions, path: &Path) -> Result<(), StoreError> {
    let made = how.write(true).truncate(false).mode(0o600).open(path);
    made.map(drop).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => StoreError::Denied,
        ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full,
        _ => StoreError::Other(error.to_string()),
    })
}

/// Why no file can be made beside it, if none can. The file itself is not opened: closing it would end this process's
/// locks (POSIX).
fn refusal_beside(path: &Path) -> Option<StoreError> {
    let probe = path.with_extension("probe");
    match make_file(OpenOptions::new().create(true), &probe) {
        Ok(()) => {
            // What is left of it is empty.
            let _ = std::fs::remove_file(&probe);
            None
        }
        Err(StoreError::Other(_)) => None,
        Err(refusal) => Some(refusal),
    }
}

/// Looks whether it is whole.
fn check(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(of_sqlite)?;
    if found == "ok" {
        Ok(())
    } else {
        Err(StoreError::Damaged(found))
    }
}

fn user_of(connection: &Connection, name: &str) -> Result<Option<User>, StoreError> {
    let text = format!("SELECT {} FROM users WHERE name = ?1", rows::COLUMNS);
    let found = connection
        .query_row(&text, [name], |row| Ok(rows::read(row)))
        .optional();
    found.map_err(of_sqlite)?.transpose()
}

/// What SQLite's error means.
fn of_sqlite(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => StoreError::Damaged(error.to_string()),
        Some(ErrorCode::PermissionDenied) => StoreError::Denied,
        Some(ErrorCode::ReadOnly) => StoreError::ReadOnly,
        Some(ErrorCode::DiskFull) => StoreError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        _ => StoreError::Other(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
