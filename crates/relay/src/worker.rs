//! The loop of one worker: waits for its sockets and timers, gives each its turn, and publishes its counters.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fake_tcp_socket::FakeTcpSocket;
use packet::FewAtATime;
use packet_io::{Interest, Poller, Ready, ReceiveBatch, Waker};

use crate::counters::Counters;
use crate::limits::{LINGER, RECEIVES_PER_TURN, TELL_AGAIN, WAIT_MAX};

/// Tokens of what every worker has; those of flows' sockets follow.
pub(crate) const WAKER: u64 = 0;
pub(crate) const UDP: u64 = 1;
pub(crate) const TCP: u64 = 2;
pub(crate) const FLOWS: u64 = 3;

/// One of the two directions.
pub(crate) trait Side: Send {
    /// Watches the sockets that are there from the start.
    fn register(&self, poller: &Poller) -> io::Result<()>;

    /// One batch from the socket with this token, and what follows from it; `false` where nothing was there.
    fn receive(&mut self, now: Instant, poller: &Poller, token: u64) -> io::Result<bool>;

    /// When [`Side::handle_timeout`] is due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does what is due by `now`.
    fn handle_timeout(&mut self, now: Instant);

    /// Ends all connections in order.
    fn close(&mut self, now: Instant);

    /// Whether their ends are known to the peers.
    fn is_quiet(&self) -> bool;

    /// What the protocol has done.
    fn of_connections(&self) -> fake_tcp_socket::Counters;

    fn counters(&mut self) -> Counters;
}

/// What a worker tells by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The path joins packets.
    Joined,
    /// Packets came that are not the other relay's, or it has another key, or was started again.
    Unproved,
    /// The worker ended.
    Ended,
}

/// What was told of something that is counted.
struct Told {
    count: u64,
    often: FewAtATime,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            count: 0,
            often: FewAtATime::new(1, TELL_AGAIN),
        }
    }
}

impl Told {
    /// Whether it is to be told: it has happened since, and not for [`TELL_AGAIN`].
    fn is_news(&mut self, now: Instant, count: u64) -> bool {
        let is_news = count != self.count && self.often.take(now);
        if is_news {
            self.count = count;
        }
        is_news
    }
}

/// What a worker shares with whoever started it.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    published: Mutex<Published>,
    news: Condvar,
}

/// Counters as they were told last, and how often they were.
#[derive(Clone, Copy, Default)]
struct Published {
    times: u64,
    counters: Counters,
}

impl Shared {
    /// The counters that were published last.
    pub(crate) fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// Calls `ask`, and waits for the counters that are published then, `wait` at most.
    pub(crate) fn ask(&self, ask: impl FnOnce(), wait: Duration) -> Counters {
        let published = self.lock();
        let times = published.times;
        ask();
        let is_old = |published: &mut Published| published.times == times;
        let news = self.news.wait_timeout_while(published, wait, is_old);
        let (published, _) = news.unwrap_or_else(PoisonError::into_inner);
        published.counters
    }

    fn publish(&self, counters: Counters) {
        let mut published = self.lock();
        published.times += 1;
        published.counters = counters;
        self.news.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker before its thread runs.
pub(crate) struct Worker {
    side: Box<dyn Side>,
    poller: Poller,
    pub(crate) waker: Waker,
    pub(crate) shared: Arc<Shared>,
}

impl Worker {
    pub(crate) fn new(side: Box<dyn Side>) -> io::Result<Self> {
        let poller = Poller::new()?;
        let waker = Waker::new(&poller, WAKER)?;
        side.register(&poller)?;
        Ok(Self {
            side,
            poller,
            waker,
            shared: Arc::default(),
        })
    }

    /// Works until it is told to stop, and a little longer until all peers know.
    pub(crate) fn run(mut self, tell: impl Fn(News)) -> io::Result<()> {
        let mut ready: Vec<Ready> = Vec::new();
        let (mut joined, mut unproved) = (Told::default(), Told::default());
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.turn(&mut ready, WAIT_MAX)?;
            let counters = self.side.of_connections();
            let now = Instant::now();
            if joined.is_news(now, counters.joined) {
                tell(News::Joined);
            }
            if unproved.is_news(now, counters.unproved) {
                tell(News::Unproved);
            }
        }
        let end = Instant::now() + LINGER;
        self.side.close(Instant::now());
        while !self.side.is_quiet() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.turn(&mut ready, left)?;
        }
        self.publish();
        Ok(())
    }

    /// Waits at most so long for something to happen, and handles it.
    fn turn(&mut self, ready: &mut Vec<Ready>, most: Duration) -> io::Result<()> {
        let due = self.side.poll_timeout();
        let wait = due.map_or(most, |due| due.saturating_duration_since(Instant::now()));
        self.poller.wait(ready, Some(wait.min(most)))?;
        let now = Instant::now();
        for event in ready.iter() {
            match event.token {
                WAKER => self.publish(),
                token => self.receive(now, token)?,
            }
        }
        if self.side.poll_timeout().is_some_and(|due| due <= now) {
            self.side.handle_timeout(now);
        }
        Ok(())
    }

    /// Some batches from one socket, if there are.
    fn receive(&mut self, now: Instant, token: u64) -> io::Result<()> {
        for _ in 0..RECEIVES_PER_TURN {
            if !self.side.receive(now, &self.poller, token)? {
                break;
            }
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.shared.publish(self.side.counters());
    }
}

/// Interest in what comes.
pub(crate) const READ: Interest = Interest::READABLE;

/// The earlier of two deadlines.
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    [one, other].into_iter().flatten().min()
}

/// Twice as long, up to the second of `bounds`; zero means the first.
pub(crate) fn longer(pause: Duration, bounds: (Duration, Duration)) -> Duration {
    (2 * pause).clamp(bounds.0, bounds.1)
}

/// A batch from connections. An interface that goes down is told once and may come back.
pub(crate) fn receive_or_pass(
    tcp: &mut FakeTcpSocket,
    now: Instant,
    batch: &mut ReceiveBatch,
) -> io::Result<usize> {
    match tcp.receive(now, batch) {
        Err(error) if error.kind() == io::ErrorKind::NetworkDown => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_is_told_again_an_hour_later() {
        let (start, mut told) = (Instant::now(), Told::default());
        let minutes = |count: u64| start + Duration::from_secs(60 * count);
        let is_news = [(0, 0), (0, 1), (59, 9), (61, 9), (62, 9), (200, 9), (201, 10)]
            .map(|(minute, count)| told.is_news(minutes(minute), count));
        assert_eq!(is_news, [false, true, false, true, false, false, true]);
    }
}
