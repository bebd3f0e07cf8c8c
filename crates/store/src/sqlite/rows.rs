//! A user as a row. What another program has written there is damage, not a panic.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Row};

use super::of_sqlite;
use crate::error::StoreError;
use crate::usage::{Period, Quota};
use crate::user::{Rights, User, UserId};

/// In the order of [`read`] and [`write`].
pub(super) const COLUMNS: &str = "id, name, token_digest, front_door_key, created, expires, quota_bytes, quota_period, \
                                  may_udp, may_tcp, may_ip, is_disabled, reach, bits_per_second, listen";

/// Integers of SQLite have a sign.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn read(row: &Row<'_>) -> Result<User, StoreError> {
    let quota = match (column::<Option<u64>>(row, 6)?, column::<Option<String>>(row, 7)?) {
        (None, None) => None,
        (Some(bytes), Some(period)) => Some(Quota {
            bytes,
            period: Period::of_name(&period).ok_or_else(|| damaged("a user's quota has no period"))?,
        }),
        _ => return Err(damaged("a user has half a quota")),
    };
    let (reach, listen): (String, String) = (column(row, 12)?, column(row, 14)?);
    Ok(User {
        id: UserId(column(row, 0)?),
        name: column(row, 1)?,
        token_digest: column(row, 2)?,
        front_door_key: column(row, 3)?,
        created: column(row, 4)?,
        expires: column(row, 5)?,
        quota,
        rights: Rights {
            udp: column(row, 8)?,
            tcp: column(row, 9)?,
            ip: column(row, 10)?,
        },
        is_disabled: column(row, 11)?,
        bits_per_second: column(row, 13)?,
        reach: reach.split_whitespace().map(str::to_owned).collect(),
        listen: listen.split_whitespace().map(str::to_owned).collect(),
    })
}

/// Adds a user, or replaces the one of its ID.
pub(super) fn write(connection: &Connection, user: &User) -> Result<(), StoreError> {
    let text = format!(
        "INSERT INTO users ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, token_digest = excluded.token_digest,
             front_door_key = excluded.front_door_key, created = excluded.created, expires = excluded.expires,
             quota_bytes = excluded.quota_bytes, quota_period = excluded.quota_period, may_udp = excluded.may_udp,
             may_tcp = excluded.may_tcp, may_ip = excluded.may_ip, is_disabled = excluded.is_disabled,
             reach = excluded.reach, bits_per_second = excluded.bits_per_second,
             listen = excluded.listen"
    );
    let written = connection.execute(
        &text,
        rusqlite::params![
            user.id.0,
            user.name,
            user.token_digest,
            user.front_door_key,
            number(user.created),
            user.expires.map(number),
            user.quota.map(|quota| number(quota.bytes)),
            user.quota.map(|quota| quota.period.name()),
            user.rights.udp,
            user.rights.tcp,
            user.rights.ip,
            user.is_disabled,
            user.reach.join(" "),
            user.bits_per_second.map(number),
            user.listen.join(" "),
        ],
    );
    written.map(drop).map_err(of_sqlite)
}

fn column<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, StoreError> {
    row.get(index).map_err(|error| match error.sqlite_error_code() {
        Some(_) => of_sqlite(error),
        None => damaged(&format!("a user's row: {error}")),
    })
}

fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(what.to_owned())
}
