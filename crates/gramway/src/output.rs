//! Output: data goes to stdout, messages for people to stderr. A closed stderr never ends the program.

use std::io::{self, Write};

use crate::exit::{Problem, sentence};

/// Prints one line for people.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell that nobody listens.
    let _ = writeln!(io::stderr().lock(), "{text}");
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
