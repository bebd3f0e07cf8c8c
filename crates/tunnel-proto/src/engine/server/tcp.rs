//! How long a server keeps TCP connections that move nothing, and which one gives its place to another: the driver moves the
//! bytes, says so every now and then, and knows how many places there are.

use std::time::Instant;

use masque::Code;

use super::Server;
use crate::engine::life::{Cause, Life};
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::{Engine, State, last_active};
use crate::limits;

impl Engine<Server> {
    /// Bytes of this TCP connection have moved since the driver last said so, within about
    /// [`SWEEP_INTERVAL`](limits::SWEEP_INTERVAL).
    pub fn tcp_moved(&mut self, now: Instant, id: RequestId) {
        if let Some(request) = self.state.requests.get_mut(id.0) {
            request.last_active = now;
        }
    }

    /// The driver has no place for this request to open a TCP connection: the one that gives up its own, which the driver
    /// has to end ([`Engine::end`]); `None` where the request has to be refused.
    ///
    /// The user who has most gives its idlest, so that nobody is kept out by others. Where that is who asks, only what is
    /// idle for [`TCP_YIELD_IDLE`](limits::TCP_YIELD_IDLE) goes.
    pub fn yielding_tcp(&mut self, now: Instant, asks: RequestId) -> Option<RequestId> {
        let State { role, requests, .. } = &mut self.state;
        let holder = requests.get(asks.0)?.holder();
        loop {
            let active = |id| last_active(requests, id);
            let id = role.tcp.yielding(now, holder, limits::TCP_YIELD_IDLE, active)?;
            if !matches!(requests[id.0].life, Life::Closing(_)) {
                return Some(id);
            }
            // The driver is done with it: it has no place.
            role.tcp.remove(id);
        }
    }

    /// Resets connections that have moved nothing for long: their clients hold places that others want.
    pub(super) fn end_idle_tcp(&mut self, now: Instant) {
        for id in self.state.idle_tcp(now) {
            self.end_for(id, Cause::Reset(Code::ConnectError));
        }
    }
}

impl Server {
    /// A TCP connection has a place, or asks for one.
    pub(in crate::engine) fn list_tcp(&mut self, id: RequestId, request: &Request) {
        self.tcp.add(id, request.holder(), request.last_active);
    }
}

impl State<Server> {
    fn idle_tcp(&self, now: Instant) -> Vec<RequestId> {
        let idle_timeout = self.config.tcp_idle_timeout;
        let is_over = |request: &Request| {
            matches!((&request.kind, &request.life), (Kind::Tcp(_), Life::Open(_)))
                && now.saturating_duration_since(request.last_active) >= idle_timeout
        };
        let over = self.requests.iter().filter(|(_, request)| is_over(request));
        // One that waits for a connection at a listener holds nobody's place.
        let listed = over.filter(|(id, _)| self.role.tcp.contains(RequestId(*id)));
        listed.map(|(id, _)| RequestId(id)).collect()
    }
}
