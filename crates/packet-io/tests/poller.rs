//! Readiness, interest and wakers of the poller; limits and pinning of the process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{DEADLINE, address, options, pair};
use packet_io::{DatagramSocket, Interest, Outgoing, Poller, Ready, UdpSocket, Waker};

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
