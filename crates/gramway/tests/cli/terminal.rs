//! A terminal for programs of tests: what they show on it, and what is typed.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::LIMIT;

pub(crate) struct Terminal {
    ours: File,
    theirs: File,
    shown: Arc<Mutex<String>>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are terminals");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let theirs = OpenOptions::new()
            .read(true)
            .write(true)
            .open(name)
            .expect("it is there");
        let ours = File::from(ours);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, writer) = (ours.try_clone().expect("it is open"), Arc::clone(&shown));
        thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // It fails once nobody has the other end.
            while let Ok(read @ 1..) = reader.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..read]);
                writer.lock().expect("nobody panics").push_str(&text);
            }
        });
        Self { ours, theirs, shown }
    }

    /// Has a program read what is typed, and show what it has to tell.
    pub(crate) fn give_to(&self, command: &mut Command) {
        let end = || Stdio::from(self.theirs.try_clone().expect("it is open"));
        command.stdin(end()).stderr(end());
    }

    pub(crate) fn shown(&self) -> String {
        self.shown.lock().expect("nobody panics").clone()
    }

    pub(crate) fn wait_for(&self, part: &str) {
        let until = Instant::now() + LIMIT;
        while !self.shown().contains(part) {
            assert!(Instant::now() < until, "no {part:?}: {}", self.shown());
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.ours
            .write_all(format!("{line}\n").as_bytes())
            .expect("it is open");
    }
}
