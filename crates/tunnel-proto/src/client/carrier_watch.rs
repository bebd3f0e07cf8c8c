//! Whether the carrier in use carries what is wanted, and when the other one is tried, kept or left again (specs/path.md).
//!
//! A network may let UDP's handshake through and throttle what follows, at once or after some seconds. A carrier is *poor*
//! that holds traffic back all the time and loses packets, or carries far less than it did. Then the connection moves to the
//! other one on trial, and stays there where that carries more. A connection whose carrier falls silent moves without a
//! trial. UDP is tried again later: it costs the machines less.

use std::collections::VecDeque;
use std::iter::Sum;
use std::time::Instant;

use masque::HeldBack;
use packet::CarrierKind;

use crate::limits;

/// What a connection has carried since it exists, and how it fares at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes of QUIC packets sent.
    pub bytes_sent: u64,
    /// Bytes of QUIC packets received.
    pub bytes_received: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// QUIC packets declared lost.
    pub packets_lost: u64,
    /// What is sent was held back since the last look.
    pub up: Option<HeldBack>,
    /// So the server says of what it sends.
    pub down: Option<HeldBack>,
}

/// What is to be done about the carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CarrierAdvice {
    /// Reach the server over the other one, and move the connection there: [`CarrierWatch::moved`] or
    /// [`CarrierWatch::not_moved`] follows.
    TryOther,
    /// The one on trial is the better one.
    Keep,
    /// The one on trial is not: move the connection back.
    Return,
}

/// What one look found.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Bytes that arrived, in both directions.
    bytes: u64,
    is_held_back: bool,
    sent: u64,
    lost: u64,
}

/// Why the server is being reached over the other carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It may carry more.
    Better,
    /// Nothing is acknowledged over the one in use.
    Silence,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Bytes for each look that the other carrier carried.
    before: u64,
    looks: usize,
    /// Bytes of the looks that count.
    bytes: u64,
}

/// What is known against a carrier.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// Trials that came to nothing, and times that it was left.
    failures: u32,
    /// Not to be tried before.
    retry_at: Option<Instant>,
    /// It was reached, and was poor: whether it is better shows with traffic only.
    was_poor: bool,
}

impl Standing {
    fn fail(&mut self, now: Instant, was_poor: bool) {
        let pause = limits::CARRIER_RETRY_MIN.saturating_mul(1 << self.failures.min(16));
        self.retry_at = Some(now + pause.min(limits::CARRIER_RETRY_MAX));
        self.failures = self.failures.saturating_add(1);
        self.was_poor = was_poor;
    }
}

/// The carriers of one connection that may use either.
#[derive(Clone, Debug, Default)]
pub(super) struct CarrierWatch {
    before: Option<Carried>,
    looks: VecDeque<Look>,
    /// Most bytes of two looks after each other that this carrier carried.
    best: u64,
    /// The server is being reached over the other one, for this reason.
    asks: Option<Cause>,
    trial: Option<Trial>,
    standings: [Standing; 2],
}

impl CarrierWatch {
    /// The connection is another one, over `carrier`.
    pub(super) fn connected(&mut self, now: Instant, carrier: CarrierKind) {
        let udp = &mut self.standings[CarrierKind::Udp as usize];
        if carrier == CarrierKind::Tcp && udp.retry_at.is_none() {
            // It had its chance.
            udp.fail(now, false);
        }
        *self = Self {
            standings: self.standings,
            ..Self::default()
        };
    }

    /// Packets leave this machine in another way, where everything may be different. The other carrier is not asked for
    /// any more, and the one in use is not on trial.
    pub(super) fn network_changed(&mut self) {
        self.standings = [Standing::default(); 2];
        self.begin();
    }

    /// Whether the carrier in use is on trial.
    #[must_use]
    pub(super) fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// To be asked every [`limits::CARRIER_WATCH_INTERVAL`] while connected over `carrier`.
    pub(super) fn look(
        &mut self,
        now: Instant,
        carrier: CarrierKind,
        carried: Carried,
    ) -> Option<CarrierAdvice> {
        let look = Look::between(&self.before.replace(carried)?, &carried);
        if self.looks.len() == limits::CARRIER_POOR_LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
        if let Some(trial) = &mut self.trial {
            trial.looks += 1;
            if trial.looks > limits::CARRIER_START_LOOKS {
                trial.bytes += look.bytes;
            }
            let trial = *trial;
            return self.judge(now, carrier, trial);
        }
        let last_two = self.looks.iter().rev().take(2);
        self.best = self.best.max(last_two.map(|look| look.bytes).sum());
        let may_try = self.asks.is_none() && self.wants_other(now, carrier);
        if may_try {
            self.asks = Some(Cause::Better);
        }
        may_try.then_some(CarrierAdvice::TryOther)
    }

    /// Nothing is acknowledged over `carrier`, which is in use. Whether the server is to be reached over the other one now:
    /// [`CarrierWatch::moved`], [`CarrierWatch::not_moved`] or [`CarrierWatch::answered`] follows.
    pub(super) fn is_silent(&mut self, now: Instant, carrier: CarrierKind) -> bool {
        let may_try = self.would_leave(now, carrier);
        if may_try {
            self.asks = Some(Cause::Silence);
        }
        may_try
    }

    /// ICMP says that nothing listens where the carrier in use leads. Whether the server is being reached over the other one,
    /// to which the connection then moves without a trial.
    pub(super) fn refused(&mut self) -> bool {
        self.asks = self.asks.map(|_| Cause::Silence);
        self.asks.is_some()
    }

    /// Whether `carrier`, which is in use, would be left if it were silent.
    #[must_use]
    pub(super) fn would_leave(&self, now: Instant, carrier: CarrierKind) -> bool {
        self.asks.is_none() && self.trial.is_none() && self.is_due(now, carrier.other())
    }

    /// Something was acknowledged over the carrier in use. Whether the attempt over the other one is of no use any more.
    pub(super) fn answered(&mut self) -> bool {
        self.asks.take_if(|cause| *cause == Cause::Silence).is_some()
    }

    /// The connection continues over the other carrier. Whether that one is on trial: not where `from` was silent.
    pub(super) fn moved(&mut self, now: Instant, from: CarrierKind) -> bool {
        let before = self.mean_of(HALF);
        let is_flight = self.asks == Some(Cause::Silence);
        self.begin();
        if is_flight {
            self.standings[from as usize].fail(now, false);
            return false;
        }
        self.trial = Some(Trial {
            before,
            looks: 0,
            bytes: 0,
        });
        true
    }

    /// The server could not be reached over `carrier`.
    pub(super) fn not_moved(&mut self, now: Instant, carrier: CarrierKind) {
        self.asks = None;
        self.standings[carrier as usize].fail(now, false);
    }

    /// Nothing comes through over `carrier`, which is on trial: the connection is about to move back.
    pub(super) fn fell_silent(&mut self, now: Instant, carrier: CarrierKind) {
        self.standings[carrier as usize].fail(now, false);
        self.begin();
    }

    /// On another carrier, or the same one judged.
    fn begin(&mut self) {
        self.looks.clear();
        (self.best, self.asks, self.trial) = (0, None, None);
    }

    fn wants_other(&self, now: Instant, carrier: CarrierKind) -> bool {
        let standing = &self.standings[carrier.other() as usize];
        let is_wanted = match carrier {
            CarrierKind::Udp => self.is_poor(self.best),
            CarrierKind::Tcp => !standing.was_poor || self.mean_of(HALF) >= TRAFFIC_BYTES,
        };
        is_wanted && self.is_due(now, carrier.other())
    }

    /// Whether a carrier may be tried.
    fn is_due(&self, now: Instant, carrier: CarrierKind) -> bool {
        let retry_at = self.standings[carrier as usize].retry_at;
        retry_at.is_none_or(|retry_at| retry_at <= now)
    }

    fn judge(&mut self, now: Instant, carrier: CarrierKind, trial: Trial) -> Option<CarrierAdvice> {
        let looks = limits::CARRIER_TRIAL_LOOKS[usize::from(carrier == CarrierKind::Tcp)];
        let counted = looks - limits::CARRIER_START_LOOKS;
        let is_over = trial.looks >= looks;
        let is_kept = match carrier {
            CarrierKind::Tcp if is_over && self.carries_more_than(trial.before, counted) => true,
            CarrierKind::Tcp if is_over && self.carries_all(trial.before, counted) => true,
            CarrierKind::Tcp if trial.looks >= limits::CARRIER_TRIAL_LOOKS_MAX => false,
            CarrierKind::Tcp => return None,
            CarrierKind::Udp if self.is_poor(2 * trial.before) => false,
            CarrierKind::Udp if is_over => {
                !self.is_held_back() || trial.bytes * 4 >= trial.before * 3 * counted as u64
            }
            CarrierKind::Udp => return None,
        };
        let (advice, failed) = if is_kept {
            (CarrierAdvice::Keep, carrier.other())
        } else {
            (CarrierAdvice::Return, carrier)
        };
        if failed == CarrierKind::Udp || !is_kept {
            self.standings[failed as usize].fail(now, true);
        }
        self.begin();
        Some(advice)
    }

    /// Whether all of the last looks found traffic held back.
    fn is_held_back(&self) -> bool {
        self.looks.len() == limits::CARRIER_POOR_LOOKS && self.looks.iter().all(|look| look.is_held_back)
    }

    /// Beside the most bytes that two looks after each other found. What was before the path changed is not to speak for it:
    /// each half of the looks has to show the same.
    fn is_poor(&self, best: u64) -> bool {
        let looks: Vec<Look> = self.looks.iter().copied().collect();
        let in_both_halves = |shows: &dyn Fn(Look) -> bool| {
            let mut halves = looks.chunks(HALF);
            halves.all(|half| shows(half.iter().copied().sum()))
        };
        // A server may say any number.
        let is_lossy = |sum: Look| {
            sum.lost.saturating_mul(100) >= sum.sent.saturating_mul(limits::CARRIER_POOR_LOSS_PERCENT)
        };
        let has_fallen = |sum: Look| sum.bytes * 2 * limits::CARRIER_POOR_FALL < best * HALF as u64;
        self.is_held_back() && (in_both_halves(&is_lossy) || in_both_halves(&has_fallen))
    }

    /// Whether half as much again arrived in so many last looks.
    fn carries_more_than(&self, before: u64, looks: usize) -> bool {
        let mean = self.mean_of(looks);
        mean * 2 >= before * 3 && mean > 0
    }

    /// Whether nothing was held back in so many last looks, and no less arrived.
    fn carries_all(&self, before: u64, looks: usize) -> bool {
        let mut last = self.looks.iter().rev().take(looks);
        let mean = self.mean_of(looks);
        last.all(|look| !look.is_held_back) && mean >= before && mean > 0
    }

    /// Bytes for each of so many last looks.
    fn mean_of(&self, looks: usize) -> u64 {
        let last = self.looks.iter().rev().take(looks);
        last.clone().map(|look| look.bytes).sum::<u64>() / (last.len().max(1) as u64)
    }
}

impl Sum for Look {
    fn sum<I: Iterator<Item = Self>>(looks: I) -> Self {
        looks.fold(Self::default(), |sum, look| Self {
            bytes: sum.bytes + look.bytes,
            is_held_back: sum.is_held_back || look.is_held_back,
            sent: sum.sent + look.sent,
            lost: sum.lost + look.lost,
        })
    }
}

impl Look {
    fn between(before: &Carried, now: &Carried) -> Self {
        let (sent, lost) = (
            now.packets_sent.saturating_sub(before.packets_sent),
            now.packets_lost.saturating_sub(before.packets_lost),
        );
        let up = now.bytes_sent.saturating_sub(before.bytes_sent);
        let arrived = up - (up * lost.min(sent)).checked_div(sent).unwrap_or(0);
        let directions = [now.up, now.down].into_iter().flatten();
        Self {
            bytes: arrived + now.bytes_received.saturating_sub(before.bytes_received),
            is_held_back: directions.clone().next().is_some(),
            sent: directions.clone().map(|direction| direction.sent).sum(),
            lost: directions.map(|direction| direction.lost).sum(),
        }
    }
}

/// Half of the looks that show whether a carrier is poor.
const HALF: usize = limits::CARRIER_POOR_LOOKS / 2;

/// Bytes for each look from which on there is traffic by which a carrier can be judged.
const TRAFFIC_BYTES: u64 = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MEGABIT: u64 = 125_000;

    /// A connection in virtual time, and what each carrier would carry.
    struct Bed {
        watch: CarrierWatch,
        now: Instant,
        carrier: CarrierKind,
        carried: Carried,
        advices: Vec<(u64, CarrierAdvice)>,
        looks: u64,
    }

    /// What a path does with what is wanted.
    #[derive(Clone, Copy)]
    struct Does {
        bits: u64,
        is_held_back: bool,
        lost_percent: u64,
    }

    const fn carries(megabits: u64) -> Does {
        Does {
            bits: megabits * 1_000_000,
            is_held_back: true,
            lost_percent: 0,
        }
    }

    const fn throttled() -> Does {
        Does {
            bits: 1_000_000,
            is_held_back: true,
            lost_percent: 5,
        }
    }

    const fn all_of(megabits: u64) -> Does {
        Does {
            is_held_back: false,
            ..carries(megabits)
        }
    }

    impl Bed {
        fn over(carrier: CarrierKind) -> Self {
            // tidy-allow(pure): first instant of virtual time
            let now = Instant::now();
            let mut watch = CarrierWatch::default();
            watch.connected(now, carrier);
            Self {
                watch,
                now,
                carrier,
                carried: Carried::default(),
                advices: Vec::new(),
                looks: 0,
            }
        }

        /// A look, after which the connection is where it is advised to be; what came of it.
        fn look(&mut self, does: Does) -> Option<CarrierAdvice> {
            self.now += limits::CARRIER_WATCH_INTERVAL;
            self.looks += 1;
            let bytes = does.bits / 16;
            let sent = bytes / 1_000;
            let lost = sent * does.lost_percent / 100;
            self.carried.bytes_received += bytes;
            self.carried.bytes_sent += 1_000;
            self.carried.packets_sent += 1;
            self.carried.down = does.is_held_back.then_some(HeldBack { sent, lost });
            let advice = self.watch.look(self.now, self.carrier, self.carried)?;
            match advice {
                TryOther => {
                    assert!(self.watch.moved(self.now, self.carrier));
                    self.carrier = self.carrier.other();
                }
                Return => self.carrier = self.carrier.other(),
                Keep => {}
            }
            self.advices.push((self.looks, advice));
            Some(advice)
        }

        /// Looks for `seconds` at carriers that do so, UDP first.
        fn run(&mut self, seconds: u64, [udp, tcp]: [Does; 2]) {
            for _ in 0..seconds * 2 {
                let does = match self.carrier {
                    CarrierKind::Udp => udp,
                    CarrierKind::Tcp => tcp,
                };
                self.look(does);
            }
        }

        fn advices(&self) -> Vec<CarrierAdvice> {
            self.advices.iter().map(|(_, advice)| *advice).collect()
        }
    }

    use CarrierAdvice::{Keep, Return, TryOther};

    /// PATH-4 to PATH-6.
    #[test]
    fn udp_that_is_throttled_is_left_within_ten_seconds_and_taken_again_when_it_is_better() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(5, [carries(50), carries(45)]);
        assert_eq!(bed.advices, []);
        bed.run(10, [throttled(), carries(45)]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
        // Three seconds until it is tried, three until it is kept.
        assert!(bed.advices[1].0 <= 10 + 2 * 10, "{:?}", bed.advices);
        assert_eq!(bed.carrier, CarrierKind::Tcp);
        bed.run(60, [throttled(), carries(45)]);
        assert_eq!(bed.advices()[2..], [TryOther, Return]);
        assert_eq!(bed.carrier, CarrierKind::Tcp);
        bed.run(60, [carries(50), carries(45)]);
        assert_eq!(bed.advices()[4..], [TryOther, Keep]);
        assert_eq!(bed.carrier, CarrierKind::Udp);
        bed.run(600, [carries(50), carries(45)]);
        assert_eq!(bed.advices.len(), 6);
    }

    /// PATH-6: the server lets little go before it knows that the client is there (RFC 9000 section 8.1).
    #[test]
    fn tcps_shape_is_kept_as_soon_as_it_carries_more_and_has_eight_seconds() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(5, [carries(16), all_of(16)]);
        bed.run(3, [throttled(), carries(0)]);
        assert_eq!(bed.advices(), [TryOther]);
        bed.run(4, [throttled(), carries(0)]);
        bed.run(2, [throttled(), all_of(16)]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(5, [carries(16), all_of(16)]);
        bed.run(3 + 8, [throttled(), carries(0)]);
        assert_eq!(bed.advices(), [TryOther, Return]);
    }

    /// PATH-6.
    #[test]
    fn tcps_shape_is_kept_where_it_carries_all_that_is_wanted() {
        let lossy = Does {
            lost_percent: 10,
            ..carries(8)
        };
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(8, [lossy, all_of(10)]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
        // Less is not all, and what is held back may be more.
        for tcp in [all_of(7), carries(10)] {
            let mut bed = Bed::over(CarrierKind::Udp);
            bed.run(12, [lossy, tcp]);
            assert_eq!(bed.advices(), [TryOther, Return]);
        }
    }

    #[test]
    fn another_network_ends_a_trial_and_is_judged_anew() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(4, [throttled(), carries(20)]);
        assert!(bed.watch.is_on_trial());
        bed.watch.network_changed();
        assert!(!bed.watch.is_on_trial());
        bed.run(20, [all_of(2), all_of(2)]);
        // UDP may be better here.
        assert_eq!(bed.advices()[1..], [TryOther, Keep]);
        assert_eq!(bed.carrier, CarrierKind::Udp);
    }

    #[test]
    fn udp_that_was_throttled_from_the_first_second_is_known_by_its_losses() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(7, [throttled(), carries(20)]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
    }

    /// PATH-6, PATH-7.
    #[test]
    fn a_line_that_loses_packets_by_itself_is_tried_more_and_more_seldom() {
        let lossy = Does {
            lost_percent: 5,
            ..carries(20)
        };
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(3_600, [lossy, lossy]);
        assert_eq!(bed.carrier, CarrierKind::Udp);
        let tries = bed.advices().iter().filter(|advice| **advice == TryOther).count();
        assert!((5..=8).contains(&tries), "{tries}");
        assert!(bed.advices.chunks(2).all(|pair| pair[1].1 == Return));
    }

    #[test]
    fn neither_a_full_line_nor_little_traffic_is_a_reason() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(60, [carries(50), carries(50)]);
        bed.run(60, [all_of(1), carries(50)]);
        bed.run(60, [carries(50), carries(50)]);
        assert_eq!(bed.advices, []);
        // It was slow for a moment.
        bed.run(2, [throttled(), carries(50)]);
        bed.run(60, [carries(50), carries(50)]);
        assert_eq!(bed.advices, []);
    }

    #[test]
    fn udp_that_did_not_answer_is_tried_again_without_traffic_and_one_that_was_throttled_with_traffic_only() {
        let mut bed = Bed::over(CarrierKind::Tcp);
        let rest = Does { bits: 0, ..all_of(0) };
        bed.run(29, [rest, rest]);
        assert_eq!(bed.advices, []);
        bed.run(20, [rest, rest]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(10, [throttled(), carries(20)]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
        bed.run(600, [rest, rest]);
        assert_eq!(bed.advices.len(), 2);
        bed.run(20, [all_of(2), all_of(2)]);
        assert_eq!(bed.advices()[2..], [TryOther, Keep]);
        assert_eq!(bed.carrier, CarrierKind::Udp);
    }

    /// PATH-5, PATH-7.
    #[test]
    fn a_server_that_is_not_reached_over_the_other_carrier_is_left_alone_for_a_while() {
        let mut bed = Bed::over(CarrierKind::Udp);
        let mut tries = Vec::new();
        for _ in 0..2 * 300 {
            let before = bed.advices.len();
            bed.look(throttled());
            if bed.advices.len() > before {
                tries.push(bed.looks / 2);
                // It does not come to a move.
                bed.carrier = CarrierKind::Udp;
                bed.watch.trial = None;
                bed.watch.not_moved(bed.now, CarrierKind::Tcp);
            }
        }
        assert!((4..=5).contains(&tries.len()), "{tries:?}");
        bed.watch.network_changed();
        bed.run(4, [throttled(), throttled()]);
        assert_eq!(bed.advices.len(), tries.len() + 1);
    }

    #[test]
    fn what_arrived_before_it_was_throttled_does_not_speak_for_udp() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(5, [carries(16), all_of(16)]);
        let dropped = Does {
            lost_percent: 90,
            ..throttled()
        };
        bed.run(10, [dropped, all_of(16)]);
        assert_eq!(bed.advices(), [TryOther, Keep]);
    }

    /// PATH-8.
    #[test]
    fn a_silent_carrier_is_left_without_a_trial_and_tried_again_later() {
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(5, [all_of(16), all_of(16)]);
        assert!(bed.watch.is_silent(bed.now, CarrierKind::Udp));
        assert!(
            !bed.watch.is_silent(bed.now, CarrierKind::Udp),
            "one attempt at a time"
        );
        assert!(!bed.watch.moved(bed.now, CarrierKind::Udp), "no trial");
        bed.carrier = CarrierKind::Tcp;
        let rest = Does { bits: 0, ..all_of(0) };
        bed.run(29, [rest, rest]);
        assert_eq!(bed.advices, []);
        bed.run(2, [rest, rest]);
        assert_eq!(bed.advices(), [TryOther]);
    }

    /// PATH-8.
    #[test]
    fn an_attempt_out_of_silence_ends_with_the_silence_and_counts_against_nobody() {
        let mut bed = Bed::over(CarrierKind::Udp);
        assert!(!bed.watch.answered());
        for _ in 0..2 {
            assert!(bed.watch.is_silent(bed.now, CarrierKind::Udp));
            assert!(bed.watch.answered());
            assert!(!bed.watch.answered());
        }
        // Not reached, it is left alone for a while.
        assert!(bed.watch.is_silent(bed.now, CarrierKind::Udp));
        bed.watch.not_moved(bed.now, CarrierKind::Tcp);
        assert!(!bed.watch.is_silent(bed.now, CarrierKind::Udp));
        assert!(
            bed.watch
                .is_silent(bed.now + limits::CARRIER_RETRY_MIN, CarrierKind::Udp)
        );
        // On trial there is a way back.
        let mut bed = Bed::over(CarrierKind::Udp);
        bed.run(4, [throttled(), carries(20)]);
        assert!(bed.watch.is_on_trial() && !bed.watch.is_silent(bed.now, bed.carrier));
    }

    /// PATH-8.
    #[test]
    fn a_refused_carrier_is_left_without_a_trial_whyever_the_other_one_is_asked() {
        let mut bed = Bed::over(CarrierKind::Udp);
        assert!(!bed.watch.refused(), "the other one is not asked");
        for cause in [Cause::Silence, Cause::Better] {
            bed.watch.asks = Some(cause);
            assert!(bed.watch.refused());
            assert!(!bed.watch.moved(bed.now, CarrierKind::Udp), "no trial");
        }
        let mut bed = Bed::over(CarrierKind::Udp);
        assert!(bed.watch.is_silent(bed.now, CarrierKind::Udp));
        bed.watch.not_moved(bed.now, CarrierKind::Tcp);
        assert!(!bed.watch.is_silent(bed.now, CarrierKind::Udp) && !bed.watch.refused());
    }

    #[test]
    fn whatever_a_server_says_is_borne() {
        let mut bed = Bed::over(CarrierKind::Udp);
        let absurd = HeldBack {
            sent: (1 << 62) - 1,
            lost: (1 << 62) - 1,
        };
        for _ in 0..20 {
            bed.now += limits::CARRIER_WATCH_INTERVAL;
            bed.carried.down = Some(absurd);
            bed.watch.look(bed.now, bed.carrier, bed.carried);
        }
        assert_eq!(bed.watch.asks, Some(Cause::Better));
    }

    #[test]
    fn what_was_lost_did_not_arrive() {
        let before = Carried::default();
        let now = Carried {
            bytes_sent: 10 * MEGABIT,
            packets_sent: 1_000,
            packets_lost: 900,
            ..before
        };
        assert_eq!(Look::between(&before, &now).bytes, MEGABIT);
        let odd = Carried {
            packets_lost: 2_000,
            ..now
        };
        assert_eq!(Look::between(&before, &odd).bytes, 0);
    }
}
