//! How often values of each size came: a bucket for each power of two, so that counting one costs a few instructions.

use std::ops::AddAssign;

use serde::{Serialize, Serializer};

/// Counts of values, `N` buckets: the first has values up to 1, the next up to 2, 4, 8 and so on, the last all that are
/// larger. The unit is its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Histogram<const N: usize> {
    #[serde(serialize_with = "as_list")]
    counts: [u64; N],
    sum: u64,
}

impl<const N: usize> Histogram<N> {
    /// Counts a value.
    pub fn observe(&mut self, value: u64) {
        let bucket = (u64::BITS - value.saturating_sub(1).leading_zeros()) as usize;
        self.counts[bucket.min(N - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// The largest value of each bucket, and how many there were; the last has no largest value.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = (0..N - 1).map(|power| 1_u64.checked_shl(power as u32));
        bounds.chain([None]).zip(self.counts)
    }

    /// All values together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        const { assert!(N > 1 && N <= 65, "a bucket for each power of two") };
        Self {
            counts: [0; N],
            sum: 0,
        }
    }
}

impl<const N: usize> AddAssign for Histogram<N> {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }
}

fn as_list<const N: usize, S: Serializer>(counts: &[u64; N], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_the_first_bucket_that_it_fits() {
        let mut histogram = Histogram::<4>::default();
        for value in [0, 1, 2, 3, 4, 5, u64::from(u32::MAX)] {
            histogram.observe(value);
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(Some(1), 2), (Some(2), 1), (Some(4), 2), (None, 2)]);
        assert_eq!(histogram.sum(), 15 + u64::from(u32::MAX));
        let mut twice = histogram;
        twice += histogram;
        assert_eq!(twice.sum(), 2 * histogram.sum());
        assert_eq!(twice.buckets().map(|(_, count)| count).sum::<u64>(), 14);
    }

    #[test]
    fn the_largest_value_of_all_is_in_the_last_bucket() {
        let mut histogram = Histogram::<65>::default();
        histogram.observe(u64::MAX);
        histogram.observe(1 << 63);
        let counts: Vec<_> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(&counts[63..], [1, 1]);
    }
}
