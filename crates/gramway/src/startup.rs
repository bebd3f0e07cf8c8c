//! What every long-running command does first: state directory, settings, file-descriptor limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cli::Places;
use crate::config::{CommandWithSettings, Effective, Flags, Settings, misspelt_variables};
use crate::exit::Problem;
use crate::limits::CONFIG_FILE_BYTES_MAX;
use crate::link::is_link;
use crate::log;
use crate::server_state::CONFIG_FILE;
use crate::state::StateDirectory;

/// Locates and checks the state directory and reads file, environment and flags; nothing is changed on disk.
pub(crate) fn settings<C: CommandWithSettings>(
    places: &Places,
    flags: &Flags<C>,
) -> Result<(StateDirectory, Settings), Problem> {
    let directory = state_directory(places)?;
    let (settings, _) = read(&directory, places, flags)?;
    settings.check_needs(flags)?;
    Ok((directory, settings))
}

/// Locates and checks the state directory.
pub(crate) fn state_directory(places: &Places) -> Result<StateDirectory, Problem> {
    let directory = StateDirectory::locate(places.state.as_deref(), |name| std::env::var_os(name))?;
    directory.examine()?;
    Ok(directory)
}

/// Reads file, environment and flags, and tells all of their errors: the settings, and where each comes from.
pub(crate) fn read<C>(
    directory: &StateDirectory,
    places: &Places,
    flags: &Flags<C>,
) -> Result<(Settings, Effective), Problem> {
    let variable = |name: &str| std::env::var_os(name);
    let (mut settings, mut effective) = (Settings::default(), Effective::default());
    let mut problems = Vec::new();
    if let Some((path, text)) = config_file(places, directory)? {
        problems.extend(settings.apply_file(&path, &text).err());
        effective.take_file(&path, &text);
    }
    if let Some(profile) = &places.profile {
        if let Some(link) = profile.link() {
            settings.link_file = Some(link);
        }
        if let Some(path) = profile.settings() {
            let text =
                read_bounded(&path).map_err(|error| Problem::file("read the profile", &path, &error))?;
            problems.extend(settings.apply_file(&path, &text).err());
            effective.take_file(&path, &text);
        }
    }
    problems.extend(settings.apply_environment(variable).err());
    effective.take_environment(variable);
    warn_of_misspelt_variables();
    problems.extend(settings.apply_flags(flags).err());
    effective.take_flags(flags);
    Problem::all(problems)?;
    Ok((settings, effective))
}

/// The config file that command line or environment names.
pub(crate) fn named_config(places: &Places) -> Option<PathBuf> {
    let variable = || std::env::var_os("GRAMWAY_CONFIG").map(PathBuf::from);
    places.config.clone().or_else(variable)
}

/// The config file's path and text; `None` if none is named and the state directory has none.
pub(crate) fn config_file(
    places: &Places,
    directory: &StateDirectory,
) -> Result<Option<(PathBuf, String)>, Problem> {
    let named = named_config(places);
    if named.as_ref().is_some_and(|path| is_link(path.as_os_str())) {
        return Err(Problem::usage(
            "a link stands where a config file is expected; give --config FILE",
        ));
    }
    let path = named.clone().unwrap_or_else(|| directory.file(CONFIG_FILE));
    match read_bounded(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem::file("read the config file", &path, &error)),
    }
}

/// Warns of variables that look like a setting's and are none's.
pub(crate) fn warn_of_misspelt_variables() {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for text in misspelt_variables(variables) {
        log::warning("environment", text);
    }
}

/// Undoes what earlier processes changed in the host's network and left behind when they were killed with their
/// guardians, whatever this process is going to do.
pub(crate) fn undo_leftovers(directory: &StateDirectory) {
    if host::can_administer().is_err() {
        return;
    }
    for text in host::recover(&host::runtime_directory(directory.path())) {
        log::warning("leftovers", text);
    }
}

/// Raises the soft limit of open files to the hard one: every UDP source and TCP connection needs a socket.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where it is refused, the tunnel works within the limit there is.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A config file, or another of no more bytes.
pub(crate) fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(CONFIG_FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > CONFIG_FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "it is larger than {CONFIG_FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}
