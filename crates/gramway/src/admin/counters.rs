//! What the API tells of this process: its counters, its sandbox, its users, what happened last and what somebody
//! should know.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tunnel::handle::Controller;

use super::warnings;
use crate::limits::{ADMIN_PAUSE, EVENT_PEERS_MAX};
use crate::recent;
use crate::users::Register;

/// Asks the threads that carry packets, one question at a time and ten a second at most.
pub(super) struct Counters {
    source: Box<dyn Fn() -> Option<Value> + Send + Sync>,
    /// When the threads were asked last.
    asked: Mutex<Option<Instant>>,
    /// The last short answer.
    last: Mutex<Option<(Instant, Arc<str>)>>,
}

impl Counters {
    pub(super) fn new(source: impl Fn() -> Option<Value> + Send + Sync + 'static) -> Self {
        Self {
            source: Box::new(source),
            asked: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Everything, as of this moment, which may come a little later; `None` where it cannot be had.
    pub(super) fn all(&self) -> Option<Value> {
        let mut counters = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(asked) = *asked {
                thread::sleep(ADMIN_PAUSE.saturating_sub(asked.elapsed()));
            }
            *asked = Some(Instant::now());
            (self.source)()?
        };
        let warnings = warnings::of(&counters);
        if let Some(counters) = counters.as_object_mut() {
            counters.insert("events".to_owned(), recent::as_json());
            counters.insert("warnings".to_owned(), warnings);
        }
        Some(counters)
    }

    /// The same with a few of its peers, at most so old: all who listen share it.
    pub(super) fn short(&self, age: Duration) -> Option<Arc<str>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, text)) = &*last
            && at.elapsed() < age
        {
            return Some(Arc::clone(text));
        }
        let mut counters = self.all()?;
        if let Some(peers) = counters.get_mut("peers").and_then(Value::as_array_mut) {
            peers.truncate(EVENT_PEERS_MAX);
        }
        let text: Arc<str> = counters.to_string().into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        Some(text)
    }
}

/// The counters of this process, what its sandbox holds and what is known of a server's `users`.
pub(super) fn of_process(
    controller: &Controller,
    sandbox: &Value,
    users: Option<&Register>,
) -> Option<Value> {
    let mut counters = json!(controller.snapshot()?);
    let object = counters.as_object_mut()?;
    object.insert("sandbox".to_owned(), sandbox.clone());
    if let Some(users) = users {
        users.complete(object.get_mut("users")?.as_object_mut()?);
    }
    Some(counters)
}
