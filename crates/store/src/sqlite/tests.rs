//! What only files have: their mode, damage, other processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::user::Rights;

fn alice() -> User {
    User {
        id: UserId([1; 16]),
        name: "alice".to_owned(),
        token_digest: [2; 32],
        front_door_key: [3; 40],
        created: 1_000,
        expires: None,
        quota: None,
        bits_per_second: Some(20_000_000),
        rights: Rights {
            udp: true,
            tcp: true,
            ip: true,
        },
        reach: vec!["10.0.0.0/8".to_owned(), "192.0.2.1/32:443".to_owned()],
        listen: vec!["8000-8010".to_owned(), ":80".to_owned()],
        is_disabled: false,
    }
}

#[test]
fn nobody_else_may_read_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.db");
    let mut store = Sqlite::create(&path).unwrap();
    store.add(&alice()).unwrap();
    let files: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 3, "the log and its index are beside it: {files:?}");
    for file in files {
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600,
            "{file:?}"
        );
    }
}

#[test]
fn what_returned_is_there_after_the_process_died() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.db");
    let mut store = Sqlite::create(&path).unwrap();
    store.add(&alice()).unwrap();
    store.record(Day(20_000), Epoch(1), &[(alice().id, 500)]).unwrap();
    // A process that is killed closes nothing.
    std::mem::forget(store);
    let mut store = Sqlite::open(&path).unwrap();
    assert_eq!(store.users().unwrap(), [alice()]);
    assert_eq!(store.used(alice().id, Day::FIRST..=Day(99_999)), Ok(500));
}

#[test]
fn damage_is_told_wherever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.db");
    let mut store = Sqlite::create(&path).unwrap();
    for number in 0..200u8 {
        let mut user = alice();
        (user.id, user.name) = (UserId([number; 16]), format!("user-{number}"));
        store.add(&user).unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    let is_damaged = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let opened = Sqlite::open(&path).and_then(|mut store| store.users());
        matches!(opened, Err(StoreError::Damaged(_)))
    };
    assert!(is_damaged(
        b"not a database, but longer than the header of one. "
            .repeat(40)
            .as_slice()
    ));
    let mut middle = whole.clone();
    middle[4_096 * 2..4_096 * 4].fill(0xa5);
    assert!(is_damaged(&middle));
    assert!(is_damaged(&whole[..whole.len() / 2]));
    assert!(!is_damaged(&whole));
}

#[test]
fn a_row_that_no_program_of_ours_wrote_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.db");
    let mut store = Sqlite::create(&path).unwrap();
    store.add(&alice()).unwrap();
    for change in [
        "token_digest = x'01'",
        "id = x''",
        "quota_bytes = 5",
        "quota_bytes = 5, quota_period = 'year'",
        "expires = -1",
    ] {
        store
            .connection
            .execute_batch(&format!("BEGIN; UPDATE users SET {change}"))
            .unwrap();
        let read = store.users();
        assert!(matches!(read, Err(StoreError::Damaged(_))), "{change}: {read:?}");
        store.connection.execute_batch("ROLLBACK").unwrap();
    }
}

#[test]
fn a_file_that_is_not_there_is_not_made_by_opening_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.db");
    assert!(Sqlite::open(&path).is_err());
    assert!(!path.exists());
    assert!(Sqlite::create(&directory.path().join("none/users.db")).is_err());
}

/// A database with Alice, and its directory.
fn with_alice() -> (tempfile::TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Sqlite::create(&directory.path().join("users.db")).unwrap();
    store.add(&alice()).unwrap();
    (directory, store)
}

/// Names of all users.
fn names(store: &mut Sqlite) -> Vec<String> {
    let users = store.users().unwrap();
    users.into_iter().map(|user| user.name).collect()
}

#[test]
fn a_copy_has_what_is_in_the_log_and_comes_back_whole_under_those_who_have_the_database_open() {
    let (directory, mut store) = with_alice();
    let [path, copy] = ["users.db", "copy.db"].map(|name| directory.path().join(name));
    store.record(Day(20_000), Epoch(1), &[(alice().id, 500)]).unwrap();
    let bytes = store.copy().unwrap();
    fs::write(&copy, &bytes).unwrap();

    let mut another = Sqlite::open(&path).unwrap();
    another.remove("alice").unwrap();
    let mut bob = alice();
    (bob.id, bob.name) = (UserId([9; 16]), "bob".to_owned());
    another.add(&bob).unwrap();
    assert_eq!(names(&mut store), ["bob"]);
    let before = store.changes().unwrap();
    another.restore(&Snapshot::read(&copy).unwrap()).unwrap();
    assert_ne!(store.changes().unwrap(), before, "who has it open sees it");
    assert_eq!(store.users().unwrap(), [alice()]);
    assert_eq!(store.used(alice().id, Day::FIRST..=Day(99_999)), Ok(500));
    assert_eq!(fs::read(&copy).unwrap(), bytes);
    for suffix in ["wal", "shm", "journal"] {
        assert!(!directory.path().join(format!("copy.db-{suffix}")).exists());
    }
    // Also what the command has left when it ended.
    drop(another);
    store.add(&bob).unwrap();
    drop(store);
    assert_eq!(names(&mut Sqlite::open(&path).unwrap()), ["alice", "bob"]);
}

#[test]
fn what_is_no_copy_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy.db");
    assert!(matches!(Snapshot::read(&copy), Err(StoreError::Other(_))));
    fs::write(&copy, [0x5a; 20_000]).unwrap();
    assert!(matches!(Snapshot::read(&copy), Err(StoreError::Damaged(_))));
    fs::remove_file(&copy).unwrap();
    Connection::open(&copy)
        .unwrap()
        .pragma_update(None, "user_version", 1_000)
        .unwrap();
    assert!(matches!(Snapshot::read(&copy), Err(StoreError::Newer { .. })));
}
