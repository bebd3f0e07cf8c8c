//! A machine that runs systemd: a process tree, network and root directory of its own on this machine's kernel.
//!
//! Its root directory is this machine's with a writable layer above it, in memory: packages are installed and services
//! run as on the real one, and nothing of it stays. It has no network but loopback.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use crate::directory::Directory;
use crate::limits::{BOOT_LIMIT, MACHINE_END_LIMIT};
use crate::namespace::within_file;
use crate::process::Process;
use crate::programs::run;
use crate::wait::{holds_within, poll};
use crate::{Error, programs};

/// What the first process runs.
const SCRIPT: &str = include_str!("machine.sh");

/// Its first process.
const SYSTEMD: &str = "/lib/systemd/systemd";

/// What starts it and enters it.
const PROGRAMS: [&str; 3] = ["unshare", "nsenter", "ip"];

/// Where hierarchies of control groups may be: systemd keeps its services in them.
const HIERARCHIES: [&str; 3] = [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/systemd",
    "/sys/fs/cgroup/unified",
];

/// A running machine; everything in it ends on drop.
#[derive(Debug)]
pub struct Machine {
    process: Process,
    /// The process ID of its systemd, as this machine counts.
    init: u32,
    groups: Groups,
    directory: Directory,
}

impl Machine {
    /// Boots one; needs root, systemd, util-linux and iproute2.
    ///
    /// # Errors
    /// A program is missing, the kernel refuses a namespace or a mount, or systemd is not up in time.
    pub fn boot() -> Result<Self, Error> {
        let directory = Directory::create_for_test()?;
        let name = directory.path().file_name().unwrap_or_default();
        let groups = Groups::make(name)?;
        // The shell enters the control groups before `unshare` makes them the roots of the machine's.
        let enter = groups.paths.iter().fold(String::new(), |script, path| {
            format!("{script}echo $$ > {}/cgroup.procs && ", path.display())
        });
        let unshare = "exec unshare --pid --mount --net --uts --ipc --cgroup --fork --kill-child \
                       --propagation private sh -c \"$1\" sh \"$2\"";
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{enter}{unshare}")).arg("sh");
        command.arg(SCRIPT).arg(directory.path());
        let mut process = Process::start(command, "the machine")?;
        let started = poll(BOOT_LIMIT, || {
            let ended = !process.is_running();
            let init = init_of(process.id()).filter(|init| is_up(*init));
            (ended || init.is_some()).then_some(init)
        });
        let Some(init) = started.flatten() else {
            return Err(Error::TimedOut {
                what: "systemd in a machine of its own".to_owned(),
                limit: BOOT_LIMIT,
                reason: process.last_words(),
            });
        };
        Ok(Self {
            process,
            init,
            groups,
            directory,
        })
    }

    /// A command that runs inside, as root and without this process's environment.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        inside(self.init, program)
    }

    /// Runs a program inside to its end and gives what it printed.
    ///
    /// # Errors
    /// When it is missing or does not exit with 0, with its own words.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        run(self.command(program).args(arguments))
    }

    /// Runs a function on a thread in its network, e.g. to open sockets; they stay there wherever they are used.
    ///
    /// # Errors
    /// When the machine has ended.
    pub fn inside<T: Send>(&self, function: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let network = PathBuf::from(format!("/proc/{}/ns/net", self.init));
        within_file(&network, function)
    }

    /// The directory that holds, by their paths, the files that are other than this machine's.
    #[must_use]
    pub fn changes(&self) -> PathBuf {
        let directory = self.directory.path();
        let name = directory.strip_prefix("/").unwrap_or(directory);
        let root = PathBuf::from(format!("/proc/{}/root", self.process.id()));
        root.join(name).join("changes")
    }

    /// A file of the machine, as this one reaches it.
    #[must_use]
    pub fn file(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.init));
        root.join(path.trim_start_matches('/'))
    }

    /// Copies a file of this machine into it, with its permissions.
    ///
    /// # Errors
    /// When one of the two cannot be used.
    pub fn copy(&self, from: &Path, to: &str) -> Result<(), Error> {
        let copied = fs::copy(from, self.file(to));
        copied
            .map(drop)
            .map_err(Error::io(format!("copy {} into a machine", from.display())))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.process.kill();
        // The kernel ends the others with the first one, and their groups are empty a moment later.
        holds_within(MACHINE_END_LIMIT, || self.groups.remove());
    }
}

/// Why [`Machine::boot`] cannot work here; nothing where it can.
#[must_use]
pub fn obstacle() -> Option<String> {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    OBSTACLE.get_or_init(find_obstacle).clone()
}

fn find_obstacle() -> Option<String> {
    if !Path::new(SYSTEMD).exists() {
        return Some(format!("needs systemd as {SYSTEMD}"));
    }
    let is_missing = |program: &&&str| programs::find(&[**program]).is_none();
    if let Some(program) = PROGRAMS.iter().find(is_missing) {
        return Some(format!("needs the program {program}"));
    }
    // Containers often may not create any, which only an attempt tells.
    let name = format!("gramway-probe-{}", process::id());
    match Groups::make(OsStr::new(&name)) {
        Ok(groups) if groups.paths.is_empty() => {
            Some("needs control groups, which are not mounted at /sys/fs/cgroup".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(format!("needs control groups that it may create: {error}")),
    }
}

fn inside(init: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/root")
        .args(["--target", &init.to_string(), "--all", "--root", "--wd"])
        .arg("--")
        .arg(program);
    command
}

/// The only child of `unshare`.
fn init_of(unshare: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

fn is_up(init: u32) -> bool {
    // Its root directory is this machine's until the script has made it.
    let is_systemd =
        fs::read_to_string(format!("/proc/{init}/comm")).is_ok_and(|name| name.trim() == "systemd");
    is_systemd
        && inside(init, "systemctl")
            .args(["is-active", "--quiet", "basic.target"])
            .status()
            .is_ok_and(|status| status.success())
}

/// Control groups of one machine, one in each hierarchy.
#[derive(Debug)]
struct Groups {
    paths: Vec<PathBuf>,
}

impl Groups {
    fn make(name: &OsStr) -> Result<Self, Error> {
        let hierarchies = HIERARCHIES.iter().map(Path::new);
        let mut groups = Self { paths: Vec::new() };
        for hierarchy in hierarchies.filter(|hierarchy| hierarchy.join("cgroup.procs").exists()) {
            let path = hierarchy.join(name);
            fs::create_dir(&path).map_err(Error::io(format!("create {}", path.display())))?;
            groups.paths.push(path);
        }
        Ok(groups)
    }

    /// Whether all are gone.
    fn remove(&mut self) -> bool {
        self.paths.retain(|path| !remove_group(path));
        self.paths.is_empty()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a group and those below it, which have to be empty; whether it is gone.
fn remove_group(path: &Path) -> bool {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_group(&entry.path());
        }
    }
    fs::remove_dir(path).is_ok() || !path.exists()
}
