//! A path in memory: delay, loss per packet, an MTU, a rate with a drop-tail queue.

use std::time::{Duration, Instant};

use bytes::BytesMut;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToServer,
    ToClient,
}

/// Seeded randomness (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// True once in `1 / (per_mille / 1000)` questions.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1_000 < per_mille
    }
}

/// What happens to packets between the two sides.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// One way.
    pub(crate) delay: Duration,
    /// Packets lost, of a thousand, towards the server and towards the client.
    pub(crate) loss_per_mille: [u64; 2],
    /// Longest UDP payload that passes, in bytes.
    pub(crate) mtu: usize,
    /// Bits per second each way.
    pub(crate) bits_per_second: u64,
    /// Longest wait behind other packets at that rate.
    pub(crate) queue: Duration,
    /// Packets with a flipped bit, of a thousand.
    pub(crate) corrupt_per_mille: u64,
    pub(crate) busy_until: [Option<Instant>; 2],
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(1),
            loss_per_mille: [0, 0],
            mtu: 65_507,
            // A window on a path without a limit would grow without one.
            bits_per_second: 500_000_000,
            queue: Duration::from_millis(50),
            corrupt_per_mille: 0,
            busy_until: [None, None],
        }
    }
}

impl Link {
    pub(crate) fn with_delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// The packets of a train that arrive, coalesced, and when; `None` where none does.
    pub(crate) fn carry(
        &mut self,
        direction: Direction,
        now: Instant,
        train: &[u8],
        segment_size: usize,
        random: &mut Random,
    ) -> Option<(Instant, BytesMut)> {
        let way = usize::from(direction == Direction::ToClient);
        let mut kept = BytesMut::with_capacity(train.len());
        let mut free = self.busy_until[way].map_or(now, |busy| busy.max(now));
        for segment in packet::segments(train, segment_size) {
            if segment.len() > self.mtu || random.chance(self.loss_per_mille[way]) || free - now > self.queue
            {
                continue;
            }
            free += Duration::from_nanos(segment.len() as u64 * 8_000_000_000 / self.bits_per_second);
            kept.extend_from_slice(segment);
            if random.chance(self.corrupt_per_mille) {
                let last = kept.len() - 1;
                kept[last - random.next() as usize % segment.len()] ^= 1 << (random.next() % 8);
            }
        }
        self.busy_until[way] = Some(free);
        (!kept.is_empty()).then_some((free + self.delay, kept))
    }
}
