//! Numbers of the peer's requests: each counts once, so that nobody makes a path of an address by repeating one.

use crate::limits::PATH_CHECK_WINDOW;

/// The highest number, and which of those below have come.
#[derive(Debug, Default)]
pub(super) struct Seen {
    highest: u64,
    /// Bit 0 is the highest number's.
    window: u128,
}

const _: () = assert!(PATH_CHECK_WINDOW == u128::BITS);

impl Seen {
    /// Whether it is the first time; what is older than the window counts as a repeat.
    pub(super) fn take(&mut self, number: u64) -> bool {
        if number > self.highest {
            let ahead = u32::try_from(number - self.highest).unwrap_or(u32::MAX);
            self.window = self.window.checked_shl(ahead).unwrap_or(0) | 1;
            self.highest = number;
            return true;
        }
        let behind = u32::try_from(self.highest - number).unwrap_or(u32::MAX);
        let bit = 1u128.checked_shl(behind).unwrap_or(0);
        let is_first = bit != 0 && self.window & bit == 0;
        self.window |= bit;
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PEER-19.
    #[test]
    fn each_number_of_the_window_counts_once_in_any_order() {
        let mut seen = Seen::default();
        assert!(seen.take(200) && !seen.take(200));
        assert!(seen.take(73) && !seen.take(73));
        assert!(!seen.take(72), "below the window");
        assert!(seen.take(201) && !seen.take(200) && !seen.take(73));
        assert!(seen.take(u64::MAX) && !seen.take(201));
        assert!(seen.take(u64::MAX - 127) && !seen.take(u64::MAX - 128));
    }
}
