//! The closing state of an end that has said so (RFC 9000 section 10.2.1): until the peer answers, or the core forgets
//! the connection after three probe timeouts, what says so is sent again, for it may be lost, and a peer that sends
//! nothing would hear of the end by its idle timeout alone. It is the same packet each time, as that section allows:
//! what would seal another one is gone.

use std::time::{Duration, Instant};

use super::Connection;
use crate::limits::CLOSE_REPEAT_MIN;
use crate::transmit::{Outbox, OutgoingTrain};

/// What was said, and when it is said again.
#[derive(Debug)]
pub(crate) struct Closing {
    /// From the last time to the next; it doubles.
    pause: Duration,
    due: Instant,
    is_due: bool,
    /// The latest packet that said so.
    said: Option<OutgoingTrain>,
}

impl Connection {
    /// The connection was closed by us: whether the peer, which knows of the connection, is to be heard of.
    pub(crate) fn begin_closing(&mut self, now: Instant) -> bool {
        let pause = self.proto.rtt() * 3 / 2 + CLOSE_REPEAT_MIN;
        self.closing = self.is_established.then(|| {
            Box::new(Closing {
                pause,
                due: now + pause,
                is_due: false,
                said: None,
            })
        });
        self.closing.is_some()
    }

    /// Whether the peer has said since the last question that it knows.
    pub(crate) fn take_answer(&mut self) -> bool {
        self.closing.is_some()
            && self.proto.stats().frame_rx.connection_close > 0
            && self.closing.take().is_some()
    }

    /// When it is said again.
    pub(crate) fn closing_due(&self) -> Option<Instant> {
        self.closing.as_ref().map(|closing| closing.due)
    }

    /// Has the next flush say it again, where that is due.
    pub(crate) fn handle_closing_timeout(&mut self, now: Instant) {
        if let Some(closing) = self.closing.as_mut().filter(|closing| closing.due <= now) {
            closing.pause *= 2;
            closing.due = now + closing.pause;
            closing.is_due = true;
        }
    }

    /// Says it again, where that is due.
    pub(super) fn say_again(&mut self, outbox: &mut Outbox) {
        let Some(closing) = &mut self.closing else {
            return;
        };
        if std::mem::take(&mut closing.is_due)
            && let Some(said) = &closing.said
        {
            let mut bytes = outbox.buffer();
            bytes.extend_from_slice(&said.bytes);
            outbox.push(OutgoingTrain { bytes, ..*said });
        }
    }

    /// Keeps what the core has just said.
    pub(super) fn keep_said(&mut self, train: &OutgoingTrain) {
        if let Some(closing) = &mut self.closing {
            closing.said = Some(OutgoingTrain {
                bytes: train.bytes.clone(),
                ..*train
            });
        }
    }
}
