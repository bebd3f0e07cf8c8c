//! `gramway user`, without a running server: what it prints, what it keeps, what it refuses.

use std::os::unix::fs::MetadataExt;

use crate::support::{CONFIGURATION, Place, USAGE};

/// A place where a server has run.
fn place() -> Place {
    let place = Place::new();
    place.server().terminate();
    place
}

/// `gramway user` with these words.
fn user(place: &Place, words: &[&str]) -> String {
    let output = place.run(&[&["user", "--state", "state"], words].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {told}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn token(link: &str) -> &str {
    let (token, _) = link.split_once('@').expect("a link has a server");
    token.strip_prefix("gramway://").expect("a link")
}

#[test]
fn a_user_gets_a_link_to_the_same_server_of_which_only_digests_are_kept() {
    let place = place();
    let owners = place.link();
    let alices = user(
        &place,
        &["add", "alice", "--expires", "30d", "--quota", "100G/month"],
    );
    assert_eq!(alices.split('@').nth(1), owners.split('@').nth(1));
    assert_ne!(token(&alices), token(&owners));
    let again = user(&place, &["link", "alice"]);
    assert_ne!(token(&again), token(&alices));
    let file = place.path("state/users.db");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let kept = std::fs::read(&file).unwrap();
    for secret in [&alices, &again].map(|link| token(link)) {
        assert!(!kept.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()));
    }
    assert_eq!(place.link(), owners, "the owner's link stays");
}

#[test]
fn the_list_tells_everybody_and_follows_what_is_changed() {
    let place = place();
    assert_eq!(user(&place, &["list"]), "");
    assert_eq!(user(&place, &["list", "--json"]), "[]");
    user(&place, &["add", "bob", "--no-tcp", "--no-ip"]);
    user(
        &place,
        &["add", "alice", "--quota", "5M/day", "--expires", "2999-12-31"],
    );
    let list = user(&place, &["list"]);
    assert_eq!(
        list.lines().collect::<Vec<_>>(),
        [
            "alice  0 B used of 5.0 MB/day, until 2999-12-31 00:00 UTC",
            "bob    0 B used, without an end, no tcp, no ip",
        ]
    );
    user(&place, &["disable", "bob"]);
    user(
        &place,
        &["renew", "alice", "--quota", "none", "--expires", "never"],
    );
    let json: serde_json::Value = serde_json::from_str(&user(&place, &["list", "--json"])).unwrap();
    assert_eq!(json[0]["quota_bytes"], serde_json::Value::Null);
    assert_eq!(json[1]["excluded"], "this user is disabled");
    assert_eq!(json[1]["rights"], serde_json::json!(["udp"]));
    user(&place, &["enable", "bob"]);
    user(&place, &["remove", "alice"]);
    assert_eq!(
        user(&place, &["list"]),
        "bob  0 B used, without an end, no tcp, no ip"
    );
}

#[test]
fn what_cannot_be_is_one_sentence_and_changes_nothing() {
    let place = place();
    let refused = |words: &[&str], code, part| {
        place.refused(&[&["user", "--state", "state"], words].concat(), code, part);
    };
    refused(&["add", "owner"], USAGE, "is not a name");
    refused(&["add", "a b"], USAGE, "is not a name");
    refused(
        &["add", "alice", "--quota", "5x"],
        USAGE,
        "--quota 5x: a quota is",
    );
    refused(
        &["add", "alice", "--quota", "5G/year"],
        USAGE,
        "day, week, month or total",
    );
    refused(
        &["add", "alice", "--expires", "2020-01-01"],
        USAGE,
        "has begun already",
    );
    refused(&["add", "alice", "--expires", "soon"], USAGE, "say how long");
    refused(&["remove", "nobody"], USAGE, "there is no user nobody");
    refused(&["link", "nobody"], USAGE, "there is no user nobody");
    refused(&["renew", "nobody"], USAGE, "nothing to renew");
    // SQLite makes two files beside its own while it reads.
    let fails = |words: &[&str], code, part: &str| {
        let output = place.run(&[&["user", "--state", "state"], words].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(part) && output.stdout.is_empty(), "{told}");
    };
    user(&place, &["add", "alice"]);
    fails(&["add", "alice"], USAGE, "there is a user alice already");
    let damaged = [0x5a; 10_000];
    std::fs::write(place.path("state/users.db"), damaged).unwrap();
    fails(&["list"], CONFIGURATION, "it is damaged");
    fails(&["add", "bob"], CONFIGURATION, "it is damaged");
    assert_eq!(std::fs::read(place.path("state/users.db")).unwrap(), damaged);
}

#[test]
fn where_no_server_has_run_there_is_nothing_to_link_to() {
    let place = Place::new();
    let words = ["user", "add", "alice", "--state", "state"];
    place.refused(&words, CONFIGURATION, "start one with: gramway up --state state");
}
