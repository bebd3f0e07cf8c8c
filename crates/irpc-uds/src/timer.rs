//! A timer for deadlines that move with every packet: it touches the runtime's timer only when its deadline comes
//! earlier, and looks again when it fires too soon.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::{Sleep, sleep_until};

/// See the module.
#[derive(Debug)]
pub(crate) struct LazyTimer {
    deadline: Instant,
    armed: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl LazyTimer {
    pub(crate) fn new(deadline: Instant) -> Self {
        Self {
            deadline,
            armed: deadline,
            sleep: Box::pin(sleep_until(deadline.into())),
        }
    }

    fn arm(&mut self, at: Instant) {
        self.armed = at;
        self.sleep.as_mut().reset(at.into());
    }
}

impl noq::AsyncTimer for LazyTimer {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.deadline = deadline;
        if deadline < self.armed || self.sleep.is_elapsed() {
            self.arm(deadline);
        }
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while Future::poll(self.sleep.as_mut(), context).is_ready() {
            if self.armed >= self.deadline {
                return Poll::Ready(());
            }
            let deadline = self.deadline;
            self.arm(deadline);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noq::AsyncTimer;
    use std::future::poll_fn;
    use std::time::Duration;

    async fn fires_at(timer: &mut Pin<Box<LazyTimer>>) -> Instant {
        poll_fn(|context| timer.as_mut().poll(context)).await;
        tokio::time::Instant::now().into_std()
    }

    #[tokio::test(start_paused = true)]
    async fn it_fires_at_the_last_deadline_whether_moved_forth_or_back() {
        let start = tokio::time::Instant::now().into_std();
        let after = |ms| start + Duration::from_millis(ms);
        let mut timer = Box::pin(LazyTimer::new(after(10)));
        timer.as_mut().reset(after(50));
        assert!(fires_at(&mut timer).await >= after(50));
        timer.as_mut().reset(after(500));
        timer.as_mut().reset(after(100));
        let fired = fires_at(&mut timer).await;
        assert!(fired >= after(100) && fired < after(110));
        timer.as_mut().reset(after(120));
        assert!(fires_at(&mut timer).await >= after(120));
    }
}
