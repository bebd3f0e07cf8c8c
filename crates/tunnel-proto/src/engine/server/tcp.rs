//! How long a server keeps TCP connections that move nothing: the driver moves the bytes, and says so every now and then.

use std::time::Instant;

use masque::Code;

use super::Server;
use crate::engine::life::{Cause, Life};
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Engine, State};

impl Engine<Server> {
    /// Bytes of this TCP connection have moved since the driver last said so, within about
    /// [`SWEEP_INTERVAL`](crate::limits::SWEEP_INTERVAL).
    pub fn tcp_moved(&mut self, now: Instant, id: RequestId) {
        if let Some(request) = self.state.requests.get_mut(id.0) {
            request.last_active = now;
        }
    }

    /// Resets connections that have moved nothing for long: their clients hold places that others want.
    pub(super) fn end_idle_tcp(&mut self, now: Instant) {
        for id in self.state.idle_tcp(now) {
            self.end_for(id, Cause::Reset(Code::ConnectError));
        }
    }
}

impl State<Server> {
    fn idle_tcp(&self, now: Instant) -> Vec<RequestId> {
        let idle_timeout = self.config.tcp_idle_timeout;
        let is_over = |request: &Request| {
            matches!((&request.kind, &request.life), (Kind::Tcp(_), Life::Open(_)))
                && now.saturating_duration_since(request.last_active) >= idle_timeout
        };
        let requests = self.requests.iter();
        let over = requests.filter(|(_, request)| is_over(request));
        over.map(|(id, _)| RequestId(id)).collect()
    }
}
