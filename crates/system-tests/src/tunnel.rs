//! A server and clients of the program under test, started as a user starts them.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use serde_json::Value;

use crate::limits::PROGRAM_LIMIT;
use crate::program::gramway_binary;
use testbed::place::Place;
use testbed::process::{Process, Signal};
use testbed::programs::run;
use testbed::wait::wait_until;

/// A running `gramway up`.
pub struct Server {
    end: TunnelEnd,
}

/// A running `gramway connect`.
pub struct Client {
    end: TunnelEnd,
}

/// What both have in common: a process that can be started again on the same state.
struct TunnelEnd {
    name: String,
    place: Place,
    /// Words that the program is started by.
    wrapper: Vec<String>,
    arguments: Vec<String>,
    state: PathBuf,
    process: Process,
}

impl Server {
    /// Starts a server on `listen` (`ADDR:PORT`) with its state in `DIRECTORY/NAME` and waits until it answers.
    ///
    /// # Panics
    /// When it does not within 30 s.
    #[must_use]
    pub fn start(place: &Place, name: &str, listen: &str, options: &[&str], directory: &Path) -> Self {
        Self::start_by(&[], place, name, listen, options, directory)
    }

    /// The same by way of `wrapper`: words that become the program behind them, with its process ID.
    ///
    /// # Panics
    /// When it does not answer within 30 s.
    #[must_use]
    pub fn start_by(
        wrapper: &[String],
        place: &Place,
        name: &str,
        listen: &str,
        options: &[&str],
        directory: &Path,
    ) -> Self {
        let mut arguments = vec!["up".to_owned(), "--listen".to_owned(), listen.to_owned()];
        arguments.extend(options.iter().map(ToString::to_string));
        let mut server = Self {
            end: TunnelEnd::start(wrapper, place, name, arguments, directory),
        };
        server.wait_until_ready();
        server
    }

    /// The link that `gramway link` prints.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn link(&self) -> String {
        let mut command = self.end.place.command(gramway_binary());
        command.arg("link").arg("--state").arg(&self.end.state);
        run(&mut command).unwrap().trim().to_owned()
    }

    /// What `gramway user` with these words prints, whether the server runs or not.
    ///
    /// # Panics
    /// When it fails.
    pub fn user(&self, words: &[&str]) -> String {
        let mut command = self.end.place.command(gramway_binary());
        command
            .arg("user")
            .args(words)
            .arg("--state")
            .arg(&self.end.state);
        run(&mut command).unwrap().trim().to_owned()
    }

    /// Starts it again on the same state and address, after it was killed or stopped.
    ///
    /// # Panics
    /// When it does not answer within 30 s.
    pub fn start_again(&mut self) {
        self.end.start_again();
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        wait_until(&format!("an answer of {}", self.end.name), PROGRAM_LIMIT, || {
            let ended = self.end.process.try_status();
            assert!(ended.is_none(), "{} ended: {ended:?}", self.end.name);
            self.end.try_status().is_some()
        });
    }
}

impl Client {
    /// Starts a client with these forwards (`udp:LISTEN=TARGET`, `tcp:LISTEN=TARGET`) and waits until it is connected.
    ///
    /// # Panics
    /// When it is not within 30 s.
    #[must_use]
    pub fn start(
        place: &Place,
        name: &str,
        link: &str,
        forwards: &[&str],
        options: &[&str],
        directory: &Path,
    ) -> Self {
        let mut client = Self::start_unconnected(place, name, link, forwards, options, directory);
        client.wait_until_connected(1, PROGRAM_LIMIT);
        client
    }

    /// Starts a client and waits for nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_unconnected(
        place: &Place,
        name: &str,
        link: &str,
        forwards: &[&str],
        options: &[&str],
        directory: &Path,
    ) -> Self {
        Self::start_unconnected_by(&[], place, name, link, forwards, options, directory)
    }

    /// The same by way of `wrapper`, as [`Server::start_by`].
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start_unconnected_by(
        wrapper: &[String],
        place: &Place,
        name: &str,
        link: &str,
        forwards: &[&str],
        options: &[&str],
        directory: &Path,
    ) -> Self {
        // On a command line everybody on the machine could read it.
        let link_file = directory.join(format!("{name}.link"));
        write_secret(&link_file, &format!("{link}\n"))
            .unwrap_or_else(|error| panic!("{} cannot be written: {error}", link_file.display()));
        let mut arguments = vec![
            "connect".to_owned(),
            "--link-file".to_owned(),
            link_file.display().to_string(),
        ];
        for forward in forwards {
            arguments.extend(["-L".to_owned(), (*forward).to_owned()]);
        }
        arguments.extend(options.iter().map(ToString::to_string));
        Self {
            end: TunnelEnd::start(wrapper, place, name, arguments, directory),
        }
    }

    /// Waits until it has said `connected` so often since it was started, and gives the last such line.
    ///
    /// # Panics
    /// When `limit` passes first.
    pub fn wait_until_connected(&mut self, times: usize, limit: Duration) -> String {
        self.end
            .process
            .wait_for_starts("connected", times, limit)
            .unwrap()
    }

    /// Waits until each of its connections is up, so that none of them is still being made.
    ///
    /// # Panics
    /// When they are not within 30 s.
    pub fn wait_until_all_connected(&self) {
        wait_until("all connections", PROGRAM_LIMIT, || {
            let status = self.status();
            let mut shards = status["shards"].as_array().into_iter().flatten();
            shards.all(|shard| shard["state"] == "connected")
        });
    }

    /// Starts it again after it was killed or stopped, and waits for nothing.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_again_unconnected(&mut self) {
        self.end.start_again();
    }

    /// Starts it again after it was killed or stopped, and waits until it is connected.
    ///
    /// # Panics
    /// When it is not within 30 s.
    pub fn start_again(&mut self) {
        self.end.start_again();
        self.wait_until_connected(1, PROGRAM_LIMIT);
    }
}

/// A wrapper, as [`Server::start_by`] takes it: what this shell script mounts is there for the program alone.
#[must_use]
pub fn with_mounts(script: &str) -> Vec<String> {
    let script = format!("{script} && exec \"$@\"");
    let words = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    words.map(str::to_owned).to_vec()
}

/// What server and client offer alike.
macro_rules! common {
    ($($kind:ty),+) => {$(
        impl $kind {
            /// The guarded process.
            pub fn process(&mut self) -> &mut Process {
                &mut self.end.process
            }

            /// Its state directory.
            #[must_use]
            pub fn state(&self) -> &Path {
                &self.end.state
            }

            /// Its counters, as `gramway status --json` shows them.
            ///
            /// # Panics
            /// When it does not answer.
            #[must_use]
            pub fn status(&self) -> Value {
                self.end.try_status().unwrap_or_else(|| panic!("{} gives no status", self.end.name))
            }

            /// Kills it, as by `kill -9`.
            pub fn kill(&mut self) {
                self.end.process.kill();
            }

            /// Ends it by SIGTERM and gives its exit code; `None` where a signal ended it.
            ///
            /// # Panics
            /// When it has not ended 30 s later.
            pub fn stop(&mut self) -> Option<i32> {
                self.end.process.signal(Signal::TERM);
                self.end.process.wait(PROGRAM_LIMIT).unwrap().code()
            }
        }
    )+};
}
common!(Server, Client);

impl TunnelEnd {
    fn start(
        wrapper: &[String],
        place: &Place,
        name: &str,
        mut arguments: Vec<String>,
        directory: &Path,
    ) -> Self {
        let state = directory.join(name);
        arguments.extend(["--state".to_owned(), state.display().to_string()]);
        let process = Process::start(command(place, wrapper, &arguments), name).unwrap();
        let (name, place) = (name.to_owned(), place.clone());
        Self {
            name,
            place,
            wrapper: wrapper.to_vec(),
            arguments,
            state,
            process,
        }
    }

    fn start_again(&mut self) {
        self.process.kill();
        let command = command(&self.place, &self.wrapper, &self.arguments);
        self.process = Process::start(command, &self.name).unwrap();
    }

    fn try_status(&self) -> Option<Value> {
        let output = Command::new(gramway_binary())
            .args(["status", "--json", "--state"])
            .arg(&self.state)
            .output()
            .unwrap_or_else(|error| panic!("gramway status cannot be started: {error}"));
        let mut status: Value = serde_json::from_slice(&output.stdout)
            .ok()
            .filter(|_| output.status.success())?;
        let processes = status["processes"].as_array_mut()?;
        let own = processes
            .iter()
            .position(|process| process["pid"] == self.process.id())?;
        Some(processes.swap_remove(own))
    }
}

/// The SHA-256 of the server's public key that a link names.
///
/// # Panics
/// When the link has none.
#[must_use]
pub fn pin_of(link: &str) -> [u8; 32] {
    let rest = link.split_once("pin=sha256-").map(|(_, rest)| rest);
    let pin = rest.and_then(|rest| rest.split(['&', '#']).next());
    let pin = pin.and_then(|pin| BASE64URL_NOPAD.decode(pin.as_bytes()).ok());
    pin.and_then(|pin| pin.try_into().ok())
        .expect("a link names a pin")
}

/// Writes a file that nobody else may read.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())
}

fn command(place: &Place, wrapper: &[String], arguments: &[String]) -> Command {
    let program = gramway_binary();
    let mut command = match wrapper.split_first() {
        None => place.command(program),
        Some((first, others)) => {
            let mut command = place.command(first);
            command.args(others).arg(program);
            command
        }
    };
    command.args(arguments);
    if wrapper.is_empty() && arguments.first().is_some_and(|first| first == "connect") {
        // /etc/resolv.conf is that of the machine on which the tests run; with mounts it may be another.
        command.env("GRAMWAY_NO_DNS", "true");
    }
    command
}
