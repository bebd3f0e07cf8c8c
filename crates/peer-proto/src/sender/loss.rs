//! What left in DATAGRAM frames: acknowledgements, losses, and the timers of both.
//!
//! A frame is lost when one that left later was acknowledged and 1.5 round trips have passed, or when nothing was heard
//! for a probe timeout. Which of several flights of a repeated frame arrived is unknown, so that only first flights
//! tell how far the peer has heard.

use std::time::{Duration, Instant};

use super::{Sender, Stage};
use crate::delivery::{DropReason, Outcome, Reliability};
use crate::frame::{Ack, Head};
use crate::limits::{ACK_DELAY, LOSS_ROUND_TRIP_EIGHTHS, LOSS_TIME_MIN, PROBE_DOUBLINGS_MAX, PROBE_SLACK};

/// A DATAGRAM frame that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) order: u64,
    pub(super) at: Instant,
}

impl Sender {
    /// An ACK came, and the round trip at present.
    pub(crate) fn handle_ack(
        &mut self,
        now: Instant,
        ack: &Ack,
        round_trip: Duration,
    ) -> Result<(), &'static str> {
        if ack
            .runs
            .first()
            .is_some_and(|(_, end)| *end > self.numbers.next_id())
        {
            return Err("an acknowledgement of a number that was not sent");
        }
        self.credit = self.credit.max(ack.credit);
        self.starved_since = None;
        for (start, end) in &ack.runs {
            // Only numbers of living messages are looked at: an ACK may tell of 65,536 others.
            while let Some(id) = self.numbers.remove_first_in(*start, *end) {
                match self.entries.get(id).map(|entry| (entry.stage, entry.repeats)) {
                    // Which of several flights arrived is unknown.
                    Some((Stage::Flying(order), 0)) => {
                        self.acknowledged = self.acknowledged.max(Some(order));
                    }
                    // It was taken for lost, and nobody needs the stream.
                    Some((Stage::Streaming(stream), _)) => self.resets.push(stream),
                    _ => {}
                }
                self.probe_doublings = 0;
                self.end(id, Outcome::Acked);
            }
        }
        self.find_losses(now, round_trip);
        Ok(())
    }

    /// How long a flight waits for its acknowledgement before it counts as lost.
    fn patience(&self, flight: &Flight, round_trip: Duration) -> Duration {
        if self.acknowledged.is_some_and(|latest| flight.order < latest) {
            (round_trip * LOSS_ROUND_TRIP_EIGHTHS / 8 + ACK_DELAY).max(LOSS_TIME_MIN)
        } else {
            (2 * round_trip + PROBE_SLACK) * (1 << self.probe_doublings)
        }
    }

    /// Repeats or gives up what is lost.
    fn find_losses(&mut self, now: Instant, round_trip: Duration) {
        let mut was_silent = false;
        while let Some(flight) = self.flights.front().copied() {
            let is_current = self
                .entries
                .get(flight.id)
                .is_some_and(|entry| entry.stage == Stage::Flying(flight.order));
            if is_current {
                if flight.at + self.patience(&flight, round_trip) > now {
                    break;
                }
                was_silent |= self.acknowledged.is_none_or(|latest| flight.order >= latest);
                self.lose(flight.id);
            }
            self.flights.pop_front();
        }
        if was_silent {
            self.probe_doublings = (self.probe_doublings + 1).min(PROBE_DOUBLINGS_MAX);
        }
    }

    fn lose(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let is_newest = match entry.head {
            Head::Latest { key, .. } => self.latest.get(&key).is_none_or(|(_, newest)| *newest == id),
            Head::Unordered | Head::Ordered(_) => true,
        };
        if entry.reliability == Reliability::Unreliable {
            self.end(id, Outcome::Dropped(DropReason::Lost));
        } else if !is_newest {
            self.end(id, Outcome::Dropped(DropReason::Superseded));
        } else {
            entry.stage = Stage::Queued;
            entry.repeats += 1;
            self.counters.repeated += 1;
            self.repeats.push_back(id);
        }
    }

    /// Whether only credit keeps messages from leaving, and nothing is under way that an ACK would follow.
    fn is_starved(&self) -> bool {
        self.flights.is_empty()
            && self.numbers.next_id() >= self.credit
            && self.queues.values().any(|queue| !queue.is_empty())
    }

    /// When [`Self::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&mut self, now: Instant, round_trip: Duration) -> Option<Instant> {
        let expiry = self.expiries.first().map(|(at, _)| *at);
        let loss = self
            .flights
            .front()
            .map(|flight| flight.at + self.patience(flight, round_trip));
        let probe = (self.is_starved() && !self.probe_due)
            .then(|| *self.starved_since.get_or_insert(now) + 2 * round_trip + PROBE_SLACK);
        [expiry, loss, probe].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant, round_trip: Duration) {
        while let Some((at, id)) = self.expiries.first().copied()
            && at <= now
        {
            if let Some(Stage::Streaming(stream)) = self.entries.get(id).map(|entry| entry.stage) {
                self.resets.push(stream);
            }
            self.end(id, Outcome::Expired);
        }
        self.find_losses(now, round_trip);
        let is_due = |since: Instant| since + 2 * round_trip + PROBE_SLACK <= now;
        if self.is_starved() && self.starved_since.is_some_and(is_due) {
            self.probe_due = true;
        }
    }
}
