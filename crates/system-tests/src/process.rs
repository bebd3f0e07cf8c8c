//! A program under guard: its output goes to files, lines are waited for with a deadline, and it never outlives its
//! guard.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::limits::SHOWN_LINES;
use crate::wait::wait_for;

/// A running program; killed on drop, and when a test fails its last lines are shown.
pub struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts it without input; output goes to `NAME.stdout` and `NAME.stderr` in the directory, which are emptied.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command, name: &str, directory: &Path) -> Self {
        let file = |ending: &str| {
            let path = directory.join(format!("{name}.{ending}"));
            let file =
                File::create(&path).unwrap_or_else(|error| panic!("{} fails: {error}", path.display()));
            (path, file)
        };
        let ((stdout, stdout_file), (stderr, stderr_file)) = (file("stdout"), file("stderr"));
        command
            .stdin(Stdio::null())
            .stdout(stdout_file)
            .stderr(stderr_file);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        Self {
            name: name.to_owned(),
            child,
            stdout,
            stderr,
        }
    }

    /// Its process ID; in a namespace too, for `ip netns exec` becomes the program.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed to standard output so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// What it has printed to standard error so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until a finished line of either output contains the pattern, and gives that line.
    ///
    /// # Panics
    /// When `limit` passes, or the program ends without the line.
    pub fn wait_for_line(&mut self, pattern: &str, limit: Duration) -> String {
        self.wait_for_lines(&format!("\"{pattern}\""), 1, limit, |line| line.contains(pattern))
    }

    /// Waits until so many finished lines start with the word, e.g. `connected` once more, and gives the last.
    ///
    /// # Panics
    /// When `limit` passes, or the program ends without the lines.
    pub fn wait_for_starts(&mut self, word: &str, count: usize, limit: Duration) -> String {
        self.wait_for_lines(&format!("{count} × \"{word}…\""), count, limit, |line| {
            line.starts_with(word)
        })
    }

    fn wait_for_lines(
        &mut self,
        what: &str,
        count: usize,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> String {
        let what = format!("{what} from {}", self.name);
        wait_for(&what, limit, || {
            // Asked first: what it printed before its end is in the files then.
            let ended = self.try_status();
            let text = [self.stdout(), self.stderr()]
                .map(|text| finished(&text).to_owned())
                .concat();
            let found = text
                .lines()
                .filter(|line| wanted(line))
                .nth(count.saturating_sub(1));
            assert!(
                found.is_some() || ended.is_none(),
                "{} ended ({ended:?}) before {what}",
                self.name
            );
            found.map(str::to_owned)
        })
    }

    /// Sends a signal; none if it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.try_status().is_none() {
            let process = i32::try_from(self.id())
                .ok()
                .and_then(Pid::from_raw)
                .expect("a process ID is positive");
            // It may end in this moment.
            let _ = kill_process(process, signal);
        }
    }

    /// Its exit status, if it has ended.
    ///
    /// # Panics
    /// When the system has lost it.
    pub fn try_status(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .unwrap_or_else(|error| panic!("{} is lost: {error}", self.name))
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// When `limit` passes first.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        wait_for(&format!("the end of {}", self.name), limit, || self.try_status())
    }

    /// Kills it, as by `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Resident memory at its highest so far, in bytes; `None` once it has ended.
    #[must_use]
    pub fn peak_memory_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let kibibytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))?
            .trim()
            .strip_suffix(" kB")?;
        kibibytes.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
    }

    /// Processor time that it has used so far, in user and kernel mode; `None` once it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        // Behind the name in parentheses, which may hold anything, utime and stime are numbers 11 and 12.
        let fields = stat.rsplit_once(')')?.1.split_whitespace();
        let ticks: u64 = fields
            .skip(11)
            .take(2)
            .map_while(|field| field.parse::<u64>().ok())
            .sum();
        Some(Duration::from_millis(
            ticks * 1000 / rustix::param::clock_ticks_per_second(),
        ))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            for (output, text) in [("stdout", self.stdout()), ("stderr", self.stderr())] {
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
                eprintln!("last {output} of {}:\n{last}", self.name);
            }
        }
    }
}

fn read(path: &Path) -> String {
    let bytes =
        std::fs::read(path).unwrap_or_else(|error| panic!("{} cannot be read: {error}", path.display()));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All but a line that is still being written.
fn finished(text: &str) -> &str {
    text.rfind('\n').map_or("", |end| &text[..=end])
}
