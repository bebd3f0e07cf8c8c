//! The guardian: a child process that outlives a killed process and undoes its changes.
//!
//! It holds the read end of a pipe whose write end only the process has. A byte says that the file of changes has
//! grown, or that all is undone and the guardian may go. When the pipe ends without that and the process is dead, it
//! undoes what the file lists. Then it keeps the connections of the process's NAT for the next server, for a while.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::directory::Directory;
use super::record::Record;
use crate::error::{Explain, HostError};
use crate::limits::{
    GUARDIAN_END_TIME, GUARDIAN_PATIENCE, GUARDIAN_START_TIME, NAT_HELD_AFTER_CRASH, NAT_HOLD_POLL, UNDO_POLL,
};
use crate::nat::NatHold;

/// The hidden subcommand of the program that calls [`guard`]; its argument is the file of changes.
pub const GUARDIAN_SUBCOMMAND: &str = "_guardian";

/// The file of changes has grown.
const CHANGES: u8 = b'c';

/// Everything is undone.
const DISMISSED: u8 = b'd';

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
    /// The file of changes has grown.
    pub(super) fn tell_of_changes(&mut self) {
        self.tell(CHANGES);
    }

    fn tell(&mut self, news: u8) {
        if let Some(pipe) = &mut self.0.stdin {
            // Where it was killed, the next start does its work.
            let _ = pipe.write_all(&[news]);
        }
    }

    /// Sends it home; the file of changes is gone.
    pub(super) fn dismiss(mut self) {
        self.tell(DISMISSED);
        drop(self.0.stdin.take());
        let deadline = Instant::now() + GUARDIAN_END_TIME;
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(UNDO_POLL);
        }
    }
}

/// The guardian's whole life. The caller has seen to it that SIGINT, SIGTERM and SIGHUP do not end the process, but set
/// `is_asked_to_end`: it undoes what there is to undo, but waits for no other server.
///
/// # Errors
/// What could not be undone, or that the process still runs although it closed the pipe.
pub fn guard(file: &Path, is_asked_to_end: &AtomicBool) -> Result<(), HostError> {
    // Signals to the terminal's group and its end do not concern it; it fails only for who already leads a session.
    let _ = rustix::process::setsid();
    let mut hold = None;
    hold_nat(&mut hold, file);
    let told = io::stdout().write_all(b"r").and_then(|()| io::stdout().flush());
    told.explain(|| "start as guardian; gramway starts it itself".to_owned())?;
    for news in io::stdin().lock().bytes() {
        match news {
            Ok(DISMISSED) => return Ok(()),
            Ok(_) => hold_nat(&mut hold, file),
            // It ends the watch as the pipe's end does.
            Err(_) => break,
        }
    }
    wait_for_end(file)?;
    let undone = undo(file);
    if hold.is_some() {
        wait_for_successor(file, is_asked_to_end);
    }
    undone
}

/// Holds the connections of the process's NAT, once it has one; while it lives, that changes nothing.
fn hold_nat(hold: &mut Option<NatHold>, file: &Path) {
    if hold.is_none() && Record::load(file).is_ok_and(|record| record.has_nat()) {
        // Without it the connections end with the process, as they would anyway.
        *hold = NatHold::start().ok();
    }
}

/// Waits until the process that the file names is dead, or the file is gone.
fn wait_for_end(file: &Path) -> Result<(), HostError> {
    let deadline = Instant::now() + GUARDIAN_PATIENCE;
    loop {
        if !file.exists() {
            return Ok(());
        }
        if !Record::load(file)?.holder.is_alive() {
            return Ok(());
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
}

/// Takes back what the file lists.
fn undo(file: &Path) -> Result<(), HostError> {
    let directory = Directory::lock(directory_of(file))?;
    // The next start may have been quicker.
    if !file.exists() {
        return Ok(());
    }
    let mut record = Record::load(file)?;
    let undone = record.take_back(&directory.others(file));
    record.save(file)?;
    undone
}

/// Waits until another server translates in this network, [`NAT_HELD_AFTER_CRASH`] at most.
fn wait_for_successor(file: &Path, is_asked_to_end: &AtomicBool) {
    let deadline = Instant::now() + NAT_HELD_AFTER_CRASH;
    while Instant::now() < deadline && !is_asked_to_end.load(Ordering::Relaxed) {
        let others = Directory::lock(directory_of(file)).map(|directory| directory.others(file));
        if others.is_ok_and(|others| others.iter().any(Record::has_nat)) {
            return;
        }
        thread::sleep(NAT_HOLD_POLL);
    }
}

fn directory_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new("."))
}
