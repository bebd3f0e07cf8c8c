//! The versions of the schema. A step leads from each version to the next; a step that was shipped never changes.

use rusqlite::{Connection, TransactionBehavior};

use super::of_sqlite;
use crate::error::StoreError;

/// What makes version n+1 of version n; version 0 is an empty file.
const STEPS: [&str; 4] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
];

/// The newest version.
const NEWEST: u32 = STEPS.len() as u32;

/// Brings a database to the newest version.
///
/// # Errors
/// It is of a newer program, or SQLite's.
pub(super) fn bring_up(connection: &mut Connection) -> Result<(), StoreError> {
    bring_to(connection, NEWEST)
}

fn bring_to(connection: &mut Connection, version: u32) -> Result<(), StoreError> {
    let found = version_of(connection)?;
    if found > NEWEST {
        return Err(StoreError::Newer { found, known: NEWEST });
    }
    if found >= version {
        return Ok(());
    }
    // Others may do the same at this moment: the version is read again where nobody else writes.
    let step = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(of_sqlite)?;
    for version in version_of(&step)?..version {
        step.execute_batch(STEPS[version as usize]).map_err(of_sqlite)?;
        step.pragma_update(None, "user_version", version + 1)
            .map_err(of_sqlite)?;
    }
    step.commit().map_err(of_sqlite)
}

fn version_of(connection: &Connection) -> Result<u32, StoreError> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(of_sqlite)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a user and its use are in each version.
    const ROWS: [&str; 4] = [
        "
        INSERT INTO users VALUES (x'01', 'alice', x'02', x'03', 1000, 2000, 5000, 'month', 1, 0, 1, 0);
        INSERT INTO usage VALUES (x'01', 20000, 7, 1234);
        ",
        "
        INSERT INTO users VALUES (x'01', 'alice', x'02', x'03', 1000, 2000, 5000, 'month', 1, 0, 1, 0, '10.0.0.0/8');
        INSERT INTO usage VALUES (x'01', 20000, 7, 1234);
        ",
        "
        INSERT INTO users
        VALUES (x'01', 'alice', x'02', x'03', 1000, 2000, 5000, 'month', 1, 0, 1, 0, '10.0.0.0/8', 20000000);
        INSERT INTO usage VALUES (x'01', 20000, 7, 1234);
        ",
        "
        INSERT INTO users
        VALUES (x'01', 'alice', x'02', x'03', 1000, 2000, 5000, 'month', 1, 0, 1, 0, '10.0.0.0/8', 20000000, '8000-8010');
        INSERT INTO usage VALUES (x'01', 20000, 7, 1234);
        ",
    ];

    #[test]
    fn a_database_of_every_version_becomes_one_of_the_newest_with_all_that_is_in_it() {
        assert_eq!(ROWS.len(), STEPS.len(), "every version has its rows");
        for (version, rows) in (1..).zip(ROWS) {
            let mut connection = Connection::open_in_memory().unwrap();
            bring_to(&mut connection, version).unwrap();
            assert_eq!(version_of(&connection), Ok(version));
            connection.execute_batch(rows).unwrap();
            bring_up(&mut connection).unwrap();
            bring_up(&mut connection).unwrap();
            assert_eq!(version_of(&connection), Ok(NEWEST));
            let (name, bytes, reach, listen): (String, u64, String, String) = connection
                .query_row(
                    "SELECT name, bytes, reach, listen FROM users JOIN usage ON user = id",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
                )
                .unwrap();
            assert_eq!((&name[..], bytes), ("alice", 1_234));
            let expected = if version < 2 { "" } else { "10.0.0.0/8" };
            assert_eq!(reach, expected, "who had no list reaches what it reached");
            let expected = if version < 4 { "" } else { "8000-8010" };
            assert_eq!(listen, expected, "nobody may listen who did not");
        }
    }

    #[test]
    fn a_database_of_a_newer_version_is_refused_unchanged() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .pragma_update(None, "user_version", NEWEST + 1)
            .unwrap();
        let error = bring_up(&mut connection).unwrap_err();
        assert_eq!(
            error,
            StoreError::Newer {
                found: NEWEST + 1,
                known: NEWEST
            }
        );
        let tables: u32 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .unwrap();
        assert_eq!(tables, 0);
    }
}
