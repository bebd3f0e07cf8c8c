//! Disks that are full, disks that cannot be written, and file systems that keep less than Linux's own: what fails is
//! named, and the rest goes on; what is folded or cut is no other file.

use rustix::fs::{XattrFlags, setxattr};
use system_tests::program::UNAVAILABLE;

use super::*;

/// A receiver with a view of the disks of its own, by this shell script.
fn receive_with(pair: &Pair, directory: &Directory, script: &str, arguments: &[&str]) -> Process {
    receive_below(pair, directory, &with_mounts(script), arguments)
}

/// A receiver that these words start.
fn receive_below(pair: &Pair, directory: &Directory, words: &[String], arguments: &[&str]) -> Process {
    let mut command = pair.client.command(&words[0]);
    command.args(&words[1..]).arg(gramway_binary()).args(arguments);
    command.arg("--state").arg(directory.join("receiver"));
    Process::start(command, "gramway").unwrap()
}

/// A tree with a directory `other` for another disk, which has 8 MB.
fn tree(directory: &Directory) -> PathBuf {
    let from = directory.join("tree");
    make_tree(&from);
    fs::create_dir(from.join("other")).unwrap();
    fs::write(from.join("other/large"), pattern(1, 8_000_000)).unwrap();
    // Each of them fits, and not all of them.
    for number in 0..3 {
        fs::write(from.join(format!("other/{number}")), pattern(number, 1_500_000)).unwrap();
    }
    from
}

/// What both ends say of files below `other` that fail by these words, while everything else arrives; of the large one
/// by all of them, of two others at least by the first.
fn assert_rest_arrives(mount: impl Fn(&str) -> String, reasons: &[&str]) {
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let from = tree(&directory);
    let to = directory.join("to");
    let other = to.join("tree/other");
    fs::create_dir_all(&other).unwrap();
    let mut sender = start(&pair.server, &directory, "sender", &["send", text(&from)]);
    let shown = shown_code(&sender);
    let receive = ["receive", &shown, "--to", text(&to)];
    let mut receiver = receive_with(&pair, &directory, &mount(text(&other)), &receive);
    assert_eq!(code(&mut receiver), UNAVAILABLE, "{}", receiver.stderr());
    assert_eq!(code(&mut sender), UNAVAILABLE, "{}", sender.stderr());
    for told in [receiver.stderr(), sender.stderr()] {
        let line = told.lines().find(|line| line.contains("other/large"));
        let has_all = |line: &str| reasons.iter().all(|reason| line.contains(reason));
        assert!(line.is_some_and(has_all), "{told}");
        let others = told.lines().filter(|line| line.contains("tree/other/"));
        let failed = others.filter(|line| line.contains(reasons[0])).count();
        assert!(failed >= 3, "{told}");
        assert!(told.contains("the rest was"), "{told}");
    }
    // The other disk has gone with its receiver.
    fs::remove_dir_all(from.join("other")).unwrap();
    fs::remove_dir_all(&other).unwrap();
    for path in [&from, &to.join("tree")] {
        let time = SystemTime::UNIX_EPOCH;
        let directory = fs::File::open(path).unwrap();
        directory
            .set_times(fs::FileTimes::new().set_modified(time))
            .unwrap();
    }
    assert_same(&from, &to.join("tree"));
}

#[test]
fn a_disk_that_is_full_fails_its_files_alone() {
    require_root!();
    assert_rest_arrives(
        |path| format!("mount -t tmpfs -o size=2m none '{path}'"),
        &["no space", "it needs 8.0 MB, and"],
    );
}

#[test]
fn a_disk_that_cannot_be_written_fails_its_files_alone() {
    require_root!();
    assert_rest_arrives(
        |path| format!("mount -t tmpfs -o ro none '{path}'"),
        &["read-only"],
    );
}

/// An image of a file system, and the script that mounts it in a receiver's view.
fn image(directory: &Directory, make: &[&str], kind: &str, to: &Path) -> String {
    let path = directory.join("image");
    let file = fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let status = Command::new(make[0])
        .args(&make[1..])
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{make:?}");
    fs::create_dir_all(to).unwrap();
    let (image, to) = (text(&path), text(to));
    match kind {
        // The loop device is given back when its file system ends.
        "exfat" => format!(
            "device=$(losetup -f --show '{image}') && mount.exfat-fuse $device '{to}' >&2 && losetup -d $device"
        ),
        _ => format!("mount -o loop '{image}' '{to}'"),
    }
}

/// Words that run what follows with a mount of its own, which ends before they do: a file system of FUSE lives on
/// otherwise, with its view of the disks.
fn while_mounted(mount: &str, at: &Path) -> Vec<String> {
    let script = format!("{mount} && \"$@\"; code=$?; umount '{}'; exit $code", text(at));
    let words = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    words.map(str::to_owned).to_vec()
}

/// One transfer of `from` by a receiver that these words start, which tells lines of JSON.
fn exchange_below(
    pair: &Pair,
    directory: &Directory,
    from: &Path,
    words: &[String],
    arguments: &[&str],
) -> Process {
    let mut sender = start(
        &pair.server,
        directory,
        "sender",
        &["send", text(from), "--xattrs"],
    );
    let shown = shown_code(&sender);
    let receive = [&["receive", &shown, "--json"], arguments].concat();
    let mut receiver = receive_below(pair, directory, words, &receive);
    assert_done(&mut receiver);
    assert_done(&mut sender);
    receiver
}

/// Whether a process has this argument.
fn is_argument(argument: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap();
    let lines = processes.filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.into_iter().any(|line| {
        line.split(|byte| *byte == 0)
            .any(|word| word == argument.as_bytes())
    })
}

/// FILE-22.
#[test]
fn names_that_a_file_system_folds_are_all_stored_and_none_replaces_another() {
    require_root!();
    require_program!("mount.exfat-fuse");
    require_program!("mkfs.exfat");
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let (from, to) = (directory.join("tree"), directory.join("to"));
    fs::create_dir_all(from.join("inner")).unwrap();
    let names = ["note", "NOTE", "Note", "inner/a", "inner/A", "inner/b:c"];
    for name in names {
        fs::write(from.join(name), name).unwrap();
    }
    let attribute = setxattr(from.join("note"), "user.comment", b"lost", XattrFlags::empty());
    let words = while_mounted(&image(&directory, &["mkfs.exfat"], "exfat", &to), &to);
    for round in 0..2 {
        let receive = ["--to", text(&to), "--on-conflict", "overwrite", "--xattrs"];
        let receiver = exchange_below(&pair, &directory, &from, &words, &receive);
        let end = event(&receiver, "end");
        assert_eq!(end["bytes_sent"] == 0, round == 1, "{end}");
        if attribute.is_ok() {
            let note = event(&receiver, "note")["text"].to_string();
            assert!(note.contains("attributes") && note.contains('1'), "{note}");
        }
        // It writes what it has when it ends, which is after its mount has.
        wait_until("the end of the file system", PROGRAM_LIMIT, || {
            !is_argument(text(&to))
        });
    }
    let show = format!(
        "cd '{}' && find . -type f | sort && cat tree/* tree/inner/* 2>/dev/null",
        text(&to)
    );
    let shown = Command::new(&words[0])
        .args(&words[1..])
        .args(["sh", "-c", &show])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(
        shown.lines().filter(|line| line.starts_with("./")).count(),
        names.len(),
        "{shown}"
    );
    for name in names {
        assert!(shown.contains(name), "{name}: {shown}");
    }
}

/// FILE-22: one directory at two places is as good as one file system that folds names.
#[test]
fn a_place_that_the_transfer_has_filled_is_taken_whatever_the_file_system() {
    require_root!();
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let (from, to) = (directory.join("tree"), directory.join("to"));
    for name in ["one", "two"] {
        fs::create_dir_all(from.join(name)).unwrap();
        fs::create_dir_all(to.join("tree").join(name)).unwrap();
        fs::write(from.join(name).join("small"), name).unwrap();
    }
    fs::write(from.join("one/large"), pattern(1, 3_000_000)).unwrap();
    fs::write(from.join("two/large"), pattern(2, 3_000_000)).unwrap();
    let (one, two) = (to.join("tree/one"), to.join("tree/two"));
    for name in ["small", "large"] {
        fs::write(one.join(name), "before").unwrap();
    }
    let mount = format!("mount --bind '{}' '{}'", text(&one), text(&two));
    let words = while_mounted(&mount, &two);
    let receive = ["--to", text(&to), "--on-conflict", "overwrite"];
    exchange_below(&pair, &directory, &from, &words, &receive);
    let contents = |name: &str| ["", " (2)"].map(|more| fs::read(one.join(format!("{name}{more}"))).unwrap());
    let sent = |name: &str| ["one", "two"].map(|place| fs::read(from.join(place).join(name)).unwrap());
    for name in ["small", "large"] {
        let (mut contents, mut sent) = (contents(name), sent(name));
        contents.sort();
        sent.sort();
        assert!(contents == sent, "{name}");
    }
    assert_eq!(fs::read_dir(&one).unwrap().count(), 4);
}

/// FILE-28, FILE-29: ext4 with small inodes keeps whole seconds.
#[test]
fn a_file_system_that_cuts_times_gets_nothing_twice_and_finds_what_was_moved() {
    require_root!();
    require_program!("mkfs.ext4");
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let (from, to) = (directory.join("tree"), directory.join("to"));
    make_tree(&from);
    let mount = image(&directory, &["mkfs.ext4", "-q", "-I", "128"], "ext4", &to);
    let words = while_mounted(&mount, &to);
    let receive = ["--to", text(&to)];
    for round in 0..3 {
        if round == 2 {
            fs::rename(from.join("large"), from.join("empty/moved")).unwrap();
        }
        let receiver = exchange_below(&pair, &directory, &from, &words, &receive);
        let end = event(&receiver, "end");
        assert_eq!(end["bytes_sent"] == 0, round > 0, "{round}: {end}");
        let told = shown_events(&receiver);
        assert!(!receiver.stdout().contains("(2)"), "{told}");
    }
}

#[test]
fn a_destination_that_cannot_be_written_is_named_before_anything_is_sent() {
    require_root!();
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let from = directory.write("file", "bytes").unwrap();
    let to = directory.join("to");
    fs::create_dir(&to).unwrap();
    let mut sender = start(&pair.server, &directory, "sender", &["send", text(&from)]);
    let shown = shown_code(&sender);
    let receive = ["receive", &shown, "--to", text(&to)];
    let mount = format!("mount -t tmpfs -o ro none '{}'", text(&to));
    let mut receiver = receive_with(&pair, &directory, &mount, &receive);
    let ended = code(&mut receiver);
    let told = receiver.stderr();
    assert!(
        told.contains(text(&to)) && told.to_lowercase().contains("read-only"),
        "{told}"
    );
    assert_ne!(ended, 0, "{told}");
    // The code still holds: with another directory it arrives.
    let other = directory.join("elsewhere");
    let receive = ["receive", &shown, "--to", text(&other)];
    assert_done(&mut start(&pair.client, &directory, "receiver", &receive));
    assert_done(&mut sender);
    assert_same(&from, &other.join("file"));
}
