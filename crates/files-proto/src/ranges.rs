//! A set of numbers as ranges in order: which chunks are wanted, there, or on their way.

use std::ops::Range;

/// Numbers of chunks or entries, as ranges that neither touch nor overlap, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// No number.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All numbers of `range`.
    #[must_use]
    pub fn from_range(range: Range<u64>) -> Self {
        let mut ranges = Self::new();
        ranges.insert(range);
        ranges
    }

    /// Adds the numbers of `range`; tells how many of them are new.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        // All ranges that touch or overlap the new one become one.
        let first = self.0.partition_point(|known| known.end < range.start);
        let behind = self.0.partition_point(|known| known.start <= range.end);
        let touched = &self.0[first..behind];
        let known: u64 = touched
            .iter()
            .map(|known| {
                known
                    .end
                    .min(range.end)
                    .saturating_sub(known.start.max(range.start))
            })
            .sum();
        let start = touched
            .first()
            .map_or(range.start, |known| known.start.min(range.start));
        let end = touched.last().map_or(range.end, |known| known.end.max(range.end));
        self.0.splice(first..behind, std::iter::once(start..end));
        (range.end - range.start) - known
    }

    /// Takes the numbers of `range` out; tells how many of them were in.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let first = self.0.partition_point(|known| known.end <= range.start);
        let behind = self.0.partition_point(|known| known.start < range.end);
        let mut left = Vec::new();
        let mut removed = 0;
        for known in &self.0[first..behind] {
            let (start, end) = (known.start.max(range.start), known.end.min(range.end));
            removed += end - start;
            left.extend(
                [known.start..start, end..known.end]
                    .into_iter()
                    .filter(|part| !part.is_empty()),
            );
        }
        self.0.splice(first..behind, left);
        removed
    }

    /// Whether `number` is in.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        let place = self.0.partition_point(|known| known.end <= number);
        self.0.get(place).is_some_and(|known| known.start <= number)
    }

    /// The lowest number.
    #[must_use]
    pub fn first(&self) -> Option<u64> {
        self.0.first().map(|range| range.start)
    }

    /// The highest number.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.0.last().map(|range| range.end - 1)
    }

    /// How many numbers there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + ExactSizeIterator + '_ {
        self.0.iter().cloned()
    }

    /// Takes the lowest ranges out, at most `ranges` of them, for a message of their own.
    #[must_use]
    pub fn split_first(&mut self, ranges: usize) -> Self {
        let rest = self.0.split_off(ranges.min(self.0.len()));
        Self(std::mem::replace(&mut self.0, rest))
    }

    /// The numbers below `end` that are not in.
    #[must_use]
    pub fn missing_below(&self, end: u64) -> Self {
        let mut missing = Self::from_range(0..end);
        for range in &self.0 {
            missing.remove(range.clone());
        }
        missing
    }
}

impl FromIterator<u64> for Ranges {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut ranges = Self::new();
        for number in numbers {
            ranges.insert(number..number + 1);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_numbers(steps in prop::collection::vec((any::<bool>(), 0_u64..40, 0_u64..12), 0..60)) {
            let mut ranges = Ranges::new();
            let mut numbers = BTreeSet::new();
            for (insert, start, length) in steps {
                let range = start..start + length;
                let before = numbers.len();
                if insert {
                    let new = ranges.insert(range.clone());
                    numbers.extend(range);
                    prop_assert_eq!(new as usize, numbers.len() - before);
                } else {
                    let removed = ranges.remove(range.clone());
                    numbers.retain(|number| !range.contains(number));
                    prop_assert_eq!(removed as usize, before - numbers.len());
                }
                prop_assert_eq!(&ranges, &numbers.iter().copied().collect::<Ranges>());
                prop_assert_eq!(ranges.len() as usize, numbers.len());
                prop_assert_eq!(ranges.first(), numbers.first().copied());
                prop_assert_eq!(ranges.last(), numbers.last().copied());
                for number in 0..60 {
                    prop_assert_eq!(ranges.contains(number), numbers.contains(&number));
                }
                let parts: Vec<_> = ranges.iter().collect();
                for pair in parts.windows(2) {
                    prop_assert!(pair[0].end < pair[1].start);
                }
                let missing = ranges.missing_below(30);
                prop_assert_eq!(missing, (0..30).filter(|number| !numbers.contains(number)).collect::<Ranges>());
            }
        }
    }

    #[test]
    fn the_lowest_ranges_split_off() {
        let mut ranges: Ranges = [1, 2, 5, 9].into_iter().collect();
        assert_eq!(ranges.split_first(2), [1, 2, 5].into_iter().collect());
        assert_eq!(ranges.split_first(2), [9].into_iter().collect());
        assert!(ranges.is_empty());
    }
}
