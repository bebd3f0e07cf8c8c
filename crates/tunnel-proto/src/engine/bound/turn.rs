//! What relayed payloads leave for the end of a server's turn: QUIC, which is busy with what it receives, is told then which
//! connections have something to send, and other shards are given theirs, a turn's at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use quic::ConnectionKey;

use crate::engine::RequestId;
use crate::limits;
use crate::rendezvous::sockets::{Handover, SocketEnd, Transfer};

/// Of one shard.
#[derive(Debug, Default)]
pub(in crate::engine) struct RelayTurn {
    /// Connections whose queues got something.
    pub(super) filled: BTreeSet<ConnectionKey>,
    /// The last one of them: payloads come in runs.
    recent: Option<ConnectionKey>,
    /// Sockets from which something was taken, by their requests.
    pub(super) taken: BTreeSet<RequestId>,
    /// The last one of them.
    recently_taken: Option<RequestId>,
    /// For other shards.
    pub(super) elsewhere: BTreeMap<usize, Vec<Handover>>,
    /// Sockets that have sent something to one that is gone, and the address of that one: told once a turn.
    pub(super) gone: BTreeSet<(SocketEnd, SocketAddr)>,
    /// Of payloads for other shards, with their bookkeeping.
    bytes: usize,
}

impl RelayTurn {
    /// What the turn has left; the next one begins.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Payloads that wait for the end of the turn.
    pub(in crate::engine) fn waiting(&self) -> usize {
        self.elsewhere.values().map(Vec::len).sum()
    }

    /// The queue of a connection got something.
    pub(super) fn fill(&mut self, connection: ConnectionKey) {
        if self.recent.replace(connection) != Some(connection) {
            self.filled.insert(connection);
        }
    }

    /// Something was taken from the socket of a request.
    pub(super) fn take_from(&mut self, id: RequestId) {
        if self.recently_taken.replace(id) != Some(id) {
            self.taken.insert(id);
        }
    }

    /// Whether a payload of so many bytes may wait for the end of the turn (RDV-13).
    pub(super) fn has_room(&self, payload_bytes: usize) -> bool {
        self.bytes + Transfer::cost(payload_bytes) <= limits::RELAY_WAITING_BYTES_MAX
    }

    /// A payload for another shard, for which there is room.
    pub(super) fn hand_over(&mut self, shard: usize, payload: Handover) {
        self.bytes += payload.bytes();
        self.elsewhere.entry(shard).or_default().push(payload);
    }
}
