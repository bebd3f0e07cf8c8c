//! The interface that real and faulty sockets share: batches in, trains out, counters.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::AddAssign;

use packet::{Ecn, Histogram};

use crate::batch::ReceiveBatch;
use crate::limits::BATCH_BUCKETS;

/// A non-blocking socket that moves datagrams in batches.
pub trait DatagramSocket {
    /// Replaces what `batch` holds by what has arrived; `Ok(0)` means that nothing is there.
    ///
    /// # Errors
    /// What ICMP reported about an earlier datagram of a connected socket (`ConnectionRefused` and the like), once
    /// each; the socket goes on. Anything else is a defect of the socket.
    fn receive(&mut self, batch: &mut ReceiveBatch) -> io::Result<usize>;

    /// Sends `messages` in order, as many as the socket takes. A message that cannot be sent is dropped, counted in
    /// the outcome, and the next one follows.
    ///
    /// # Errors
    /// Only when nothing could be disposed of at all because the socket itself is broken.
    fn send(&mut self, messages: &[Outgoing<'_>]) -> io::Result<SendOutcome>;

    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// The kernel's refusal to tell.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// What the socket has done since it exists.
    fn stats(&self) -> &IoStats;
}

/// A datagram or a train of them, to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where to; `None` on a connected socket.
    pub destination: Option<SocketAddr>,
    /// The address to send from; heeded by sockets that are bound to a wildcard.
    pub source: Option<IpAddr>,
    /// ECN codepoint of every datagram.
    pub ecn: Ecn,
    /// Bytes per datagram, of which the last may have fewer; 0 or anything from the payload's length on means that
    /// the payload is one datagram.
    pub segment_size: usize,
    /// The datagrams, one after the other. A train longer than the kernel takes at once is sent in several parts.
    pub payload: &'a [u8],
}

impl<'a> Outgoing<'a> {
    /// A Not-ECT train for a connected socket.
    #[must_use]
    pub fn connected(payload: &'a [u8], segment_size: usize) -> Self {
        Self {
            destination: None,
            source: None,
            ecn: Ecn::NotEct,
            segment_size,
            payload,
        }
    }

    /// A Not-ECT train to `destination`.
    #[must_use]
    pub fn to(destination: SocketAddr, payload: &'a [u8], segment_size: usize) -> Self {
        Self {
            destination: Some(destination),
            ..Self::connected(payload, segment_size)
        }
    }

    /// Bytes from the start of one datagram to the next, at least 1.
    pub(crate) fn stride(&self) -> usize {
        let whole = self.payload.len().max(1);
        if self.segment_size == 0 {
            whole
        } else {
            self.segment_size.min(whole)
        }
    }
}

/// What became of the messages given to one send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOutcome {
    /// Leading messages that are disposed of: sent or dropped.
    pub messages: usize,
    /// Datagrams sent, those of a message in part included.
    pub segments: u64,
    /// Leading datagrams of the first message not disposed of that were sent or dropped already. The caller goes on
    /// behind them, at byte `partial_segments * segment_size` of that payload.
    pub partial_segments: usize,
    /// The socket takes no more at present; the rest is to be sent again once it is writable.
    pub blocked: bool,
    /// Datagrams that could not be sent.
    pub dropped: SendDrops,
}

/// Why datagrams were not sent; all in datagrams, not messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendDrops {
    /// Larger than the path or the protocol takes (`EMSGSIZE`).
    pub too_large: u64,
    /// Nobody listens at the destination (`ECONNREFUSED`).
    pub refused: u64,
    /// No way there, or not allowed (`ENETUNREACH`, `EHOSTUNREACH`, `ENETDOWN`, `EPERM`, `EACCES`, `EADDRNOTAVAIL`).
    pub unreachable: u64,
    /// Anything else.
    pub other: u64,
}

impl SendDrops {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.too_large + self.refused + self.unreachable + self.other
    }
}

impl AddAssign for SendDrops {
    fn add_assign(&mut self, other: Self) {
        self.too_large += other.too_large;
        self.refused += other.refused;
        self.unreachable += other.unreachable;
        self.other += other.other;
    }
}

/// Counters of one socket since it exists. A *message* is what the kernel takes or gives at once, a *segment* is a
/// datagram on the wire; bytes are UDP payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Receive calls that returned something.
    pub receives: u64,
    /// Datagrams of each such call.
    pub receive_batches: Histogram<BATCH_BUCKETS>,
    /// Messages received.
    pub messages_received: u64,
    /// Datagrams received.
    pub segments_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Messages received that held several datagrams.
    pub gro_messages: u64,
    /// Messages received that the kernel had to cut short.
    pub truncated: u64,
    /// Drops because the buffer was full, as the kernel counts them: one per socket buffer, of which a coalesced one
    /// holds several datagrams. Known when a later datagram arrives, or when a [`UdpSocket`](crate::UdpSocket) is
    /// asked to refresh it.
    pub kernel_drops: u64,
    /// `sendmmsg` calls.
    pub sends: u64,
    /// Datagrams of each call that sent something.
    pub send_batches: Histogram<BATCH_BUCKETS>,
    /// Messages sent.
    pub messages_sent: u64,
    /// Messages sent as GSO trains.
    pub gso_messages: u64,
    /// Datagrams sent.
    pub segments_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Trains that the kernel refused, so that their datagrams were sent one by one.
    pub split_resends: u64,
    /// Times that a path was put to sending without GSO for a while.
    pub gso_step_downs: u64,
    /// Sends that ended early because the socket took no more.
    pub would_block: u64,
    /// Sends that met an error of an earlier datagram and succeeded when tried again.
    pub stale_errors: u64,
}
