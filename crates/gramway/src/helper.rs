//! Who changes the host's network for a process with a TUN: its helper, the hidden subcommand `_helper`, which is
//! started before the process gives its privileges up; without a sandbox the process itself.
//!
//! `host` starts it and owns what it does. This file confines it, and makes its parent end where it does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use host::{GuardianProgram, HELPER_SUBCOMMAND, Helper, HelperOwner, HostChanges, can_administer};
use serde_json::Value;
use tunnel::handle::Controller;

use crate::exit::{Code, Problem, sentence};
use crate::{guardian, sandbox};

/// `gramway _helper`.
#[derive(Args, Debug)]
pub(crate) struct HelperArguments {
    /// The directory of the lists of changes
    directory: PathBuf,
    /// The machine's name servers are changed, too
    #[arg(long)]
    names: bool,
}

/// The helper's life.
pub(crate) fn run(arguments: &HelperArguments) -> Result<(), Problem> {
    guardian::outlive_signals()?;
    let failed = |error: host::HostError| Problem::new(Code::Unavailable, error.to_string());
    let owner = HelperOwner::identify().map_err(failed)?;
    let report = sandbox::confine_helper(&arguments.directory, arguments.names);
    let guardian = GuardianProgram::this_program();
    host::serve(
        owner,
        &arguments.directory,
        guardian,
        report.to_string().as_bytes(),
    )
    .map_err(failed)
}

/// The way to changes of the host's network.
#[derive(Debug)]
pub(crate) struct HostAccess {
    /// `None`: nothing is changed.
    changes: Option<HostChanges>,
    /// Until it is watched.
    helper: Option<Helper>,
    report: Value,
    has_ended: Arc<AtomicBool>,
}

impl HostAccess {
    /// Nothing is changed.
    pub(crate) fn none() -> Self {
        Self {
            changes: None,
            helper: None,
            report: Value::Null,
            has_ended: Arc::default(),
        }
    }

    /// By a helper that sets the machine's name servers where `sets_names`, or by this process. Changes are listed in
    /// `directory`.
    ///
    /// # Errors
    /// The privilege is missing, or the helper does not start.
    pub(crate) fn start(directory: &Path, by_helper: bool, sets_names: bool) -> Result<Self, Problem> {
        can_administer().map_err(|error| Problem::permission(error.to_string()))?;
        let unavailable = |error: host::HostError| Problem::unavailable(error.to_string());
        if !by_helper {
            let changes = HostChanges::by_this_process(directory, GuardianProgram::this_program());
            return Ok(Self {
                changes: Some(changes.map_err(unavailable)?),
                ..Self::none()
            });
        }
        // It runs in another directory.
        let directory = std::path::absolute(directory)
            .map_err(|error| Problem::bug(format!("cannot find this directory: {}", sentence(&error))))?;
        let mut arguments: Vec<OsString> = vec![HELPER_SUBCOMMAND.into(), directory.into()];
        arguments.extend(sets_names.then(|| "--names".into()));
        let (helper, report, changes) =
            Helper::start("/proc/self/exe".as_ref(), &arguments).map_err(unavailable)?;
        Ok(Self {
            changes: Some(changes),
            helper: Some(helper),
            report: serde_json::from_slice(&report).unwrap_or_default(),
            ..Self::none()
        })
    }

    pub(crate) fn changes(&self) -> Option<HostChanges> {
        self.changes.clone()
    }

    /// What holds for the helper, for `status`; null without one.
    pub(crate) fn report(&self) -> Value {
        self.report.clone()
    }

    /// Has the tunnel end where the helper does: what it changed is undone then, and nobody can change it again.
    pub(crate) fn watch(&mut self, controller: Controller) -> Result<(), Problem> {
        let Some(mut helper) = self.helper.take() else {
            return Ok(());
        };
        let has_ended = Arc::clone(&self.has_ended);
        let watch = move || {
            // Without an answer nothing is known about it.
            if helper.wait().is_ok() {
                has_ended.store(true, Ordering::Relaxed);
                controller.stop();
            }
        };
        let thread = thread::Builder::new().name("helper".to_owned()).spawn(watch);
        thread
            .map(drop)
            .map_err(|error| Problem::bug(format!("cannot watch the helper: {}", sentence(&error))))
    }

    /// How the tunnel ended: `ended`, unless it did so for want of the helper.
    pub(crate) fn judge(&self, ended: Result<(), Problem>) -> Result<(), Problem> {
        if self.has_ended.load(Ordering::Relaxed) {
            return ended.and(Err(Problem::unavailable(
                "the helper that changes the host's network was killed; its guardian undoes the changes",
            )));
        }
        ended
    }
}
