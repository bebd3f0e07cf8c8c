//! QR1-8, QR1-13, QR1-14, QR1-20, QR1-22, QR1-29.

use super::*;

/// QR1-7, QR1-13.
#[test]
fn a_hello_in_two_datagrams_is_taken_over_in_whatever_order_they_come() {
    let [first, second] = flight(7);
    for order in [
        vec![&first, &second],
        vec![&second, &first],
        vec![&first, &first, &second],
        vec![&second, &second, &first],
    ] {
        let mut scene = Scene::new();
        for datagram in &order {
            scene.send(1, datagram).wait(MILLISECOND);
        }
        assert_eq!(scene.take(), [taken(1, &order)]);
        assert_eq!((scene.door.flows(), scene.door.held_bytes()), (0, 0));
    }
}

/// QR1-13, QR1-14.
#[test]
fn an_incomplete_hello_waits_five_milliseconds_and_is_taken_over_until_the_cover_answers() {
    for (lost_first, later) in [(0, 6), (1, 6), (0, 900), (1, 900)] {
        let flight = flight(7);
        let (early, late) = (&flight[lost_first], &flight[1 - lost_first]);
        let mut scene = Scene::new();
        scene.send(1, early).wait(Duration::from_nanos(4_999_999));
        assert_eq!(scene.take(), []);
        scene.wait(Duration::from_nanos(1));
        assert_eq!(scene.take(), [Seen::Cover(1, early.clone())]);
        scene.wait(MILLISECOND * later).send(1, late);
        assert_eq!(scene.take(), [Seen::Closed(1), taken(1, &[early, late])]);
    }
}

/// QR1-13.
#[test]
fn nothing_is_taken_over_once_the_cover_was_heard() {
    let [first, second] = flight(7);
    let mut scene = Scene::new();
    scene.send(1, &first).wait(MILLISECOND * 6).answer(1, b"cover");
    scene.take();
    let again = [second, first.clone(), flight(8)[0].clone(), flight(8)[1].clone()];
    for datagram in &again {
        scene.send(1, datagram);
    }
    assert_eq!(scene.take(), cover(1, &again));
    assert_eq!(scene.door.held_bytes(), 0);
    // From another port it is a client as any.
    let flight = flight(9);
    scene.send(2, &flight[0]).send(2, &flight[1]);
    assert_eq!(scene.take(), [taken(2, &[&flight[0], &flight[1]])]);
}

/// QR1-13: after a second nobody reads on, and whoever begins again is read again.
#[test]
fn reading_ends_and_may_begin_again() {
    let [first, second] = flight(7);
    let mut scene = Scene::new();
    scene.send(1, &first).wait(Duration::from_millis(1_005));
    assert_eq!(scene.door.held_bytes(), 0);
    scene.take();
    scene.send(1, &second).send(1, &first);
    assert_eq!(scene.take(), [Seen::Closed(1), taken(1, &[&second, &first])]);
}

/// QR1-8, QR1-20: at once, one for one, in order.
#[test]
fn everything_that_is_no_hello_of_ours_goes_to_the_cover() {
    let mut other_version = flight(7)[0].clone();
    other_version[4] = 2;
    let strangers = [
        b"garbage".to_vec(),
        vec![],
        vec![0x40; 1_200],
        vec![0xc0, 0, 0, 0, 0],
        vec![0xff; 1_300],
        other_version,
        flight(7)[0][..1_199].to_vec(),
        initial_with(&DESTINATION_ID, &[], b"token", 0, &[1]),
        initial_with(&[1; 7], &[], &[], 0, &[1]),
        initial(0, b"\x1c\0\0\0"),
        initial(0, &[2, 0, 0, 0, 0]),
        two_initials(&message(7, START))[0]
            .iter()
            .map(|byte| byte ^ 0x10)
            .collect(),
    ];
    for (port, stranger) in (1..).zip(&strangers) {
        let mut scene = Scene::new();
        scene.send(port, stranger);
        assert_eq!(scene.take(), cover(port, std::slice::from_ref(stranger)));
    }
    // A hello of somebody else, complete or not.
    let client = PrivateKey::from_private_key(&X25519, &[7; 32]).expect("a key");
    let foreign = two_initials(&hello(&client, HelloShape::Hybrid));
    let mut scene = Scene::new();
    scene.send(1, &foreign[0]).send(1, &foreign[1]);
    assert_eq!(scene.take(), cover(1, &foreign));
    scene
        .send(2, &foreign[0])
        .send(2, b"anything")
        .send(2, &foreign[1]);
    // The last one might begin a hello by itself.
    scene.wait(MILLISECOND * 5);
    let order = [foreign[0].clone(), b"anything".to_vec(), foreign[1].clone()];
    assert_eq!(scene.take(), cover(2, &order));
}

/// QR1-8: sealed again by whoever changed it, as anybody can.
#[test]
fn a_hello_with_one_bit_changed_goes_to_the_cover() {
    let genuine = message(7, START);
    for bit in (0..8 * genuine.len()).step_by(97) {
        let mut changed = genuine.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let flight = two_initials(&changed);
        let mut scene = Scene::new();
        scene
            .send(1, &flight[0])
            .send(1, &flight[1])
            .wait(MILLISECOND * 5);
        assert_eq!(scene.take(), cover(1, &flight), "bit {bit}");
    }
}

/// QR1-29.
#[test]
fn a_take_over_comes_when_the_cover_would_have_answered() {
    let [first, second] = flight(7);
    let mut scene = Scene::new();
    scene.door.set_cover_delay(MILLISECOND * 30);
    scene
        .send(1, &first)
        .send(1, &second)
        .wait(Duration::from_nanos(29_999_999));
    assert_eq!(scene.take(), []);
    scene.wait(Duration::from_nanos(1));
    assert_eq!(scene.take(), [taken(1, &[&first, &second])]);
}

/// QR1-10.
#[test]
fn a_take_over_waits_for_the_file_and_a_file_that_is_late_leaves_it_to_the_cover() {
    let [first, second] = flight(7);
    let mut scene = Scene::new();
    scene.is_disk_slow = true;
    scene.send(1, &first).send(1, &second).wait(MILLISECOND * 499);
    assert_eq!(scene.take(), []);
    scene.record();
    scene.act();
    assert_eq!(scene.take(), [taken(1, &[&first, &second])]);

    let late = flight(8);
    scene
        .send(2, &late[0])
        .send(2, &late[1])
        .wait(limits::RECORD_TIME_MAX);
    assert_eq!(scene.take(), cover(2, &late));
    scene.record();
    scene.act();
    assert_eq!(scene.take(), []);
    assert_eq!(scene.door.counters().given_up, 1);
}

/// QR1-14, QR1-20, QR1-22.
#[test]
fn what_comes_behind_the_hello_is_the_connections_or_a_strangers() {
    let [first, second] = flight(7);
    let mut scene = Scene::new();
    scene.door.set_cover_delay(MILLISECOND * 30);
    scene.send(1, &first).send(1, &second);
    let ping = initial(2, &[1]);
    let close = initial(3, b"\x1c\0\0\0");
    scene.send(1, &ping).send(1, &close).send(1, b"\x40stranger");
    scene.wait(MILLISECOND * 30);
    let stranger = Seen::Cover(1, b"\x40stranger".to_vec());
    assert_eq!(scene.take(), [taken(1, &[&first, &second, &ping]), stranger]);
    scene
        .send(1, &ping)
        .send(1, &close)
        .send(2, &ping)
        .wait(MILLISECOND * 5);
    let passed = Seen::Passed(1, ping.clone());
    assert_eq!(scene.take(), [passed, Seen::Cover(2, ping)]);
    assert_eq!(scene.door.counters().forged, 2);
}

/// QR1-14: an answer to a half hello is the client's where nothing comes of the hello, and nobody's otherwise.
#[test]
fn answers_of_the_cover_wait_while_a_hello_is_decided_on() {
    for is_accepted in [true, false] {
        let [first, second] = flight(7);
        let mut scene = Scene::new();
        scene.is_disk_slow = true;
        scene
            .send(1, &first)
            .wait(MILLISECOND * 5)
            .send(1, &second)
            .answer(1, b"half");
        assert_eq!(scene.take(), [Seen::Cover(1, first.clone())]);
        if !is_accepted {
            let (_, tag, time) = scene.records[0];
            scene.replays.accept(START, &tag, time).expect("new");
        }
        scene.record();
        scene.act();
        let expected = match is_accepted {
            true => [Seen::Closed(1), taken(1, &[&first, &second])],
            false => [Seen::Cover(1, second), Seen::Client(1, b"half".to_vec())],
        };
        assert_eq!(scene.take(), expected);
        assert_eq!(scene.door.counters().late, u64::from(is_accepted));
    }
}

/// QR1-20: late packets of a connection that is gone.
#[test]
fn after_its_end_a_connection_is_a_strangers() {
    let flight = flight(7);
    let mut scene = Scene::new();
    scene.send(1, &flight[0]).send(1, &flight[1]).take();
    scene.door.handshakes().end(path(1), &DESTINATION_ID);
    scene.send(1, &flight[0]).send(1, &flight[1]);
    assert_eq!(scene.take(), cover(1, &flight));
}
