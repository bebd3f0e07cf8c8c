//! A batch of received datagrams and the memory that they are received into.
//!
//! Each slot owns one allocation. [`ReceiveBatch::take`] hands a slot's bytes out without copying; the next receive
//! uses the allocation again when every slice of it is gone, and takes another one when not. What is lent out is
//! remembered, so that the caller can copy before it is too much ([`ReceiveBatch::has_lent_much`]). Nothing is zeroed.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use bytes::{Buf, BytesMut};
use packet::{Ecn, Segments, segments};

use crate::datagram::IoStats;
use crate::limits::{LENT_LOOKS, LENT_SLOTS_MAX, SLOT_BYTES_MAX};
use crate::raw::RawPacket;
use crate::sys::cmsg::Facts;
use crate::sys::mmsg::ReceiveArrays;

/// What is known about one received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveMeta {
    /// Who sent it; a v4-mapped address is given as IPv4.
    pub source: SocketAddr,
    /// The address of this machine that it was sent to; known on sockets bound to a wildcard.
    pub local: Option<IpAddr>,
    /// The address and port that it was sent to; known on transparent sockets.
    pub target: Option<SocketAddr>,
    /// ECN codepoint of all its datagrams; Not-ECT where the socket does not ask.
    pub ecn: Ecn,
    /// Bytes from one datagram to the next; equals `len` for a lone one, and the last may be shorter. 0 for a lone
    /// empty datagram.
    pub segment_size: usize,
    /// Bytes of all datagrams.
    pub len: usize,
    /// The kernel cut the payload or its description short: neither the bytes nor the borders can be relied on.
    pub truncated: bool,
}

impl ReceiveMeta {
    /// Number of datagrams.
    #[must_use]
    pub fn segments(&self) -> usize {
        if self.segment_size == 0 {
            1
        } else {
            self.len.div_ceil(self.segment_size).max(1)
        }
    }
}

/// One received message, borrowed from its batch.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// What is known about it.
    pub meta: &'a ReceiveMeta,
    /// Its datagrams, one after the other.
    pub payload: &'a [u8],
}

impl<'a> Received<'a> {
    /// The datagrams one by one; an empty message is one empty datagram.
    #[must_use]
    pub fn segments(&self) -> Segments<'a> {
        segments(self.payload, self.meta.segment_size)
    }
}

/// Slots for the messages of one receive.
pub struct ReceiveBatch {
    slots: Vec<BytesMut>,
    /// Slots that a receive fills; others hold what [`ReceiveBatch::append`] added, until they are emptied.
    capacity: usize,
    slot_bytes: usize,
    /// Allocations of which slices were alive when their slot was needed again.
    lent: VecDeque<BytesMut>,
    metas: Vec<ReceiveMeta>,
    arrays: ReceiveArrays,
}

impl ReceiveBatch {
    /// A batch of `slots` messages (at least 1) of at most `slot_bytes` each, up to [`SLOT_BYTES_MAX`]. With GRO on,
    /// anything smaller than that truncates coalesced messages.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        let slots = slots.max(1);
        let slot_bytes = slot_bytes.clamp(1, SLOT_BYTES_MAX);
        Self {
            slots: std::iter::repeat_with(|| BytesMut::with_capacity(slot_bytes))
                .take(slots)
                .collect(),
            capacity: slots,
            slot_bytes,
            lent: VecDeque::new(),
            metas: Vec::with_capacity(slots),
            arrays: ReceiveArrays::new(slots),
        }
    }

    /// Most messages that one receive can bring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Messages of the last receive.
    #[must_use]
    pub fn len(&self) -> usize {
        self.metas.len()
    }

    /// Whether the last receive brought nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.metas.is_empty()
    }

    /// Message `index` of the last receive. Its payload is empty once it was taken.
    ///
    /// # Panics
    /// When `index` is not below [`ReceiveBatch::len`].
    #[must_use]
    pub fn get(&self, index: usize) -> Received<'_> {
        Received {
            meta: &self.metas[index],
            payload: &self.slots[index],
        }
    }

    /// All messages of the last receive.
    pub fn iter(&self) -> impl Iterator<Item = Received<'_>> {
        self.metas
            .iter()
            .zip(&self.slots)
            .map(|(meta, slot)| Received { meta, payload: slot })
    }

    /// Moves the bytes of message `index` out of the batch, without copying. As long as any part of them lives, the
    /// slot's whole allocation does.
    ///
    /// # Panics
    /// When `index` is not below [`ReceiveBatch::len`].
    #[must_use]
    pub fn take(&mut self, index: usize) -> (ReceiveMeta, BytesMut) {
        let meta = self.metas[index];
        (meta, self.slots[index].split())
    }

    /// Whether so many slots are lent out that what is still needed should be copied.
    #[must_use]
    pub fn has_lent_much(&self) -> bool {
        self.lent.len() >= LENT_SLOTS_MAX
    }

    /// Gives every slot an allocation of its own again.
    fn recover_slots(&mut self) {
        for _ in 0..LENT_LOOKS.min(self.lent.len()) {
            if let Some(mut slot) = self.lent.pop_front()
                && !slot.try_reclaim(self.slot_bytes)
            {
                self.lent.push_back(slot);
            }
        }
        for slot in &mut self.slots {
            slot.clear();
            if !slot.try_reclaim(self.slot_bytes) {
                let lent = std::mem::replace(slot, BytesMut::with_capacity(self.slot_bytes));
                if self.lent.len() < LENT_SLOTS_MAX {
                    self.lent.push_back(lent);
                }
            }
        }
    }

    /// Where the messages came from, to be known by other addresses from here on.
    pub fn sources_mut(&mut self) -> impl Iterator<Item = &mut SocketAddr> {
        self.metas.iter_mut().map(|meta| &mut meta.source)
    }

    /// Empties the batch. A receive does this by itself; it is for other implementations of a socket.
    pub fn clear(&mut self) {
        self.metas.clear();
        self.slots.truncate(self.capacity);
        self.recover_slots();
    }

    /// Appends a message; `false` where all slots are full. Longer than a slot, it is cut and marked so. For other
    /// implementations of a socket.
    pub fn push(&mut self, meta: ReceiveMeta, payload: &[u8]) -> bool {
        if self.metas.len() >= self.capacity {
            return false;
        }
        let slot = &mut self.slots[self.metas.len()];
        let len = payload.len().min(self.slot_bytes);
        slot.clear();
        slot.reserve(self.slot_bytes);
        slot.extend_from_slice(&payload[..len]);
        let truncated = meta.truncated || len < payload.len();
        self.metas.push(ReceiveMeta {
            len,
            segment_size: meta.segment_size.min(len),
            truncated,
            ..meta
        });
        true
    }

    /// Appends a message that was part of what was received, beyond the capacity where it has to.
    pub fn append(&mut self, meta: ReceiveMeta, payload: &[u8]) {
        if !self.push(meta, payload) {
            self.slots.push(BytesMut::from(payload));
            self.metas.push(meta);
        }
    }

    /// Fills slots with what `socket` has; how many.
    fn receive_slots(&mut self, socket: BorrowedFd<'_>, stats: &mut IoStats) -> io::Result<usize> {
        match self.arrays.receive(socket, &mut self.slots, self.slot_bytes) {
            Ok(count) => {
                stats.receives += 1;
                Ok(count)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    /// Receives what `socket` has; a message whose sender is unknown, which no UDP socket gives, is passed over.
    pub(crate) fn receive_from(
        &mut self,
        socket: BorrowedFd<'_>,
        stats: &mut IoStats,
        drops_seen: &mut u32,
    ) -> io::Result<usize> {
        self.clear();
        let received_before = stats.segments_received;
        let count = self.receive_slots(socket, stats)?;
        for index in 0..count {
            let Some(source) = self.arrays.name(index).decode() else {
                continue;
            };
            let facts = Facts::read(self.arrays.control(index));
            if let Some(drops) = facts.drops {
                stats.kernel_drops += u64::from(newer_drops(drops_seen, drops));
            }
            // Messages passed over leave a gap that the later ones close.
            let slot = self.metas.len();
            if slot != index {
                self.slots.swap(slot, index);
            }
            let len = self.slots[slot].len();
            let meta = ReceiveMeta {
                source,
                local: facts.local,
                target: facts.target,
                ecn: facts.ecn,
                segment_size: facts
                    .segment_size
                    .filter(|size| (1..=len).contains(size))
                    .unwrap_or(len),
                len,
                truncated: self.arrays.truncated(index),
            };
            stats.messages_received += 1;
            stats.segments_received += meta.segments() as u64;
            stats.bytes_received += len as u64;
            stats.gro_messages += u64::from(meta.segment_size < len);
            stats.truncated += u64::from(meta.truncated);
            self.metas.push(meta);
        }
        if count > 0 {
            stats
                .receive_batches
                .observe(stats.segments_received - received_before);
        }
        Ok(self.metas.len())
    }
}

impl ReceiveBatch {
    /// Receives what a raw socket has, and keeps of each packet what `read` says. Returns how many packets there were.
    pub(crate) fn receive_raw(
        &mut self,
        socket: BorrowedFd<'_>,
        stats: &mut IoStats,
        drops_seen: &mut u32,
        mut read: impl FnMut(RawPacket<'_>) -> Option<(ReceiveMeta, Range<usize>)>,
    ) -> io::Result<usize> {
        self.clear();
        let received_before = stats.segments_received;
        let count = self.receive_slots(socket, stats)?;
        for index in 0..count {
            let facts = Facts::read(self.arrays.control(index));
            if let Some(drops) = facts.drops {
                stats.kernel_drops += u64::from(newer_drops(drops_seen, drops));
            }
            if self.arrays.truncated(index) {
                stats.truncated += 1;
                continue;
            }
            let Some(name) = self.arrays.name(index).decode_link() else {
                continue;
            };
            let kept = RawPacket::read(&self.slots[index], &name)
                .and_then(|(packet, before)| Some((read(packet)?, before)));
            let Some(((meta, payload), before)) = kept else {
                continue;
            };
            let slot = self.metas.len();
            if slot != index {
                self.slots.swap(slot, index);
            }
            let bytes = &mut self.slots[slot];
            bytes.advance((before + payload.start).min(bytes.len()));
            bytes.truncate(payload.len());
            let meta = ReceiveMeta {
                len: bytes.len(),
                segment_size: meta.segment_size.min(bytes.len()),
                ..meta
            };
            stats.messages_received += 1;
            stats.segments_received += meta.segments() as u64;
            stats.bytes_received += meta.len as u64;
            stats.gro_messages += u64::from(meta.segment_size < meta.len);
            self.metas.push(meta);
        }
        if count > 0 {
            stats
                .receive_batches
                .observe(stats.segments_received - received_before);
        }
        Ok(count)
    }
}

/// Drops since `seen`, which is brought up to `reported`. The kernel's counter wraps, and a message that was queued
/// earlier may report an older count: that is a step back, which is a large step forward, and counts nothing.
pub(crate) fn newer_drops(seen: &mut u32, reported: u32) -> u32 {
    let step = reported.wrapping_sub(*seen);
    if step > u32::MAX / 2 {
        return 0;
    }
    *seen = reported;
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_drop_count_may_wrap_and_step_back() {
        let mut seen = u32::MAX - 1;
        assert_eq!(newer_drops(&mut seen, u32::MAX), 1);
        assert_eq!(newer_drops(&mut seen, 3), 4);
        assert_eq!(newer_drops(&mut seen, 2), 0);
        assert_eq!((newer_drops(&mut seen, 3), seen), (0, 3));
    }

    fn meta(len: usize, segment_size: usize) -> ReceiveMeta {
        let source = "192.0.2.1:1".parse().unwrap();
        ReceiveMeta {
            source,
            local: None,
            target: None,
            ecn: Ecn::NotEct,
            segment_size,
            len,
            truncated: false,
        }
    }

    #[test]
    fn a_batch_filled_by_hand_is_bounded_by_slots_and_their_size() {
        let mut batch = ReceiveBatch::new(2, 10);
        assert!(batch.push(meta(3, 3), b"abc"));
        assert!(batch.push(meta(12, 12), &[1; 12]));
        assert!(!batch.push(meta(0, 0), &[]));
        assert_eq!(batch.get(0).payload, b"abc");
        assert_eq!((batch.get(1).meta.len, batch.get(1).meta.truncated), (10, true));
        assert_eq!(batch.take(0).1, b"abc"[..]);
        assert_eq!(batch.get(0).payload, b"");
        batch.clear();
        assert!(batch.is_empty());
    }

    #[test]
    fn what_is_appended_may_exceed_the_slots_until_the_batch_is_emptied() {
        let mut batch = ReceiveBatch::new(1, 10);
        for payload in [b"abc", b"def", b"ghi"] {
            batch.append(meta(3, 3), payload);
        }
        let payloads: Vec<_> = batch.iter().map(|received| received.payload.to_vec()).collect();
        assert_eq!(payloads, [b"abc", b"def", b"ghi"]);
        assert_eq!((batch.len(), batch.capacity()), (3, 1));
        batch.clear();
        assert!(batch.push(meta(3, 3), b"abc") && !batch.push(meta(3, 3), b"def"));
    }

    #[test]
    fn slots_that_are_lent_out_are_counted_until_their_slices_are_gone() {
        let mut batch = ReceiveBatch::new(2, 1_000);
        let mut kept = Vec::new();
        while !batch.has_lent_much() {
            batch.clear();
            assert!(batch.push(meta(3, 3), b"abc") && batch.push(meta(3, 3), b"def"));
            kept.push(batch.take(0).1.split_off(2));
            drop(batch.take(1));
        }
        assert_eq!(kept.len(), LENT_SLOTS_MAX + 1);
        kept.pop();
        kept.pop();
        batch.recover_slots();
        assert!(
            batch.has_lent_much(),
            "one was found free at the most, and one more is lent"
        );
        kept.truncate(LENT_SLOTS_MAX / 2);
        for _ in 0..LENT_SLOTS_MAX {
            batch.recover_slots();
        }
        assert_eq!(batch.lent.len(), LENT_SLOTS_MAX / 2);
        assert!(!batch.has_lent_much());
    }

    #[test]
    fn an_empty_message_is_one_empty_datagram() {
        let mut batch = ReceiveBatch::new(1, 10);
        assert!(batch.push(meta(0, 0), &[]));
        assert_eq!(batch.get(0).segments().map(<[u8]>::len).collect::<Vec<_>>(), [0]);
        assert_eq!((meta(0, 0).segments(), meta(25, 10).segments()), (1, 3));
    }
}
