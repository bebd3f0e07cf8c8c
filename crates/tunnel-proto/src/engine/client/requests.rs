//! A client's requests: sent as soon as the server's SETTINGS are known (RFC 9297 section 2.1.1, RFC 8441 section 3),
//! the token checked first.

use std::net::IpAddr;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::{Duration, Instant};

use masque::binding::Binding;
use masque::response;
use masque::{HeaderList, Target};
use quic::{ConnectionKey, Direction};

use super::Client;
use super::token_check::TokenCheck;
use crate::client::{Carried, PathActivity};
use crate::config::{Oversize, Protocol};
use crate::drops::DropReason;
use crate::engine::body::TcpConnection;
use crate::engine::handler::Asker;
use crate::engine::life::{Cause, Life, RequestStream};
use crate::engine::request::{Kind, Request, RequestId};
use crate::engine::role::Side;
use crate::engine::service::{Service, ServiceSession};
use crate::engine::udp::{Offers, UdpSession};
use crate::engine::{Action, ClientAction, Deliver, Engine, last_active};
use crate::limits;

impl Engine<Client> {
    /// A new UDP session of a machine through the tunnel. It waits where the tunnel is not up. Beyond
    /// [`UDP_SESSIONS_MAX`](limits::UDP_SESSIONS_MAX) the machine that has most loses its idlest one.
    pub fn open_session(&mut self, now: Instant, machine: IpAddr, target: Target) -> RequestId {
        self.reserve_session();
        let kind = Kind::Udp(UdpSession::new(self.offers()));
        let request = Request::new(Client::HTTP, kind, Life::Queued(Some(target)), now);
        let machine = Some(machine);
        self.open_request(now, Request { machine, ..request })
    }

    /// A new session of nobody in particular, or a connection through the tunnel. It waits where the tunnel is not up.
    pub fn open(&mut self, now: Instant, protocol: Protocol, target: Target) -> RequestId {
        if protocol == Protocol::Udp {
            self.reserve_session();
        }
        let kind = match protocol {
            Protocol::Udp => Kind::Udp(UdpSession::new(self.offers())),
            Protocol::Tcp => Kind::Tcp(TcpConnection::default()),
        };
        self.open_kind(now, kind, Some(target))
    }

    pub(in crate::engine) fn open_kind(
        &mut self,
        now: Instant,
        kind: Kind,
        target: Option<Target>,
    ) -> RequestId {
        self.open_request(now, Request::new(Client::HTTP, kind, Life::Queued(target), now))
    }

    fn open_request(&mut self, now: Instant, request: Request) -> RequestId {
        let id = self.state.insert_request(request);
        if let Some(connection) = self.state.role.taking_requests() {
            self.send_request(now, connection, id);
        }
        id
    }

    /// A request for a service of the server: `protocol` and `path` name it there. It waits where the tunnel is not up;
    /// [`ClientAction::Established`] tells of its begin, [`Action::Ended`] of its end.
    pub fn open_service(
        &mut self,
        now: Instant,
        protocol: &str,
        path: &str,
        service: Box<dyn Service>,
    ) -> RequestId {
        let session = ServiceSession::asking(service, protocol, path);
        self.open_kind(now, Kind::Service(Box::new(session)), None)
    }

    pub(in crate::engine) fn offers(&self) -> Offers {
        Offers {
            split: (self.state.config.oversize == Oversize::Split).then_some(masque::split::CONTEXT_ID),
            repair: self.state.repair_offer(),
        }
    }

    /// The server's SETTINGS have come: the token check goes first, then everything that waits.
    pub(in crate::engine) fn begin_session(&mut self, now: Instant, connection: ConnectionKey) {
        if self.state.role.current != Some(connection) {
            return;
        }
        let takes_connect_udp = self
            .state
            .peer(connection)
            .and_then(|peer| peer.takes_connect_udp());
        if takes_connect_udp == Some(false) {
            return self.give_up(now, connection, "it does not offer CONNECT-UDP with datagrams");
        }
        let kind = Kind::TokenCheck(TokenCheck);
        let check = Request::new(Client::HTTP, kind, Life::Queued(None), now);
        let id = self.state.insert_request(check);
        self.send_request(now, connection, id);
        // One of several stripes asks when its siblings let it: `ask_for_ip`.
        if !self.state.role.holds_requests {
            self.open_ip(now);
        }
        self.send_queued_requests(now, connection);
    }

    /// Sends what waits, while the server allows more streams.
    pub(in crate::engine) fn send_queued_requests(&mut self, now: Instant, connection: ConnectionKey) {
        if self.state.role.taking_requests() != Some(connection) {
            return;
        }
        let mut next = self.state.queued.first().copied();
        while let Some(id) = next
            && self.send_request(now, connection, id)
        {
            next = self.state.queued.range((Excluded(id), Unbounded)).next().copied();
        }
    }

    /// Whether the request has left, or was refused for good.
    pub(in crate::engine) fn send_request(
        &mut self,
        now: Instant,
        connection: ConnectionKey,
        id: RequestId,
    ) -> bool {
        let datagram_max = self.endpoint.datagram_max(connection).unwrap_or(0);
        let Some(peer) = self.state.peer(connection) else {
            return false;
        };
        peer.datagram_max = datagram_max;
        // Streams overtake each other: until an answer has come, any request may be the first (QR1-17).
        let is_known = peer.authenticated;
        let Some(takes_connect_udp) = peer.takes_connect_udp() else {
            return false;
        };
        let role = &self.state.role;
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return true;
        };
        let Life::Queued(target) = &request.life else {
            return true;
        };
        let target = target.clone();
        let handler = request.kind.handler();
        if handler.needs_datagrams() && !takes_connect_udp {
            let cause = Cause::Refused {
                status: 501,
                error: None,
            };
            self.end_for(id, cause);
            return true;
        }
        let asker = Asker {
            authority: role.authority(connection),
            bearer: &role.bearer,
            target: target.as_ref(),
        };
        let Some(mut list) = handler.ask(&asker) else {
            return true;
        };
        if !is_known && let Some(binding) = self.endpoint.channel_binding(connection) {
            Binding(binding).push_to(&mut list);
        }
        let Some(stream) = self.endpoint.open_stream(connection, Direction::Bidirectional) else {
            return false;
        };
        let stream = RequestStream {
            connection,
            id: stream,
        };
        request.life = Life::Sent(stream);
        request.target = target;
        request.last_active = now;
        self.state.queued.remove(&id);
        if let Some(peer) = self.state.peer(connection) {
            peer.requests.insert(stream.quarter(), id);
        }
        self.send_headers(id, &list);
        self.send_waiting(now, id);
        true
    }

    /// The response to a request has come.
    pub(in crate::engine) fn answered(
        &mut self,
        now: Instant,
        id: RequestId,
        list: &HeaderList,
        deliver: &mut impl Deliver,
    ) {
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        let Life::Sent(stream) = request.life else {
            return;
        };
        if matches!(request.kind, Kind::TokenCheck(_)) {
            self.end_for(id, Cause::Finished);
            return self.token_checked(now, stream.connection, list);
        }
        // The reader has checked it already.
        let status = response::status_of(list).unwrap_or(500);
        if !(200..300).contains(&status) {
            return self.refused(now, id, stream, status, response::proxy_error_of(list));
        }
        request.life = Life::Open(stream);
        request.last_active = now;
        request.kind.handler_mut().accepted(list, &mut request.output);
        if request.kind.handler().is_of_driver() {
            let established = ClientAction::Established { request: id };
            self.state.actions.push_back(Action::Role(established));
        }
        if !request.is_udp() {
            request.target = None;
        }
        self.state.repair_answered(now, id, list);
        let id = self.complete_move(now, id);
        self.pump(id);
        self.open_service_stream(now, id);
        self.state.take_early(now, id, deliver);
        self.move_session(now, id);
    }

    fn refused(
        &mut self,
        now: Instant,
        id: RequestId,
        stream: RequestStream,
        status: u16,
        error: Option<response::ProxyError>,
    ) {
        if matches!(status, 401 | 407) {
            self.state
                .actions
                .push_back(Action::Role(ClientAction::TokenRefused { status }));
        }
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        if let Some(refusal) = request.kind.handler().refusal(status, error) {
            self.state.actions.push_back(Action::Role(refusal));
        }
        if !request.is_udp() {
            return self.end_for(id, Cause::Refused { status, error });
        }
        let until = now + limits::REFUSED_HOLD;
        request.life = Life::Refused { stream, until };
        self.close_stream(id);
        self.state.actions.push_back(Action::Role(ClientAction::Refused {
            request: id,
            status,
            error,
        }));
        let lost = self.state.waiting.take(id).len() as u64;
        self.state.ledger.ingress.drop(DropReason::SessionClosed, lost);
    }

    /// The present path MTU in bytes of UDP payload; `None` while not connected.
    pub fn path_mtu(&mut self) -> Option<u16> {
        let report = self.endpoint.report(self.state.role.current?)?;
        Some(report.path_mtu)
    }

    /// Whether a request waits for the tunnel.
    #[must_use]
    pub fn is_queued(&self, id: RequestId) -> bool {
        self.state
            .requests
            .get(id.0)
            .is_some_and(|request| matches!(request.life, Life::Queued(_)))
    }

    /// When a request was active; `None` where it has ended.
    #[must_use]
    pub fn last_active(&self, id: RequestId) -> Option<Instant> {
        last_active(&self.state.requests, id)
    }

    /// Smoothed round-trip time; `None` while not connected.
    pub fn round_trip(&mut self) -> Option<Duration> {
        self.endpoint
            .report(self.state.role.current?)
            .map(|report| report.rtt)
    }

    /// What the connection knows of its path; `None` while not connected.
    pub fn path_activity(&mut self) -> Option<PathActivity> {
        let report = self.endpoint.report(self.state.role.current?)?;
        Some(PathActivity {
            acknowledgements: report.acknowledgements,
            is_awaited: report.in_flight > 0,
            round_trip: report.rtt,
            bytes_received: report.counters.bytes_received,
        })
    }

    /// What the connection has carried; `None` while not connected. To be asked every [`limits::CARRIER_WATCH_INTERVAL`].
    pub fn carried(&mut self, now: Instant) -> Option<Carried> {
        let connection = self.state.role.current?;
        let report = self.endpoint.report(connection)?;
        let down = self.state.role.server_held_back;
        let is_fresh = |(said, _): &(Instant, _)| now.duration_since(*said) < limits::HELD_BACK_FRESH;
        let up = self.state.peer(connection)?.meter.take(&report);
        Some(Carried {
            bytes_sent: report.counters.bytes_sent,
            bytes_received: report.counters.bytes_received,
            packets_sent: report.counters.packets_sent,
            packets_lost: report.counters.packets_lost,
            up,
            down: down.filter(is_fresh).map(|(_, held_back)| held_back),
        })
    }

    /// The connection goes on over another path, of which nothing is known ([`quic::Endpoint::path_changed`]).
    pub fn path_changed(&mut self, now: Instant) {
        if let Some(connection) = self.state.role.current {
            self.state.role.server_held_back = None;
            self.endpoint.path_changed(now, connection);
        }
    }
}
