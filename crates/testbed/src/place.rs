//! Where a program runs: on the host or in a network namespace.

use std::ffi::OsStr;
use std::process::Command;

use crate::Error;
use crate::namespace::within;

/// Where a program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the network of this process.
    Host,
    /// In the network namespace of this name.
    Namespace(String),
}

impl Place {
    /// A command that runs there. `ip netns exec` becomes the program, so its process ID is the program's.
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

    /// Runs `work` there and gives its result; sockets that it opens stay there wherever they are used.
    ///
    /// # Errors
    /// When there is no such namespace or this process may not enter it.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        match self {
            Self::Host => Ok(work()),
            Self::Namespace(name) => within(name, work),
        }
    }

    /// The same command, with its arguments, environment and working directory, run there.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        wrapped_by(self.command(command.get_program()), command)
    }
}

/// `wrapper`, which names the program of `command`, with the arguments, environment and working directory of `command`.
pub(crate) fn wrapped_by(mut wrapper: Command, command: &Command) -> Command {
    wrapper.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapper.env(name, value),
            None => wrapper.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        wrapper.current_dir(directory);
    }
    wrapper
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_command_keeps_its_arguments_and_environment() {
        let mut command = Command::new("gramway");
        command
            .args(["up", "--tun"])
            .env("A", "b")
            .env_remove("GRAMWAY_LINK");
        let wrapped = Place::Namespace("gw-0-0".to_owned()).wrap(&command);
        let words: Vec<_> = wrapped.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.join(" "), "netns exec gw-0-0 gramway up --tun");
        assert_eq!(wrapped.get_envs().count(), 2);
    }
}
