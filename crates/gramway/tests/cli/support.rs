//! Places for tests and programs that run in them; every wait has a deadline.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longest wait for anything here.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const USAGE: i32 = 64;
pub(crate) const UNAVAILABLE: i32 = 69;
pub(crate) const PERMISSION: i32 = 77;
pub(crate) const CONFIGURATION: i32 = 78;

/// A directory for one test, with the program's environment cut off from the caller's.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gramway"));
        command
            .env_clear()
            .env("HOME", self.path("home"))
            // As on a terminal, although a pipe reads it.
            .env("GRAMWAY_LOG_FORMAT", "human")
            .current_dir(self.directory.path());
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Writes a file that nobody else may read.
    pub(crate) fn write_secret(&self, name: &str, text: &str) {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Runs to the end; the wait is bounded.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        finish(self.command(arguments).spawn().unwrap())
    }

    /// Runs a command that must fail with this code and one sentence that holds `part`, and change nothing on disk.
    pub(crate) fn refused(&self, arguments: &[&str], code: i32, part: &str) {
        self.refused_command(&mut self.command(arguments), code, part);
    }

    pub(crate) fn refused_command(&self, command: &mut Command, code: i32, part: &str) {
        let before = tree(self.directory.path());
        let output = finish(command.spawn().unwrap());
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
        assert!(
            text.starts_with("gramway: ") && text.contains(part),
            "{command:?}: {text}"
        );
        assert!(code == USAGE || text.lines().count() == 1, "{command:?}: {text}");
        assert!(output.stdout.is_empty(), "{command:?}");
        assert_eq!(
            tree(self.directory.path()),
            before,
            "{command:?} changed the disk"
        );
    }

    /// Starts a server on a free loopback port with the state directory `state`.
    pub(crate) fn server(&self) -> Program {
        let child = self
            .command(&["up", "--state", "state", "--listen", "127.0.0.1:0"])
            .spawn()
            .unwrap();
        let server = Program::watch(child);
        server.wait_for("gramway link --state state");
        server
    }

    /// After a kill the socket file is there and nobody answers: `status` says so and removes it.
    pub(crate) fn refused_stale_socket(&self) {
        assert!(self.path("state/server.sock").exists());
        let output = self.run(&["status", "--state", "state"]);
        assert_eq!(output.status.code(), Some(UNAVAILABLE));
        assert!(!self.path("state/server.sock").exists());
    }

    /// A client with the link in the file `link` and the state directory `state`.
    pub(crate) fn client_command(&self, forward: &str) -> Command {
        let arguments = [
            "connect",
            "--link-file",
            "link",
            "--state",
            "state",
            "-L",
            forward,
        ];
        self.command(&arguments)
    }

    /// Starts this client.
    pub(crate) fn client(&self, forward: &str) -> Program {
        Program::watch(self.client_command(forward).spawn().unwrap())
    }

    /// The link of the server with the state directory `state`.
    pub(crate) fn link(&self) -> String {
        let output = self.run(&["link", "--state", "state"]);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

/// A running program of which stderr or stdout is read; killed with the value.
pub(crate) struct Program {
    pub(crate) child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Program {
    pub(crate) fn watch(mut child: Child) -> Self {
        let stderr = child.stderr.take().unwrap();
        Self::reading(child, stderr)
    }

    /// The same, but its stdout is read: lines for programs.
    pub(crate) fn watch_stdout(mut child: Child) -> Self {
        let stdout = child.stdout.take().unwrap();
        Self::reading(child, stdout)
    }

    fn reading(child: Child, from: impl Read + Send + 'static) -> Self {
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(from)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    pub(crate) fn wait_for(&self, part: &str) -> String {
        self.lines_until(part, 1).pop().unwrap()
    }

    /// The lines that it has not been asked for yet, up to the one that has this part for so many times.
    pub(crate) fn lines_until(&self, part: &str, times: usize) -> Vec<String> {
        let deadline = Instant::now() + LIMIT;
        let (mut lines, mut found) = (Vec::new(), 0);
        while found < times {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    found += usize::from(line.contains(part));
                    lines.push(line);
                }
                Err(error) => panic!("{found} lines with {part:?}: {error}"),
            }
        }
        lines
    }

    pub(crate) fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits for the end by itself: its exit code.
    pub(crate) fn end(mut self) -> Option<i32> {
        wait(&mut self.child)
    }

    /// Waits for the end by itself: the signal of which it died.
    pub(crate) fn killed(mut self) -> Option<i32> {
        ended(&mut self.child).signal()
    }

    pub(crate) fn terminate(self) -> Option<i32> {
        self.signal("-TERM");
        self.end()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    ended(child).code()
}

/// How it ends by itself.
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end, and reads beside it: a pipe may take as little as a page.
pub(crate) fn finish(mut child: Child) -> Output {
    fn read(pipe: Option<impl Read>) -> Vec<u8> {
        let mut bytes = Vec::new();
        pipe.map(|mut pipe| pipe.read_to_end(&mut bytes).unwrap());
        bytes
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = scope.spawn(|| read(stderr));
        wait(&mut child);
        Output {
            status: child.wait().unwrap(),
            stdout: stdout.join().unwrap(),
            stderr: stderr.join().unwrap(),
        }
    })
}

/// Every file below with its mode, modification time and content.
pub(crate) fn tree(path: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut files = BTreeMap::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop() {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_file() {
            std::fs::read(&path).unwrap_or_default()
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        files.insert(
            path,
            (metadata.mode(), metadata.mtime(), metadata.mtime_nsec(), content),
        );
    }
    files
}

/// A UDP port of the loopback interface that nobody has.
pub(crate) fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

/// A link to a port where nobody answers.
pub(crate) fn dead_link() -> String {
    format!(
        "gramway://{}@127.0.0.1:9?pin=sha256-{}",
        "A".repeat(43),
        "A".repeat(43)
    )
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}
