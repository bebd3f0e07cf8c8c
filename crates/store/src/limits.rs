//! Every bound of the store, with its unit and its reason.

use std::time::Duration;

/// Characters of a user's name: it stands in tables.
pub const NAME_CHARACTERS_MAX: usize = 32;

/// Bytes of a quota: far beyond all traffic, and a number that every database has.
pub const QUOTA_BYTES_MAX: u64 = 1 << 60;

/// How long a call waits for another process that writes: its transactions take milliseconds.
pub const BUSY_TIME_MAX: Duration = Duration::from_secs(5);
