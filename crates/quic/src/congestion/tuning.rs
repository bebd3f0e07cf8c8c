//! Gains, waits and bounds of the model, each with its reason; and how the profiles differ.

use std::time::Duration;

/// Rate of a start, in bandwidths: it doubles each round trip (draft-ietf-ccwg-bbr: 4 ln 2).
pub(super) const GAIN_STARTUP: f64 = 2.77;

/// Rate that empties the queue of a start.
pub(super) const GAIN_DRAIN: f64 = 0.2;

/// Window of a start, in pipes: the part above one is what it can put into a queue.
pub(super) const WINDOW_START: f64 = 1.75;

/// Rate while there is a short queue that nobody else causes.
pub(super) const GAIN_QUEUED: f64 = 0.95;

/// Rate of a probe for more.
const GAIN_UP: f64 = 1.2;

/// A probe sends at least so much faster, or it would see nothing.
const GAIN_UP_MIN: f64 = 1.05;

/// Rate after a probe: what it put into the queue leaves it.
pub(super) const GAIN_DOWN: f64 = 0.75;

/// Rate at which loss that congestion causes would be gone.
pub(super) const GAIN_CHECK: f64 = 0.95;

/// Rate at which datagrams may go at any time: their senders probe, too, with a quarter more where they are BBR.
pub(super) const GAIN_DATAGRAMS: f64 = 1.25;

/// Rate on a local path that lets far less pass than is sent.
pub(super) const GAIN_POLICED: f64 = 1.25;

/// Least such rate, in bytes per second.
pub(super) const POLICED_RATE_MIN: u64 = 32_000;

/// A start goes on while each round delivers so much more than the last.
pub(super) const GROWTH: f64 = 1.25;

/// Rounds without growth that end a start.
pub(super) const STALLED_ROUNDS: u32 = 3;

/// Acknowledgements in a row that met a queue and end a start.
pub(super) const QUEUED_SAMPLES: u32 = 8;

/// A probe that delivered so much more than before begins another start.
pub(super) const FOUND_MORE: f64 = 1.12;

/// How long a start that found nothing keeps others from beginning.
pub(super) const FRUITLESS_START_MEMORY: Duration = Duration::from_secs(10);

/// What remains after congestion (RFC 9438 section 4.6, draft-ietf-ccwg-bbr: 0.7; here only where deliveries fell as well,
/// or for a mark).
pub(super) const CUT: f64 = 0.85;

/// What remains where others share the queue that overflows (RFC 9438 section 4.6).
pub(super) const CUT_SHARED: f64 = 0.7;

/// A probe without loss raises the bound on bytes in flight by so much.
pub(super) const HIGH_GROWTH: f64 = 1.25;

/// Round trips between probes, and random ones more.
pub(super) const PROBE_ROUNDS: f64 = 3.0;
pub(super) const PROBE_ROUNDS_RANDOM: f64 = 2.0;

/// Time between probes that cause loss, to which up to a half is added (draft-ietf-ccwg-bbr: two to three seconds).
pub(super) const COSTLY_PROBE_WAIT: Duration = Duration::from_secs(2);

/// A floor of loss above this is measured again at every chance.
pub(super) const FLOOR_DOUBTFUL: f64 = 0.01;

/// Round trips between probes where others share the queue, within [`COSTLY_PROBE_WAIT`] and this: a Reno flow with the same
/// window would take about as many to come back (draft-ietf-ccwg-bbr section 5.3.3.5.1).
pub(super) const SHARED_PROBE_ROUNDS: u32 = 60;
pub(super) const SHARED_PROBE_WAIT_MAX: Duration = Duration::from_secs(6);

/// A path delivers far less than before below this part of its bandwidth, in so many windows in a row.
pub(super) const SLOWDOWN: f64 = 0.6;
pub(super) const SLOWDOWN_WINDOWS: u32 = 2;

/// Shortest such window: acknowledgements come in batches.
pub(super) const SLOWDOWN_WINDOW_MIN: Duration = Duration::from_millis(10);

/// A sender that had nothing more to send does not press the path while it holds no more than this part of the pipe.
pub(super) const LIMITED_PIPE: f64 = 1.25;

/// Packets that may always be in flight, so that acknowledgements keep coming.
pub(super) const WINDOW_PACKETS_MIN: u64 = 4;

/// Packets in flight before the first measurement; they are paced (RFC 9002 section 7.2 recommends ten at once).
pub(super) const FIRST_PACKETS: u64 = 128;

/// Datagrams in flight before the first measurement, in bytes: 30 Mbit/s at 250 ms. Without a tunnel their sender would not
/// wait for a window either.
pub(super) const FIRST_DATAGRAM_WINDOW: u64 = 1 << 20;

/// What the peer may delay an acknowledgement, and timers a packet.
pub(super) const ACKNOWLEDGEMENT_SLACK: Duration = Duration::from_millis(3);

/// Below this base the path does not leave the building: delay is then that of processes that wait for a processor.
const LOCAL: Duration = Duration::from_millis(2);

/// Round trips up to this are no queue on a local path, unless they stay ([`super::local_queue`]).
const LOCAL_FREE: Duration = Duration::from_millis(30);

/// Packets that may be in flight on a local path whose window is bounded: half more than the peer acknowledges at a time.
pub(super) const LOCAL_WINDOW_PACKETS_MIN: u64 = 96;

/// What may be in flight beside a standing queue on a local path, as time beyond the base.
pub(super) const BESIDE_LOCAL_QUEUE: Duration = Duration::from_millis(2);

/// A start ends with a queue of an eighth of the base, within these (RFC 9406 section 4.3).
const QUEUE_AT_START_MIN: Duration = Duration::from_millis(4);
const QUEUE_AT_START_MAX: Duration = Duration::from_millis(16);

/// A queue may always be this long: below it, timers and batches cannot be distinguished from queues.
const QUEUE_MIN: Duration = Duration::from_millis(5);

/// What the `latency` profile allows.
const QUEUE_LATENCY: Duration = Duration::from_millis(2);

/// How a profile weighs throughput against delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tuning {
    /// A queue of half a round trip may stand for a moment.
    Throughput,
    /// A queue of two milliseconds may.
    Latency,
}

impl Tuning {
    /// Whether a path with this base is within one machine or building.
    pub(super) fn is_local(self, base: Duration) -> bool {
        self == Self::Throughput && base < LOCAL
    }

    /// Delay that belongs to the ends and not to the path.
    pub(super) fn free_delay(self, base: Duration) -> Duration {
        if self.is_local(base) {
            LOCAL_FREE.saturating_sub(base)
        } else {
            Duration::ZERO
        }
    }

    /// The longest queue of our own that may stand.
    pub(super) fn queue_max(self, base: Duration) -> Duration {
        match self {
            Self::Latency => QUEUE_LATENCY,
            Self::Throughput => QUEUE_MIN.max(base / 2).max(self.free_delay(base)),
        }
    }

    /// The queue that ends a start.
    pub(super) fn queue_at_start(self, base: Duration) -> Duration {
        match self {
            Self::Latency => QUEUE_LATENCY,
            Self::Throughput => (base / 8)
                .clamp(QUEUE_AT_START_MIN, QUEUE_AT_START_MAX)
                .max(self.free_delay(base)),
        }
    }

    /// Rate of a probe for more, in bandwidths: it makes a queue of so much less than one round trip.
    pub(super) fn gain_up(self, base: Duration) -> f64 {
        match self {
            Self::Throughput => GAIN_UP,
            Self::Latency => {
                let queue = QUEUE_LATENCY.as_secs_f64() / base.as_secs_f64().max(1e-6);
                (1.0 + queue).clamp(GAIN_UP_MIN, GAIN_UP)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_queue_is_half_a_round_trip_and_at_least_five_milliseconds() {
        let millis = Duration::from_millis;
        assert_eq!(Tuning::Throughput.queue_max(millis(100)), millis(50));
        assert_eq!(Tuning::Throughput.queue_max(millis(4)), millis(5));
        assert_eq!(Tuning::Latency.queue_max(millis(100)), millis(2));
    }

    #[test]
    fn on_a_local_path_delay_up_to_thirty_milliseconds_is_no_queue() {
        let base = Duration::from_micros(200);
        let allowed = base + Tuning::Throughput.queue_max(base);
        assert_eq!(allowed, Duration::from_millis(30));
    }

    #[test]
    fn a_probe_of_the_latency_profile_makes_no_longer_queue_than_it_allows() {
        let base = Duration::from_millis(20);
        assert!((Tuning::Latency.gain_up(base) - 1.1).abs() < 1e-9);
        assert_eq!(Tuning::Latency.gain_up(Duration::from_millis(500)), GAIN_UP_MIN);
    }
}
