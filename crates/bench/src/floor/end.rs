//! One end of a QUIC connection as the driver moves it, whichever QUIC it is, and what both ends agree on.

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use packet::Ecn;
use quic::OutgoingTrain;

/// Payload bytes per datagram.
pub(super) const PAYLOAD_BYTES: usize = 1_150;

/// Largest QUIC packet, in bytes of UDP payload: an Ethernet path without options.
pub(super) const UDP_PAYLOAD_MAX: u16 = 1_452;

/// A received message.
pub(super) struct Arrived {
    /// The packets, one after the other.
    pub(super) data: BytesMut,
    /// Bytes of all but the last.
    pub(super) segment_size: usize,
    /// ECN codepoint.
    pub(super) ecn: Ecn,
}

/// One end of a connection.
pub(super) trait End {
    /// Takes a received message.
    fn take(&mut self, now: Instant, arrived: Arrived);
    /// Makes trains, with up to `feed` datagrams, and counts those down.
    fn flush(&mut self, now: Instant, feed: &mut u64);
    /// The trains made.
    fn trains(&self) -> &[OutgoingTrain];
    /// Forgets the trains.
    fn release(&mut self);
    /// When [`End::handle_timeout`] is due.
    fn timeout(&mut self) -> Option<Instant>;
    /// Runs due timers.
    fn handle_timeout(&mut self, now: Instant);
    /// Whether the handshake is complete.
    fn is_connected(&self) -> bool;
    /// Datagrams that arrived here.
    fn received(&self) -> u64;
}

/// The payload of every datagram; a reference, so that the source costs nothing.
pub(super) fn payload() -> Bytes {
    const PAYLOAD: [u8; PAYLOAD_BYTES] = [0x5a; PAYLOAD_BYTES];
    Bytes::from_static(&PAYLOAD)
}
