//! `gramway config`: prints the settings that would count, or the schema of the config file.

use crate::cli::{ConfigArguments, ConfigRole, Places};
use crate::config::{CommandWithSettings, Effective, Flags, Settings, schema};
use crate::exit::Problem;
use crate::state::StateDirectory;
use crate::{output, startup};

/// Runs the command.
pub(crate) fn run(arguments: &ConfigArguments) -> Result<(), Problem> {
    if arguments.schema {
        return output::data(&format!("{:#}", schema()));
    }
    let effective = match &arguments.role {
        None => {
            let (_, effective) = read(&arguments.places, &Flags::<()>::none())?;
            effective.file(|_| true)
        }
        Some(ConfigRole::Up { flags }) => of_role(&arguments.places, flags)?,
        Some(ConfigRole::Connect { flags }) => of_role(&arguments.places, flags)?,
    };
    output::data(&effective)
}

fn of_role<C: CommandWithSettings>(places: &Places, flags: &Flags<C>) -> Result<String, Problem> {
    let (settings, effective) = read(places, flags)?;
    settings.check_needs(flags)?;
    Ok(effective.file(C::reads))
}

fn read<C>(places: &Places, flags: &Flags<C>) -> Result<(Settings, Effective), Problem> {
    let directory = StateDirectory::locate(places.state.as_deref(), |name| std::env::var_os(name))?;
    startup::read(&directory, places, flags)
}
