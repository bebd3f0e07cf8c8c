//! What a server's cover counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Serialize;

use super::{Gauge, add_counts};

/// The web site that a server looks like to everybody without its link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoverSnapshot {
    /// Host name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The name that clients ask for.
    pub name: String,
    /// Where it is, the address in use first.
    pub addresses: Vec<SocketAddr>,
    /// Why it cannot be found, where it cannot.
    pub trouble: Option<String>,
    /// TCP connections that go on to it, where they do.
    pub tcp: Option<CoverTcpCounters>,
    /// Strangers' addresses whose datagrams go to it.
    pub flows: Gauge,
    /// What became of datagrams and hellos, as [`reality::door::DoorCounters`] names it; zeros are left out.
    pub relay: BTreeMap<String, u64>,
    /// Hellos that are remembered, so that none is accepted twice.
    pub remembered: u64,
}

impl CoverSnapshot {
    /// With what another shard counts.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.flows += other.flows;
        add_counts(&mut self.relay, other.relay);
        self
    }
}

/// TCP connections of strangers that go on to the cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoverTcpCounters {
    /// Open at present.
    pub open: u64,
    /// Since the start.
    pub total: u64,
    /// The cover was not reached.
    pub failed: u64,
    /// Ended by a reset of either side, or because nothing moved.
    pub reset: u64,
    /// Reset at once: beyond what one network, or all, may have open.
    pub over_limit: u64,
    /// Bytes from strangers.
    pub bytes_to_cover: u64,
    /// Bytes of the cover.
    pub bytes_from_cover: u64,
}
