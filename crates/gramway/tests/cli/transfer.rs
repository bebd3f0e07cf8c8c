//! `gramway send`, `receive` and `share` on the loopback, by peer IDs; and what is said where something is wrong.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{CONFIGURATION, PERMISSION, Place, Program, UNAVAILABLE, USAGE, ended, free_port, wait};
use crate::terminal::Terminal;

pub(crate) fn id(place: &Place, state: &str) -> String {
    let output = place.run(&["peer", "id", "--state", state]);
    String::from_utf8(output.stdout)
        .expect("an ID is text")
        .trim()
        .to_owned()
}

/// A file with these bytes, and a sender of it for this machine's `receiver`, and where that is.
fn sender(place: &Place, bytes: &[u8]) -> (Program, String) {
    fs::write(place.path("file"), bytes).expect("the file is written");
    sender_of(place, &["file"])
}

/// A sender with these arguments for this machine's `receiver`, and where that is.
pub(crate) fn sender_of(place: &Place, arguments: &[&str]) -> (Program, String) {
    sender_by(place, arguments, |command| command)
}

/// The same, with its command changed before it starts.
pub(crate) fn sender_by(
    place: &Place,
    arguments: &[&str],
    change: impl FnOnce(Command) -> Command,
) -> (Program, String) {
    let (own, other) = (id(place, "sender"), id(place, "receiver"));
    let address = format!("127.0.0.1:{}", free_port());
    let to_peer = ["--peer", &other, "--listen", &address, "--state", "sender"];
    let arguments = [&["send"], arguments, &to_peer].concat();
    let mut command = change(place.command(&arguments));
    let sender = Program::watch(command.spawn().expect("it starts"));
    sender.wait_for("waiting for the peer");
    (sender, format!("{own}@{address}"))
}

/// What a receiver says with these arguments, from the sender at this place into the directory `to`.
pub(crate) fn receive(place: &Place, at: &str, arguments: &[&str]) -> Output {
    place.run(&[&receiving(at), arguments].concat())
}

/// The arguments of a receiver from the sender at this place into the directory `to`.
pub(crate) fn receiving(at: &str) -> [&str; 8] {
    [
        "receive", "--peer", at, "--no-lan", "--to", "to", "--state", "receiver",
    ]
}

#[test]
fn a_file_comes_once_and_what_is_in_its_place_is_what_the_user_says() {
    let place = Place::new();
    for (on_conflict, kept, other) in [
        ("rename", "old", Some("file (2)")),
        ("skip", "old", None),
        ("overwrite", "new one", None),
    ] {
        let _ = fs::remove_dir_all(place.path("to"));
        fs::create_dir(place.path("to")).expect("it is made");
        fs::write(place.path("to/file"), "old").expect("it is written");
        let (sender, at) = sender(&place, b"new one");
        let arguments = [
            "receive",
            "--peer",
            &at,
            "--no-lan",
            "--to",
            "to",
            "--state",
            "receiver",
            "--on-conflict",
            on_conflict,
        ];
        let output = place.run(&arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{on_conflict}: {told}");
        assert_eq!(sender.end(), Some(0), "{on_conflict}");
        assert_eq!(
            fs::read_to_string(place.path("to/file")).expect("it is there"),
            kept,
            "{on_conflict}"
        );
        let found = fs::read_dir(place.path("to")).expect("it is there").count();
        assert_eq!(found, 1 + usize::from(other.is_some()), "{on_conflict}");
        if let Some(other) = other {
            let text = fs::read_to_string(place.path("to").join(other)).expect("it has another name");
            assert_eq!(text, "new one");
        }
    }
}

/// A receiver at a terminal that has been asked what becomes of a file in the place of one that is offered.
fn asked(place: &Place, at: &str) -> (Terminal, std::process::Child) {
    fs::create_dir_all(place.path("to")).expect("it is made");
    fs::write(place.path("to/file"), "old").expect("it is written");
    let arguments = [
        "receive", "--peer", at, "--no-lan", "--to", "to", "--state", "receiver",
    ];
    let mut command = place.command(&arguments);
    let terminal = Terminal::new();
    terminal.give_to(&mut command);
    let receiver = command.spawn().expect("it starts");
    terminal.wait_for("in capitals for all that follow:");
    (terminal, receiver)
}

#[test]
fn somebody_at_a_terminal_is_asked_until_there_is_an_answer() {
    let place = Place::new();
    let (sender, at) = sender(&place, b"new one");
    let (mut terminal, mut receiver) = asked(&place, &at);
    terminal.wait_for("file is there, with 3 B; the offered one has 7 B");
    terminal.type_line("perhaps");
    terminal.type_line("o");
    assert_eq!(wait(&mut receiver), Some(0), "{}", terminal.shown());
    assert_eq!(sender.end(), Some(0));
    assert_eq!(terminal.shown().matches("[s]kip it").count(), 2);
    let text = fs::read_to_string(place.path("to/file")).expect("it is there");
    assert_eq!(text, "new one");
}

#[test]
fn somebody_in_whose_files_place_a_directory_is_may_leave_it_out_or_rename_it() {
    let place = Place::new();
    let (sender, at) = sender(&place, b"new one");
    fs::create_dir_all(place.path("to/file")).expect("it is made");
    let mut command = place.command(&receiving(&at));
    let mut terminal = Terminal::new();
    terminal.give_to(&mut command);
    let mut receiver = command.spawn().expect("it starts");
    terminal.wait_for("[s]kip the offered one, [r]ename it;");
    terminal.wait_for("file: a directory, or something that is no file, is there");
    terminal.type_line("o");
    terminal.type_line("s");
    assert_eq!(wait(&mut receiver), Some(0), "{}", terminal.shown());
    assert_eq!(sender.end(), Some(0));
    assert_eq!(terminal.shown().matches("[s]kip").count(), 2);
    assert!(place.path("to/file").is_dir());
}

#[test]
fn ctrl_c_at_a_question_ends_the_program_and_touches_nothing() {
    let place = Place::new();
    let (_sender, at) = sender(&place, b"new one");
    let (terminal, mut receiver) = asked(&place, &at);
    kill_process(Pid::from_child(&receiver), Signal::INT).expect("it runs");
    let signal = ended(&mut receiver).signal();
    assert_eq!(signal, Some(Signal::INT.as_raw()), "{}", terminal.shown());
    assert!(terminal.shown().contains("interrupted"), "{}", terminal.shown());
    let names = fs::read_dir(place.path("to")).expect("it is there");
    assert_eq!(names.count(), 1);
    let text = fs::read_to_string(place.path("to/file")).expect("it is there");
    assert_eq!(text, "old");
}

#[test]
fn who_looks_first_receives_afterwards_and_standard_output_has_the_bytes_and_nothing_else() {
    let place = Place::new();
    let (sender, at) = sender(&place, b"bytes\n");
    fs::create_dir(place.path("to")).expect("a directory can be made");
    for look in ["--dry-run", "--list"] {
        let arguments = [
            "receive", "--peer", &at, "--no-lan", "--to", "to", "--state", "receiver", look,
        ];
        let output = place.run(&arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{told}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("6 B  file"), "{shown}");
        assert!(shown.contains("6 B  in 1 file"), "{shown}");
        let written = fs::read_dir(place.path("to")).expect("it is there").count();
        assert_eq!(written, 0);
        sender.wait_for("the receiver has looked");
    }
    let output = place.run(&[
        "receive", "--peer", &at, "--no-lan", "-o", "-", "--state", "receiver",
    ]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(output.stdout, b"bytes\n");
    assert_eq!(sender.end(), Some(0));
}

#[test]
fn what_is_wrong_is_said_before_anybody_is_asked() {
    let place = Place::new();
    // The state directory is there.
    let _ = id(&place, "one");
    for (arguments, code, part) in [
        (
            &["receive", "4711-mapel-otter"][..],
            USAGE,
            "did you mean `maple`?",
        ),
        (&["receive", "47-maple-otter"], USAGE, "not the number of a code"),
        (&["receive"], USAGE, "CODE"),
        (
            &["receive", "4711-maple-otter", "--no-lan"],
            USAGE,
            "local network",
        ),
        (
            &["send", "absent", "--no-lan"],
            CONFIGURATION,
            "cannot send absent",
        ),
        (&["send", "-", "--receivers", "2"], USAGE, "goes to one receiver"),
        (&["send", ".", "--no-lan"], USAGE, "--rendezvous-file"),
        (&["send", ".", "--limit", "1"], USAGE, "bytes a second"),
        (
            &["send", "one", "--include", "src/**"],
            USAGE,
            "nothing that is to be sent matches --include src/**: paths begin with",
        ),
        (
            &["send", "one", "--exclude", "o*"],
            USAGE,
            "nothing is left to be sent",
        ),
        (
            &["send", "one", "--include", "["],
            USAGE,
            "the pattern [ cannot be read: unclosed",
        ),
        (
            &["receive", "4711-maple-otter", "--only", "["],
            USAGE,
            "the pattern [ cannot be read: unclosed",
        ),
        (&["send", "/dev/null"], USAGE, "gramway send - < /dev/null"),
        (
            &["send", "-", "--name", "a/b.txt"],
            USAGE,
            "--name a/b.txt: the name has a `/`",
        ),
        (
            &["receive", "4711-maple-otter", "--to", "one/peer.key/below"],
            USAGE,
            "one/peer.key is not a directory",
        ),
        (
            &["share", "absent", "--to", "somebody"],
            CONFIGURATION,
            "cannot share absent",
        ),
        (&["share", ".", "--to", "somebody"], USAGE, "52 characters"),
        (
            &["receive", "4711-maple-otter", "--output", "file"],
            USAGE,
            "--output",
        ),
    ] {
        place.refused(&[arguments, &["--state", "one"]].concat(), code, part);
    }
    // Nobody is at the code's server: it is said soon, and how long it is tried.
    let nowhere = format!("4711-maple-otter@127.0.0.1:{}", free_port());
    let output = place.run(&["receive", &nowhere, "--state", "one", "--timeout", "5"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(
        told.contains("does not answer yet (UDP); trying for another"),
        "{told}"
    );
    assert!(told.contains("was not reached within 5 s"), "{told}");
    // Another command with the code would only be in its way.
    let nowhere = format!("4711-maple-otter@127.0.0.1:{}", free_port());
    let mut first = place.command(&["receive", &nowhere, "--state", "one", "--timeout", "600"]);
    let first = Program::watch(first.spawn().expect("it starts"));
    first.wait_for("does not answer yet");
    place.refused(
        &["receive", &nowhere, "--state", "one"],
        UNAVAILABLE,
        "another receive with this code runs on this machine",
    );
    drop(first);
    let (_sender, at) = sender(&place, b"secret");
    let stranger = [
        "receive",
        "--peer",
        &at,
        "--no-lan",
        "--state",
        "stranger",
        "--timeout",
        "1",
    ];
    let output = place.run(&stranger);
    assert_eq!(output.status.code(), Some(PERMISSION));
}
