//! Ends that are killed, and clocks that jump: what has come stays, and in the end both trees are the same.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::thread;
use std::time::{Duration, SystemTime};

use super::*;

/// Kills of each end.
const KILLS: u64 = 20;

/// How long an end lives at most after it was started, or the first file has come, before it is killed: long enough for
/// some megabytes, short enough that they are seldom all.
const LIFE_MAX: Duration = Duration::from_millis(500);

/// Makes one run repeat another one's moments, as far as the machine does.
const SEED: &str = "GRAMWAY_TEST_SEED";

/// Numbers that nobody foresees, unless the seed is given.
struct Random(u64);

impl Random {
    /// Prints its seed, which a failure then shows.
    fn new() -> Self {
        let given = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(SEED)) | 1;
        println!("{SEED}={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn life(&mut self) -> Duration {
        Duration::from_micros(self.below(LIFE_MAX.as_micros() as u64))
    }
}

/// A clock that a program has for itself, by libfaketime: what it reads, days from the machine's, while that is left
/// alone. Monotonic time, and times of files, are the kernel's. It stands in the program's state directory, which
/// Landlock lets it read.
struct Clock(PathBuf);

impl Clock {
    fn new(state: &Path) -> Self {
        fs::create_dir_all(state).unwrap();
        let clock = Self(state.join("clock"));
        clock.set(0);
        clock
    }

    fn set(&self, days: i64) {
        let beside = self.0.with_extension("new");
        fs::write(&beside, format!("{days:+}d\n")).unwrap();
        fs::rename(&beside, &self.0).unwrap();
    }

    fn give(&self, command: &mut Command) {
        let directories = fs::read_dir("/usr/lib").unwrap();
        let mut libraries =
            directories.map(|entry| entry.unwrap().path().join("faketime/libfaketimeMT.so.1"));
        let library = libraries.find(|library| library.exists());
        command
            .env("LD_PRELOAD", library.expect("the package brings it"))
            .env("FAKETIME_TIMESTAMP_FILE", &self.0)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
    }
}

/// A tree of 32 MB, and both ends of its transfers.
struct Tree {
    ends: Ends,
    /// Of the sender and the receiver, where they have their own.
    clocks: Option<[Clock; 2]>,
}

impl Tree {
    fn new() -> Self {
        let ends = Ends::new("tree");
        make_tree(&ends.from);
        for number in 0..40 {
            let bytes = pattern(number, 700_000 + 4_321 * number as usize);
            fs::write(ends.from.join(format!("deep/noise-{number}")), bytes).unwrap();
        }
        // A mode that is none to fill it with: it has another one until it is done (FILE-38).
        fs::set_permissions(ends.from.join("deep"), fs::Permissions::from_mode(0o555)).unwrap();
        Self { ends, clocks: None }
    }

    fn with_clocks() -> Self {
        let tree = Self::new();
        let clocks = ["sender", "receiver"].map(|name| Clock::new(&tree.ends.directory.join(name)));
        Self {
            clocks: Some(clocks),
            ..tree
        }
    }

    /// Sets both clocks, of the sender and the receiver.
    fn set_clocks(&self, days: [i64; 2]) {
        let clocks = self.clocks.as_ref().expect("they have clocks");
        clocks.iter().zip(days).for_each(|(clock, days)| clock.set(days));
    }

    fn send(&self, limit: &str) -> Process {
        self.send_from(text(&self.ends.from), limit)
    }

    fn send_from(&self, what: &str, limit: &str) -> Process {
        self.run(0, self.ends.sending(what, &["--limit", limit]))
    }

    fn receive(&self) -> Process {
        let options = ["--json", "--on-conflict", "overwrite"];
        self.run(1, self.ends.receiving(&options))
    }

    fn run(&self, end: usize, mut command: Command) -> Process {
        if let Some(clocks) = &self.clocks {
            clocks[end].give(&mut command);
        }
        run(command)
    }

    /// So many entries have come of those of one directory.
    fn wait_for_entries(&self, count: usize) {
        let deep = self.ends.to.join("tree/deep");
        wait_until("files come", PROGRAM_LIMIT, || {
            fs::read_dir(&deep).is_ok_and(|entries| entries.count() >= count)
        });
    }
}

/// FILE-24 to FILE-26.
#[test]
fn ends_that_are_killed_at_twenty_random_moments_each_have_the_same_tree_in_the_end() {
    require_root!();
    let mut random = Random::new();
    let tree = Tree::new();
    let mut kills = [KILLS; 2];
    let mut sender: Option<Process> = None;
    let (mut whole, mut connected) = (0, 0);
    while kills.iter().sum::<u64>() > 0 {
        // One whose receiver had everything has ended.
        let running = sender
            .take()
            .and_then(|mut sender| sender.is_running().then_some(sender));
        let mut sending = running.unwrap_or_else(|| tree.send("16M"));
        let mut receiver = tree.receive();
        // Most of them while files come, the others wherever they are.
        if random.below(4) > 0 {
            // The sender first looks for a receiver that was killed.
            wait_until("files come", PROGRAM_LIMIT, || {
                receiver.stdout().contains("\"file\"") || !receiver.is_running() || !sending.is_running()
            });
            connected += 1;
        }
        thread::sleep(random.life());
        if !receiver.is_running() {
            // It was faster, or the one before it had everything when it was killed; the next one has everything to do
            // again.
            assert_done(&mut sending);
            tree.ends.assert_all_there();
            fs::remove_dir_all(&tree.ends.to).unwrap();
            whole += 1;
            continue;
        }
        let victim = match kills {
            [0, _] => 1,
            [_, 0] => 0,
            _ => random.below(2) as usize,
        };
        kills[victim] -= 1;
        if victim == 0 {
            sending.kill();
            thread::sleep(random.life() / 4);
            receiver.kill();
        } else {
            receiver.kill();
            sender = Some(sending);
        }
    }
    drop(sender);
    println!("files came between {connected} pairs, {whole} transfers were faster than the kills");
    let (mut sender, mut receiver) = (tree.send("1G"), tree.receive());
    assert_done(&mut receiver);
    assert_done(&mut sender);
    tree.ends.assert_all_there();
}

/// Moves all times of files below by that: as if the clock had jumped the other way since.
fn shift(path: &Path, by: impl Fn(SystemTime) -> SystemTime + Copy) {
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        if found.is_dir() {
            shift(&entry.path(), by);
        } else if found.is_file() {
            let modified = by(found.modified().unwrap());
            let file = fs::File::options().write(true).open(entry.path()).unwrap();
            file.set_times(fs::FileTimes::new().set_accessed(modified).set_modified(modified))
                .unwrap();
        }
    }
}

/// Of the tree, what had come was there, and was not sent again.
fn assert_resumed(receiver: &Process) {
    let end = event(receiver, "end");
    let [sent, there] = ["bytes_sent", "bytes_there"].map(|name| end[name].as_u64().unwrap());
    assert!(there > 10_000_000, "what had come was there: {end}");
    assert!(sent < 25_000_000, "and was not sent again: {end}");
}

/// FILE-28: what both ends know stands in files, and whether their times are in the past or the future is nothing to
/// it.
#[test]
fn a_clock_that_jumps_between_two_runs_costs_nothing_that_has_come() {
    require_root!();
    const DAYS: Duration = Duration::from_secs(400 * 86_400);
    let tree = Tree::new();
    for jump in [|time: SystemTime| time - DAYS, |time: SystemTime| time + DAYS] {
        let (mut sender, mut receiver) = (tree.send("8M"), tree.receive());
        tree.wait_for_entries(20);
        receiver.kill();
        sender.kill();
        shift(&tree.ends.directory.join("sender"), jump);
        shift(&tree.ends.directory.join("receiver"), jump);
        // What is complete has the sender's times, which count; what is not has times of its own.
        for directory in [
            tree.ends.to.clone(),
            tree.ends.to.join("tree"),
            tree.ends.to.join("tree/deep"),
        ] {
            let names = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap());
            for entry in names.filter(|entry| entry.file_name().to_str().unwrap().contains(".gramway-")) {
                let file = fs::File::options().write(true).open(entry.path()).unwrap();
                let modified = jump(SystemTime::now());
                file.set_times(fs::FileTimes::new().set_modified(modified))
                    .unwrap();
            }
        }
        let (mut sender, mut receiver) = (tree.send("1G"), tree.receive());
        assert_done(&mut receiver);
        assert_done(&mut sender);
        tree.ends.assert_all_there();
        assert_resumed(&receiver);
        fs::remove_dir_all(&tree.ends.to).unwrap();
    }
}

/// FILE-28. Both ends read other clocks than the machine's, which jump while files come and before a transfer goes on.
#[test]
fn clocks_that_jump_in_the_middle_of_a_transfer_and_before_it_goes_on_cost_nothing() {
    require_root!();
    require_program!("faketime");
    let tree = Tree::with_clocks();
    let days = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    let (year, back) = (366, 1 - i64::try_from(days).unwrap());
    for [in_the_middle, between, at_last] in [
        [[year, year], [back, back], [year, back]],
        [[back, year], [year, year], [back, back]],
    ] {
        tree.set_clocks([0, 0]);
        let (mut sender, mut receiver) = (tree.send("8M"), tree.receive());
        tree.wait_for_entries(12);
        tree.set_clocks(in_the_middle);
        tree.wait_for_entries(24);
        receiver.kill();
        sender.kill();
        tree.set_clocks(between);
        let (mut sender, mut receiver) = (tree.send("8M"), tree.receive());
        tree.wait_for_entries(34);
        tree.set_clocks(at_last);
        assert_done(&mut receiver);
        assert_done(&mut sender);
        tree.ends.assert_all_there();
        assert_resumed(&receiver);
        fs::remove_dir_all(&tree.ends.to).unwrap();
    }

    // What has no time of its own has that of the sender's clock, which shows that the program reads it.
    tree.set_clocks([back, year]);
    let (mut sender, mut receiver) = (tree.send_from("-", "8M"), tree.receive());
    sender.tell("what is piped").unwrap();
    sender.close_stdin();
    assert_done(&mut receiver);
    assert_done(&mut sender);
    let piped = fs::read_dir(&tree.ends.to).unwrap().next().unwrap().unwrap();
    assert_eq!(fs::read_to_string(piped.path()).unwrap(), "what is piped\n");
    let modified = piped.metadata().unwrap().mtime();
    assert!((0..=3 * 86_400).contains(&modified), "{modified}");
}
