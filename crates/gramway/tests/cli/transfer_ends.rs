//! How both ends of `gramway send` and `receive` end: by which code, and what they say.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use files::{Destination, Progress, ReceiveOptions};
use files_proto::Ranges;
use files_proto::message::{Decoder, Hello, Message, VERSION};
use peer::blocking::{wait, wait_for};
use peer::{Bytes, Endpoint, Peer, SecretKey};
use rustix::process::Signal;

use crate::support::{LIMIT, Place, Program, UNAVAILABLE, finish, free_port, is_root};
use crate::transfer::{id, receive, receiving, sender_by, sender_of};

/// The same command without root's right to read whatever there is.
fn without_right_to_read_all(command: Command) -> Command {
    if !is_root() {
        return command;
    }
    let mut without = Command::new("setpriv");
    without
        .arg("--bounding-set=-dac_override,-dac_read_search")
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(command.get_current_dir().expect("it runs in its place"))
        .env_clear()
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    without
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// FILE-44.
#[test]
fn a_directory_that_its_sender_may_not_read_is_no_success_of_either_end() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/secret")).expect("it is made");
    fs::write(place.path("tree/file"), "is sent").expect("it is written");
    let mode = |mode| fs::set_permissions(place.path("tree/secret"), fs::Permissions::from_mode(mode));
    mode(0).expect("its mode is set");
    let (sender, at) = sender_by(&place, &["tree"], without_right_to_read_all);
    let output = receive(&place, &at, &[]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(
        told.contains("tree/secret: at the sender: the directory cannot be read"),
        "{told}"
    );
    assert!(
        told.contains("1 file, directory or link was not transferred, for the reason above"),
        "{told}"
    );
    let told = sender.wait_for("tree/secret: ");
    assert!(told.contains("the directory cannot be read"), "{told}");
    assert_eq!(sender.end(), Some(UNAVAILABLE));
    assert_eq!(
        fs::read(place.path("to/tree/file")).expect("the rest is there"),
        b"is sent"
    );
    // To be removed.
    mode(0o700).expect("its mode is set");
}

/// Says that it has the one file, hears that this is all, and leaves without having said that its disk has it.
fn take_and_leave(peer: &Peer) {
    let (mut writer, mut reader) = wait(peer.accept()).expect("the sender opens a stream");
    let mut say = |message: &Message| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        wait(writer.write_chunk(Bytes::from(bytes))).expect("the sender hears it");
    };
    say(&Message::Hello(Hello {
        version: VERSION,
        sender: false,
        extensions: Vec::new(),
    }));
    let mut decoder = Decoder::default();
    loop {
        match decoder.next_message().expect("it is a message") {
            Some(Message::Entry(_)) => say(&Message::Stored {
                entries: Ranges::from_range(0..1),
            }),
            Some(Message::Done(_)) => return peer.close(0, ""),
            Some(_) => {}
            None => {
                let read = wait_for(LIMIT, reader.read_chunk(65_536)).expect("it says something");
                decoder.push(&read.expect("it is there").expect("it goes on"));
            }
        }
    }
}

/// FILE-42.
#[test]
fn a_sender_that_is_not_told_that_a_disk_has_everything_waits_for_that_and_is_no_success_without() {
    for (comes_again, is_json) in [(true, false), (false, false), (true, true), (false, true)] {
        let place = Place::new();
        fs::write(place.path("file"), "bytes").expect("it is written");
        let key = SecretKey::generate().expect("the system gives random bytes");
        let address = format!("127.0.0.1:{}", free_port());
        let own = id(&place, "sender");
        let receiver = key.id().to_string();
        // Longer than a receiver needs to come, on any machine.
        let arguments = [
            "send",
            "file",
            "--peer",
            &receiver,
            "--listen",
            &address,
            "--state",
            "sender",
            "--timeout",
            "20",
        ];
        let (sender, [waiting, unconfirmed]) = match is_json {
            true => {
                let child = place.command(&[&arguments[..], &["--json"]].concat()).spawn();
                let sender = Program::watch_stdout(child.expect("it starts"));
                (sender, [r#""event":"waiting""#, r#""event":"unconfirmed""#])
            }
            false => {
                let child = place.command(&arguments).spawn();
                let sender = Program::watch(child.expect("it starts"));
                (
                    sender,
                    ["waiting for the peer", "before it said that its disk has it"],
                )
            }
        };
        sender.wait_for(waiting);
        let any = "127.0.0.1:0".parse().expect("it is an address");
        let endpoint = Endpoint::bind(key, any).expect("a port is free");
        let connect = || {
            let own = own.parse().expect("it is an ID");
            let addresses = [address.parse().expect("it is an address")];
            wait_for(LIMIT, endpoint.connect(own, &addresses))
                .expect("it answers")
                .expect("it lets us in")
        };
        take_and_leave(&connect());
        sender.wait_for(unconfirmed);
        if comes_again {
            fs::create_dir(place.path("to")).expect("it is made");
            let options = ReceiveOptions::new(Destination::Directory(place.path("to")));
            let report = files::receive(&connect(), &options, &Progress::default());
            assert_eq!(report.expect("it comes").stored, 1);
            assert_eq!(sender.end(), Some(0));
        } else {
            if !is_json {
                sender.wait_for("look there before you remove anything here");
            }
            assert_eq!(sender.end(), Some(UNAVAILABLE));
        }
    }
}

/// Bytes that do not shrink.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(next).collect()
}

/// A transfer that takes longer than the test needs to interrupt it, and of which some chunks have come.
fn begun(place: &Place, bytes: &[u8]) -> (Program, String, Program) {
    fs::write(place.path("noise"), bytes).expect("it is written");
    let (sender, at) = sender_of(place, &["noise", "--limit", "4M"]);
    let receiver = Program::watch(place.command(&receiving(&at)).spawn().expect("it starts"));
    // Each chunk has a record of 40 bytes.
    let journal = place.path("to/.noise.gramway-state");
    let deadline = Instant::now() + LIMIT;
    while fs::metadata(&journal).map_or(0, |found| found.len()) < 250 {
        assert!(Instant::now() < deadline, "nothing comes");
        thread::sleep(Duration::from_millis(5));
    }
    (sender, at, receiver)
}

/// Receives the rest from this sender.
fn receive_rest(place: &Place, sender: Program, at: &str, bytes: &[u8]) {
    let output = receive(place, at, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(sender.end(), Some(0));
    assert!(fs::read(place.path("to/noise")).expect("it is there") == bytes);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let end: serde_json::Value = told
        .lines()
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .find(|value: &serde_json::Value| value["event"] == "end")
        .expect("it tells its end");
    let there = end["bytes_there"].as_u64().expect("it is a number");
    assert!(there >= 4 << 20, "{end}");
    assert_eq!(end["bytes_sent"].as_u64(), Some(bytes.len() as u64 - there));
}

/// Ctrl-C at the sender.
#[test]
fn an_interrupted_sender_says_how_to_go_on_and_that_goes_on() {
    let place = Place::new();
    let bytes = noise(24 << 20);
    let (sender, _, receiver) = begun(&place, &bytes);
    sender.signal("-INT");
    let told = sender.wait_for("interrupted. What has ");
    assert!(
        told.contains("send again, and receive into the same directory; only the rest is sent"),
        "{told}"
    );
    let told = receiver.wait_for("the other end ended the transfer");
    assert!(told.contains("the transfer was cancelled"), "{told}");
    // A loop of a shell ends with it.
    assert_eq!(sender.killed(), Some(Signal::INT.as_raw()));
    assert_eq!(receiver.end(), Some(UNAVAILABLE));
    let (sender, at) = sender_of(&place, &["noise"]);
    receive_rest(&place, sender, &at, &bytes);
}

/// FILE-37. Ctrl-C at the receiver: its sender waits for it to come again.
#[test]
fn an_interrupted_receiver_goes_on_by_the_same_command_while_its_sender_runs() {
    let place = Place::new();
    let bytes = noise(24 << 20);
    let (sender, at, receiver) = begun(&place, &bytes);
    receiver.signal("-INT");
    let told = receiver.wait_for("interrupted. What has ");
    assert!(
        told.contains("run the same command again, with a new code where the sender has ended"),
        "{told}"
    );
    assert_eq!(receiver.killed(), Some(Signal::INT.as_raw()));
    sender.wait_for("the receiver was interrupted; it may come again");
    receive_rest(&place, sender, &at, &bytes);
}

/// Lines but those on what the machine lacks.
fn lines(told: &str) -> Vec<&str> {
    told.lines()
        .filter(|line| !line.starts_with("warning:"))
        .collect()
}

#[test]
fn several_paths_arrive_beside_each_other_and_two_of_one_name_both() {
    let place = Place::new();
    for (path, text) in [
        ("one/name.txt", "first"),
        ("two/name.txt", "second"),
        ("tree/deep/file", "third"),
    ] {
        fs::create_dir_all(place.path(path).parent().expect("it has one")).expect("it is made");
        fs::write(place.path(path), text).expect("it is written");
    }
    let (sender, at) = sender_of(&place, &["one/name.txt", "two/name.txt", "tree"]);
    let output = receive(&place, &at, &[]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(sender.end(), Some(0));
    assert!(told.contains("name.txt is stored as name (2).txt"), "{told}");
    for (path, text) in [
        ("name.txt", "first"),
        ("name (2).txt", "second"),
        ("tree/deep/file", "third"),
    ] {
        let found = fs::read_to_string(place.path("to").join(path));
        assert_eq!(found.expect("it is there"), text, "{path}");
    }
    assert_eq!(fs::read_dir(place.path("to")).expect("it is there").count(), 3);
}

/// A look transfers nothing, and says that of what would fail.
#[test]
fn a_dry_run_of_what_would_fail_in_part_says_so_and_ends_like_the_run() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).expect("it is made");
    fs::write(place.path("tree/file"), "is sent").expect("it is written");
    symlink("../../out", place.path("tree/link")).expect("it is made");
    let (sender, at) = sender_of(&place, &["tree"]);
    for (options, text) in [
        (
            &["--dry-run"][..],
            "could not be transferred, for the reason above; the rest could",
        ),
        (&[], "was not transferred, for the reason above; the rest was"),
    ] {
        assert!(!place.path("to/tree").exists());
        let output = receive(&place, &at, options);
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
        assert!(
            told.contains("tree/link: a link to ../../out leads out"),
            "{told}"
        );
        let end = format!("1 file, directory or link {text}");
        assert!(told.contains(&end), "{told}");
    }
    assert_eq!(sender.end(), Some(UNAVAILABLE));
    let there = fs::read(place.path("to/tree/file"));
    assert_eq!(there.expect("the rest is there"), b"is sent");
}

#[test]
fn what_is_included_and_not_excluded_is_sent() {
    let place = Place::new();
    fs::create_dir_all(place.path("tree/deep")).expect("it is made");
    for path in [
        "tree/a.txt",
        "tree/b.jpg",
        "tree/deep/c.txt",
        "tree/deep/secret.txt",
    ] {
        fs::write(place.path(path), path).expect("it is written");
    }
    let (sender, at) = sender_of(&place, &["tree", "--include", "*.txt", "--exclude", "secret*"]);
    let output = receive(&place, &at, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(sender.end(), Some(0));
    let names = |path: &str| {
        let names = fs::read_dir(place.path(path)).expect("it is there");
        let mut names: Vec<_> = names
            .map(|entry| entry.expect("it is read").file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("to/tree"), ["a.txt", "deep"]);
    assert_eq!(names("to/tree/deep"), ["c.txt"]);
}

/// FILE-37. Nothing has come, and nothing has gone to standard output: the sender waits for the right command.
#[test]
fn who_has_chosen_nothing_or_too_much_chooses_again_from_the_same_sender() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).expect("it is made");
    for name in ["tree/a", "tree/b"] {
        fs::write(place.path(name), noise(100_000)).expect("it is written");
    }
    let (sender, at) = sender_of(&place, &["tree"]);
    let output = receive(&place, &at, &["--only", "b"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(sender.end(), Some(0));
    fs::remove_dir_all(place.path("to")).expect("it is removed");
    let (sender, at) = sender_of(&place, &["tree"]);
    let output = receive(&place, &at, &["--only", "src/**"]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(
        told.contains("nothing that is offered matches src/**: paths begin with"),
        "{told}"
    );
    let written = fs::read_dir(place.path("to")).expect("it is there").count();
    assert_eq!(written, 0);
    sender.wait_for("it may come again, and goes on where it ended. It is waited for until Ctrl-C");
    let piped = |only: &[&str]| {
        let arguments = [
            "receive", "--peer", &at, "--no-lan", "-o", "-", "--state", "receiver",
        ];
        place.run(&[&arguments, only].concat())
    };
    let output = piped(&[]);
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(
        told.contains("more than one file is offered") && told.contains("--only"),
        "{told}"
    );
    assert!(output.stdout.is_empty(), "{} bytes", output.stdout.len());
    sender.wait_for("it may come again");
    let output = piped(&["--only", "tree/b"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout == noise(100_000));
    assert_eq!(sender.end(), Some(0));
}

#[test]
fn what_standard_output_does_not_take_is_not_gone_on_with() {
    let place = Place::new();
    fs::write(place.path("noise"), noise(3 << 20)).expect("it is written");
    let (sender, at) = sender_of(&place, &["noise"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let arguments = [
        "receive", "--peer", &at, "--no-lan", "-o", "-", "--state", "receiver",
    ];
    let mut command = place.command(&arguments);
    command.stdout(full.expect("it is there"));
    let output = finish(command.spawn().expect("it starts"));
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(UNAVAILABLE), "{told}");
    assert!(
        told.contains("noise: no space is left where standard output leads"),
        "{told}"
    );
    assert!(told.contains("brings everything from its beginning"), "{told}");
    sender.wait_for("at the receiver: no space is left where standard output leads");
    sender.wait_for("brings everything from its beginning");
    assert_eq!(sender.end(), Some(UNAVAILABLE));
}

/// No bars, no colours: how it ended, and nothing on standard output.
#[test]
fn in_pipes_each_end_says_one_line() {
    let place = Place::new();
    fs::write(place.path("file"), "bytes").expect("it is written");
    let (own, other) = (id(&place, "sender"), id(&place, "receiver"));
    let address = format!("127.0.0.1:{}", free_port());
    let arguments = [
        "send", "file", "--peer", &other, "--listen", &address, "--state", "sender",
    ];
    let sending = place.command(&arguments).spawn().expect("it starts");
    let received = receive(&place, &format!("{own}@{address}"), &["--timeout", "60"]);
    let sent = finish(sending);
    let told = stderr(&received);
    assert_eq!(received.status.code(), Some(0), "{told}");
    let [line] = lines(&told)[..] else {
        panic!("{told}")
    };
    assert!(line.starts_with("received 5 B in 1 entry within "), "{told}");
    let told = stderr(&sent);
    assert_eq!(sent.status.code(), Some(0), "{told}");
    let [waiting, line] = lines(&told)[..] else {
        panic!("{told}")
    };
    assert!(waiting.starts_with("waiting for the peer; "), "{told}");
    assert!(line.starts_with("sent 5 B in 1 entry within "), "{told}");
    for output in [&received, &sent] {
        assert!(output.stdout.is_empty());
        assert!(!output.stderr.contains(&0x1b) && !output.stderr.contains(&b'\r'));
    }
}
