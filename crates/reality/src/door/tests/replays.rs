//! Replays (QR1-7 to QR1-11): always the cover, with the very datagrams that came.

use super::*;

/// A scene in which the client at port 1 was taken over, and its datagrams were captured.
fn captured() -> (Scene, [Vec<u8>; 2]) {
    let flight = flight(7);
    let mut scene = Scene::new();
    scene.send(1, &flight[0]).send(1, &flight[1]);
    assert_eq!(scene.take(), [taken(1, &[&flight[0], &flight[1]])]);
    (scene, flight)
}

fn is_the_covers(scene: &mut Scene, port: u16, flight: &[Vec<u8>; 2]) {
    scene.send(port, &flight[0]).send(port, &flight[1]);
    assert_eq!(scene.take(), cover(port, flight), "port {port}");
    assert_eq!(scene.door.held_bytes(), 0);
}

/// QR1-8, QR1-10.
#[test]
fn a_replay_from_another_address_goes_to_the_cover_inside_the_window_and_outside() {
    let (mut scene, flight) = captured();
    for (port, seconds) in [(2, 0), (3, 1), (4, 118), (5, 1), (6, 1), (7, 1_000)] {
        scene.wait(Duration::from_secs(seconds)).take();
        is_the_covers(&mut scene, port, &flight);
    }
}

/// QR1-8, QR1-10: while the connection lives QUIC has its own datagrams again, and says nothing to them.
#[test]
fn a_replay_from_the_same_address_goes_to_the_cover_once_the_handshake_is_over() {
    let (mut scene, flight) = captured();
    scene.send(1, &flight[0]);
    assert_eq!(scene.take(), [Seen::Passed(1, flight[0].clone())]);
    scene.wait(limits::HANDSHAKE_GUARD_TIME);
    is_the_covers(&mut scene, 1, &flight);
}

/// QR1-11.
#[test]
fn a_replay_after_a_restart_goes_to_the_cover() {
    let (mut scene, flight) = captured();
    let file = scene.file.clone();
    scene.restart(Some(&file));
    is_the_covers(&mut scene, 1, &flight);
    // The file is known, so that a client is let in at once.
    let next = super::flight(8);
    scene.send(2, &next[0]).send(2, &next[1]);
    assert_eq!(scene.take(), [taken(2, &[&next[0], &next[1]])]);
    scene.restart(None);
    is_the_covers(&mut scene, 1, &flight);
    is_the_covers(&mut scene, 2, &super::flight(9));
}

/// QR1-10: nobody can tell the client's address from another's; the first who comes is the client.
#[test]
fn a_replay_before_the_original_leaves_the_original_to_the_cover() {
    let flight = flight(7);
    let mut scene = Scene::new();
    scene.send(9, &flight[0]).send(9, &flight[1]);
    assert_eq!(scene.take(), [taken(9, &[&flight[0], &flight[1]])]);
    is_the_covers(&mut scene, 1, &flight);
}

/// QR1-8: both ask at the same time, by two shards of one server.
#[test]
fn of_two_at_the_same_time_one_is_taken_over() {
    let flight = flight(7);
    let mut scene = Scene::new();
    scene.is_disk_slow = true;
    for port in [1, 2] {
        scene.send(port, &flight[0]).send(port, &flight[1]);
    }
    scene.record();
    scene.act();
    let expected = [&[taken(1, &[&flight[0], &flight[1]])][..], &cover(2, &flight)].concat();
    let mut found = scene.take();
    found.sort_by_key(|seen| !matches!(seen, Seen::TakenOver(..)));
    assert_eq!(found, expected);
}

/// QR1-9.
#[test]
fn a_hello_of_another_time_goes_to_the_cover() {
    for (offset, is_ours) in [(120_i64, true), (-120, true), (121, false), (-121, false)] {
        let time = (i64::from(START) + offset) as u32;
        let flight = two_initials(&message(7, time));
        let mut scene = Scene::new();
        scene.send(1, &flight[0]).send(1, &flight[1]);
        let expected = match is_ours {
            true => vec![taken(1, &[&flight[0], &flight[1]])],
            false => cover(1, &flight),
        };
        assert_eq!(scene.take(), expected, "{offset} s");
    }
}
