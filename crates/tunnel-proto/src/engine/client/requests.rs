//! A client's requests: sent as soon as the server's SETTINGS are known (RFC 9297 section 2.1.1, RFC 8441 section 3),
//! the token checked first.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use masque::request as request_headers;
use masque::response;
use masque::{Code, HeaderList, ServerShard, Target};
use quic::{ClientParameters, CloseReason, ConnectError, ConnectionKey, Direction};

use super::Client;
use crate::config::{Oversize, Protocol};
use crate::drops::DropReason;
use crate::engine::request::{Kind, Offers, Phase, Request, RequestId};
use crate::engine::role::Side;
use crate::engine::{Action, ClientAction, Deliver, Ending, Engine, masque_code, payload_unsplit, quarter};
use crate::limits;

/// Context that a client offers for split payloads: clients take even numbers (RFC 9298 section 4).
const SPLIT_CONTEXT: u64 = 2;

/// The token check asks for a target that every server refuses after it has looked at the token: the answer is 401
/// for a wrong one, and anything else for a good one.
const PROBE_HOST: &str = "0.0.0.0";
const PROBE_PORT: u16 = 9;

impl Engine<Client> {
    /// Begins a connection; [`Action::Up`], [`Action::TokenRefused`] or [`Action::Lost`] follows.
    ///
    /// # Errors
    /// [`ConnectError`] where the name or the address cannot be used.
    pub fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        server_name: &str,
        pin: [u8; 32],
        udp_payload_ceiling: u16,
    ) -> Result<(), ConnectError> {
        let parameters = ClientParameters { pin };
        let key = self
            .endpoint
            .connect(now, remote, server_name, &parameters, udp_payload_ceiling)?;
        self.state.role.current = Some(key);
        self.state.role.holds_requests = self.state.role.asks_to_stay;
        self.state.role.authority = format!("{}:{}", bracketed(server_name), remote.port());
        Ok(())
    }

    /// Gives up the present connection, e.g. an attempt that takes too long; [`Action::Lost`] follows.
    pub fn disconnect(&mut self, now: Instant) {
        if let Some(connection) = self.state.role.current {
            self.endpoint.close(now, connection, 0x100, b"");
        }
    }

    /// A new session or connection through the tunnel. It waits where the tunnel is not up.
    pub fn open(&mut self, now: Instant, protocol: Protocol, target: Target) -> RequestId {
        if protocol == Protocol::Udp {
            self.reserve_session();
        }
        let kind = match protocol {
            Protocol::Udp => Kind::udp(self.offers(), false),
            Protocol::Tcp => Kind::Tcp,
        };
        let mut request = Request::new(Client::HTTP, kind, Phase::Queued, now);
        request.target = Some(target);
        request.known_to_driver = true;
        let id = self.state.insert_request(request);
        if let Some(connection) = self
            .state
            .role
            .current
            .filter(|_| !self.state.role.holds_requests)
        {
            self.send_request(now, connection, id);
        }
        id
    }

    /// The server may have forgotten the connection: asks it for a sign of life, to which it answers with a reset then.
    pub fn probe(&mut self) {
        if let Some(connection) = self.state.role.current {
            self.endpoint.local_address_changed(connection);
        }
    }

    /// After [`Action::Up`] of one of several shards: the connection stays, and what waits may go out on it.
    pub fn stay(&mut self, now: Instant) {
        self.state.role.holds_requests = false;
        if let Some(connection) = self.state.role.current {
            self.send_queued_requests(now, connection);
        }
    }

    fn offers(&self) -> Offers {
        Offers {
            split: (self.state.config.oversize == Oversize::Split).then_some(SPLIT_CONTEXT),
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
            self.endpoint
                .close(now, connection, masque_code(Code::NoError), b"");
            self.state.role.current = None;
            let reason = CloseReason::Protocol("it does not offer CONNECT-UDP with datagrams".to_owned());
            return self
                .state
                .actions
                .push_back(Action::Role(ClientAction::Lost { reason }));
        }
        let mut probe = Request::new(
            Client::HTTP,
            Kind::udp(Offers::default(), true),
            Phase::Queued,
            now,
        );
        probe.target = Some(Target::new(PROBE_HOST, PROBE_PORT).expect("the probe's target is well-formed"));
        let id = self.state.insert_request(probe);
        self.send_request(now, connection, id);
        // One of several stripes asks when its siblings let it: `ask_for_ip`.
        if !self.state.role.holds_requests {
            self.open_ip(now);
        }
        self.send_queued_requests(now, connection);
    }

    /// Sends what waits, while the server allows more streams.
    pub(in crate::engine) fn send_queued_requests(&mut self, now: Instant, connection: ConnectionKey) {
        if self.state.role.current != Some(connection) || self.state.role.holds_requests {
            return;
        }
        let queued: Vec<usize> = self
            .state
            .requests
            .iter()
            .filter(|(_, request)| request.phase == Phase::Queued)
            .map(|(id, _)| id)
            .collect();
        for id in queued {
            if !self.send_request(now, connection, RequestId(id)) {
                return;
            }
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
        let Some(takes_connect_udp) = peer.takes_connect_udp() else {
            return false;
        };
        let ip_request = self.state.ip_request(&self.state.role.authority, id);
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return true;
        };
        let target = || request.target.clone().expect("a forward's request has a target");
        let list = match (&request.kind, ip_request) {
            (_, Some(list)) => list,
            (Kind::Udp { .. }, None) if !takes_connect_udp => {
                self.state.end(
                    id,
                    Ending::Refused {
                        status: 501,
                        error: None,
                    },
                );
                return true;
            }
            (Kind::Udp { split, repair, .. }, None) => {
                let bearer = &self.state.role.bearer;
                let mut list =
                    request_headers::connect_udp(&self.state.role.authority, &target(), bearer, *split);
                if let Some(offer) = repair.offer() {
                    offer.push_to(&mut list);
                }
                list
            }
            (Kind::Tcp | Kind::Ip(_) | Kind::Undecided, None) => {
                request_headers::connect(&target(), &self.state.role.bearer)
            }
        };
        let Some(stream) = self.endpoint.open_stream(connection, Direction::Bidirectional) else {
            return false;
        };
        request.connection = Some(connection);
        request.stream = Some(stream);
        request.phase = Phase::Sent;
        request.last_active = now;
        if let Some(peer) = self.state.peer(connection) {
            peer.requests.insert(quarter(stream), id);
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
        let Some(connection) = request.connection else {
            return;
        };
        if request.phase != Phase::Sent {
            return;
        }
        // The reader has checked it already.
        let status = response::status_of(list).unwrap_or(500);
        let is_refused_token = matches!(status, 401 | 407);
        if matches!(request.kind, Kind::Udp { is_probe: true, .. }) {
            self.close_stream(id);
            self.state.end(id, Ending::Finished);
            if is_refused_token {
                self.state
                    .actions
                    .push_back(Action::Role(ClientAction::TokenRefused { status }));
            } else if let Some(report) = self.endpoint.report(connection) {
                if let Some(peer) = self.state.peer(connection) {
                    peer.authenticated = true;
                }
                self.state.actions.push_back(Action::Role(ClientAction::Up {
                    rtt: report.rtt,
                    shard: ServerShard::of(list),
                }));
            }
            return;
        }
        if !(200..300).contains(&status) {
            return self.refused(now, id, status, response::proxy_error_of(list));
        }
        request.phase = Phase::Open;
        request.last_active = now;
        if let Kind::Udp {
            split, split_agreed, ..
        } = &mut request.kind
        {
            *split = split.filter(|offered| request_headers::split_context(list) == Some(*offered));
            *split_agreed = split.is_some();
        }
        self.state.repair_answered(now, id, list);
        let Some(request) = self.state.requests.get(id.0) else {
            return;
        };
        if matches!(request.kind, Kind::Ip(_)) {
            self.ip_accepted(id, list);
        } else {
            self.state
                .actions
                .push_back(Action::Role(ClientAction::Established { request: id }));
        }
        self.state.take_early(now, id, deliver);
    }

    fn refused(&mut self, now: Instant, id: RequestId, status: u16, error: Option<response::ProxyError>) {
        if matches!(status, 401 | 407) {
            self.state
                .actions
                .push_back(Action::Role(ClientAction::TokenRefused { status }));
        }
        self.close_stream(id);
        let Some(request) = self.state.requests.get_mut(id.0) else {
            return;
        };
        if matches!(request.kind, Kind::Ip(_)) {
            self.state
                .actions
                .push_back(Action::Role(ClientAction::IpRefused { status, error }));
        }
        if !request.is_udp() {
            return self.state.end(id, Ending::Refused { status, error });
        }
        request.phase = Phase::Refused {
            until: now + limits::REFUSED_HOLD,
        };
        self.state.actions.push_back(Action::Role(ClientAction::Refused {
            request: id,
            status,
            error,
        }));
        let lost = self.state.waiting.take(id).len() as u64;
        self.state.ledger.ingress.drop(DropReason::SessionClosed, lost);
    }

    /// Largest UDP payload that travels in one datagram at present; `None` while not connected.
    pub fn payload_unsplit(&mut self) -> Option<usize> {
        self.endpoint
            .datagram_max(self.state.role.current?)
            .map(payload_unsplit)
    }

    /// Whether a request waits for the tunnel.
    #[must_use]
    pub fn is_queued(&self, id: RequestId) -> bool {
        self.state
            .requests
            .get(id.0)
            .is_some_and(|request| request.phase == Phase::Queued)
    }

    /// Smoothed round-trip time; `None` while not connected.
    pub fn round_trip(&mut self) -> Option<Duration> {
        self.endpoint
            .report(self.state.role.current?)
            .map(|report| report.rtt)
    }
}

/// A host as it stands in an authority: IPv6 addresses in brackets.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}
