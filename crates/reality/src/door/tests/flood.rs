//! Bounds: QR1-12, QR1-24, QR1-25.

use proptest::prelude::*;

use super::*;

fn from(address: u32, port: u16) -> Path {
    Path {
        remote: (address.to_be_bytes(), port).into(),
        local: None,
    }
}

/// QR1-12.
#[test]
fn beyond_so_many_hellos_a_second_none_is_read() {
    let flight = flight(7);
    let mut scene = Scene::new();
    for hello in 0..limits::HELLOS_PER_PREFIX_PER_SECOND {
        scene.send(100 + hello as u16, &initial(0, &[1]));
    }
    scene.wait(MILLISECOND * 5).take();
    scene.send(1, &flight[0]).send(1, &flight[1]);
    assert_eq!(scene.take(), cover(1, &flight));
    // Another network has its own part.
    let other = from(0x0a00_0000, 2);
    scene.send_on(other, &flight[0]).send_on(other, &flight[1]);
    assert_eq!(scene.take(), [taken(2, &[&flight[0], &flight[1]])]);
    for hello in 0..limits::HELLOS_PER_SECOND {
        scene.send_on(from(0x0b00_0000 + (hello << 8), 3), &initial(0, &[1]));
    }
    scene.wait(MILLISECOND * 5).take();
    let late = from(0x0c00_0000, 4);
    let flight = super::flight(8);
    scene.send_on(late, &flight[0]).send_on(late, &flight[1]);
    assert_eq!(scene.take(), cover(4, &flight));
    scene.wait(Duration::from_secs(1)).take();
    let fresh = from(0x0c00_0000, 5);
    scene.send_on(fresh, &flight[0]).send_on(fresh, &flight[1]);
    assert_eq!(scene.take(), [taken(5, &[&flight[0], &flight[1]])]);
}

/// QR1-24.
#[test]
fn an_address_that_is_not_proved_gets_three_times_its_bytes() {
    let mut scene = Scene::new();
    scene.send(1, &[0x40; 100]);
    for _ in 0..3 {
        scene.answer(1, &[1; 99]);
    }
    scene.answer(1, &[1; 4]).answer(1, &[1; 3]).answer(1, &[1; 1]);
    let answered: usize = scene
        .take()
        .iter()
        .map(|seen| match seen {
            Seen::Client(_, bytes) => bytes.len(),
            _ => 0,
        })
        .sum();
    assert_eq!(answered, 300);
    assert_eq!(scene.door.counters().clamped, 2);
    // Only a Handshake or 1-RTT packet proves it.
    let initial = initial(0, &[1]);
    scene.send(1, &initial).take();
    scene.answer(1, &vec![1; 3 * initial.len()]).answer(1, &[1; 1]);
    assert_eq!(scene.take().len(), 1);
    scene.send(1, &[0x41; 30]).answer(1, &[1; 9_000]);
    assert_eq!(scene.take().len(), 2);
}

/// QR1-24: what came before an answer proves nothing.
#[test]
fn a_first_flight_proves_nothing_whatever_it_looks_like() {
    let mut scene = Scene::new();
    scene
        .send(1, &[0x41; 30])
        .send(1, &[0x41; 30])
        .answer(1, &[1; 90])
        .take();
    scene.answer(1, &[1; 91]);
    assert_eq!(scene.take(), []);
    scene.answer(1, &[1; 90]);
    assert_eq!(scene.take().len(), 1);
}

/// QR1-24: a cover challenges a client that has moved (RFC 9000 section 8.2), once.
#[test]
fn a_first_answer_may_be_longer_than_what_it_answers() {
    let mut scene = Scene::new();
    scene.send(1, &[0x41; 30]).take();
    scene.answer(1, &[1; limits::FIRST_ANSWER_BYTES_MAX + 1]);
    assert_eq!(scene.take(), []);
    scene.answer(1, &[1; limits::FIRST_ANSWER_BYTES_MAX]);
    assert_eq!(scene.take().len(), 1);
    scene.answer(1, &[1]);
    assert_eq!(scene.take(), []);
    scene.send(1, &[0x41; 30]).take();
    scene.answer(1, &[1; 1_200]);
    assert_eq!(scene.take().len(), 1);
}

/// QR1-25.
#[test]
fn a_flow_ends_after_15_seconds_or_180() {
    let mut scene = Scene::new();
    scene
        .send(1, b"one")
        .send(2, b"two")
        .answer(2, b"answer")
        .send(2, &[0x40; 50]);
    scene.take();
    scene.wait(Duration::from_secs(15) - Duration::from_nanos(1));
    assert_eq!(scene.take(), []);
    scene.wait(Duration::from_nanos(1));
    assert_eq!(scene.take(), [Seen::Closed(1)]);
    scene.wait(Duration::from_secs(100)).answer(2, b"answer").take();
    scene.wait(Duration::from_secs(180) - Duration::from_nanos(1));
    assert_eq!(scene.take(), []);
    scene.wait(Duration::from_nanos(1));
    assert_eq!(scene.take(), [Seen::Closed(2)]);
    assert_eq!(scene.door.poll_timeout(), None);
}

/// QR1-25.
#[test]
fn the_flow_that_was_quiet_longest_makes_room() {
    let mut scene = Scene::new();
    scene.door.flows_max = 3;
    for port in 1..=3 {
        scene.send(port, b"hello").wait(MILLISECOND);
    }
    scene.answer(1, b"answer").take();
    scene.send(4, b"hello");
    assert_eq!(scene.take(), [Seen::Closed(2), Seen::Cover(4, b"hello".to_vec())]);
    assert_eq!(scene.door.flows(), 3);
}

/// A flow that ended is nobody's, and its hello waits no longer.
#[test]
fn a_flow_that_is_closed_takes_what_waits_with_it() {
    let [first, second] = flight(7);
    let mut scene = Scene::new();
    scene.is_disk_slow = true;
    scene.send(1, &first).wait(MILLISECOND * 5).send(1, &second);
    let (key, _) = scene.sockets[0];
    scene.take();
    scene.door.handle_closed(key);
    scene.act();
    scene.record();
    scene.act();
    assert_eq!(scene.take(), [Seen::Closed(1)]);
    assert_eq!(
        scene.door.handle_answer(scene.now, key, Ecn::NotEct, b"late"),
        None
    );
    assert_eq!((scene.door.held_bytes(), scene.door.flows()), (0, 0));
}

/// QR1-12, QR1-25: 10,000 forged Initials a second, half hellos that nobody ever completes.
#[test]
fn a_flood_of_forged_initials_stays_below_every_bound() {
    let half = flight(7)[0].clone();
    let mut scene = Scene::new();
    for number in 0..20_000_u32 {
        scene.send_on(from(number << 8, number as u16), &half);
        if number % 100 == 99 {
            scene.wait(MILLISECOND * 10).take();
        }
    }
    let counters = *scene.door.counters();
    let second = u64::from(limits::NEW_FLOWS_PER_SECOND);
    assert!(
        (2 * second..=3 * second).contains(&counters.flows),
        "{counters:?}"
    );
    assert!(counters.read <= 3 * u64::from(limits::HELLOS_PER_SECOND));
    assert_eq!(counters.shed, 20_000 - counters.flows);
    assert_eq!(counters.recognised, 0);
}

/// Where many wait, the rest is relayed at once.
#[test]
fn what_waits_is_bounded_altogether() {
    let half = flight(7)[0].clone();
    let mut scene = Scene::new();
    scene.door.held_bytes_max = 3 * half.len();
    for port in 1..=3 {
        scene.send(port, &half);
    }
    assert_eq!(scene.take(), []);
    scene.send(4, &half);
    assert_eq!(scene.take(), cover(4, &[half]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// [`Scene::check`] after every step: each datagram is somewhere, and all bounds hold.
    #[test]
    fn no_datagram_is_lost_whatever_comes(
        steps in proptest::collection::vec((0_u8..9, 0_u16..5, 0_u8..3), 1..120),
    ) {
        let flights = [flight(7), flight(8), flight(9)];
        let mut scene = Scene::new();
        scene.door.flows_max = 3;
        scene.door.held_bytes_max = 8_000;
        for (step, port, which) in steps {
            let [first, second] = &flights[usize::from(which)];
            match step {
                0 | 1 => drop(scene.send(port, first)),
                2 | 3 => drop(scene.send(port, second)),
                4 => drop(scene.send(port, &initial(u64::from(which), &[which, 1]))),
                5 => drop(scene.send(port, &[0x40; 60])),
                6 => drop(scene.wait(Duration::from_millis([1, 5, 700][usize::from(which)]))),
                7 if scene.sockets.iter().any(|(_, of)| *of == port) => drop(scene.answer(port, &[1; 200])),
                7 => {}
                _ => {
                    scene.is_disk_slow = !scene.is_disk_slow;
                    scene.record();
                    scene.act();
                }
            }
        }
        scene.wait(Duration::from_secs(400));
        scene.check();
        prop_assert_eq!((scene.door.flows(), scene.door.held_bytes()), (0, 0));
        prop_assert!(scene.sockets.is_empty());
        prop_assert!(scene.door.deadlines.is_empty());
    }
}
