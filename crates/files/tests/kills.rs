//! Ends in processes of their own. Where they are killed, what had come is not sent again, and in the end the tree is
//! the sender's, byte by byte and with its metadata; standard input and output are pipes.
#![expect(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

use std::fs;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use files::limits::CACHE_TURN_BYTES;
use files::{Destination, Progress, ReceiveOptions, SendOptions, Source, TransferError};
use peer::blocking::wait;
use peer::{Endpoint, SecretKey};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

const MIB: u64 = 1 << 20;

/// What a process of this test is to do, and its arguments, one a line.
const ROLE: &str = "GRAMWAY_TEST_ROLE";

/// Bytes a second of a sender that is killed: fast enough for tests, and slow enough to be killed in the middle.
const LIMIT: u64 = 60 << 20;

/// How often each end is killed.
const KILLS: u32 = 20;

/// The other processes begin here: as tests of this binary, which are nothing without a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let arguments: Vec<&str> = role.lines().collect();
    match arguments[..] {
        ["send", from, state, limit] => {
            let sources = vec![Source::Path(from.into())];
            send(sources, Some(state.into()), limit.parse().ok());
        }
        ["stdin"] => {
            let name = "stdin".to_owned();
            send(vec![Source::Stdin { name }], None, None);
        }
        ["receive", address, to] => receive(address.parse().unwrap(), Destination::Directory(to.into())),
        ["stdout", address] => receive(address.parse().unwrap(), Destination::Stdout),
        ["cancelled", address] => receive_until_stdin_ends(address.parse().unwrap()),
        _ => panic!("{role}"),
    }
}

fn sender_key() -> SecretKey {
    SecretKey::from_bytes([1; 32])
}

/// Says where it listens, and sends to whoever comes.
fn send(sources: Vec<Source>, state: Option<PathBuf>, limit: Option<u64>) {
    let builder = Endpoint::builder(sender_key()).idle_timeout(Duration::from_secs(10));
    let endpoint = builder.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    println!("address {}", endpoint.local_addr());
    let peer = wait(endpoint.accept()).unwrap();
    let options = SendOptions {
        sources,
        state,
        limit: limit.map(files::RateLimit::new),
        ..SendOptions::default()
    };
    let sent = files::send(&peer, &options, &Progress::default());
    if let Ok(report) = &sent {
        println!("hashed {}", report.bytes_hashed);
    }
    println!("ended {}", sent.is_ok());
}

/// Receives, and says how many bytes have come whenever there are more.
fn receive(address: SocketAddr, to: Destination) {
    let key = SecretKey::generate().unwrap();
    let endpoint = Endpoint::bind(key, "127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = wait(endpoint.connect(sender_key().id(), &[address])).unwrap();
    let options = ReceiveOptions::new(to);
    let (progress, is_over) = (Progress::default(), AtomicBool::new(false));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            let mut told = 0;
            while !is_over.load(Ordering::SeqCst) {
                let done = progress.snapshot().bytes_done;
                if done > told {
                    println!("done {done}");
                    told = done;
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let report = files::receive(&peer, &options, &progress);
        is_over.store(true, Ordering::SeqCst);
        report
    });
    let report = report.unwrap();
    println!("there {}", report.bytes_there);
    println!("ended {}", report.failed == 0);
}

/// Receives to standard output until standard input ends.
fn receive_until_stdin_ends(address: SocketAddr) {
    let key = SecretKey::generate().unwrap();
    let endpoint = Endpoint::bind(key, "127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = wait(endpoint.connect(sender_key().id(), &[address])).unwrap();
    let progress = Progress::default();
    let received = thread::scope(|scope| {
        scope.spawn(|| {
            io::copy(&mut io::stdin(), &mut io::sink()).unwrap();
            progress.cancel();
        });
        files::receive(&peer, &ReceiveOptions::new(Destination::Stdout), &progress)
    });
    assert!(matches!(received, Err(TransferError::Cancelled)), "{received:?}");
    // Nobody reads what the library of tests would say.
    std::process::exit(77);
}

/// A process of this test, killed at the end of its scope.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn spawn(role: &[&str]) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture", "--test-threads=1"])
            .env(ROLE, role.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn start(role: &[&str]) -> Self {
        let mut child = Self::spawn(role);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The value of the next line that begins with this word; `None` where the process ends before.
    fn told(&mut self, word: &str) -> Option<String> {
        let lines = self.lines.by_ref().map_while(Result::ok);
        // The first line of a test is the name that its runner writes before it.
        let mut values = lines.filter_map(|line| Some(line.split_once(&format!("{word} "))?.1.to_owned()));
        values.next()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Bytes of the files of a tree that have no journal: those of one chunk, and small ones, count once they have their
/// names.
const UNKEPT: u64 = MIB + 70_000 + 150 * 3_000;

fn grow(tree: &Path, random: &mut SmallRng) {
    fs::create_dir_all(tree.join("deep/deeper")).unwrap();
    let lengths = [24 * MIB + 17, 9 * MIB, 3 * MIB + 1, MIB, 70_000];
    for (number, length) in lengths.into_iter().enumerate() {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        random.fill(&mut bytes[..]);
        fs::write(tree.join(format!("deep/{number}")), bytes).unwrap();
    }
    for number in 0..150 {
        let bytes: [u8; 3_000] = std::array::from_fn(|_| random.random());
        fs::write(tree.join(format!("deep/deeper/{number}")), bytes).unwrap();
    }
    std::os::unix::fs::symlink("deep/0", tree.join("link")).unwrap();
    seal(tree, 0o555);
}

/// Gives directories that are not done when an end is killed this mode, which is none to fill them with (FILE-38).
fn seal(tree: &Path, mode: u32) {
    for name in ["deep/deeper", "deep"] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Both are the same, byte by byte and by kind, mode and time.
fn compare(from: &Path, to: &Path) {
    let metadata = |path| {
        let metadata = fs::symlink_metadata(path).unwrap();
        (
            metadata.file_type(),
            metadata.mode(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        )
    };
    assert_eq!(metadata(from), metadata(to), "{to:?}");
    if from.is_symlink() {
        assert_eq!(fs::read_link(from).unwrap(), fs::read_link(to).unwrap());
    } else if from.is_dir() {
        let names = |path: &Path| {
            let names = fs::read_dir(path).unwrap();
            let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(from), names(to), "{to:?}");
        names(from)
            .iter()
            .for_each(|name| compare(&from.join(name), &to.join(name)));
    } else {
        assert!(
            fs::read(from).unwrap() == fs::read(to).unwrap(),
            "{to:?} has other bytes"
        );
    }
}

/// FILE-24 to FILE-28, FILE-38.
#[test]
fn whenever_an_end_is_killed_what_had_come_stays_and_the_tree_arrives() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    for kills_sender in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (from, to, state) = (path("from/tree"), path("to"), path("state"));
        fs::create_dir(&to).unwrap();
        grow(&from, &mut random);
        let start = |limit: &str| {
            let mut sender =
                Process::start(&["send", from.to_str().unwrap(), state.to_str().unwrap(), limit]);
            let address = sender.told("address").unwrap();
            let receiver = Process::start(&["receive", &address, to.to_str().unwrap()]);
            (sender, receiver)
        };
        let (mut come, mut kills) = (0_u64, 0);
        while kills < KILLS {
            let (sender, mut receiver) = start(&LIMIT.to_string());
            // Some are killed before anything has come.
            let until = come + random.random_range(0..3 * MIB);
            let mut done = 0;
            while done < until {
                match receiver.told("done") {
                    Some(bytes) => done = bytes.parse().unwrap(),
                    None => break,
                }
            }
            come = come.max(done);
            kills += 1;
            match kills_sender {
                true => sender.kill(),
                false => receiver.kill(),
            }
        }
        assert!(come > 8 * MIB, "they were killed in the middle: seed {seed}");
        let (mut sender, mut receiver) = start("none");
        let there: u64 = receiver.told("there").unwrap().parse().unwrap();
        assert!(
            there + UNKEPT >= come,
            "{there} of {come} bytes were there: seed {seed}"
        );
        assert_eq!(receiver.told("ended").as_deref(), Some("true"), "seed {seed}");
        assert_eq!(sender.told("ended").as_deref(), Some("true"), "seed {seed}");
        compare(&from, &to.join("tree"));
        // To be removed.
        seal(&from, 0o755);
        seal(&to.join("tree"), 0o755);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1, "seed {seed}");
    }
}

/// What a sender has read it knows after a kill, too, but for the last of it.
#[test]
fn a_sender_that_is_killed_does_not_hash_everything_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (from, to, state) = (path("from"), path("to"), path("state"));
    fs::create_dir(&to).unwrap();
    let size = CACHE_TURN_BYTES + CACHE_TURN_BYTES / 2;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    SmallRng::seed_from_u64(7).fill(&mut bytes[..]);
    fs::write(&from, bytes).unwrap();
    let start = |limit: &str| {
        let mut sender = Process::start(&["send", from.to_str().unwrap(), state.to_str().unwrap(), limit]);
        let address = sender.told("address").unwrap();
        let receiver = Process::start(&["receive", &address, to.to_str().unwrap()]);
        (sender, receiver)
    };
    let limit = (CACHE_TURN_BYTES / 4).to_string();
    let (sender, mut receiver) = start(&limit);
    let deadline = Instant::now() + Duration::from_secs(60);
    // Under its own name: what is being written has another one beside it.
    let is_kept = || {
        let entries = fs::read_dir(state.join("files")).into_iter().flatten();
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.any(|name| !name.contains('.'))
    };
    while !is_kept() {
        assert!(
            Instant::now() < deadline,
            "addresses are kept while a file is read"
        );
        thread::sleep(Duration::from_millis(5));
    }
    // What is known and there as well counts.
    let mut done = 0;
    while done < CACHE_TURN_BYTES / 2 {
        done = receiver.told("done").unwrap().parse().unwrap();
    }
    sender.kill();
    drop(receiver);
    assert!(!to.join("from").exists(), "it was killed in the middle");
    let (mut sender, mut receiver) = start("none");
    assert_eq!(receiver.told("ended").as_deref(), Some("true"));
    let hashed: u64 = sender.told("hashed").unwrap().parse().unwrap();
    assert_eq!(sender.told("ended").as_deref(), Some("true"));
    assert!(hashed < size, "{hashed} of {size} bytes");
    assert!(fs::read(&from).unwrap() == fs::read(to.join("from")).unwrap());
}

/// FILE-24: of a log that was cut off after the transfer of it was killed, nothing of the former one stays.
#[test]
fn a_large_file_that_comes_again_as_a_small_one_leaves_no_part_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (from, to, state) = (path("from.log"), path("to"), path("state"));
    fs::create_dir(&to).unwrap();
    fs::write(&from, vec![7; 24 * MIB as usize]).unwrap();
    let start = || {
        let limit = LIMIT.to_string();
        let mut sender = Process::start(&["send", from.to_str().unwrap(), state.to_str().unwrap(), &limit]);
        let address = sender.told("address").unwrap();
        let receiver = Process::start(&["receive", &address, to.to_str().unwrap()]);
        (sender, receiver)
    };
    let names = || {
        let names = fs::read_dir(&to).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (_sender, mut receiver) = start();
    assert!(receiver.told("done").is_some());
    receiver.kill();
    assert_eq!(names(), [".from.log.gramway-part", ".from.log.gramway-state"]);
    fs::write(&from, "cut off").unwrap();
    let (_sender, mut receiver) = start();
    assert_eq!(receiver.told("ended").as_deref(), Some("true"));
    assert_eq!(names(), ["from.log"]);
    assert_eq!(fs::read(to.join("from.log")).unwrap(), b"cut off");
}

/// FILE-15: what was read of standard input cannot be read again; the sender ends, and waits for no more of it.
#[test]
fn who_sends_standard_input_ends_with_the_connection() {
    let mut sender = Process::start(&["stdin"]);
    let address = sender.told("address").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut receiver = Process::start(&["receive", &address, directory.path().to_str().unwrap()]);
    let mut stdin = sender.child.stdin.take().unwrap();
    stdin.write_all(&vec![7; 3 * MIB as usize]).unwrap();
    assert!(receiver.told("done").is_some());
    receiver.kill();
    assert_eq!(sender.told("ended").as_deref(), Some("false"));
    let names = fs::read_dir(directory.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.contains(&"stdin".into()), "{names:?}");
    drop(stdin);
}

/// FILE-39.
#[test]
fn a_line_is_passed_on_while_its_pipe_stays_open() {
    let mut sender = Process::start(&["stdin"]);
    let address = sender.told("address").unwrap();
    let mut receiver = Process::start(&["stdout", &address]);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        // Its end comes at the latest with that of this scope.
        let mut stdin = sender.child.stdin.take().unwrap();
        let receiver = &mut receiver;
        scope.spawn(move || {
            while let Some(line) = receiver.told("line") {
                tell.send(line).unwrap();
            }
        });
        for line in ["1", "2"] {
            writeln!(stdin, "line {line}").unwrap();
            assert_eq!(told.recv_timeout(Duration::from_secs(20)).as_deref(), Ok(line));
        }
    });
    assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    assert_eq!(sender.told("ended").as_deref(), Some("true"));
}

#[test]
fn who_cancels_ends_also_while_nobody_reads_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (from, state) = (path("from"), path("state"));
    fs::write(&from, vec![7; 8 * MIB as usize]).unwrap();
    let mut sender = Process::start(&["send", from.to_str().unwrap(), state.to_str().unwrap(), "none"]);
    let address = sender.told("address").unwrap();
    let mut receiver = Process::spawn(&["cancelled", &address]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let waits = || assert!(Instant::now() < deadline, "it does not go on");
    // Its pipe is as good as full.
    while rustix::io::ioctl_fionread(receiver.stdout.as_ref().unwrap()).unwrap() < 50_000 {
        waits();
        thread::sleep(Duration::from_millis(5));
    }
    drop(receiver.stdin.take());
    let ended = loop {
        if let Some(ended) = receiver.try_wait().unwrap() {
            break ended;
        }
        if Instant::now() > deadline {
            receiver.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended.code(), Some(77));
}
