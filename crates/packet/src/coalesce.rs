//! Joins packets from a tunnel into super-packets, which a TUN device takes in one write.
//!
//! The segments of a TCP flow are joined while each follows the one before: next sequence number, the same headers but
//! for length, IP ID, checksum and PSH or FIN, equal sizes but a shorter last one. UDP datagrams of a flow are joined
//! while they have equal sizes, the last possibly shorter. This is what the kernel's GRO does, with the same
//! conditions, so whoever receives or forwards the super-packet can restore the packets; anything else passes
//! unchanged.
//!
//! Order within a flow is kept: a packet joins the *latest* super-packet of its flow or starts a new one, and
//! super-packets leave in the order in which they were started. The latest of a flow is found in a table of buckets; a
//! bucket remembers one flow only, so a collision costs a merge, never order, and each packet costs one look. A
//! fragment might belong to any flow between its hosts; it and packets with IP options or extension headers end every
//! open super-packet.
//!
//! Checksums: those of joined packets must be right (full ones are verified when the second packet comes, partial ones
//! compared with the pseudo-header), since a super-packet leaves with a partial checksum, which nobody verifies again.
//! A packet with a wrong one passes unchanged, and its receiver drops it.

mod entry;
#[cfg(test)]
mod tests;

use crate::checksum::{self, ChecksumState};
use crate::ip::{self, IpError, IpVersion, IpView};
use crate::limits;
use crate::transport::protocol;
use crate::vnet::VnetHeader;
use crate::wire::u32_at;

use entry::{Entry, Shape};

/// What may be joined; the kernel may lack an offload, or receivers may not take long bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeRules {
    /// Whether TCP segments are joined (TSO).
    pub tcp: bool,
    /// Most datagrams of a UDP super-packet (USO), at most [`limits::UDP_COALESCE_MAX`]; 1 joins none.
    pub udp_datagrams_max: usize,
}

impl Default for MergeRules {
    fn default() -> Self {
        Self {
            tcp: true,
            udp_datagrams_max: limits::UDP_COALESCE_MAX,
        }
    }
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// There is no room. [`Coalescer::drain`], then push it again.
    #[error("the coalescer is full")]
    Full,
    /// It is no IP packet.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// Its checksum is said to be partial, but it is neither TCP nor UDP, or a fragment.
    #[error("partial checksum on a packet of IP protocol {protocol} without a checksum field")]
    NoChecksumField {
        /// The upper-layer protocol.
        protocol: u8,
    },
}

/// One packet or super-packet on its way to the TUN device.
#[derive(Clone, Copy, Debug)]
pub struct SuperPacket<'a> {
    /// What is written before it.
    pub header: VnetHeader,
    /// The IP packet.
    pub bytes: &'a [u8],
    /// How many pushed packets it holds. [`crate::segmentation::Segmenter`] gives them back where a device refuses it.
    pub packets: usize,
}

/// Collects packets and gives them back as super-packets.
///
/// ```
/// use packet::checksum::ChecksumState;
/// use packet::coalesce::{Coalescer, PushError};
///
/// let received: [&[u8]; 1] = [&[
///     0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 17, 0x66, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 8, 0, 0,
/// ]];
/// let mut coalescer = Coalescer::default();
/// let mut write = |header: [u8; 10], packet: &[u8]| println!("{header:?}, {} bytes", packet.len());
/// for packet in received {
///     if coalescer.push(packet, ChecksumState::Full) == Err(PushError::Full) {
///         coalescer.drain(|packet| write(packet.header.encode(), packet.bytes));
///         coalescer.push(packet, ChecksumState::Full)?;
///     }
/// }
/// coalescer.drain(|packet| write(packet.header.encode(), packet.bytes));
/// # Ok::<(), PushError>(())
/// ```
#[derive(Debug)]
pub struct Coalescer {
    rules: MergeRules,
    entries: Vec<Entry>,
    /// Entries in use; those behind keep their buffers.
    used: usize,
    bytes: usize,
    /// The latest entry of each flow by its hash, plus one; zero for none.
    buckets: [u8; limits::COALESCE_BUCKETS],
}

impl Default for Coalescer {
    fn default() -> Self {
        Self::new(MergeRules::default())
    }
}

impl Coalescer {
    /// An empty coalescer. Its buffers grow as they are used, to 4.2 MB at most, and are kept.
    #[must_use]
    pub fn new(rules: MergeRules) -> Self {
        Self {
            rules,
            entries: Vec::new(),
            used: 0,
            bytes: 0,
            buckets: [0; limits::COALESCE_BUCKETS],
        }
    }

    /// Changes what may be joined from the next packet on.
    pub fn set_rules(&mut self, rules: MergeRules) {
        self.rules = rules;
    }

    /// Whether there is nothing to drain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Takes one packet, whose checksum field holds what `state` says. Bytes behind the length that the packet claims
    /// are cut off.
    ///
    /// # Errors
    /// [`PushError`]; the packet is not taken then.
    pub fn push(&mut self, packet: &[u8], state: ChecksumState) -> Result<(), PushError> {
        let view = IpView::parse(packet)?;
        let packet = &packet[..view.total_bytes];
        let field = checksum::field_offset(&view, packet);
        if state == ChecksumState::Partial && field.is_none() {
            return Err(PushError::NoChecksumField {
                protocol: view.protocol,
            });
        }
        if self.bytes + packet.len() > limits::COALESCE_BYTES_MAX {
            return Err(PushError::Full);
        }
        let shape = Shape::of(&view, packet);
        let bucket = shape.map(|shape| bucket(&shape, packet));
        if let (Some(shape), Some(bucket)) = (shape, bucket)
            && let Some(latest) = usize::from(self.buckets[bucket]).checked_sub(1)
            && self.entries[latest].join(packet, &view, shape, state, self.rules)
        {
            self.bytes += packet.len() - shape.headers_bytes;
            return Ok(());
        }
        if self.used == limits::COALESCE_ENTRIES_MAX {
            return Err(PushError::Full);
        }
        if self.used == self.entries.len() {
            self.entries.push(Entry::default());
        }
        let open = shape.is_some_and(|shape| self.rules.allow(&shape) && shape.may_be_first(packet));
        let field = (view.transport_offset, field.unwrap_or(0));
        self.entries[self.used].start(packet, shape, state, open, field);
        self.used += 1;
        self.bytes += packet.len();
        if let Some(bucket) = bucket {
            self.buckets[bucket] = self.used as u8;
        } else if view.fragment || matches!(view.protocol, protocol::TCP | protocol::UDP) {
            self.buckets.fill(0);
        }
        Ok(())
    }

    /// Hands out everything, in order, and is empty then.
    pub fn drain(&mut self, mut emit: impl FnMut(SuperPacket<'_>)) {
        for entry in &mut self.entries[..self.used] {
            emit(entry.finish());
        }
        self.used = 0;
        self.bytes = 0;
        self.buckets.fill(0);
    }
}

/// Bucket of the flow of a packet.
fn bucket(shape: &Shape, packet: &[u8]) -> usize {
    let addresses = match shape.version {
        IpVersion::V4 => &packet[ip::V4_SOURCE..ip::V4_HEADER_BYTES],
        IpVersion::V6 => &packet[ip::V6_SOURCE..ip::V6_HEADER_BYTES],
    };
    let (words, _) = addresses.as_chunks::<4>();
    let ports = u32_at(packet, shape.transport) ^ u32::from(shape.protocol);
    let hash = words.iter().fold(ports, |hash, word| {
        (hash.rotate_left(5) ^ u32::from_ne_bytes(*word)).wrapping_mul(0x9e37_79b1)
    });
    hash as usize >> 16 & (limits::COALESCE_BUCKETS - 1)
}
