//! One flow's receiver: detects duplicates, keeps copies of the last payloads, and rebuilds missing ones.
//!
//! A payload goes on when it comes; nothing waits. Copies are kept of the last [`COUNT_MAX`] numbers, within
//! [`DECODER_BYTES_MAX`]. Parity costs work only if a payload of its window is missing. The parity itself says which
//! payloads are too late: its window begins with the oldest payload that may still be delivered (REPAIR-12).

use crate::field::Field;
use crate::limits::{COUNT_MAX, DECODER_BYTES_MAX, NUMBERS_REMEMBERED, PARITY_AT_ONCE, PARITY_FOR_FOUR};
use crate::rows::Rows;
use crate::symbol::Symbol;
use crate::wire::{self, ParityView, unwrapped};

/// What a source datagram was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken<'a> {
    /// A payload, to be delivered.
    Payload(&'a [u8]),
    /// A payload that came before, or was rebuilt: one drop.
    Duplicate,
}

/// Why a datagram was refused: one drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No whole header, or one that cannot be (REPAIR-4, REPAIR-6).
    #[error("datagram without a header of the repair context")]
    Header,
    /// A payload of the window is longer than its parity (REPAIR-7).
    #[error("parity is shorter than a payload that it covers")]
    Contradiction,
}

/// The receiver's state of one flow.
#[derive(Debug)]
pub struct Decoder {
    /// The highest number that was heard of; `None` before the first.
    highest: Option<u64>,
    /// One bit for each of the last numbers: it came, or was rebuilt.
    seen: Box<[u64; NUMBERS_REMEMBERED / 64]>,
    /// Copies, by number modulo [`COUNT_MAX`].
    kept: Vec<Kept>,
    kept_bytes: usize,
    /// What is older is too late.
    live: u64,
    rows: Rows,
    /// Parity that may be worked on, in quarters.
    work: u32,
    payload: Vec<u8>,
}

#[derive(Debug, Default)]
struct Kept {
    number: Option<u64>,
    symbol: Symbol,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            highest: None,
            seen: Box::new([0; NUMBERS_REMEMBERED / 64]),
            kept: Vec::new(),
            kept_bytes: 0,
            live: 0,
            rows: Rows::default(),
            work: 4 * PARITY_AT_ONCE,
            payload: Vec::new(),
        }
    }
}

impl Decoder {
    /// Takes a source datagram. [`Decoder::rebuilt`] is to be asked afterwards.
    ///
    /// # Errors
    /// It is none.
    pub fn source<'a>(&mut self, field: &mut Field, datagram: &'a [u8]) -> Result<Taken<'a>, Refusal> {
        let (number, payload) = wire::source(datagram).ok_or(Refusal::Header)?;
        let number = self.full(number);
        let highest = self.heard_of(number);
        self.work = (self.work + PARITY_FOR_FOUR).min(4 * PARITY_AT_ONCE);
        // What is older than the memory cannot be told from a duplicate; it goes on (REPAIR-5).
        if number + (NUMBERS_REMEMBERED as u64) <= highest {
            return Ok(Taken::Payload(payload));
        }
        if self.has_seen(number) {
            return Ok(Taken::Duplicate);
        }
        self.mark_seen(number);
        if number + (COUNT_MAX as u64) > highest {
            self.keep(number, payload);
            if !self.rows.is_empty()
                && let Some(kept) = held(&self.kept, number)
            {
                self.rows.substitute(field, number, &kept.symbol);
            }
        }
        Ok(Taken::Payload(payload))
    }

    /// Takes a parity datagram. [`Decoder::rebuilt`] is to be asked afterwards.
    ///
    /// # Errors
    /// It is none, or contradicts payloads that came.
    pub fn parity(&mut self, field: &mut Field, datagram: &[u8]) -> Result<(), Refusal> {
        let view = wire::parity(datagram).ok_or(Refusal::Header)?;
        let last = self.full(view.last);
        let highest = self.heard_of(last);
        self.rows
            .forget_before((highest + 1).saturating_sub(COUNT_MAX as u64));
        if last + (COUNT_MAX as u64) <= highest {
            return Ok(());
        }
        let first = (last + 1).saturating_sub(view.count as u64);
        self.live = self.live.max(first);
        let is_missing = |number: &u64| held(&self.kept, *number).is_none();
        let missing: Vec<u64> = (first..=last).filter(is_missing).collect();
        // A payload that came but could not be kept makes the equation worthless.
        if missing.is_empty() || missing.iter().any(|number| self.has_seen(*number)) {
            return Ok(());
        }
        let Some(work) = self.work.checked_sub(4) else {
            return Ok(());
        };
        if self.memory() + view.symbol.len() > DECODER_BYTES_MAX {
            return Ok(());
        }
        self.work = work;
        self.equation(field, &view, first..=last, &missing)
    }

    fn equation(
        &mut self,
        field: &mut Field,
        view: &ParityView<'_>,
        window: std::ops::RangeInclusive<u64>,
        missing: &[u64],
    ) -> Result<(), Refusal> {
        let last = *window.end();
        let mut symbol = self.rows.symbol();
        symbol.hold(view.symbol);
        let chunks = symbol.chunks().len();
        for kept in window.filter_map(|number| held(&self.kept, number)) {
            if kept.symbol.chunks().len() > chunks {
                self.rows.recycle(symbol);
                return Err(Refusal::Contradiction);
            }
            let number = kept.number.expect("it was found by its number");
            field.add(&mut symbol, &kept.symbol, field.coefficient(number, view.index));
        }
        let terms = missing
            .iter()
            .map(|number| (*number, field.coefficient(*number, view.index)));
        self.rows.add(field, terms.collect(), symbol, last);
        Ok(())
    }

    /// A payload that was missing and has become known, to be delivered; to be asked until `None`.
    pub fn rebuilt(&mut self) -> Option<&[u8]> {
        loop {
            let (number, symbol) = self.rows.take_solved()?;
            let is_payload = symbol.payload(&mut self.payload);
            let highest = self.highest.unwrap_or(0);
            if is_payload && number + (COUNT_MAX as u64) > highest {
                let payload = std::mem::take(&mut self.payload);
                self.keep(number, &payload);
                self.payload = payload;
            }
            self.rows.recycle(symbol);
            if is_payload && number >= self.live && !self.has_seen(number) {
                self.mark_seen(number);
                return Some(&self.payload);
            }
        }
    }

    /// Bytes of memory that copies and parity take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.kept_bytes + self.rows.memory()
    }

    /// Gives memory back; numbers are remembered.
    pub fn rest(&mut self) {
        self.kept = Vec::new();
        self.kept_bytes = 0;
        self.rows = Rows::default();
        self.payload = Vec::new();
    }

    fn full(&self, number: u32) -> u64 {
        // The first number has room for older ones before it.
        let near = self.highest.unwrap_or(u64::from(number) | 1 << 24);
        unwrapped(number, near)
    }

    /// Makes room for `number` where it is the highest so far; returns the highest.
    fn heard_of(&mut self, number: u64) -> u64 {
        let highest = *self.highest.get_or_insert(number);
        if number <= highest {
            return highest;
        }
        let new = number - highest;
        if new >= NUMBERS_REMEMBERED as u64 {
            self.seen.fill(0);
        } else {
            for number in highest + 1..=number {
                let (word, bit) = place(number);
                self.seen[word] &= !bit;
            }
        }
        self.highest = Some(number);
        number
    }

    fn has_seen(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] & bit != 0
    }

    fn mark_seen(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.seen[word] |= bit;
    }

    fn keep(&mut self, number: u64, payload: &[u8]) {
        if self.kept.is_empty() {
            self.kept.resize_with(COUNT_MAX, Kept::default);
        }
        let place = number as usize % COUNT_MAX;
        self.kept[place].number = None;
        let before = self.kept[place].symbol.memory();
        // A vector that grows may take twice what it needs.
        let is_larger = payload.len() + 2 > before;
        if is_larger && self.memory() + 2 * (payload.len() + 128) > DECODER_BYTES_MAX {
            return;
        }
        let kept = &mut self.kept[place];
        kept.symbol.hold_payload(payload);
        kept.number = Some(number);
        self.kept_bytes = self.kept_bytes + kept.symbol.memory() - before;
    }
}

fn held(kept: &[Kept], number: u64) -> Option<&Kept> {
    kept.get(number as usize % COUNT_MAX)
        .filter(|kept| kept.number == Some(number))
}

/// Word and bit of a number.
fn place(number: u64) -> (usize, u64) {
    let bit = number as usize % NUMBERS_REMEMBERED;
    (bit / 64, 1 << (bit % 64))
}
