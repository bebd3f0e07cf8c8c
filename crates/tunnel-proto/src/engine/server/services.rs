//! A server's services: which there are, and who gets one.

use std::time::Instant;

use masque::request::Extended;
use masque::response::{self, ProxyError};

use super::Server;
use crate::engine::life::{Life, RequestStream};
use crate::engine::request::{Kind, RequestId};
use crate::engine::service::{ServiceProvider, ServiceRequest, ServiceSession};
use crate::engine::{Deliver, Engine};

impl Engine<Server> {
    /// Serves requests with this `:protocol` from here on. Strangers are answered as if there were no such service.
    pub fn serve(&mut self, protocol: &str, provider: Box<dyn ServiceProvider>) {
        self.state.role.services.insert(protocol.to_owned(), provider);
    }

    /// A request that was open at once: what overtook it goes on.
    pub(super) fn take_early_of_open(&mut self, now: Instant, id: RequestId, deliver: &mut impl Deliver) {
        let request = self.state.requests.get(id.0);
        if request.is_some_and(|request| matches!(request.life, Life::Open(_))) {
            self.state.take_early(now, id, deliver);
        }
    }

    /// A user asks for a service.
    pub(super) fn admit_service(
        &mut self,
        now: Instant,
        stream: RequestStream,
        id: RequestId,
        asked: &Extended,
    ) {
        if self.state.draining {
            return self.answer_and_end(id, &response::failure(ProxyError::DestinationUnavailable));
        }
        if !self.take_user_session(id, stream.connection, |rights| rights.services) {
            return;
        }
        let (Some(user), Some(remote)) = (self.user_of(stream.connection), self.remote(stream.connection))
        else {
            return;
        };
        let exporter = self.exporter_of(stream.connection);
        let Some(provider) = self.state.role.services.get_mut(&asked.protocol) else {
            return self.turn_away(id, &response::response(404), 404);
        };
        let path = &asked.path;
        let asked = ServiceRequest {
            id,
            user,
            connection: stream.connection,
            path,
            remote,
            exporter,
        };
        let service = match provider.open(now, &asked) {
            Ok(service) => service,
            Err(refusal) => return self.answer_and_end(id, &response::response(refusal.status())),
        };
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        request.kind = Kind::Service(Box::new(ServiceSession::new(service)));
        request.life = Life::Open(stream);
        request.last_active = now;
        let accepted = request.kind.handler_mut().accept();
        self.send_headers(id, &accepted);
        self.open_service_stream(now, id);
    }
}
