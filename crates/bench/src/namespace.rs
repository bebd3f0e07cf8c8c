//! Network namespaces of a benchmark, and their end: dropped with their owner, or swept by a process of its own when
//! the benchmark is interrupted or killed.
//!
//! The sweeper reads a pipe that only the benchmark holds open. However the benchmark ends, the pipe ends with it,
//! and the sweeper removes what carries the benchmark's process ID in its name.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::children::Load;
use crate::error::During;
use crate::{Error, Programs, hidden};

/// Where `ip netns` keeps its namespaces.
const DIRECTORY: &str = "/run/netns";

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A network namespace `gwb-PROCESS-NUMBER` with its loopback interface up, removed with its processes when dropped.
#[derive(Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one; needs root.
    ///
    /// # Errors
    /// When `ip` is missing or refuses.
    pub(crate) fn create() -> Result<Self, Error> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", prefix(std::process::id()));
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.run("ip", &["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The same command, run inside. `ip netns exec` becomes the program, so its process ID is the program's.
    pub(crate) fn inside(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("ip");
        wrapped
            .args(["netns", "exec", &self.name])
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        wrapped
    }

    /// Runs a program inside to its end and gives what it printed.
    ///
    /// # Errors
    /// When it is missing or does not exit with 0, with its own words.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        run(&mut self.inside(Command::new(program).args(arguments)))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Runs a command to its end and gives what it printed.
///
/// # Errors
/// When it is missing or does not exit with 0, with its own words.
pub(crate) fn run(command: &mut Command) -> Result<String, Error> {
    let name = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let name = name();
    let output = command
        .stdin(Stdio::null())
        .output()
        .during(|| format!("start {name}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Child {
        program: name,
        reason,
    })
}

/// Runs `work` on a thread inside a namespace and gives its result. Sockets and devices that it opens stay in that
/// namespace wherever they are used.
///
/// # Errors
/// When there is no such namespace or this process may not enter it.
pub(crate) fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let enter = || -> std::io::Result<()> {
        let file = File::open(Path::new(DIRECTORY).join(name))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    let inside = || enter().map(|()| work());
    let done = std::thread::scope(|scope| scope.spawn(inside).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .during(|| format!("enter the namespace {name}"))
}

/// Joins two namespaces by a veth pair; both ends have the same name and are up when it returns.
///
/// # Errors
/// When `ip` refuses it.
pub(crate) fn join(ends: [(&Namespace, &str); 2], interface: &str, mtu_bytes: u16) -> Result<(), Error> {
    let [(left, _), (right, _)] = ends;
    run(Command::new("ip")
        .args(["link", "add", interface, "netns", left.name(), "type", "veth"])
        .args(["peer", "name", interface, "netns", right.name()]))?;
    for (namespace, address) in ends {
        namespace.run("ip", &["address", "add", address, "dev", interface])?;
        let mtu = mtu_bytes.to_string();
        namespace.run("ip", &["link", "set", interface, "mtu", &mtu, "up"])?;
    }
    Ok(())
}

/// A process that removes what the benchmark leaves, when it ends by itself or is ended.
#[derive(Debug)]
pub(crate) struct Sweeper {
    process: Option<Load>,
}

impl Sweeper {
    /// Starts it. What dead benchmarks left because their sweeper was killed too is removed at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(programs: &Programs) -> Result<Self, Error> {
        for process in abandoned() {
            sweep(process);
        }
        let mut command = programs.load(hidden::SWEEP, &std::process::id().to_string());
        // Ctrl-C of a terminal goes to a process group; the sweeper has to survive it.
        command.process_group(0);
        let (process, ()) = Load::launch(hidden::SWEEP, command)?;
        Ok(Self {
            process: Some(process),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // Its report is that it has ended; without one nothing more can be done here.
        let _: Option<Result<(), Error>> = self.process.take().map(Load::finish);
    }
}

/// Removes all namespaces and directories of the benchmark that had this process ID.
pub(crate) fn sweep(process: u32) {
    for name in names_in(DIRECTORY).filter(|name| name.starts_with(&prefix(process))) {
        remove(&name);
    }
    #[cfg(feature = "rivals")]
    crate::rivals::sweep(process);
    crate::tunnel::remove_directories(process);
}

fn prefix(process: u32) -> String {
    format!("gwb-{process}-")
}

/// Process IDs of benchmarks that are gone while their namespaces are not.
fn abandoned() -> Vec<u32> {
    let owner = |name: String| name.strip_prefix("gwb-")?.split_once('-')?.0.parse().ok();
    names_in(DIRECTORY)
        .filter_map(owner)
        .filter(|process: &u32| !Path::new("/proc").join(process.to_string()).exists())
        .collect()
}

fn names_in(directory: &str) -> impl Iterator<Item = String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Processes first: a namespace lives on, unnamed, as long as one of them does.
fn remove(name: &str) {
    let inside = run(Command::new("ip").args(["netns", "pids", name])).unwrap_or_default();
    let processes = inside
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok());
    for process in processes.filter_map(Pid::from_raw) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(process, Signal::KILL);
    }
    // Nothing useful can be done about a failure at the end.
    let _ = run(Command::new("ip").args(["netns", "delete", name]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrapped_command_keeps_its_arguments_and_environment() {
        let namespace = std::mem::ManuallyDrop::new(Namespace {
            name: "gwb-0-0".to_owned(),
        });
        let mut command = Command::new("gramway");
        command
            .args(["up", "--tun"])
            .env("A", "b")
            .env_remove("GRAMWAY_LINK");
        let wrapped = namespace.inside(&command);
        let words: Vec<_> = wrapped.get_args().map(|word| word.to_string_lossy()).collect();
        assert_eq!(words.join(" "), "netns exec gwb-0-0 gramway up --tun");
        assert_eq!(wrapped.get_envs().count(), 2);
    }

    #[test]
    fn a_failed_command_says_what_it_was_and_why() {
        let error = run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 2"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains("no such thing"), "{text}");
    }
}
