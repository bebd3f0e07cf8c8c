//! Network namespaces: made empty with a unique name, joined by veth pairs, gone with their processes on drop.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::place::{Place, run};

static COUNTER: AtomicU32 = AtomicU32::new(0);
static SWEEP: Once = Once::new();

/// A network namespace `gw-PID-NUMBER` with its loopback interface up.
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

impl std::fmt::Debug for Namespace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl Namespace {
    /// Makes a namespace; needs root.
    ///
    /// # Panics
    /// When `ip` fails.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a default that changes the system would surprise"
    )]
    pub fn new() -> Self {
        SWEEP.call_once(remove_abandoned);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gw-{}-{number}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]));
        let namespace = Self { name };
        namespace.run("ip", ["link", "set", "lo", "up"]);
        namespace
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

    /// Runs a program inside to its end and gives its standard output.
    ///
    /// # Panics
    /// When it does not exit with 0.
    pub fn run<A: AsRef<OsStr>>(&self, program: &str, arguments: impl IntoIterator<Item = A>) -> String {
        run(self.command(program).args(arguments))
    }

    /// Applies an nftables script inside.
    ///
    /// # Panics
    /// When `nft` refuses it.
    pub fn nft(&self, script: &str) {
        let mut command = self.command("nft");
        command
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("nft cannot be started: {error}"));
        let mut input = child.stdin.take().expect("standard input is piped");
        input
            .write_all(script.as_bytes())
            .unwrap_or_else(|error| panic!("nft does not read: {error}"));
        drop(input);
        let output = child
            .wait_with_output()
            .unwrap_or_else(|error| panic!("nft is lost: {error}"));
        assert!(
            output.status.success(),
            "nft refused:\n{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Sets a kernel parameter inside, e.g. `net.ipv4.ip_forward`.
    ///
    /// # Panics
    /// When there is none such or the value is refused.
    pub fn set_parameter(&self, name: &str, value: &str) {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        self.inside(|| std::fs::write(&path, value))
            .unwrap_or_else(|error| panic!("{name} cannot be set to {value}: {error}"));
    }

    /// Sets the MTU of an interface in bytes.
    ///
    /// # Panics
    /// When `ip` refuses it.
    pub fn set_mtu(&self, interface: &str, bytes: u16) {
        self.run("ip", ["link", "set", interface, "mtu", &bytes.to_string()]);
    }

    /// Takes an interface down or up, as when a cable is pulled. Taking it down forgets its IPv6 addresses.
    ///
    /// # Panics
    /// When `ip` refuses it.
    pub fn set_link(&self, interface: &str, up: bool) {
        self.run("ip", ["link", "set", interface, if up { "up" } else { "down" }]);
    }

    /// Runs a function on a thread inside, e.g. to open sockets; they stay inside wherever they are used.
    ///
    /// # Panics
    /// When the function does, or the namespace cannot be entered.
    pub fn inside<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let path = Path::new("/run/netns").join(&self.name);
        let enter = || {
            let namespace =
                File::open(&path).unwrap_or_else(|error| panic!("{} is lost: {error}", path.display()));
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .unwrap_or_else(|error| panic!("{} cannot be entered: {error}", path.display()));
            function()
        };
        std::thread::scope(|scope| scope.spawn(enter).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Joins two namespaces by a veth pair with this MTU in bytes; both ends are up when it returns.
///
/// # Panics
/// When `ip` refuses it.
pub fn join(left: End<'_>, right: End<'_>, mtu_bytes: u16) {
    run(Command::new("ip")
        .args(["link", "add", left.interface, "netns", left.namespace.name()])
        .args([
            "type",
            "veth",
            "peer",
            "name",
            right.interface,
            "netns",
            right.namespace.name(),
        ]));
    for end in [left, right] {
        end.namespace.set_mtu(end.interface, mtu_bytes);
        for address in end.addresses {
            let mut arguments = vec!["address", "add", address, "dev", end.interface];
            if address.contains(':') {
                // Nobody else is there; the address is usable at once.
                arguments.push("nodad");
            }
            end.namespace.run("ip", arguments);
        }
        end.namespace.set_link(end.interface, true);
    }
}

/// Processes first: a namespace lives on, unnamed, as long as one of them does.
fn remove(name: &str) {
    let inside = Command::new("ip").args(["netns", "pids", name]).output();
    for word in inside
        .iter()
        .flat_map(|output| output.stdout.split(u8::is_ascii_whitespace))
    {
        let process = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        if let Some(process) = process.and_then(rustix::process::Pid::from_raw) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
    // Nothing useful can be done about a failure while dropping.
    let _ = Command::new("ip").args(["netns", "delete", name]).output();
}

/// Removes namespaces of test processes that were killed before they could.
fn remove_abandoned() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix("gw-")
            .and_then(|rest| rest.split_once('-'))
            .map(|(process, _)| process);
        if owner.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            remove(&name);
        }
    }
}
