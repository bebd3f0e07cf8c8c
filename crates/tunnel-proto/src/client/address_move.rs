//! Whether a connection that moved to another local address (RFC 9000 section 9) still reaches its server.

use std::time::{Duration, Instant};

use packet::CarrierKind;

use crate::limits;

/// The last move of a connection, until it is known whether it was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressMove {
    last: Option<Move>,
    /// The least silence that counts where there is no way back, the time before the move included.
    silence_min: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Move {
    began: Instant,
    /// An answer may take until then.
    until: Instant,
    /// The least silence that counts.
    silence_min: Duration,
}

impl AddressMove {
    /// For connections beside which no attempt can be made at the same address: silence ends them.
    #[must_use]
    pub fn of_front_door() -> Self {
        Self {
            last: None,
            silence_min: limits::FRONT_DOOR_SILENCE,
        }
    }

    /// The connection continues from another local address over `carrier`. `round_trip` is the path's, where it is known;
    /// `has_way_back` says that silence sends the connection back to another carrier.
    pub fn begin(
        &mut self,
        now: Instant,
        carrier: CarrierKind,
        round_trip: Option<Duration>,
        has_way_back: bool,
    ) {
        let patience = limits::MOVED_ROUND_TRIPS * round_trip.unwrap_or_default();
        let patience_min = match carrier {
            CarrierKind::Udp => limits::MOVED_SILENCE,
            CarrierKind::Tcp => limits::MOVED_SILENCE_TCP,
        };
        self.last = Some(Move {
            began: now,
            until: now + patience.max(patience_min),
            silence_min: if has_way_back {
                Duration::ZERO
            } else {
                self.silence_min
            },
        });
    }

    /// The connection is another one.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// When [`AddressMove::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.last.map(|moved| moved.until)
    }

    /// Whether the server stays silent at the new address, by when something was `heard` last. The move is forgotten.
    pub fn handle_timeout(&mut self, now: Instant, heard: Option<Instant>) -> bool {
        let Some(moved) = self.last.take_if(|moved| moved.until <= now) else {
            return false;
        };
        let Some(heard) = heard else { return true };
        if heard > moved.began {
            return false;
        }
        let until = heard + moved.silence_min;
        if now < until {
            self.last = Some(Move { until, ..moved });
        }
        now >= until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(1);

    #[test]
    fn what_is_heard_after_the_move_ends_the_wait_and_silence_is_told_once() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let late = now + limits::MOVED_SILENCE;
        for (heard, is_silent) in [(None, true), (Some(now), true), (Some(now + STEP), false)] {
            let mut moved = AddressMove::default();
            assert!(!moved.handle_timeout(late, None));
            moved.begin(now, CarrierKind::Udp, None, false);
            assert_eq!(moved.poll_timeout(), Some(late));
            assert!(!moved.handle_timeout(late - STEP, heard));
            assert_eq!(moved.handle_timeout(late, heard), is_silent, "{heard:?}");
            assert_eq!(moved.poll_timeout(), None);
            assert!(!moved.handle_timeout(late, heard));
        }
    }

    #[test]
    fn a_connection_that_nothing_can_be_tried_beside_is_given_more_time() {
        // tidy-allow(pure): first instant of virtual time
        let heard = Instant::now();
        let (now, end) = (heard + limits::PATH_SILENCE, heard + limits::FRONT_DOOR_SILENCE);
        let mut moved = AddressMove::of_front_door();
        moved.begin(now, CarrierKind::Udp, None, false);
        assert!(!moved.handle_timeout(now + limits::MOVED_SILENCE, Some(heard)));
        assert_eq!(moved.poll_timeout(), Some(end));
        // Another move changes nothing about it, and an answer does.
        let mut answered = moved;
        moved.begin(end - STEP, CarrierKind::Udp, None, false);
        let late = end - STEP + limits::MOVED_SILENCE;
        assert!(moved.handle_timeout(late, Some(heard)));
        assert!(!answered.handle_timeout(end, Some(now + STEP)));
        assert_eq!((moved.poll_timeout(), answered.poll_timeout()), (None, None));
        // On trial it goes back as soon as any other connection.
        moved.begin(now, CarrierKind::Udp, None, true);
        assert!(moved.handle_timeout(now + limits::MOVED_SILENCE, Some(heard)));
    }

    #[test]
    fn a_long_path_is_given_more_time() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let round_trip = limits::MOVED_SILENCE;
        let mut moved = AddressMove::default();
        moved.begin(now, CarrierKind::Udp, Some(round_trip), false);
        assert_eq!(
            moved.poll_timeout(),
            Some(now + limits::MOVED_ROUND_TRIPS * round_trip)
        );
    }

    #[test]
    fn in_tcps_shape_a_handshake_that_is_lost_once_is_waited_for() {
        // tidy-allow(pure): first instant of virtual time
        let now = Instant::now();
        let mut moved = AddressMove::default();
        moved.begin(now, CarrierKind::Tcp, None, false);
        assert!(!moved.handle_timeout(now + limits::MOVED_SILENCE, None));
        assert!(moved.handle_timeout(now + limits::MOVED_SILENCE_TCP, None));
    }
}
