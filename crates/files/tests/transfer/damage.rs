//! Parts of files that a disk has damaged before a transfer goes on with them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use files::{DamagedAt, Event, Progress, RateLimit};
use files_proto::journal::{Journal, Reader, Record};
use rustix::fs::{FlockOperation, flock};

use crate::trial::{MIB, Trial, random};

/// What a journal says after another start of the machine: of chunks that its disk had.
fn synced(journal: &Path) -> Option<Journal> {
    let mut reader = Reader::new([9; 16]);
    reader.push(&fs::read(journal).ok()?);
    reader.finish().ok().filter(|journal| !journal.chunks.is_empty())
}

/// What had come of a transfer that was cancelled, once the disk has it: however slow it is, it goes on.
fn kept(trial: &Trial, bytes: u64) -> Journal {
    let deadline = Instant::now() + Duration::from_secs(60);
    let part = fs::File::open(trial.to(".large.gramway-part")).unwrap();
    loop {
        let is_free = flock(&part, FlockOperation::NonBlockingLockExclusive).is_ok();
        match synced(&trial.to(".large.gramway-state")) {
            Some(journal) if is_free && journal.chunks.len() as u64 * MIB as u64 == bytes => return journal,
            journal => assert!(Instant::now() < deadline, "{journal:?}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Leaves the journal that a kill would have left before the disk was asked for anything.
fn unsync(path: &Path, journal: &Journal) {
    let chunks = journal.chunks.iter().map(|(index, address)| Record::Chunk {
        index: *index,
        address: *address,
    });
    let mut bytes = Vec::new();
    for record in [Record::Header(journal.header)].into_iter().chain(chunks) {
        record.encode(&mut bytes);
    }
    fs::write(path, bytes).unwrap();
}

/// Writes something else at these places of a part.
fn damage(part: &Path, chunks: &[u64]) {
    let part = fs::OpenOptions::new().write(true).open(part).unwrap();
    for index in chunks {
        part.write_all_at(&[0; 4_096], index * MIB as u64 + 77).unwrap();
    }
}

/// Goes on with a transfer: bytes that were there, and what of each file was found to be damaged.
fn go_on(trial: &Trial) -> (u64, Vec<(String, u64, DamagedAt)>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = Arc::clone(&told);
    let progress = Progress::new(move |event| {
        if let Event::Damaged { path, bytes, at } = event {
            telling.lock().unwrap().push((path, bytes, at));
        }
    });
    let (sent, received) = trial.run_with(&Progress::default(), &progress);
    sent.unwrap();
    let there = received.unwrap().bytes_there;
    assert_eq!(progress.snapshot().bytes_done, progress.snapshot().bytes_total);
    let told = told.lock().unwrap().clone();
    (there, told)
}

/// FILE-26: less than what the disk is asked for while more comes.
#[test]
fn what_had_come_when_a_transfer_was_cancelled_is_there_after_another_boot() {
    let mut trial = Trial::new();
    fs::write(trial.from("large"), random(9, 30 * MIB)).unwrap();
    trial.send.limit = Some(RateLimit::new(20 << 20));
    let before = trial.cut_after(3 << 20).snapshot().bytes_done;
    kept(&trial, before);
}

/// FILE-26.
#[test]
fn what_a_disk_lost_of_a_part_before_it_was_synced_is_named_and_comes_again() {
    let mut trial = Trial::new();
    fs::write(trial.from("large"), random(9, 30 * MIB)).unwrap();
    trial.send.limit = Some(RateLimit::new(20 << 20));
    let before = trial.cut_after(8 << 20).snapshot().bytes_done;
    unsync(&trial.to(".large.gramway-state"), &kept(&trial, before));
    damage(&trial.to(".large.gramway-part"), &[3]);
    trial.send.limit = None;
    let (there, told) = go_on(&trial);
    assert_eq!(there, before - MIB as u64, "the rest of it counts");
    assert_eq!(told, [("tree/large".to_owned(), MIB as u64, DamagedAt::Disk)]);
    trial.compare();
}

/// FILE-26, FILE-28: also of what the disk is known to have had.
#[test]
fn with_checksums_what_a_disk_has_damaged_since_is_named_and_comes_again() {
    let mut trial = Trial::new();
    fs::write(trial.from("large"), random(9, 100 * MIB)).unwrap();
    let (part, journal) = (trial.to(".large.gramway-part"), trial.to(".large.gramway-state"));
    // Some of it is on the disk long before all has come.
    trial.send.limit = Some(RateLimit::new(10 << 20));
    let received = trial.cut_when(|_| synced(&journal).is_some());
    let chunks: Vec<u64> = synced(&journal).unwrap().chunks.into_keys().collect();
    let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
        unreachable!("it has chunks")
    };
    assert_ne!(first, last, "{chunks:?}");
    damage(&part, &[*first, *last]);
    trial.send.limit = None;
    trial.receive.checksum = true;
    let (there, told) = go_on(&trial);
    assert_eq!(there + 2 * MIB as u64, received.snapshot().bytes_done);
    assert_eq!(told, [("tree/large".to_owned(), 2 * MIB as u64, DamagedAt::Disk)]);
    trial.compare();
    assert_eq!(
        fs::read_dir(trial.to("")).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}
