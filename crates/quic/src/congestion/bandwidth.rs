//! The bandwidth of the path: the largest delivery rate of the last two probing cycles, and a lower bound on it while the
//! path is seen to carry less (draft-ietf-ccwg-bbr: `BBR.max_bw` and `BBR.bw_shortterm`).

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bandwidth {
    this_cycle: u64,
    last_cycle: u64,
    short_term: Option<u64>,
}

impl Bandwidth {
    /// Bytes per second; 0 before the first sample.
    pub(super) fn get(&self) -> u64 {
        let most = self.most();
        self.short_term.map_or(most, |bound| bound.min(most))
    }

    /// The largest rate of this cycle and the last, whatever has happened since.
    pub(super) fn most(&self) -> u64 {
        self.this_cycle.max(self.last_cycle)
    }

    pub(super) fn update(&mut self, rate: u64) {
        self.this_cycle = self.this_cycle.max(rate);
    }

    /// A new probing cycle begins: the rate of the cycle before the last is forgotten, and so is the bound.
    pub(super) fn begin_cycle(&mut self) {
        if self.this_cycle > 0 {
            self.last_cycle = std::mem::take(&mut self.this_cycle);
        }
        self.short_term = None;
    }

    /// The path carries no more than `rate` for the time being.
    pub(super) fn bound(&mut self, rate: u64) {
        self.short_term = Some(self.short_term.map_or(rate, |bound| bound.min(rate)));
    }

    pub(super) fn lift_bound(&mut self) {
        self.short_term = None;
    }

    /// The path has become another one, which carries `rate`.
    pub(super) fn restart(&mut self, rate: u64) {
        *self = Self {
            this_cycle: rate,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rate_of_two_cycles_counts_and_older_ones_do_not() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.update(100);
        bandwidth.update(80);
        assert_eq!(bandwidth.get(), 100);
        bandwidth.begin_cycle();
        bandwidth.update(70);
        assert_eq!(bandwidth.get(), 100);
        bandwidth.begin_cycle();
        assert_eq!(bandwidth.get(), 70);
    }

    #[test]
    fn a_cycle_without_samples_forgets_nothing() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.update(100);
        (0..5).for_each(|_| bandwidth.begin_cycle());
        assert_eq!(bandwidth.get(), 100);
    }

    #[test]
    fn a_bound_holds_until_the_next_cycle() {
        let mut bandwidth = Bandwidth::default();
        bandwidth.update(100);
        bandwidth.bound(60);
        bandwidth.bound(70);
        assert_eq!((bandwidth.get(), bandwidth.most()), (60, 100));
        bandwidth.begin_cycle();
        assert_eq!(bandwidth.get(), 100);
    }
}
