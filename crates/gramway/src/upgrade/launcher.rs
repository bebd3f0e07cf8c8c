//! The launcher of a server: a child process, the hidden subcommand `_launcher`, that is started before the server
//! confines itself, waits, and starts the server's program again when it is asked to.
//!
//! It starts the program at the path where the server's was when it started, with the server's arguments, and nothing
//! else: whoever has taken over the server's process gains no other program by it. What it starts reads all files, but
//! writes only where the first server could, has only the capabilities that this one kept, and confines itself whatever
//! the config file says by then, which the server can write. It serves each server after the first one as well, and
//! ends with the last one.
//!
//! What it starts is not its child but that of the first process of the machine, or of the one that stands for it: a
//! service manager learns only how its own children end, and starts a server again that has crashed. A process between
//! them starts the server and ends.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use packet_io::Lane;
use serde_json::{Value, json};

use crate::exit::{Problem, sentence};
use crate::limits::LAUNCH_LIMIT;
use crate::sandbox::Needs;
use crate::{guardian, sandbox};

/// The name of the hidden subcommand.
pub(crate) const SUBCOMMAND: &str = "_launcher";

/// What has a server take over the sockets of another one.
const TAKEOVER_FLAG: &str = "--takeover";

/// What has it confine itself, whatever the config file says, which counts for less.
const SANDBOX_WANTED: (&str, &str) = ("GRAMWAY_SANDBOX", "true");

/// `gramway _launcher`.
#[derive(Args, Debug)]
pub(crate) struct LauncherArguments {
    /// Confine all that is started to these capabilities, as a number whose bits name them
    #[arg(long, value_name = "NUMBER")]
    capabilities: Option<u64>,
    /// Directories where it may write
    #[arg(long = "write", value_name = "DIR")]
    writes: Vec<PathBuf>,
    /// Be the process between the launcher and what it starts
    #[arg(long)]
    between: bool,
    /// The program to start
    program: PathBuf,
    /// Its arguments
    #[arg(last = true)]
    arguments: Vec<OsString>,
}

/// The launcher's life: each message is a request to start the program, whose standard input comes with it. The answer
/// has the request's number.
pub(crate) fn run(arguments: &LauncherArguments) -> Result<(), Problem> {
    guardian::outlive_signals()?;
    let cannot = |error: io::Error| {
        Problem::unavailable(format!("the launcher cannot be asked: {}", sentence(&error)))
    };
    if let Some(capabilities) = arguments.capabilities {
        sandbox::confine_launcher(capabilities, &arguments.writes);
    }
    let lane = Lane::from(io::stdin().as_fd().try_clone_to_owned().map_err(cannot)?);
    if !arguments.between {
        lane.send(b"confined", &[]).map_err(cannot)?;
    }
    while let Some((request, descriptors)) = lane.receive().map_err(cannot)? {
        let started = match descriptors.into_iter().next() {
            Some(input) if arguments.between => start(arguments, input),
            Some(input) => start_between(arguments, &request, &input),
            None => Ok(json!({ "failed": "there is no way to the new process" })),
        };
        let mut answer = started.unwrap_or_else(
            |error| json!({ "failed": format!("{}: {}", arguments.program.display(), sentence(&error)) }),
        );
        let request: Value = serde_json::from_slice(&request).unwrap_or_default();
        answer["request"] = request["request"].clone();
        lane.send(answer.to_string().as_bytes(), &[]).map_err(cannot)?;
    }
    Ok(())
}

/// Has a process between start the program; its answer. It has ended then.
fn start_between(arguments: &LauncherArguments, request: &[u8], input: &OwnedFd) -> io::Result<Value> {
    let (lane, theirs) = Lane::pair(LAUNCH_LIMIT)?;
    // The file at the path of this program may be another one by now.
    let mut between = Command::new("/proc/self/exe")
        .args([SUBCOMMAND, "--between"])
        .arg(&arguments.program)
        .arg("--")
        .args(&arguments.arguments)
        .stdin(Stdio::from(theirs))
        .envs(arguments.capabilities.is_some().then_some(SANDBOX_WANTED))
        .spawn()?;
    let answer = lane
        .send(request, &[input.as_fd()])
        .and_then(|()| lane.receive())
        .and_then(|answer| answer.ok_or_else(|| io::ErrorKind::BrokenPipe.into()));
    if answer.is_err() {
        let _ = between.kill();
    }
    // It ends at the end of the lane.
    drop(lane);
    between.wait()?;
    Ok(serde_json::from_slice(&answer?.0).unwrap_or_default())
}

/// Starts the program; what to answer. Whoever waits for the process is its next parent.
fn start(arguments: &LauncherArguments, input: OwnedFd) -> io::Result<Value> {
    let is_told = arguments
        .arguments
        .iter()
        .any(|argument| argument == TAKEOVER_FLAG);
    let child = Command::new(&arguments.program)
        .args(&arguments.arguments)
        .args((!is_told).then_some(TAKEOVER_FLAG))
        .stdin(input)
        // It is of the process that the service manager started.
        .env_remove("WATCHDOG_PID")
        .spawn()?;
    Ok(json!({ "process": child.id() }))
}

/// The way to the launcher of this process.
#[derive(Debug)]
pub(crate) struct Launcher {
    asked: Mutex<Asked>,
}

#[derive(Debug)]
struct Asked {
    lane: Lane,
    /// The number of the last request: an answer that was too late for an earlier one may still come.
    request: u64,
}

impl Launcher {
    /// Starts it. It is to be there before this process confines itself, and starts others with what this one `needs`,
    /// unless a sandbox `is_unwanted`.
    ///
    /// # Errors
    /// The path of the program is not known, or nothing can be started.
    pub(crate) fn start(needs: &Needs, is_unwanted: bool) -> Result<Self, Problem> {
        let start = || {
            let bounds = if is_unwanted { Vec::new() } else { bounds(needs)? };
            let program = std::env::current_exe()?;
            let (lane, theirs) = Lane::pair(LAUNCH_LIMIT)?;
            // The file at the path may be another one by now.
            Command::new("/proc/self/exe")
                .arg(SUBCOMMAND)
                .args(bounds)
                .arg(program)
                .arg("--")
                .args(std::env::args_os().skip(1))
                .stdin(Stdio::from(theirs))
                .spawn()?;
            // It is to be confined before this process can change what its directories lead to.
            match lane.receive()? {
                Some(_) => Ok(lane),
                None => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            }
        };
        let lane = start().map_err(|error| {
            Problem::unavailable(format!("cannot start the launcher: {}", sentence(&error)))
        })?;
        Ok(Self::over(lane))
    }

    /// One that runs.
    pub(super) fn over(lane: Lane) -> Self {
        // Another process may have asked before.
        let request = u64::from(std::process::id()) << u32::BITS;
        Self {
            asked: Mutex::new(Asked { lane, request }),
        }
    }

    /// The way to it, for the process that takes over.
    pub(super) fn way(&self) -> io::Result<OwnedFd> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.lane.as_fd().try_clone_to_owned()
    }

    /// Starts the program with `input` as its standard input; its process ID.
    ///
    /// # Errors
    /// It cannot be started, and why.
    pub(super) fn launch(&self, input: &OwnedFd) -> Result<u32, Problem> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = asked.ask(input).map_err(|error| {
            Problem::unavailable(format!("the launcher does not answer: {}", sentence(&error)))
        })?;
        let process = answer["process"].as_u64().and_then(|id| u32::try_from(id).ok());
        process.ok_or_else(|| {
            let why = answer["failed"]
                .as_str()
                .unwrap_or("the launcher does not say why");
            Problem::unavailable(format!("cannot start the new program: {why}"))
        })
    }
}

/// The launcher's arguments for what it is confined to.
fn bounds(needs: &Needs) -> io::Result<Vec<OsString>> {
    let mut bounds: Vec<OsString> = vec![
        "--capabilities".into(),
        needs.capabilities().bits().to_string().into(),
    ];
    for directory in needs.writes() {
        bounds.extend(["--write".into(), std::path::absolute(directory)?.into()]);
    }
    Ok(bounds)
}

impl Asked {
    /// The launcher's answer to a new request.
    fn ask(&mut self, input: &OwnedFd) -> io::Result<Value> {
        self.request += 1;
        let request = json!({ "request": self.request });
        self.lane.send(request.to_string().as_bytes(), &[input.as_fd()])?;
        loop {
            let (bytes, _) = self.lane.receive()?.ok_or(io::ErrorKind::BrokenPipe)?;
            let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            if answer["request"] == self.request {
                return Ok(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_that_came_too_late_is_not_taken_for_that_of_the_next_request() {
        let (ours, theirs) = Lane::pair(Duration::from_millis(10)).unwrap();
        let launcher = Launcher::over(ours);
        let input = theirs.try_clone().unwrap();
        let theirs = Lane::from(theirs);
        assert!(launcher.launch(&input).is_err(), "nobody answers");

        let answer = |process: u32| {
            let (bytes, _) = theirs.receive().unwrap().unwrap();
            let request: Value = serde_json::from_slice(&bytes).unwrap();
            let answer = json!({ "request": request["request"], "process": process });
            theirs.send(answer.to_string().as_bytes(), &[]).unwrap();
        };
        let asked = launcher.asked.lock().unwrap();
        asked.lane.set_patience(LAUNCH_LIMIT).unwrap();
        drop(asked);
        thread::scope(|scope| {
            let launched = scope.spawn(|| launcher.launch(&input));
            answer(1);
            answer(2);
            assert_eq!(launched.join().unwrap().unwrap(), 2);
        });
    }
}
