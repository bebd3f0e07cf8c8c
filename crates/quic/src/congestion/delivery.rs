//! Samples of the delivery rate, and rounds.
//!
//! Every acknowledged packet gives a sample: what was delivered between its departure and its acknowledgement, over the
//! longer of the time in which that was sent and the time in which it was acknowledged (draft-ietf-ccwg-bbr, "Delivery Rate
//! Samples"). quinn-proto reports when a packet left and was acknowledged, not its number, so packets that left at one
//! instant, a train, share one record. This keeps it cheap.
//!
//! A round is a round trip counted in packets: it ends with the acknowledgement of a packet that left after the last
//! round's end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::limits;

/// Why packets were sent as fast as they were, as far as it matters when they are acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressure {
    /// Faster than the path was known to carry.
    Probing,
    /// As fast.
    Steady,
    /// Less: what is lost now is lost at any rate.
    Calm,
}

/// What was known when packets left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departure {
    pub(super) at: Instant,
    pub(super) pressure: Pressure,
    /// Bytes in flight, these included.
    pub(super) in_flight: u64,
    /// The sender had nothing more to send at that time.
    is_limited: bool,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    /// Bytes that have not been acknowledged.
    open: u64,
}

/// What a batch of acknowledgements says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Bytes per second; `None` where the time was too short to tell.
    pub(super) rate: Option<u64>,
    /// The rate may be the sender's rather than the path's.
    pub(super) is_limited: bool,
    pub(super) round_trip: Duration,
    pub(super) departure: Departure,
    pub(super) ends_round: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    departures: VecDeque<Departure>,
    /// Bytes delivered so far.
    delivered: u64,
    delivered_at: Instant,
    /// Departure of the newest packet that has been acknowledged.
    first_sent: Instant,
    in_flight: u64,
    /// Samples are limited by the sender until so much is delivered.
    limited_until: Option<u64>,
    round_end: u64,
    newest: Option<Departure>,
}

impl Delivery {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            departures: VecDeque::new(),
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            in_flight: 0,
            limited_until: None,
            round_end: 0,
            newest: None,
        }
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Whether the sender had nothing more to send lately.
    pub(super) fn is_limited(&self) -> bool {
        self.limited_until.is_some()
    }

    /// The sender had nothing more to send: what is in flight now does not fill the path.
    pub(super) fn limit(&mut self) {
        self.limited_until = Some((self.delivered + self.in_flight).max(1));
    }

    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, pressure: Pressure) {
        if self.in_flight == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        self.in_flight += bytes;
        if let Some(last) = self.departures.back_mut()
            && last.at == now
            && last.pressure == pressure
        {
            last.in_flight = self.in_flight;
            last.open += bytes;
            return;
        }
        self.prune(now);
        self.departures.push_back(Departure {
            at: now,
            pressure,
            in_flight: self.in_flight,
            is_limited: self.is_limited(),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            open: bytes,
        });
    }

    fn prune(&mut self, now: Instant) {
        while let Some(first) = self.departures.front()
            && (first.open == 0
                || now.saturating_duration_since(first.at) > limits::DEPARTURE_MEMORY
                || self.departures.len() >= limits::DEPARTURES_MAX)
        {
            self.departures.pop_front();
        }
    }

    /// The record of packets that left at `sent`.
    pub(super) fn departure(&self, sent: Instant) -> Option<&Departure> {
        self.position(sent).map(|place| &self.departures[place])
    }

    fn position(&self, sent: Instant) -> Option<usize> {
        // Acknowledgements mostly come in order, so it is mostly the first.
        if self.departures.front()?.at == sent {
            return Some(0);
        }
        let place = self.departures.partition_point(|entry| entry.at < sent);
        (self.departures.get(place)?.at == sent).then_some(place)
    }

    /// One packet was acknowledged; gives the pressure under which it was sent.
    pub(super) fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64) -> Option<Pressure> {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.delivered += bytes;
        self.delivered_at = now;
        let place = self.position(sent)?;
        let departure = &mut self.departures[place];
        departure.open = departure.open.saturating_sub(bytes);
        let departure = *departure;
        if self.newest.is_none_or(|newest| newest.at <= sent) {
            self.newest = Some(departure);
        }
        while self.departures.front().is_some_and(|first| first.open == 0) && self.departures.len() > 1 {
            self.departures.pop_front();
        }
        Some(departure.pressure)
    }

    pub(super) fn on_lost(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }

    /// Ends a batch of acknowledgements, after which quinn-proto has `in_flight` bytes under way.
    pub(super) fn end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        base: Option<Duration>,
    ) -> Option<Sample> {
        self.in_flight = in_flight;
        if self.limited_until.is_some_and(|until| self.delivered > until) {
            self.limited_until = None;
        }
        let departure = self.newest.take()?;
        let round_trip = now.saturating_duration_since(departure.at);
        let sending = departure.at.saturating_duration_since(departure.first_sent);
        let acknowledging = now.saturating_duration_since(departure.delivered_at);
        self.first_sent = departure.at;
        let interval = sending.max(acknowledging);
        let bytes = self.delivered - departure.delivered;
        // Faster than a round trip is compression of acknowledgements, not the path.
        let is_long = !interval.is_zero() && base.is_none_or(|base| interval >= base);
        let ends_round = departure.delivered >= self.round_end;
        if ends_round {
            self.round_end = self.delivered;
        }
        Some(Sample {
            rate: is_long.then(|| rate(bytes, interval)),
            is_limited: departure.is_limited,
            round_trip,
            departure,
            ends_round,
        })
    }
}

/// Bytes per second.
pub(super) fn rate(bytes: u64, time: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Bytes that `bytes_per_second` carries in `time`.
pub(crate) fn bytes_in(bytes_per_second: u64, time: Duration) -> u64 {
    let bytes = u128::from(bytes_per_second) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u64 = 1_200;
    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Packets a millisecond apart, each acknowledged after `delay`; the last sample.
    fn paced(delay: Duration) -> Sample {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        let at = |index: u32| start + index * MILLISECOND;
        let mut last = None;
        let mut acknowledged = 0;
        for index in 0..200 {
            delivery.on_sent(at(index), PACKET, Pressure::Steady);
            while acknowledged <= index && at(acknowledged) + delay <= at(index) {
                delivery.on_ack(at(index), at(acknowledged), PACKET);
                acknowledged += 1;
                last = delivery.end_acks(at(index), delivery.in_flight(), None).or(last);
            }
        }
        last.unwrap()
    }

    #[test]
    fn the_rate_of_a_steady_flow_is_what_it_sends() {
        let sample = paced(20 * MILLISECOND);
        assert_eq!(sample.rate, Some(PACKET * 1_000));
        assert_eq!(sample.round_trip, 20 * MILLISECOND);
        // It leaves before the acknowledgement of the same instant comes.
        assert_eq!(sample.departure.in_flight, 21 * PACKET);
    }

    #[test]
    fn acknowledgements_that_come_at_once_are_not_taken_for_a_fast_path() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        for index in 0..50 {
            delivery.on_sent(start + index * MILLISECOND, PACKET, Pressure::Steady);
        }
        let now = start + 100 * MILLISECOND;
        for index in 0..50 {
            delivery.on_ack(now, start + index * MILLISECOND, PACKET);
        }
        let sample = delivery.end_acks(now, 0, Some(50 * MILLISECOND)).unwrap();
        assert!(sample.rate.unwrap() <= 50 * PACKET * 10, "{sample:?}");
    }

    #[test]
    fn a_sample_says_whether_the_sender_had_more_to_send() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        delivery.limit();
        delivery.on_sent(start, PACKET, Pressure::Steady);
        delivery.on_ack(start + MILLISECOND, start, PACKET);
        assert!(
            delivery
                .end_acks(start + MILLISECOND, 0, None)
                .unwrap()
                .is_limited
        );
        let later = start + 2 * MILLISECOND;
        delivery.on_sent(later, PACKET, Pressure::Steady);
        delivery.on_ack(later + MILLISECOND, later, PACKET);
        assert!(
            !delivery
                .end_acks(later + MILLISECOND, 0, None)
                .unwrap()
                .is_limited
        );
    }

    #[test]
    fn packets_of_one_instant_share_a_record_and_records_are_bounded() {
        // tidy-allow(pure): first instant of virtual time
        let start = Instant::now();
        let mut delivery = Delivery::new(start);
        (0..10).for_each(|_| delivery.on_sent(start, PACKET, Pressure::Steady));
        assert_eq!(delivery.departures.len(), 1);
        for index in 0..2 * limits::DEPARTURES_MAX as u32 {
            delivery.on_sent(
                start + Duration::from_micros(index.into()),
                PACKET,
                Pressure::Steady,
            );
        }
        assert!(delivery.departures.len() <= limits::DEPARTURES_MAX);
    }
}
