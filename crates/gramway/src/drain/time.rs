//! How long a drain waits for clients to leave, as a setting.

use std::time::Duration;

use crate::limits::DRAIN_TIME;

/// How long a drain waits for clients to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrainTime(pub(crate) Duration);

impl Default for DrainTime {
    fn default() -> Self {
        Self(DRAIN_TIME)
    }
}
