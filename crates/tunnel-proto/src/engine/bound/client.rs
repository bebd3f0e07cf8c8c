//! A client's bound sockets: asked for on the connection of its registration, and with a context for each peer.

use std::net::SocketAddr;
use std::time::Instant;

use masque::MessageError;
use masque::bind::{self, BindCapsule};

use super::{BoundSession, Context, Payload};
use crate::drops::DropReason;
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Action, Client, ClientAction, Deliver, Engine, State};
use crate::limits;

/// Why there is no context to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoContext {
    /// There is no such socket, not yet or not any more.
    #[error("the bound socket is not open")]
    NotOpen,
    /// The socket has [`limits::RELAY_CONTEXTS_PER_SOCKET_MAX`] contexts.
    #[error("the bound socket has too many contexts; close some")]
    TooMany,
}

impl Engine<Client> {
    /// Asks for a bound socket at the server, on whose connection a peer is registered: one for each registration.
    /// [`ClientAction::Established`] says that it is there, [`Action::Ended`] that it is over, with the registration at the
    /// latest.
    pub fn open_relay(&mut self, now: Instant) -> RequestId {
        let session = BoundSession::new(self.offers().split, None);
        self.open_kind(now, Kind::Bound(Box::new(session)), None)
    }

    /// The address of a bound socket, by which other peers of the server reach it; `None` where it is not open.
    #[must_use]
    pub fn relayed_address(&self, id: RequestId) -> Option<SocketAddr> {
        match &self.state.requests.get(id.0)?.kind {
            Kind::Bound(session) => session.address,
            _ => None,
        }
    }

    /// Asks for a context to the socket of another peer, which has to do the same: what comes from an address without a
    /// context is dropped. [`ClientAction::ContextOpen`] says that it is there, [`ClientAction::ContextClosed`] that it is
    /// not, or not any more. Where there is one, nothing happens.
    ///
    /// # Errors
    /// [`NoContext`].
    pub fn open_context(&mut self, id: RequestId, to: SocketAddr) -> Result<(), NoContext> {
        let session = self.state.bound(id).ok_or(NoContext::NotOpen)?;
        if session.address.is_none() {
            return Err(NoContext::NotOpen);
        }
        if session.by_address(to).is_some() {
            return Ok(());
        }
        if session.contexts.len() >= limits::RELAY_CONTEXTS_PER_SOCKET_MAX {
            return Err(NoContext::TooMany);
        }
        let context_id = session.next_context;
        session.next_context += 2;
        session.contexts.push(Context {
            id: context_id,
            address: to,
            end: None,
        });
        let address = Some(to);
        self.say_of_context(id, &BindCapsule::Assign { context_id, address });
        Ok(())
    }

    /// Gives a context up; nothing tells of it.
    pub fn close_context(&mut self, id: RequestId, to: SocketAddr) {
        let session = self.state.bound(id);
        let removed = session.and_then(|session| session.remove(|context| context.address == to));
        if let Some(context) = removed {
            self.say_of_context(id, &BindCapsule::Close(context.id));
        }
    }

    /// Sends payloads to the socket of another peer, in order. What has no context is dropped and counted.
    pub fn send_relayed<'a>(
        &mut self,
        now: Instant,
        id: RequestId,
        to: SocketAddr,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) {
        let session = self.state.bound(id);
        let context = session.and_then(|session| Some(session.by_address(to)?.id));
        let stream = self.state.requests.get(id.0).and_then(Request::stream);
        let (Some(context), Some(stream)) = (context, stream) else {
            let count = payloads.count() as u64;
            self.state.ledger.ingress.accepted += count;
            return self.state.ledger.ingress.drop(DropReason::UnknownContext, count);
        };
        self.measure_datagrams(stream.connection);
        for payload in payloads {
            self.state.ledger.ingress.accepted += 1;
            self.state
                .enqueue_in_context(now, id, context, Payload::Borrowed(payload));
        }
        self.endpoint.mark_ready(stream.connection);
    }

    /// Whether datagrams, e.g. payloads to other peers, wait until the path takes more.
    #[must_use]
    pub fn has_waiting_datagrams(&self) -> bool {
        let mut peers = self.state.peers.iter().flatten();
        peers.any(|peer| !peer.queue.is_empty())
    }

    /// The largest payload that travels to other peers in one DATAGRAM frame at present, in bytes; longer ones are split.
    #[must_use]
    pub fn relayed_payload_max(&mut self, id: RequestId) -> Option<usize> {
        let stream = self.state.requests.get(id.0).and_then(Request::stream)?;
        let datagram_max = self.endpoint.datagram_max(stream.connection)?;
        let session = self.state.bound(id)?;
        let (_, prefix_bytes) = masque::datagram::prefix(stream.quarter(), session.next_context);
        Some(datagram_max.saturating_sub(prefix_bytes))
    }

    /// The server says something about a context.
    pub(in crate::engine) fn hear_of_context(
        &mut self,
        now: Instant,
        id: RequestId,
        capsule: &BindCapsule,
    ) -> Result<(), MessageError> {
        let Some(session) = self.state.bound(id) else {
            return Ok(());
        };
        let news = match capsule {
            BindCapsule::Assign { context_id, .. } if context_id % 2 == 0 => return Err(bind::MALFORMED),
            // Contexts are this end's to ask for.
            BindCapsule::Assign { context_id, .. } => {
                if self.admits_question(now, id) {
                    self.say_of_context(id, &BindCapsule::Close(*context_id));
                }
                return Ok(());
            }
            BindCapsule::Ack(context_id) => session.by_id(*context_id).map(|context| {
                let (request, address) = (id, context.address);
                ClientAction::ContextOpen { request, address }
            }),
            BindCapsule::Close(context_id) => {
                let removed = session.remove(|context| context.id == *context_id);
                removed.map(|context| {
                    let (request, address) = (id, context.address);
                    ClientAction::ContextClosed { request, address }
                })
            }
            BindCapsule::Datagram(_) | BindCapsule::Oversized(_) => None,
        };
        if let Some(news) = news {
            self.state.actions.push_back(Action::Role(news));
        }
        Ok(())
    }
}

impl State<Client> {
    /// A payload has come from another peer.
    pub(in crate::engine) fn deliver_relayed(
        &mut self,
        id: RequestId,
        context: u64,
        payload: &[u8],
        deliver: &mut impl Deliver,
    ) {
        let from = self
            .bound(id)
            .and_then(|session| Some(session.by_id(context)?.address));
        match from {
            Some(from) => deliver.deliver_relayed(id, from, payload),
            None => self.ledger.egress.drop(DropReason::UnknownContext, 1),
        }
    }
}
