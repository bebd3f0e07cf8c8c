//! A sender that sends more than anybody could keep: the receiver ends the transfer, or fails the file, before its
//! memory does.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use files::limits::{COMPARED_FILES_MAX, DAMAGED_CHUNKS_MAX};
use files::{Destination, OnConflict, Progress, ReceiveOptions, TransferError};
use files_proto::content::{RootBuilder, chunk_address};
use files_proto::limits::{CHUNK_BYTES, ENTRIES_OPEN_MAX, NAME_REPEATS_MAX};
use files_proto::manifest::ManifestError;
use files_proto::message::Message;
use files_proto::name::NameError;
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{FailReason, Kind, Ranges, SkipReason};
use peer::blocking::wait;

use crate::liar::{Liar, entry, file, hello, receive_from, receive_with};

/// What this whole process may take beside what it had: the receiver keeps a part of it, and the rest is the liar's.
const MEMORY_BYTES_MAX: u64 = 400 << 20;

/// The most memory that this process has had.
fn memory_peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes << 10
}

/// Says many messages at once.
fn say_all(liar: &mut Liar, messages: impl Iterator<Item = Message>) {
    let mut bytes = Vec::new();
    let mut say = |bytes: &mut Vec<u8>| {
        // The receiver may have had enough.
        let _ = wait(liar.writer.write_chunk(Bytes::from(std::mem::take(bytes))));
    };
    for message in messages {
        message.encode(&mut bytes);
        if bytes.len() > 32_768 {
            say(&mut bytes);
        }
    }
    say(&mut bytes);
}

/// Until the receiver leaves.
fn hear_all(liar: &mut Liar) {
    while liar.hear().is_some() {}
}

fn link(id: u64, name: &str) -> Message {
    let target = b"/leads/out".to_vec();
    entry(id, name, Kind::Symlink { target })
}

/// FILE-8.
#[test]
fn a_manifest_without_end_ends_the_transfer() {
    let before = memory_peak();
    let (received, _) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        let count = ENTRIES_OPEN_MAX as u64 + 1;
        say_all(liar, (0..count).map(|id| file(id, &id.to_string(), 2 << 20)));
        hear_all(liar);
    });
    assert!(
        matches!(received, Err(TransferError::Manifest(ManifestError::TooMany))),
        "{received:?}"
    );
    let taken = memory_peak() - before;
    assert!(taken < MEMORY_BYTES_MAX, "{taken} bytes");
}

/// FILE-22: what is refused has a name as well.
#[test]
fn one_name_without_end_ends_the_transfer_and_many_names_do_not() {
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        let count = u64::from(NAME_REPEATS_MAX) + 1;
        say_all(liar, (0..count).map(|id| link(id, "name")));
        hear_all(liar);
    });
    assert!(
        matches!(
            received,
            Err(TransferError::Manifest(ManifestError::Names(NameError::Repeated)))
        ),
        "{received:?}"
    );
    assert!(names.is_empty(), "{names:?}");
    let before = memory_peak();
    // More than may be open at once. What names take at most, the tests of `files_proto::name` show.
    let count = 2 * ENTRIES_OPEN_MAX as u64 + 1;
    let (received, names) = receive_from(|liar, _| {
        liar.say(&hello(true, Vec::new()));
        say_all(liar, (0..count).map(|id| link(id, &id.to_string())));
        liar.end(count, 0);
    });
    assert_eq!(received.unwrap().failed, count);
    assert!(names.is_empty(), "{names:?}");
    let taken = memory_peak() - before;
    assert!(taken < MEMORY_BYTES_MAX, "{taken} bytes");
}

/// A frame of zstd (RFC 8878 section 3.1.1) of 1 GiB of one byte: blocks of four bytes that stand for 128 KiB each.
fn bomb() -> Vec<u8> {
    const BLOCK_BYTES: u32 = 128 << 10;
    const BLOCKS: u32 = (1 << 30) / BLOCK_BYTES;
    // A window of 1 MiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x50];
    for number in 1..=BLOCKS {
        let (is_last, of_one_byte) = (u32::from(number == BLOCKS), 1);
        let head = is_last | (of_one_byte << 1) | (BLOCK_BYTES << 3);
        frame.extend_from_slice(&head.to_le_bytes()[..3]);
        frame.push(7);
    }
    frame
}

fn record(body: Body) -> Bytes {
    let bomb = bomb();
    let head = RecordHead {
        body,
        compressed: true,
        stored_bytes: bomb.len() as u32,
        raw_bytes: 1 << 20,
    };
    Bytes::from([&head.encode()[..], &bomb].concat())
}

/// FILE-17: what a record says of its length holds, whatever comes out of it.
#[test]
fn a_record_that_becomes_more_than_it_says_fails_its_file_or_ends_the_transfer() {
    let before = memory_peak();
    let chunk = Body::Chunk(Chunk {
        entry: 0,
        index: 0,
        address: [0; 32],
        only: false,
        hole: false,
    });
    let (received, names) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        liar.say(&file(0, "file", 100 << 20));
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        for _ in 0..=DAMAGED_CHUNKS_MAX {
            while !matches!(liar.hear(), Some(Message::Want { .. }) | None) {}
            wait(stream.write_chunk(record(chunk))).unwrap();
        }
        liar.end(1, 100 << 20);
    });
    assert_eq!(received.unwrap().failed, 1);
    assert!(names.is_empty(), "{names:?}");
    let (received, _) = receive_from(|liar, peer| {
        liar.say(&hello(true, Vec::new()));
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        wait(stream.write_chunk(record(Body::Pack))).unwrap();
        hear_all(liar);
    });
    assert!(
        matches!(&received, Err(TransferError::Broken(how)) if how.contains("decompressed")),
        "{received:?}"
    );
    let taken = memory_peak() - before;
    assert!(taken < MEMORY_BYTES_MAX, "{taken} bytes");
}

/// Parts below this directory that this process has open.
fn open_parts(directory: &Path) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    // Others of this process open and close files meanwhile.
    let paths = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let is_part = |path: &PathBuf| path.starts_with(directory) && path.to_string_lossy().ends_with("-part");
    paths.filter(is_part).count()
}

/// What is sent beyond the half that is there of a file.
const OTHER: [u8; 1] = [7];

/// Addresses of a file of which [`put_halves`] has put a half into the destination.
fn half_addresses() -> Vec<[u8; 32]> {
    let same = vec![0; CHUNK_BYTES as usize];
    vec![chunk_address(0, false, &same), chunk_address(1, false, &OTHER)]
}

/// So many files in whose places others are that differ in their last chunk.
fn put_halves(directory: &Path, count: u64) -> ReceiveOptions {
    for number in 0..count {
        let file = fs::File::create(directory.join(number.to_string())).unwrap();
        file.set_len(CHUNK_BYTES + 1).unwrap();
    }
    let mut options = ReceiveOptions::new(Destination::Directory(directory.to_owned()));
    options.on_conflict = OnConflict::Overwrite;
    options
}

/// Those have their parts open until the network has brought the rest.
#[test]
fn a_file_that_may_be_the_same_is_compared_while_all_parts_that_may_be_open_wait_for_the_network() {
    let count = COMPARED_FILES_MAX as u64;
    let size = CHUNK_BYTES + 1;
    let options = |directory: &Path| {
        fs::write(directory.join("same"), OTHER).unwrap();
        put_halves(directory, count)
    };
    let (received, _) = receive_with(options, &Progress::default(), |liar, _| {
        liar.say(&hello(true, Vec::new()));
        say_all(liar, (0..count).map(|id| file(id, &id.to_string(), size)));
        let mut wanted = 0;
        while wanted < count {
            match liar.hear() {
                Some(Message::Ask { entry }) => liar.say(&Message::Hashes {
                    entry,
                    first: 0,
                    addresses: half_addresses(),
                }),
                Some(Message::Want { .. }) => wanted += 1,
                Some(Message::Hello(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        liar.say(&file(count, "same", 1));
        assert_eq!(liar.hear(), Some(Message::Ask { entry: count }));
        liar.say(&Message::Hashes {
            entry: count,
            first: 0,
            addresses: vec![chunk_address(0, true, &OTHER)],
        });
        let (entry, reason) = (count, SkipReason::Same);
        assert_eq!(liar.hear(), Some(Message::Skip { entry, reason }));
        say_all(
            liar,
            (0..count).map(|entry| Message::Failed {
                entry,
                reason: FailReason::Changed,
                text: "it has changed".to_owned(),
            }),
        );
        liar.say(&Message::OfferEnd {
            entries: count + 1,
            bytes: count * size + 1,
        });
        liar.finish();
    });
    assert_eq!(received.unwrap().failed, count);
}

/// FILE-29: of each file half is there, and the other half does not come.
#[test]
fn of_files_that_are_there_in_part_only_so_many_are_open_as_a_program_can_have() {
    let count = COMPARED_FILES_MAX as u64 + 60;
    let addresses = half_addresses();
    let mut builder = RootBuilder::default();
    for (index, address) in (0..).zip(&addresses) {
        builder.insert(index, *address);
    }
    let root = builder.root(2).unwrap();
    let size = CHUNK_BYTES + 1;
    let (tell, told) = mpsc::channel();
    let options = |directory: &Path| {
        tell.send(directory.to_owned()).unwrap();
        put_halves(directory, count)
    };
    let (received, names) = receive_with(options, &Progress::default(), move |liar, peer| {
        let to: PathBuf = told.recv().unwrap();
        liar.say(&hello(true, Vec::new()));
        say_all(liar, (0..count).map(|id| file(id, &id.to_string(), size)));
        let end = Message::OfferEnd {
            entries: count,
            bytes: count * size,
        };
        liar.say(&end);
        let mut stream = wait(peer.open_one_way(0)).unwrap();
        let (mut waiting, mut stored, mut is_first) = (Vec::new(), 0, true);
        while stored < count {
            match liar.hear() {
                Some(Message::Ask { entry }) => liar.say(&Message::Hashes {
                    entry,
                    first: 0,
                    addresses: addresses.clone(),
                }),
                Some(Message::Want { entry, chunks }) => {
                    assert_eq!(chunks, Ranges::from_range(1..2));
                    waiting.push(entry);
                }
                Some(Message::Stored { entries }) => stored += entries.len(),
                Some(Message::Hello(_) | Message::Ack { .. }) => {}
                other => panic!("{other:?}"),
            }
            if waiting.len() < COMPARED_FILES_MAX.min((count - stored) as usize) {
                continue;
            }
            // No more are opened, whatever time there is.
            let began = Instant::now();
            while is_first && began.elapsed() < Duration::from_millis(500) {
                let open = open_parts(&to);
                assert!(open <= COMPARED_FILES_MAX, "{open} parts are open");
                thread::sleep(Duration::from_millis(5));
            }
            is_first = false;
            for entry in waiting.drain(..) {
                let chunk = Chunk {
                    entry,
                    index: 1,
                    address: addresses[1],
                    only: false,
                    hole: false,
                };
                let head = RecordHead {
                    body: Body::Chunk(chunk),
                    compressed: false,
                    stored_bytes: 1,
                    raw_bytes: 1,
                };
                let record = [&head.encode()[..], &OTHER].concat();
                wait(stream.write_chunk(Bytes::from(record))).unwrap();
                liar.say(&Message::FileEnd { entry, size, root });
            }
        }
        liar.finish();
    });
    assert_eq!(received.unwrap().stored, count);
    assert_eq!(names.len() as u64, count);
}
