//! The timers of all connections in one order.

use std::time::Instant;

use super::{Endpoint, Timer};
use crate::error::CloseReason;
use crate::event::ConnectionKey;

impl Endpoint {
    pub(super) fn arm(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let timers = [
            connection.proto.poll_timeout(),
            connection.deadline,
            connection.paced_until,
            connection.watch_due(),
            connection.closing_due(),
        ];
        let due = timers.into_iter().flatten().min();
        if due == connection.timer {
            return;
        }
        if let Some(old) = std::mem::replace(&mut connection.timer, due) {
            self.timers.remove(&(old, index));
        }
        if let Some(due) = due {
            self.timers.insert((due, index));
        }
    }

    /// When [`Endpoint::handle_timeout`] is due, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, Timer)> {
        let decision = self.undecided.deadline();
        let decision = decision.map(|(due, key)| (due, Timer::Decision(key)));
        let of_connection = self.timers.first().map(|first| self.timer_of_connection(*first));
        let both = [decision, of_connection].into_iter().flatten();
        both.min_by_key(|(due, _)| *due)
    }

    fn timer_of_connection(&self, (due, index): (Instant, usize)) -> (Instant, Timer) {
        let key = ConnectionKey(index);
        let deadline = self
            .connections
            .get(index)
            .and_then(Option::as_ref)
            .and_then(|entry| entry.deadline);
        let timer = if deadline == Some(due) {
            Timer::Authentication(key)
        } else {
            Timer::Transport(key)
        };
        (due, timer)
    }

    /// Runs every timer that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire_undecided(now);
        while let Some((due, index)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.remove(&(due, index));
            let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            connection.timer = None;
            if connection.deadline.take_if(|deadline| *deadline <= now).is_some() {
                // A connection that its first packet closed gets no closing timer from quinn-proto and would stay.
                if connection.closed || connection.proto.is_handshaking() {
                    self.discard(now, index, CloseReason::Unauthenticated, b"no handshake in time");
                    continue;
                }
                self.end(
                    now,
                    index,
                    CloseReason::Unauthenticated,
                    0,
                    b"no valid token in time",
                );
            } else {
                connection.paced_until.take_if(|until| *until <= now);
                connection.handle_closing_timeout(now);
                connection.proto.handle_timeout(now);
                self.events.extend(connection.watch_congestion(now));
            }
            self.touch(index);
        }
    }
}
