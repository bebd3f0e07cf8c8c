//! A server that shows itself to nobody (specs/qr1.md): it accepts the connections that its driver has recognised by their
//! hello and expects, each with a certificate of its own, and ignores all others. The first request on each proves that its
//! client is the one that was recognised.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use masque::HeaderList;
use masque::binding::Binding;
use quic::{AcceptParameters, ConnectionKey, Incoming, ServerIdentity};

use super::Server;
use crate::engine::Engine;
use crate::limits;

/// What the engine knows of connections that came through the front door.
#[derive(Default)]
pub(super) struct FrontDoor {
    /// Recognised, and not offered by QUIC so far, the oldest first.
    expected: VecDeque<Expected>,
    /// Connections whose client has proved itself.
    proved: BTreeSet<ConnectionKey>,
}

/// A connection that is going to be offered.
struct Expected {
    remote: SocketAddr,
    original_destination_id: Bytes,
    identity: ServerIdentity,
}

impl FrontDoor {
    /// How a new connection is accepted; `None` where nobody expects it.
    fn take(&mut self, new: &Incoming) -> Option<AcceptParameters> {
        let is_this = |expected: &Expected| {
            expected.remote == new.remote && expected.original_destination_id == new.original_destination_id
        };
        let place = self.expected.iter().position(is_this)?;
        let expected = self.expected.remove(place)?;
        Some(AcceptParameters {
            identity: Some(expected.identity),
            ..AcceptParameters::default()
        })
    }
}

impl Engine<Server> {
    /// From here on only connections are accepted that were announced with [`Engine::expect_connection`].
    pub fn use_front_door(&mut self) {
        self.state.role.front_door.get_or_insert_default();
    }

    /// The datagrams of a connection follow whose client was recognised: it is accepted with `identity`. Of those that do
    /// not come, only the latest are remembered.
    pub fn expect_connection(
        &mut self,
        remote: SocketAddr,
        original_destination_id: Bytes,
        identity: ServerIdentity,
    ) {
        let expected = &mut self.state.role.front_door.get_or_insert_default().expected;
        if expected.len() >= limits::EXPECTED_CONNECTIONS_MAX {
            expected.pop_front();
        }
        expected.push_back(Expected {
            remote,
            original_destination_id,
            identity,
        });
    }

    /// How a new connection is accepted; `None` where it is to be ignored.
    pub(super) fn acceptance_of(&mut self, new: &Incoming) -> Option<AcceptParameters> {
        match &mut self.state.role.front_door {
            Some(front_door) => front_door.take(new),
            None => Some(AcceptParameters::default()),
        }
    }

    /// Whether the client of this connection is the one that was recognised: its first request says so (QR1-17).
    pub(super) fn is_proved(&mut self, connection: ConnectionKey, request: &HeaderList) -> bool {
        let Some(front_door) = &mut self.state.role.front_door else {
            return true;
        };
        if front_door.proved.contains(&connection) {
            return true;
        }
        let expected = self.endpoint.channel_binding(connection).map(Binding);
        let is_right = expected.is_some_and(|expected| expected.is_shown_by(request));
        if is_right {
            front_door.proved.insert(connection);
        }
        is_right
    }
}

impl Server {
    /// The connection is gone.
    pub(super) fn forget_proof(&mut self, connection: ConnectionKey) {
        if let Some(front_door) = &mut self.front_door {
            front_door.proved.remove(&connection);
        }
    }
}
