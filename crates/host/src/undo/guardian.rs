//! The guardian: a child process that outlives a killed process and undoes its changes.
//!
//! It holds the read end of a pipe whose write end only the process has. When the pipe ends and the process is
//! dead, it undoes what the file of changes lists; after an ordinary end the file does not exist any more.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::record::{Directory, Record};
use crate::error::{Explain, HostError};
use crate::limits::{GUARDIAN_END_TIME, GUARDIAN_PATIENCE, GUARDIAN_START_TIME, UNDO_POLL};

/// The hidden subcommand of the program that calls [`guard`]; its argument is the file of changes.
pub const GUARDIAN_SUBCOMMAND: &str = "_guardian";

/// How the guardian is started; the file of changes becomes its last argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardianProgram {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the file.
    pub arguments: Vec<OsString>,
}

impl GuardianProgram {
    /// This very program with [`GUARDIAN_SUBCOMMAND`], even where its file was replaced since.
    #[must_use]
    pub fn this_program() -> Self {
        Self {
            program: "/proc/self/exe".into(),
            arguments: vec![GUARDIAN_SUBCOMMAND.into()],
        }
    }

    /// Starts it and waits until no signal can end it any more.
    pub(super) fn start(&self, file: &Path) -> Result<Guardian, HostError> {
        let start = || {
            let mut child = Command::new(&self.program)
                .args(&self.arguments)
                .arg(file)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .current_dir("/")
                .spawn()?;
            match wait_until_ready(&mut child) {
                Ok(()) => Ok(Guardian(child)),
                Err(error) => {
                    // It may have ended by itself.
                    let _ = child.kill();
                    let _ = child.wait();
                    Err(error)
                }
            }
        };
        start().explain(|| "start the guardian that would undo changes after a crash".to_owned())
    }
}

fn wait_until_ready(child: &mut Child) -> io::Result<()> {
    let mut output = child.stdout.take().expect("standard output is piped");
    let time = Timespec::try_from(GUARDIAN_START_TIME).expect("it is a few seconds");
    if poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&time))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    output.read_exact(&mut [0])
}

/// A guardian on watch. When this is dropped it has the process's end in view.
#[derive(Debug)]
pub(super) struct Guardian(Child);

impl Guardian {
    /// Sends it home; the file of changes is gone.
    pub(super) fn dismiss(mut self) {
        drop(self.0.stdin.take());
        let deadline = Instant::now() + GUARDIAN_END_TIME;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(UNDO_POLL);
        }
    }
}

/// The guardian's whole life. The caller has seen to it that SIGINT, SIGTERM and SIGHUP do not end the process.
///
/// # Errors
/// What could not be undone, or that the process still runs although it closed the pipe.
pub fn guard(file: &Path) -> Result<(), HostError> {
    // Signals to the terminal's group and its end do not concern it; it fails only for who already leads a session.
    let _ = rustix::process::setsid();
    let told = io::stdout().write_all(b"r").and_then(|()| io::stdout().flush());
    told.explain(|| "start as guardian; gramway starts it itself".to_owned())?;
    // An error ends the watch as the pipe's end does.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());

    let deadline = Instant::now() + GUARDIAN_PATIENCE;
    loop {
        if !file.exists() {
            return Ok(());
        }
        if !Record::load(file)?.holder.is_alive() {
            break;
        }
        if Instant::now() >= deadline {
            let lives = io::Error::new(io::ErrorKind::ResourceBusy, "it is still running");
            return Err(HostError::new(
                format!("undo the changes of the process that {} names", file.display()),
                lives,
            ));
        }
        thread::sleep(UNDO_POLL);
    }
    let directory = file.parent().unwrap_or(Path::new("."));
    let directory = Directory::lock(directory)?;
    // The next start may have been quicker.
    if !file.exists() {
        return Ok(());
    }
    let mut record = Record::load(file)?;
    let undone = record.take_back(&directory.others(file));
    record.save(file)?;
    undone
}
