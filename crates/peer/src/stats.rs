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
    /// Peers that wait for [`crate::Endpoint::accept`]: also those that have left messages and are gone, which are no
    /// connections any more and give way where a living one needs their place.
    pub waiting: usize,
    /// Handshakes that others began, and that were let in for a decision: none of `over_limit`, `over_rate` and
    /// `turned_down`, which count packets.
    pub handshakes: u64,
    /// First packets that were left without an answer, because too many handshakes were under way; also those that
    /// were sent again.
    pub over_limit: u64,
    /// First packets that were answered by a demand to prove their address, because many came at a time; also those
    /// that were sent again.
    pub over_rate: u64,
    /// Further first packets of a handshake that was not let in just before.
    pub turned_down: u64,
    /// Handshakes that were let in, and ended before the peer had proved its key, because newcomers needed their room.
    pub pushed_out: u64,
    /// Handshakes that were not decided on in time, or made room for newcomers before.
    pub expired: u64,
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
            turned_down: incoming.turned_down,
            pushed_out: incoming.pushed_out,
            expired: incoming.expired,
            damaged: incoming.damaged,
            not_allowed: refusals.not_allowed,
            queue_full: state.queue_full,
            crowded: refusals.crowded,
            violations: refusals.violations,
        }
    }
}
