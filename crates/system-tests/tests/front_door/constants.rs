//! What first flights have in common, as everybody on the way can read them: nothing by which a link, its user or its
//! server could be known again (specs/qr1.md).

use super::*;

/// Sessions of each link.
const SESSIONS: usize = 8;

/// What a watcher tells apart in a hello at least: headers, random, extensions, key shares, transport parameters.
const LABELS_MIN: usize = 20;

/// The first flight of a client, its datagrams in hexadecimal.
type Flight = Vec<String>;

/// Of clients with this link.
fn flights(scene: &Scene, link: &str) -> Vec<Flight> {
    let hexadecimal = |datagram: &Vec<u8>| datagram.iter().map(|byte| format!("{byte:02x}")).collect();
    let flight = |_| {
        scene
            .first_flight_by(link)
            .recorded
            .iter()
            .map(hexadecimal)
            .collect()
    };
    (0..SESSIONS).map(flight).collect()
}

/// What the sessions of `one` link and of the `other` give away.
fn found(scene: &Scene, one: &[Flight], other: &[Flight]) -> Vec<String> {
    let file = scene.directory.path().join("flights.json");
    let flights = serde_json::json!({ "one": one, "other": other });
    std::fs::write(&file, flights.to_string()).unwrap();
    let mut process = python::start(&scene.python, &Place::Host, "constants.py", [&file]);
    let line = process.wait_for_line("\"sessions\"", PROGRAM_LIMIT).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(told["sessions"], one.len() + other.len(), "{told}");
    assert!(told["labels"].as_array().unwrap().len() >= LABELS_MIN, "{told}");
    let found = told["found"].as_array().unwrap().iter();
    found.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// QR1-5: also of links of two servers with other keys and users.
#[test]
fn sessions_have_nothing_in_common_by_which_a_link_is_known_again() {
    require_root!();
    let first = Scene::new(require_python!(), &[]);
    let one = flights(&first, &first.server.link());
    drop(first);
    let scene = Scene::new(require_python!(), &[]);
    let link = scene.server.link();
    let other = flights(&scene, &link);
    assert_eq!(found(&scene, &one, &other), Vec::<String>::new());
    // As controls: a flight that comes again is known, and a link with a name of its own.
    let twice = [&one[..], &one[..1]].concat();
    let told = found(&scene, &twice, &other).concat();
    assert!(told.contains("random: two sessions share"), "{told}");
    let named = flights(&scene, &link.replace(NAME, "www.another.example"));
    let told = found(&scene, &one, &named);
    assert!(
        told.iter().all(|text| text.starts_with("extension 0: ")),
        "{told:?}"
    );
    assert!(!told.is_empty());
}
