//! Files that do not fit the disk beside each other, and what a dry run says of what would fail. Nothing of them comes,
//! so that nothing is written.

use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex};

use files::{Destination, Event, Progress, ReceiveOptions, Would};
use files_proto::message::Message;
use files_proto::{Entry, EntryId, FailReason, Kind, SkipReason};

use crate::file_system_kinds::{adds_up, kind};
use crate::liar::{Liar, entry, file, hello, receive_with};

/// A file without holes.
fn full(id: EntryId, bytes: u64) -> Message {
    let Message::Entry(entry) = file(id, &format!("file-{id}"), bytes) else {
        unreachable!("an entry is one")
    };
    Message::Entry(Entry {
        disk_bytes_min: bytes,
        ..entry
    })
}

/// What is free where the tests receive.
fn free() -> u64 {
    let system = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    let blocks = match rustix::process::geteuid().is_root() {
        true => system.f_bfree,
        false => system.f_bavail,
    };
    blocks * system.f_frsize
}

/// Runs a test by two fifths of what is free, so that two files of this size fit, and three do not; again where it
/// fails and others have used or left so much meanwhile that this may be why.
fn with_two_fifths(test: impl Fn(u64)) {
    for attempts_left in (0..20).rev() {
        let before = free();
        let Err(failed) = panic::catch_unwind(AssertUnwindSafe(|| test(before / 5 * 2))) else {
            return;
        };
        if attempts_left == 0 || free().abs_diff(before) < before / 20 {
            panic::resume_unwind(failed);
        }
    }
}

/// Whether the sum of what comes counts where the tests receive.
fn sums_count() -> bool {
    let system = rustix::fs::statfs(std::env::temp_dir()).unwrap();
    let counts = adds_up(kind(&system));
    if !counts {
        eprintln!("skipped: the file system of temporary files may compress, or is not known");
    }
    counts
}

fn hear_failed(liar: &mut Liar) -> (EntryId, FailReason, String) {
    loop {
        match liar.hear() {
            Some(Message::Failed { entry, reason, text }) => return (entry, reason, text),
            Some(Message::Want { entry: 2, .. } | Message::Skip { entry: 2, .. }) => panic!("the third fits"),
            Some(Message::Hello(_) | Message::Skip { .. } | Message::Want { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn give_up(liar: &mut Liar, entry: EntryId) {
    liar.say(&Message::Failed {
        entry,
        reason: FailReason::Changed,
        text: "it has changed".to_owned(),
    });
}

fn hear_want(liar: &mut Liar, wanted: EntryId) {
    loop {
        match liar.hear() {
            Some(Message::Want { entry, .. }) if entry == wanted => return,
            Some(Message::Hello(_) | Message::Want { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_file_that_fits_alone_and_not_beside_those_that_are_to_come_fails_before_it_is_sent() {
    if sums_count() {
        with_two_fifths(files_beside_each_other);
    }
}

fn files_beside_each_other(bytes: u64) {
    let options = |to: &Path| ReceiveOptions::new(Destination::Directory(to.to_owned()));
    let (received, names) = receive_with(options, &Progress::default(), |liar, _| {
        liar.say(&hello(true, Vec::new()));
        for id in 0..3 {
            liar.say(&full(id, bytes));
        }
        let (entry, reason, text) = hear_failed(liar);
        assert_eq!((entry, reason), (2, FailReason::NoSpace), "{text}");
        assert!(text.contains("other files that come"), "{text}");
        // Who fails needs nothing any more.
        give_up(liar, 0);
        liar.say(&full(3, bytes));
        hear_want(liar, 3);
        give_up(liar, 1);
        give_up(liar, 3);
        liar.say(&Message::OfferEnd {
            entries: 4,
            bytes: 4 * bytes,
        });
        liar.finish();
    });
    assert_eq!(received.unwrap().failed, 4);
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn a_dry_run_tells_what_would_fail_and_which_name_a_file_would_get() {
    if sums_count() {
        with_two_fifths(a_dry_run);
    }
}

fn a_dry_run(bytes: u64) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| match event {
        Event::Offered { path, would, .. } => telling.lock().unwrap().push((path, would)),
        Event::Renamed { from, .. } => panic!("{from} is not stored"),
        _ => {}
    });
    let options = |to: &Path| {
        let mut options = ReceiveOptions::new(Destination::Directory(to.to_owned()));
        options.dry_run = true;
        options
    };
    let (received, names) = receive_with(options, &progress, |liar, _| {
        liar.say(&hello(true, Vec::new()));
        for id in 0..3 {
            liar.say(&full(id, bytes));
        }
        let target = b"../beside".to_vec();
        liar.say(&entry(3, "out", Kind::Symlink { target }));
        let target = b"file-0".to_vec();
        liar.say(&entry(4, "in", Kind::Symlink { target }));
        // A second one of a name.
        liar.say(&file(5, "file-0", 7));
        let (entry, reason, text) = hear_failed(liar);
        assert_eq!((entry, reason), (2, FailReason::NoSpace), "{text}");
        loop {
            match liar.hear() {
                Some(Message::Skip { entry: 3, reason }) => assert_eq!(reason, SkipReason::UnsafeLink),
                Some(Message::Skip { entry, reason }) => {
                    assert_eq!(reason, SkipReason::DryRun);
                    if entry == 5 {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        liar.say(&Message::OfferEnd {
            entries: 6,
            bytes: 3 * bytes + 7,
        });
        liar.finish();
    });
    let report = received.unwrap();
    assert!(report.is_look);
    assert_eq!(report.failed, 2);
    let named: Vec<&str> = report.problems.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(named, ["file-2", "out"]);
    let would = |path: &str, would| (path.to_owned(), Some(would));
    assert_eq!(
        *told.lock().unwrap(),
        [
            would("file-0", Would::Store),
            would("file-1", Would::Store),
            would("in", Would::Store),
            would("file-0 (2)", Would::Rename),
        ]
    );
    assert!(names.is_empty(), "{names:?}");
}
