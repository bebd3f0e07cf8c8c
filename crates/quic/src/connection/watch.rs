//! What a peer's program is told of the path while it changes: the path MTU, and what limits the rate.
//!
//! What limits the rate is judged over spans of at least two round trips: the path does where nearly all attempts to
//! send were held back by congestion control, and the program does where most of them found nothing more to send.
//! Between both, the last judgement stands. While the path limits it, a rate that doubled or halved is told, too.

use std::time::{Duration, Instant};

use super::Connection;
use crate::event::{Congestion, Event, LimitedBy};
use crate::limits::{CONGESTION_HELD_BACK_SHARE, CONGESTION_SPAN_MIN};

/// What was told last.
#[derive(Debug)]
pub(crate) struct Watch {
    path_mtu: u16,
    limited_by: LimitedBy,
    bytes_per_second: u64,
    /// When the present span ends, and the two counts at its beginning.
    span_end: Instant,
    held_back: u64,
    idle: u64,
}

impl Watch {
    fn new(connection: &Connection) -> Self {
        Self {
            path_mtu: connection.proto.current_mtu(),
            limited_by: LimitedBy::Program,
            bytes_per_second: 0,
            span_end: connection.begun + CONGESTION_SPAN_MIN,
            held_back: connection.held_back,
            idle: connection.idle,
        }
    }

    /// What limited the rate in a span with so many attempts of each kind.
    fn judge(&self, held_back: u64, idle: u64) -> LimitedBy {
        match self.limited_by {
            LimitedBy::Program if held_back > idle.saturating_mul(CONGESTION_HELD_BACK_SHARE) => {
                LimitedBy::Path
            }
            LimitedBy::Path if held_back <= idle || held_back == 0 => LimitedBy::Program,
            same => same,
        }
    }

    /// Whether a rate is worth telling after the one that was told.
    fn is_news(&self, bytes_per_second: u64) -> bool {
        bytes_per_second >= self.bytes_per_second.saturating_mul(2) && bytes_per_second > 0
            || bytes_per_second <= self.bytes_per_second / 2
    }
}

impl Connection {
    /// From here on changes of the path are told.
    pub(crate) fn begin_watch(&mut self) {
        self.watch = Some(Box::new(Watch::new(self)));
    }

    /// When the next look is due without any packet: a path that limits nothing any more is told, too.
    pub(crate) fn watch_due(&self) -> Option<Instant> {
        let watch = self.watch.as_deref()?;
        (watch.limited_by == LimitedBy::Path && !self.closed).then_some(watch.span_end)
    }

    /// Ends the span where it is over; what there is to tell.
    pub(crate) fn watch_congestion(&mut self, now: Instant) -> Option<Event> {
        if self.closed || self.watch.as_deref().is_none_or(|watch| now < watch.span_end) {
            return None;
        }
        let mut watch = self.watch.take()?;
        let (held_back, idle) = (self.held_back - watch.held_back, self.idle - watch.idle);
        (watch.held_back, watch.idle) = (self.held_back, self.idle);
        let round_trip = self.proto.rtt();
        watch.span_end = now + span(round_trip);
        let limited_by = watch.judge(held_back, idle);
        let bytes_per_second = self.gate.estimate().bandwidth_bytes_per_second;
        let has_changed = limited_by != watch.limited_by
            || limited_by == LimitedBy::Path && watch.is_news(bytes_per_second);
        watch.limited_by = limited_by;
        if has_changed {
            watch.bytes_per_second = bytes_per_second;
        }
        self.watch = Some(watch);
        has_changed.then_some(Event::Congestion {
            connection: self.key,
            congestion: Congestion {
                limited_by,
                bytes_per_second,
                window: self.gate.allowance().window,
                round_trip,
            },
        })
    }

    /// The path MTU, where it is new.
    pub(crate) fn watch_path_mtu(&mut self) -> Option<Event> {
        let watch = self.watch.as_deref_mut()?;
        let (connection, path_mtu) = (self.key, self.proto.current_mtu());
        let has_changed = std::mem::replace(&mut watch.path_mtu, path_mtu) != path_mtu;
        has_changed.then_some(Event::PathMtuChanged { connection, path_mtu })
    }
}

fn span(round_trip: Duration) -> Duration {
    (2 * round_trip).max(CONGESTION_SPAN_MIN)
}
