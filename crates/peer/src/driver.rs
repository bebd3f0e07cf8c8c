//! The endpoint's event loop: one socket around [`Peers`](peer_proto::Peers), and beside it those by which the
//! rendezvous is reached where the endpoint's own does not. A thread of its own runs it, or a [`task`] of the program's
//! runtime; what is said of the endpoint's thread holds for either.
//!
//! One turn: wait; take what has come, a batch at a time; run due timers; send trains. System calls are made without
//! the lock.

mod task;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use packet::Path;
use packet_io::{DatagramSocket, Interest, Poller, Ready, ReceiveBatch, UdpSocket};
use peer_proto::{CloseReason, Outbox, Parameters, Peers};

use crate::beside::{BesideSockets, PortClosed};
use crate::limits::{
    CLOSE_TIME_MAX, FLUSHES_PER_TURN, LOCKED_BYTES, NAME_ADDRESSES_MAX, RECEIVE_SLOTS, RECEIVES_PER_TURN,
    TAKE_BACK_TIME_MAX, UNANSWERED_BYTES, UNANSWERED_TIME,
};
use crate::rendezvous::{Meetings, Resolution, SocketChange};
use crate::shared::Shared;
use crate::transmit::transmit;

/// Token of the socket's events.
pub(crate) const SOCKET: u64 = 0;
/// Token of the waker's events.
pub(crate) const WAKER: u64 = 1;
/// Token of a timer's events.
const TIMER: u64 = 2;
/// The first token of the sockets beside the endpoint's own.
pub(crate) const FIRST_BESIDE: u64 = 3;

pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) socket: UdpSocket,
    pub(crate) poller: Poller,
    beside: BesideSockets,
    batch: ReceiveBatch,
    outbox: Outbox,
    ready: Vec<Ready>,
    /// The next turn should not wait.
    is_busy: bool,
    /// The socket took no more.
    is_blocked: bool,
    /// How long the peers may still be told of the end, once the endpoint is closed.
    closing_until: Option<Instant>,
    woken: Vec<Waker>,
    /// A turn has begun and not ended: where the driver is dropped meanwhile, it has panicked.
    is_in_turn: bool,
    /// Whoever is to be woken waits until the state says that the endpoint has ended.
    is_ending: bool,
    /// Of the peers.
    parameters: Parameters,
}

impl Driver {
    /// A driver of the peers in `shared`, which have these parameters.
    pub(crate) fn new(
        shared: Arc<Shared>,
        socket: UdpSocket,
        poller: Poller,
        parameters: Parameters,
    ) -> Self {
        Self {
            shared,
            socket,
            poller,
            beside: BesideSockets::default(),
            batch: ReceiveBatch::new(RECEIVE_SLOTS, packet_io::SLOT_BYTES_MAX),
            outbox: Outbox::default(),
            ready: Vec::new(),
            is_busy: true,
            is_blocked: false,
            closing_until: None,
            woken: Vec::new(),
            is_in_turn: false,
            is_ending: false,
            parameters,
        }
    }

    /// Runs until the endpoint is closed and its peers have been told.
    pub(crate) fn run(mut self) {
        loop {
            let timeout = self.time_to_wait();
            if self.poller.wait(&mut self.ready, timeout).is_err() || self.go_on() {
                break;
            }
        }
        self.shared.companions.wait_for_end(TAKE_BACK_TIME_MAX);
    }

    /// After a wait: one turn; whether it was the last one.
    fn go_on(&mut self) -> bool {
        self.shared.awake();
        let now = Instant::now();
        self.is_in_turn = true;
        self.is_busy = self.turn(now);
        let is_closing = self.is_closing(now);
        self.is_in_turn = false;
        if !is_closing {
            return false;
        }
        match self.closing_until {
            // What tells the peers may have come after this turn's packets.
            None => {
                self.closing_until = Some(now + CLOSE_TIME_MAX);
                self.is_busy = true;
                false
            }
            Some(until) => {
                let waits = self.is_busy || self.is_blocked || self.shared.lock().is_telling_the_end();
                !waits || now >= until
            }
        }
    }

    fn is_closing(&self, now: Instant) -> bool {
        let mut state = self.shared.lock();
        if self.shared.is_abandoned.load(Ordering::SeqCst) && !state.is_closed {
            state.close(now, 0, b"");
        }
        state.is_closed
    }

    /// How long to wait; from the look at the state on, changes end the wait.
    fn time_to_wait(&self) -> Option<Duration> {
        if self.is_busy || self.shared.fall_asleep() {
            return Some(Duration::ZERO);
        }
        let mut state = self.shared.lock();
        let due = [
            state.poll_timeout(),
            self.beside.poll_timeout(),
            self.closing_until,
        ];
        let due = due.into_iter().flatten().min();
        state.wakes_at = due;
        drop(state);
        due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// One turn; whether the next one should not wait.
    fn turn(&mut self, now: Instant) -> bool {
        let (mut readable, mut writable) = (false, false);
        let mut beside = Vec::new();
        for event in &self.ready {
            if event.token == SOCKET {
                readable |= event.readable;
                writable |= event.writable;
            } else {
                beside.extend(self.beside.remote(event.token));
            }
        }
        if writable && self.is_blocked {
            self.set_blocked(false);
            // It is watched since the endpoint was bound.
            let _ = self.poller.modify(&self.socket, SOCKET, Interest::READABLE);
        }
        let mut is_busy = false;
        if readable {
            is_busy = self.receive();
        }
        for remote in beside {
            self.receive_beside(now, remote);
            is_busy = true;
        }
        self.beside.handle_timeout(now);
        let mut state = self.shared.lock();
        state.handle_timeout(now);
        state.take_events(now, &mut self.woken);
        let resolution = state.meetings.as_mut().and_then(Meetings::poll_resolution);
        drop(state);
        self.wake();
        if let Some(resolution) = resolution {
            resolve(&self.shared, resolution);
        }
        let more = self.flush();
        self.change_sockets(now) || more || is_busy
    }

    /// Takes a batch of a socket beside the endpoint's own, of which more may be left whatever it brought.
    fn receive_beside(&mut self, now: Instant, remote: SocketAddr) {
        match self.beside.receive(now, remote, &mut self.batch) {
            Ok(count) => self.take_batch(Instant::now(), count),
            Err(PortClosed) => {
                let mut state = self.shared.lock();
                if let Some(meetings) = &mut state.meetings {
                    meetings.handle_port_closed(now, remote);
                }
            }
        }
    }

    /// Opens and closes sockets beside the endpoint's own, after everything was sent; whether there is more to send.
    fn change_sockets(&mut self, now: Instant) -> bool {
        let mut has_changed = false;
        loop {
            let mut state = self.shared.lock();
            let change = state.meetings.as_mut().and_then(Meetings::poll_socket_change);
            drop(state);
            match change {
                None => return has_changed,
                Some(SocketChange::Close(remote)) => self.beside.close(now, remote, &self.poller),
                Some(SocketChange::Open(remote)) => {
                    has_changed = true;
                    let opened = self.beside.open(remote, &self.poller);
                    let mut state = self.shared.lock();
                    if let Some(meetings) = &mut state.meetings {
                        meetings.handle_socket_opened(now, remote, opened);
                    }
                }
            }
        }
    }

    /// Takes batches; whether more may have come.
    fn receive(&mut self) -> bool {
        for number in 0..RECEIVES_PER_TURN {
            // What the path reports, e.g. a closed port, QUIC finds out by itself.
            let Ok(count @ 1..) = self.socket.receive(&mut self.batch) else {
                // Where the first one was interrupted, or took such a report, something is left.
                return number == 0;
            };
            self.take_batch(Instant::now(), count);
            if count < RECEIVE_SLOTS {
                return false;
            }
        }
        true
    }

    /// Hands over the messages of the batch, which came at `now`, and sends meanwhile.
    fn take_batch(&mut self, now: Instant, count: usize) {
        let (mut next, mut unanswered, mut since) = (0, 0, now);
        while next < count {
            let bytes;
            (next, bytes) = self.take_received((now, since), next, count);
            self.wake();
            unanswered += bytes;
            if unanswered >= UNANSWERED_BYTES || since.elapsed() >= UNANSWERED_TIME {
                // What is left then comes with the end of the turn.
                self.flush();
                (unanswered, since) = (0, Instant::now());
            }
        }
    }

    /// Hands over messages of the batch from `first` on, as many as one lock is worth; the first that is left, and how
    /// many bytes they have. Whoever they are for is to be woken.
    fn take_received(
        &mut self,
        (now, unanswered_since): (Instant, Instant),
        first: usize,
        count: usize,
    ) -> (usize, usize) {
        let copies = self.batch.has_lent_much();
        let mut state = self.shared.lock();
        let (mut next, mut bytes, mut is_late) = (first, 0, false);
        while next < count && bytes < LOCKED_BYTES && !is_late {
            let (meta, data) = self.batch.take(next);
            next += 1;
            if meta.truncated {
                continue;
            }
            bytes += data.len();
            let path = Path {
                remote: meta.source,
                local: meta.local,
            };
            let (size, outbox) = (meta.segment_size, &mut self.outbox);
            state.handle_received(now, (path, meta.ecn), data, size, copies, outbox);
            is_late = unanswered_since.elapsed() >= UNANSWERED_TIME;
        }
        state.take_events(now, &mut self.woken);
        (next, bytes)
    }

    /// Sends what the peers have; whether there is more.
    fn flush(&mut self) -> bool {
        for _ in 0..FLUSHES_PER_TURN {
            if self.is_blocked {
                return false;
            }
            let now = Instant::now();
            let mut state = self.shared.lock();
            state.take_in(now, &self.shared.intake, &mut self.woken);
            let more = state.flush(now, &mut self.outbox);
            state.take_events(now, &mut self.woken);
            drop(state);
            self.wake();
            self.send();
            if !more {
                return false;
            }
        }
        true
    }

    fn send(&mut self) {
        self.beside.send(Instant::now(), &mut self.outbox);
        if transmit(&mut self.socket, &mut self.outbox) {
            self.set_blocked(true);
            // It is watched since the endpoint was bound.
            let _ = self.poller.modify(&self.socket, SOCKET, Interest::BOTH);
        }
    }

    fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
        self.shared.set_blocked(is_blocked);
    }

    /// Tells peers and the rendezvous of the end, as far as the socket takes it: a runtime that ends waits for nobody
    /// to close the endpoint.
    fn tell_the_end(&mut self, now: Instant) {
        let mut state = self.shared.lock();
        if !state.is_closed {
            state.close(now, 0, b"");
        }
        drop(state);
        self.set_blocked(false);
        while self.flush() && !self.is_blocked && now.elapsed() < CLOSE_TIME_MAX {}
        // What the way to the rendezvous has not taken by then is lost to relayed peers.
        self.shared.lock().leave_meetings(now);
        self.flush();
    }

    fn wake(&mut self) {
        if self.is_ending {
            return;
        }
        // In the order in which they came. One at a time: a waker of the program that panics leaves the others to the
        // end of the thread.
        self.woken.reverse();
        while let Some(waker) = self.woken.pop() {
            waker.wake();
        }
    }
}

/// Whatever ends the thread, whoever waits learns of it.
impl Drop for Driver {
    fn drop(&mut self) {
        let now = Instant::now();
        self.is_ending = true;
        let reason = if self.is_in_turn {
            // Nothing is known of the state that the panic left.
            self.shared.lock().peers = Peers::new(self.parameters.clone());
            CloseReason::Protocol("the endpoint's thread failed".to_owned())
        } else {
            self.tell_the_end(now);
            CloseReason::LocallyClosed
        };
        let mut state = self.shared.lock();
        state.end(now, &reason, &self.shared.intake, &mut self.woken);
        drop(state);
        self.is_ending = false;
        self.wake();
    }
}

/// Has a thread of its own resolve a name of the rendezvous, because the system's resolver blocks.
fn resolve(shared: &Arc<Shared>, resolution: Resolution) {
    let Resolution { number, host, port } = resolution;
    let answers = Arc::clone(shared);
    let work = move || {
        let found = (host.as_str(), port).to_socket_addrs();
        let addresses: Vec<_> = found.into_iter().flatten().take(NAME_ADDRESSES_MAX).collect();
        answers.resolved(number, &addresses);
    };
    let begun = thread::Builder::new().name("peer-names".to_owned()).spawn(work);
    if begun.is_err() {
        shared.resolved(number, &[]);
    }
}

/// Watches the socket, for a driver.
pub(crate) fn watch(socket: &UdpSocket, poller: &Poller) -> io::Result<()> {
    poller.add(socket, SOCKET, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::task::Wake;

    use super::*;
    use crate::SecretKey;
    use crate::shared::DriverWaker;
    use packet_io::SocketOptions;

    fn driver() -> Driver {
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &SocketOptions::default()).unwrap();
        let poller = Poller::new().unwrap();
        watch(&socket, &poller).unwrap();
        let waker = packet_io::Waker::new(&poller, WAKER).unwrap();
        let parameters = Parameters::new(SecretKey::generate().unwrap().identity(), [1; 32]);
        let shared = Shared::new(parameters.clone(), &socket, DriverWaker::Thread(waker)).unwrap();
        Driver::new(Arc::new(shared), socket, poller, parameters)
    }

    #[test]
    fn the_thread_of_an_abandoned_endpoint_ends_without_another_wake() {
        let driver = driver();
        driver.shared.is_abandoned.store(true, Ordering::SeqCst);
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            driver.run();
            ended.send(()).unwrap();
        });
        assert!(end.recv_timeout(Duration::from_secs(60)).is_ok());
    }

    struct Task {
        number: usize,
        order: Arc<Mutex<Vec<usize>>>,
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.order.lock().unwrap().push(self.number);
        }
    }

    #[test]
    fn whoever_is_to_be_woken_is_in_the_order_in_which_it_became_so() {
        let (mut driver, order) = (driver(), Arc::<Mutex<Vec<usize>>>::default());
        driver.woken.extend((0..3).map(|number| {
            let order = Arc::clone(&order);
            Waker::from(Arc::new(Task { number, order }))
        }));
        driver.wake();
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    }

    #[test]
    fn a_closing_endpoint_whose_socket_takes_nothing_waits_no_longer_than_its_limit() {
        let mut driver = driver();
        (driver.is_busy, driver.is_blocked) = (false, true);
        assert_eq!(driver.time_to_wait(), None);
        driver.closing_until = Some(Instant::now() + CLOSE_TIME_MAX);
        assert!(driver.time_to_wait().unwrap() <= CLOSE_TIME_MAX);
    }

    /// A call of the program, which has something to send to this address.
    fn connect(driver: &Driver, to: &std::net::UdpSocket) {
        let id = SecretKey::generate().unwrap().id();
        let connected = driver
            .shared
            .change(|state, now| state.peers.connect(now, id, &[to.local_addr().unwrap()]));
        assert!(connected.is_ok());
    }

    #[test]
    fn a_call_sends_in_the_place_of_a_thread_that_sleeps() {
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let driver = driver();
        assert!(!driver.shared.fall_asleep());
        connect(&driver, &peer);
        // The driver never runs.
        assert!(peer.recv(&mut [0; 1_500]).unwrap() >= 1_200);
    }

    #[test]
    fn a_call_sends_nothing_while_the_thread_waits_for_its_socket_to_take_more() {
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        peer.set_nonblocking(true).unwrap();
        let mut driver = driver();
        driver.set_blocked(true);
        assert!(!driver.shared.fall_asleep());
        connect(&driver, &peer);
        assert!(peer.recv(&mut [0; 1_500]).is_err());
        assert!(driver.shared.fall_asleep(), "it was woken");
        driver.ready.push(Ready {
            token: SOCKET,
            readable: false,
            writable: true,
            hangup: false,
        });
        driver.turn(Instant::now());
        peer.set_nonblocking(false).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(peer.recv(&mut [0; 1_500]).unwrap() >= 1_200);
    }
}
