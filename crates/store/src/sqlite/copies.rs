//! Copies of the database. SQLite makes and restores one in a single step for everybody else who has the database open;
//! a copy of the file alone would lack what is in its log.

use std::ops::Range;
use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::{Sqlite, check, of_sqlite, schema};
use crate::error::StoreError;

/// All, which takes no longer than writing a file.
const PAGES_AT_ONCE: i32 = -1;

/// Where a database file says that it has a log beside it, and what it says without one
/// (<https://www.sqlite.org/fileformat2.html>, sections 1.3.3 and 1.3.4).
const LOG_FIELDS: Range<usize> = 18..20;
const WITHOUT_LOG: u8 = 1;

/// Everything that a database had at one time, in memory: the file that it came from and the database that it goes to
/// may be open to different users.
#[derive(Debug)]
pub struct Snapshot {
    connection: Connection,
}

impl Snapshot {
    /// Reads a copy, of this version or an older one; the file stays as it is.
    ///
    /// # Errors
    /// The copy is damaged, of a newer program, or cannot be read.
    pub fn read(from: &Path) -> Result<Self, StoreError> {
        let copy = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(of_sqlite)?;
        let mut connection = Connection::open_in_memory().map_err(of_sqlite)?;
        copy_all(&copy, &mut connection)?;
        check(&connection)?;
        schema::bring_up(&mut connection)?;
        Ok(Self { connection })
    }
}

impl Sqlite {
    /// Copies everything: the bytes of a database file that has no other files beside it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copy(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = self.connection.serialize(MAIN_DB).map_err(of_sqlite)?.to_vec();
        // So it can be read where nothing can be written, and a log of another database is never taken for its own.
        if let Some(fields) = bytes.get_mut(LOG_FIELDS) {
            fields.fill(WITHOUT_LOG);
        }
        Ok(bytes)
    }

    /// Replaces everything by the snapshot.
    ///
    /// # Errors
    /// The database cannot be written; then nothing has changed.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), StoreError> {
        copy_all(&snapshot.connection, &mut self.connection)
    }
}

fn copy_all(from: &Connection, to: &mut Connection) -> Result<(), StoreError> {
    let copy = Backup::new(from, to).map_err(of_sqlite)?;
    match copy.step(PAGES_AT_ONCE).map_err(of_sqlite)? {
        StepResult::Done => Ok(()),
        // Others were waited for.
        _ => Err(StoreError::Busy),
    }
}
