//! Reads the configuration of a running process again: at SIGHUP, and when `gramway ctl reload` asks.
//!
//! Everything is read and judged before anything is changed, so that a configuration with errors changes nothing. The
//! table in `config` says of each setting whether a change counts at once, for what opens from then on, or after a
//! restart; the last are named at each reload until the process is started again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tunnel::config::LiveSettings;
use tunnel::handle::Controller;

use crate::cli::Places;
use crate::config::{CommandWithSettings, Effective, Flags, Reload, Settings};
use crate::exit::Problem;
use crate::qlog::TracedUsers;
use crate::state::StateDirectory;
use crate::{link, log, service_manager, startup};

/// Settings, and what the sources say of each.
type Configuration = (Settings, Effective);

/// How a process reads its configuration, when it starts and later.
pub(crate) struct Source {
    /// The config file that was named; `None`: that of the state directory.
    config: Option<PathBuf>,
    read: Box<dyn Fn() -> Result<Configuration, Problem> + Send + Sync>,
    changes: fn(&Effective, &Effective) -> Vec<(&'static str, Reload)>,
}

impl Source {
    /// These places with these flags on top; `check` judges what else the command asks of its settings.
    pub(crate) fn new<C: CommandWithSettings + Clone + Send + Sync + 'static>(
        directory: &StateDirectory,
        places: &Places,
        flags: &Flags<C>,
        check: impl Fn(&Settings) -> Result<(), Problem> + Send + Sync + 'static,
    ) -> Self {
        let config = startup::named_config(places);
        let (directory, places, flags) = (directory.clone(), places.clone(), flags.clone());
        let read = move || {
            let (settings, effective) = startup::read(&directory, &places, &flags)?;
            let problems = [settings.check_needs(&flags).err(), check(&settings).err()];
            Problem::all(problems.into_iter().flatten().collect())?;
            Ok((settings, effective))
        };
        Self {
            config,
            read: Box::new(read),
            changes: |running, next| running.changes(next, C::reads),
        }
    }

    /// The config file that was named.
    pub(crate) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// # Errors
    /// All errors of file, environment and flags.
    pub(crate) fn read(&self) -> Result<Configuration, Problem> {
        (self.read)()
    }
}

/// How the last reload went; the start counts as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastReload {
    pub(crate) is_successful: bool,
    /// Of the last successful one, in seconds since 1970.
    pub(crate) success_seconds: f64,
}

impl LastReload {
    fn successful() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            is_successful: true,
            success_seconds: since_1970.as_secs_f64(),
        }
    }
}

/// What a reload has changed, and what waits for a restart.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    changed: Vec<(&'static str, Reload)>,
}

impl Outcome {
    /// Whether anything is different from here on.
    fn has_changed(&self) -> bool {
        self.changed.iter().any(|(_, reload)| *reload != Reload::Restart)
    }

    /// For people, a line for each setting.
    fn lines(&self) -> Vec<String> {
        if self.changed.is_empty() {
            return vec!["nothing has changed".to_owned()];
        }
        let line = |(key, reload): &(&str, Reload)| match reload {
            Reload::Live => format!("{key}: changed"),
            Reload::New => format!("{key}: changed for what opens from now on"),
            Reload::Restart => format!("{key}: takes effect after a restart"),
        };
        self.changed.iter().map(line).collect()
    }

    /// For programs.
    pub(crate) fn as_json(&self) -> Value {
        let keys = |is_wanted: fn(Reload) -> bool| {
            let wanted = self.changed.iter().filter(|(_, reload)| is_wanted(*reload));
            wanted.map(|(key, _)| *key).collect::<Vec<_>>()
        };
        json!({
            "changed": keys(|reload| reload != Reload::Restart),
            "after_restart": keys(|reload| reload == Reload::Restart),
            "told": self.lines(),
        })
    }
}

/// Reloads the configuration of one process.
pub(crate) struct Reloader {
    source: Source,
    controller: Controller,
    running: Mutex<Running>,
    metrics_per_user: AtomicBool,
    traced_users: TracedUsers,
}

struct Running {
    /// What this process goes by.
    effective: Effective,
    last: LastReload,
    /// What was changed live.
    live: Option<LiveSettings>,
    /// The events of the last reload.
    told: Vec<String>,
}

/// Who wants a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// The owner, by a signal: hears of the outcome from the log alone.
    Signal,
    /// A program, by the API, which may ask again and again: the log has an outcome that changes nothing once.
    Program,
}

impl Reloader {
    /// Of a process that was started with `started`.
    pub(crate) fn new(
        source: Source,
        controller: Controller,
        settings: &Settings,
        effective: Effective,
    ) -> Self {
        Self {
            source,
            controller,
            running: Mutex::new(Running {
                effective,
                last: LastReload::successful(),
                live: None,
                told: Vec::new(),
            }),
            metrics_per_user: AtomicBool::new(settings.metrics.per_user),
            traced_users: settings.qlog.users.clone(),
        }
    }

    /// Reads everything again and changes what can change while the process runs. Tells the outcome as events.
    ///
    /// # Errors
    /// All errors of the configuration: the former one holds.
    pub(crate) fn reload(&self, asker: Asker) -> Result<Outcome, Problem> {
        let mut running = self.running();
        service_manager::reloading();
        let outcome = self.apply(&mut running);
        running.last.is_successful = outcome.is_ok();
        let told: Vec<_> = match &outcome {
            Ok(outcome) => {
                running.last = LastReload::successful();
                let lines = outcome.lines().into_iter();
                lines.map(|line| format!("reload: {line}")).collect()
            }
            Err(problem) => {
                let problem = link::without_secrets(&problem.to_string());
                vec![format!("warning: reload failed, nothing is changed: {problem}")]
            }
        };
        let has_changed = outcome.as_ref().is_ok_and(Outcome::has_changed);
        if asker == Asker::Signal || has_changed || told != running.told {
            told.iter().for_each(|line| log::line("reload", line));
        }
        running.told = told;
        service_manager::reloaded(outcome.is_ok());
        outcome
    }

    fn apply(&self, running: &mut Running) -> Result<Outcome, Problem> {
        // A pipe can be read once, and the wait for its writer would never end.
        let named = self.source.config();
        if let Some(path) = named.filter(|path| path.metadata().is_ok_and(|found| !found.is_file())) {
            return Err(Problem::configuration(format!(
                "{} is no regular file and cannot be read again",
                path.display()
            )));
        }
        let (settings, effective) = self.source.read()?;
        let changed = (self.source.changes)(&running.effective, &effective);
        let outcome = Outcome { changed };
        for (key, _) in outcome
            .changed
            .iter()
            .filter(|(_, reload)| *reload != Reload::Restart)
        {
            running.effective.follow(&effective, key);
        }
        // Threads that carry packets are left alone where there is nothing to change.
        if outcome.has_changed() {
            let live = LiveSettings {
                allowed_targets: settings.allow_target,
                engine: settings.common.engine,
            };
            self.controller.change(live.clone());
            running.live = Some(live);
        }
        log::set_verbose(settings.verbose);
        self.traced_users.follow(&settings.qlog.users);
        self.metrics_per_user
            .store(settings.metrics.per_user, Ordering::Relaxed);
        Ok(outcome)
    }

    /// Another client was started in the place of the one that ended: it goes by what was changed live.
    pub(crate) fn follow(&self, controller: &Controller) {
        let running = self.running();
        self.controller.follow(controller);
        if let Some(live) = &running.live {
            self.controller.change(live.clone());
        }
    }

    /// How the last reload went.
    pub(crate) fn last(&self) -> LastReload {
        self.running().last
    }

    /// Whether metrics have what each user does.
    pub(crate) fn has_metrics_per_user(&self) -> bool {
        self.metrics_per_user.load(Ordering::Relaxed)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_names_each_setting_with_when_it_counts() {
        assert_eq!(Outcome::default().lines(), ["nothing has changed"]);
        let outcome = Outcome {
            changed: vec![
                ("listen", Reload::Restart),
                ("allow_target", Reload::New),
                ("queue_policy", Reload::Live),
            ],
        };
        assert_eq!(
            outcome.lines(),
            [
                "listen: takes effect after a restart",
                "allow_target: changed for what opens from now on",
                "queue_policy: changed",
            ]
        );
        assert_eq!(outcome.as_json()["after_restart"], json!(["listen"]));
    }
}
