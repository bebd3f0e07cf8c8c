//! The clock of the calendar, for what is said to other machines; everything else has `Instant`s.

use std::time::SystemTime;

/// Seconds of Unix time; zero before 1970.
#[must_use]
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
