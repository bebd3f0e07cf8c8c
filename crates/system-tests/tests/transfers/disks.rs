//! Disks that are full and disks that cannot be written: what fails is named, and the rest goes on.

use system_tests::program::UNAVAILABLE;

use super::*;

/// A receiver with a view of the disks of its own, by this shell script.
fn receive_with(pair: &Pair, directory: &Directory, script: &str, arguments: &[&str]) -> Process {
    let words = with_mounts(script);
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
    from
}

/// What both ends say of files below `other` that fail by these words, while everything else arrives.
fn assert_rest_arrives(mount: impl Fn(&str) -> String, reason: &str) {
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
        assert!(line.is_some_and(|line| line.contains(reason)), "{told}");
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
        "no space",
    );
}

#[test]
fn a_disk_that_cannot_be_written_fails_its_files_alone() {
    require_root!();
    assert_rest_arrives(|path| format!("mount -t tmpfs -o ro none '{path}'"), "read-only");
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
