//! Transfers between two real endpoints of this process: what arrives, what is not sent again, and by which carrier.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

mod chosen;
#[path = "../common/mod.rs"]
mod common;
mod conflicts;
mod damage;
mod power;
mod trial;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use files::limits::WRITE_BACK_BYTES;
use files::{
    Carrier, Destination, Event, How, OnConflict, Progress, RateLimit, Source, TransferError, Transport,
};
use rustix::fs::XattrFlags;
use trial::{MIB, Trial, compare, grow, random};

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

/// FILE-37: a receiver that is ended in order may come again.
#[test]
fn what_came_before_a_transfer_ended_early_is_not_sent_again() {
    let mut trial = Trial::new();
    let size = 40 * MIB;
    fs::write(trial.from("large"), random(1, size)).unwrap();
    trial.send.limit = Some(RateLimit::new(20 << 20));
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
    assert!(
        matches!(ended.0, Err(TransferError::Interrupted)),
        "{:?}",
        ended.0
    );
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

/// FILE-38.
#[test]
fn directories_of_a_transfer_that_ended_early_get_their_modes_and_times_from_the_next_one() {
    let mut trial = Trial::new();
    for (name, mode) in [("sealed", 0o555), ("hidden", 0o511), ("open", 0o755)] {
        fs::create_dir(trial.from(name)).unwrap();
        fs::write(trial.from(name).join("large"), random(mode, 20 * MIB)).unwrap();
        let mode = fs::Permissions::from_mode(mode as u32);
        fs::set_permissions(trial.from(name), mode).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
        fs::File::open(trial.from(name))
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    trial.send.limit = Some(RateLimit::new(20 << 20));
    trial.cut_after(4 << 20);
    trial.send.limit = None;
    assert_eq!(trial.run().failed, 0);
    trial.compare();
    for path in ["sealed", "hidden"]
        .map(|name| [trial.from(name), trial.to(name)])
        .concat()
    {
        // To be removed.
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
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
        trial.send.limit = Some(RateLimit::new(20 << 20));
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
        trial.send.limit = Some(RateLimit::new(100 << 20));
        let (sent, received) = trial.run_with(&progress, &Progress::default());
        sent.unwrap();
        received.unwrap();
        assert_eq!(progress.snapshot().carrier, Some(expected));
        let is_told = told.lock().unwrap().last() == Some(&expected);
        assert_eq!(
            is_told,
            expected == Carrier::Tcp,
            "what was there before is no choice"
        );
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
                let path = trial.from(name);
                eprintln!(
                    "skipped: the file system of {} has no attributes of users",
                    path.display()
                );
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

/// FILE-40.
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
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert!(
        sent.is_look && received.is_look,
        "both ends know that nothing was transferred"
    );
    assert_eq!(received.bytes_sent, 0);
    assert!(*told.lock().unwrap() > 28 << 20);
    assert!(!trial.to("").exists());
    trial.receive.dry_run = false;
    assert!(!trial.run().is_look);
    trial.receive.list = true;
    assert!(trial.run().is_look, "also where everything is there");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_fails_alone() {
    let mut trial = Trial::new();
    fs::write(trial.from("other"), random(4, 3 * MIB)).unwrap();
    fs::write(trial.from("shrinks"), random(5, 60 * MIB)).unwrap();
    trial.send.limit = Some(RateLimit::new(30 << 20));
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
fn one_file_of_any_size_goes_to_standard_output() {
    for length in [0, 12, (64 << 10) + 1] {
        let mut trial = Trial::new();
        // Lines, as it is the output of this test.
        fs::write(trial.from("file"), "\n".repeat(length)).unwrap();
        fs::write(trial.from("other"), "left out").unwrap();
        trial.receive.to = Destination::Stdout;
        trial.receive.only = vec!["tree/file".to_owned()];
        let (sent, received) = trial.run_with(&Progress::default(), &Progress::default());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (received.stored, received.failed, received.bytes_sent),
            (1, 0, length as u64)
        );
        assert!(sent.is_passed_on && received.is_passed_on, "both ends know it");
    }
}

/// FILE-45.
#[test]
fn links_that_lead_out_are_failures_and_both_ends_name_them() {
    let trial = Trial::new();
    symlink("/etc/passwd", trial.from("absolute")).unwrap();
    symlink("../../outside", trial.from("above")).unwrap();
    symlink("inside", trial.from("good")).unwrap();
    let (sent, received) = trial.run_with(&Progress::default(), &Progress::default());
    for report in [sent.unwrap(), received.unwrap()] {
        assert_eq!((report.failed, report.skipped), (2, 0));
        let told = ["tree/absolute", "tree/above"].map(|path| {
            let problems = report.problems.iter();
            let mut problems = problems.filter(|(named, _)| named == path);
            problems.any(|(_, text)| text.contains("leads out"))
        });
        assert_eq!(told, [true, true], "{report:?}");
    }
    assert_eq!(fs::read_link(trial.to("good")).unwrap(), Path::new("inside"));
    assert_eq!(fs::read_dir(trial.to("")).unwrap().count(), 1);
}

/// FILE-44. A directory that cannot be read is one of them; root reads all.
#[test]
fn what_a_sender_cannot_offer_is_a_failure_that_both_ends_name_and_a_socket_is_none() {
    let mut trial = Trial::new();
    fs::write(trial.from("file"), "is sent").unwrap();
    let _socket = UnixListener::bind(trial.from("socket")).unwrap();
    // Names of more would make a path too long for one call.
    let mut deep = trial.from("d");
    deep.extend(["d"; 255]);
    fs::create_dir_all(&deep).unwrap();
    fs::create_dir(deep.join("too deep")).unwrap();
    let missing = trial.directory.path().join("from/missing");
    trial.send.sources.push(Source::Path(missing));
    let (sent, received) = trial.run_with(&Progress::default(), &Progress::default());
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!((sent.failed, received.failed), (2, 2));
    assert_eq!((sent.problems.len(), received.problems.len()), (3, 2), "{sent:?}");
    let [(deep, why_deep), (missing, why_missing)] = &received.problems[..] else {
        panic!("{received:?}");
    };
    assert!(deep.starts_with("tree/d/d/") && why_deep.contains("at the sender: it lies deeper"));
    assert_eq!(missing, "missing");
    assert!(
        why_missing.starts_with("at the sender: No such file"),
        "{why_missing}"
    );
    assert_eq!(fs::read(trial.to("file")).unwrap(), b"is sent");
}

/// FILE-28.
#[test]
fn ends_that_are_cut_off_and_come_back_hash_nothing_again_that_they_know() {
    let mut trial = Trial::new();
    let size = 60 * MIB as u64;
    fs::write(trial.from("file"), random(6, 60 * MIB)).unwrap();
    trial.send.limit = Some(RateLimit::new(20 << 20));
    // By one carrier, so that nothing is sent, and read, twice.
    trial.send.transport = Transport::Quic;
    // Beyond what the receiver may keep from its disk.
    let before = trial.cut_after(WRITE_BACK_BYTES + (8 << 20));
    let kept = fs::read_dir(trial.directory.path().join("state/files"))
        .unwrap()
        .count();
    assert_eq!(kept, 1, "addresses are kept");
    trial.send.limit = None;
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| telling.lock().unwrap().push(event));
    let (sent, received) = trial.run_with(&Progress::default(), &progress);
    let (sent, received) = (sent.unwrap(), received.unwrap());
    assert_eq!(received.bytes_there, before.snapshot().bytes_done);
    assert_eq!(sent.bytes_sent, size - received.bytes_there);
    assert_eq!(sent.bytes_hashed, sent.bytes_sent, "what is sent, and no more");
    assert!(
        received.bytes_hashed <= received.bytes_there,
        "what is not known to be on the disk, and no more: {received:?}"
    );
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
