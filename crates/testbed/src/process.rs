//! A program under guard: its output is kept, lines are waited for with a deadline, and it never outlives its guard.

use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, kill_process};

pub use rustix::process::Signal;

use crate::Error;
use crate::limits::{LAST_LINES, OUTPUT_GRACE, SHOWN_LINES};
use crate::output::{Output, Stream};
use crate::usage::{self, Usage};
use crate::wait::poll;

/// Has a `gramway` whose output goes to a pipe log as it does on a terminal, unless the command says otherwise.
pub(crate) fn people_read_the_log_of(command: &mut Command) {
    const LOG_FORMAT: &str = "GRAMWAY_LOG_FORMAT";
    if !command
        .get_envs()
        .any(|(name, value)| name == LOG_FORMAT && value.is_some())
    {
        command.env(LOG_FORMAT, "human");
    }
}

/// A running program; killed on drop, and after a panic its last lines are shown.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Output,
    has_ended: bool,
}

impl Process {
    /// Starts it with all pipes; `name` is for messages.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn start(mut command: Command, name: &str) -> Result<Self, Error> {
        people_read_the_log_of(&mut command);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(Error::io(format!("start {}", command.get_program().display())))?;
        let output = Output::default();
        output.read(
            Stream::Stdout,
            child.stdout.take().expect("stdout was just piped"),
        );
        output.read(
            Stream::Stderr,
            child.stderr.take().expect("stderr was just piped"),
        );
        Ok(Self {
            name: name.to_owned(),
            child,
            output,
            has_ended: false,
        })
    }

    /// Its process ID; in a namespace too, for `ip netns exec` becomes the program.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed to standard output so far, finished lines only; all of it once it has ended.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.text(Stream::Stdout)
    }

    /// What it has printed to standard error so far, finished lines only; all of it once it has ended.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.text(Stream::Stderr)
    }

    fn text(&self, stream: Stream) -> String {
        if self.has_ended {
            // What it started may live on with its outputs.
            self.output.wait_for_end(OUTPUT_GRACE);
        }
        self.output.text(stream)
    }

    /// The last lines of standard error, for a message.
    #[must_use]
    pub fn last_words(&self) -> String {
        // Whoever closed one output is about to end, and what it says of that is on its way.
        if self.output.is_complete(Stream::Stdout) {
            self.output.wait_for_end(OUTPUT_GRACE);
        }
        let text = self.stderr();
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return "it said nothing".to_owned();
        }
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// The next line of standard output that was not taken yet, or `None` when `limit` passes or the output ends first.
    #[must_use]
    pub fn next_line(&self, limit: Duration) -> Option<String> {
        self.next_line_where(limit, |_| true)
    }

    /// The same for the next line that `wanted` accepts; others are passed over.
    #[must_use]
    pub fn next_line_where(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> Option<String> {
        self.output.next_line(Stream::Stdout, limit, wanted)
    }

    /// Waits until a line of either output contains the pattern, from its start on, and gives that line.
    ///
    /// # Errors
    /// When `limit` passes, or the program ends without the line.
    pub fn wait_for_line(&mut self, pattern: &str, limit: Duration) -> Result<String, Error> {
        self.wait_for_lines(&format!("\"{pattern}\""), 1, limit, |line| line.contains(pattern))
    }

    /// Waits until so many lines of both outputs start with the word, e.g. `connected` once more, and gives the last.
    ///
    /// # Errors
    /// When `limit` passes, or the program ends without the lines.
    pub fn wait_for_starts(&mut self, word: &str, count: usize, limit: Duration) -> Result<String, Error> {
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
    ) -> Result<String, Error> {
        let output = self.output.clone();
        let find = |texts: [&str; 2]| {
            let mut lines = texts.into_iter().flat_map(str::lines).filter(|line| wanted(line));
            lines.nth(count.saturating_sub(1)).map(str::to_owned)
        };
        let mut end = None;
        let found = output.wait_for(limit, |texts| {
            let found = find(texts.each_ref().map(|text| text.text.as_str()));
            if found.is_none() {
                end = self.child.try_wait().ok().flatten();
            }
            (found.is_some() || end.is_some()).then_some(found)
        });
        if let Some(line) = found.flatten() {
            return Ok(line);
        }
        let what = format!("{what} from {}", self.name);
        let Some(end) = end else {
            let reason = self.last_words();
            return Err(Error::TimedOut { what, limit, reason });
        };
        self.has_ended = true;
        // What it printed before its end may still have been in the pipes.
        find([&self.stdout(), &self.stderr()]).ok_or_else(|| Error::Program {
            program: self.name.clone(),
            reason: format!("it ended ({end}) before {what}; {}", self.last_words()),
        })
    }

    /// Writes one line to its standard input.
    ///
    /// # Errors
    /// When it does not read any more.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let stdin = self.child.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        writeln!(stdin, "{line}")
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal; none if it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.is_running() {
            let process = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
            // It may end in this moment.
            let _ = kill_process(process.expect("a process ID is positive"), signal);
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.try_status().is_none()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Panics
    /// When the system has lost it.
    pub fn try_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait();
        let status = status.unwrap_or_else(|error| panic!("{} is lost: {error}", self.name));
        self.has_ended |= status.is_some();
        status
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When `limit` passes first.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, Error> {
        poll(limit, || self.try_status()).ok_or_else(|| Error::TimedOut {
            what: format!("the end of {}", self.name),
            limit,
            reason: self.last_words(),
        })
    }

    /// Asks it to end by SIGTERM, and kills it where it does not within `limit`.
    pub fn end(&mut self, limit: Duration) {
        self.signal(Signal::TERM);
        if self.wait(limit).is_err() {
            self.kill();
        }
    }

    /// Kills it, as by `kill -9`, and waits until it is gone.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.has_ended = true;
    }

    /// Its CPU time and peak memory so far; zeros once it has ended.
    #[must_use]
    pub fn usage(&self) -> Usage {
        // The kernel may have given its ID to another one.
        if self.has_ended {
            return Usage::default();
        }
        usage::usage(self.id())
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

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, "sh").unwrap()
    }

    #[test]
    fn lines_are_taken_in_turn_and_the_whole_output_is_kept() {
        let mut process = shell("echo one; echo two; printf broken >&2; exit 3");
        assert_eq!(process.next_line(LIMIT).as_deref(), Some("one"));
        assert_eq!(process.next_line(LIMIT).as_deref(), Some("two"));
        assert_eq!(process.next_line(LIMIT), None);
        assert_eq!(process.wait(LIMIT).unwrap().code(), Some(3));
        assert_eq!(
            (process.stdout().as_str(), process.stderr().as_str()),
            ("one\ntwo\n", "broken")
        );
        assert_eq!(process.last_words(), "broken");
    }

    #[test]
    fn a_line_is_waited_for_from_the_start_on_and_not_beyond_the_end() {
        let mut process = shell("echo again 1; echo again 2 >&2; echo last");
        assert_eq!(process.wait_for_line("last", LIMIT).unwrap(), "last");
        assert!(
            process
                .wait_for_starts("again", 2, LIMIT)
                .unwrap()
                .starts_with("again")
        );
        let error = process
            .wait_for_line("never", Duration::from_secs(3600))
            .unwrap_err();
        assert!(matches!(error, Error::Program { .. }), "{error}");
    }

    #[test]
    fn a_program_is_told_lines_and_ends_with_its_input() {
        let mut process = shell("while read line; do echo \"got $line\"; done");
        process.tell("this").unwrap();
        assert_eq!(process.next_line(LIMIT).as_deref(), Some("got this"));
        process.close_stdin();
        assert!(process.wait(LIMIT).unwrap().success());
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = shell("sleep 100");
        let id = process.id();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
