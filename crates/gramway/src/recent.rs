//! What was told last, for those who look later: the last lines about what happened, with their times.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::limits::RECENT_EVENTS_MAX;

static EVENTS: Mutex<VecDeque<(u64, String)>> = Mutex::new(VecDeque::new());

/// Remembers a line; beyond so many the oldest is forgotten.
pub(crate) fn record(text: &str) {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if events.len() == RECENT_EVENTS_MAX {
        events.pop_front();
    }
    events.push_back((since_1970.as_secs(), text.to_owned()));
}

/// The lines, the oldest first.
pub(crate) fn as_json() -> Value {
    let events = EVENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let one = |(time, text): &(u64, String)| json!({ "time": time, "text": text });
    events.iter().map(one).collect()
}
