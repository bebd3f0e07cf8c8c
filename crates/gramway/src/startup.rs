//! What every long-running command does first: state directory, settings, file-descriptor limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cli::Places;
use crate::config::{CommandWithSettings, Flags, Settings, misspelt_variables};
use crate::exit::Problem;
use crate::limits::CONFIG_FILE_BYTES_MAX;
use crate::link::is_link;
use crate::output;
use crate::server_state::CONFIG_FILE;
use crate::state::StateDirectory;

/// Locates and checks the state directory and reads file, environment and flags; nothing is changed on disk.
pub(crate) fn settings<C: CommandWithSettings>(
    places: &Places,
    flags: &Flags<C>,
) -> Result<(StateDirectory, Settings), Problem> {
    let directory = StateDirectory::locate(places.state.as_deref(), |name| std::env::var_os(name))?;
    directory.examine()?;
    let mut settings = Settings::default();
    if let Some((path, text)) = config_file(places, &directory)? {
        settings.apply_file(&path, &text)?;
    }
    settings.apply_environment(|name| std::env::var_os(name))?;
    warn_of_misspelt_variables();
    settings.apply_flags(flags)?;
    settings.check_needs(flags)?;
    Ok((directory, settings))
}

/// The config file's path and text; `None` if none is named and the state directory has none.
pub(crate) fn config_file(
    places: &Places,
    directory: &StateDirectory,
) -> Result<Option<(PathBuf, String)>, Problem> {
    let named = places
        .config
        .clone()
        .or_else(|| std::env::var_os("GRAMWAY_CONFIG").map(PathBuf::from));
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
        output::note(&format!("warning: {text}"));
    }
}

/// Undoes what earlier processes changed in the host's network and left behind when they were killed with their
/// guardians, whatever this process is going to do.
pub(crate) fn undo_leftovers(directory: &StateDirectory) {
    if host::can_administer().is_err() {
        return;
    }
    for text in host::recover(&host::runtime_directory(directory.path())) {
        output::event(&format!("warning: {text}"));
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
