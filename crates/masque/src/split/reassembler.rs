//! Joining fragments: a bounded number of messages at a time, for all flows of a connection.
//!
//! A message lies in one buffer from its first fragment on. Every fragment but the last has the same size, so each of
//! them tells where all belong; a last fragment that comes before them waits at the buffer's start and is moved once
//! the size is known. A full table evicts the oldest message; a message that is not complete in time expires.
//! Everything is counted in fragments: each fragment handed in is, sooner or later, part of a delivered payload, or
//! one duplicate, refusal, eviction, expiry or forgotten one.

use std::time::Instant;

use super::HEADER_BYTES;
use crate::limits::{FRAGMENTS_MAX, REASSEMBLY_SLOTS, REASSEMBLY_TIMEOUT, UDP_PAYLOAD_BYTES_MAX};

/// What a fragment led to.
#[derive(Debug, PartialEq, Eq)]
pub struct Handled<'a> {
    /// What became of the message.
    pub joined: Joined<'a>,
    /// Fragments of another message that had to give way: that many drops.
    pub evicted: u32,
}

/// State of the message that a fragment belongs to.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined<'a> {
    /// Kept; more are needed.
    Waiting,
    /// This fragment was there already: one drop.
    Duplicate,
    /// The payload is whole.
    Complete {
        /// The UDP payload.
        payload: &'a [u8],
        /// Fragments that made it, this one included.
        fragments: u32,
    },
}

/// Why a fragment was refused: one drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No whole header (SPLIT-3).
    #[error("fragment is shorter than its header")]
    Truncated,
    /// Its index is above the last index (SPLIT-4).
    #[error("fragment index is above the last index")]
    Index,
    /// No piece, in a message of several fragments (SPLIT-5).
    #[error("fragment is empty")]
    Empty,
    /// Its size or last index contradicts fragments of the message that came before (SPLIT-4, SPLIT-5).
    #[error("fragment contradicts others of its message")]
    Contradiction,
    /// The message would be longer than any UDP payload (SPLIT-6).
    #[error("message is longer than a UDP payload")]
    TooLong,
}

/// Joins the fragments of one connection's flows.
#[derive(Debug, Default)]
pub struct Reassembler {
    slots: Vec<Slot>,
}

/// One message in reassembly, or an idle buffer (`received` is 0).
#[derive(Debug)]
struct Slot {
    flow: u64,
    message: u32,
    last: u8,
    deadline: Instant,
    /// One bit for each fragment that is here.
    present: [u64; FRAGMENTS_MAX / 64],
    received: u32,
    /// Bytes of every piece but the last; 0 until one of them came.
    piece_bytes: usize,
    /// Bytes of the last piece; `None` until it came.
    tail_bytes: Option<usize>,
    buffer: Vec<u8>,
}

struct Fragment<'a> {
    message: u32,
    index: u8,
    last: u8,
    piece: &'a [u8],
}

impl<'a> Fragment<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let (header, piece) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Refusal::Truncated)?;
        let [a, b, c, d, index, last] = *header;
        if index > last {
            return Err(Refusal::Index);
        }
        if piece.is_empty() && last > 0 {
            return Err(Refusal::Empty);
        }
        // Whole pieces before this one, and at least one byte in each after it.
        let whole = if index < last {
            usize::from(last) * piece.len() + 1
        } else {
            usize::from(last) + piece.len()
        };
        if whole > UDP_PAYLOAD_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        Ok(Self {
            message: u32::from_be_bytes([a, b, c, d]),
            index,
            last,
            piece,
        })
    }
}

impl Reassembler {
    /// An empty table. It holds at most [`crate::limits::REASSEMBLY_BYTES_MAX`].
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new() }
    }

    /// Takes the fragment of a datagram in the split context; `flow` tells requests apart, for example by stream ID.
    ///
    /// # Errors
    /// The fragment is refused; what was there stays.
    pub fn handle(&mut self, now: Instant, flow: u64, fragment: &[u8]) -> Result<Handled<'_>, Refusal> {
        let fragment = Fragment::parse(fragment)?;
        let found = self
            .slots
            .iter()
            .position(|slot| slot.is_waiting_for(flow, fragment.message));
        let (position, evicted) = match found {
            Some(position) => (position, 0),
            None => self.start(now, flow, &fragment),
        };
        let slot = &mut self.slots[position];
        // `parse` made sure that the first fragment of a message is never refused here, so no eviction goes
        // unreported.
        if !slot.insert(&fragment)? {
            return Ok(Handled {
                joined: Joined::Duplicate,
                evicted,
            });
        }
        if slot.received <= u32::from(slot.last) {
            return Ok(Handled {
                joined: Joined::Waiting,
                evicted,
            });
        }
        let fragments = std::mem::take(&mut slot.received);
        Ok(Handled {
            joined: Joined::Complete {
                payload: &slot.buffer,
                fragments,
            },
            evicted,
        })
    }

    /// When [`Reassembler::handle_timeout`] has something to expire: the oldest incomplete message's deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.slots
            .iter()
            .filter(|slot| slot.received > 0)
            .map(|slot| slot.deadline)
            .min()
    }

    /// Gives up the messages whose time is over; returns their fragments, that many drops.
    pub fn handle_timeout(&mut self, now: Instant) -> u32 {
        self.give_up(|slot| slot.deadline <= now)
    }

    /// Gives up all messages of a flow that ended; returns their fragments, that many drops.
    pub fn forget(&mut self, flow: u64) -> u32 {
        self.give_up(|slot| slot.flow == flow)
    }

    /// Fragments that wait now.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.slots.iter().map(|slot| slot.received).sum()
    }

    fn give_up(&mut self, is_over: impl Fn(&Slot) -> bool) -> u32 {
        let over = self.slots.iter_mut().filter(|slot| is_over(slot));
        let fragments = over.map(|slot| std::mem::take(&mut slot.received)).sum();
        // A table at rest gives its memory back.
        if self.waiting() == 0 {
            self.slots = Vec::new();
        }
        fragments
    }

    /// A slot for a new message, and the fragments that were evicted for it.
    fn start(&mut self, now: Instant, flow: u64, fragment: &Fragment<'_>) -> (usize, u32) {
        let idle = self.slots.iter().position(|slot| slot.received == 0);
        let position = idle.unwrap_or_else(|| {
            if self.slots.len() < REASSEMBLY_SLOTS {
                self.slots.push(Slot::idle(now));
                return self.slots.len() - 1;
            }
            let oldest = self
                .slots
                .iter()
                .enumerate()
                .min_by_key(|(_, slot)| slot.deadline);
            oldest.map_or(0, |(position, _)| position)
        });
        let slot = &mut self.slots[position];
        let evicted = slot.received;
        slot.buffer.clear();
        *slot = Slot {
            flow,
            message: fragment.message,
            last: fragment.last,
            deadline: now + REASSEMBLY_TIMEOUT,
            buffer: std::mem::take(&mut slot.buffer),
            ..Slot::idle(now)
        };
        (position, evicted)
    }
}

impl Slot {
    const fn idle(now: Instant) -> Self {
        Self {
            flow: 0,
            message: 0,
            last: 0,
            deadline: now,
            present: [0; FRAGMENTS_MAX / 64],
            received: 0,
            piece_bytes: 0,
            tail_bytes: None,
            buffer: Vec::new(),
        }
    }

    const fn is_waiting_for(&self, flow: u64, message: u32) -> bool {
        self.received > 0 && self.flow == flow && self.message == message
    }

    /// Puts the piece in its place; false for a duplicate.
    fn insert(&mut self, fragment: &Fragment<'_>) -> Result<bool, Refusal> {
        if fragment.last != self.last {
            return Err(Refusal::Contradiction);
        }
        let (word, bit) = (usize::from(fragment.index) / 64, 1_u64 << (fragment.index % 64));
        if self.present[word] & bit != 0 {
            return Ok(false);
        }
        if fragment.index == self.last {
            self.insert_last(fragment.piece)?;
        } else {
            self.insert_inner(usize::from(fragment.index), fragment.piece)?;
        }
        self.present[word] |= bit;
        self.received += 1;
        Ok(true)
    }

    fn insert_last(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let is_size_known = self.piece_bytes > 0;
        if is_size_known && piece.len() > self.piece_bytes {
            return Err(Refusal::Contradiction);
        }
        let before = self.bytes_before_last();
        if before + piece.len() > UDP_PAYLOAD_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        self.buffer.truncate(before);
        self.buffer.extend_from_slice(piece);
        self.tail_bytes = Some(piece.len());
        Ok(())
    }

    fn insert_inner(&mut self, index: usize, piece: &[u8]) -> Result<(), Refusal> {
        if self.piece_bytes == 0 {
            self.learn_size(piece.len())?;
        } else if piece.len() != self.piece_bytes {
            return Err(Refusal::Contradiction);
        }
        self.buffer[index * piece.len()..(index + 1) * piece.len()].copy_from_slice(piece);
        Ok(())
    }

    /// The first piece but the last came: gives the buffer its size, and moves the last piece to its place if it
    /// waits.
    fn learn_size(&mut self, piece_bytes: usize) -> Result<(), Refusal> {
        let tail_bytes = self.tail_bytes.unwrap_or(0);
        let before = usize::from(self.last) * piece_bytes;
        if tail_bytes > piece_bytes {
            return Err(Refusal::Contradiction);
        }
        if before + tail_bytes > UDP_PAYLOAD_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        self.piece_bytes = piece_bytes;
        self.buffer.resize(before + tail_bytes, 0);
        self.buffer.copy_within(..tail_bytes, before);
        Ok(())
    }

    const fn bytes_before_last(&self) -> usize {
        self.last as usize * self.piece_bytes
    }
}
