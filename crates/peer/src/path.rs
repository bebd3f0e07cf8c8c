//! By which way packets reach a peer.

use std::fmt;
use std::net::SocketAddr;

/// The path of a connection: it may change at any time, and nothing is lost by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPath {
    /// Packets go to the peer's address, or to that of its router.
    Direct(SocketAddr),
    /// The rendezvous relays sealed packets for the peer, which has this name there; no packet is sent to it. A direct
    /// path is looked for meanwhile.
    Relayed(SocketAddr),
}

impl PeerPath {
    pub(crate) fn new((remote, is_relayed): (SocketAddr, bool)) -> Self {
        match is_relayed {
            true => Self::Relayed(remote),
            false => Self::Direct(remote),
        }
    }

    /// Whether a rendezvous relays.
    #[must_use]
    pub fn is_relayed(self) -> bool {
        matches!(self, Self::Relayed(_))
    }
}

impl fmt::Display for PeerPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(address) => write!(formatter, "{address}"),
            // Its address is the rendezvous' name for the peer, and nobody else's.
            Self::Relayed(_) => formatter.write_str("relayed by the rendezvous"),
        }
    }
}
