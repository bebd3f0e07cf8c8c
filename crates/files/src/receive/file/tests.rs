//! What a file takes, keeps, forgets and wants.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use files_proto::content::chunk_address;
use files_proto::journal::{Journal, Reader};

use super::*;
use crate::room::There;
use crate::room::tests::{FREE, promised, with_free};

fn target(size: u64) -> Target {
    Target {
        entry: 0,
        path: PathBuf::from("file"),
        part: PathBuf::from(".part"),
        journal: PathBuf::from(".journal"),
        size: Some(size),
        mode: 0o644,
        modified: 5,
        attributes: Vec::new(),
        replaces: false,
    }
}

fn chunk(index: u64, bytes: &[u8]) -> Chunk {
    Chunk {
        entry: 0,
        index,
        address: chunk_address(index, false, bytes),
        only: false,
        hole: false,
    }
}

#[test]
fn a_thread_that_comes_late_to_a_file_that_failed_takes_nothing_away() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let bytes = vec![7; CHUNK_BYTES as usize];
    let output = Output::Part(Part::new(&destination, None));
    let file = Incoming::new(target(3 << 20), output, &BTreeMap::new());
    assert_eq!(file.store(&chunk(0, &bytes), &bytes).unwrap(), Progressed::More);
    file.abandon(FailReason::NoSpace);
    let late = file.store(&chunk(1, &bytes), &bytes);
    assert!(matches!(late, Err(StoreError::Write(_))), "{late:?}");
    let journal = JournalFile::read(&destination, Path::new(".journal")).unwrap();
    assert_eq!(journal.chunks.keys().copied().collect::<Vec<u64>>(), [0]);
    assert_eq!(
        fs::metadata(directory.path().join(".part")).unwrap().len(),
        3 << 20
    );
}

#[test]
fn what_cannot_be_begun_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let bytes = vec![7; 1 << 20];
    let output = Output::Part(Part::new(&destination, None));
    // No file system takes a file of this size.
    let file = Incoming::new(target(1 << 63), output, &BTreeMap::new());
    let stored = file.store(&chunk(0, &bytes), &bytes);
    assert!(matches!(stored, Err(StoreError::Write(_))), "{stored:?}");
    file.abandon(FailReason::Limit);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// FILE-24.
#[test]
fn a_file_that_gets_its_place_leaves_alone_what_another_receive_has_begun_there() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let bytes = vec![7; 1 << 20];
    let output = Output::Part(Part::new(&destination, None));
    let file = Incoming::new(target(2 << 20), output, &BTreeMap::new());
    file.store(&chunk(0, &bytes), &bytes).unwrap();
    let journal = directory.path().join(".journal");
    file.place(|_| {
        fs::remove_file(&journal).unwrap();
        fs::write(&journal, "the other's").unwrap();
    })
    .unwrap();
    assert_eq!(fs::read(&journal).unwrap(), b"the other's");
}

/// Killed before it has its place, it could not be gone on with otherwise.
#[test]
fn a_part_keeps_the_bits_by_which_its_owner_opens_it_until_it_has_its_place() {
    for mode in [0o000, 0o200, 0o444, 0o640] {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(Destination::open(directory.path()).unwrap());
        let bytes = vec![7; 1 << 20];
        let output = Output::Part(Part::new(&destination, None));
        let target = Target {
            mode,
            ..target(1 << 20)
        };
        let file = Incoming::new(target, output, &BTreeMap::new());
        file.store(&chunk(0, &bytes), &bytes).unwrap();
        let mode_of = |metadata: fs::Metadata| metadata.permissions().mode() & 0o777;
        file.place(|file| assert_eq!(mode_of(file.metadata().unwrap()) & 0o600, 0o600))
            .unwrap();
        let placed = fs::metadata(directory.path().join("file")).unwrap();
        assert_eq!(mode_of(placed), mode & !crate::processor::umask());
    }
}

/// Whoever still has it, as one that waits for the disk.
#[test]
fn a_file_in_its_place_is_neither_open_nor_claimed() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let bytes = vec![7; 1 << 20];
    let output = Output::Part(Part::new(&destination, None));
    let file = Incoming::new(target(1 << 20), output, &BTreeMap::new());
    file.store(&chunk(0, &bytes), &bytes).unwrap();
    file.place(|_| ()).unwrap();
    assert!(destination.claim(Path::new("file")).unwrap().is_some());
    file.sync().unwrap();
    file.abandon(FailReason::NoSpace);
    assert!(directory.path().join("file").exists());
}

/// A pipe whose reader takes something when it is let.
struct Held(Sender<usize>, Receiver<()>);

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.len()).map_err(io::Error::other)?;
        self.1.recv().map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// FILE-19: another carrier may bring it as well.
#[test]
fn a_chunk_that_comes_again_while_it_is_written_is_left_to_who_writes_it() {
    let (told, begun) = mpsc::channel();
    let (let_go, held) = mpsc::channel();
    let output = Output::Stdout(Ordered::new(Held(told, held)));
    let file = Incoming::new(target(2 << 20), output, &BTreeMap::new());
    let bytes = vec![7; CHUNK_BYTES as usize];
    let store = || file.store(&chunk(0, &bytes), &bytes).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(store);
        assert_eq!(begun.recv().unwrap(), bytes.len());
        let (told, outcome) = mpsc::channel();
        scope.spawn(move || told.send(store()));
        let again = outcome.recv_timeout(Duration::from_secs(10));
        let_go.send(()).unwrap();
        assert_eq!(again, Ok(Progressed::InOtherHands), "nobody waits for it");
        assert_eq!(first.join().unwrap(), Progressed::More);
    });
    assert_eq!(store(), Progressed::Known);
    assert!(begun.try_recv().is_err(), "it was written once");
}

/// FILE-14.
#[test]
fn chunks_on_the_way_to_standard_output_are_wanted_in_their_order_whichever_thread_wants_them() {
    let output = Output::Stdout(Ordered::new(io::sink()));
    let count = ORDERED_CHUNKS + 2;
    let file = Incoming::new(target(count * CHUNK_BYTES), output, &BTreeMap::new());
    let mut windows = Vec::new();
    let mut want = || {
        file.want_window(|chunks| {
            assert!(
                file.state.try_lock().is_err(),
                "another thread could want what is behind"
            );
            windows.extend(chunks.iter());
        })
    };
    assert!(want() && want());
    let bytes = vec![7; CHUNK_BYTES as usize];
    for index in 0..3 {
        file.store(&chunk(index, &bytes), &bytes).unwrap();
        assert!(want());
    }
    let expected = [
        0..ORDERED_CHUNKS,
        ORDERED_CHUNKS..ORDERED_CHUNKS + 1,
        ORDERED_CHUNKS + 1..count,
    ];
    assert_eq!(windows, expected);
}

#[test]
fn what_comes_again_after_damage_is_in_nobodys_hands_and_not_acknowledged_before() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let bytes = vec![7; CHUNK_BYTES as usize];
    let output = Output::Part(Part::new(&destination, None));
    let file = Incoming::new(target(2 << 20), output, &BTreeMap::new());
    let is_acknowledged = |index| {
        let mut is_acknowledged = false;
        file.acknowledge(index, || is_acknowledged = true);
        is_acknowledged
    };
    assert_eq!(file.end(2 << 20, [0; 32]).unwrap(), Progressed::More);
    assert_eq!(file.store(&chunk(0, &bytes), &bytes).unwrap(), Progressed::More);
    assert!(is_acknowledged(0));
    // By another thread, before the first one has told of its chunk.
    assert_eq!(
        file.store(&chunk(1, &bytes), &bytes).unwrap(),
        Progressed::Damaged
    );
    assert!(file.restart());
    assert!(!is_acknowledged(0) && !is_acknowledged(1));
    assert_eq!(file.store(&chunk(0, &bytes), &bytes).unwrap(), Progressed::More);
    assert!(is_acknowledged(0) && !is_acknowledged(1));
}

#[test]
fn a_file_that_was_made_in_the_place_meanwhile_stays() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let bytes = vec![7; CHUNK_BYTES as usize];
    let output = Output::Part(Part::new(&destination, None));
    let file = Incoming::new(target(2 << 20), output, &BTreeMap::new());
    for index in 0..2 {
        file.store(&chunk(index, &bytes), &bytes).unwrap();
    }
    assert_eq!(file.complete_by_itself(), Progressed::Complete);
    fs::write(directory.path().join("file"), "the user's").unwrap();
    assert_eq!(
        file.place(|_| ()).unwrap_err().kind(),
        io::ErrorKind::AlreadyExists
    );
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"the user's");
}

#[test]
fn room_is_made_for_what_comes_and_holes_stay_holes() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let output = Output::Part(Part::new(&destination, None));
    let count = 2 * PREALLOCATED_CHUNKS;
    let file = Incoming::new(target(count * CHUNK_BYTES - 5), output, &BTreeMap::new());
    let (bytes, zeros) = (vec![7; CHUNK_BYTES as usize], vec![0; CHUNK_BYTES as usize]);
    let hole = |index| Chunk {
        hole: true,
        ..chunk(index, &zeros)
    };
    let chunks_on_disk = || {
        let metadata = fs::metadata(directory.path().join(".part")).unwrap();
        assert_eq!(metadata.len(), count * CHUNK_BYTES - 5);
        metadata.blocks() * 512 / CHUNK_BYTES
    };
    file.store(&hole(3), &zeros).unwrap();
    file.store(&chunk(5, &bytes), &bytes).unwrap();
    // A hole that has come stays one; file systems that cannot make room have written one chunk.
    let on_disk = chunks_on_disk();
    assert!([1, PREALLOCATED_CHUNKS - 1].contains(&on_disk), "{on_disk}");
    for index in (0..PREALLOCATED_CHUNKS).filter(|index| *index != 5) {
        file.store(&hole(index), &zeros).unwrap();
    }
    assert_eq!(chunks_on_disk(), 1);
}

/// Two chunks of a file of three are on the disk.
fn leave_part(destination: &Arc<Destination>, bytes: &[u8]) {
    let output = Output::Part(Part::new(destination, None));
    let file = Incoming::new(target(3 << 20), output, &BTreeMap::new());
    for index in [0, 1] {
        file.store(&chunk(index, bytes), bytes).unwrap();
    }
    file.sync_for_good().unwrap();
}

/// The file has this size by now, and another time.
fn changed(destination: &Arc<Destination>, size: u64) -> Incoming {
    let kept = destination.write(Path::new(".part")).unwrap();
    let there = There {
        part: Some(&kept),
        is_replaced: false,
    };
    let room = destination.check_room(Path::new("file"), there, size).unwrap();
    let target = Target {
        modified: 6,
        ..target(size)
    };
    let output = Output::Part(Part::former(destination).with_room(room));
    Incoming::new(target, output, &BTreeMap::new())
}

/// FILE-29, FILE-35.
#[test]
fn what_came_of_a_file_as_it_was_stays_until_it_is_known_what_of_it_is_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let destination = Arc::new(Destination::open(directory.path()).unwrap());
    let read = |name: &str| fs::read(directory.path().join(name)).unwrap();
    let (bytes, other) = (vec![7; CHUNK_BYTES as usize], vec![8; CHUNK_BYTES as usize]);
    leave_part(&destination, &bytes);
    let (part, journal) = (read(".part"), read(".journal"));
    let file = changed(&destination, 2 << 20);
    // Nobody has wanted it.
    let early = file.store(&chunk(1, &other), &other).unwrap();
    assert_eq!((early, file.has(1)), (Progressed::Known, false));
    file.sync().unwrap();
    file.abandon(FailReason::Changed);
    let read_by_one = changed(&destination, 2 << 20);
    let former = read_by_one.former().unwrap().unwrap();
    assert!(destination.claim(Path::new(".part")).is_err(), "it is being read");
    read_by_one.abandon(FailReason::Changed);
    assert!(read_by_one.go_on_with(former, &[]).is_err());
    assert!((read(".part"), read(".journal")) == (part, journal));
    // Somebody has removed it.
    let file = changed(&destination, 2 << 20);
    fs::remove_file(directory.path().join(".part")).unwrap();
    assert!(file.former().unwrap().is_none());
    assert_eq!(file.store(&chunk(1, &other), &other).unwrap(), Progressed::More);
    assert_eq!(file.missing(), Ranges::from_range(0..1));
}

/// FILE-27, FILE-29: it takes its room once.
#[test]
fn what_did_not_change_is_gone_on_with_in_its_place_and_outlives_the_machine() {
    // It has become shorter, stayed as long, become longer.
    for count in 2..=4 {
        let directory = tempfile::tempdir().unwrap();
        let destination = Arc::new(with_free(&directory));
        FREE.set(2 << 20);
        let read = |name: &str| fs::read(directory.path().join(name)).unwrap();
        let (bytes, other) = (vec![7; CHUNK_BYTES as usize], vec![8; CHUNK_BYTES as usize]);
        leave_part(&destination, &bytes);
        let blocks = || fs::metadata(directory.path().join(".part")).unwrap().blocks();
        let blocks_before = blocks();
        let file = changed(&destination, count * CHUNK_BYTES);
        let former = file.former().unwrap().unwrap();
        file.go_on_with(former, &[(0, chunk(0, &bytes).address)]).unwrap();
        assert!(blocks() <= blocks_before);
        assert!(promised(&destination) <= i128::from((count - 2) * CHUNK_BYTES));
        // After another start of the machine, at this moment.
        let mut reader = Reader::new([9; 16]);
        reader.push(&read(".journal"));
        let Journal {
            header,
            chunks,
            is_settled,
            ..
        } = reader.finish().unwrap();
        assert!(is_settled);
        assert_eq!((header.size, header.modified_ns), (count * CHUNK_BYTES, 6));
        assert_eq!(chunks.into_keys().collect::<Vec<u64>>(), [0]);
        assert_eq!(file.missing(), Ranges::from_range(1..count));
        for index in 1..count {
            file.store(&chunk(index, &other), &other).unwrap();
        }
        assert_eq!(file.complete_by_itself(), Progressed::Complete);
        file.place(|_| ()).unwrap();
        let expected = [bytes, other.repeat(count as usize - 1)].concat();
        assert!(read("file") == expected);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
