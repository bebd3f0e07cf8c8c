//! Where a program runs: on the host or in a network namespace.

use std::ffi::OsStr;
use std::process::Command;

/// Where a program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the network of the test itself.
    Host,
    /// In the network namespace of this name.
    Namespace(String),
}

impl Place {
    /// A command that runs there.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Host => Command::new(program),
            Self::Namespace(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name.as_str()]).arg(program);
                command
            }
        }
    }
}

/// Runs a command to its end and gives what it printed to standard output.
///
/// # Panics
/// When it cannot be started or does not exit with 0; the message has the command and what it said.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
