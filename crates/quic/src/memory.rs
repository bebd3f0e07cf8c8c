//! What received packets keep in memory before their sender has shown a valid token, and whose they are.
//!
//! QUIC keeps the packet that a piece of a stream or handshake came in until the piece is read, and a gap before it may
//! never be filled. So a stranger's packets are copied out of the socket's large buffers, and everything that it sends in
//! streams and handshakes is charged to it ([`Charge`]): above its bound its packets are dropped, and above the bound of all
//! strangers the one that holds the most is ended. Nothing is taken off before the token comes: what was read waits
//! elsewhere, in TLS or HTTP/3.
//!
//! Whose a packet is, only QUIC knows, after it was handed over. But a connection ID that once led to a connection never
//! leads to another one: [`TrustedIds`] remembers those of connections with a token, whose packets are not copied.

use crate::connection_id::Block;
use crate::limits;

/// Connection IDs of peers that are no strangers; a later one may take the place of an earlier one.
pub(crate) struct TrustedIds {
    /// By the end of the block that an ID begins with, which is uniform; empty until the first is known.
    places: Vec<Block>,
}

impl TrustedIds {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new() }
    }

    pub(crate) fn has(&self, id: Block) -> bool {
        self.places.get(place(id)) == Some(&id)
    }

    /// `id` leads to no connection any more.
    pub(crate) fn forget(&mut self, id: Block) {
        if let Some(known) = self.places.get_mut(place(id)).filter(|known| **known == id) {
            *known = Block::default();
        }
    }

    pub(crate) fn remember(&mut self, id: Block) {
        self.places.resize(limits::TRUSTED_IDS_MAX, Block::default());
        self.places[place(id)] = id;
    }
}

fn place(id: Block) -> usize {
    usize::from(u16::from_be_bytes([id[6], id[7]])) % limits::TRUSTED_IDS_MAX
}

/// What one stranger holds at most, by what it has sent.
#[derive(Debug, Default)]
pub(crate) struct Charge {
    bytes: usize,
    /// STREAM and CRYPTO frames that are counted.
    frames: u64,
}

impl Charge {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= limits::STRANGER_BYTES_MAX
    }

    /// A packet of `length` bytes was taken; with it, so many STREAM and CRYPTO frames have come. What it costs.
    pub(crate) fn add(&mut self, length: usize, frames: u64) -> usize {
        let new = frames - std::mem::replace(&mut self.frames, frames);
        if new == 0 {
            return 0;
        }
        // A packet has at most 65,535 bytes, and so fewer frames.
        let cost = length + limits::KEPT_PACKET_BYTES + new as usize * limits::KEPT_FRAME_BYTES;
        self.bytes += cost;
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_until_another_takes_its_place() {
        let mut ids = TrustedIds::new();
        let (one, same_place, other) = ([1, 0, 0, 0, 0, 0, 2, 3], [9, 0, 0, 0, 0, 0, 2, 3], [1; 8]);
        assert!(!ids.has(one));
        ids.remember(one);
        assert!(ids.has(one) && !ids.has(same_place) && !ids.has(other));
        ids.remember(same_place);
        assert!(!ids.has(one) && ids.has(same_place));
        ids.forget(one);
        assert!(ids.has(same_place));
        ids.forget(same_place);
        assert!(!ids.has(same_place));
    }

    #[test]
    fn packets_without_pieces_of_streams_cost_nothing() {
        let mut charge = Charge::default();
        assert_eq!(charge.add(1_200, 0), 0);
        let cost = 1_200 + limits::KEPT_PACKET_BYTES + 3 * limits::KEPT_FRAME_BYTES;
        assert_eq!(charge.add(1_200, 3), cost);
        assert_eq!(charge.add(1_200, 3), 0);
        assert_eq!(charge.bytes(), cost);
    }
}
