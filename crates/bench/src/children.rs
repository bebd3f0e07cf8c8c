//! Child processes: their lines, their reports, and their end.
//!
//! A [`Guard`] kills its process when it is dropped, so an error or a panic leaves nothing running.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::During;
use crate::tcp_load::wait_until;
use crate::{Error, Programs, limits};

/// Last lines of a process that are kept for error messages.
const LAST_LINES: usize = 8;

/// A process that does not outlive its owner.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Guard {
    /// Process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end, and kills it where it does not within [`limits::STOP_TIMEOUT`].
    pub(crate) fn end(&mut self) {
        if let Some(process) = Pid::from_raw(self.pid() as i32) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(process, Signal::TERM);
        }
        if !wait_until(limits::STOP_TIMEOUT, || !self.is_running()) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Writes one line to its stdin.
    ///
    /// # Errors
    /// When it does not read any more.
    pub(crate) fn tell(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.0.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{line}")
    }

    /// Closes its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.0.stdin = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lines of one pipe, read by a thread so that the process never blocks on it.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Receiver<String>,
    last: Arc<Mutex<VecDeque<String>>>,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        let last = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&last);
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LAST_LINES {
                    kept.pop_front();
                }
                kept.push_back(line.clone());
                drop(kept);
                // The owner may not listen any more; the pipe has to be emptied all the same.
                let _ = sender.send(line);
            }
        });
        Self { lines, last }
    }

    /// The first line from here on that `wanted` accepts, or `None` when time is over or the pipe has ended.
    pub(crate) fn wait_for(&self, timeout: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        let end = Instant::now() + timeout;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) if wanted(&line) => return Some(line),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// All lines from here to the end of the pipe, or of the time.
    pub(crate) fn rest(&self, timeout: Duration) -> Vec<String> {
        let end = Instant::now() + timeout;
        let next = || {
            self.lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
                .ok()
        };
        std::iter::from_fn(next).collect()
    }

    /// The last lines, for an error message.
    pub(crate) fn last(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_empty() {
            "it said nothing".to_owned()
        } else {
            Vec::from(last.clone()).join(" | ")
        }
    }
}

/// Starts `command` with all pipes; returns it with the lines of stdout and of stderr.
///
/// # Errors
/// When there is no such program.
pub(crate) fn spawn(mut command: Command) -> Result<(Guard, Lines, Lines), Error> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .during(|| format!("start {}", command.get_program().display()))?;
    let stdout = Lines::of(child.stdout.take().expect("stdout was just piped"));
    let stderr = Lines::of(child.stderr.take().expect("stderr was just piped"));
    Ok((Guard(child), stdout, stderr))
}

/// A running load process.
#[derive(Debug)]
pub(crate) struct Load {
    name: &'static str,
    guard: Guard,
    stdout: Lines,
    stderr: Lines,
}

impl Load {
    /// Starts a hidden subcommand and waits for its address.
    ///
    /// # Errors
    /// When it does not start, with its own reason.
    pub(crate) fn start(
        programs: &Programs,
        name: &'static str,
        options: &impl Serialize,
    ) -> Result<(Self, SocketAddr), Error> {
        Self::launch(name, programs.load_with(name, options)?)
    }

    /// Starts a command of [`Programs::load`] and waits for its first line.
    ///
    /// # Errors
    /// When it does not start, with its own reason.
    pub(crate) fn launch<T: DeserializeOwned>(
        name: &'static str,
        command: Command,
    ) -> Result<(Self, T), Error> {
        let (guard, stdout, stderr) = spawn(command)?;
        let load = Self {
            name,
            guard,
            stdout,
            stderr,
        };
        let line = load.line(limits::READY_TIMEOUT)?;
        let ready = serde_json::from_str(&line).map_err(|source| Error::Json {
            from: name.to_owned(),
            source,
        })?;
        Ok((load, ready))
    }

    /// Process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.guard.pid()
    }

    /// Gives a load that answers lines an empty one, and reads its answer; `expected` is how long it takes.
    ///
    /// # Errors
    /// When it ends without an answer.
    #[cfg(feature = "rivals")]
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, expected: Duration) -> Result<T, Error> {
        // Where it has ended, its own last words are the better reason.
        let _ = self.guard.tell("");
        self.answer(expected)
    }

    /// Waits until a load that ends by itself has ended; `expected` is how long it runs.
    ///
    /// # Errors
    /// When it ends without a report.
    pub(crate) fn report<T: DeserializeOwned>(self, expected: Duration) -> Result<T, Error> {
        self.answer(expected)
    }

    fn answer<T: DeserializeOwned>(&self, expected: Duration) -> Result<T, Error> {
        let line = self.line(expected + limits::END_TIMEOUT)?;
        serde_json::from_str(&line).map_err(|source| Error::Json {
            from: self.name.to_owned(),
            source,
        })
    }

    /// Asks a load to end and waits for its report.
    ///
    /// # Errors
    /// When it ends without a report.
    pub(crate) fn finish<T: DeserializeOwned>(mut self) -> Result<T, Error> {
        self.guard.close_stdin();
        self.report(Duration::ZERO)
    }

    fn line(&self, timeout: Duration) -> Result<String, Error> {
        let failed = || Error::Child {
            program: format!("load {}", self.name),
            reason: self.stderr.last(),
        };
        self.stdout.wait_for(timeout, |_| true).ok_or_else(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Guard, Lines, Lines) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        spawn(command).unwrap()
    }

    #[test]
    fn a_line_is_found_and_the_last_words_are_kept() {
        let (mut guard, stdout, stderr) = shell("echo one; echo two; echo broken >&2; exit 3");
        assert_eq!(
            stdout
                .wait_for(Duration::from_secs(10), |line| line == "two")
                .as_deref(),
            Some("two")
        );
        assert_eq!(stdout.wait_for(Duration::from_secs(10), |_| true), None);
        assert_eq!(
            stderr.wait_for(Duration::from_secs(10), |_| true).as_deref(),
            Some("broken")
        );
        assert_eq!(stderr.last(), "broken");
        assert!(wait_until(Duration::from_secs(10), || !guard.is_running()));
    }

    #[test]
    fn a_dropped_guard_leaves_no_process() {
        let (guard, _stdout, _stderr) = shell("sleep 100");
        let pid = guard.pid();
        drop(guard);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
