//! A gigabit a second of UDP from one machine to another, of which each datagram is counted at both ends: trains that
//! cost their sender so little that a machine with two processors loses none.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use packet_io::{DatagramSocket, Outgoing, ReceiveBatch, SocketOptions, UdpSocket};
use testbed::namespace::Namespace;

use crate::limits::FLOOD_END;

/// Bytes of a datagram, and datagrams of one train.
const DATAGRAM_BYTES: usize = 1_150;
const TRAIN: usize = 16;

/// What became of a flood.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Datagrams that were sent.
    pub sent: u64,
    /// Those that arrived.
    pub arrived: u64,
    /// The longest time in which none arrived.
    pub longest_gap: Duration,
}

impl Flood {
    /// Datagrams that did not arrive.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.arrived)
    }

    /// Sends from the first of these machines to `entrance` there, and takes what arrives at `target` on the second
    /// one, while `work` is done.
    ///
    /// # Panics
    /// Where a socket cannot be opened.
    pub fn beside<T>(
        [near, far]: [&Namespace; 2],
        entrance: SocketAddr,
        target: SocketAddr,
        work: impl FnOnce() -> T,
    ) -> (Self, T) {
        let options = SocketOptions::default();
        let mut source = near
            .inside(|| UdpSocket::connect(None, entrance, &options))
            .unwrap();
        let mut sink = far.inside(|| UdpSocket::bind(target, &options)).unwrap();
        let (is_sent, is_taken) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let taking = scope.spawn(|| take(&mut sink, &is_taken));
            let sending = scope.spawn(|| send(&mut source, &is_sent));
            // A panic of the work ends both threads, too.
            let ends = [End(&is_taken), End(&is_sent)];
            let worked = work();
            let [end_of_taking, end_of_sending] = ends;
            drop(end_of_sending);
            let sent = sending.join().unwrap();
            thread::sleep(FLOOD_END);
            drop(end_of_taking);
            let (arrived, longest_gap) = taking.join().unwrap();
            let flood = Self {
                sent,
                arrived,
                longest_gap,
            };
            (flood, worked)
        })
    }
}

/// Tells a thread to end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends a gigabit a second until `is_over`; datagrams sent.
fn send(socket: &mut UdpSocket, is_over: &AtomicBool) -> u64 {
    let train = vec![7; TRAIN * DATAGRAM_BYTES];
    let pause = Duration::from_nanos((TRAIN * DATAGRAM_BYTES * 8) as u64);
    let (mut sent, mut due) = (0, Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        if due > Instant::now() {
            thread::yield_now();
            continue;
        }
        due += pause;
        let outcome = socket.send(&[Outgoing::connected(&train, DATAGRAM_BYTES)]);
        sent += outcome.map_or(0, |outcome| outcome.segments);
    }
    sent
}

/// Takes what arrives until `is_over`: datagrams, and the longest time between two of them.
fn take(socket: &mut UdpSocket, is_over: &AtomicBool) -> (u64, Duration) {
    let mut batch = ReceiveBatch::new(64, 65_536);
    let (mut taken, mut longest, mut last) = (0, Duration::ZERO, None::<Instant>);
    while !is_over.load(Ordering::Relaxed) {
        if socket.receive(&mut batch).unwrap_or(0) > 0 {
            taken += batch
                .iter()
                .map(|received| received.segments().len() as u64)
                .sum::<u64>();
            let now = Instant::now();
            longest = longest.max(last.map_or(Duration::ZERO, |last| now - last));
            last = Some(now);
        } else {
            thread::yield_now();
        }
    }
    (taken, longest)
}
