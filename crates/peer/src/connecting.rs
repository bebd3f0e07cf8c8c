//! How a connection is begun: at the addresses that the program gives, and at those that others name.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use peer_proto::{Attempt, PeerId, PeerKey};

use crate::error::{AskedRendezvous, ConnectError, Unreached};
use crate::handle::{Handle, Peer};
use crate::limits::LAN_SEARCH_TIME;
use crate::shared::State;
use crate::wakers::{until, wakers_of};

/// A connection that comes about, from [`crate::Endpoint::begin`]. Dropping it gives the attempt up, and is nothing to
/// a peer that is connected.
pub struct Connecting {
    handle: Arc<Handle>,
}

impl Connecting {
    pub(crate) fn new(handle: Handle) -> Self {
        Self {
            handle: Arc::new(handle),
        }
    }

    /// Waits for the peer.
    ///
    /// # Errors
    /// As of [`crate::Endpoint::connect`].
    ///
    /// # Cancellation
    /// The connection goes on coming about, and the next call waits on.
    pub async fn connected(&self) -> Result<Peer, ConnectError> {
        let handle = &self.handle;
        let wakers = wakers_of(handle.key, |face| &mut face.state);
        until(handle.shared(), wakers, |state| {
            // What was tried has then failed by that.
            if state.is_closed {
                return Poll::Ready(Err(ConnectError::EndpointClosed));
            }
            let Some(face) = state.faces.get(&handle.key) else {
                return Poll::Ready(Err(ConnectError::EndpointClosed));
            };
            if let Some(failures) = face.failures.clone() {
                return Poll::Ready(Err(ConnectError::Unreachable(Unreached {
                    failures,
                    rendezvous: state.asked_rendezvous(),
                    asked_lan: state.lan.finds,
                })));
            }
            if face.id.is_some() {
                return Poll::Ready(Ok(()));
            }
            if face.closed.is_some() {
                return Poll::Ready(Err(ConnectError::EndpointClosed));
            }
            Poll::Pending
        })
        .await?;
        Ok(Peer(Arc::clone(handle)))
    }

    /// What is tried to reach the peer, or was, in the order in which it was begun: who named each address, and what
    /// has become of it.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let mut state = self.handle.shared().lock();
        let State { faces, peers, .. } = &mut *state;
        match faces.get(&self.handle.key) {
            Some(face) if !face.attempts.is_empty() => face.attempts.clone(),
            _ => peers.attempts(self.handle.key),
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Connecting")
            .field(&self.handle.id)
            .finish()
    }
}

/// Nobody asks for the attempts any more.
impl Drop for Connecting {
    fn drop(&mut self) {
        let mut state = self.handle.shared().lock();
        if let Some(face) = state.faces.get_mut(&self.handle.key) {
            face.attempts = Vec::new();
        }
    }
}

impl State {
    /// Begins to connect to a peer; whether the local network has to be asked by a new thread.
    pub(crate) fn connect(
        &mut self,
        now: Instant,
        id: PeerId,
        addresses: &[SocketAddr],
    ) -> Result<(PeerKey, bool), peer_proto::ConnectError> {
        let peers = &mut self.peers;
        let peer = match &mut self.meetings {
            Some(meetings) => meetings.connect(now, peers, id, addresses)?,
            None if self.lan.finds => peers.connect_and_search(now, id, addresses, now + LAN_SEARCH_TIME)?,
            None => peers.connect(now, id, addresses)?,
        };
        let asks = self.lan.finds && self.lan.search(now, peers, peer, id);
        Ok((peer, asks))
    }
    /// Whether the rendezvous can be asked for peers at present.
    fn asked_rendezvous(&self) -> AskedRendezvous {
        match &self.meetings {
            None => AskedRendezvous::NotUsed,
            Some(meetings) if meetings.observed().is_some() => AskedRendezvous::Registered,
            Some(meetings) => AskedRendezvous::NotRegistered(meetings.problem().cloned()),
        }
    }
}
