//! A firewall that follows connections, as Linux does (`tcp_in_window` of nf_conntrack_proto_tcp.c): what is outside of
//! the windows that it has seen is INVALID.

use fake_tcp::segment::{Flags, Segment};

/// Least window that acknowledgements may be behind.
const ACK_WINDOW_MIN: u32 = 66_000;

/// One direction, as far as the firewall has seen it.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    end: u32,
    end_max: u32,
    window_max: u32,
    scale: Option<u8>,
}

/// The state of one connection, by the number of the sending end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conntrack {
    sides: [Side; 2],
    seen: [bool; 2],
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Conntrack {
    /// Whether a segment from this end is valid; it changes what is known then.
    pub(crate) fn takes(&mut self, from: usize, segment: &Segment) -> bool {
        let flags = segment.flags;
        let (sequence, end) = (segment.sequence.0, segment.end().0);
        if flags.has(Flags::SYN) && !flags.has(Flags::ACK) {
            // A new connection between the same addresses, or the SYN again.
            if !self.seen[from] || self.sides[from].end != end {
                self.seen = [false; 2];
                self.sides = [Side::default(); 2];
            }
        }
        if flags.has(Flags::SYN) && !self.seen[from] {
            self.seen[from] = true;
            self.sides[from] = Side {
                end,
                end_max: end,
                window_max: u32::from(segment.window).max(1),
                scale: segment.options.window_scale,
            };
            if !flags.has(Flags::ACK) {
                return true;
            }
        }
        if !self.seen[from] {
            // Picked up in the middle, or a RST of nothing.
            return flags.has(Flags::RST);
        }
        let sender = self.sides[from];
        let receiver = self.sides[1 - from];
        let is_scaled = sender.scale.is_some() && receiver.scale.is_some() && !flags.has(Flags::SYN);
        let window = u32::from(segment.window) << if is_scaled { sender.scale.unwrap_or(0) } else { 0 };
        let acknowledgement = if flags.has(Flags::ACK) {
            segment.acknowledgement.0
        } else {
            receiver.end
        };
        let oldest = receiver
            .end
            .wrapping_sub(sender.window_max.max(ACK_WINDOW_MIN) + 1);
        let in_receive_window =
            receiver.window_max == 0 || before(sender.end.wrapping_sub(receiver.window_max + 1), end);
        let is_valid = before(sequence, sender.end_max.wrapping_add(1))
            && in_receive_window
            && before(acknowledgement, receiver.end.wrapping_add(1))
            && before(oldest, acknowledgement);
        if is_valid {
            self.advance(from, end, acknowledgement, window);
        }
        is_valid
    }

    fn advance(&mut self, from: usize, end: u32, acknowledgement: u32, window: u32) {
        let sender_end_max = self.sides[from].end_max;
        let receiver = &mut self.sides[1 - from];
        if receiver.window_max != 0 && before(sender_end_max, end) {
            receiver.window_max += end.wrapping_sub(sender_end_max);
        }
        let allowed = acknowledgement.wrapping_add(window);
        if before(receiver.end_max, allowed) {
            receiver.end_max = allowed;
        }
        let sender = &mut self.sides[from];
        sender.window_max = sender.window_max.max(window);
        if before(sender.end, end) {
            sender.end = end;
        }
    }
}
