//! A sender that brings other bytes than it says, once or for ever: by a machine's fault, or as a lie.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use files::limits::{DAMAGED_ARRIVALS_MAX, DAMAGED_CHUNKS_MAX};
use files::{DamagedAt, Event, Progress, TransferError};
use files_proto::content::{chunk_address, chunk_count};
use files_proto::message::Message;
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{EntryId, FailReason, Kind, Ranges, pack};
use peer::blocking::wait;
use peer::{Peer, SendStream};

use crate::liar::{Liar, entry, file, hello, receive_from, receive_telling};

/// A file of two chunks.
const SIZE: u64 = (1 << 20) + 5;

fn record(head: &RecordHead, body: &[u8]) -> Bytes {
    Bytes::from([&head.encode()[..], body].concat())
}

/// A record of a chunk that has this content, with `body` instead of it.
fn chunk(entry: EntryId, index: u64, content: &[u8], body: &[u8], compressed: bool) -> Bytes {
    let head = RecordHead {
        body: Body::Chunk(Chunk {
            entry,
            index,
            address: chunk_address(index, false, content),
            only: false,
            hole: false,
        }),
        compressed,
        stored_bytes: body.len() as u32,
        raw_bytes: content.len() as u32,
    };
    record(&head, body)
}

/// A record of a pack of files of these bytes, the last byte of which is another one where it is damaged.
fn pack_of(files: &[(EntryId, &[u8])], is_damaged: bool) -> Bytes {
    let mut builder = pack::Builder::default();
    for (entry, bytes) in files {
        assert!(builder.push(*entry, bytes));
    }
    let mut body = Vec::new();
    builder.finish(&mut body);
    if is_damaged {
        *body.last_mut().unwrap() ^= 1;
    }
    let head = RecordHead {
        body: Body::Pack,
        compressed: false,
        stored_bytes: body.len() as u32,
        raw_bytes: body.len() as u32,
    };
    record(&head, &body)
}

/// Waits until this is wanted, once more where it was before; how many entries were stored meanwhile.
fn wait_for_want(liar: &mut Liar, wanted: EntryId, expected: std::ops::Range<u64>) -> u64 {
    let mut stored = 0;
    loop {
        match liar.hear() {
            Some(Message::Want { entry, chunks }) if entry == wanted => {
                assert_eq!(chunks, Ranges::from_range(expected));
                return stored;
            }
            Some(Message::Stored { entries }) => stored += entries.len(),
            Some(Message::Failed { text, .. } | Message::Abort { text }) => panic!("{text}"),
            Some(_) => {}
            None => panic!("it left"),
        }
    }
}

fn carry(stream: &mut SendStream, record: Bytes) {
    // The receiver may have had enough.
    let _ = wait(stream.write_chunk(record));
}

/// Offers a large file of so many bytes and two small ones, and waits until all of each is wanted.
fn begin(liar: &mut Liar, peer: &Peer, large_bytes: u64) -> SendStream {
    liar.say(&hello(true, Vec::new()));
    liar.say(&file(0, "large", large_bytes));
    liar.say(&file(1, "small", 3));
    liar.say(&file(2, "other", 3));
    wait_for_want(liar, 0, 0..chunk_count(large_bytes));
    wait_for_want(liar, 1, 0..1);
    wait_for_want(liar, 2, 0..1);
    wait(peer.open_one_way(0)).unwrap()
}

/// FILE-10, FILE-43.
#[test]
fn what_comes_damaged_is_named_and_wanted_again_and_the_rest_counts() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| {
        if let Event::Damaged { path, bytes, at } = event {
            telling.lock().unwrap().push((path, bytes, at));
        }
    });
    let (received, mut names) = receive_telling(&progress, |liar, peer| {
        let mut stream = begin(liar, peer, SIZE);
        let (first, second) = (vec![1; 1 << 20], [2; 5]);
        let mut damaged = first.clone();
        damaged[77] ^= 1;
        carry(&mut stream, chunk(0, 0, &first, &damaged, false));
        wait_for_want(liar, 0, 0..1);
        carry(&mut stream, chunk(0, 1, &second, &second, false));
        // It is said to be compressed, and is not.
        carry(&mut stream, chunk(0, 0, &first, &damaged[..99], true));
        wait_for_want(liar, 0, 0..1);
        carry(&mut stream, chunk(0, 0, &first, &first, false));
        carry(&mut stream, pack_of(&[(2, b"one"), (1, b"two")], true));
        let stored = wait_for_want(liar, 1, 0..1);
        carry(&mut stream, pack_of(&[(1, b"two")], false));
        let root = blake3_of(&[&first[..], &second].concat());
        liar.say(&Message::FileEnd {
            entry: 0,
            size: SIZE,
            root,
        });
        liar.say(&Message::OfferEnd {
            entries: 3,
            bytes: SIZE + 6,
        });
        let mut left = 3 - stored;
        while left > 0 {
            match liar.hear() {
                Some(Message::Stored { entries }) => left -= entries.len(),
                Some(Message::Ack { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        liar.finish();
    });
    names.sort();
    assert_eq!(
        (received.unwrap().failed, &names[..]),
        (0, &["large", "other", "small"].map(str::to_owned)[..])
    );
    let large = ("large".to_owned(), 1 << 20, DamagedAt::Arrival);
    let small = ("small".to_owned(), 3, DamagedAt::Arrival);
    assert_eq!(*told.lock().unwrap(), [large.clone(), large, small]);
}

/// FILE-43: of each file a few times, and the others come all the same.
#[test]
fn a_file_that_comes_damaged_for_ever_fails_alone() {
    let (received, names) = receive_from(|liar, peer| {
        let mut stream = begin(liar, peer, 100 << 20);
        for _ in 0..DAMAGED_CHUNKS_MAX {
            carry(&mut stream, chunk(0, 7, b"a", b"b", false));
            wait_for_want(liar, 0, 7..8);
        }
        for _ in 0..2 {
            carry(&mut stream, pack_of(&[(1, b"two")], true));
            wait_for_want(liar, 1, 0..1);
        }
        for (entry, last) in [
            (0, chunk(0, 7, b"a", b"b", false)),
            (1, pack_of(&[(1, b"two")], true)),
        ] {
            carry(&mut stream, last.clone());
            let told = liar.hear();
            let Some(Message::Failed {
                entry: failed,
                reason,
                ..
            }) = told
            else {
                panic!("{told:?}")
            };
            assert_eq!((failed, reason), (entry, FailReason::Damaged));
            // Of what has failed nothing is wanted, whatever comes.
            carry(&mut stream, last);
        }
        carry(&mut stream, pack_of(&[(2, b"one")], false));
        liar.say(&Message::OfferEnd {
            entries: 3,
            bytes: (100 << 20) + 6,
        });
        let told = liar.hear();
        assert!(matches!(told, Some(Message::Stored { .. })), "{told:?}");
        liar.finish();
    });
    let report = received.unwrap();
    assert_eq!((report.stored, report.failed), (1, 2), "{report:?}");
    let mut named: Vec<&str> = report.problems.iter().map(|(path, _)| path.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named, ["large", "small"]);
    assert_eq!(names, ["other"]);
}

/// FILE-43: nobody is kept busy by many files, either.
#[test]
fn a_transfer_of_which_everything_comes_damaged_ends() {
    let (received, _) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        for id in 0..DAMAGED_ARRIVALS_MAX {
            liar.say(&file(id, &id.to_string(), SIZE));
            wait_for_want(liar, id, 0..2);
            carry(&mut stream, chunk(id, 1, b"a", b"b", false));
            wait_for_want(liar, id, 1..2);
        }
        carry(&mut stream, chunk(0, 1, b"a", b"b", false));
        while liar.hear().is_some() {}
    });
    assert!(
        matches!(&received, Err(TransferError::Broken(how)) if how.contains("more comes damaged")),
        "{received:?}"
    );
}

/// FILE-43: what a program has written cannot be sent again.
#[test]
fn a_pipe_that_comes_damaged_fails_at_once() {
    let (received, names) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&entry(0, "pipe", Kind::Pipe));
        wait_for_want(liar, 0, 0..1);
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        carry(&mut stream, chunk(0, 0, b"a", b"b", false));
        liar.end(1, 0);
    });
    let report = received.unwrap();
    assert_eq!((report.stored, report.failed), (0, 1));
    assert!(
        report.problems[0].1.contains("run both commands again"),
        "{report:?}"
    );
    assert!(names.is_empty(), "{names:?}");
}

/// FILE-11, FILE-14: each chunk is what it should be, and the file is not.
#[test]
fn a_whole_file_of_another_hash_is_named_and_comes_again_once() {
    for is_right_at_last in [true, false] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let progress = Progress::new(move |event| {
            if let Event::Damaged { path, bytes, at } = event {
                telling.lock().unwrap().push((path, bytes, at));
            }
        });
        let (received, names) = receive_telling(&progress, |liar, peer| {
            liar.say(&hello(true, Vec::new()));
            liar.say(&file(0, "file", SIZE));
            wait_for_want(liar, 0, 0..2);
            let mut stream = wait(peer.open_one_way(0)).unwrap();
            let (first, second) = (vec![1; 1 << 20], [2; 5]);
            let root = blake3_of(&[&first[..], &second].concat());
            let end = |root| Message::FileEnd {
                entry: 0,
                size: SIZE,
                root,
            };
            carry(&mut stream, chunk(0, 0, &first, &first, false));
            carry(&mut stream, chunk(0, 1, &second, &second, false));
            liar.say(&end([7; 32]));
            wait_for_want(liar, 0, 0..2);
            if is_right_at_last {
                liar.say(&end(root));
            }
            // What comes behind the end has been heard.
            liar.say(&file(1, "other", 3));
            wait_for_want(liar, 1, 0..1);
            carry(&mut stream, pack_of(&[(1, b"two")], false));
            carry(&mut stream, chunk(0, 0, &first, &first, false));
            carry(&mut stream, chunk(0, 1, &second, &second, false));
            liar.end(2, SIZE + 3);
        });
        let report = received.unwrap();
        let whole = ("file".to_owned(), SIZE, DamagedAt::Whole);
        assert_eq!(*told.lock().unwrap(), [whole]);
        let mut names = names;
        names.sort();
        if is_right_at_last {
            assert_eq!(
                (report.stored, &names[..]),
                (2, &["file", "other"].map(str::to_owned)[..])
            );
        } else {
            assert_eq!((report.stored, report.failed), (1, 1));
            assert_eq!(
                report.problems,
                [(
                    "file".to_owned(),
                    "what came does not have the hash of the file, twice".to_owned()
                )]
            );
            assert_eq!(names, ["other"], "it is of no use");
        }
    }
}

/// FILE-43: it may stand for another one, which nobody would send again.
#[test]
fn a_damaged_chunk_that_is_not_missing_ends_the_transfer() {
    for index in [2, 1 << 20] {
        let (received, _) = receive_from(|liar, peer| {
            liar.say(&hello(true, Vec::new()));
            liar.say(&file(0, "file", SIZE));
            wait_for_want(liar, 0, 0..2);
            let mut stream = wait(peer.open_one_way(0)).unwrap();
            carry(&mut stream, chunk(0, index, b"a", b"b", false));
            while liar.hear().is_some() {}
        });
        assert!(matches!(received, Err(TransferError::Broken(_))), "{received:?}");
    }
}

fn blake3_of(bytes: &[u8]) -> [u8; 32] {
    let mut builder = files_proto::content::RootBuilder::default();
    for (index, chunk) in (0..).zip(bytes.chunks(1 << 20)) {
        builder.insert(index, chunk_address(index, false, chunk));
    }
    builder.root(bytes.len().div_ceil(1 << 20) as u64).unwrap()
}
