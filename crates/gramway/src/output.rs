//! Output: data goes to stdout, messages for people to stderr. A closed stderr never ends the program.

use std::io::{self, IsTerminal, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::{Problem, sentence};
use crate::units;

/// Prints one line for people.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell that nobody listens.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints one line about something that has just happened. Off a terminal it has its time in UTC, except where the
/// system's journal gives it one.
pub(crate) fn event(text: &str) {
    if io::stderr().is_terminal() || std::env::var_os("JOURNAL_STREAM").is_some() {
        return note(text);
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    note(&format!("{} {text}", units::timestamp(since_1970)));
}

/// Prints data, with its final line break. A closed reader (`| head`) is not an error.
pub(crate) fn data(text: &str) -> Result<(), Problem> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{}", text.trim_end_matches('\n')).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Problem::unavailable(format!(
            "cannot write to standard output: {}",
            sentence(&error)
        ))),
        _ => Ok(()),
    }
}
