//! The hidden subcommand `_guardian`: the child process that undoes what a killed `gramway` changed in the host's
//! network.
//!
//! `host` starts it and owns what it does. This file makes it ignore the signals that end the parent.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Code, Problem, sentence};

/// From now on signals that end the parent only set what is returned.
pub(crate) fn outlive_signals() -> Result<Arc<AtomicBool>, Problem> {
    let is_asked_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_asked_to_end)).map_err(|error: io::Error| {
            Problem::bug(format!("cannot ignore signals: {}", sentence(&error)))
        })?;
    }
    Ok(is_asked_to_end)
}

/// Watches until the parent ends.
pub(crate) fn run(file: &Path) -> Result<(), Problem> {
    let is_asked_to_end = outlive_signals()?;
    host::guard(file, &is_asked_to_end).map_err(|error| {
        let code = if error.is_permission() {
            Code::Permission
        } else {
            Code::Unavailable
        };
        Problem::new(code, error.to_string())
    })
}
