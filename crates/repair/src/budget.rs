//! The bytes that a flow may spend on parity: at most half of what it sends anyway (REPAIR-10).

use crate::limits::{EXTRA_PERCENT_MAX, PACKET_OVERHEAD_BYTES, SAVED_PARITY};
use crate::wire::SOURCE_HEADER_BYTES;

/// A flow's budget, in bytes on the wire.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    saved: usize,
}

impl Budget {
    /// A payload is sent, in a datagram of `datagram_bytes` with the number of its header. `had_packet` says that
    /// without repair it would have gone in the packet of the payload before.
    pub(crate) fn earn(&mut self, datagram_bytes: usize, had_packet: bool) {
        let plain = datagram_bytes - SOURCE_HEADER_BYTES;
        let (base, more) = if had_packet {
            (plain, SOURCE_HEADER_BYTES + PACKET_OVERHEAD_BYTES)
        } else {
            (plain + PACKET_OVERHEAD_BYTES, SOURCE_HEADER_BYTES)
        };
        let earned = base * EXTRA_PERCENT_MAX / 100;
        // What was saved is bounded, so that no second has more than its share.
        let bound = (SAVED_PARITY * cost(datagram_bytes)).max(self.saved);
        self.saved = (self.saved + earned).saturating_sub(more).min(bound);
    }

    /// Pays for a parity datagram; false where it is too dear.
    pub(crate) fn spend(&mut self, datagram_bytes: usize) -> bool {
        let left = self.saved.checked_sub(cost(datagram_bytes));
        self.saved = left.unwrap_or(self.saved);
        left.is_some()
    }
}

const fn cost(datagram_bytes: usize) -> usize {
    datagram_bytes + PACKET_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REPAIR-10.
    #[test]
    fn parity_and_headers_stay_below_half_of_what_is_sent_anyway() {
        for bytes in [20, 160, 1_150] {
            let mut budget = Budget::default();
            let (mut plain, mut extra) = (0, 0);
            for _ in 0..10_000 {
                budget.earn(bytes + SOURCE_HEADER_BYTES, false);
                plain += bytes + PACKET_OVERHEAD_BYTES;
                extra += SOURCE_HEADER_BYTES;
                while budget.spend(bytes + 9) {
                    extra += cost(bytes + 9);
                }
                assert!(extra * 2 <= plain, "{extra} of {plain}");
            }
            assert!(extra * 100 > plain * 49, "{extra} of {plain}");
        }
    }

    #[test]
    fn little_is_saved_up() {
        let mut budget = Budget::default();
        (0..1_000).for_each(|_| budget.earn(1_200, false));
        let parity = (0..).take_while(|_| budget.spend(1_200)).count();
        assert_eq!(parity, SAVED_PARITY);
    }
}
