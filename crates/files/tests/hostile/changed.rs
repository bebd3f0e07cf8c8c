//! A sender whose file changes between two transfers, and which leaves in the middle: what came of the file as it was
//! stays, and only what changed comes.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use files::{Destination, Progress, ReceiveOptions, Report, TransferError};
use files_proto::content::{Address, RootBuilder, chunk_address};
use files_proto::message::Message;
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{Entry, FailReason, Ranges};
use peer::blocking::wait;
use peer::{Peer, SendStream};

use crate::liar::{Liar, file, hello, names_in, receive_by};

const CHUNK_BYTES: usize = 1 << 20;
const SIZE: u64 = 3 << 20;

/// A file of three chunks, each of which is full of one of these bytes.
type Content = [u8; 3];

/// As it was, and with another chunk in the middle.
const BEFORE: Content = [1, 2, 3];
const AFTER: Content = [1, 9, 3];

fn bytes_of(content: Content, index: u64) -> Vec<u8> {
    vec![content[index as usize]; CHUNK_BYTES]
}

fn addresses(content: Content) -> Vec<Address> {
    let address = |index| chunk_address(index, false, &bytes_of(content, index));
    (0..3).map(address).collect()
}

/// Offers it, with a time of its own.
fn offer(liar: &mut Liar, content: Content) {
    liar.say(&hello(true, Vec::new()));
    let Message::Entry(entry) = file(0, "file", SIZE) else {
        unreachable!("an entry is one")
    };
    liar.say(&Message::Entry(Entry {
        modified_ns: i64::from(content[1]) * 1_000_000_000,
        ..entry
    }));
}

fn hear_ask(liar: &mut Liar) {
    loop {
        match liar.hear() {
            Some(Message::Ask { entry: 0 }) => return,
            Some(Message::Hello(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn tell_addresses(liar: &mut Liar, content: Content) {
    liar.say(&Message::Hashes {
        entry: 0,
        first: 0,
        addresses: addresses(content),
    });
}

fn hear_want(liar: &mut Liar, expected: std::ops::Range<u64>) {
    loop {
        match liar.hear() {
            Some(Message::Want { entry: 0, chunks }) => {
                return assert_eq!(chunks, Ranges::from_range(expected));
            }
            Some(Message::Hello(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn carry(stream: &mut SendStream, content: Content, index: u64) {
    let bytes = bytes_of(content, index);
    let head = RecordHead {
        body: Body::Chunk(Chunk {
            entry: 0,
            index,
            address: chunk_address(index, false, &bytes),
            only: false,
            hole: false,
        }),
        compressed: false,
        stored_bytes: bytes.len() as u32,
        raw_bytes: bytes.len() as u32,
    };
    let record = [&head.encode()[..], &bytes].concat();
    wait(stream.write_chunk(Bytes::from(record))).unwrap();
}

fn hear_acknowledged(liar: &mut Liar, mut chunks: Ranges) {
    while !chunks.is_empty() {
        match liar.hear() {
            Some(Message::Ack { chunks: these, .. }) => {
                for range in these.iter() {
                    chunks.remove(range);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Brings what is missing of it, to its end.
fn end(liar: &mut Liar, peer: &Peer, content: Content, missing: std::ops::Range<u64>) {
    let mut stream = wait(peer.open_one_way(0)).unwrap();
    for index in missing {
        carry(&mut stream, content, index);
    }
    let mut builder = RootBuilder::default();
    for (index, address) in (0..).zip(addresses(content)) {
        builder.insert(index, address);
    }
    let root = builder.root(3).unwrap();
    liar.say(&Message::FileEnd {
        entry: 0,
        size: SIZE,
        root,
    });
    liar.end(1, SIZE);
}

fn receive(to: &Path, lie: impl FnOnce(&mut Liar, &Peer) + Send) -> Result<Report, TransferError> {
    let options = ReceiveOptions::new(Destination::Directory(to.to_owned()));
    receive_by(&options, &Progress::default(), lie)
}

/// How a sender of the file that has changed leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    /// Asked for addresses.
    Asked,
    /// The same, after it has sent what nobody wanted.
    Eager,
    /// Because the file has changed once more.
    Changed,
    /// Asked for what has changed.
    Wanted,
}

/// FILE-24, FILE-29, FILE-35: two chunks come, the file changes, and the next transfer is cut as well.
#[test]
fn what_came_of_a_file_that_has_changed_stays_whenever_the_next_transfers_end() {
    for leaves in [Leaves::Asked, Leaves::Eager, Leaves::Changed, Leaves::Wanted] {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path();
        let first = receive(to, |liar, peer| {
            offer(liar, BEFORE);
            hear_want(liar, 0..3);
            let mut stream = wait(peer.open_one_way(0)).unwrap();
            for index in [0, 2] {
                carry(&mut stream, BEFORE, index);
            }
            hear_acknowledged(liar, [0, 2].into_iter().collect());
            peer.close(0, "");
        });
        assert!(matches!(first, Err(TransferError::Lost(_))), "{first:?}");
        for _ in 0..2 {
            let second = receive(to, |liar, peer| {
                offer(liar, AFTER);
                hear_ask(liar);
                match leaves {
                    Leaves::Asked => peer.close(0, ""),
                    Leaves::Eager => {
                        let mut stream = wait(peer.open_one_way(0)).unwrap();
                        carry(&mut stream, AFTER, 1);
                        peer.close(0, "");
                    }
                    Leaves::Changed => {
                        liar.say(&Message::Failed {
                            entry: 0,
                            reason: FailReason::Changed,
                            text: "it has changed".to_owned(),
                        });
                        liar.say(&Message::OfferEnd {
                            entries: 1,
                            bytes: SIZE,
                        });
                        liar.finish();
                    }
                    Leaves::Wanted => {
                        tell_addresses(liar, AFTER);
                        hear_want(liar, 1..2);
                        peer.close(0, "");
                    }
                }
            });
            match leaves {
                Leaves::Changed => assert_eq!(second.unwrap().failed, 1),
                _ => assert!(matches!(second, Err(TransferError::Lost(_))), "{second:?}"),
            }
            if leaves == Leaves::Wanted {
                // What did not change is known by now.
                break;
            }
        }
        let mut names = names_in(to);
        names.sort();
        assert_eq!(names, [".file.gramway-part", ".file.gramway-state"], "{leaves:?}");
        let third = receive(to, |liar, peer| {
            offer(liar, AFTER);
            if leaves != Leaves::Wanted {
                hear_ask(liar);
                tell_addresses(liar, AFTER);
            }
            hear_want(liar, 1..2);
            end(liar, peer, AFTER, 1..2);
        });
        let third = third.unwrap();
        assert_eq!((third.stored, third.bytes_there), (1, 2 << 20), "{leaves:?}");
        assert_eq!(names_in(to), ["file"], "{leaves:?}");
        let expected: Vec<u8> = (0..3).flat_map(|index| bytes_of(AFTER, index)).collect();
        assert!(fs::read(to.join("file")).unwrap() == expected, "{leaves:?}");
    }
}
