//! Network namespaces: made empty with a unique name, joined by veth pairs, gone with their processes on drop.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::place::Place;
use crate::programs::run;
use crate::{Error, leftovers};

/// Where `ip netns` keeps its namespaces.
pub(crate) const DIRECTORY: &str = "/run/netns";

static COUNT: AtomicU32 = AtomicU32::new(0);
static SWEEP: Once = Once::new();

/// A network namespace `gramway-bed-PROCESS-NUMBER` with its loopback interface up.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// The namespace that it is in.
    pub namespace: &'a Namespace,
    /// Name of the interface, unique in its namespace, at most 15 characters.
    pub interface: &'a str,
    /// Addresses with prefix length, e.g. `10.77.0.1/24` or `fd77::1/64`.
    pub addresses: &'a [&'a str],
}

impl Namespace {
    /// Makes one; needs root. The first removes what processes that were killed left.
    ///
    /// # Errors
    /// When `ip` is missing or refuses.
    pub fn create() -> Result<Self, Error> {
        SWEEP.call_once(|| leftovers::abandoned().into_iter().for_each(leftovers::remove));
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{number}", leftovers::prefix(std::process::id()));
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let namespace = Self { name };
        namespace.run("ip", ["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Its name, as `ip netns` knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As the place of a program.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::Namespace(self.name.clone())
    }

    /// A command that runs inside.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.place().command(program)
    }

    /// The same command, run inside.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        self.place().wrap(command)
    }

    /// Runs a program inside to its end and gives what it printed.
    ///
    /// # Errors
    /// When it is missing or does not exit with 0, with its own words.
    pub fn run<A: AsRef<OsStr>>(
        &self,
        program: &str,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, Error> {
        run(self.command(program).args(arguments))
    }

    /// Applies an nftables script inside.
    ///
    /// # Errors
    /// When `nft` is missing or refuses it.
    pub fn nft(&self, script: &str) -> Result<(), Error> {
        let failed = || Error::io("run nft");
        let mut command = self.command("nft");
        command
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed())?;
        let mut input = child.stdin.take().expect("standard input is piped");
        input.write_all(script.as_bytes()).map_err(failed())?;
        drop(input);
        let output = child.wait_with_output().map_err(failed())?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Program {
            program: "nft".to_owned(),
            reason: format!(
                "it refused:\n{script}\n{}",
                String::from_utf8_lossy(&output.stderr)
            ),
        })
    }

    /// Sets a kernel parameter inside, e.g. `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// When there is none such or the value is refused.
    pub fn set_parameter(&self, name: &str, value: &str) -> Result<(), Error> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        within(&self.name, || std::fs::write(&path, value))?
            .map_err(Error::io(format!("set {name} to {value}")))
    }

    /// Sets the MTU of an interface in bytes.
    ///
    /// # Errors
    /// When `ip` refuses it.
    pub fn set_mtu(&self, interface: &str, bytes: u16) -> Result<(), Error> {
        let bytes = bytes.to_string();
        self.run("ip", ["link", "set", interface, "mtu", &bytes])
            .map(drop)
    }

    /// Takes an interface down or up, as when a cable is pulled. Taking it down forgets its IPv6 addresses.
    ///
    /// # Errors
    /// When `ip` refuses it.
    pub fn set_link(&self, interface: &str, up: bool) -> Result<(), Error> {
        let state = if up { "up" } else { "down" };
        self.run("ip", ["link", "set", interface, state]).map(drop)
    }

    /// Runs a function on a thread inside, e.g. to open sockets; they stay inside wherever they are used.
    ///
    /// # Panics
    /// When the function does, or somebody has removed the namespace meanwhile.
    pub fn inside<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        within(&self.name, function).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Runs `work` on a thread inside a namespace and gives its result. Sockets and devices that it opens stay in that
/// namespace wherever they are used.
///
/// # Errors
/// When there is no such namespace or this process may not enter it.
pub fn within<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    within_file(&Path::new(DIRECTORY).join(name), work)
}

/// The same for the namespace that a file of the kernel stands for.
pub(crate) fn within_file<T: Send>(file: &Path, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let enter = || -> std::io::Result<()> {
        let file = File::open(file)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    };
    let inside = || enter().map(|()| work());
    let done = std::thread::scope(|scope| scope.spawn(inside).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        .map_err(Error::io(format!("enter the namespace {}", file.display())))
}

/// Joins two namespaces by a veth pair with this MTU in bytes; both ends are up when it returns.
///
/// # Errors
/// When `ip` refuses it.
pub fn join(left: End<'_>, right: End<'_>, mtu_bytes: u16) -> Result<(), Error> {
    let mut command = Command::new("ip");
    command.args(["link", "add", left.interface, "netns", left.namespace.name()]);
    command.args(["type", "veth", "peer", "name", right.interface]);
    run(command.args(["netns", right.namespace.name()]))?;
    for end in [left, right] {
        end.namespace.set_mtu(end.interface, mtu_bytes)?;
        for address in end.addresses {
            let mut arguments = vec!["address", "add", address, "dev", end.interface];
            if address.contains(':') {
                // Nobody else is there; the address is usable at once.
                arguments.push("nodad");
            }
            end.namespace.run("ip", arguments)?;
        }
        end.namespace.set_link(end.interface, true)?;
    }
    Ok(())
}

/// Removes a namespace. Processes first: it lives on, unnamed, as long as one of them does.
pub(crate) fn remove(name: &str) {
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
