//! `gramway send`, `receive` and `share` between machines: by a code at a server and on one network, by peer IDs, in
//! pipes, after kills, and with wrong codes.

mod comebacks;
mod damage;
mod disks;
mod ends;
mod kills;
mod networks;
mod options;

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::SystemTime;

use serde_json::Value;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{PERMISSION, gramway_binary};
use system_tests::source::pattern;
use system_tests::topology::{PAIR_SERVER_V4, Pair};
use system_tests::tunnel::{Server, with_mounts};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::confinement::{NET_ADMIN, assert_confined, threads};
use crate::peer_command::id;
use crate::scene::LISTEN;
use ends::Ends;

/// A command of one machine, with a state directory of its own.
fn command(machine: &Namespace, directory: &Directory, name: &str, arguments: &[&str]) -> Command {
    let mut command = machine.command(gramway_binary());
    command.args(arguments).arg("--state").arg(directory.join(name));
    command
}

fn run(command: Command) -> Process {
    Process::start(command, "gramway").unwrap()
}

/// Runs such a command.
fn start(machine: &Namespace, directory: &Directory, name: &str, arguments: &[&str]) -> Process {
    run(command(machine, directory, name, arguments))
}

/// Its exit code, once it has ended.
fn code(process: &mut Process) -> i32 {
    process.wait(PROGRAM_LIMIT).unwrap().code().unwrap()
}

fn assert_done(process: &mut Process) {
    let code = code(process);
    assert_eq!(code, 0, "{}", process.stderr());
}

/// The code that a sender prints next.
fn shown_code(sender: &Process) -> String {
    let line = sender.next_line_where(PROGRAM_LIMIT, |line| line.starts_with("gramway receive "));
    let line = line.unwrap_or_else(|| panic!("no code: {}", sender.stderr()));
    line.trim_start_matches("gramway receive ").to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A server that both machines reach, and its link's file.
fn server(pair: &Pair, directory: &Directory) -> (Server, String) {
    let server = Server::start(&pair.server.place(), "server", LISTEN, &[], directory.path());
    let link = directory.write("link", &server.link()).unwrap();
    (server, text(&link).to_owned())
}

/// A directory with whatever may be in one.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::write(root.join("large"), pattern(0, 5_000_000)).unwrap();
    fs::write(root.join("none"), "").unwrap();
    for number in 0..200 {
        fs::write(
            root.join(format!("deep/er/{number}")),
            format!("{number}\n").repeat(number),
        )
        .unwrap();
    }
    fs::set_permissions(root.join("none"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("deep/er/7", root.join("link")).unwrap();
}

/// Both are the same, byte by byte, and in modes, times and targets.
fn assert_same(one: &Path, other: &Path) {
    let (left, right) = (
        fs::symlink_metadata(one).unwrap(),
        fs::symlink_metadata(other).unwrap(),
    );
    assert_eq!(left.file_type(), right.file_type(), "{}", one.display());
    if left.is_symlink() {
        assert_eq!(fs::read_link(one).unwrap(), fs::read_link(other).unwrap());
        return;
    }
    assert_eq!(left.mode(), right.mode(), "{}", one.display());
    assert_eq!(
        (left.mtime(), left.mtime_nsec()),
        (right.mtime(), right.mtime_nsec()),
        "{}",
        one.display()
    );
    if left.is_file() {
        assert!(
            fs::read(one).unwrap() == fs::read(other).unwrap(),
            "{}",
            one.display()
        );
        return;
    }
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(other), "{}", one.display());
    for name in names(one) {
        assert_same(&one.join(&name), &other.join(&name));
    }
}

/// What it has told by lines of JSON.
fn events(process: &Process) -> Vec<Value> {
    let lines = process.stdout();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The last of this name.
fn event(process: &Process, name: &str) -> Value {
    let mut events = events(process).into_iter().rev();
    let found = events.find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {}", shown_events(process)))
}

/// For a message: what it has told, without its progress, which comes every second and says little.
fn shown_events(process: &Process) -> String {
    let events = events(process).into_iter();
    let shown = events.filter(|event| event["event"] != "progress");
    shown.map(|event| format!("{event}\n")).collect()
}

/// FILE-31, RDV-17. The sender has a link of the server, the receiver nothing but the code.
#[test]
fn a_directory_comes_by_a_code_over_a_server_and_comes_again_without_being_sent() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let (_server, link) = server(&pair, &directory);
    let (from, to) = (directory.join("tree"), directory.join("to"));
    make_tree(&from);
    for round in 0..2 {
        let send = ["send", text(&from), "--rendezvous-file", &link];
        let mut sender = start(&pair.server, &directory, "sender", &send);
        let shown = shown_code(&sender);
        let host = format!("@{PAIR_SERVER_V4}:");
        assert!(shown.contains(&host), "{shown}");
        let receive = ["receive", &shown, "--to", text(&to), "--json"];
        let mut receiver = start(&pair.client, &directory, "receiver", &receive);
        assert_done(&mut receiver);
        assert_done(&mut sender);
        assert_same(&from, &to.join("tree"));
        let end = event(&receiver, "end");
        assert_eq!(end["bytes_sent"] == 0, round == 1, "{end}");
    }
}

/// The link of a user who was removed lies where the receiver's commands find it.
#[test]
fn a_link_that_its_server_refuses_keeps_nobody_from_a_sender_who_is_found_without_it() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let (server, link) = server(&pair, &directory);
    let stale = directory.write("stale", &server.user(&["add", "bob"])).unwrap();
    server.user(&["remove", "bob"]);
    let to = directory.join("to");
    let receive = |code: &str| {
        let receive = [
            "receive",
            code,
            "--to",
            text(&to),
            "--timeout",
            "10",
            "--rendezvous-file",
            text(&stale),
        ];
        start(&pair.client, &directory, "receiver", &receive)
    };
    let file = directory.write("file", "what is sent").unwrap();
    let send = ["send", text(&file), "--rendezvous-file", &link];
    let mut sender = start(&pair.server, &directory, "sender", &send);
    let shown = shown_code(&sender);
    let mut receiver = receive(&shown);
    assert_done(&mut receiver);
    assert_done(&mut sender);
    assert_same(&file, &to.join("file"));
    // Where nobody is found, both are told.
    let mut receiver = receive("4711-maple-otter");
    assert_ne!(code(&mut receiver), 0, "{}", receiver.stderr());
    let told = receiver.stderr();
    assert!(
        told.contains("nobody on this network waits with this code;"),
        "{told}"
    );
    assert!(told.contains("does not take its token any more"), "{told}");
}

/// FILE-33, FILE-40.
#[test]
fn who_looks_by_a_code_receives_by_the_same_code_and_nobody_else_does() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let (_server, link) = server(&pair, &directory);
    let (from, to) = (directory.join("tree"), directory.join("to"));
    make_tree(&from);
    let send = ["send", text(&from), "--rendezvous-file", &link];
    let mut sender = start(&pair.server, &directory, "sender", &send);
    let shown = shown_code(&sender);
    let receive = |state: &str, look: &[&str]| {
        let receive = [&["receive", &shown, "--to", text(&to)], look].concat();
        start(&pair.client, &directory, state, &receive)
    };
    for look in ["--list", "--dry-run"] {
        let mut receiver = receive("receiver", &[look]);
        assert_done(&mut receiver);
        assert!(receiver.stdout().contains("tree/large"), "{}", receiver.stdout());
        fs::create_dir_all(&to).unwrap();
    }
    let mut other = receive("other", &[]);
    assert_eq!(code(&mut other), PERMISSION, "{}", other.stderr());
    assert!(sender.is_running(), "{}", sender.stderr());
    let mut receiver = receive("receiver", &[]);
    assert_done(&mut receiver);
    assert_done(&mut sender);
    assert_same(&from, &to.join("tree"));
    assert_eq!(sender.stderr().matches("the receiver has looked").count(), 2);
}

/// FILE-33.
#[test]
fn a_wrong_code_is_one_guess_and_both_ends_say_so() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let (_server, link) = server(&pair, &directory);
    let file = directory.write("file", "secret").unwrap();
    let send = [
        "send",
        text(&file),
        "--rendezvous-file",
        &link,
        "--receivers",
        "3",
    ];
    let mut sender = start(&pair.server, &directory, "sender", &send);
    let to = directory.join("to");
    for _ in 0..3 {
        let shown = shown_code(&sender);
        let (number, host) = (shown.split('-').next().unwrap(), shown.split('@').nth(1).unwrap());
        // Words that are in the list, and others than the right ones by all likelihood.
        let wrong = ["maple-otter", "otter-maple"]
            .into_iter()
            .find(|words| !shown.contains(words));
        let wrong = format!("{number}-{}@{host}", wrong.unwrap());
        let receive = ["receive", &wrong, "--to", text(&to)];
        let mut receiver = start(&pair.client, &directory, "guesser", &receive);
        assert_eq!(code(&mut receiver), PERMISSION, "{}", receiver.stderr());
        assert!(
            receiver.stderr().contains("the code is wrong"),
            "{}",
            receiver.stderr()
        );
        // The right one comes too late.
        let receive = ["receive", &shown, "--to", text(&to)];
        let mut receiver = start(&pair.client, &directory, "late", &receive);
        assert_eq!(code(&mut receiver), PERMISSION, "{}", receiver.stderr());
    }
    assert_eq!(code(&mut sender), PERMISSION, "{}", sender.stderr());
    assert!(
        sender.stderr().contains("a wrong code was tried"),
        "{}",
        sender.stderr()
    );
    assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
}

/// LAN-5. What a program writes comes out of another one's standard output.
#[test]
fn pipes_meet_by_a_code_on_one_network_without_a_server() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let mut sender = start(&pair.server, &directory, "sender", &["send", "-"]);
    let shown = shown_code(&sender);
    assert!(!shown.contains('@'), "{shown}");
    let mut receiver = start(
        &pair.client,
        &directory,
        "receiver",
        &["receive", &shown, "-o", "-"],
    );
    let lines: String = (0..50_000).map(|number| format!("{number}\n")).collect();
    sender.tell(lines.trim_end()).unwrap();
    sender.close_stdin();
    assert_done(&mut receiver);
    assert_done(&mut sender);
    assert!(receiver.stdout() == lines, "{} bytes", receiver.stdout().len());
}

/// FILE-15, FILE-37: what is left of a pipe is not the whole.
#[test]
fn a_pipe_whose_receiver_is_killed_is_not_gone_on_with_by_the_next_one() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let mut sender = start(&pair.server, &directory, "sender", &["send", "-"]);
    let shown = shown_code(&sender);
    let receive = || {
        let receive = ["receive", &shown, "-o", "-"];
        start(&pair.client, &directory, "receiver", &receive)
    };
    let mut receiver = receive();
    // A chunk and a part of another one: the first one leaves with the byte behind it.
    let lines: String = (0..170_000).map(|number| format!("{number}\n")).collect();
    sender.tell(lines.trim_end()).unwrap();
    wait_until("a part has come", PROGRAM_LIMIT, || !receiver.stdout().is_empty());
    receiver.kill();
    let mut receiver = receive();
    assert_ne!(code(&mut receiver), 0, "{}", receiver.stderr());
    assert_eq!(receiver.stdout(), "");
    assert_ne!(code(&mut sender), 0, "{}", sender.stderr());
    for end in [&sender, &receiver] {
        let told = end.stderr();
        assert_eq!(told.matches("can be read once").count(), 1, "{told}");
    }
}

/// FILE-37: nobody ends a transfer of this machine by asking for another one.
#[test]
fn a_second_receiver_of_one_machine_is_told_to_wait_and_leaves_the_first_one_alone() {
    require_root!();
    let ends = Ends::with_noise(12_000_000);
    let mut sender = ends.send(&["--limit", "1M"]);
    let mut receiver = ends.receive(&["--json"]);
    wait_until("the transfer runs", PROGRAM_LIMIT, || {
        assert!(receiver.is_running(), "{}", receiver.stderr());
        receiver.stdout().contains("progress")
    });
    let mut lister = ends.receive(&["--list", "--timeout", "5"]);
    assert_ne!(code(&mut lister), 0, "{}", lister.stderr());
    let told = lister.stderr();
    assert!(
        told.contains("too much to do, for others") && !told.contains("lost"),
        "{told}"
    );
    assert_done(&mut receiver);
    assert_done(&mut sender);
    ends.assert_all_there();
}

/// FILE-24. The receiver is killed and comes again with the same code; the sender is killed and sends again.
#[test]
fn kills_of_either_end_cost_nothing_that_has_come() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let (_server, link) = server(&pair, &directory);
    let (from, to) = (directory.join("noise"), directory.join("to"));
    let whole = 48_u64 << 20;
    fs::write(&from, pattern(0, whole as usize)).unwrap();
    let send = |limit: &'static str| {
        let send = ["send", text(&from), "--rendezvous-file", &link, "--limit", limit];
        start(&pair.server, &directory, "sender", &send)
    };
    let receive = |shown: &str| {
        let receive = ["receive", shown, "--to", text(&to), "--json", "--timeout", "60"];
        start(&pair.client, &directory, "receiver", &receive)
    };
    let come = |receiver: &Process| {
        let lines = receiver.stdout();
        let values = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        values.filter_map(|value| value["bytes_done"].as_u64()).max()
    };
    let mut sender = send("16M");
    let shown = shown_code(&sender);
    let mut receiver = receive(&shown);
    wait_until("a part has come", PROGRAM_LIMIT, || {
        come(&receiver) >= Some(8 << 20)
    });
    receiver.kill();
    let mut receiver = receive(&shown);
    wait_until("the receiver has come again", PROGRAM_LIMIT, || {
        receiver.stdout().contains("progress")
    });
    sender.kill();
    receiver.kill();
    let mut sender = send("1G");
    let mut receiver = receive(&shown_code(&sender));
    assert_done(&mut receiver);
    assert_done(&mut sender);
    assert_same(&from, &to.join("noise"));
    let end = event(&receiver, "end");
    let sent = end["bytes_sent"].as_u64().unwrap();
    assert!(sent <= whole - (8 << 20), "what had come was sent again: {end}");
    assert_eq!(
        fs::read_dir(&to).unwrap().count(),
        1,
        "nothing is left beside the file"
    );
}

/// SECURITY.md: what either end may still do once it talks to others.
#[test]
fn both_ends_are_confined_and_keep_what_files_need() {
    require_root!();
    const OF_FILES: u64 = 0b1_1111;
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let from = directory.join("tree");
    make_tree(&from);
    let send = ["send", text(&from), "--limit", "1M"];
    let mut sender = start(&pair.server, &directory, "sender", &send);
    let shown = shown_code(&sender);
    let to = directory.join("to");
    let receive = ["receive", &shown, "--to", text(&to), "--json"];
    let mut receiver = start(&pair.client, &directory, "receiver", &receive);
    wait_until("the transfer runs", PROGRAM_LIMIT, || {
        assert!(receiver.is_running(), "{}", receiver.stderr());
        receiver.stdout().contains("progress")
    });
    for end in [&sender, &receiver] {
        let threads = threads(end.id());
        assert!(threads.len() > 3, "{threads:?}");
        assert_confined(&threads, OF_FILES | NET_ADMIN);
    }
    sender.end(PROGRAM_LIMIT);
    receiver.end(PROGRAM_LIMIT);
}

/// RDV-14, FILE-33: each of ten receivers has a code of its own. Nobody reads what they print before all have begun
/// to, so that none can end before; and what waits for one of them holds up no other one.
#[test]
fn ten_receivers_at_once_have_everything_each_by_its_own_code() {
    require_root!();
    const COUNT: usize = 10;
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let (_server, link) = server(&pair, &directory);
    let from = directory.join("noise");
    let sent = pattern(1, 5_000_000);
    fs::write(&from, &sent).unwrap();
    let count = COUNT.to_string();
    let send = [
        "send",
        text(&from),
        "--rendezvous-file",
        &link,
        "--receivers",
        &count,
    ];
    let mut sender = start(&pair.server, &directory, "sender", &send);
    let mut codes: Vec<String> = (0..COUNT).map(|_| shown_code(&sender)).collect();
    let (begun, begins) = mpsc::channel();
    let all = Arc::new(Barrier::new(COUNT));
    let receivers: Vec<_> = codes
        .iter()
        .enumerate()
        .map(|(number, shown)| {
            // The guard would read its standard output.
            let pipe = directory.join(&format!("pipe-{number}"));
            assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let mut command = pair.client.command("sh");
            command
                .args(["-c", r#"exec "$@" > "$0""#])
                .arg(&pipe)
                .arg(gramway_binary())
                .args(["receive", shown, "-o", "-", "--timeout", "60", "--state"])
                .arg(directory.join(&format!("receiver-{number}")));
            let receiver = run(command);
            let (begun, all) = (begun.clone(), Arc::clone(&all));
            let reader = thread::spawn(move || {
                let mut stdout = fs::File::open(pipe).unwrap();
                let mut bytes = vec![0];
                stdout.read_exact(&mut bytes).unwrap();
                begun.send(()).unwrap();
                all.wait();
                // A pipe holds little of it.
                stdout.read_to_end(&mut bytes).unwrap();
                bytes
            });
            (receiver, reader)
        })
        .collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), COUNT, "no code is another one's");
    for _ in 0..COUNT {
        begins.recv_timeout(PROGRAM_LIMIT).expect("all receive at once");
    }
    for (mut receiver, reader) in receivers {
        let received = reader.join().unwrap();
        assert!(received == sent, "{} bytes", received.len());
        assert_done(&mut receiver);
    }
    assert_done(&mut sender);
}

#[test]
fn a_shared_directory_is_listed_and_read_by_named_peers_alone() {
    require_root!();
    let pair = Pair::new(1_500);
    let directory = Directory::create_for_test().unwrap();
    let from = directory.join("tree");
    make_tree(&from);
    let reader = id(&pair.client, &directory, "reader");
    let sharing = id(&pair.server, &directory, "sharer");
    let share = ["share", text(&from), "--to", &reader];
    let mut sharer = start(&pair.server, &directory, "sharer", &share);
    sharer.wait_for_line("sharing", PROGRAM_LIMIT).unwrap();
    let to = directory.join("to");
    let list = ["receive", "--peer", &sharing, "--list"];
    let mut lister = start(&pair.client, &directory, "reader", &list);
    assert_done(&mut lister);
    assert!(
        lister.stdout().contains("tree/deep/er/199"),
        "{}",
        lister.stdout()
    );
    let only = [
        "receive",
        "--peer",
        &sharing,
        "--only",
        "tree/none",
        "--to",
        text(&to),
    ];
    assert_done(&mut start(&pair.client, &directory, "reader", &only));
    let all = ["receive", "--peer", &sharing, "--to", text(&to)];
    assert_done(&mut start(&pair.client, &directory, "reader", &all));
    assert_same(&from, &to.join("tree"));
    let refused = ["receive", "--peer", &sharing, "--to", text(&to)];
    let mut stranger = start(&pair.client, &directory, "stranger", &refused);
    assert_eq!(code(&mut stranger), PERMISSION, "{}", stranger.stderr());
    assert!(sharer.is_running());
}
