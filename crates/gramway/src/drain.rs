//! Drains a server, by `gramway ctl drain` or after an upgrade: new connections are refused, clients are told to
//! leave, and the process ends when they have left, or after a time.

mod time;

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tunnel::handle::{Controller, DrainUntil};

use crate::exit::Problem;
use crate::limits::DRAIN_SECONDS;
use crate::{log, service_manager, units};

pub(crate) use time::DrainTime;

/// Why a drain or an upgrade cannot begin now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// A new process is started.
    Upgrading,
    Draining,
}

/// Drains one server.
pub(crate) struct Drain {
    controller: Controller,
    /// As long as a drain takes where nobody says otherwise.
    time: Duration,
    phase: Mutex<Phase>,
    /// The process knows that it is to end.
    is_stopping: Arc<AtomicBool>,
}

impl Drain {
    pub(crate) fn new(controller: Controller, time: Duration, is_stopping: Arc<AtomicBool>) -> Self {
        Self {
            controller,
            time,
            phase: Mutex::new(Phase::Serving),
            is_stopping,
        }
    }

    /// Begins, for the time that `asked` has as `timeout_seconds`. What to tell.
    ///
    /// # Errors
    /// The time is not one of [`DRAIN_SECONDS`], or a drain or an upgrade has begun.
    pub(crate) fn begin(&self, asked: &Value) -> Result<String, Problem> {
        let time = self.time_of(asked)?;
        self.leave_serving(Phase::Draining)?;
        service_manager::stopping();
        Ok(self.drain(time))
    }

    /// Nothing else begins until the upgrade is over.
    ///
    /// # Errors
    /// As of [`Drain::begin`].
    pub(crate) fn begin_upgrade(&self, asked: &Value) -> Result<UpgradeTurn<'_>, Problem> {
        let time = self.time_of(asked)?;
        self.leave_serving(Phase::Upgrading)?;
        Ok(UpgradeTurn { drain: self, time })
    }

    fn leave_serving(&self, next: Phase) -> Result<(), Problem> {
        let mut phase = self.phase();
        match *phase {
            Phase::Serving if self.is_stopping.load(Ordering::Relaxed) => Err(told_to_end()),
            Phase::Serving => {
                *phase = next;
                Ok(())
            }
            Phase::Upgrading => Err(Problem::unavailable(
                "an upgrade is under way; try again when it is over",
            )),
            Phase::Draining => Err(Problem::unavailable("it is draining already")),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drain(&self, time: Duration) -> String {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.controller.drain(time, DrainUntil::ClientsGone);
        let told = format!(
            "draining: it ends when its clients have left, in {} at the latest",
            units::span(time.as_secs_f64())
        );
        log::info("draining", told.as_str());
        told
    }

    fn time_of(&self, asked: &Value) -> Result<Duration, Problem> {
        match asked.get("timeout_seconds") {
            None | Some(Value::Null) => Ok(self.time),
            Some(value) => seconds("timeout_seconds", value, &DRAIN_SECONDS),
        }
    }
}

/// An upgrade under way; dropping it says that it came to nothing.
pub(crate) struct UpgradeTurn<'a> {
    drain: &'a Drain,
    time: Duration,
}

impl UpgradeTurn<'_> {
    /// To be asked before the other process is let go.
    ///
    /// # Errors
    /// This process was told to end meanwhile, and means the whole service.
    pub(crate) fn may_complete(&self) -> Result<(), Problem> {
        if self.drain.is_stopping.load(Ordering::Relaxed) {
            return Err(told_to_end());
        }
        Ok(())
    }

    /// Another process goes on with the service, and this one drains. What to tell.
    pub(crate) fn complete(self) -> String {
        *self.drain.phase() = Phase::Draining;
        self.drain.drain(self.time)
    }
}

impl Drop for UpgradeTurn<'_> {
    fn drop(&mut self) {
        let mut phase = self.drain.phase();
        if *phase == Phase::Upgrading {
            *phase = Phase::Serving;
        }
    }
}

fn told_to_end() -> Problem {
    Problem::unavailable("it ends, because it was told to")
}

/// A time that a request names.
///
/// # Errors
/// It is no whole number within the bounds.
pub(crate) fn seconds(name: &str, value: &Value, bounds: &RangeInclusive<i64>) -> Result<Duration, Problem> {
    match value.as_i64().filter(|seconds| bounds.contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds.unsigned_abs())),
        None => Err(Problem::usage(format!(
            "{name} is a number from {} to {}",
            bounds.start(),
            bounds.end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_time_is_whole_seconds_within_bounds_and_the_settings_by_default() {
        let drain = Drain::new(Controller::default(), Duration::from_secs(30), Arc::default());
        let time = |asked| drain.time_of(&asked).ok().map(|time| time.as_secs());
        assert_eq!(time(json!({})), Some(30));
        assert_eq!(time(json!({ "timeout_seconds": null })), Some(30));
        assert_eq!(time(json!({ "timeout_seconds": 5 })), Some(5));
        for wrong in [json!(-1), json!(86_401), json!(1.5), json!("5")] {
            assert_eq!(time(json!({ "timeout_seconds": wrong })), None, "{wrong}");
        }
    }

    #[test]
    fn a_drain_begins_once() {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let drain = Drain::new(
            Controller::default(),
            Duration::from_secs(30),
            Arc::clone(&is_stopping),
        );
        assert!(drain.begin(&json!({ "timeout_seconds": "soon" })).is_err());
        assert!(!is_stopping.load(Ordering::Relaxed));
        let told = drain.begin(&json!({})).unwrap();
        assert!(told.contains("in 30 s at the latest"), "{told}");
        assert!(is_stopping.load(Ordering::Relaxed));
        let again = drain.begin(&json!({})).unwrap_err();
        assert!(again.to_string().contains("draining already"), "{again}");
    }

    #[test]
    fn while_an_upgrade_is_under_way_neither_a_drain_nor_another_upgrade_begins() {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let time = Duration::from_secs(30);
        let drain = Drain::new(Controller::default(), time, Arc::clone(&is_stopping));
        let asked = json!({ "timeout_seconds": 5 });
        let turn = drain.begin_upgrade(&asked).unwrap();
        for refused in [drain.begin(&asked).err(), drain.begin_upgrade(&asked).err()] {
            let refused = refused.unwrap().to_string();
            assert!(refused.contains("an upgrade is under way"), "{refused}");
        }
        drop(turn);
        assert!(!is_stopping.load(Ordering::Relaxed), "it serves on");
        let told = drain.begin_upgrade(&asked).unwrap().complete();
        assert!(told.contains("in 5 s at the latest"), "{told}");
        assert!(is_stopping.load(Ordering::Relaxed));
        assert!(drain.begin_upgrade(&asked).is_err() && drain.begin(&asked).is_err());
    }
}
