//! Files that do not fit the disk beside each other. Nothing of them comes, so that nothing is written.

use std::path::Path;

use files::{Destination, Progress, ReceiveOptions};
use files_proto::message::Message;
use files_proto::{Entry, EntryId, FailReason};

use crate::liar::{Liar, file, hello, receive_with};

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

/// Two fifths of what is free: two of this size fit, and three do not, whatever others write meanwhile.
fn two_fifths() -> u64 {
    let system = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    let blocks = match rustix::process::geteuid().is_root() {
        true => system.f_bfree,
        false => system.f_bavail,
    };
    blocks * system.f_frsize / 5 * 2
}

fn hear_failed(liar: &mut Liar) -> (EntryId, FailReason, String) {
    loop {
        match liar.hear() {
            Some(Message::Failed { entry, reason, text }) => return (entry, reason, text),
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
    let bytes = two_fifths();
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
