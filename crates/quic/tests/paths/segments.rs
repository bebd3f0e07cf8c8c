//! What every TCP-like rival has: a sender of equal segments at one end, and at the other a receiver that acknowledges each.

use sim::Packet;

use crate::world::{Meta, Way};

/// Bytes of payload in a segment, and of the packet that carries it.
const PAYLOAD: u64 = 1_448;
pub(crate) const PACKET: usize = 1_500;
const ACK_PACKET: usize = 52;

/// Marks the number of an acknowledgement.
const ACK: u64 = 1 << 63;

pub(crate) struct Segments {
    index: usize,
    way: Way,
    /// Number of the next segment.
    next: u64,
    /// Arrived and not acknowledged yet.
    arrived: Vec<u64>,
    delivered: u64,
}

impl Segments {
    /// Those of party `index`, which go `way`.
    pub(crate) fn new(index: usize, way: Way) -> Self {
        Self {
            index,
            way,
            next: 0,
            arrived: Vec::new(),
            delivered: 0,
        }
    }

    /// Takes a packet; the number of the segment that it acknowledges, if it does.
    pub(crate) fn deliver(&mut self, way: Way, packet: &Packet<Meta>) -> Option<u64> {
        if way == self.way {
            self.delivered += PAYLOAD;
            self.arrived.push(packet.meta.number);
            return None;
        }
        Some(packet.meta.number & !ACK)
    }

    /// Acknowledges what has arrived.
    pub(crate) fn acknowledge(&mut self, out: &mut Vec<(Way, Packet<Meta>)>) {
        let back = match self.way {
            Way::Up => Way::Down,
            Way::Down => Way::Up,
        };
        let party = self.index;
        out.extend(self.arrived.drain(..).map(|number| {
            let number = number | ACK;
            let meta = Meta {
                party,
                number,
                follows: false,
            };
            let bytes = vec![0; ACK_PACKET];
            (back, Packet { bytes, meta })
        }));
    }

    /// Sends the next segment; its number.
    pub(crate) fn send(&mut self, out: &mut Vec<(Way, Packet<Meta>)>) -> u64 {
        let number = self.next;
        self.next += 1;
        let party = self.index;
        let meta = Meta {
            party,
            number,
            follows: false,
        };
        let bytes = vec![0; PACKET];
        out.push((self.way, Packet { bytes, meta }));
        number
    }

    /// The number that the next segment gets.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes of payload that have arrived.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }
}
