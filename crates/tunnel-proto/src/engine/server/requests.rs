//! A server's judgement of requests: who asks, for what, and how it is answered.
//!
//! Without a valid token every answer is as short as any web server's: 404, 401 or 407, with no content.

use std::time::Instant;

use masque::request::{self as request_headers, ConnectUdp, Credential, PathKind, Request as Asked};
use masque::response::{self, ProxyError};
use masque::{HeaderList, MessageError, Target};
use quic::ConnectionKey;

use super::Server;
use crate::config::{Oversize, Protocol};
use crate::engine::life::{Cause, Life, RequestStream};
use crate::engine::request::{Kind, Offers, RequestId};
use crate::engine::{Action, Deliver, Engine, ServerAction};
use crate::limits;
use crate::secret::Token;

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
            Ok(Asked::Connect { target, credential }) => {
                if self.holds_token(&credential) {
                    self.admit(now, stream, id, Protocol::Tcp, target.ok(), Offers::default());
                } else {
                    self.turn_away(id, &response::proxy_authentication_required(), 407);
                    self.count_wrong_token(now, connection, &credential);
                }
            }
            Ok(Asked::ConnectUdp(asked)) => self.judge_connect_udp(now, stream, id, asked),
            Ok(Asked::ConnectIp(asked)) => self.judge_connect_ip(now, stream, id, &asked),
        }
    }

    fn judge_connect_udp(&mut self, now: Instant, stream: RequestStream, id: RequestId, asked: ConnectUdp) {
        match &asked.path {
            PathKind::Segment(segment) => {
                // A wrong segment is any wrong path of a web site.
                if !self.has_path_segment(segment) {
                    return self.turn_away(id, &response::response(404), 404);
                }
            }
            PathKind::WellKnown => {
                if !self.holds_token(&asked.credential) {
                    self.turn_away(id, &response::unauthorized(), 401);
                    return self.count_wrong_token(now, stream.connection, &asked.credential);
                }
            }
        }
        let offers = Offers {
            split: asked
                .split
                .filter(|_| self.state.config.oversize == Oversize::Split),
            repair: asked.repair,
        };
        self.admit(now, stream, id, Protocol::Udp, asked.target.ok(), offers);
    }

    pub(in crate::engine) fn has_path_segment(&self, segment: &str) -> bool {
        any(&self.state.role.tokens, |token| {
            token.matches_path_segment(segment)
        })
    }

    pub(in crate::engine) fn holds_token(&self, credential: &Credential) -> bool {
        match credential {
            Credential::Bearer(text) => any(&self.state.role.tokens, |token| token.matches(text)),
            Credential::None | Credential::Malformed => false,
        }
    }

    /// A valid token has come over this connection: it gets a user's credit.
    pub(in crate::engine) fn recognise(&mut self, connection: ConnectionKey) {
        self.endpoint.authenticate(connection);
        if let Some(peer) = self.state.peer(connection) {
            peer.authenticated = true;
        }
    }

    /// The user is known: the driver opens the target.
    fn admit(
        &mut self,
        now: Instant,
        stream: RequestStream,
        id: RequestId,
        protocol: Protocol,
        target: Option<Target>,
        offers: Offers,
    ) {
        self.recognise(stream.connection);
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
        if protocol == Protocol::Udp {
            self.reserve_session();
        }
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        request.kind = match protocol {
            Protocol::Udp => Kind::udp(offers, false),
            Protocol::Tcp => Kind::Tcp,
        };
        request.life = Life::Opening(stream);
        request.last_active = now;
        if protocol == Protocol::Udp {
            self.state.session_opened(id);
        }
        self.state.actions.push_back(Action::Role(ServerAction::Open {
            request: id,
            protocol,
            target,
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
        match &mut request.kind {
            Kind::Udp { split, repair, .. } => {
                let mut accepted = response::connect_udp_accepted(split.accept());
                // REPAIR-2
                if let Some(offer) = repair.offer() {
                    offer.push_to(&mut accepted);
                    self.state.agree_on_repair(now, id, offer);
                }
                self.send_headers(id, &accepted);
                self.state.take_early(now, id, deliver);
            }
            Kind::Tcp | Kind::Ip(_) | Kind::Undecided => {
                self.send_headers(id, &response::response(200));
                self.state.announce_body(id);
            }
        }
    }

    pub(in crate::engine) fn turn_away(&mut self, id: RequestId, list: &HeaderList, status: u16) {
        *self.state.role.refused.entry(status.to_string()).or_default() += 1;
        self.answer_and_end(id, list);
    }

    pub(in crate::engine) fn answer_and_end(&mut self, id: RequestId, list: &HeaderList) {
        self.send_headers(id, list);
        self.end_for(id, Cause::Answered);
    }

    pub(in crate::engine) fn count_wrong_token(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        credential: &Credential,
    ) {
        if *credential == Credential::None {
            return;
        }
        let Some(remote) = self.remote(connection) else {
            return;
        };
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

/// Looks at every token, so that the time does not tell which one matched.
fn any(tokens: &[Token], matches: impl Fn(&Token) -> bool) -> bool {
    tokens.iter().fold(false, |found, token| found | matches(token))
}
