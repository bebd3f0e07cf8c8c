//! For endpoints that only shake hands or have streams.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::endpoint::Receiver;
use crate::event::ConnectionKey;
use crate::transmit::DatagramSource;

/// Nothing is sent in datagrams, and what comes in them is dropped.
#[derive(Clone, Copy, Debug)]
pub struct NoDatagrams {
    /// Largest UDP payload, in bytes, that the interface towards a new peer carries.
    pub udp_payload_ceiling: u16,
}

impl DatagramSource for NoDatagrams {
    fn waits(&self, _: ConnectionKey) -> bool {
        false
    }

    fn next_datagram(&mut self, _: ConnectionKey, _: usize, _: usize) -> Option<Bytes> {
        None
    }
}

impl Receiver for NoDatagrams {
    fn datagram(&mut self, _: ConnectionKey, _: Bytes) {}

    fn udp_payload_ceiling(&mut self, _: SocketAddr) -> u16 {
        self.udp_payload_ceiling
    }
}
