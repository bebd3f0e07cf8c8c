//! What one process of a trial has seen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::contestant::Arrived;

/// Counted by the tasks of a load.
#[derive(Debug)]
pub(crate) struct Counts {
    start: Instant,
    messages: AtomicU64,
    bytes: AtomicU64,
    connections: AtomicU64,
    round_trips: Mutex<Vec<u64>>,
}

/// Up to a moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// Since the process started.
    pub(crate) seconds: f64,
    /// Whole messages that came.
    pub(crate) messages: u64,
    /// Bytes of messages and streams that came.
    pub(crate) bytes: u64,
    /// Connections that were made, up to their first message.
    pub(crate) connections: u64,
    /// Since the snapshot before, in nanoseconds.
    pub(crate) round_trips: Vec<u64>,
    /// Resident memory of the process, in bytes.
    pub(crate) resident_bytes: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            round_trips: Mutex::default(),
        }
    }
}

impl Counts {
    pub(super) fn arrived(&self, arrived: Arrived) {
        self.messages.fetch_add(arrived.messages, Ordering::Relaxed);
        self.bytes.fetch_add(arrived.bytes, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn answered(&self, after: Duration) {
        let mut round_trips = self.round_trips.lock().unwrap_or_else(PoisonError::into_inner);
        round_trips.push(after.as_nanos() as u64);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let mut round_trips = self.round_trips.lock().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            seconds: self.start.elapsed().as_secs_f64(),
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            round_trips: std::mem::take(&mut round_trips),
            resident_bytes: resident_bytes().unwrap_or(0),
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1_024)
}
