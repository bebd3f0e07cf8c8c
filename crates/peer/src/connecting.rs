//! How a connection is begun: at the addresses that the program gives, and at those that others name.

use std::net::SocketAddr;
use std::time::Instant;

use peer_proto::{ConnectError, PeerId, PeerKey};

use crate::limits::LAN_SEARCH_TIME;
use crate::shared::State;

impl State {
    /// Begins to connect to a peer; whether the local network has to be asked by a new thread.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
    ) -> Result<(PeerKey, bool), ConnectError> {
        let peers = &mut self.peers;
        let peer = match &mut self.meetings {
            Some(meetings) => meetings.connect(now, peers, id, addresses)?,
            None if self.lan.finds => peers.connect_and_search(now, id, addresses, now + LAN_SEARCH_TIME)?,
            None => peers.connect(now, id, addresses)?,
        };
        let asks = self.lan.finds && self.lan.search(now, peers, peer, id);
        Ok((peer, asks))
    }
}
