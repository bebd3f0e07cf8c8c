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
    let networks = ["--reach", "10.0.0.0/8", "--reach", "192.0.2.1:443"];
    user(
        &place,
        &[&["add", "bob", "--no-tcp", "--no-ip"][..], &networks].concat(),
    );
    user(
        &place,
        &[
            "add",
            "alice",
            "--quota",
            "5M/day",
            "--expires",
            "2999-12-31",
            "--listen",
            "8000-8010",
        ],
    );
    let list = user(&place, &["list"]);
    assert_eq!(
        list.lines().collect::<Vec<_>>(),
        [
            "alice  0 B used of 5.0 MB/day, until 2999-12-31 00:00 UTC, listens on 8000-8010",
            "bob    0 B used, without an end, no tcp, no ip, only 10.0.0.0/8 192.0.2.1/32:443",
        ]
    );
    user(&place, &["disable", "bob"]);
    user(
        &place,
        &[
            "renew",
            "alice",
            "--quota",
            "none",
            "--expires",
            "never",
            "--rate",
            "20M",
        ],
    );
    assert_eq!(
        user(&place, &["list"]).lines().next(),
        Some("alice  0 B used, without an end, at most 20 Mbit/s, listens on 8000-8010")
    );
    let json: serde_json::Value = serde_json::from_str(&user(&place, &["list", "--json"])).unwrap();
    assert_eq!(json[0]["quota_bytes"], serde_json::Value::Null);
    assert_eq!(json[1]["excluded"], "this user is disabled");
    assert_eq!(json[0]["bits_per_second"], 20_000_000);
    assert_eq!(json[0]["reach"], serde_json::json!([]));
    assert_eq!(json[0]["listen"], serde_json::json!(["8000-8010"]));
    assert_eq!(
        json[1]["reach"],
        serde_json::json!(["10.0.0.0/8", "192.0.2.1/32:443"])
    );
    assert_eq!(json[1]["rights"], serde_json::json!(["udp"]));
    user(&place, &["enable", "bob"]);
    user(&place, &["remove", "alice"]);
    assert_eq!(
        user(&place, &["list"]),
        "bob  0 B used, without an end, no tcp, no ip, only 10.0.0.0/8 192.0.2.1/32:443"
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
    refused(&["add", "alice", "--rate", "fast"], USAGE, "--rate fast: ");
    refused(
        &["add", "alice", "--reach", "intranet"],
        USAGE,
        "--reach: \"intranet\" is not CIDR[:PORT]",
    );
    refused(
        &["add", "alice", "--listen", "web"],
        USAGE,
        "--listen: \"web\" is not [ADDRESS]:PORTS",
    );
    refused(
        &["add", "alice", "--listen", "80", "--no-tcp"],
        USAGE,
        "--listen is for TCP",
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

#[test]
fn a_copy_brings_all_users_back_also_where_the_database_is_damaged() {
    let place = place();
    user(&place, &["add", "alice"]);
    let copy = place.path("copy");
    let copy = copy.to_str().unwrap();
    user(&place, &["backup", copy]);
    let again = place.run(&["user", "--state", "state", "backup", copy]);
    let told = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success() && told.contains("file exists"), "{told}");
    user(&place, &["remove", "alice"]);
    let list = |place: &Place| user(place, &["list"]);
    assert_eq!(list(&place), "");
    user(&place, &["restore", copy]);
    assert_eq!(list(&place), "alice  0 B used, without an end");
    std::fs::write(place.path("state/users.db"), [0x5a; 10_000]).unwrap();
    user(&place, &["restore", copy]);
    assert_eq!(list(&place), "alice  0 B used, without an end");
    let nothing = place.run(&["user", "--state", "state", "restore", "none"]);
    let told = String::from_utf8_lossy(&nothing.stderr);
    assert_eq!(nothing.status.code(), Some(CONFIGURATION), "{told}");
    assert!(told.contains("cannot restore none"), "{told}");
}
