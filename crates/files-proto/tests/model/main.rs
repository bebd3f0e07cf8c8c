//! A model of both ends, driven by what this crate decides, over control streams and carriers that do their worst:
//! carriers are lost, records come twice, out of order or damaged, sources change, either end is killed at any
//! moment, the power fails, and a disk damages what it had. In the end the tree at the receiver is that of the sender,
//! byte by byte, and what a journal kept is not sent again.
//!
//! The runner of crate `files` has threads and disks; this has neither, so that a seed replays a run.

mod receiver;
mod sender;

use std::collections::{BTreeMap, VecDeque};

use files_proto::limits::CHUNK_BYTES;
use files_proto::message::{Decoder, Message};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use receiver::{Disk, Receiver};
use sender::Sender;

/// What a sender has: content and time of each file by its path.
type Source = BTreeMap<Vec<Vec<u8>>, (Vec<u8>, i64)>;

/// A record on its way: its head, and its body.
type Record = (files_proto::record::RecordHead, Vec<u8>);

const CARRIERS: usize = 3;

/// How often something goes wrong.
#[derive(Clone, Copy)]
struct Faults {
    /// Out of 1,000 steps.
    lost_carrier: u32,
    repeated: u32,
    damaged: u32,
    changed: u32,
    killed: u32,
}

const NONE: Faults = Faults {
    lost_carrier: 0,
    repeated: 0,
    damaged: 0,
    changed: 0,
    killed: 0,
};

const ALL: Faults = Faults {
    lost_carrier: 20,
    repeated: 60,
    damaged: 20,
    changed: 8,
    killed: 25,
};

/// When everything was written at first: no file system that cuts times would have it so, nor what follows soon.
const TIME_NS: i64 = 1_000_000_001;

fn content(random: &mut SmallRng, chunks: u64) -> Vec<u8> {
    let length = random.random_range(0..=chunks * CHUNK_BYTES);
    let mut bytes = vec![0; length as usize];
    // A few bytes of each KiB are enough to make all chunks differ.
    for place in bytes.iter_mut().step_by(613) {
        *place = random.random();
    }
    bytes
}

fn source(random: &mut SmallRng) -> Source {
    let mut source = Source::new();
    for name in [&b"a"[..], b"d/b", b"d/e/c", b"d/e/empty", b"f"] {
        let path = name.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        let bytes = if name.ends_with(b"empty") {
            Vec::new()
        } else {
            content(random, 4)
        };
        source.insert(path, (bytes, TIME_NS));
    }
    for number in 0..12_u8 {
        let length = random.random_range(1..3_000);
        source.insert(
            vec![b"d".to_vec(), vec![b's', b'a' + number]],
            (vec![number; length], TIME_NS),
        );
    }
    source
}

/// A program writes to a file of the source: some bytes, its length, and its time.
fn change(source: &mut Source, random: &mut SmallRng) {
    let paths: Vec<_> = source.keys().cloned().collect();
    let path = paths.choose(random).expect("a source has files");
    let (bytes, modified_ns) = source.get_mut(path).expect("a path of the source");
    *modified_ns += 1;
    if random.random_bool(0.3) {
        bytes.truncate(random.random_range(0..=bytes.len()));
    }
    for _ in 0..2 {
        if !bytes.is_empty() {
            let place = random.random_range(0..bytes.len());
            bytes[place] = bytes[place].wrapping_add(1);
        }
    }
}

/// What one transfer did.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    Killed,
}

/// One direction of the control stream.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    decoder: Decoder,
}

impl Pipe {
    fn send(&mut self, messages: Vec<Message>) {
        let mut out = Vec::new();
        for message in messages {
            message.encode(&mut out);
        }
        self.bytes.extend(out);
    }

    /// Some of what was sent arrives: the messages that are complete.
    fn deliver(&mut self, random: &mut SmallRng) -> Vec<Message> {
        let count = random.random_range(0..=self.bytes.len().min(400));
        let part: Vec<u8> = self.bytes.drain(..count).collect();
        self.decoder.push(&part);
        std::iter::from_fn(|| self.decoder.next_message().expect("a stream of this version")).collect()
    }
}

/// Runs one transfer to its end, or until one of the ends is killed.
fn transfer(
    source: &mut Source,
    disk: &mut Disk,
    faults: Faults,
    random: &mut SmallRng,
    sent: &mut u64,
) -> End {
    let mut sender = Sender::new(source);
    let mut receiver = Receiver::new(disk);
    let (mut to_receiver, mut to_sender) = (Pipe::default(), Pipe::default());
    let mut carriers: [VecDeque<Record>; CARRIERS] = Default::default();
    let happens = |random: &mut SmallRng, per_mille: u32| random.random_ratio(per_mille, 1_000);
    for _ in 0..200_000 {
        to_receiver.send(sender.poll_messages(source));
        to_sender.send(receiver.poll_messages(disk));
        if sender.is_done() && receiver.is_done() {
            disk.sync();
            return End::Done;
        }
        if happens(random, faults.killed) {
            return End::Killed;
        }
        if happens(random, faults.changed) {
            change(source, random);
        }
        match random.random_range(0..5) {
            0 => {
                for message in to_receiver.deliver(random) {
                    receiver.handle_message(message, disk);
                }
            }
            1 => {
                for message in to_sender.deliver(random) {
                    sender.handle_message(message, source);
                }
            }
            2 | 3 => {
                let carrier = random.random_range(0..CARRIERS);
                if let Some(record) = sender.poll_record(source, carrier) {
                    *sent += u64::from(record.0.raw_bytes);
                    carriers[carrier].push_back(record);
                }
            }
            _ => {
                let carrier = random.random_range(0..CARRIERS);
                if happens(random, faults.lost_carrier) {
                    carriers[carrier].clear();
                    sender.handle_lost_carrier(carrier);
                } else if let Some((head, mut body)) = carriers[carrier].pop_front() {
                    if happens(random, faults.repeated) {
                        carriers[carrier].push_back((head, body.clone()));
                    }
                    if happens(random, faults.damaged)
                        && let Some(place) = (!body.is_empty()).then(|| random.random_range(0..body.len()))
                    {
                        body[place] ^= 1;
                    }
                    receiver.handle_record(&head, &body, disk);
                }
            }
        }
    }
    panic!(
        "the transfer stands still: {}, {}",
        sender.state(),
        receiver.state()
    );
}

fn assert_same(source: &Source, disk: &Disk, seed: u64) {
    let there: Vec<_> = disk.files.keys().collect();
    assert_eq!(there, source.keys().collect::<Vec<_>>(), "seed {seed}");
    for (path, (bytes, modified_ns)) in source {
        let file = &disk.files[path];
        assert!(
            file.0 == *bytes && file.1 == *modified_ns,
            "seed {seed}: {path:?}"
        );
    }
    assert!(disk.partials.is_empty(), "seed {seed}: partial files are left");
    assert!(disk.is_settled(), "seed {seed}: something is in doubt");
}

/// FILE-6 to FILE-14, FILE-16, FILE-17, FILE-25 to FILE-29, FILE-35, FILE-46, FILE-47.
#[test]
fn whatever_goes_wrong_the_tree_arrives() {
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut source = source(&mut random);
        let mut disk = Disk::default();
        let mut sent = 0;
        for _ in 0..6 {
            if transfer(&mut source, &mut disk, ALL, &mut random, &mut sent) == End::Killed
                && random.random_bool(0.3)
            {
                disk.power_cut(&mut random);
            }
        }
        assert_eq!(
            transfer(&mut source, &mut disk, NONE, &mut random, &mut sent),
            End::Done
        );
        assert_same(&source, &disk, seed);
    }
}

/// FILE-26, FILE-27: a chunk that the disk has damaged, and that checksums have found once, is not claimed again after
/// a power cut, nor by a transfer without checksums.
#[test]
fn what_was_found_damaged_comes_again_whatever_goes_wrong_afterwards() {
    let kills = Faults { killed: 12, ..NONE };
    let bytes: Vec<u8> = (0..12 * CHUNK_BYTES).map(|place| (place / 1_000) as u8).collect();
    let mut source = Source::from([(vec![b"big".to_vec()], (bytes, TIME_NS))]);
    let mut found = 0;
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut disk = Disk::default();
        let mut sent = 0;
        for round in 0..12 {
            let was_damaged = disk.is_damaged();
            let end = transfer(&mut source, &mut disk, kills, &mut random, &mut sent);
            found += u32::from(was_damaged && !disk.is_damaged() && end == End::Killed);
            if end == End::Killed && random.random_bool(0.5) {
                disk.power_cut(&mut random);
            }
            if round < 8 {
                disk.damage(&mut random);
            }
        }
        let end = transfer(&mut source, &mut disk, NONE, &mut random, &mut sent);
        assert_eq!(end, End::Done, "seed {seed}");
        assert_same(&source, &disk, seed);
    }
    assert!(found > 5, "it was found {found} times");
}

/// FILE-25, FILE-28: a transfer that was killed any number of times sends what is missing, and nothing twice that a
/// journal kept.
#[test]
fn what_a_journal_kept_is_not_sent_again() {
    let kills = Faults { killed: 8, ..NONE };
    for seed in 0..30 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut source = source(&mut random);
        let mut disk = Disk::default();
        let mut sent = 0;
        loop {
            let before = disk.written;
            let kept = disk.missing(&source);
            let mut sent_here = 0;
            let end = transfer(&mut source, &mut disk, kills, &mut random, &mut sent_here);
            // All that was written here was missing before.
            assert!(disk.written - before <= kept, "seed {seed}");
            assert!(
                sent_here <= kept + Disk::PACK_HEADS,
                "seed {seed}: {sent_here} sent, {kept} were missing"
            );
            sent += sent_here;
            if end == End::Done {
                break;
            }
        }
        assert_same(&source, &disk, seed);
        let again = &mut 0;
        assert_eq!(
            transfer(&mut source, &mut disk, NONE, &mut random, again),
            End::Done
        );
        assert_eq!(*again, 0, "seed {seed}");
        assert!(sent > 0);
    }
}

/// FILE-29: of a file that grew or changed in one place, only the chunks that differ are sent.
#[test]
fn of_a_partial_file_whose_source_changed_only_the_changed_chunks_are_sent() {
    let mut random = SmallRng::seed_from_u64(1);
    let path = vec![b"big".to_vec()];
    let bytes: Vec<u8> = (0..8 * CHUNK_BYTES).map(|place| (place / 1_000) as u8).collect();
    let mut source = Source::from([(path.clone(), (bytes, TIME_NS))]);
    let mut disk = Disk::default();
    // Killed when half of it is there.
    while disk
        .partials
        .get(&path)
        .is_none_or(|partial| partial.chunks() < 4)
    {
        transfer(
            &mut source,
            &mut disk,
            Faults { killed: 30, ..NONE },
            &mut random,
            &mut 0,
        );
        assert!(disk.files.is_empty());
    }
    let there = disk.partials[&path].chunks();
    let first = *disk.partials[&path]
        .journal(disk.boot)
        .chunks
        .keys()
        .next()
        .expect("some are there");
    let (bytes, modified_ns) = source.get_mut(&path).expect("it is there");
    bytes[(first * CHUNK_BYTES) as usize + 7] ^= 1;
    *modified_ns += 1;
    let mut sent = 0;
    assert_eq!(
        transfer(&mut source, &mut disk, NONE, &mut random, &mut sent),
        End::Done
    );
    assert_same(&source, &disk, 1);
    assert_eq!(sent, (8 - there + 1) * CHUNK_BYTES);
}
