//! `gramway user backup` and `gramway user restore`: copies of the database in files of whoever runs the command, who
//! may be root where the database is a service's.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use store::{Snapshot, Sqlite, Store, StoreError};

use super::{FILE, open, problem, set_aside, unix_now};
use crate::exit::{Code, Problem, sentence};
use crate::output;
use crate::server_state::ServerState;
use crate::state::StateDirectory;

/// Instead of a file's name: standard output.
const STANDARD_OUTPUT: &str = "-";

/// Copies the database to a new file, or to standard output.
pub(super) fn back_up(directory: StateDirectory, file: &Path) -> Result<(), Problem> {
    if file == Path::new(STANDARD_OUTPUT) {
        return print(&read(directory)?);
    }
    let copy = if directory.is_anothers()? {
        read_as_owner(&directory)?
    } else {
        read(directory)?
    };
    write_new(file, &copy)
}

/// Replaces the database by the copy in a file.
pub(super) fn restore(directory: StateDirectory, file: &Path) -> Result<(), Problem> {
    let snapshot = Snapshot::read(file)
        .map_err(|error| Problem::configuration(format!("cannot restore {}: {error}", file.display())))?;
    let directory = directory.into_owners_root()?;
    ServerState::existing(&directory)?;
    let path = directory.file(FILE);
    if matches!(Sqlite::open(&path), Err(StoreError::Damaged(_))) {
        let name = set_aside(&directory, unix_now())?;
        let shown = directory.shown_file(FILE);
        output::note(&format!("{} is damaged and is kept as {name}", shown.display()));
    }
    let unusable = |error: StoreError| problem(&directory, &error);
    let mut store = match open(&directory)? {
        Some(store) => store,
        None => Sqlite::create(&path).map_err(unusable)?,
    };
    store.restore(&snapshot).map_err(unusable)?;
    let users = store.users().map_err(unusable)?;
    output::note(&format!("users: {}", users.len()));
    Ok(())
}

/// The bytes of a copy.
fn read(directory: StateDirectory) -> Result<Vec<u8>, Problem> {
    let directory = directory.into_owners_root()?;
    ServerState::existing(&directory)?;
    let mut store = open(&directory)?.ok_or_else(|| {
        Problem::usage("there are no users besides the owner; add one with: gramway user add NAME")
    })?;
    store.copy().map_err(|error| problem(&directory, &error))
}

/// The same by another process, which becomes the owner for good. This one stays root, to write the file.
fn read_as_owner(directory: &StateDirectory) -> Result<Vec<u8>, Problem> {
    let failed = |error: io::Error| {
        Problem::unavailable(format!(
            "cannot start a process that reads {}: {}",
            directory.shown().display(),
            sentence(&error)
        ))
    };
    let output = Command::new("/proc/self/exe")
        .args(["user", "backup", STANDARD_OUTPUT, "--state"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    // It has said why.
    let codes = [Code::Usage, Code::Permission, Code::Configuration, Code::Bug];
    let code = codes
        .into_iter()
        .find(|code| output.status.code() == Some(*code as i32));
    let told = format!("no copy of {} was made", directory.shown_file(FILE).display());
    Err(Problem::new(code.unwrap_or(Code::Unavailable), told))
}

/// Writes a file that was not there, with mode 0600.
fn write_new(file: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let cannot = |error: io::Error| {
        Problem::unavailable(format!(
            "cannot back up to {}: {}",
            file.display(),
            sentence(&error)
        ))
    };
    let mut new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(cannot)?;
    new.write_all(bytes)
        .and_then(|()| new.sync_all())
        .inspect_err(|_| {
            // Half a copy is none.
            let _ = std::fs::remove_file(file);
        })
        .map_err(cannot)
}

fn print(bytes: &[u8]) -> Result<(), Problem> {
    let mut stdout = io::stdout().lock();
    if stdout.is_terminal() {
        return Err(Problem::usage(
            "a copy of the users is not for a terminal; redirect standard output to a file",
        ));
    }
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| {
            Problem::unavailable(format!("cannot write to standard output: {}", sentence(&error)))
        })
}
