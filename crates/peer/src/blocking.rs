//! Waiting without an executor: any future of this crate, on the calling thread. That must not be one that drives the
//! endpoint ([`crate::Builder::driven_by_runtime`]): nobody would do what it waits for.
//!
//! ```
//! use peer::blocking::wait;
//! use peer::{Delivery, Endpoint, SecretKey};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
//! let caller = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
//! let to_listener = wait(caller.connect(listener.id(), &[listener.local_addr()]))?;
//! let from_caller = wait(listener.accept()).ok_or("closed")?;
//! wait(to_listener.send("hello", Delivery::unordered()))?;
//! assert_eq!(wait(from_caller.receive())?.body, "hello");
//! # Ok(())
//! # }
//! ```

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for `future` on this thread. It must need no executor of its own, as those of this crate do not.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let ended = poll_until(future, None);
    ended.expect("without a deadline it waits until the future is ready")
}

/// The same for at most `limit`; `None` where that passed, and the future is dropped.
pub fn wait_for<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    poll_until(future, Instant::now().checked_add(limit))
}

thread_local! {
    /// One for all waits of this thread: a list of wakers recognizes it, so that waits that time out leave one entry.
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

fn poll_until<T>(future: impl Future<Output = T>, deadline: Option<Instant>) -> Option<T> {
    let waker = WAKER.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[test]
    fn every_wait_of_a_thread_has_the_same_waker() {
        let waker_of_a_wait = || {
            let mut seen = None;
            let never = poll_fn(|context| {
                seen = Some(context.waker().clone());
                Poll::<()>::Pending
            });
            assert!(wait_for(Duration::ZERO, never).is_none());
            seen.unwrap()
        };
        assert!(waker_of_a_wait().will_wake(&waker_of_a_wait()));
    }
}
