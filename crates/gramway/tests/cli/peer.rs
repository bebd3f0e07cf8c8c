//! `gramway peer` on the loopback: keys, who may connect, pings, pipes with half close.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use peer::blocking::wait;
use peer::{Bytes, Endpoint, Peer, ReceiveStream, SecretKey, SendStream};

use crate::support::{
    CONFIGURATION, LIMIT, PERMISSION, Place, Program, UNAVAILABLE, USAGE, dead_link, finish,
};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A peer ID that is nobody's.
const NOBODY: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn id(place: &Place, state: &str) -> String {
    let output = place.run(&["peer", "id", "--state", state]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Starts a listener; it, and where it listens, as PEER@HOST:PORT.
fn listener(place: &Place, arguments: &[&str]) -> (Program, String) {
    let own = ["peer", "listen", "--state", "listener", "--listen", "127.0.0.1:0"];
    let mut command = place.command(&[&own[..], arguments].concat());
    let listener = Program::watch(command.stdin(Stdio::piped()).spawn().unwrap());
    let line = listener.wait_for("listening at ");
    let (address, id) = line
        .strip_prefix("listening at ")
        .unwrap()
        .split_once(" as ")
        .unwrap();
    let place = format!("{id}@{address}");
    (listener, place)
}

#[test]
fn the_first_use_makes_a_key_for_its_owner_alone_and_the_id_stays() {
    let place = Place::new();
    let first = id(&place, "one");
    assert_eq!(first.len(), 52);
    assert_eq!(id(&place, "one"), first);
    assert_ne!(id(&place, "other"), first);
    let key = place.path("one/peer.key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    place.refused(&["peer", "id", "--state", "one"], PERMISSION, "chmod 600");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "none").unwrap();
    place.refused(&["peer", "id", "--state", "one"], CONFIGURATION, "holds no key");
}

#[test]
fn a_listener_needs_to_know_whom_it_lets_in_and_others_where_to_go() {
    let place = Place::new();
    let own = id(&place, "one");
    for (arguments, part) in [
        (&["listen"][..], "--allow"),
        (&["listen", "--any", "--allow", NOBODY], "--any"),
        (&["listen", "--allow", "somebody"], "52 characters"),
        (&["ping", NOBODY, "--no-lan"], "where does the peer listen?"),
        (&["ping", "somebody@127.0.0.1:1"], "52 characters"),
        (&["ping", NOBODY, "--at", "127.0.0.1"], "has no port"),
        (&["pipe", &format!("{own}@127.0.0.1:1")], "our own peer ID"),
    ] {
        place.refused(&[&["peer", "--state", "one"], arguments].concat(), USAGE, part);
    }
    place.refused(
        &["peer", "--state", "one", "listen", "--allow-file", "absent"],
        CONFIGURATION,
        "absent",
    );
}

#[test]
fn pings_tell_the_path_and_a_wrong_key_a_refusal_and_silence_are_told_apart() {
    let place = Place::new();
    let own = id(&place, "caller");
    let (_listener, at) = listener(&place, &["--allow", &own]);
    let ping = |state: &str, at: &str| {
        place.run(&[
            "peer",
            "ping",
            "--state",
            state,
            "-c",
            "2",
            "--interval",
            "10",
            "--timeout",
            "60",
            "--no-lan",
            at,
        ])
    };
    let output = ping("caller", &at);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let (listening, address) = at.split_once('@').unwrap();
    assert!(
        text.starts_with(&format!("{listening} at {address} (given), directly")),
        "{text}"
    );
    assert!(
        text.contains(&format!("answer 2 from {address} (given): ")),
        "{text}"
    );
    assert!(
        text.contains("2 sent, 2 answered, 0 % lost; round trip min/avg/max "),
        "{text}"
    );

    let refused = ping("stranger", &at);
    let stranger = id(&place, "stranger");
    assert_eq!(refused.status.code(), Some(PERMISSION), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains(&format!("--allow {stranger}")),
        "{}",
        stderr(&refused)
    );

    let wrong = ping("caller", &format!("{stranger}@{address}"));
    assert_eq!(wrong.status.code(), Some(PERMISSION), "{}", stderr(&wrong));
    assert!(
        stderr(&wrong).contains("another peer is at this address"),
        "{}",
        stderr(&wrong)
    );

    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("{NOBODY}@{}", silent.local_addr().unwrap());
    let nobody = place.run(&["peer", "ping", "--state", "caller", "--timeout", "1", &nowhere]);
    assert_eq!(nobody.status.code(), Some(UNAVAILABLE), "{}", stderr(&nobody));
    assert!(
        stderr(&nobody).contains("nobody answered within 1 s; tried in this order: 127.0.0.1:"),
        "{}",
        stderr(&nobody)
    );
}

/// The server of the link is asked again until the time is over, which another peer at the address is not.
#[test]
fn another_peer_at_the_address_is_told_at_once_though_the_server_of_the_link_is_dead() {
    let place = Place::new();
    let (_listener, at) = listener(&place, &["--any"]);
    let (_, address) = at.split_once('@').unwrap();
    place.write_secret("dead", &dead_link());
    let nobody = format!("{NOBODY}@{address}");
    let ping = ["peer", "ping", "--state", "caller", "--timeout", "25", "--no-lan"];
    let rendezvous = ["--rendezvous-file", "dead", &nobody];
    let wrong = place.run(&[&ping[..], &rendezvous].concat());
    assert_eq!(wrong.status.code(), Some(PERMISSION), "{}", stderr(&wrong));
    assert!(
        stderr(&wrong).contains("another peer is at this address"),
        "{}",
        stderr(&wrong)
    );
}

#[test]
fn a_pipe_carries_both_directions_each_to_its_own_end() {
    let place = Place::new();
    let (mut listener, at) = listener(&place, &["--any", "--once"]);
    let question: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 7) as u8).collect();
    let answer: Vec<u8> = (0..2_000_000_u32).map(|number| (number / 5) as u8).collect();
    std::fs::write(place.path("question"), &question).unwrap();
    let mut pipe = place.command(&["peer", "pipe", "--state", "caller", &at]);
    let input = std::fs::File::open(place.path("question")).unwrap();
    let pipe = pipe.stdin(input).spawn().unwrap();
    // The answer begins when the question has come whole: each direction has its own end.
    let mut received = vec![0; question.len()];
    let output = listener.child.stdout.as_mut().unwrap();
    output.read_exact(&mut received).unwrap();
    assert!(received == question);
    listener.child.stdin.take().unwrap().write_all(&answer).unwrap();
    let output = finish(pipe);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(output.stdout == answer, "{} bytes", output.stdout.len());
    assert_eq!(listener.end(), Some(0));
    let broken = place.run(&["peer", "pipe", "--state", "caller", "--timeout", "1", &at]);
    assert_eq!(broken.status.code(), Some(UNAVAILABLE), "{}", stderr(&broken));
}

#[test]
fn a_pipe_that_has_sent_everything_and_waits_for_the_answer_says_so_once() {
    let place = Place::new();
    let (mut listener, at) = listener(&place, &["--any", "--once"]);
    let pipe = place.command(&["peer", "pipe", "--state", "caller", &at]).spawn();
    let pipe = Program::watch(pipe.unwrap());
    pipe.wait_for("all is sent; waiting for the end of the peer's answer");
    drop(listener.child.stdin.take());
    assert_eq!(pipe.end(), Some(0));
    assert_eq!(listener.end(), Some(0));
}

/// Threads of this name that a program has.
fn threads(program: &Program, name: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim_end() == name).count()
}

/// Opens a pipe to a listener with each call, over a connection of its own, and writes the first bytes into it.
fn pipes_to(at: &str) -> impl Fn(&'static [u8]) -> (Peer, SendStream, ReceiveStream) {
    let (id, address) = at.split_once('@').unwrap();
    let (id, address) = (id.parse().unwrap(), address.parse().unwrap());
    let endpoint = Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
    move |first| {
        let peer = wait(endpoint.connect(id, &[address])).unwrap();
        let (mut to, from) = wait(peer.open(0)).unwrap();
        wait(to.write_chunk(Bytes::from_static(first))).unwrap();
        (peer, to, from)
    }
}

/// How often the threads of pipes have gone to sleep, where all threads of a program sleep.
fn sleeps(program: &Program) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", program.child.id())).unwrap();
    let mut sleeps = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)
        };
        if field("State:")? != "S" {
            return None;
        }
        if field("Name:")? == "pipes" {
            sleeps += field("voluntary_ctxt_switches:")?.parse::<u64>().ok()?;
        }
    }
    Some(sleeps)
}

/// Looks in a row that find a program as it was, until it is at rest: one thread may sleep until another one wakes.
const LOOKS: u32 = 5;

/// Waits until what a program has heard has led to all that it leads to.
fn wait_until_asleep(program: &Program) {
    let until = Instant::now() + LIMIT;
    let (mut before, mut same) = (None, 0);
    while same < LOOKS {
        assert!(Instant::now() < until, "its threads do not come to rest");
        let now = sleeps(program);
        same = match now.is_some() && now == before {
            true => same + 1,
            false => 0,
        };
        before = now;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// More connections than are served at a time, whose pipes wait while another one has standard input and output.
#[test]
fn a_connection_that_ends_while_its_pipe_waits_leaves_nothing_and_the_next_pipe_has_its_turn() {
    let place = Place::new();
    let (mut listener, at) = listener(&place, &["--any"]);
    let pipe = pipes_to(&at);
    let written = |listener: &mut Program| {
        let mut byte = [0];
        listener
            .child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .unwrap();
        byte[0]
    };
    let holder = pipe(b"\x01a");
    assert_eq!(written(&mut listener), b'a');
    for _ in 0..2 {
        for _ in 0..40 {
            let (peer, mut to, _from) = pipe(b"\x01b");
            wait(to.finished()).unwrap();
            peer.close(0, "");
        }
        let until = Instant::now() + LIMIT;
        while threads(&listener, "pipes") != 1 {
            assert!(Instant::now() < until, "threads wait for what has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    drop(holder);
    let _next = pipe(b"\x01c");
    assert_eq!(written(&mut listener), b'c');
}

/// What another pipe brings would be taken for the rest of the first one.
#[test]
fn a_pipe_that_waits_has_no_turn_where_the_program_ends_with_the_first() {
    let place = Place::new();
    let (mut listener, at) = listener(&place, &["--any", "--once"]);
    let pipe = pipes_to(&at);
    let (first, mut to, mut from) = pipe(b"\x01a");
    let mut output = listener.child.stdout.take().unwrap();
    output.read_exact(&mut [0]).unwrap();
    let (_second, mut waiting, _from) = pipe(b"\x01b");
    wait(waiting.finished()).unwrap();
    drop(listener.child.stdin.take());
    while wait(from.read_chunk(1_000)).unwrap().is_some() {}
    // By this the listener has heard of both ends of the pipe.
    wait(to.finished()).unwrap();
    wait_until_asleep(&listener);
    first.close(0, "");
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    assert!(listener.child.wait().unwrap().success());
}
