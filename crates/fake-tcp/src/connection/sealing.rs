//! Which segments of a connection with a key come from the peer, and what they carry (FTCP-24 to FTCP-28).

use std::time::Instant;

use packet::Train;

use super::{Connection, Outcome, Reply, State};
use crate::lengths;
use crate::seal::{Covered, Proof};
use crate::segment::{Flags, Segment};
use crate::sequence::Sequence;

/// What came, before it changes anything.
#[derive(Debug)]
pub(crate) enum Checked {
    /// It may count, its payload as it is.
    AsItIs,
    /// It may count, with these datagrams.
    Opened(Vec<Train>),
    /// The peer's salt, again, because it has not heard ours.
    HelloAgain,
    /// The path joined it, and nobody knows where a datagram ends.
    Joined,
    /// It is not the peer's.
    Unproved,
}

impl Connection {
    /// Looks at a segment before it counts. Without a key all of them may. Of a super-segment with segments of
    /// `segment_size`, what follows the last one of the peer's is left away.
    pub(crate) fn check(&mut self, segment: &mut Segment, packet: &[u8], segment_size: usize) -> Checked {
        let is_in_handshake = matches!(self.state, State::SynSent | State::SynReceived | State::Keying);
        let is_passive = self.is_passive;
        // What is said of a hello alone is proved: its numbers have to be those of the handshake.
        let is_next = segment.acknowledgement == self.send.next && self.is_in_window(segment);
        let covered = self.covered_by_peer(segment);
        let Some(seal) = &mut self.seal else {
            return Checked::AsItIs;
        };
        if !segment.payload.is_empty() {
            return self.open_all(segment, packet, segment_size, covered);
        }
        let (is_syn, is_reset) = (segment.flags.has(Flags::SYN), segment.flags.has(Flags::RST));
        let counts = match segment.proof {
            proof @ Proof::Hello { .. } => {
                let was_agreed = seal.is_agreed();
                let is_hello = covered.flags == Flags::ACK.0 && (was_agreed || is_next);
                if is_hello && seal.agree(is_passive, proof) && was_agreed {
                    return Checked::HelloAgain;
                }
                is_hello && !was_agreed && seal.is_agreed()
            }
            // A SYN is challenged at most, and opens the next connection behind this one.
            proof if seal.is_agreed() => is_syn && !is_reset || seal.is_proved(covered, proof),
            // Before the keys are agreed on, whoever guesses its numbers can end a handshake.
            _ => is_in_handshake && (is_syn || is_reset),
        };
        if counts {
            Checked::AsItIs
        } else {
            Checked::Unproved
        }
    }

    /// Ours was lost; the end that accepted repeats it.
    pub(crate) fn hello_again(&mut self, now: Instant) -> Outcome {
        let answers = self.is_passive && self.state == State::Established && self.timing.may_answer(now);
        Outcome {
            reply: answers.then_some(Reply::Hello),
            ..Outcome::default()
        }
    }

    fn open_all(
        &mut self,
        segment: &mut Segment,
        packet: &[u8],
        segment_size: usize,
        covered: Covered,
    ) -> Checked {
        let has_lengths = self.has_lengths(segment);
        // Its window says what it is, which no tag covers.
        let unreadable = if self.is_in_window(segment) && self.is_recent_acknowledgement(segment) {
            Checked::Joined
        } else {
            Checked::Unproved
        };
        if !has_lengths && self.is_joined(segment_size) {
            return unreadable;
        }
        let Some(seal) = self.seal.as_mut().filter(|_| covered.flags == Flags::ACK.0) else {
            return Checked::Unproved;
        };
        let payload = &packet[segment.payload.clone()];
        let sealed: Vec<(usize, &[u8])> = if has_lengths {
            match lengths::read(payload) {
                Some(found) => found,
                None => return unreadable,
            }
        } else {
            let places = (0..).step_by(segment_size.max(1));
            places.zip(packet::segments(payload, segment_size)).collect()
        };
        let (mut trains, mut opened, mut end) = (Vec::new(), Vec::new(), 0);
        for (at, sealed) in sealed {
            let covered = Covered {
                sequence: covered.sequence.wrapping_add(at as u32),
                ..covered
            };
            if seal.open(covered, sealed, &mut opened) {
                lengths::append(&mut trains, &opened);
                end = at + sealed.len();
            }
        }
        segment.payload.end = segment.payload.start + end;
        if trains.is_empty() {
            Checked::Unproved
        } else {
            Checked::Opened(trains)
        }
    }

    /// Something that is not the peer's came. What would end the connection is answered as if it were outside of the
    /// window.
    pub(crate) fn receive_unproved(&mut self, now: Instant, segment: &Segment) -> Outcome {
        let ends = segment.flags.has(Flags::RST) || segment.flags.has(Flags::FIN);
        match self.state {
            State::Established | State::Closing if ends => self.challenge(now),
            _ => Outcome::outside(None),
        }
    }

    /// Whether a segment that a cookie answers may open the connection: with a key, as the hello of who has it.
    pub(crate) fn may_open(&self, segment: &Segment) -> bool {
        let Some(seal) = &self.seal else { return true };
        let is_hello = segment.payload.is_empty() && self.covered_by_peer(segment).flags == Flags::ACK.0;
        is_hello && seal.salt_of(self.is_passive, segment.proof).is_some()
    }

    /// The option of a segment without payload that we send.
    pub(super) fn proof(&mut self, flags: Flags, sequence: Sequence, acknowledgement: Sequence) -> Proof {
        let covered = Covered {
            flags: flags.0,
            sequence: sequence.since(self.send.initial),
            acknowledgement: acknowledged(flags, acknowledgement, self.receive.initial),
        };
        self.seal
            .as_mut()
            .and_then(|seal| seal.prove(covered))
            .unwrap_or_default()
    }

    /// What the tag of a datagram at the position `sequence` covers.
    pub(super) fn covered(&self, sequence: Sequence) -> Covered {
        Covered {
            flags: Flags::ACK.0,
            sequence: sequence.since(self.send.initial),
            acknowledgement: self.receive.next.since(self.receive.initial),
        }
    }

    fn covered_by_peer(&self, segment: &Segment) -> Covered {
        Covered {
            flags: segment.flags.0 & !Flags::PSH.0,
            sequence: segment.sequence.since(self.receive.initial),
            acknowledgement: acknowledged(segment.flags, segment.acknowledgement, self.send.initial),
        }
    }
}

/// A number that does not count is not moved by routers, either.
fn acknowledged(flags: Flags, acknowledgement: Sequence, initial: Sequence) -> u32 {
    if flags.has(Flags::ACK) {
        acknowledgement.since(initial)
    } else {
        0
    }
}
