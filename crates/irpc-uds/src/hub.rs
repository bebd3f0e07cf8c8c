//! One task that drives everything of an endpoint: noq's endpoint driver and the drivers of its connections.
//!
//! noq spawns each driver as a task of its own, so every received datagram wakes two tasks in turn and every write
//! sends at once. As noq's [`Runtime`], the hub keeps them together: the socket is read first, the connections that got
//! something are driven in the same turn, and a turn that was caused by writes alone first lets every other task run,
//! so that what they write travels in one datagram: of a call, the server's STOP_SENDING, which irpc causes by letting
//! go of the request stream, and the answer. It never spins unless asked to.

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use noq::{AsyncTimer, AsyncUdpSocket, Runtime};
use slab::Slab;
use tokio::runtime::Handle;

use crate::limits::DRIVER_ROUNDS_MAX;
use crate::ready::{ReadyList, Token};
use crate::spin::Spin;
use crate::timer::LazyTimer;

type BoxedDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Index of the token that means new drivers; no slab gets so long.
const SPAWNED: usize = usize::MAX;

/// Drivers that wait for the task, and whether there is one.
#[derive(Default)]
struct Spawned {
    drivers: Vec<BoxedDriver>,
    running: bool,
}

/// The runtime of one endpoint.
pub(crate) struct Hub {
    handle: Handle,
    ready: Arc<ReadyList>,
    newcomers: Arc<Token>,
    spawned: Mutex<Spawned>,
    spin: Duration,
    itself: std::sync::Weak<Hub>,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Hub")
            .field("spin", &self.spin)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub whose task will run on `handle`, spinning for at most `spin` before it sleeps.
    pub(crate) fn new(handle: Handle, spin: Duration) -> Arc<Self> {
        let ready = ReadyList::new();
        Arc::new_cyclic(|itself| Self {
            handle,
            newcomers: Token::new(&ready, SPAWNED),
            ready,
            spawned: Mutex::default(),
            spin,
            itself: itself.clone(),
        })
    }
}

impl Runtime for Hub {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let _context = self.handle.enter();
        Box::pin(LazyTimer::new(deadline))
    }

    fn spawn(&self, driver: BoxedDriver) {
        let mut spawned = self
            .spawned
            .lock()
            .expect("nothing panics while it holds this lock");
        spawned.drivers.push(driver);
        if !spawned.running
            && let Some(hub) = self.itself.upgrade()
        {
            spawned.running = true;
            let task = HubTask::new(hub);
            // A budget for one task would end in the middle of a turn: the drivers bound their work themselves.
            self.handle.spawn(tokio::task::unconstrained(task));
        }
        drop(spawned);
        self.newcomers.mark();
    }

    fn wrap_udp_socket(&self, _: std::net::UdpSocket) -> io::Result<Box<dyn AsyncUdpSocket>> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "an endpoint of irpc-uds does not encrypt, so it cannot be moved to a UDP socket",
        ))
    }
}

/// One driver with the waker that lists it.
struct Driver {
    future: BoxedDriver,
    token: Arc<Token>,
    waker: Waker,
}

/// The task. The endpoint's driver has index 0, since it is spawned first and ends last.
struct HubTask {
    hub: Arc<Hub>,
    drivers: Slab<Driver>,
    queue: Vec<usize>,
    /// Others had their turn since the first write.
    deferred: bool,
    spin: Spin,
}

impl HubTask {
    fn new(hub: Arc<Hub>) -> Self {
        Self {
            spin: Spin::new(hub.spin),
            hub,
            drivers: Slab::new(),
            queue: Vec::new(),
            deferred: false,
        }
    }

    /// Takes in the drivers that were spawned, and lists them.
    fn admit(&mut self) {
        self.hub.newcomers.taken();
        let drivers = {
            let mut spawned = self
                .hub
                .spawned
                .lock()
                .expect("nothing panics while it holds this lock");
            std::mem::take(&mut spawned.drivers)
        };
        for future in drivers {
            let entry = self.drivers.vacant_entry();
            let token = Token::new(&self.hub.ready, entry.key());
            let waker = Waker::from(token.clone());
            token.mark();
            entry.insert(Driver { future, token, waker });
        }
    }

    /// Drives all that is queued.
    fn drive(&mut self) {
        // The socket first: what it brings may let a connection send more at once.
        if let Some(position) = self.queue.iter().position(|index| *index == 0) {
            self.queue.swap(0, position);
        }
        let mut queue = std::mem::take(&mut self.queue);
        for index in queue.drain(..) {
            if index == SPAWNED {
                self.admit();
                continue;
            }
            let Some(driver) = self.drivers.get_mut(index) else {
                continue;
            };
            driver.token.taken();
            let mut context = Context::from_waker(&driver.waker);
            let polled = catch_unwind(AssertUnwindSafe(|| driver.future.as_mut().poll(&mut context)));
            match polled {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => drop(self.drivers.remove(index)),
                Err(panic) => {
                    // As with a task of its own: the others go on.
                    tracing::error!("a QUIC driver panicked: {}", panic_text(&*panic));
                    drop(self.drivers.remove(index));
                }
            }
        }
        self.queue = queue;
    }

    /// Whether everything has ended, so that the task may; a later driver starts another one.
    fn finished(&self) -> bool {
        if !self.drivers.is_empty() {
            return false;
        }
        let mut spawned = self
            .hub
            .spawned
            .lock()
            .expect("nothing panics while it holds this lock");
        spawned.running = !spawned.drivers.is_empty();
        !spawned.running
    }

    /// Nothing is listed: whether to look again instead of sleeping.
    fn spins(&mut self) -> bool {
        self.spin.enabled() && !self.drivers.is_empty() && self.spin.idle(Instant::now())
    }
}

impl Future for HubTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..DRIVER_ROUNDS_MAX {
            this.hub.ready.take_into(&mut this.queue);
            if this.queue.is_empty() {
                if this.finished() {
                    return Poll::Ready(());
                }
                if this.spins() {
                    break;
                }
                if this.hub.ready.park(context.waker()) {
                    return Poll::Pending;
                }
                continue;
            }
            let socket = this.queue.iter().any(|index| matches!(*index, 0 | SPAWNED));
            if !socket && !std::mem::replace(&mut this.deferred, true) {
                break;
            }
            if socket && this.spin.enabled() {
                this.spin.received(Instant::now());
            }
            this.drive();
            this.deferred = false;
        }
        // A wake-up of ourselves would come before the runtime's main task. This lets all others run, and looks at the
        // sockets without sleeping.
        std::pin::pin!(tokio::task::yield_now()).poll(context)
    }
}

/// The message of a panic, where it has one.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_driver_that_panics_takes_no_other_with_it_and_the_task_starts_again() {
        let hub = Hub::new(Handle::current(), Duration::ZERO);
        let (sent, mut received) = tokio::sync::mpsc::unbounded_channel();
        for round in 0..2 {
            let (first, second) = (sent.clone(), sent.clone());
            hub.spawn(Box::pin(async move {
                tokio::task::yield_now().await;
                first.send(round).expect("the test listens");
            }));
            hub.spawn(Box::pin(async { panic!("on purpose") }));
            hub.spawn(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                second.send(round + 10).expect("the test listens");
            }));
            for expected in [round, round + 10] {
                let arrived = tokio::time::timeout(Duration::from_secs(10), received.recv()).await;
                assert_eq!(arrived.expect("in time"), Some(expected));
            }
        }
    }

    #[tokio::test]
    async fn writes_of_several_tasks_reach_a_driver_in_one_turn() {
        let hub = Hub::new(Handle::current(), Duration::ZERO);
        let wakers: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (polls, writes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        hub.spawn(Box::pin(std::future::pending()));
        let (shared, count, seen) = (wakers.clone(), polls.clone(), writes.clone());
        hub.spawn(Box::pin(std::future::poll_fn(move |context| {
            *shared.lock().expect("no panic") = Some(context.waker().clone());
            count.fetch_add(1, Ordering::Relaxed);
            if seen.load(Ordering::Relaxed) == 8 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })));
        while polls.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let before = polls.load(Ordering::Relaxed);
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let (wakers, writes) = (wakers.clone(), writes.clone());
                tokio::spawn(async move {
                    writes.fetch_add(1, Ordering::Relaxed);
                    wakers
                        .lock()
                        .expect("no panic")
                        .as_ref()
                        .expect("polled before")
                        .wake_by_ref();
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("it only writes");
        }
        while Arc::strong_count(&polls) > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(polls.load(Ordering::Relaxed), before + 1);
    }

    #[tokio::test]
    async fn a_udp_socket_is_refused() {
        let hub = Hub::new(Handle::current(), Duration::ZERO);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let error = hub.wrap_udp_socket(socket).expect_err("no encryption");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
