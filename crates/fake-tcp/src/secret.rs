//! What follows from a stack's seed: initial sequence numbers (RFC 6528), SYN cookies and the hash of its table.
//!
//! A cookie is an initial sequence number that says what a half-open connection would have to remember:
//! two bits of time, three of the peer's MSS, two of its window scale, and 25 of a MAC over these, the addresses and
//! the peer's initial sequence number. A guess succeeds once in 2^25.

use std::time::{Duration, Instant};

use aws_lc_rs::hmac;

use crate::limits::{COOKIE_SLOT, SALT_BYTES};
use crate::sequence::Sequence;
use crate::tuple::{Tuple, TupleState};

/// Sizes that a cookie knows; a peer's is rounded down.
const MSS: [Option<u16>; 8] = [
    None,
    Some(536),
    Some(1_220),
    Some(1_340),
    Some(1_400),
    Some(1_440),
    Some(1_460),
    Some(8_940),
];

/// Window scales that a cookie knows; a peer's is rounded down.
const SCALES: [Option<u8>; 4] = [None, Some(7), Some(10), Some(14)];

const MAC_BITS: u32 = 25;

/// What a peer announced in its SYN, as far as it outlives the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) mss: Option<u16>,
    pub(crate) window_scale: Option<u8>,
}

/// The keys of one stack. Its time begins with the first instant that it sees.
pub(crate) struct Secret {
    key: hmac::Key,
    since: Option<Instant>,
    /// Salts that were given.
    salts: u64,
}

impl Secret {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, seed),
            since: None,
            salts: 0,
        }
    }

    /// The seed of the table's hash.
    pub(crate) fn table(&self) -> TupleState {
        TupleState(self.number(b"table", &[]))
    }

    /// An initial sequence number: a clock of 4 us and a secret offset for each pair of addresses, so that the numbers
    /// of one pair rise and those of others tell nothing (RFC 6528 section 3).
    pub(crate) fn initial_sequence(&mut self, now: Instant, tuple: &Tuple) -> Sequence {
        let ticks = (self.elapsed(now).as_micros() / 4) as u32;
        let offset = self.number(b"sequence", &tuple.bytes()) as u32;
        Sequence(offset).plus(ticks)
    }

    /// Milliseconds with a secret start, for the timestamp option.
    pub(crate) fn timestamp(&mut self, now: Instant, tuple: &Tuple) -> u32 {
        let offset = self.number(b"timestamp", &tuple.bytes()) as u32;
        offset.wrapping_add(self.elapsed(now).as_millis() as u32)
    }

    /// A number that stays the same for a connection: its IPv6 flow label and where its IPv4 IDs begin.
    pub(crate) fn label(&self, tuple: &Tuple) -> u32 {
        self.number(b"label", &tuple.bytes()) as u32
    }

    /// A salt that nobody had before.
    pub(crate) fn salt(&mut self) -> [u8; SALT_BYTES] {
        self.salts += 1;
        let numbers = [0_u8, 1].map(|half| {
            let mut message = [half; 9];
            message[1..].copy_from_slice(&self.salts.to_be_bytes());
            self.number(b"salt", &message)
        });
        let mut salt = [0; SALT_BYTES];
        salt[..8].copy_from_slice(&numbers[0].to_be_bytes());
        salt[8..].copy_from_slice(&numbers[1].to_be_bytes());
        salt
    }

    /// The cookie for a SYN with the initial sequence number `peer`.
    pub(crate) fn cookie(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        peer: Sequence,
        announced: Announced,
    ) -> Sequence {
        let mss = MSS.iter().rposition(|size| *size <= announced.mss).unwrap_or(0) as u32;
        let scale = SCALES
            .iter()
            .rposition(|scale| *scale <= announced.window_scale)
            .unwrap_or(0) as u32;
        let slot = self.slot(now);
        let said = (slot as u32 & 3) << 5 | mss << 2 | scale;
        Sequence(said << MAC_BITS | self.cookie_mac(tuple, peer, slot, said))
    }

    /// What the cookie says that a client returned, one less than its acknowledgement; `None` where it is none of ours,
    /// or too old.
    pub(crate) fn read_cookie(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        peer: Sequence,
        cookie: Sequence,
    ) -> Option<Announced> {
        let said = cookie.0 >> MAC_BITS;
        let present = self.slot(now);
        let age = (present as u32).wrapping_sub(said >> 5) & 3;
        let slot = present.checked_sub(age.into()).filter(|_| age <= 1)?;
        let is_ours = self.cookie_mac(tuple, peer, slot, said) == cookie.0 & ((1 << MAC_BITS) - 1);
        is_ours.then(|| Announced {
            mss: MSS[(said >> 2 & 7) as usize],
            window_scale: SCALES[(said & 3) as usize],
        })
    }

    fn slot(&mut self, now: Instant) -> u64 {
        self.elapsed(now).as_secs() / COOKIE_SLOT.as_secs()
    }

    fn cookie_mac(&self, tuple: &Tuple, peer: Sequence, slot: u64, said: u32) -> u32 {
        let mut message = [0; 52];
        message[..36].copy_from_slice(&tuple.bytes());
        message[36..40].copy_from_slice(&peer.0.to_be_bytes());
        message[40..48].copy_from_slice(&slot.to_be_bytes());
        message[48..].copy_from_slice(&said.to_be_bytes());
        self.number(b"cookie", &message) as u32 & ((1 << MAC_BITS) - 1)
    }

    fn elapsed(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    fn number(&self, purpose: &[u8], message: &[u8]) -> u64 {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(purpose);
        context.update(message);
        let tag = context.sign();
        let (first, _) = tag.as_ref().split_first_chunk().expect("a tag has 32 bytes");
        u64::from_be_bytes(*first)
    }
}
