//! Transfers between two real endpoints of this process: what arrives, what is not sent again, and by which carrier.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use files::{
    Answer, Carrier, Conflict, Destination, Event, How, OnConflict, Progress, ReceiveOptions, Report,
    SendOptions, Source, TransferError, Transport,
};
use peer::blocking::wait;
use peer::{Endpoint, Peer, SecretKey};
use rand::{Rng, SeedableRng};
use rustix::fs::XattrFlags;

const MIB: usize = 1 << 20;

/// Two ends of a connection: of the sender, and of the receiver. The endpoints live as long as they do.
fn pair() -> (Peer, Peer) {
    let bind = || Endpoint::bind(SecretKey::generate().unwrap(), "127.0.0.1:0".parse().unwrap()).unwrap();
    let (sender, receiver) = (bind(), bind());
    let to_sender = wait(receiver.connect(sender.id(), &[sender.local_addr()])).unwrap();
    let to_receiver = wait(sender.accept()).unwrap();
    (to_receiver, to_sender)
}

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rand::rngs::SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

struct Trial {
    directory: tempfile::TempDir,
    send: SendOptions,
    receive: ReceiveOptions,
}

type Ended = Result<Report, TransferError>;

impl Trial {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["from", "to", "state"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let send = SendOptions {
            sources: vec![Source::Path(directory.path().join("from/tree"))],
            state: Some(directory.path().join("state")),
            ..SendOptions::default()
        };
        let receive = ReceiveOptions::new(Destination::Directory(directory.path().join("to")));
        fs::create_dir(directory.path().join("from/tree")).unwrap();
        Self {
            directory,
            send,
            receive,
        }
    }

    fn from(&self, name: &str) -> PathBuf {
        self.directory.path().join("from/tree").join(name)
    }

    fn to(&self, name: &str) -> PathBuf {
        self.directory.path().join("to/tree").join(name)
    }

    /// Runs until so many bytes have come, and cancels at the receiver: what it had then.
    fn cut_after(&self, bytes: u64) -> Progress {
        let (sent, received) = (Progress::default(), Progress::default());
        thread::scope(|scope| {
            let running = scope.spawn(|| self.run_with(&sent, &received));
            while received.snapshot().bytes_done < bytes {
                thread::yield_now();
            }
            received.cancel();
            assert!(running.join().unwrap().1.is_err());
        });
        received
    }

    fn run_with(&self, sent: &Progress, received: &Progress) -> (Ended, Ended) {
        let (to_receiver, to_sender) = pair();
        thread::scope(|scope| {
            let sending = scope.spawn(|| files::send(&to_receiver, &self.send, sent));
            let received = files::receive(&to_sender, &self.receive, received);
            (sending.join().unwrap(), received)
        })
    }

    fn run(&self) -> Report {
        let (sent, received) = self.run_with(&Progress::default(), &Progress::default());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (sent.stored, sent.failed),
            (received.stored, received.failed),
            "{sent:?} {received:?}"
        );
        received
    }

    fn compare(&self) {
        compare(&self.from(""), &self.to(""));
    }
}

/// Both trees are the same, byte by byte and by mode, time and link.
fn compare(from: &Path, to: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let (there, here) = (
        fs::symlink_metadata(from).unwrap(),
        fs::symlink_metadata(to).unwrap(),
    );
    assert_eq!(there.file_type(), here.file_type(), "{to:?}");
    assert_eq!(
        (there.mtime(), there.mtime_nsec()),
        (here.mtime(), here.mtime_nsec()),
        "{to:?}"
    );
    if there.is_symlink() {
        assert_eq!(fs::read_link(from).unwrap(), fs::read_link(to).unwrap());
        return;
    }
    assert_eq!(there.mode(), here.mode(), "{to:?}");
    if there.is_dir() {
        assert_eq!(names(from), names(to), "{to:?}");
        for name in names(from) {
            compare(&from.join(&name), &to.join(&name));
        }
    } else {
        assert!(
            fs::read(from).unwrap() == fs::read(to).unwrap(),
            "{to:?} has other bytes"
        );
    }
}

/// A tree with everything that there is in trees.
fn grow(trial: &Trial) {
    fs::create_dir_all(trial.from("deep/deeper/empty")).unwrap();
    for (name, length) in [
        ("empty", 0),
        ("one", 1),
        ("deep/packed", 64 << 10),
        ("deep/single", (64 << 10) + 1),
        ("deep/whole", MIB),
        ("deep/deeper/large", 7 * MIB + 12_345),
        (" -strange \u{e9}\n*name", 77),
    ] {
        fs::write(trial.from(name), random(length as u64, length)).unwrap();
    }
    for number in 0..300 {
        fs::write(trial.from(&format!("deep/small-{number}")), random(number, 4_096)).unwrap();
    }
    fs::write(trial.from("deep/text"), "the same line again\n".repeat(200_000)).unwrap();
    let mut sparse = fs::File::create(trial.from("sparse")).unwrap();
    sparse.set_len(20 << 20).unwrap();
    sparse.seek(SeekFrom::Start(9 << 20)).unwrap();
    sparse.write_all(b"in the middle").unwrap();
    symlink("deep/one", trial.from("link")).unwrap();
    symlink("../tree/deep", trial.from("deep/up")).unwrap();
    fs::set_permissions(trial.from("one"), fs::Permissions::from_mode(0o751)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(trial.from("deep/whole"))
        .unwrap()
        .set_modified(then)
        .unwrap();
    fs::set_permissions(trial.from("deep/deeper"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::File::open(trial.from("deep/deeper"))
        .unwrap()
        .set_modified(then)
        .unwrap();
}

#[test]
fn a_tree_arrives_byte_by_byte_and_with_its_metadata_and_a_second_time_nothing_is_sent() {
    let trial = Trial::new();
    grow(&trial);
    let report = trial.run();
    assert_eq!((report.failed, &report.problems[..]), (0, &[][..]));
    trial.compare();
    let blocks = fs::metadata(trial.to("sparse")).unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "a hole stays a hole: {blocks} blocks");
    let again = trial.run();
    assert_eq!((again.bytes_sent, again.chunks_sent, again.failed), (0, 0, 0));
    assert_eq!(again.bytes_there, report.bytes_sent);
    trial.compare();
}

#[test]
fn what_came_before_a_transfer_ended_early_is_not_sent_again() {
    let mut trial = Trial::new();
    let size = 40 * MIB;
    fs::write(trial.from("large"), random(1, size)).unwrap();
    trial.send.limit = Some(20 << 20);
    let (sent, received) = (Progress::default(), Progress::default());
    let ended = thread::scope(|scope| {
        let running = scope.spawn(|| trial.run_with(&sent, &received));
        let deadline = Instant::now() + Duration::from_secs(60);
        while received.snapshot().bytes_done < 10 << 20 {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        received.cancel();
        running.join().unwrap()
    });
    assert!(matches!(ended.1, Err(TransferError::Cancelled)), "{:?}", ended.1);
    assert!(ended.0.is_err());
    assert!(!trial.to("large").exists());
    let before = received.snapshot().bytes_done;
    trial.send.limit = None;
    let report = trial.run();
    assert_eq!(report.bytes_there, before, "what was written is there");
    assert_eq!(report.bytes_sent + before, size as u64);
    assert_eq!(report.chunks_sent, report.bytes_sent / MIB as u64);
    trial.compare();
    let left = fs::read_dir(trial.to("")).unwrap().count();
    assert_eq!(left, 1, "neither part nor journal is left");
}

/// FILE-26.
#[test]
fn what_a_disk_lost_of_a_part_comes_again() {
    let mut trial = Trial::new();
    fs::write(trial.from("large"), random(9, 30 * MIB)).unwrap();
    trial.send.limit = Some(20 << 20);
    trial.cut_after(8 << 20);
    let part = fs::OpenOptions::new()
        .write(true)
        .open(trial.to(".large.gramway-part"))
        .unwrap();
    part.write_all_at(&[0; 4_096], 3 << 20).unwrap();
    drop(part);
    trial.send.limit = None;
    let report = trial.run();
    assert!(report.bytes_there >= 6 << 20, "the rest of it counts: {report:?}");
    trial.compare();
}

/// FILE-29.
#[test]
fn what_was_moved_at_either_end_is_not_sent_again() {
    let trial = Trial::new();
    let bytes = random(7, 6 * MIB + 11);
    fs::write(trial.from("file"), &bytes).unwrap();
    trial.run();
    fs::create_dir(trial.from("deep")).unwrap();
    fs::rename(trial.from("file"), trial.from("deep/renamed")).unwrap();
    let report = trial.run();
    assert_eq!((report.chunks_sent, report.failed), (0, 0));
    assert_eq!(report.bytes_there, bytes.len() as u64);
    compare(&trial.from("deep"), &trial.to("deep"));
    // At the receiver, where a chunk of it has changed as well.
    fs::rename(
        trial.to("deep/renamed"),
        trial.directory.path().join("to/elsewhere"),
    )
    .unwrap();
    let moved = fs::OpenOptions::new()
        .write(true)
        .open(trial.directory.path().join("to/elsewhere"))
        .unwrap();
    let time = moved.metadata().unwrap().modified().unwrap();
    moved.write_all_at(&[0; 5], 3 << 20).unwrap();
    moved.set_modified(time).unwrap();
    fs::remove_file(trial.to("file")).unwrap();
    assert_eq!(trial.run().chunks_sent, 1);
    trial.compare();
}

/// FILE-28: what counts is that times are the same, not which time it is now.
#[test]
fn clocks_that_jump_between_two_runs_cost_nothing() {
    let far = Duration::from_secs(4_000_000_000);
    for (source_time, state_time) in [
        (SystemTime::UNIX_EPOCH + far, SystemTime::UNIX_EPOCH),
        (
            SystemTime::UNIX_EPOCH - Duration::new(5, 7),
            SystemTime::UNIX_EPOCH + far,
        ),
    ] {
        let mut trial = Trial::new();
        fs::write(trial.from("large"), random(8, 24 * MIB)).unwrap();
        let set = |path: PathBuf, time| fs::File::open(path).unwrap().set_modified(time).unwrap();
        set(trial.from("large"), source_time);
        trial.send.limit = Some(20 << 20);
        let received = trial.cut_after(6 << 20);
        let before = received.snapshot().bytes_done;
        // As if they had been written before the clock was set back, or forward.
        set(trial.to(".large.gramway-part"), state_time);
        set(trial.to(".large.gramway-state"), state_time);
        for entry in fs::read_dir(trial.directory.path().join("state/files")).unwrap() {
            set(entry.unwrap().path(), state_time);
        }
        trial.send.limit = None;
        let report = trial.run();
        assert_eq!(report.bytes_there, before);
        trial.compare();
    }
}

#[test]
fn of_a_file_that_has_changed_only_the_changed_chunks_come() {
    let mut trial = Trial::new();
    let mut bytes = random(2, 12 * MIB);
    fs::write(trial.from("file"), &bytes).unwrap();
    trial.run();
    bytes[5 * MIB + 7] ^= 1;
    bytes.extend_from_slice(b"more");
    fs::write(trial.from("file"), &bytes).unwrap();
    trial.receive.on_conflict = OnConflict::Overwrite;
    let report = trial.run();
    assert_eq!(report.chunks_sent, 2, "one that changed, and the new one");
    trial.compare();
}

#[test]
fn every_carrier_carries_everything_and_is_told() {
    for (transport, expected) in [(Transport::Quic, Carrier::Quic), (Transport::Tcp, Carrier::Tcp)] {
        let mut trial = Trial::new();
        fs::write(trial.from("file"), random(3, 80 * MIB)).unwrap();
        trial.send.transport = transport;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let progress = Progress::new(move |event| {
            if let Event::Carrier { carrier, .. } = event {
                telling.lock().unwrap().push(carrier);
            }
        });
        // TCP connections come while QUIC carries already: what is slow enough meets both.
        trial.send.limit = Some(100 << 20);
        let (sent, received) = trial.run_with(&progress, &Progress::default());
        sent.unwrap();
        received.unwrap();
        assert_eq!(told.lock().unwrap().last(), Some(&expected));
        trial.compare();
    }
}

#[test]
fn who_asks_for_tcp_is_told_where_there_is_none() {
    for (transport, expected) in [(Transport::Tcp, true), (Transport::Auto, false)] {
        let mut trial = Trial::new();
        fs::write(trial.from("file"), random(3, 2 * MIB)).unwrap();
        trial.send.transport = transport;
        trial.receive.transport = Transport::Quic;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let progress = Progress::new(move |event| {
            if let Event::Problem { text, .. } = event {
                telling.lock().unwrap().push(text);
            }
        });
        let (sent, received) = trial.run_with(&progress, &Progress::default());
        received.unwrap();
        let reason = sent.unwrap().carrier_reason;
        assert_eq!(reason.is_some(), expected, "{reason:?}");
        let told = told.lock().unwrap();
        assert_eq!(told.len(), usize::from(expected), "{told:?}");
        assert!(told.iter().all(|text| text.contains("QUIC carries")), "{told:?}");
    }
}

#[test]
fn other_files_in_the_places_stay_unless_they_are_to_be_replaced() {
    let mut trial = Trial::new();
    fs::write(trial.from("file"), "new").unwrap();
    fs::create_dir(trial.to("")).unwrap();
    fs::write(trial.to("file"), "other").unwrap();
    trial.receive.on_conflict = OnConflict::Skip;
    assert_eq!(trial.run().skipped, 1);
    assert_eq!(fs::read(trial.to("file")).unwrap(), b"other");
    trial.receive.on_conflict = OnConflict::Rename;
    trial.run();
    assert_eq!(fs::read(trial.to("file")).unwrap(), b"other");
    assert_eq!(fs::read(trial.to("file (2)")).unwrap(), b"new");
    // It is found there the next time.
    assert_eq!(trial.run().bytes_sent, 0);
    trial.receive.on_conflict = OnConflict::Overwrite;
    trial.run();
    assert_eq!(fs::read(trial.to("file")).unwrap(), b"new");
    assert_eq!(fs::read_dir(trial.to("")).unwrap().count(), 2);
}

#[test]
fn a_file_that_is_stored_under_another_name_never_takes_that_of_one_that_is_offered() {
    for length in [10, 2 * MIB] {
        let mut trial = Trial::new();
        fs::create_dir(trial.to("")).unwrap();
        fs::write(trial.to("a.txt"), "there before").unwrap();
        fs::write(trial.from("a.txt"), random(1, length)).unwrap();
        fs::write(trial.from("a (2).txt"), random(2, length)).unwrap();
        fs::write(trial.from("a (3).txt"), random(3, length)).unwrap();
        trial.receive.on_conflict = OnConflict::Rename;
        assert_eq!(trial.run().failed, 0);
        let mut contents: Vec<Vec<u8>> = fs::read_dir(trial.to(""))
            .unwrap()
            .map(|entry| fs::read(entry.unwrap().path()).unwrap())
            .collect();
        let mut expected: Vec<Vec<u8>> = (1..4).map(|seed| random(seed, length)).collect();
        expected.push(b"there before".to_vec());
        contents.sort();
        expected.sort();
        assert!(contents == expected, "each is there once");
    }
}

/// FILE-28: with checksums as well, another file goes only where the user's rule says so, and the same one stays.
#[test]
fn files_of_the_same_size_are_compared_and_what_differs_is_a_conflict() {
    let ask = |answer| OnConflict::Ask(Arc::new(move |_: &Conflict| answer));
    let rules = [
        (OnConflict::Skip, "old", None),
        (ask(Answer::Skip), "old", None),
        (OnConflict::Rename, "old", Some("new")),
        (ask(Answer::Rename), "old", Some("new")),
        (OnConflict::Overwrite, "new", None),
        (ask(Answer::Overwrite), "new", None),
        (OnConflict::Newer, "new", None),
    ];
    for (rule, in_place, beside) in rules {
        let mut trial = Trial::new();
        trial.receive.checksum = true;
        trial.receive.on_conflict = rule;
        let lengths = [0, 10, 100 << 10, 2 * MIB + 5];
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::create_dir(trial.to("")).unwrap();
        for length in lengths {
            let (same, differs) = (format!("same-{length}"), format!("differs-{length}"));
            let old = random(1, length);
            let mut new = old.clone();
            if let Some(last) = new.last_mut() {
                *last ^= 1;
            }
            for (path, bytes) in [
                (trial.to(&same), &old),
                (trial.from(&same), &old),
                (trial.to(&differs), &old),
                (trial.from(&differs), &new),
            ] {
                fs::write(&path, bytes).unwrap();
            }
            for path in [trial.to(&same), trial.to(&differs)] {
                fs::File::open(path).unwrap().set_modified(then).unwrap();
            }
        }
        let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
        let before = lengths.map(|length| inode(trial.to(&format!("same-{length}"))));
        trial.receive.dry_run = true;
        assert_eq!(trial.run().bytes_sent, 0);
        trial.receive.dry_run = false;
        let what = format!("{:?}", trial.receive.on_conflict);
        let report = trial.run();
        assert_eq!(report.failed, 0, "{what}");
        let kept = if in_place == "old" && beside.is_none() {
            8
        } else {
            5
        };
        assert_eq!(report.skipped, kept, "{what}");
        for (length, before) in lengths.into_iter().zip(before) {
            assert_eq!(inode(trial.to(&format!("same-{length}"))), before, "{what}");
            if length == 0 {
                continue;
            }
            let name = format!("differs-{length}");
            let old = random(1, length);
            let new = fs::read(trial.from(&name)).unwrap();
            let of = |which| if which == "old" { &old } else { &new };
            assert!(
                &fs::read(trial.to(&name)).unwrap() == of(in_place),
                "{what} {length}"
            );
            let other = fs::read(trial.to(&format!("{name} (2)"))).ok();
            assert!(other.as_ref() == beside.map(of), "{what} {length}");
        }
    }
}

/// FILE-28: a file here that is newer stays, where only newer ones are wanted.
#[test]
fn a_newer_file_of_the_same_size_stays_where_checksums_are_compared() {
    let mut trial = Trial::new();
    trial.receive.checksum = true;
    trial.receive.on_conflict = OnConflict::Newer;
    fs::write(trial.from("file"), "offered").unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::open(trial.from("file"))
        .unwrap()
        .set_modified(then)
        .unwrap();
    fs::create_dir(trial.to("")).unwrap();
    fs::write(trial.to("file"), "is here").unwrap();
    assert_eq!(trial.run().skipped, 1);
    assert_eq!(fs::read(trial.to("file")).unwrap(), b"is here");
}

#[test]
fn a_directory_that_is_there_keeps_its_mode() {
    let trial = Trial::new();
    fs::create_dir(trial.from("private")).unwrap();
    fs::write(trial.from("private/file"), "new").unwrap();
    fs::set_permissions(trial.from("private"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir_all(trial.to("private")).unwrap();
    fs::set_permissions(trial.to("private"), fs::Permissions::from_mode(0o700)).unwrap();
    trial.run();
    assert_eq!(fs::metadata(trial.to("private")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::read(trial.to("private/file")).unwrap(), b"new");
}

/// FILE-7, FILE-9.
#[test]
fn attributes_of_files_and_directories_are_carried_where_both_users_want_it() {
    let attribute = "user.gramway";
    for (sends, takes) in [(true, true), (true, false), (false, true)] {
        let mut trial = Trial::new();
        (trial.send.xattrs, trial.receive.xattrs) = (sends, takes);
        fs::create_dir_all(trial.from("sealed/deep")).unwrap();
        fs::write(trial.from("sealed/deep/small"), "small").unwrap();
        fs::write(trial.from("sealed/large"), random(3, 3 * MIB)).unwrap();
        // One that is there has attributes of its own.
        fs::create_dir_all(trial.to("sealed")).unwrap();
        let names = ["", "sealed", "sealed/deep", "sealed/deep/small", "sealed/large"];
        for name in names {
            let set = rustix::fs::setxattr(trial.from(name), attribute, name.as_bytes(), XattrFlags::empty());
            if set == Err(rustix::io::Errno::OPNOTSUPP) {
                return;
            }
            set.unwrap();
        }
        rustix::fs::setxattr(trial.to("sealed"), "user.own", b"", XattrFlags::empty()).unwrap();
        fs::set_permissions(trial.from("sealed/deep"), fs::Permissions::from_mode(0o555)).unwrap();
        trial.run();
        for name in names {
            let mut value = [0; 64];
            let got = rustix::fs::getxattr(trial.to(name), attribute, &mut value[..]);
            let expected = (sends && takes).then_some(name.as_bytes());
            assert_eq!(
                got.ok().map(|length| &value[..length]),
                expected,
                "{name} {sends} {takes}"
            );
        }
        let own = rustix::fs::getxattr(trial.to("sealed"), "user.own", &mut [0; 8][..]);
        assert_eq!(own, Ok(0));
        trial.compare();
        for sealed in [trial.from("sealed/deep"), trial.to("sealed/deep")] {
            // To be removed.
            fs::set_permissions(sealed, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn a_directory_in_whose_place_a_file_is_fails_with_what_is_in_it_and_both_ends_count_it() {
    let trial = Trial::new();
    fs::create_dir(trial.from("name")).unwrap();
    fs::write(trial.from("name/inner"), "new").unwrap();
    fs::write(trial.from("other"), "new").unwrap();
    fs::create_dir(trial.to("")).unwrap();
    fs::write(trial.to("name"), "kept").unwrap();
    let report = trial.run();
    assert_eq!(report.failed, 1, "{report:?}");
    let [(path, text)] = &report.problems[..] else {
        panic!("{report:?}");
    };
    assert!(
        path.ends_with("tree/name") && text.contains("a file is there"),
        "{report:?}"
    );
    assert_eq!(fs::read(trial.to("name")).unwrap(), b"kept");
    assert_eq!(fs::read(trial.to("other")).unwrap(), b"new");
}

#[test]
fn a_dry_run_tells_and_writes_nothing() {
    let mut trial = Trial::new();
    grow(&trial);
    trial.receive.dry_run = true;
    let told = Arc::new(Mutex::new(0));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| {
        if let Event::Offered { missing, .. } = event {
            *telling.lock().unwrap() += missing;
        }
    });
    let (sent, received) = trial.run_with(&Progress::default(), &progress);
    sent.unwrap();
    assert_eq!(received.unwrap().bytes_sent, 0);
    assert!(*told.lock().unwrap() > 28 << 20);
    assert!(!trial.to("").exists());
}

#[test]
fn a_file_that_shrinks_while_it_is_read_fails_alone() {
    let mut trial = Trial::new();
    fs::write(trial.from("other"), random(4, 3 * MIB)).unwrap();
    fs::write(trial.from("shrinks"), random(5, 60 * MIB)).unwrap();
    trial.send.limit = Some(30 << 20);
    let (sent, received) = (Progress::default(), Progress::default());
    let (sent, received) = thread::scope(|scope| {
        let running = scope.spawn(|| trial.run_with(&sent, &received));
        while received.snapshot().bytes_done < 8 << 20 && !running.is_finished() {
            thread::yield_now();
        }
        let file = fs::OpenOptions::new()
            .write(true)
            .open(trial.from("shrinks"))
            .unwrap();
        file.set_len(1_000).unwrap();
        running.join().unwrap()
    });
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!((sent.failed, received.failed), (1, 1));
    assert!(
        received.problems[0].1.contains("changed while it was read"),
        "{received:?}"
    );
    assert_eq!(
        fs::read(trial.to("other")).unwrap(),
        fs::read(trial.from("other")).unwrap()
    );
    assert!(!trial.to("shrinks").exists());
}

#[test]
fn files_come_one_by_one_where_the_user_wants_it() {
    let mut trial = Trial::new();
    for number in 0..6 {
        fs::write(trial.from(&format!("{number}")), random(number, 3 * MIB)).unwrap();
    }
    trial.send.parallel_files = Some(1);
    trial.receive.parallel_files = Some(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| {
        if let Event::Done { path, .. } = event {
            telling.lock().unwrap().push(path);
        }
    });
    let (sent, received) = trial.run_with(&Progress::default(), &progress);
    sent.unwrap();
    assert_eq!(received.unwrap().stored, 7);
    trial.compare();
    let expected: Vec<String> = (0..6).map(|number| format!("tree/{number}")).collect();
    assert_eq!(*told.lock().unwrap(), expected, "each waits for the one before");
}

#[test]
fn one_file_of_any_size_goes_to_standard_output_and_others_are_told() {
    for length in [0, 12, (64 << 10) + 1] {
        let mut trial = Trial::new();
        // Lines, as it is the output of this test.
        fs::write(trial.from("file"), "\n".repeat(length)).unwrap();
        fs::write(trial.from("other"), "left out").unwrap();
        trial.receive.to = Destination::Stdout;
        let (sent, received) = trial.run_with(&Progress::default(), &Progress::default());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (received.stored, received.failed, received.bytes_sent),
            (1, 1, length as u64)
        );
        assert_eq!(sent.failed, 1);
        assert!(received.problems[0].1.contains("only one file"), "{received:?}");
    }
}

#[test]
fn links_that_lead_out_are_left_out_and_told() {
    let trial = Trial::new();
    symlink("/etc/passwd", trial.from("absolute")).unwrap();
    symlink("../../outside", trial.from("above")).unwrap();
    symlink("inside", trial.from("good")).unwrap();
    let report = trial.run();
    assert_eq!(report.problems.len(), 2);
    assert!(report.problems.iter().all(|(_, text)| text.contains("leads out")));
    assert_eq!(fs::read_link(trial.to("good")).unwrap(), Path::new("inside"));
    assert_eq!(fs::read_dir(trial.to("")).unwrap().count(), 1);
}

#[test]
fn a_sender_that_is_killed_and_comes_back_hashes_nothing_that_it_sent() {
    let mut trial = Trial::new();
    fs::write(trial.from("file"), random(6, 30 * MIB)).unwrap();
    trial.send.limit = Some(20 << 20);
    let (sent, received) = (Progress::default(), Progress::default());
    thread::scope(|scope| {
        let running = scope.spawn(|| trial.run_with(&sent, &received));
        while received.snapshot().bytes_done < 6 << 20 {
            thread::yield_now();
        }
        sent.cancel();
        let (sent, received) = running.join().unwrap();
        assert!(matches!(sent, Err(TransferError::Cancelled)));
        assert!(
            matches!(received, Err(TransferError::Aborted(_) | TransferError::Lost(_))),
            "{received:?}"
        );
    });
    let kept = fs::read_dir(trial.directory.path().join("state/files"))
        .unwrap()
        .count();
    assert_eq!(kept, 1, "addresses are kept");
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| telling.lock().unwrap().push(event));
    let (sent, received) = trial.run_with(&Progress::default(), &progress);
    sent.unwrap();
    assert!(received.unwrap().bytes_there >= 6 << 20);
    let resumed = |event: &Event| {
        matches!(
            event,
            Event::Done {
                how: How::Resumed,
                ..
            }
        )
    };
    assert!(told.lock().unwrap().iter().any(resumed));
    trial.compare();
}
