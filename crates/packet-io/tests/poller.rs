//! Readiness, interest and wakers of the poller; limits and pinning of the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{DEADLINE, address, options, pair};
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, Ready, Timer, UdpSocket, Waker};

fn wait(poller: &mut Poller, timeout: Duration) -> Vec<Ready> {
    let mut ready = Vec::new();
    poller.wait(&mut ready, Some(timeout)).unwrap();
    ready
}

#[test]
fn readiness_follows_interest_and_lasts_until_it_is_used() {
    let (receiver, mut sender) = pair("127.0.0.1:0", &options(), &options());
    let mut poller = Poller::new().unwrap();
    poller.add(&receiver, 7, Interest::READABLE).unwrap();
    assert_eq!(wait(&mut poller, Duration::ZERO), []);
    sender.send(&[Outgoing::connected(b"x", 0)]).unwrap();
    let readable = Ready {
        token: 7,
        readable: true,
        writable: false,
        hangup: false,
    };
    assert_eq!(wait(&mut poller, DEADLINE), [readable]);
    assert_eq!(wait(&mut poller, DEADLINE), [readable]);
    poller.modify(&receiver, u64::MAX, Interest::BOTH).unwrap();
    assert_eq!(
        wait(&mut poller, DEADLINE),
        [Ready {
            token: u64::MAX,
            writable: true,
            ..readable
        }]
    );
    poller.modify(&receiver, 7, Interest::NONE).unwrap();
    assert_eq!(wait(&mut poller, Duration::ZERO), []);
    poller.remove(&receiver).unwrap();
    assert!(poller.remove(&receiver).is_err());
}

#[test]
fn a_pending_error_makes_ready_for_reading_and_writing() {
    let closed = UdpSocket::bind(address("127.0.0.1:0"), &options())
        .unwrap()
        .local_addr()
        .unwrap();
    let mut sender = UdpSocket::connect(None, closed, &options()).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(&sender, 1, Interest::READABLE).unwrap();
    sender.send(&[Outgoing::connected(b"x", 0)]).unwrap();
    let expected = Ready {
        token: 1,
        readable: true,
        writable: true,
        hangup: true,
    };
    assert_eq!(wait(&mut poller, DEADLINE), [expected]);
}

#[test]
fn a_wake_from_another_thread_ends_the_wait_and_is_one_event() {
    let mut poller = Poller::new().unwrap();
    let waker = Waker::new(&poller, 3).unwrap();
    let started = Instant::now();
    let thread = std::thread::spawn({
        let waker = waker.clone();
        move || {
            waker.wake();
            waker.wake();
        }
    });
    assert_eq!(wait(&mut poller, DEADLINE)[0].token, 3);
    assert!(started.elapsed() < DEADLINE);
    thread.join().unwrap();
    wait(&mut poller, Duration::ZERO);
    assert_eq!(wait(&mut poller, Duration::ZERO), []);
    waker.wake();
    assert_eq!(wait(&mut poller, Duration::ZERO).len(), 1);
}

#[test]
fn a_wait_lasts_at_least_its_timeout() {
    let mut poller = Poller::new().unwrap();
    for timeout in [
        Duration::from_nanos(1),
        Duration::from_micros(1500),
        Duration::from_millis(3),
    ] {
        let started = Instant::now();
        assert_eq!(wait(&mut poller, timeout), []);
        assert!(started.elapsed() >= timeout && started.elapsed() < DEADLINE);
    }
}

#[test]
fn a_timer_ends_the_wait_once_and_a_later_setting_takes_the_place_of_an_earlier_one() {
    let mut poller = Poller::new().unwrap();
    let timer = Timer::new(&poller, 3).unwrap();
    assert_eq!(wait(&mut poller, Duration::ZERO), []);
    for after in [Duration::ZERO, Duration::from_micros(1_500)] {
        let begun = Instant::now();
        timer.set(after).unwrap();
        let rung = wait(&mut poller, DEADLINE);
        assert_eq!(rung.iter().map(|ready| ready.token).collect::<Vec<_>>(), [3]);
        assert!(begun.elapsed() >= after);
        assert_eq!(wait(&mut poller, Duration::ZERO), []);
    }
    timer.set(Duration::from_millis(1)).unwrap();
    timer.set(Duration::MAX).unwrap();
    assert_eq!(wait(&mut poller, Duration::from_millis(20)), []);
}

/// Another event loop may watch the poller and look only when something has come.
#[test]
fn a_poller_is_readable_for_another_one_when_it_has_events() {
    let (receiver, mut sender) = pair("127.0.0.1:0", &options(), &options());
    let (inner, mut outer) = (Poller::new().unwrap(), Poller::new().unwrap());
    inner.add(&receiver, 7, Interest::READABLE).unwrap();
    outer.add(&inner, 8, Interest::READABLE).unwrap();
    assert_eq!(wait(&mut outer, Duration::ZERO), []);
    sender.send(&[Outgoing::connected(b"x", 0)]).unwrap();
    let seen = wait(&mut outer, DEADLINE);
    assert_eq!(seen.iter().map(|ready| ready.token).collect::<Vec<_>>(), [8]);
}
