//! What an endpoint has turned away, by reason.

use peer_proto::Peers;

use crate::shared::State;

/// What an endpoint has at present, and what it has turned away since it was bound, by reason: how much others try to
/// make it work for nothing. [`crate::Peer::path_stats`] has the counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Connections that are there, in their handshakes or ending included.
    pub connections: usize,
    /// Of these, peers that wait for [`crate::Endpoint::accept`].
    pub waiting: usize,
    /// Handshakes that others began.
    pub handshakes: u64,
    /// Handshakes of which too many were under way: left without an answer.
    pub over_limit: u64,
    /// Handshakes that had to prove their address first, because many came at a time.
    pub over_rate: u64,
    /// Handshakes that were ended because newcomers needed their room.
    pub pushed_out: u64,
    /// Handshakes whose first packet could not be used.
    pub damaged: u64,
    /// Connections of peers that may not connect ([`crate::Builder::allow`]), closed with [`crate::code::REFUSED`].
    pub not_allowed: u64,
    /// Connections that came while as many waited for the program as may ([`crate::Builder::accept_queue_max`]), closed
    /// with [`crate::code::QUEUE_FULL`].
    pub queue_full: u64,
    /// Connections of peers that connected to this end, closed with [`crate::code::CROWDED`], because all that
    /// [`crate::Builder::accepted_window_bytes_max`] allows was taken.
    pub crowded: u64,
    /// Connections of peers that broke a rule of the protocol, closed with [`crate::code::PROTOCOL`].
    pub violations: u64,
}

impl EndpointStats {
    pub(crate) fn of(state: &State) -> Self {
        let peers: &Peers = &state.peers;
        let (refusals, incoming) = (peers.refusals(), peers.incoming_totals());
        Self {
            connections: peers.open_connections(),
            waiting: state.incoming.len(),
            handshakes: incoming.offered,
            over_limit: incoming.over_limit,
            over_rate: incoming.over_rate,
            pushed_out: incoming.pushed_out,
            damaged: incoming.damaged,
            not_allowed: refusals.not_allowed,
            queue_full: state.queue_full,
            crowded: refusals.crowded,
            violations: refusals.violations,
        }
    }
}
