//! The control stream's two ends: what waits to be said, sent by a thread of its own so that nobody waits for the
//! network to say something, and what has been heard.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use files_proto::message::{Decoder, Message};
use peer::blocking::{wait, wait_for};
use peer::{ReceiveStream, SendStream};

use crate::carrier::ended;
use crate::error::TransferError;
use crate::limits::{CONTROL_QUEUE_BYTES, CONTROL_READ_BYTES};

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

/// Reads messages.
pub(crate) struct Inbox {
    stream: ReceiveStream,
    decoder: Decoder,
}

/// What came of waiting for a message.
pub(crate) enum Heard {
    Message(Message),
    /// Nothing in this time.
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

    /// The next message, waited for at most so long.
    pub(crate) fn next(&mut self, limit: Duration) -> Result<Heard, TransferError> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Heard::Message(message));
            }
            match wait_for(limit, self.stream.read_chunk(CONTROL_READ_BYTES)) {
                None => return Ok(Heard::Nothing),
                Some(Ok(Some(bytes))) => self.decoder.push(&bytes),
                Some(Ok(None)) => return Ok(Heard::End),
                Some(Err(error)) => return Err(TransferError::Lost(error.to_string())),
            }
        }
    }
}
