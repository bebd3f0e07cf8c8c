//! The event loop as a task of the program's runtime. The runtime watches the loop's own poller, and the task looks
//! there without waiting; deadlines are the poller's, too, because the runtime's are whole milliseconds.

use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};
use std::{io, mem};

use packet_io::Timer;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::yield_now;

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
        runtime.spawn(self.run_as_task(poller, alarm, Threads::of(runtime)));
        Ok(())
    }

    async fn run_as_task(mut self, poller: AsyncFd<OwnedFd>, mut alarm: Alarm, runtime: Threads) {
        be_woken(&self.shared).await;
        while self.rest(&poller, &mut alarm, runtime).await.is_ok() {
            if self.go_on() {
                break;
            }
        }
        if !self.shared.companions.wait_for_end(Duration::ZERO) {
            // The runtime's threads are not kept waiting. Without a thread the endpoint ends at once.
            let wait = move || drop((self.shared.companions.wait_for_end(TAKE_BACK_TIME_MAX), self));
            let _ = thread::Builder::new().name("peer-end".to_owned()).spawn(wait);
        }
    }

    /// Rests until there is something to do. The program's tasks have a turn before each of ours.
    async fn rest(
        &mut self,
        poller: &AsyncFd<OwnedFd>,
        alarm: &mut Alarm,
        runtime: Threads,
    ) -> io::Result<()> {
        let has_rested = match self.time_to_wait() {
            Some(Duration::ZERO) => false,
            until => {
                alarm.set(until)?;
                wait(poller).await?
            }
        };
        if !has_rested {
            runtime.give_way().await;
        }
        self.poller.wait(&mut self.ready, Some(Duration::ZERO))
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

/// The threads of a runtime.
#[derive(Clone, Copy)]
enum Threads {
    One,
    Several,
}

impl Threads {
    fn of(runtime: &Handle) -> Self {
        match runtime.metrics().num_workers() {
            ..2 => Self::One,
            2.. => Self::Several,
        }
    }

    /// Lets the program's tasks have a turn. Where another thread has nothing to do, it goes on with ours meanwhile:
    /// tokio's own `yield_now` keeps a task where it is, until its thread has looked at everything else.
    async fn give_way(self) {
        if matches!(self, Self::One) {
            return yield_now().await;
        }
        let mut has_given_way = false;
        poll_fn(|context| {
            if mem::replace(&mut has_given_way, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Waits until the poller has events, or the task is woken otherwise; whether it had to wait for that.
async fn wait(poller: &AsyncFd<OwnedFd>) -> io::Result<bool> {
    let mut has_waited = false;
    poll_fn(|context| {
        match poller.poll_read_ready(context) {
            // Whatever comes to the poller from here on makes it ready again; what is left there after a turn does not,
            // and the turn says that it is busy.
            Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending if !has_waited => {
                has_waited = true;
                return Poll::Pending;
            }
            Poll::Pending => {}
        }
        Poll::Ready(Ok(has_waited))
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
