//! Control groups of the kernel (cgroup v2): the processor time of all processes of a program, those included that it
//! started and nobody waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::limits::GROUP_END_LIMIT;
use crate::place::wrapped_by;
use crate::wait::holds_within;
use crate::{Error, leftovers};

/// Where the kernel tells what is mounted where.
const MOUNTS: &str = "/proc/self/mounts";

/// Enters a group by writing its own process ID, and becomes the program.
const ENTER: &str = r#"echo $$ > "$0" && exec "$@""#;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A control group `gramway-bed-PROCESS-NUMBER`; its processes are killed and it is removed on drop.
#[derive(Debug)]
pub struct ControlGroup {
    path: PathBuf,
}

impl ControlGroup {
    /// Makes an empty one; needs root.
    ///
    /// # Errors
    /// When the system has no cgroup v2, or refuses a new group, as in most containers.
    pub fn create() -> Result<Self, Error> {
        let root = root().ok_or_else(|| Error::Program {
            program: "cgroup v2".to_owned(),
            reason: "it is not mounted; mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
        })?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{}{number}", leftovers::prefix(std::process::id())));
        fs::create_dir(&path).map_err(Error::io(format!("make the control group {}", path.display())))?;
        Ok(Self { path })
    }

    /// The same command, run in the group: all that it starts is in there too.
    #[must_use]
    pub fn wrap(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", ENTER]).arg(self.path.join("cgroup.procs"));
        shell.arg(command.get_program());
        wrapped_by(shell, command)
    }

    /// User and system time that its processes have taken so far, in seconds, those that have ended included.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds(&fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default())
    }

    /// The process IDs of all that run in it.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        processes(&self.path)
    }

    /// Kills all processes in it, as by `kill -9`, and waits until they are gone.
    pub fn kill(&self) {
        kill(&self.path);
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Where groups are made, if the system has them.
pub(crate) fn root() -> Option<PathBuf> {
    mounted(&fs::read_to_string(MOUNTS).ok()?)
}

/// Kills all processes of a group, and removes it.
pub(crate) fn remove(path: &Path) {
    kill(path);
    // The kernel refuses it as long as a process that was killed has not left entirely, though it is listed no more.
    // Nothing useful can be done about a failure at the end.
    holds_within(GROUP_END_LIMIT, || fs::remove_dir(path).is_ok() || !path.exists());
}

fn kill(path: &Path) {
    // Whoever is about to start another one may do so in between.
    holds_within(GROUP_END_LIMIT, || {
        let left = processes(path);
        let ids = left
            .iter()
            .filter_map(|id| Pid::from_raw(i32::try_from(*id).ok()?));
        for id in ids {
            // It may have ended by itself.
            let _ = kill_process(id, Signal::KILL);
        }
        left.is_empty()
    });
}

fn processes(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Of the lines of [`MOUNTS`]: device, place, kind and options.
fn mounted(mounts: &str) -> Option<PathBuf> {
    let mut lines = mounts.lines().map(|line| line.split_ascii_whitespace());
    lines.find_map(|mut fields| {
        let place = fields.nth(1)?;
        (fields.next()? == "cgroup2").then(|| PathBuf::from(place))
    })
}

fn cpu_seconds(stat: &str) -> f64 {
    let microseconds = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    microseconds
        .and_then(|text| text.trim().parse::<f64>().ok())
        .unwrap_or(0.0)
        / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_where_their_second_version_is_mounted() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        assert_eq!(mounted(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mounted("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"), None);
        assert_eq!(mounted(""), None);
    }

    #[test]
    fn the_time_of_a_group_is_that_of_users_and_system_together() {
        let stat = "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n";
        assert_eq!(cpu_seconds(stat), 2.5);
        assert_eq!(cpu_seconds(""), 0.0);
    }
}
