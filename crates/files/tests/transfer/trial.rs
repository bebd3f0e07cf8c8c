//! What the tests of transfers share: a source, a destination and two endpoints, trees, and comparing them.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use files::{Destination, Progress, ReceiveOptions, Report, SendOptions, Source, TransferError};
use rand::{Rng, SeedableRng};

use crate::common::pair;

pub(crate) const MIB: usize = 1 << 20;

pub(crate) fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    rand::rngs::SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

pub(crate) struct Trial {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) send: SendOptions,
    pub(crate) receive: ReceiveOptions,
}

pub(crate) type Ended = Result<Report, TransferError>;

impl Trial {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["from", "to", "state"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let send = SendOptions {
            sources: vec![Source::Path(directory.path().join("from/tree"))],
            state: Some(directory.path().join("state")),
            ..SendOptions::default()
        };
        let receive = ReceiveOptions::new(Destination::Directory(directory.path().join("to")));
        fs::create_dir(directory.path().join("from/tree")).unwrap();
        Self {
            directory,
            send,
            receive,
        }
    }

    pub(crate) fn from(&self, name: &str) -> PathBuf {
        self.directory.path().join("from/tree").join(name)
    }

    pub(crate) fn to(&self, name: &str) -> PathBuf {
        self.directory.path().join("to/tree").join(name)
    }

    /// Runs until so many bytes have come, and cancels at the receiver: what it had then.
    pub(crate) fn cut_after(&self, bytes: u64) -> Progress {
        self.cut_when(|received| received.snapshot().bytes_done >= bytes)
    }

    /// Runs until this is so, and cancels at the receiver: what it had then.
    pub(crate) fn cut_when(&self, is_so: impl Fn(&Progress) -> bool) -> Progress {
        let (sent, received) = (Progress::default(), Progress::default());
        thread::scope(|scope| {
            let running = scope.spawn(|| self.run_with(&sent, &received));
            while !is_so(&received) {
                assert!(!running.is_finished(), "it ended before");
                thread::sleep(Duration::from_millis(1));
            }
            received.cancel();
            assert!(running.join().unwrap().1.is_err());
        });
        received
    }

    pub(crate) fn run_with(&self, sent: &Progress, received: &Progress) -> (Ended, Ended) {
        let (to_receiver, to_sender) = pair();
        thread::scope(|scope| {
            let sending = scope.spawn(|| files::send(&to_receiver, &self.send, sent));
            let received = files::receive(&to_sender, &self.receive, received);
            (sending.join().unwrap(), received)
        })
    }

    pub(crate) fn run(&self) -> Report {
        let (sent, received) = self.run_with(&Progress::default(), &Progress::default());
        let (sent, received) = (sent.unwrap(), received.unwrap());
        assert_eq!(
            (sent.stored, sent.failed),
            (received.stored, received.failed),
            "{sent:?} {received:?}"
        );
        received
    }

    pub(crate) fn compare(&self) {
        compare(&self.from(""), &self.to(""));
    }
}

/// Both trees are the same, byte by byte and by mode, time and link.
pub(crate) fn compare(from: &Path, to: &Path) {
    let names = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let (there, here) = (
        fs::symlink_metadata(from).unwrap(),
        fs::symlink_metadata(to).unwrap(),
    );
    assert_eq!(there.file_type(), here.file_type(), "{to:?}");
    assert_eq!(
        (there.mtime(), there.mtime_nsec()),
        (here.mtime(), here.mtime_nsec()),
        "{to:?}"
    );
    if there.is_symlink() {
        assert_eq!(fs::read_link(from).unwrap(), fs::read_link(to).unwrap());
        return;
    }
    assert_eq!(there.mode(), here.mode(), "{to:?}");
    if there.is_dir() {
        assert_eq!(names(from), names(to), "{to:?}");
        for name in names(from) {
            compare(&from.join(&name), &to.join(&name));
        }
    } else {
        assert!(
            fs::read(from).unwrap() == fs::read(to).unwrap(),
            "{to:?} has other bytes"
        );
    }
}

/// A tree with everything that there is in trees.
pub(crate) fn grow(trial: &Trial) {
    fs::create_dir_all(trial.from("deep/deeper/empty")).unwrap();
    for (name, length) in [
        ("empty", 0),
        ("one", 1),
        ("deep/packed", 64 << 10),
        ("deep/single", (64 << 10) + 1),
        ("deep/whole", MIB),
        ("deep/deeper/large", 7 * MIB + 12_345),
        (" -strange \u{e9}\n*name", 77),
    ] {
        fs::write(trial.from(name), random(length as u64, length)).unwrap();
    }
    for number in 0..300 {
        fs::write(trial.from(&format!("deep/small-{number}")), random(number, 4_096)).unwrap();
    }
    fs::write(trial.from("deep/text"), "the same line again\n".repeat(200_000)).unwrap();
    let mut sparse = fs::File::create(trial.from("sparse")).unwrap();
    sparse.set_len(20 << 20).unwrap();
    sparse.seek(SeekFrom::Start(9 << 20)).unwrap();
    sparse.write_all(b"in the middle").unwrap();
    symlink("deep/one", trial.from("link")).unwrap();
    symlink("../tree/deep", trial.from("deep/up")).unwrap();
    fs::set_permissions(trial.from("one"), fs::Permissions::from_mode(0o751)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(trial.from("deep/whole"))
        .unwrap()
        .set_modified(then)
        .unwrap();
    fs::set_permissions(trial.from("deep/deeper"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::File::open(trial.from("deep/deeper"))
        .unwrap()
        .set_modified(then)
        .unwrap();
}
