//! Output: data goes to stdout, messages for people to stderr. A closed stderr never ends the program.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::fstat;

use crate::exit::{Problem, sentence};
use crate::{recent, units};

/// Prints one line for people.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell that nobody listens.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints one line about something that has just happened. Off a terminal it has its time in UTC, except where the
/// system's journal gives it one.
pub(crate) fn event(text: &str) {
    recent::record(text);
    let journal = std::env::var("JOURNAL_STREAM");
    if io::stderr().is_terminal() || journal.is_ok_and(|stream| is_stream(&stream, io::stderr())) {
        return note(text);
    }
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    note(&format!("{} {text}", units::timestamp(since_1970)));
}

/// Whether this descriptor is the stream `DEVICE:INODE` (systemd.exec(5), `JOURNAL_STREAM`): children inherit the
/// variable also where their standard error leads elsewhere.
fn is_stream(stream: &str, descriptor: impl AsFd) -> bool {
    fstat(descriptor).is_ok_and(|found| stream == format!("{}:{}", found.st_dev, found.st_ino))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_the_stream_that_the_variable_names_is_the_journals() {
        let [journal, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let metadata = journal.metadata().unwrap();
        let stream = format!("{}:{}", metadata.dev(), metadata.ino());
        assert!(is_stream(&stream, &journal));
        assert!(!is_stream(&stream, &other));
        assert!(!is_stream("", &journal));
    }
}
