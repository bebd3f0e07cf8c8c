//! What the patterns of users have of a tree: what is made for it, and what comes of patterns that have nothing.

use std::fs;

use files::{Destination, Progress, TransferError};

use crate::trial::{Trial, random};

/// A tree of which a pattern has one file.
fn tree() -> Trial {
    let mut trial = Trial::new();
    for name in ["a/deep", "b/empty", "chosen/empty"] {
        fs::create_dir_all(trial.from(name)).unwrap();
    }
    for name in ["a/deep/yes", "a/no", "b/no", "no"] {
        fs::write(trial.from(name), name).unwrap();
    }
    trial.receive.only = vec!["yes".to_owned(), "tree/chosen".to_owned()];
    trial
}

/// Paths below the destination, in order.
fn found(trial: &Trial) -> Vec<String> {
    let base = trial.directory.path().join("to");
    let (mut paths, mut open) = (Vec::new(), vec![base.clone()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            paths.push(path.strip_prefix(&base).unwrap().display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    paths.sort();
    paths
}

#[test]
fn directories_are_made_for_what_is_chosen_in_them_and_for_their_own_sake() {
    let expected = [
        "tree",
        "tree/a",
        "tree/a/deep",
        "tree/a/deep/yes",
        "tree/chosen",
        "tree/chosen/empty",
    ];
    let mut trial = tree();
    let report = trial.run();
    assert_eq!(
        (report.failed, found(&trial)),
        (0, expected.map(str::to_owned).to_vec())
    );
    assert_eq!(trial.run().bytes_sent, 0);
    // The same where the sender chooses.
    let mut other = tree();
    other.send.include = std::mem::take(&mut other.receive.only);
    assert_eq!(other.run().failed, 0);
    assert_eq!(found(&other), expected);
    // One that is there stays, whatever is in the place of what is not wanted.
    fs::remove_dir_all(trial.to("a")).unwrap();
    fs::create_dir_all(trial.to("a/deep")).unwrap();
    fs::write(trial.to("b"), "a file").unwrap();
    assert_eq!(trial.run().failed, 0);
    assert_eq!(fs::read(trial.to("a/deep/yes")).unwrap(), b"a/deep/yes");
    assert_eq!(fs::read(trial.to("b")).unwrap(), b"a file");
    // What is wanted in one that cannot be made fails with it.
    trial.receive.only = vec!["tree/b/empty".to_owned(), "tree/b/no".to_owned()];
    let report = trial.run();
    assert_eq!((report.stored, report.failed), (1, 1), "{:?}", report.problems);
}

/// FILE-37: the sender waits for other patterns.
#[test]
fn patterns_that_have_nothing_of_what_is_offered_end_the_transfer_and_write_nothing() {
    let mut trial = tree();
    trial.receive.only = vec!["src/**".to_owned(), "absent".to_owned()];
    for list in [false, true] {
        trial.receive.list = list;
        let (sent, received) = trial.run_with(&Progress::default(), &Progress::default());
        let error = received.unwrap_err();
        assert!(matches!(error, TransferError::NothingChosen(_)), "{error}");
        assert!(error.to_string().ends_with("matches src/**, absent"), "{error}");
        assert!(matches!(sent, Err(TransferError::Interrupted)), "{sent:?}");
    }
    assert!(found(&trial).is_empty());
    trial.receive.list = false;
    trial.receive.only = vec!["tree/a/deep/*".to_owned()];
    assert_eq!(trial.run().bytes_sent, 10);
}

/// FILE-37: nothing of them goes there.
#[test]
fn of_several_files_for_standard_output_none_is_begun() {
    let mut trial = tree();
    fs::write(trial.from("a/large"), random(1, 3 << 20)).unwrap();
    trial.receive.to = Destination::Stdout;
    trial.receive.only = vec!["tree/a".to_owned()];
    let received = Progress::default();
    let (sent, ended) = trial.run_with(&Progress::default(), &received);
    assert!(matches!(ended, Err(TransferError::SeveralChosen)), "{ended:?}");
    assert!(matches!(sent, Err(TransferError::Interrupted)), "{sent:?}");
    assert_eq!(received.snapshot().bytes_wire, 0);
}

#[test]
fn a_sender_knows_whether_its_patterns_have_anything() {
    let mut trial = tree();
    let mut finds = |include: &[&str], exclude: &[&str]| {
        let owned = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        (trial.send.include, trial.send.exclude) = (owned(include), owned(exclude));
        files::finds_something(&trial.send).unwrap()
    };
    assert!(finds(&[], &[]) && finds(&["no"], &[]) && finds(&["tree/b/empty"], &[]));
    assert!(!finds(&["b/**"], &[]) && !finds(&["absent"], &[]));
    assert!(!finds(&["yes"], &["deep"]) && !finds(&[], &["tree"]));
    assert!(finds(&[], &["*/*"]), "the directory itself is left");
}
