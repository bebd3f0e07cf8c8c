//! Users of a server and what they have used, kept over restarts: the trait [`Store`], and [`Sqlite`], which keeps them
//! in one file.
//!
//! Calls may block. A store keeps nothing by which somebody could come as a user: of tokens it has digests alone.

use std::ops::RangeInclusive;

pub mod limits;

mod error;
mod sqlite;
mod usage;
mod user;

pub use error::StoreError;
pub use sqlite::{Snapshot, Sqlite};
pub use usage::{Day, Epoch, Period, Quota};
pub use user::{Rights, User, UserId};

/// Keeps users and their use. What returned without an error stays, also when the machine loses its power.
pub trait Store: Send {
    /// Everybody, by name.
    fn users(&mut self) -> Result<Vec<User>, StoreError>;

    /// Adds a user.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`]; the name is not a name; the store fails.
    fn add(&mut self, user: &User) -> Result<(), StoreError>;

    /// Has `edit` change the user of this name, all at once; nobody else changes it meanwhile. The user as it is then.
    /// The ID stays.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUser`]; the store fails.
    fn change(&mut self, name: &str, edit: &mut dyn FnMut(&mut User)) -> Result<User, StoreError>;

    /// Removes a user and what it has used.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUser`]; the store fails.
    fn remove(&mut self, name: &str) -> Result<(), StoreError>;

    /// What users have used on this day within this epoch, in bytes, since it began: numbers that only grow. Smaller
    /// ones than those that are there change nothing, so that a call may be repeated. Users who are gone are skipped.
    fn record(&mut self, day: Day, epoch: Epoch, used: &[(UserId, u64)]) -> Result<(), StoreError>;

    /// Bytes that a user has used on these days, in all epochs. A clock that was ahead left later ones.
    fn used(&mut self, user: UserId, days: RangeInclusive<Day>) -> Result<u64, StoreError>;

    /// A number that is another one whenever somebody else has changed something.
    fn changes(&mut self) -> Result<u64, StoreError>;
}
