//! The examples run as their comments say, but `meet`, which needs a server, and `measure`, which takes long. Cargo
//! builds them with these tests, unless one of these is selected alone.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// By when everything has happened, on the busiest machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A program that runs, and ends with the test.
struct Running {
    child: Child,
    lines: Receiver<String>,
    stdin: Option<ChildStdin>,
}

impl Running {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut program: PathBuf = std::env::current_exe().unwrap();
        // The tests' programs are in `deps`, beside `examples`.
        program.pop();
        program.pop();
        program.extend(["examples", name]);
        let mut child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                let program = program.display();
                panic!("{program}: {error}; build it: cargo build -p peer --examples")
            });
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        let (tell, lines) = mpsc::channel();
        thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| tell.send(line))
        });
        Self { child, lines, stdin }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("it prints another line")
    }

    /// What it prints until it ends, which it does well.
    fn rest(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(LIMIT) {
                Ok(line) => lines.push(line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("it does not end: {lines:?}"),
            }
        }
        assert!(self.child.wait().unwrap().success(), "{lines:?}");
        lines
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program says that another one told it of its end, and why.
fn assert_left(line: &str) {
    assert!(line.contains(" left: ") && line.contains("(code "), "{line}");
}

#[test]
fn echo_sends_back_the_words_in_their_order() {
    let listener = Running::start("echo", &["listen", "127.0.0.1:0"]);
    let line = listener.line();
    let (id, address) = line.split_once(" at ").unwrap();
    let sender = Running::start("echo", &["send", id, address, "hello", "world"]);
    assert_eq!(sender.rest(), ["hello", "world"]);
    assert_left(&listener.line());
}

#[test]
fn chat_brings_lines_to_whoever_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let one = Running::start("chat", &[&file("one"), "127.0.0.1:0"]);
    let line = one.line();
    let (id, address) = line.strip_prefix("you are ").unwrap().split_once(" at ").unwrap();
    let mut other = Running::start("chat", &[&file("other"), "127.0.0.1:0", id, address]);
    assert!(other.line().starts_with("you are "));
    assert_eq!(other.line(), format!("{} is here", &id[..8]));
    let name = one.line().strip_suffix(" is here").unwrap().to_owned();
    other
        .stdin
        .as_mut()
        .unwrap()
        .write_all(b"good morning\n")
        .unwrap();
    assert_eq!(one.line(), format!("{name}: good morning"));
    drop(other.stdin.take());
    other.rest();
    assert_left(&one.line());
}

#[test]
fn a_slow_reader_of_telemetry_sees_the_newest_values() {
    let lines = Running::start("telemetry", &[]).rest();
    assert!(
        lines
            .iter()
            .any(|line| line.ends_with("the newest of each gauge last")),
        "{lines:?}"
    );
}

#[test]
fn questions_are_answered_beside_a_bulk_stream() {
    let lines = Running::start("priorities", &["16"]).rest();
    let answers = lines.iter().filter(|line| line.starts_with("early enough ("));
    assert_eq!(answers.count(), 5, "{lines:?}");
    assert!(lines[0].ends_with(" beside the bulk stream)"), "{lines:?}");
}

#[test]
fn threads_without_an_executor_read_and_write_lines() {
    let lines = Running::start("threads", &[]).rest();
    assert_eq!(lines, ["heard one", "heard two", "heard three"]);
}
