//! What options ask of the system, between ends that are confined: each call that they need is on the list of those
//! that stay.

use std::os::unix::fs::FileExt;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::*;

const MIB: u64 = 1 << 20;

/// What one transfer with these options made, by a code on one network; the receiver tells JSON.
fn exchange(pair: &Pair, directory: &Directory, send: &[&str], receive: &[&str]) -> Process {
    let send = [&["send"], send].concat();
    let mut sender = start(&pair.server, directory, "sender", &send);
    let shown = shown_code(&sender);
    let receive = [&["receive", &shown, "--json"], receive].concat();
    let mut receiver = start(&pair.client, directory, "receiver", &receive);
    assert_done(&mut receiver);
    match receive
        .iter()
        .any(|option| ["--list", "--dry-run"].contains(option))
    {
        // It waits for the receiver to come again.
        true => wait_until("the sender is told", PROGRAM_LIMIT, || {
            sender.stderr().contains("the receiver has looked")
        }),
        false => assert_done(&mut sender),
    }
    for end in [&sender, &receiver] {
        assert!(
            !end.stderr().contains("the sandbox does not hold"),
            "{}",
            end.stderr()
        );
    }
    receiver
}

/// How a file came.
fn how(receiver: &Process, path: &str) -> String {
    let mut events = events(receiver).into_iter();
    let told = events.find(|event| event["event"] == "file" && event["path"] == path);
    told.and_then(|event| event["how"].as_str().map(str::to_owned))
        .unwrap_or_else(|| panic!("no {path}: {}", shown_events(receiver)))
}

/// A file of 64 MiB with this at one place, and a hole around it.
fn make_sparse(path: &Path, place: u64) {
    let file = fs::File::create(path).unwrap();
    file.set_len(64 * MIB).unwrap();
    file.write_all_at(b"something", place).unwrap();
}

fn assert_sparse(path: &Path) {
    let bytes = fs::metadata(path).unwrap().blocks() * 512;
    assert!(bytes < 16 * MIB, "{} takes {bytes} bytes", path.display());
}

/// SECURITY.md: what both ends give up is nothing that an option needs.
#[test]
fn confined_ends_keep_attributes_holes_and_links_and_find_what_was_moved() {
    require_root!();
    let (pair, directory) = (Pair::new(1_500), Directory::create_for_test().unwrap());
    let (from, to) = (directory.join("tree"), directory.join("to"));
    make_tree(&from);
    make_sparse(&from.join("sparse"), 50 * MIB);
    symlink("/etc/hostname", from.join("outer")).unwrap();
    fs::write(from.join("left.tmp"), "").unwrap();
    let attribute = "user.comment";
    let set = |name| setxattr(from.join(name), attribute, b"kept", XattrFlags::empty());
    let has_attributes = set("large").and_then(|()| set("deep")).is_ok();
    let send = [
        text(&from),
        "--xattrs",
        "--exclude",
        "*.tmp",
        "--limit",
        "200M",
        "--streams",
        "2",
        "--parallel-files",
        "2",
    ];
    let receive = [
        "--to",
        text(&to),
        "--xattrs",
        "--all-links",
        "--checksum",
        "--parallel-files",
        "2",
    ];
    if !has_attributes {
        eprintln!(
            "attributes are left out: the file system of {} has none of users",
            from.display()
        );
    }
    exchange(&pair, &directory, &send, &receive);
    let tree = to.join("tree");
    let names = ["deep", "empty", "large", "link", "none", "outer", "sparse"];
    for name in names {
        assert_same(&from.join(name), &tree.join(name));
    }
    assert_sparse(&tree.join("sparse"));
    assert!(!tree.join("left.tmp").exists());
    if has_attributes {
        for name in ["large", "deep"] {
            let mut value = [0; 16];
            let length = getxattr(tree.join(name), attribute, &mut value[..]).unwrap();
            assert_eq!(&value[..length], b"kept");
        }
    }

    // What is elsewhere is taken from there, and a hole where there were bytes.
    fs::rename(from.join("large"), from.join("empty/moved")).unwrap();
    make_sparse(&from.join("sparse"), 10 * MIB);
    fs::remove_file(from.join("outer")).unwrap();
    symlink("none", from.join("outer")).unwrap();
    let send = [text(&from), "--carrier", "tcp", "--compress", "no"];
    let receive = ["--to", text(&to), "--on-conflict", "overwrite"];
    let receiver = exchange(&pair, &directory, &send, &receive);
    assert_eq!(how(&receiver, "tree/empty/moved"), "there");
    for name in ["deep", "empty", "outer", "sparse", "left.tmp"] {
        assert_same(&from.join(name), &tree.join(name));
    }
    assert_sparse(&tree.join("sparse"));

    // Nothing is written where nothing is to be.
    let receiver = exchange(&pair, &directory, &[text(&from)], &["--list"]);
    assert!(receiver.stdout().contains("tree/deep/er/199"));
    fs::write(from.join("none"), "others").unwrap();
    for (options, expected) in [
        (&["--dry-run"][..], ""),
        (&["--on-conflict", "skip"], ""),
        (&["--on-conflict", "rename"], ""),
        (&["--on-conflict", "newer"], "others"),
    ] {
        let receive = [&["--to", text(&to)], options].concat();
        exchange(&pair, &directory, &[text(&from)], &receive);
        assert_eq!(
            fs::read_to_string(tree.join("none")).unwrap(),
            expected,
            "{options:?}"
        );
    }
}
