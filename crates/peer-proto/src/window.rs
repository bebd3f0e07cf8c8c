//! Which numbers have come (PEER-5): a bitmap over the last 65,536, whose full front is not stored.

use std::collections::VecDeque;

use crate::limits::{ACK_RANGES_MAX, WINDOW_NUMBERS};

const BITS: u64 = u64::BITS as u64;

#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The number that the first bit of `words` stands for, a multiple of 64.
    base: u64,
    words: VecDeque<u64>,
    /// All numbers from here to `base` have come.
    run_start: u64,
    /// The highest number that has come, plus 1.
    end: u64,
}

impl Window {
    /// The highest number that has come, plus 1.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Whether `number` has come, or is too old to be told from one that has.
    pub(crate) fn has(&self, number: u64) -> bool {
        let Some(offset) = number.checked_sub(self.base) else {
            return true;
        };
        let word = self.words.get((offset / BITS) as usize);
        word.is_some_and(|word| word >> (offset % BITS) & 1 == 1)
    }

    /// `number`, which has not come yet, has come. It is less than two times
    /// [`WINDOW_NUMBERS`] above [`Self::end`].
    pub(crate) fn insert(&mut self, number: u64) {
        self.slide(number);
        let offset = number - self.base;
        let index = (offset / BITS) as usize;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (offset % BITS);
        self.end = self.end.max(number + 1);
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.base += BITS;
        }
    }

    /// Forgets numbers that are [`WINDOW_NUMBERS`] or more below `number`.
    fn slide(&mut self, number: u64) {
        while number >= self.base + WINDOW_NUMBERS {
            let is_full = self.words.pop_front() == Some(u64::MAX);
            self.base += BITS;
            if !is_full {
                self.run_start = self.base;
            }
        }
    }

    /// The highest runs of numbers that have come, from first to behind last; as many as an ACK takes.
    pub(crate) fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let mut end = self.end;
        while end > self.base && runs.len() <= ACK_RANGES_MAX {
            let start = self.edge(end, false);
            if start < end {
                runs.push((start, end));
            }
            end = self.edge(start, true);
        }
        if let Some((start, _)) = runs.last_mut().filter(|(start, _)| *start == self.base) {
            *start = self.run_start;
        } else if end == self.base && self.run_start < end && runs.len() <= ACK_RANGES_MAX {
            runs.push((self.run_start, end));
        }
        runs
    }

    /// The lowest number so that all from there to `end` have come, or have not come where `is_gap`; not below `base`.
    fn edge(&self, mut end: u64, is_gap: bool) -> u64 {
        while end > self.base {
            let last = end - 1 - self.base;
            let word = self.words[(last / BITS) as usize];
            let wanted = if is_gap { !word } else { word };
            // Bits above `last` count as wanted, so that leading ones reach from the top to the first unwanted bit.
            let bit = (last % BITS) as u32;
            let above = if bit == 63 { 0 } else { u64::MAX << (bit + 1) };
            let run = (wanted | above).leading_ones() - (63 - bit);
            end -= u64::from(run);
            if run <= bit {
                break;
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn runs_of(numbers: &BTreeSet<u64>) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for number in numbers.iter().rev() {
            match runs.last_mut() {
                Some((start, _)) if *start == number + 1 => *start = *number,
                _ => runs.push((*number, number + 1)),
            }
        }
        runs.truncate(ACK_RANGES_MAX + 1);
        runs
    }

    proptest! {
        /// PEER-5.
        #[test]
        fn the_window_knows_what_has_come(numbers in proptest::collection::vec(0_u64..400, 0..600)) {
            let mut window = Window::default();
            let mut come = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(window.has(number), come.contains(&number));
                if come.insert(number) {
                    window.insert(number);
                }
                prop_assert_eq!(window.runs(), runs_of(&come));
            }
        }
    }

    /// PEER-5.
    #[test]
    fn numbers_older_than_the_window_count_as_come_but_are_not_acknowledged() {
        let mut window = Window::default();
        for number in (0..300).filter(|number| *number != 5) {
            window.insert(number);
        }
        assert!(!window.has(5));
        window.insert(WINDOW_NUMBERS + 63);
        assert!(window.has(5) && window.has(63) && window.has(64) && !window.has(300));
        let highest = (WINDOW_NUMBERS + 63, WINDOW_NUMBERS + 64);
        assert_eq!(window.runs(), [highest, (64, 300)]);
        assert!(window.words.len() as u64 <= WINDOW_NUMBERS / BITS);
    }
}
