//! A server's judgement of requests: who asks, for what, and how it is answered.
//!
//! Without a valid token every answer is as short as any web server's: 404, 401 or 407, with no content.

use std::time::Instant;

use masque::ip::ConnectIp;
use masque::listen;
use masque::request::{self as request_headers, ConnectUdp, Credential, PathKind, Request as Asked};
use masque::response::{self, ProxyError};
use masque::{HeaderList, MessageError, Target};
use quic::ConnectionKey;

use super::Server;
use crate::access::Rights;
use crate::config::{Oversize, Protocol};
use crate::engine::body::TcpConnection;
use crate::engine::life::{Cause, Life, RequestStream};
use crate::engine::request::{Kind, RequestId};
use crate::engine::udp::{Offers, UdpSession};
use crate::engine::{Action, Deliver, Engine, ServerAction};
use crate::limits;

impl Engine<Server> {
    /// The headers of a request have come.
    pub(in crate::engine) fn judge(&mut self, now: Instant, id: RequestId, list: &HeaderList) {
        let request = self.state.requests.get(id.0);
        let Some(Life::Headers(stream)) = request.map(|request| &request.life) else {
            return;
        };
        let stream = *stream;
        let connection = stream.connection;
        match request_headers::classify(list) {
            Err(MessageError::Stream { code, .. }) => {
                self.end_for(id, Cause::Reset(code));
            }
            Err(MessageError::Connection(error)) => self.state.broken.push((connection, error)),
            Ok(Asked::Other) => self.turn_away(id, &response::response(404), 404),
            Ok(asked) if self.is_proved(connection, list) => self.identify(now, id, stream, asked),
            Ok(asked) => self.refuse_stranger(now, id, connection, &asked),
        }
    }

    /// Nobody with a valid credential: every answer is as short as any web server's.
    pub(super) fn refuse_stranger(
        &mut self,
        now: Instant,
        id: RequestId,
        connection: ConnectionKey,
        asked: &Asked,
    ) {
        let (answer, status, shows_credential) = match asked {
            Asked::Connect { credential, .. } => {
                let answer = response::proxy_authentication_required();
                (answer, 407, *credential != Credential::None)
            }
            Asked::ConnectUdp(ConnectUdp { path, credential, .. })
            | Asked::ConnectIp(ConnectIp { path, credential, .. }) => match path {
                // The segment is a credential, and a wrong one is any wrong path of a web site.
                PathKind::Segment(_) => (response::response(404), 404, true),
                PathKind::WellKnown => (response::unauthorized(), 401, *credential != Credential::None),
            },
            // What services there are, strangers do not learn.
            Asked::Extended(asked) => (response::response(404), 404, asked.credential != Credential::None),
            Asked::Other => (response::response(404), 404, false),
        };
        self.turn_away(id, &answer, status);
        if shows_credential {
            self.count_wrong_credential(now, connection);
        }
    }

    /// The user is known: what it asks for is opened, or refused for another reason.
    pub(super) fn admit(&mut self, now: Instant, stream: RequestStream, id: RequestId, asked: Asked) {
        match asked {
            Asked::Connect { target, .. } => {
                self.admit_target(now, stream, id, Protocol::Tcp, target.ok(), Offers::default());
            }
            Asked::ConnectUdp(asked) if asked.bind => self.admit_bound(now, stream, id, &asked),
            Asked::ConnectUdp(asked) => {
                let splits = self.state.config.oversize == Oversize::Split;
                let offers = Offers {
                    split: asked.split.filter(|_| splits),
                    repair: asked.repair,
                };
                self.admit_target(now, stream, id, Protocol::Udp, asked.target.ok(), offers);
            }
            Asked::ConnectIp(asked) => self.admit_ip(now, stream, id, &asked),
            Asked::Extended(asked) if asked.protocol == listen::PROTOCOL => {
                self.admit_listener(now, stream, id, &asked);
            }
            Asked::Extended(asked) => self.admit_service(now, stream, id, &asked),
            Asked::Other => self.turn_away(id, &response::response(404), 404),
        }
    }

    /// A valid token has come over this connection: it gets a user's credit.
    pub(in crate::engine) fn recognise(&mut self, now: Instant, connection: ConnectionKey) {
        self.endpoint.authenticate(now, connection);
        if let Some(peer) = self.state.peer(connection) {
            peer.authenticated = true;
        }
    }

    /// The driver opens the target.
    fn admit_target(
        &mut self,
        now: Instant,
        stream: RequestStream,
        id: RequestId,
        protocol: Protocol,
        target: Option<Target>,
        offers: Offers,
    ) {
        let Some(target) = target else {
            return self.answer_and_end(id, &response::response(400));
        };
        if target.address().is_some_and(|address| address.is_unspecified()) {
            let mut answer = response::failure(ProxyError::DestinationIpProhibited);
            // It is the token check of a client, who may want another shard.
            if self.state.role.shard.count > 1 {
                self.state.role.shard.push_to(&mut answer);
            }
            return self.answer_and_end(id, &answer);
        }
        if self.state.draining {
            return self.answer_and_end(id, &response::failure(ProxyError::DestinationUnavailable));
        }
        let right = |rights: &Rights| match protocol {
            Protocol::Udp => rights.udp,
            Protocol::Tcp => rights.tcp,
        };
        if !self.take_user_session(id, stream.connection, right) {
            return;
        }
        if protocol == Protocol::Udp {
            self.reserve_session();
        }
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        request.kind = match protocol {
            Protocol::Udp => Kind::Udp(UdpSession::new(offers)),
            Protocol::Tcp => Kind::Tcp(TcpConnection::default()),
        };
        request.life = Life::Opening(stream);
        request.last_active = now;
        match protocol {
            Protocol::Udp => self.state.session_opened(id),
            Protocol::Tcp => self.state.role.list_tcp(id, request),
        }
        let reach = self.reach_of(stream.connection);
        self.state.actions.push_back(Action::Role(ServerAction::Open {
            request: id,
            protocol,
            target,
            reach,
        }));
    }

    /// The driver has opened the target.
    pub fn accept(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        let Life::Opening(stream) = request.life else {
            return;
        };
        request.life = Life::Open(stream);
        request.last_active = now;
        let accepted = request.kind.handler_mut().accept();
        let is_read_by_driver = request.is_read_by_driver();
        let repair = request.kind.repair().and_then(|repair| repair.offer());
        if let Some(offer) = repair {
            self.state.agree_on_repair(now, id, offer);
        }
        self.send_headers(id, &accepted);
        if is_read_by_driver {
            self.state.announce_body(id);
        }
        self.state.take_early(now, id, deliver);
    }

    pub(in crate::engine) fn turn_away(&mut self, id: RequestId, list: &HeaderList, status: u16) {
        *self.state.role.refused.entry(status.to_string()).or_default() += 1;
        self.answer_and_end(id, list);
    }

    pub(in crate::engine) fn answer_and_end(&mut self, id: RequestId, list: &HeaderList) {
        self.send_headers(id, list);
        self.end_for(id, Cause::Answered);
    }

    fn count_wrong_credential(&mut self, now: Instant, connection: ConnectionKey) {
        let Some(remote) = self.remote(connection) else {
            return;
        };
        let turned_away = ServerAction::TurnedAway { remote };
        self.state.actions.push_back(Action::Role(turned_away));
        let prefix_is_out = self.state.role.wrong_tokens.count(now, remote.ip());
        let Some(peer) = self.state.peer(connection) else {
            return;
        };
        // The next sweep closes it: a close at once would overtake the answers, and a client would not learn why.
        peer.wrong_tokens = if prefix_is_out {
            limits::WRONG_TOKENS_PER_CONNECTION
        } else {
            peer.wrong_tokens.saturating_add(1)
        };
    }
}
