//! Which messages came, when that is acknowledged, and the credit that goes with it.

use std::time::Instant;

use super::Receiver;
use crate::frame::Ack;
use crate::limits::{ACK_AFTER, ACK_DELAY, MESSAGE_COST_BYTES, RECEIVE_BYTES_RESERVED, WINDOW_NUMBERS};

impl Receiver {
    /// An acknowledgement was asked for.
    pub(crate) fn handle_probe(&mut self, now: Instant) {
        self.ack_due = Some(now);
    }

    pub(super) fn is_repeated(&mut self, now: Instant, number: u64) -> bool {
        let has_come = self.window.has(number);
        if has_come {
            self.counters.duplicates += 1;
            // Its acknowledgement was lost.
            self.ack_due = Some(now);
        }
        has_come
    }

    pub(super) fn take_number(&mut self, now: Instant, number: u64) {
        self.window.insert(number);
        self.unacknowledged += 1;
        let due = if self.unacknowledged >= ACK_AFTER {
            now
        } else {
            now + ACK_DELAY
        };
        self.ack_due = Some(self.ack_due.map_or(due, |earlier| earlier.min(due)));
    }

    /// When an acknowledgement is to be sent.
    pub(crate) fn ack_due(&self) -> Option<Instant> {
        self.ack_due
    }

    /// The acknowledgement to send now.
    pub(crate) fn take_ack(&mut self) -> Ack {
        self.ack_due = None;
        self.unacknowledged = 0;
        self.credit = self.credit.max(self.credit_now());
        Ack {
            credit: self.credit,
            runs: self.window.runs(),
        }
    }

    /// The credit that the room allows, where numbers beyond those that came bring the largest bodies.
    pub(super) fn credit_now(&self) -> u64 {
        let room = self.bytes_max.saturating_sub(self.bytes());
        // Where only messages that wait fill it, what they wait for may need a number yet.
        let room = if self.queued_bytes <= self.bytes_max / 2 {
            room.max(RECEIVE_BYTES_RESERVED)
        } else {
            room
        };
        let numbers = (room / (self.largest.max(1_200) + MESSAGE_COST_BYTES)) as u64;
        self.window.end() + numbers.min(WINDOW_NUMBERS / 2)
    }
}
