//! One flow's sender: numbers payloads, keeps those of the window, makes parity when it is due.
//!
//! A payload is never held back. Parity is due when the payloads sent since have earned a whole one by the plan's
//! ratio, and when the last payloads of a burst would stay uncovered; it is made where the byte budget pays for it. Its
//! window are the payloads that are no older than the latency, so that what it repairs is late by no more than that
//! (REPAIR-9).

use std::time::{Duration, Instant};

use crate::budget::Budget;
use crate::field::{Field, Scalar};
use crate::limits::{TAIL_PERCENT, WINDOW_MAX};
use crate::plan::Plan;
use crate::symbol::Symbol;
use crate::wire::{PARITY_HEADER_BYTES, SOURCE_HEADER_BYTES, parity_header, source_header, symbol_bytes};

/// The latency counts whole milliseconds: a sender's own timer is no more exact.
const GRAIN: Duration = Duration::from_millis(1);

/// The sender's state of one flow.
#[derive(Debug)]
pub struct Encoder {
    latency: Duration,
    /// Number of the next payload.
    next: u64,
    /// Number of the oldest payload in the window.
    first: u64,
    /// Payloads by number modulo [`WINDOW_MAX`].
    window: Vec<Entry>,
    window_bytes: usize,
    /// Parity that the payloads sent have earned.
    owed: f32,
    budget: Budget,
    index: u8,
    /// When the oldest payload that no parity covers was sent.
    uncovered: Option<Instant>,
    sum: Symbol,
    wire: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    symbol: Symbol,
    payload_bytes: usize,
    at: Instant,
}

/// A parity datagram: header, and symbol behind it.
#[derive(Debug)]
pub struct Parity<'a> {
    /// What precedes the symbol.
    pub header: [u8; PARITY_HEADER_BYTES],
    /// The combination of the payloads.
    pub symbol: &'a [u8],
}

impl Encoder {
    /// A flow's sender that keeps to `latency`.
    #[must_use]
    pub fn new(latency: Duration) -> Self {
        Self {
            latency,
            next: 0,
            first: 0,
            window: Vec::new(),
            window_bytes: 0,
            owed: 0.0,
            budget: Budget::default(),
            index: 0,
            uncovered: None,
            sum: Symbol::default(),
            wire: Vec::new(),
        }
    }

    /// Numbers a payload that is sent now, in a datagram of `datagram_bytes` with the header that is returned.
    /// `packet_room` is what one QUIC packet takes of datagrams.
    pub fn push(
        &mut self,
        now: Instant,
        payload: &[u8],
        datagram_bytes: usize,
        packet_room: usize,
        plan: &Plan,
    ) -> [u8; SOURCE_HEADER_BYTES] {
        let number = self.next;
        let had_packet = self
            .last()
            .is_some_and(|last| last.at == now && last.payload_bytes + payload.len() < packet_room);
        self.next += 1;
        self.first = self.first.max(self.next.saturating_sub(WINDOW_MAX as u64));
        let at = number as usize % WINDOW_MAX;
        if self.window.len() <= at {
            self.window.push(Entry {
                symbol: Symbol::default(),
                payload_bytes: 0,
                at: now,
            });
        }
        // The numbers begin with 0, and the window is given up as a whole, so that it grows in order.
        let entry = &mut self.window[at];
        let before = entry.symbol.memory();
        entry.symbol.hold_payload(payload);
        self.window_bytes = self.window_bytes + entry.symbol.memory() - before;
        entry.payload_bytes = payload.len();
        entry.at = now;
        self.slide(now);
        self.budget.earn(datagram_bytes, had_packet);
        self.uncovered.get_or_insert(now);
        let ratio = plan.ratio((self.next - self.first) as usize);
        // A second one that waits says that the budget is short; a third would say it later again.
        self.owed = (self.owed + ratio).min(2.0);
        source_header(number)
    }

    /// The next parity datagram that is due after a payload; `prefix_bytes` are what precedes it.
    pub fn parity(&mut self, now: Instant, prefix_bytes: usize, field: &mut Field) -> Option<Parity<'_>> {
        if self.owed < 1.0 {
            return None;
        }
        self.make(now, prefix_bytes, field)
    }

    /// Parity for payloads that are uncovered for so long that no further payload should be waited for; see
    /// [`Encoder::tail_due`].
    pub fn tail(&mut self, now: Instant, prefix_bytes: usize, field: &mut Field) -> Option<Parity<'_>> {
        if self.tail_due().is_none_or(|due| due > now) {
            return None;
        }
        // Asked once: where the budget does not pay for it, it will not later, without payloads.
        self.uncovered = None;
        self.make(now, prefix_bytes, field)
    }

    /// When [`Encoder::tail`] has something to do; `None` while parity covers all payloads.
    #[must_use]
    pub fn tail_due(&self) -> Option<Instant> {
        Some(self.uncovered? + self.latency * TAIL_PERCENT / 100)
    }

    /// Gives memory back; the window is empty afterwards, and numbers go on.
    pub fn rest(&mut self) {
        // The next number takes the first place of the window.
        self.next = self.next.next_multiple_of(WINDOW_MAX as u64);
        self.first = self.next;
        self.window = Vec::new();
        self.window_bytes = 0;
        self.sum = Symbol::default();
        self.wire = Vec::new();
        self.uncovered = None;
        self.owed = 0.0;
    }

    /// Bytes of memory that the window takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.window_bytes
    }

    /// When the last payload was sent, as far as the window knows.
    #[must_use]
    pub fn last_sent(&self) -> Option<Instant> {
        self.last().map(|entry| entry.at)
    }

    fn last(&self) -> Option<&Entry> {
        let last = self.next.checked_sub(1)?;
        self.window.get(last as usize % WINDOW_MAX)
    }

    /// Payloads that are too old leave the window (REPAIR-9).
    fn slide(&mut self, now: Instant) {
        while self.first < self.next {
            let oldest = &self.window[self.first as usize % WINDOW_MAX];
            if now.saturating_duration_since(oldest.at) < self.latency + GRAIN {
                break;
            }
            self.first += 1;
        }
    }

    fn make(&mut self, now: Instant, prefix_bytes: usize, field: &mut Field) -> Option<Parity<'_>> {
        self.slide(now);
        let numbers = self.first..self.next;
        let entry = |number: u64| &self.window[number as usize % WINDOW_MAX];
        let longest = numbers.clone().map(|number| entry(number).payload_bytes).max()?;
        let bytes = symbol_bytes(longest);
        if !self.budget.spend(prefix_bytes + PARITY_HEADER_BYTES + bytes) {
            return None;
        }
        self.owed = (self.owed - 1.0).max(0.0);
        self.uncovered = None;
        let index = self.index;
        self.index = index.wrapping_add(1);
        self.sum.clear();
        for number in numbers.clone() {
            let factor: Scalar = field.coefficient(number, index);
            field.add(&mut self.sum, &entry(number).symbol, factor);
        }
        self.wire.clear();
        self.sum.write(bytes, &mut self.wire);
        Some(Parity {
            header: parity_header(numbers.end - 1, (numbers.end - numbers.start) as usize, index),
            symbol: &self.wire,
        })
    }
}
