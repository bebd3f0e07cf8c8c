//! The control stream's two ends: what waits to be said, sent by a thread of its own so that nobody waits for the
//! network to say something, and what has been heard.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use files_proto::message::{Decoder, Hindrance, Message};
use peer::blocking::{wait, wait_for};
use peer::{ReceiveStream, SendStream};

use crate::carrier::ended;
use crate::error::TransferError;
use crate::limits::{CONTROL_QUEUE_BYTES, CONTROL_READ_BYTES, HELD_TURN, HELLO_TIME_MAX};
use crate::progress::Progress;
use crate::waits::Look;

/// The code with which a receiver closes that has said DONE: the sender may not have heard it (FILE-37).
pub(crate) const STORED: u64 = 6;

/// The code with which a receiver closes whose user has ended it: it may come again (FILE-37).
pub(crate) const INTERRUPTED: u64 = 7;

/// Messages that are to be sent.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Whether the writer is to ask what else there is to say.
    has_more: bool,
    is_closed: bool,
}

impl Outbox {
    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message, in the order of calls.
    pub(crate) fn push(&self, message: &Message) {
        message.encode(&mut self.state().bytes);
        self.changed.notify_all();
    }

    /// What waits, for tests.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().bytes)
    }

    /// Waits until little waits to be sent; for those who could say much. `false` once the outbox is closed.
    pub(crate) fn wait_for_room(&self) -> bool {
        let state = self
            .changed
            .wait_while(self.state(), |state| {
                state.bytes.len() > CONTROL_QUEUE_BYTES && !state.is_closed
            })
            .unwrap_or_else(PoisonError::into_inner);
        !state.is_closed
    }

    /// Whether little waits to be sent, by then at the latest; for those who answer somebody that may not read.
    pub(crate) fn has_room_within(&self, limit: Duration) -> bool {
        let is_full = |state: &mut Waiting| state.bytes.len() > CONTROL_QUEUE_BYTES && !state.is_closed;
        let waited = self.changed.wait_timeout_while(self.state(), limit, is_full);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Has the writer ask its `more` again.
    pub(crate) fn poke(&self) {
        self.state().has_more = true;
        self.changed.notify_all();
    }

    /// Nothing more is to be said: the writer ends after what waits.
    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// The writer: sends what waits, and what `more` adds to it, until the outbox is closed or the stream ends.
    pub(crate) fn write_to(&self, stream: &mut SendStream, more: impl Fn(&mut Vec<u8>)) -> io::Result<()> {
        loop {
            let state = self.state();
            let mut state = self
                .changed
                .wait_while(state, |state| {
                    state.bytes.is_empty() && !state.has_more && !state.is_closed
                })
                .unwrap_or_else(PoisonError::into_inner);
            let is_closed = state.is_closed;
            let mut bytes = std::mem::take(&mut state.bytes);
            state.has_more = false;
            drop(state);
            self.changed.notify_all();
            more(&mut bytes);
            if !bytes.is_empty() {
                let written = wait(stream.write_chunk(Bytes::from(bytes)));
                written.map_err(ended).inspect_err(|_| self.close())?;
            } else if is_closed {
                stream.finish();
                return Ok(());
            }
        }
    }
}

/// What holds this end up, as the other one was told last (FILE-41).
#[derive(Default)]
pub(crate) struct Held {
    told: Hindrance,
    look: Look,
    looked: Option<Instant>,
}

impl Held {
    /// Judges now and then, and tells where it has changed.
    pub(crate) fn tell(&mut self, now: Instant, progress: &Progress, outbox: &Outbox) {
        if self
            .looked
            .is_some_and(|looked| now.saturating_duration_since(looked) < HELD_TURN)
        {
            return;
        }
        self.looked = Some(now);
        let by = progress.held_by(&mut self.look);
        if std::mem::replace(&mut self.told, by) != by {
            outbox.push(&Message::Held { by });
        }
    }
}

/// Ends the wait of the thread that hears the other end, where another thread has something for it.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Rung>);

#[derive(Default)]
struct Rung {
    has_rung: bool,
    waker: Option<Waker>,
}

impl Bell {
    pub(crate) fn ring(&self) {
        let mut rung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rung.has_rung = true;
        let waker = rung.waker.take();
        drop(rung);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once for all that rang since the last time.
    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut rung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut rung.has_rung) {
            return Poll::Ready(());
        }
        rung.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Reads messages.
pub(crate) struct Inbox {
    stream: ReceiveStream,
    decoder: Decoder,
}

/// What came of waiting for a message.
pub(crate) enum Heard {
    Message(Message),
    /// Nothing in this time, or before the bell rang.
    Nothing,
    /// The other end has said everything.
    End,
}

impl Inbox {
    pub(crate) fn new(stream: ReceiveStream) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
        }
    }

    /// The next message, waited for at most so long, and no longer than until the bell rings.
    pub(crate) fn next(&mut self, limit: Duration, bell: &Bell) -> Result<Heard, TransferError> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Heard::Message(message));
            }
            let mut read = pin!(self.stream.read_chunk(CONTROL_READ_BYTES));
            let read = poll_fn(|context| match read.as_mut().poll(context) {
                Poll::Ready(read) => Poll::Ready(Some(read)),
                Poll::Pending => bell.poll(context).map(|()| None),
            });
            match wait_for(limit, read).flatten() {
                None => return Ok(Heard::Nothing),
                Some(Ok(Some(bytes))) => self.decoder.push(&bytes),
                Some(Ok(None)) => return Ok(Heard::End),
                Some(Err(error)) => return Err(TransferError::Lost(error.to_string())),
            }
        }
    }
}

/// The other end's HELLO: its first message, once, and in time (FILE-2). Whoever says nothing holds no transfer.
pub(crate) struct Greeting {
    until: Instant,
    has_come: bool,
}

impl Greeting {
    /// It is waited for from now on.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            until: now + HELLO_TIME_MAX,
            has_come: false,
        }
    }

    /// Whether the other end may go on, of which this has been heard by now.
    pub(crate) fn check(&mut self, heard: &Heard, now: Instant) -> Result<(), TransferError> {
        let broken = |how: &str| Err(TransferError::Broken(how.to_owned()));
        match heard {
            Heard::Message(Message::Hello(_)) => match std::mem::replace(&mut self.has_come, true) {
                true => broken("it says HELLO twice"),
                false => Ok(()),
            },
            Heard::Message(_) if !self.has_come => broken("its first message is no HELLO"),
            Heard::Nothing if !self.has_come && now >= self.until => {
                Err(TransferError::Lost("the other end said nothing".to_owned()))
            }
            Heard::Message(_) | Heard::Nothing | Heard::End => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use files_proto::message::{Hello, VERSION};

    use peer::blocking::wait;

    use super::*;
    use crate::limits::TURN;

    /// FILE-2.
    #[test]
    fn whoever_says_no_hello_in_time_or_first_or_once_does_not_go_on() {
        let begun = Instant::now();
        let [early, late] = [begun + HELLO_TIME_MAX - TURN, begun + HELLO_TIME_MAX];
        let hello = || {
            Heard::Message(Message::Hello(Hello {
                version: VERSION,
                sender: false,
                extensions: Vec::new(),
            }))
        };
        let other = || Heard::Message(Message::Ask { entry: 0 });
        let mut silent = Greeting::new(begun);
        assert!(silent.check(&Heard::Nothing, early).is_ok());
        let ended = silent.check(&Heard::Nothing, late);
        assert!(matches!(ended, Err(TransferError::Lost(_))), "{ended:?}");
        assert!(matches!(
            silent.check(&other(), early),
            Err(TransferError::Broken(_))
        ));
        let mut greeting = Greeting::new(begun);
        for heard in [hello(), other(), Heard::Nothing, Heard::End] {
            assert!(greeting.check(&heard, late).is_ok());
        }
        assert!(matches!(
            greeting.check(&hello(), early),
            Err(TransferError::Broken(_))
        ));
    }

    #[test]
    fn a_bell_ends_a_wait_once_also_where_it_rang_before() {
        let bell = Bell::default();
        let hear = |limit| wait_for(limit, poll_fn(|context| bell.poll(context)));
        bell.ring();
        bell.ring();
        assert_eq!(hear(Duration::ZERO), Some(()));
        assert_eq!(hear(Duration::ZERO), None);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(poll_fn(|context| bell.poll(context))));
            while bell.0.lock().unwrap().waker.is_none() {
                thread::yield_now();
            }
            bell.ring();
            waiting.join().unwrap();
        });
    }
}
