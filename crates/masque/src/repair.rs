//! The offer of repair in a request, and its acceptance in the response (specs/repair.md).

use crate::HeaderList;
use crate::context_field::split_context;
use crate::ip::checksum_context;
use crate::limits::{REPAIR_LATENCY_MS_MAX, REPAIR_LATENCY_MS_MIN, STRUCTURED_INTEGER_MAX};

/// Request and response field that offers and accepts repair (REPAIR-1).
pub const FIELD: &str = "gramway-repair";

/// The context ID that our clients offer for source datagrams: the next even one after those of split payloads and
/// unfinished checksums.
pub const CONTEXT_ID: u64 = crate::ip::CHECKSUM_CONTEXT_ID + 2;

/// What a client offers, or a server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepairOffer {
    /// Context of source datagrams.
    pub context_id: u64,
    /// How late a rebuilt payload may come, in milliseconds:
    /// [`REPAIR_LATENCY_MS_MIN`] to [`REPAIR_LATENCY_MS_MAX`].
    pub latency_ms: u16,
}

impl RepairOffer {
    /// The context of parity datagrams (REPAIR-3).
    #[must_use]
    pub const fn parity_context_id(&self) -> u64 {
        self.context_id + 2
    }

    /// Whether the two are the same contexts, and the latency is not above the one that was offered (REPAIR-2).
    #[must_use]
    pub const fn accepts(&self, offered: &Self) -> bool {
        self.context_id == offered.context_id && self.latency_ms <= offered.latency_ms
    }

    /// Appends the field.
    pub fn push_to(&self, list: &mut HeaderList) {
        list.push(FIELD, format!("{};latency={}", self.context_id, self.latency_ms));
    }

    /// The offer or acceptance in a list; whatever does not obey REPAIR-1 counts as absent.
    #[must_use]
    pub fn of(list: &HeaderList) -> Option<Self> {
        let text = std::str::from_utf8(list.only(FIELD)?).ok()?;
        let mut parts = text.split(';').map(|part| part.trim_matches(' '));
        let context_id = integer(parts.next()?).filter(|id| *id != 0 && id % 2 == 0)?;
        // Of a parameter that is given twice the last one counts (RFC 8941 section 3.1.2).
        let latency = parts
            .filter_map(|part| part.strip_prefix("latency="))
            .next_back()?;
        let latency_ms = u16::try_from(integer(latency)?).ok()?;
        let offer = Self {
            context_id,
            latency_ms,
        };
        let is_taken = |id: Option<u64>| id.is_some_and(|id| id == context_id || id == context_id + 2);
        let is_free = !is_taken(split_context(list)) && !is_taken(checksum_context(list));
        let latencies = REPAIR_LATENCY_MS_MIN..=REPAIR_LATENCY_MS_MAX;
        (is_free && latencies.contains(&latency_ms)).then_some(offer)
    }
}

/// A structured integer that is not negative, below the last one whose neighbour is a structured integer, too.
fn integer(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse()
        .ok()
        .filter(|number| *number <= STRUCTURED_INTEGER_MAX - 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context_field::SPLIT_FIELD;
    use crate::ip::CHECKSUM_FIELD;

    const OFFER: RepairOffer = RepairOffer {
        context_id: 6,
        latency_ms: 40,
    };

    /// REPAIR-1.
    #[test]
    fn an_offer_is_a_context_and_a_latency() {
        let mut list = HeaderList::new().with(SPLIT_FIELD, "2").with(CHECKSUM_FIELD, "4");
        OFFER.push_to(&mut list);
        assert_eq!(list.only(FIELD), Some(&b"6;latency=40"[..]));
        assert_eq!(RepairOffer::of(&list), Some(OFFER));
        assert_eq!((OFFER.parity_context_id(), CONTEXT_ID), (8, 6));
        for (text, latency) in [("6; latency=1", 1), ("6;a=b;latency=9;latency=500;c", 500)] {
            let list = HeaderList::new().with(FIELD, text);
            assert_eq!(
                RepairOffer::of(&list).map(|offer| offer.latency_ms),
                Some(latency),
                "{text}"
            );
        }
    }

    /// REPAIR-1.
    #[test]
    fn everything_else_is_no_offer() {
        for text in [
            "",
            "6",
            "0;latency=40",
            "7;latency=40",
            "-6;latency=40",
            "6;latency=0",
            "6;latency=501",
            "6;latency=70000",
            "6;latency=",
            "6;latency=4.5",
            "6;latency=-1",
            "6.0;latency=40",
            "999999999999998;latency=40",
            "2;latency=40",
            "4;latency=40",
        ] {
            let list = HeaderList::new().with(SPLIT_FIELD, "4").with(FIELD, text);
            assert_eq!(RepairOffer::of(&list), None, "{text}");
        }
        let twice = HeaderList::new()
            .with(FIELD, "6;latency=40")
            .with(FIELD, "6;latency=40");
        assert_eq!(RepairOffer::of(&twice), None);
        assert_eq!(RepairOffer::of(&HeaderList::new()), None);
    }

    /// REPAIR-2.
    #[test]
    fn an_acceptance_may_shorten_the_latency_only() {
        for (context_id, latency_ms, accepted) in
            [(6, 40, true), (6, 20, true), (6, 41, false), (8, 40, false)]
        {
            let answer = RepairOffer {
                context_id,
                latency_ms,
            };
            assert_eq!(answer.accepts(&OFFER), accepted);
        }
    }
}
