//! What a power cut leaves of small files, which have their names before the disk has their bytes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use files::{Answer, Conflict, OnConflict, RateLimit};
use files_proto::doubt::Marker;
use files_proto::name::MARKER_NAME;
use rustix::time::{ClockId, clock_gettime};

use crate::trial::{MIB, Trial, random};

const LENGTHS: [usize; 5] = [0, 10, 64 << 10, (64 << 10) + 1, MIB];

/// How names, sizes and times come back, without some or all bytes.
const LEFT: [&str; 4] = ["whole", "empty", "half", "zeros"];

fn write_at(path: &Path, bytes: &[u8], modified: SystemTime) {
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(modified).unwrap();
}

/// A file of a transfer, as the disk has it afterwards.
fn lose(path: &Path, left: &str) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = fs::read(path).unwrap();
    match left {
        "whole" => return,
        "empty" => bytes.clear(),
        "half" => bytes.truncate(bytes.len() / 2),
        _ => bytes.fill(0),
    }
    write_at(path, &bytes, modified);
}

fn changed_ns(path: &Path) -> i64 {
    let metadata = fs::metadata(path).unwrap();
    metadata.ctime() * 1_000_000_000 + metadata.ctime_nsec()
}

/// What the destination has after another boot: a marker of transfers since this file was changed, none of which came
/// to its end.
fn reboot(since: &Path, to: &Path) {
    let since_ns = changed_ns(since);
    let marker = Marker::default().begin([9; 16], since_ns, since_ns);
    fs::write(to.join(MARKER_NAME), marker.encode()).unwrap();
    // A boot takes longer than a tick.
    let now = || clock_gettime(ClockId::RealtimeCoarse);
    let began = now();
    while now() == began {
        std::thread::yield_now();
    }
}

/// FILE-46.
#[test]
fn a_transfer_that_is_cut_leaves_a_marker_and_the_next_one_takes_it_away() {
    let mut trial = Trial::new();
    let marker = trial.directory.path().join("to").join(MARKER_NAME);
    for number in 0..12 {
        fs::write(trial.from(&number.to_string()), random(number, MIB)).unwrap();
    }
    trial.send.limit = Some(RateLimit::new(2 << 20));
    trial.cut_when(|_| marker.exists());
    assert!(marker.exists());
    trial.send.limit = None;
    assert_eq!(trial.run().failed, 0);
    assert!(!marker.exists());
    trial.compare();
}

/// FILE-46, FILE-47.
#[test]
fn small_files_whose_bytes_a_power_cut_took_come_again_and_those_of_users_stay() {
    for rule in ["newer", "skip", "rename", "ask"] {
        let mut trial = Trial::new();
        let to = trial.directory.path().join("to");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asking = Arc::clone(&asked);
        trial.receive.on_conflict = match rule {
            "newer" => OnConflict::Newer,
            "skip" => OnConflict::Skip,
            "rename" => OnConflict::Rename,
            _ => OnConflict::Ask(Arc::new(move |conflict: &Conflict| {
                asking.lock().unwrap().push(conflict.path.clone());
                Answer::Skip
            })),
        };
        let then = SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 7);
        let mut names = Vec::new();
        for length in LENGTHS {
            for left in LEFT {
                let name = format!("{left}-{length}");
                write_at(&trial.from(&name), &random(length as u64, length), then);
                names.push((name, left));
            }
        }
        fs::create_dir(trial.to("")).unwrap();
        // Of the offered time, as archives and builds give their files one and the same.
        write_at(&trial.from("a-user"), b"what is offered", then);
        write_at(&trial.to("a-user"), b"the user's", then);
        let since = trial.directory.path().join("since");
        // The clock of the file system goes by ticks.
        while !since.exists() || changed_ns(&since) <= changed_ns(&trial.to("a-user")) {
            fs::write(&since, "").unwrap();
        }
        trial.run();
        for (name, left) in &names {
            lose(&trial.to(name), left);
        }
        if rule == "rename" {
            lose(&trial.to("a-user (2)"), "empty");
        }
        reboot(&since, &to);
        assert_eq!(trial.run().failed, 0);
        for (name, _) in &names {
            let (from, to) = (trial.from(name), trial.to(name));
            assert!(
                fs::read(&from).unwrap() == fs::read(&to).unwrap(),
                "{rule}: {name}"
            );
            assert_eq!(fs::metadata(to).unwrap().modified().unwrap(), then);
        }
        assert_eq!(fs::read(trial.to("a-user")).unwrap(), b"the user's");
        let mut count = names.len() + 1;
        if rule == "rename" {
            count += 1;
            assert_eq!(fs::read(trial.to("a-user (2)")).unwrap(), b"what is offered");
        }
        assert_eq!(fs::read_dir(trial.to("")).unwrap().count(), count, "{rule}");
        assert!(asked.lock().unwrap().iter().all(|path| path == "tree/a-user"));
        assert_eq!(
            fs::read_dir(&to).unwrap().count(),
            1,
            "nothing is in doubt any more"
        );
        assert_eq!(trial.run().bytes_sent, 0);
    }
}

/// FILE-46.
#[test]
fn what_was_lost_is_known_as_long_as_nobody_has_offered_it_again() {
    let mut trial = Trial::new();
    let to = trial.directory.path().join("to");
    let since = trial.directory.path().join("since");
    fs::write(&since, "").unwrap();
    for name in ["first", "second"] {
        fs::write(trial.from(name), random(5, 5)).unwrap();
    }
    trial.run();
    lose(&trial.to("second"), "zeros");
    reboot(&since, &to);
    trial.receive.only = vec!["tree/first".to_owned()];
    trial.run();
    assert!(to.join(MARKER_NAME).exists());
    trial.receive.only.clear();
    assert_eq!(trial.run().failed, 0);
    trial.compare();
    assert!(!to.join(MARKER_NAME).exists());
    assert_eq!(fs::metadata(trial.to("second")).unwrap().size(), 5);
}
