//! How both ends of `gramway send` and `receive` end: by which code, and what they say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

use files::{Destination, Progress, ReceiveOptions};
use files_proto::Ranges;
use files_proto::message::{Decoder, Hello, Message, VERSION};
use peer::blocking::{wait, wait_for};
use peer::{Bytes, Endpoint, Peer, SecretKey};

use crate::support::{LIMIT, Place, Program, UNAVAILABLE, free_port, is_root};
use crate::transfer::{id, receive, sender_by};

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
        told.contains("1 files, directories or links were not transferred"),
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
    for comes_again in [true, false] {
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
        let sender = Program::watch(place.command(&arguments).spawn().expect("it starts"));
        sender.wait_for("waiting for the peer");
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
        sender.wait_for("before it said that its disk has it");
        if comes_again {
            fs::create_dir(place.path("to")).expect("it is made");
            let options = ReceiveOptions::new(Destination::Directory(place.path("to")));
            let report = files::receive(&connect(), &options, &Progress::default());
            assert_eq!(report.expect("it comes").stored, 1);
            assert_eq!(sender.end(), Some(0));
        } else {
            sender.wait_for("look there before you remove anything here");
            assert_eq!(sender.end(), Some(UNAVAILABLE));
        }
    }
}
