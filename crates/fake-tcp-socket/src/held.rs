//! A train that waits until its connection is open.

use packet::Ecn;
use packet_io::Outgoing;

/// See the module's text.
#[derive(Clone, Debug)]
pub struct Held {
    payload: Vec<u8>,
    segment_size: usize,
    ecn: Ecn,
}

impl Held {
    /// A copy of datagrams of `segment_size` bytes each, of which the last may have fewer; 0 means one datagram.
    #[must_use]
    pub fn new(payload: &[u8], segment_size: usize, ecn: Ecn) -> Self {
        Self {
            payload: payload.to_vec(),
            segment_size,
            ecn,
        }
    }

    /// How many datagrams it has.
    #[must_use]
    pub fn datagrams(&self) -> u64 {
        match self.segment_size {
            0 => 1,
            bytes => self.payload.len().div_ceil(bytes) as u64,
        }
    }

    /// As it is sent, without a destination.
    #[must_use]
    pub fn message(&self) -> Outgoing<'_> {
        Outgoing {
            ecn: self.ecn,
            ..Outgoing::connected(&self.payload, self.segment_size)
        }
    }
}
