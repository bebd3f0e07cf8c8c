//! The event loop as a task of the program's runtime. The runtime watches the loop's own poller, and the task looks
//! there without waiting; deadlines are the poller's, too, because the runtime's are whole milliseconds.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use packet_io::Timer;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{Driver, TIMER};
use crate::limits::TAKE_BACK_TIME_MAX;
use crate::shared::{DriverWaker, Shared};

impl Driver {
    /// Runs as a task of this runtime until the endpoint is closed and its peers have been told, or the runtime ends.
    pub(crate) fn spawn(self, runtime: &Handle) -> io::Result<()> {
        let alarm = Alarm {
            timer: Timer::new(&self.poller, TIMER)?,
            rings_at: None,
        };
        let _entered = runtime.enter();
        let poller = self.poller.as_fd().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "an owned descriptor stays what it is; what comes instead is an unsafe call"
        )]
        let poller = AsyncFd::with_interest(poller, Interest::READABLE)?;
        runtime.spawn(self.run_as_task(poller, alarm));
        Ok(())
    }

    async fn run_as_task(mut self, poller: AsyncFd<OwnedFd>, mut alarm: Alarm) {
        be_woken(&self.shared).await;
        loop {
            match self.time_to_wait() {
                Some(Duration::ZERO) => give_way().await,
                until => {
                    if alarm.set(until).is_err() || wait(&poller).await.is_err() {
                        break;
                    }
                }
            }
            let looked = self.poller.wait(&mut self.ready, Some(Duration::ZERO));
            if looked.is_err() || self.go_on() {
                break;
            }
        }
        if !self.shared.companions.wait_for_end(Duration::ZERO) {
            // The runtime's threads are not kept waiting. Without a thread the endpoint ends at once.
            let wait = move || drop((self.shared.companions.wait_for_end(TAKE_BACK_TIME_MAX), self));
            let _ = thread::Builder::new().name("peer-end".to_owned()).spawn(wait);
        }
    }
}

/// From here on, changes by the program wake this task.
async fn be_woken(shared: &Shared) {
    poll_fn(|context| {
        if let DriverWaker::Task(waker) = &shared.waker {
            waker.get_or_init(|| context.waker().clone());
        }
        Poll::Ready(())
    })
    .await;
}

/// Lets the program's tasks have a turn. Another thread of the runtime that has nothing to do goes on with ours
/// meanwhile; tokio's own `yield_now` keeps a task where it is.
async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_given_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits until the poller has events or the task is woken otherwise.
async fn wait(poller: &AsyncFd<OwnedFd>) -> io::Result<()> {
    let mut has_waited = false;
    poll_fn(|context| {
        match poller.poll_read_ready(context) {
            // Whatever comes to the poller from here on makes it ready again, also where events are left there.
            Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending if !has_waited => {
                has_waited = true;
                return Poll::Pending;
            }
            Poll::Pending => {}
        }
        Poll::Ready(Ok(()))
    })
    .await
}

/// Ends waits at deadlines. It is not set again for later ones: until it rings, it rings too early, which does no harm.
struct Alarm {
    timer: Timer,
    rings_at: Option<Instant>,
}

impl Alarm {
    fn set(&mut self, after: Option<Duration>) -> io::Result<()> {
        let Some(after) = after else {
            return Ok(());
        };
        let now = Instant::now();
        let is_set = self.rings_at.is_some_and(|at| now < at && at <= now + after);
        if !is_set {
            self.timer.set(after)?;
            self.rings_at = Some(now + after);
        }
        Ok(())
    }
}
