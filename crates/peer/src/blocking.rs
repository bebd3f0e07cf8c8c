//! Waiting without an executor: any future of this crate, on the calling thread, and streams as [`std::io::Read`] and
//! [`std::io::Write`] ([`Reader`], [`Writer`]). That thread must not be one that drives the
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

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::streams::{ReceiveStream, SendStream, into_io};

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

/// The same for at most `limit`; `None` where that passed, and the future is dropped: each says under *Cancellation*
/// what becomes of it then.
pub fn wait_for<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    poll_until(future, Instant::now().checked_add(limit))
}

thread_local! {
    /// One for all waits of this thread, none of which makes another one.
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

/// A stream of the peer as [`std::io::Read`], for threads without an executor.
///
/// An error is one of the kinds that [`ReceiveStream`]'s `AsyncRead` gives, and
/// [`TimedOut`](io::ErrorKind::TimedOut) where a limit has passed: then nothing was read, and the next call goes on.
///
/// ```
/// use std::io::{BufRead, BufReader, Write};
///
/// use peer::blocking::{Reader, Writer, wait};
/// use peer::{Endpoint, SecretKey};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let listener = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
/// # let caller = Endpoint::bind(SecretKey::generate()?, "127.0.0.1:0".parse()?)?;
/// # let to_listener = wait(caller.connect(listener.id(), &[listener.local_addr()]))?;
/// # let from_caller = wait(listener.accept()).ok_or("closed")?;
/// let mut writer = Writer::new(wait(to_listener.open_one_way(0))?);
/// writeln!(writer, "one line")?;
/// writer.finish()?;
///
/// let reader = Reader::new(wait(from_caller.accept_one_way())?);
/// let lines: Vec<String> = BufReader::new(reader).lines().collect::<Result<_, _>>()?;
/// assert_eq!(lines, ["one line"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    stream: ReceiveStream,
    limit: Option<Duration>,
}

impl Reader {
    /// Reads from `stream`.
    #[must_use]
    pub fn new(stream: ReceiveStream) -> Self {
        Self { stream, limit: None }
    }

    /// Has each read wait for at most `limit`; unless called, it waits as long as the connection lives.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The stream, e.g. to stop it.
    pub fn stream(&mut self) -> &mut ReceiveStream {
        &mut self.stream
    }

    /// Gives the stream back.
    #[must_use]
    pub fn into_inner(self) -> ReceiveStream {
        self.stream
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        wait_at_most(
            self.limit,
            poll_fn(|context| Pin::new(&mut self.stream).poll_read(context, &mut buffer)),
        )?;
        Ok(buffer.filled().len())
    }
}

/// Our side of a stream as [`std::io::Write`], for threads without an executor. Dropped, it finishes the stream;
/// [`Self::finish`] waits until the peer has everything.
///
/// Errors are those of [`Reader`], with [`SendStream`]'s `AsyncWrite`. What was taken leaves by itself: flushing does
/// nothing.
#[derive(Debug)]
pub struct Writer {
    stream: SendStream,
    limit: Option<Duration>,
}

impl Writer {
    /// Writes to `stream`.
    #[must_use]
    pub fn new(stream: SendStream) -> Self {
        Self { stream, limit: None }
    }

    /// Has each write, and [`Self::finish`], wait for at most `limit`; unless called, they wait as long as the
    /// connection lives.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The stream, e.g. to reset it.
    pub fn stream(&mut self) -> &mut SendStream {
        &mut self.stream
    }

    /// Gives the stream back, unfinished.
    #[must_use]
    pub fn into_inner(self) -> SendStream {
        self.stream
    }

    /// Ends the stream, and waits until the peer has everything. Where a limit has passed, the next call waits on.
    ///
    /// # Errors
    /// Those of a write.
    pub fn finish(&mut self) -> io::Result<()> {
        let finished = self.stream.finished();
        wait_at_most(self.limit, async { finished.await.map_err(into_io) })
    }
}

impl Write for Writer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        wait_at_most(
            self.limit,
            poll_fn(|context| Pin::new(&mut self.stream).poll_write(context, data)),
        )
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn wait_at_most<T>(limit: Option<Duration>, future: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match limit {
        None => wait(future),
        Some(limit) => wait_for(limit, future).unwrap_or_else(|| {
            let milliseconds = limit.as_millis();
            let text = format!("the stream was not ready within {milliseconds} ms");
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }),
    }
}

#[cfg(test)]
mod tests {
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
