//! Reads a received IP packet with a TCP segment in it.

mod options;

use std::net::SocketAddr;
use std::ops::Range;

use packet::Ecn;
use packet::ip::{IpError, IpView};

pub use options::Options;

use crate::seal::Proof;
use crate::sequence::Sequence;

/// IP protocol number of TCP.
pub const PROTOCOL: u8 = 6;

/// Bytes of the TCP header without options.
pub const HEADER_BYTES: usize = 20;

/// Control bits of a TCP header (RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronizes sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// Push.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Why a packet is no TCP segment that we take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The IP header is wrong.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// Another protocol than TCP.
    #[error("IP protocol {0}, expected TCP")]
    Protocol(u8),
    /// A fragment; whole packets alone are taken.
    #[error("a fragment")]
    Fragment,
    /// The TCP header says less than 20 bytes, or more than there are.
    #[error("a TCP header of {claimed} bytes, of which {received} were received")]
    HeaderLength {
        /// Bytes of the header, as it says; 20 where it is cut short before it does.
        claimed: usize,
        /// Bytes behind the IP headers.
        received: usize,
    },
    /// An option of a SYN says less than 2 bytes or more than there are, or has another length than its kind.
    #[error("a TCP option of a wrong length")]
    Option,
    /// A port of zero.
    #[error("a port of zero")]
    Port,
}

/// What a segment says. The checksum is not part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// Position of the first byte of payload, or of SYN.
    pub sequence: Sequence,
    /// What the sender expects next; counts with [`Flags::ACK`].
    pub acknowledgement: Sequence,
    /// Control bits.
    pub flags: Flags,
    /// The window field, not scaled.
    pub window: u16,
    /// Options; read in segments with SYN, which alone have any that matter.
    pub options: Options,
    /// What it says to who has the key; read in segments without SYN.
    pub proof: Proof,
    /// Where in the packet the payload is.
    pub payload: Range<usize>,
    /// The ECN codepoint of the IP header.
    pub ecn: Ecn,
}

impl Segment {
    /// Reads the packet that starts `packet`; what follows it is padding.
    ///
    /// # Errors
    /// [`Malformed`] where it is no whole IPv4 or IPv6 packet with a TCP segment.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        Self::parse_viewed(&IpView::parse(packet)?, packet)
    }

    /// [`Segment::parse`] of a packet whose IP headers were read.
    pub(crate) fn parse_viewed(view: &IpView, packet: &[u8]) -> Result<Self, Malformed> {
        if view.protocol != PROTOCOL {
            return Err(Malformed::Protocol(view.protocol));
        }
        if view.fragment {
            return Err(Malformed::Fragment);
        }
        let segment = view.transport(packet);
        let received = segment.len();
        let header = segment
            .first_chunk::<HEADER_BYTES>()
            .ok_or(Malformed::HeaderLength {
                claimed: HEADER_BYTES,
                received,
            })?;
        let claimed = usize::from(header[12] >> 4) * 4;
        if claimed < HEADER_BYTES || claimed > received {
            return Err(Malformed::HeaderLength { claimed, received });
        }
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let long = |at: usize| Sequence(u32::from(short(at)) << 16 | u32::from(short(at + 2)));
        let (source_port, destination_port) = (short(0), short(2));
        if source_port == 0 || destination_port == 0 {
            return Err(Malformed::Port);
        }
        let flags = Flags(header[13]);
        let option_bytes = &segment[HEADER_BYTES..claimed];
        let (options, proof) = if flags.has(Flags::SYN) {
            (
                Options::parse(option_bytes).ok_or(Malformed::Option)?,
                Proof::None,
            )
        } else {
            (Options::default(), Proof::parse(option_bytes))
        };
        Ok(Self {
            source: SocketAddr::new(view.source, source_port),
            destination: SocketAddr::new(view.destination, destination_port),
            sequence: long(4),
            acknowledgement: long(8),
            flags,
            window: short(14),
            options,
            proof,
            payload: view.transport_offset + claimed..view.total_bytes,
            ecn: view.ecn,
        })
    }

    /// The position behind this segment: SYN and FIN count like a byte of payload.
    #[must_use]
    pub fn end(&self) -> Sequence {
        let controls = u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN));
        self.sequence.plus(self.payload.len() as u32 + controls)
    }
}

#[cfg(test)]
mod tests;
