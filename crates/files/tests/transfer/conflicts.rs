//! Files and directories that are in the places of what is offered: what stays, what is replaced, and what is told.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use files::{Answer, Conflict, Event, OnConflict, Progress, RateLimit, Would};
use rustix::fs::XattrFlags;

use crate::trial::{MIB, Trial, random};

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

/// FILE-28: a directory never goes for a file; who would have the file left out has that.
#[test]
fn a_directory_in_the_place_of_a_file_stays_and_the_user_says_what_becomes_of_the_file() {
    let ask = |answer| {
        OnConflict::Ask(Arc::new(move |conflict: &Conflict| {
            assert!(!conflict.is_replaceable);
            answer
        }))
    };
    // Skipped, failed.
    for (rule, ends) in [
        (OnConflict::Skip, (1, 0)),
        (ask(Answer::Skip), (1, 0)),
        (OnConflict::Rename, (0, 0)),
        (ask(Answer::Rename), (0, 0)),
        (OnConflict::Overwrite, (0, 1)),
        (ask(Answer::Overwrite), (0, 1)),
        (OnConflict::Newer, (0, 1)),
    ] {
        let mut trial = Trial::new();
        fs::write(trial.from("file"), "new").unwrap();
        fs::create_dir_all(trial.to("file/inner")).unwrap();
        trial.receive.on_conflict = rule;
        let report = trial.run();
        let what = format!("{:?}: {:?}", trial.receive.on_conflict, report.problems);
        assert_eq!((report.skipped, report.failed), ends, "{what}");
        assert!(trial.to("file/inner").is_dir(), "{what}");
        assert_eq!(trial.to("file (2)").exists(), ends == (0, 0), "{what}");
        if ends.1 > 0 {
            assert!(
                report.problems[0].1.contains("a directory is in its place"),
                "{what}"
            );
        }
    }
}

/// FILE-28: what is the same gets the mode and attributes that it has at the sender, and with checksums the time.
#[test]
fn a_mode_and_attributes_that_have_changed_alone_are_brought_over() {
    let mut trial = Trial::new();
    (trial.send.xattrs, trial.receive.xattrs) = (true, true);
    let files = [("empty", 0), ("small", 10), ("large", 2 * MIB)];
    for (name, length) in files {
        fs::write(trial.from(name), random(3, length)).unwrap();
    }
    trial.run();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let mut has_attributes = true;
    for (name, _) in files {
        fs::set_permissions(trial.from(name), fs::Permissions::from_mode(0o500)).unwrap();
        let set = rustix::fs::setxattr(trial.from(name), "user.new", b"value", XattrFlags::empty());
        has_attributes &= set.is_ok();
    }
    for on_conflict in [OnConflict::Skip, OnConflict::Rename, OnConflict::Overwrite] {
        trial.receive.on_conflict = on_conflict;
        assert_eq!(trial.run().bytes_sent, 0);
        trial.compare();
    }
    if has_attributes {
        for (name, _) in files {
            let mut value = [0; 8];
            let length = rustix::fs::getxattr(trial.to(name), "user.new", &mut value[..]);
            assert_eq!(&value[..length.unwrap()], b"value", "{name}");
        }
    } else {
        eprintln!("attributes are left out: {} has none", trial.from("").display());
    }
    for (name, _) in files {
        fs::File::open(trial.from(name))
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    trial.receive.checksum = true;
    assert_eq!(trial.run().bytes_sent, 0);
    trial.compare();
    // Nothing is changed by who only looks.
    fs::set_permissions(trial.from("small"), fs::Permissions::from_mode(0o640)).unwrap();
    trial.receive.dry_run = true;
    trial.run();
    assert_eq!(fs::metadata(trial.to("small")).unwrap().mode() & 0o777, 0o500);
}

/// FILE-28, FILE-29: without anybody to ask, too, of a file that is there only what differs comes; of one whose time
/// alone is another nothing, wherever it was stored before.
#[test]
fn what_is_there_by_another_time_is_not_stored_twice_and_chunks_of_what_differs_are_taken_from_it() {
    let lengths = [0, 10, 64 << 10, (64 << 10) + 1, 3 * MIB + 5];
    let then = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
    for rule in [
        OnConflict::Rename,
        OnConflict::Overwrite,
        OnConflict::Newer,
        OnConflict::Ask(Arc::new(|_: &Conflict| panic!("nothing is in doubt"))),
    ] {
        let mut trial = Trial::new();
        trial.receive.on_conflict = rule;
        let touch = |trial: &Trial, seconds| {
            for length in lengths {
                let file = fs::File::open(trial.from(&length.to_string())).unwrap();
                file.set_modified(then(seconds)).unwrap();
            }
        };
        for length in lengths {
            fs::write(trial.from(&length.to_string()), random(5, length)).unwrap();
        }
        touch(&trial, 0);
        trial.run();
        touch(&trial, 5);
        let report = trial.run();
        assert_eq!(
            (report.bytes_sent, report.failed),
            (0, 0),
            "{:?}",
            trial.receive.on_conflict
        );
        trial.compare();
        // Its time is the sender's by now: nothing is read.
        assert_eq!(trial.run().bytes_sent, 0);
    }
    let mut trial = Trial::new();
    trial.receive.on_conflict = OnConflict::Rename;
    fs::create_dir(trial.to("")).unwrap();
    let mut bytes = random(6, 4 * MIB + 9);
    let small = random(7, 20);
    fs::write(trial.to("large"), &bytes).unwrap();
    fs::write(trial.to("small"), random(8, 20)).unwrap();
    for name in ["large", "small"] {
        // What is written in one tick of the clock has one time, and is not compared.
        let file = fs::File::open(trial.to(name)).unwrap();
        file.set_modified(then(0)).unwrap();
    }
    bytes[MIB + 3] ^= 1;
    fs::write(trial.from("large"), &bytes).unwrap();
    fs::write(trial.from("small"), &small).unwrap();
    for name in ["large", "small"] {
        fs::File::open(trial.to(name))
            .unwrap()
            .set_modified(then(1))
            .unwrap();
    }
    assert_eq!(
        trial.run().chunks_sent,
        2,
        "a chunk that differs, and a small file"
    );
    // Under the names that they have by then, they are found at any time, behind others of their size.
    fs::rename(trial.to("small (2)"), trial.to("small (4)")).unwrap();
    for (number, seed) in [(2, 9), (3, 10)] {
        fs::write(trial.to(&format!("small ({number})")), random(seed, 20)).unwrap();
    }
    for name in ["large", "small"] {
        fs::File::open(trial.from(name))
            .unwrap()
            .set_modified(then(9))
            .unwrap();
    }
    let report = trial.run();
    assert_eq!((report.bytes_sent, report.failed), (0, 0), "{report:?}");
    assert_eq!(fs::read(trial.to("small (4)")).unwrap(), small);
    assert!(fs::read(trial.to("large (2)")).unwrap() == bytes);
    assert_eq!(fs::read_dir(trial.to("")).unwrap().count(), 6);
}

#[test]
fn a_dry_run_tells_of_each_file_what_would_be_sent_and_that_is_sent() {
    for (rule, checksum) in [
        (OnConflict::Overwrite, false),
        (OnConflict::Rename, false),
        (OnConflict::Overwrite, true),
    ] {
        let mut trial = Trial::new();
        trial.receive.on_conflict = rule;
        trial.receive.checksum = checksum;
        fs::write(trial.from("partly"), random(1, 30 * MIB)).unwrap();
        trial.send.limit = Some(RateLimit::new(20 << 20));
        let there = trial.cut_after(6 << 20).snapshot().bytes_done;
        trial.send.limit = None;
        if checksum {
            // The part is read, and what is in the place of the file as well.
            fs::write(trial.to("partly"), "another one").unwrap();
        }
        let mut bytes = random(2, 4 * MIB + 9);
        fs::write(trial.to("differs"), &bytes).unwrap();
        fs::write(trial.to("touched"), &bytes).unwrap();
        fs::write(trial.from("touched"), &bytes).unwrap();
        bytes[MIB + 3] ^= 1;
        fs::write(trial.from("differs"), &bytes).unwrap();
        fs::write(trial.from("empty"), "").unwrap();
        fs::write(trial.from("new"), "new").unwrap();
        for name in ["differs", "touched"] {
            let file = fs::File::open(trial.to(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        trial.receive.dry_run = true;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let progress = Progress::new(move |event| {
            if let Event::Offered {
                path, missing, would, ..
            } = event
            {
                let path = path.replace(" (2)", "");
                telling.lock().unwrap().push((path, missing, would.unwrap()));
            }
        });
        let (sent, received) = trial.run_with(&Progress::default(), &progress);
        sent.unwrap();
        assert_eq!(received.unwrap().failed, 0);
        let mut told = told.lock().unwrap().clone();
        told.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let what = |name: &str, missing: u64, would| (format!("tree/{name}"), missing, would);
        let overwrites = matches!(trial.receive.on_conflict, OnConflict::Overwrite);
        let would_differ = match overwrites {
            true => Would::Overwrite,
            false => Would::Rename,
        };
        let would_part = match checksum {
            true => Would::Overwrite,
            false => Would::Store,
        };
        // Replaced by its own bytes, where they are not compared before.
        let would_touch = match overwrites && !checksum {
            true => Would::Overwrite,
            false => Would::Keep,
        };
        let expected = vec![
            what("differs", 1 << 20, would_differ),
            what("empty", 0, Would::Store),
            what("new", 3, Would::Store),
            what("partly", (30 << 20) - there, would_part),
            what("touched", 0, would_touch),
        ];
        assert_eq!(told, expected);
        trial.receive.dry_run = false;
        let would: u64 = told.iter().map(|(_, missing, _)| missing).sum();
        assert_eq!(trial.run().bytes_sent, would);
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

/// FILE-20.
#[test]
fn a_link_in_whose_place_a_directory_belongs_is_named_and_not_followed() {
    let trial = Trial::new();
    fs::create_dir(trial.from("name")).unwrap();
    fs::write(trial.from("name/inner"), "new").unwrap();
    fs::create_dir_all(trial.to("")).unwrap();
    let outside = trial.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, trial.to("name")).unwrap();
    let report = trial.run();
    assert_eq!(report.failed, 1, "{report:?}");
    let (path, text) = &report.problems[0];
    assert!(
        path == "tree/name" && text.contains("a symbolic link is there"),
        "{report:?}"
    );
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

/// FILE-24.
#[test]
fn two_receives_into_one_directory_leave_each_others_parts_alone() {
    let (mut first, mut second) = (Trial::new(), Trial::new());
    second.receive.to = first.receive.to.clone();
    for (seed, trial) in [(1, &first), (2, &second)] {
        fs::write(trial.from("file"), random(seed, 64 * MIB)).unwrap();
    }
    fs::write(second.from("other"), "other").unwrap();
    // It is under way until the second has ended.
    first.send.limit = Some(RateLimit::new(1 << 19));
    let (sent, received) = (Progress::default(), Progress::default());
    thread::scope(|scope| {
        let running = scope.spawn(|| first.run_with(&sent, &received));
        let deadline = Instant::now() + Duration::from_secs(60);
        while received.snapshot().bytes_done < 2 << 20 {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        let report = second.run();
        assert_eq!((report.failed, report.bytes_sent), (1, 5), "{report:?}");
        let (path, text) = &report.problems[0];
        assert!(
            path == "tree/file" && text.contains("another receive is writing"),
            "{report:?}"
        );
        received.cancel();
        assert!(running.join().unwrap().1.is_err());
    });
    assert_eq!(fs::read(first.to("other")).unwrap(), b"other");
    first.send.limit = None;
    let report = first.run();
    assert_eq!(report.bytes_there, received.snapshot().bytes_done);
    assert!(fs::read(first.to("file")).unwrap() == fs::read(first.from("file")).unwrap());
    assert_eq!(fs::read_dir(first.to("")).unwrap().count(), 2, "no part is left");
}

#[test]
fn a_dry_run_tells_what_would_become_of_each_file_and_asks_nobody() {
    let mut trial = Trial::new();
    for (name, here) in [
        ("new", None),
        ("none", None),
        ("same", Some("same")),
        ("other", Some("another")),
    ] {
        fs::create_dir_all(trial.to("")).unwrap();
        fs::write(trial.from(name), if name == "none" { "" } else { name }).unwrap();
        let Some(here) = here else { continue };
        fs::write(trial.to(name), here).unwrap();
        let then = fs::metadata(trial.from(name)).unwrap().modified().unwrap();
        fs::File::options()
            .write(true)
            .open(trial.to(name))
            .unwrap()
            .set_modified(then)
            .unwrap();
    }
    trial.receive.dry_run = true;
    let ask = |_: &Conflict| -> Answer { panic!("a dry run asks nobody") };
    for (rule, name, would, missing) in [
        (OnConflict::Skip, "other", Would::Skip, 0),
        (OnConflict::Rename, "other (2)", Would::Rename, 5),
        (OnConflict::Overwrite, "other", Would::Overwrite, 5),
        (OnConflict::Ask(Arc::new(ask)), "other", Would::Ask, 5),
    ] {
        trial.receive.on_conflict = rule;
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let received = Progress::new(move |event| {
            if let Event::Offered {
                path, missing, would, ..
            } = event
            {
                telling.lock().unwrap().push((path, missing, would));
            }
        });
        let (sent, received) = trial.run_with(&Progress::default(), &received);
        assert!(sent.is_ok() && received.is_ok());
        let mut told = told.lock().unwrap().clone();
        told.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let expected = [
            ("new", 3, Would::Store),
            ("none", 0, Would::Store),
            (name, missing, would),
            ("same", 0, Would::Keep),
        ];
        let expected = expected.map(|(name, missing, would)| (format!("tree/{name}"), missing, Some(would)));
        assert_eq!(told, expected);
    }
}
