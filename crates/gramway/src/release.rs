//! `gramway release`: gives the network back after a client that was killed, or that was to leave it closed. Routes and
//! parameters are set back before the kill switch goes.

use std::io;

use crate::cli::ReleaseArguments;
use crate::exit::Problem;
use crate::log;
use crate::state::StateDirectory;

/// Runs the command.
pub(crate) fn run(arguments: &ReleaseArguments) -> Result<(), Problem> {
    let directory = StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?;
    host::can_administer().map_err(|error| Problem::permission(error.to_string()))?;
    let told = host::recover(&host::runtime_directory(directory.path()));
    told.iter().for_each(|text| log::info("undone", text));
    let is_removed = host::kill_switch::release().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => Problem::permission(error.to_string()),
        _ => Problem::unavailable(error.to_string()),
    })?;
    let text = match (is_removed, told.is_empty()) {
        (true, _) => "removed the kill switch: packets leave this machine as its routes lead them",
        (false, true) => "there is nothing to release",
        (false, false) => "there is no kill switch",
    };
    log::info("kill_switch", text);
    Ok(())
}
