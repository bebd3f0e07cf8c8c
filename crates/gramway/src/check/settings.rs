//! The check of settings: the values of the config file and the environment, and whether they fit together for a server
//! and for a client. What only flags would complete is an error, because the check does not know them.

use crate::cli::Places;
use crate::config::{Connect, Flags, Settings, Up};
use crate::exit::Problem;
use crate::state::StateDirectory;
use crate::{output, startup};

/// Tells all errors, or that there are none.
pub(super) fn run(places: &Places) -> Result<(), Problem> {
    let directory = StateDirectory::locate(places.state.as_deref(), |name| std::env::var_os(name))?;
    let file = startup::config_file(places, &directory)?;
    startup::warn_of_misspelt_variables();
    let mut settings = Settings::default();
    let values = [
        file.as_ref()
            .and_then(|(path, text)| settings.apply_file(path, text).err()),
        settings.apply_environment(|name| std::env::var_os(name)).err(),
    ];
    Problem::all(values.into_iter().flatten().collect())?;
    // Without the values above, what needs one of them would be complained of as well.
    let needs = [
        settings.check_needs(&Flags::<Up>::none()).err(),
        settings.check_needs(&Flags::<Connect>::none()).err(),
    ];
    Problem::all(needs.into_iter().flatten().collect())?;
    output::note(&match file {
        Some((path, _)) => format!("{} has no errors", path.display()),
        None => format!(
            "there is no config file in {}, and nothing is wrong",
            directory.path().display()
        ),
    });
    Ok(())
}
