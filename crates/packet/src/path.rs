//! Between which addresses a datagram passes.

use std::net::{IpAddr, SocketAddr};

/// Where a received message came from and went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// The sender.
    pub remote: SocketAddr,
    /// Our address, where the socket is bound to a wildcard.
    pub local: Option<IpAddr>,
}
