//! The peer's direction: which segments belong to the connection's present, and what they change.
//!
//! A segment counts where its sequence number lies in the window that we announce, or shortly before it, and what it
//! acknowledges was sent lately (FTCP-10). A RST has to name the very next position (RFC 5961 section 3.2). The highest
//! position that was heard of is acknowledged, whatever is missing before it: nothing will come again.

use std::time::Instant;

use super::{Change, Connection, Outcome, Reply, State};
use crate::lengths::Lengths;
use crate::limits::{ACKNOWLEDGEMENT_DELAY, REORDER_BYTES_MAX, UNACKNOWLEDGED_BYTES_MAX};
use crate::profile::Profile;
use crate::seal::Proof;
use crate::segment::{Flags, Segment};
use crate::stack::CloseReason;

impl Connection {
    /// Takes a segment between the two addresses of this connection.
    pub(crate) fn receive(&mut self, now: Instant, segment: &Segment) -> Outcome {
        match self.state {
            State::SynSent => self.receive_in_syn_sent(now, segment),
            State::SynReceived => self.receive_in_syn_received(now, segment),
            State::Keying => self.receive_in_keying(now, segment),
            State::Established | State::Closing => self.receive_synchronized(now, segment),
            State::Quarantined { is_reset } => self.receive_in_quarantine(segment, is_reset),
        }
    }

    /// RFC 9293 section 3.10.7.3.
    fn receive_in_syn_sent(&mut self, now: Instant, segment: &Segment) -> Outcome {
        let flags = segment.flags;
        let acknowledges = flags.has(Flags::ACK);
        if acknowledges && segment.acknowledgement != self.send.next {
            let reset = Reply::Reset(segment.acknowledgement);
            return Outcome::outside(Some(reset).filter(|_| !flags.has(Flags::RST)));
        }
        if flags.has(Flags::RST) {
            return if acknowledges {
                self.end(now, CloseReason::Refused, None)
            } else {
                Outcome::outside(None)
            };
        }
        if !flags.has(Flags::SYN) || (!acknowledges && self.seal.is_some()) {
            return Outcome::outside(None);
        }
        self.take_syn(segment);
        if !acknowledges {
            // Both opened at the same time: each answers the other's SYN.
            self.state = State::SynReceived;
            self.timing.attempts = 0;
            self.timing.transmit(now);
            return Outcome::reply(Reply::SynAck);
        }
        if self.seal.is_some() {
            self.state = State::Keying;
            self.timing.attempts = 0;
            self.timing.transmit(now);
            self.take_acknowledgement(now, segment);
            return Outcome::reply(Reply::Hello);
        }
        self.open_up(now, segment);
        Outcome::reply(Reply::Ack)
    }

    /// FTCP-24.
    fn receive_in_keying(&mut self, now: Instant, segment: &Segment) -> Outcome {
        let flags = segment.flags;
        if flags.has(Flags::SYN.and(Flags::ACK)) && segment.sequence == self.receive.initial {
            return Outcome::reply(Reply::Hello);
        }
        if flags.has(Flags::RST) && segment.sequence == self.receive.next {
            return self.end(now, CloseReason::Refused, None);
        }
        if !matches!(segment.proof, Proof::Hello { .. }) || !self.is_in_window(segment) {
            return Outcome::outside(None);
        }
        self.open_up(now, segment);
        Outcome::default()
    }

    /// RFC 9293 section 3.10.7.4.
    fn receive_in_syn_received(&mut self, now: Instant, segment: &Segment) -> Outcome {
        let flags = segment.flags;
        let is_first_ack = flags.has(Flags::ACK) && segment.acknowledgement == self.send.next;
        if flags.has(Flags::SYN) && segment.sequence == self.receive.initial {
            // The peer's SYN again, or the answer of one who opened at the same time; with a key a hello alone opens.
            if !is_first_ack || self.seal.is_some() {
                return Outcome::reply(Reply::SynAck);
            }
            self.open_up(now, segment);
            return Outcome::reply(Reply::Ack);
        }
        if !self.is_in_window(segment) || flags.has(Flags::SYN) {
            return self.challenge(now);
        }
        if flags.has(Flags::RST) {
            return match segment.sequence == self.receive.next {
                true => self.end(now, CloseReason::Refused, None),
                false => self.challenge(now),
            };
        }
        if !flags.has(Flags::ACK) {
            return Outcome::outside(None);
        }
        if !is_first_ack {
            return Outcome::outside(Some(Reply::Reset(segment.acknowledgement)));
        }
        self.open_up(now, segment);
        if self.seal.is_some() {
            return Outcome::reply(Reply::Hello);
        }
        self.receive_synchronized(now, segment)
    }

    /// RFC 9293 section 3.10.7.4 and RFC 5961.
    fn receive_synchronized(&mut self, now: Instant, segment: &Segment) -> Outcome {
        let flags = segment.flags;
        if flags.has(Flags::RST) {
            if segment.sequence == self.receive.next {
                return self.end_by_peer(now, CloseReason::Reset);
            }
            return match self.is_in_window(segment) {
                true => self.challenge(now),
                false => Outcome::outside(None),
            };
        }
        if flags.has(Flags::SYN) || !self.is_in_window(segment) {
            return self.challenge(now);
        }
        if !flags.has(Flags::ACK) {
            return Outcome::outside(None);
        }
        if !self.is_recent_acknowledgement(segment) {
            return self.challenge(now);
        }
        self.timing.heard(now);
        self.take_acknowledgement(now, segment);
        self.lengths.writes |= self.said(segment).asks;
        let is_behind = segment.sequence.from(self.receive.next) < 0;
        self.receive.next = self.receive.next.latest(segment.end());
        if self.state == State::Closing {
            return self.receive_in_closing(now, segment);
        }
        if flags.has(Flags::FIN) {
            self.finish(now);
            return Outcome {
                deliver: !segment.payload.is_empty(),
                reply: Some(Reply::Fin),
                change: Some(Change::Ended(CloseReason::Finished)),
                is_outside: false,
            };
        }
        if segment.payload.is_empty() {
            let answers = is_behind && self.timing.may_answer(now);
            return Outcome {
                reply: answers.then_some(Reply::Ack),
                ..Outcome::default()
            };
        }
        self.timing.used(now);
        Outcome {
            deliver: true,
            reply: self.acknowledge(now),
            ..Outcome::default()
        }
    }

    /// What a segment says about lengths.
    fn said(&self, segment: &Segment) -> Lengths {
        if self.settings.profile.knows_lengths() {
            Lengths::of(segment.window)
        } else {
            Lengths::default()
        }
    }

    /// Whether lengths stand before the datagrams of a segment.
    pub(crate) fn has_lengths(&self, segment: &Segment) -> bool {
        self.said(segment).writes
    }

    /// Whether a datagram of so many bytes has to be several, which the path joined (FTCP-21).
    pub(crate) fn is_joined(&self, bytes: usize) -> bool {
        bytes > self.receive.segment_bytes_max.into()
    }

    /// The path joins segments: the peer is asked for lengths, now and by every segment from here on (FTCP-22).
    pub(crate) fn ask_for_lengths(&mut self, now: Instant) -> Outcome {
        if self.state != State::Established || !self.settings.profile.knows_lengths() {
            return Outcome::default();
        }
        self.lengths.asks = true;
        Outcome {
            reply: self.timing.may_answer(now).then_some(Reply::Ack),
            ..Outcome::default()
        }
    }

    /// Our FIN is out; what the peer still sends is not wanted.
    fn receive_in_closing(&mut self, now: Instant, segment: &Segment) -> Outcome {
        if self.in_flight() == 0 {
            self.quarantine(now, false);
        }
        Outcome {
            reply: segment.flags.has(Flags::FIN).then_some(Reply::Ack),
            ..Outcome::default()
        }
    }

    /// FTCP-17.
    fn receive_in_quarantine(&mut self, segment: &Segment, is_reset: bool) -> Outcome {
        let flags = segment.flags;
        let is_request = flags.has(Flags::SYN) && !flags.has(Flags::ACK) && !flags.has(Flags::RST);
        if is_request && (is_reset || segment.sequence.from(self.receive.next) > 0) {
            return Outcome::change(Change::Replaced);
        }
        // The peer's FIN, perhaps again because our acknowledgement was lost.
        let finishes = flags.has(Flags::FIN) && !is_reset && segment.end().since(self.receive.next) <= 1;
        if finishes {
            self.receive.next = segment.end();
        }
        Outcome::outside(finishes.then_some(Reply::Ack))
    }

    /// The handshake is complete.
    fn open_up(&mut self, now: Instant, segment: &Segment) {
        self.state = State::Established;
        self.was_open = true;
        self.timing.transmitted();
        self.timing.heard(now);
        self.timing.used(now);
        self.take_acknowledgement(now, segment);
    }

    fn end_by_peer(&mut self, now: Instant, reason: CloseReason) -> Outcome {
        match self.state {
            State::Established => self.end(now, reason, None),
            _ => {
                self.quarantine(now, true);
                Outcome::default()
            }
        }
    }

    /// The peer's acknowledgement and window, where it is not older than another.
    fn take_acknowledgement(&mut self, now: Instant, segment: &Segment) {
        if segment.acknowledgement.from(self.send.acknowledged) < 0 {
            return;
        }
        if segment.acknowledgement != self.send.acknowledged {
            self.send.acknowledged = segment.acknowledgement;
            self.timing.unacknowledged_since = (self.in_flight() > 0).then_some(now);
        }
        // We offer a scale always, so that the peer's counts wherever it has one. A phantun that has nothing to send
        // never announces another window than that of its SYN-ACK.
        let is_scaled = !segment.flags.has(Flags::SYN) || self.settings.profile == Profile::Phantun;
        let scale = match self.send.announced.window_scale {
            Some(scale) if is_scaled => scale,
            _ => 0,
        };
        self.send.window = u32::from(segment.window) << scale;
        self.send.window_max = self.send.window_max.max(self.send.window);
    }

    /// Data came: whether it is acknowledged now, or later (FTCP-12).
    fn acknowledge(&mut self, now: Instant) -> Option<Reply> {
        let waiting = self.receive.next.since(self.receive.acknowledged);
        let is_first = !self.receive.has_data;
        self.receive.has_data = true;
        if waiting > 0 && (is_first || waiting >= UNACKNOWLEDGED_BYTES_MAX) {
            return Some(Reply::Ack);
        }
        if waiting > 0 {
            self.timing.acknowledge.get_or_insert(now + ACKNOWLEDGEMENT_DELAY);
        }
        None
    }

    /// A segment outside of the window is told where we are, at a bounded rate (FTCP-15).
    pub(super) fn challenge(&mut self, now: Instant) -> Outcome {
        let reply = match self.state {
            State::SynReceived => Reply::SynAck,
            _ => Reply::Ack,
        };
        Outcome::outside(self.timing.may_challenge(now).then_some(reply))
    }

    /// FTCP-10.
    pub(super) fn is_in_window(&self, segment: &Segment) -> bool {
        let window = self.settings.profile.window_bytes();
        let distance = segment.sequence.from(self.receive.next);
        match u32::try_from(distance) {
            Ok(ahead) => u64::from(ahead) + segment.payload.len() as u64 <= u64::from(window),
            Err(_) => distance.unsigned_abs() <= REORDER_BYTES_MAX,
        }
    }

    /// FTCP-10, RFC 5961 section 5.2.
    pub(super) fn is_recent_acknowledgement(&self, segment: &Segment) -> bool {
        let behind = self.send.next.since(segment.acknowledgement);
        behind <= self.in_flight().saturating_add(self.send.window_max)
    }
}
