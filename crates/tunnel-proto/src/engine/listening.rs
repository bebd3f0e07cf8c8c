//! Connections that come to a port of the server and lead to a client (`specs/listen.md`).
//!
//! A client's request waits at the server for one connection. It is a TCP connection like any other from then on, with
//! the roles of its ends exchanged; before that it holds no place among those of the server, nor among the sessions of
//! its user: how many wait is bounded for each port and the ports for each user.

use std::time::Instant;

use bytes::Bytes;
pub use masque::listen::CAME as CONNECTION_CAME;
use masque::listen::ListenPath;
use masque::request::Extended;
use masque::response::{self, ProxyError};

use super::body::TcpConnection;
use super::life::{Life, RequestStream};
use super::request::{Kind, Request, RequestId};
use super::{Action, Client, Engine, Server, ServerAction};

impl Engine<Client> {
    /// Asks for the next connection that comes to a port of the server. It waits where the tunnel is not up.
    /// [`ClientAction::Established`](super::ClientAction::Established) says that the server listens there. With the
    /// connection the content begins, by the byte [`CONNECTION_CAME`].
    pub fn open_listener(&mut self, now: Instant, path: ListenPath) -> RequestId {
        let connection = TcpConnection { listener: Some(path) };
        self.open_kind(now, Kind::Tcp(connection), None)
    }
}

impl Engine<Server> {
    /// A user asks for connections that come to an address of this machine.
    pub(super) fn admit_listener(
        &mut self,
        now: Instant,
        stream: RequestStream,
        id: RequestId,
        asked: &Extended,
    ) {
        let Ok(path) = asked.path.parse::<ListenPath>() else {
            return self.answer_and_end(id, &response::response(400));
        };
        if self.state.draining {
            return self.answer_and_end(id, &response::failure(ProxyError::DestinationUnavailable));
        }
        if !self.listen_rights_of(stream.connection).covers(path.address) {
            let forbidden = response::failure_with(403, ProxyError::DestinationIpProhibited);
            return self.turn_away(id, &forbidden, 403);
        }
        if !self.has_user_right(id, stream.connection, |rights| rights.tcp) {
            return;
        }
        let (Some(user), Some(request)) =
            (self.user_of(stream.connection), self.state.requests.get_mut(id.0))
        else {
            return;
        };
        request.kind = Kind::Tcp(TcpConnection { listener: Some(path) });
        request.life = Life::Opening(stream);
        request.last_active = now;
        self.state.actions.push_back(Action::Role(ServerAction::Listen {
            request: id,
            user,
            connection: stream.connection,
            path,
        }));
    }

    /// The connection that an accepted request has waited for has come: it counts as a TCP connection from here on, and
    /// needs a place as others do. Whether its user may have another session.
    #[must_use]
    pub fn connection_came(&mut self, now: Instant, id: RequestId) -> bool {
        let stream = self.state.requests.get(id.0).and_then(Request::stream);
        let is_admitted = stream.is_some_and(|stream| self.count_session(id, stream.connection));
        if is_admitted && let Some(request) = self.state.requests.get_mut(id.0) {
            request.last_active = now;
            self.state.role.list_tcp(id, request);
        }
        is_admitted
    }

    /// The connection has its place: tells the client of it. Whether the tunnel takes bytes at once, as
    /// [`Engine::write_body`] says.
    pub fn announce_connection(&mut self, id: RequestId) -> bool {
        self.write_body(id, Bytes::from_static(&[CONNECTION_CAME]))
    }
}
