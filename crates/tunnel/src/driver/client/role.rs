//! The event loop's turns, events and packets as a client treats them.

use std::time::Instant;

use packet::CarrierKind;
use packet_io::{UdpSocket, VNET_HEADER_BYTES};
use tunnel_proto::{AttemptId, ClientAction, Ending, NotOpened, RequestId};

use super::tun::ClientHost;
use super::{Client, ClientInner, ClientMessage, ClientSource};
use crate::driver::resolver::Answer;
use crate::driver::role::Role;
use crate::driver::sources::SourceId;
use crate::driver::{Inner, Shard};
use crate::snapshot::{CarrierSnapshot, ShardSnapshot, Snapshot, StripeSnapshot};

impl Role for Client {
    type Proto = tunnel_proto::Client;
    type Action = ClientAction;
    type Inner = ClientInner;
    type Source = ClientSource;
    type Message = ClientMessage;

    const NAME: &'static str = "client";

    fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.ip {
            Some(_) => self.next_tick.min(self.next_ip_turn),
            None => self.next_tick,
        };
        let due = [
            self.reconnection.poll_timeout(),
            self.moved.poll_timeout(),
            self.resting.poll_timeout(),
        ];
        let next = next.min(self.next_path_watch).min(self.next_carrier_watch);
        due.into_iter().flatten().chain([next]).min()
    }

    fn state_name(&self) -> &'static str {
        self.reconnection.state_name()
    }

    fn turn(shard: &mut Shard<Self>, now: Instant) {
        shard.client_turn(now);
    }

    /// Whoever is none of its servers is nobody.
    fn take_strangers(shard: &mut Shard<Self>, _: Instant) {
        shard.delivery.strangers.clear();
    }

    fn source_ready(shard: &mut Shard<Self>, now: Instant, id: SourceId) {
        match shard.sources.get(id) {
            Some(ClientSource::UdpListener(_)) => shard.receive_at_listener(now, id),
            Some(ClientSource::TcpListener(_)) => shard.accept_tcp(now, id),
            Some(ClientSource::Negotiating(_)) => shard.negotiation_ready(now, id),
            Some(ClientSource::Farewell(_)) => shard.farewell_ready(id),
            Some(ClientSource::DatagramRelay(_)) => shard.receive_at_relay(now, id),
            Some(ClientSource::Control(_)) => shard.control_ready(id),
            Some(ClientSource::TransparentListener(_)) => shard.receive_transparent(now, id),
            // Nothing is watched.
            Some(ClientSource::AnswerSocket(_)) => {}
            Some(ClientSource::Monitor(_)) => shard.uplink_news(now, id),
            None => {}
        }
    }

    fn source_due(shard: &mut Shard<Self>, now: Instant, id: SourceId) {
        match shard.sources.get(id) {
            Some(ClientSource::TcpListener(_)) => shard.resume_accepting(now, id),
            Some(ClientSource::Negotiating(_)) => {
                shard.end_negotiation(now, id, Some(NotOpened::TooLate));
            }
            Some(ClientSource::Farewell(_)) => shard.end_farewell(id),
            Some(
                ClientSource::UdpListener(_)
                | ClientSource::DatagramRelay(_)
                | ClientSource::Control(_)
                | ClientSource::TransparentListener(_)
                | ClientSource::AnswerSocket(_)
                | ClientSource::Monitor(_),
            )
            | None => {}
        }
    }

    fn carry_out(shard: &mut Shard<Self>, now: Instant, action: ClientAction) {
        match action {
            ClientAction::Established { request } => {
                if !shard.port_is_open(request) {
                    shard.established(request);
                }
            }
            ClientAction::Refused {
                request,
                status,
                error,
            } => shard.session_refused(now, request, status, error),
            ClientAction::Connected { attempt } => shard.attempt_connected(now, attempt),
            ClientAction::Redirected { attempt } => shard.redirected(now, attempt),
            ClientAction::Up { rtt, shard: at } => shard.tunnel_is_up(now, rtt, at),
            ClientAction::TokenRefused { status } => shard.token_refused(status),
            ClientAction::Lost { attempt, reason } => shard.tunnel_lost(now, attempt, &reason),
            ClientAction::GoingAway => shard.server_goes_away(now),
            ClientAction::Done { attempt } => shard.abandon(now, attempt),
            ClientAction::Assigned { assignment } => shard.assigned(now, assignment),
            ClientAction::IpRefused { status, error } => shard.ip_refused(now, status, error),
            ClientAction::IpLost => shard.ip_lost(now),
            // Peers have bound sockets, a tunnel has none.
            ClientAction::ContextOpen { .. } | ClientAction::ContextClosed { .. } => {}
        }
    }

    fn resolved(shard: &mut Shard<Self>, now: Instant, answer: Answer) {
        if !shard.remote_target_resolved(now, &answer) {
            shard.server_resolved(now, &answer);
        }
    }

    fn handed_over(shard: &mut Shard<Self>, now: Instant, message: ClientMessage) {
        match message {
            ClientMessage::Datagrams {
                listener,
                source,
                bytes,
                segment_size,
            } => shard.take_in_for_sibling(now, listener, source, &bytes, segment_size),
            ClientMessage::TransparentDatagrams {
                listener,
                flow,
                bytes,
                segment_size,
            } => shard.take_in_transparent(now, listener, flow, &bytes, segment_size),
            ClientMessage::Connection(connection) => shard.take_over(now, *connection),
            ClientMessage::Association(association) => shard.take_over_association(*association),
            ClientMessage::Probe => {
                shard.engine.probe();
                shard.ask_for_ports(now);
            }
        }
    }

    /// What the host's thread has done is looked at in this turn.
    fn woken(shard: &mut Shard<Self>, now: Instant) {
        let client = &mut shard.role;
        if client.ip.as_ref().is_some_and(ClientHost::take_done) {
            client.next_ip_turn = now;
        }
    }

    /// A local address has no descriptor of its own, and a connection without its target is watched for hang-ups.
    fn inner_ready(shard: &mut Shard<Self>, now: Instant, id: RequestId) {
        match shard.inner.get(id.index()) {
            Some(Some(Inner::Role(ClientInner::Opening(_)))) => shard.give_up_opening(id),
            Some(Some(Inner::Role(ClientInner::Reaching(_)))) => shard.reaching_ready(now, id),
            _ => {}
        }
    }

    fn content_came(shard: &mut Shard<Self>, now: Instant, id: RequestId) {
        shard.port_has_news(now, id);
    }

    fn request_ended(shard: &mut Shard<Self>, now: Instant, id: RequestId, ending: &Ending) {
        if let Some(Some(Inner::Role(ClientInner::Listening(port)))) = shard.inner.get(id.index()) {
            let port = *port;
            return shard.listening_ended(now, port, ending);
        }
        shard.opening_ended(now, id, ending);
    }

    fn close_inner(shard: &mut Shard<Self>, id: RequestId, inner: ClientInner) {
        match inner {
            ClientInner::Local(local) => {
                // The address may have a new session already.
                if let Some(listener) = shard.sources.udp_listener(local.listener)
                    && listener.sessions.get(&local.address) == Some(&id)
                {
                    listener.sessions.remove(&local.address);
                }
            }
            ClientInner::Associated(associated) => shard.forget_associated(id, &associated),
            ClientInner::Transparent(ours) => shard.forget_transparent(id, &ours),
            ClientInner::Listening(port) => shard.stopped_listening(port),
            ClientInner::Reaching(reaching) => shard.close_reaching(*reaching),
            ClientInner::Opening(opening) => {
                opening.close();
                shard.io.tcp_closed();
            }
        }
    }

    fn start_drain(shard: &mut Shard<Self>) {
        shard.stop_accepting();
        shard.give_up_ports();
    }

    fn end(_: &mut Shard<Self>, _: Instant) {}

    fn port_is_closed(shard: &mut Shard<Self>, now: Instant) {
        shard.server_port_is_closed(now);
    }

    fn attempt_ready(shard: &mut Shard<Self>, now: Instant, attempt: AttemptId) {
        shard.receive_for_attempt(now, attempt);
    }

    fn send_packet(
        shard: &mut Shard<Self>,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
    ) {
        shard.engine.send_packet(now, header, packet, &mut shard.delivery);
    }

    fn send_trains(shard: &mut Shard<Self>) {
        let (inner, sources) = (&shard.inner, &mut shard.sources);
        let destination = |id: RequestId| match inner.get(id.index()) {
            Some(Some(Inner::Role(ClientInner::Local(local)))) => Some((local.listener, Some(local.address))),
            Some(Some(Inner::Role(ClientInner::Associated(associated)))) => {
                Some((associated.relay, Some(associated.source)))
            }
            Some(Some(Inner::Role(ClientInner::Transparent(ours)))) => {
                Some((ours.answers_by, Some(ours.source())))
            }
            _ => None,
        };
        shard
            .delivery
            .flush(shard.engine.egress(), destination, |id, send| {
                if let Some(socket) = sources.inner_socket(id) {
                    send(socket);
                }
            });
    }

    fn for_each_inner_socket(shard: &mut Shard<Self>, mut each: impl FnMut(&mut UdpSocket)) {
        for (_, source) in shard.sources.iter_mut() {
            if let Some(socket) = source.inner_socket() {
                each(socket);
            }
        }
    }

    fn complete(shard: &mut Shard<Self>, snapshot: &mut Snapshot, own: &mut ShardSnapshot) {
        let client = &shard.role;
        snapshot.reconnects = client.reconnects;
        snapshot.listeners = client.remote_ports.snapshots();
        own.server_shard = client.server_shard.map(|shard| shard.index);
        let carrier = client.reconnection.carrier().filter(|_| client.is_up());
        own.carrier = carrier.map(|(kind, reason)| CarrierSnapshot {
            kind: kind.name(),
            reason,
        });
        own.reconnects = client.reconnection.rejoins();
        if let (Some(peer), Some(address)) = (snapshot.peers.first_mut(), client.server_address()) {
            // QUIC knows it by where the connection was made.
            peer.remote = CarrierKind::unmark(address);
            peer.carrier = CarrierKind::of(address).name();
        }
        let peer = snapshot.peers.first().filter(|_| client.is_up());
        own.stripe = peer.map(|peer| StripeSnapshot {
            rtt_ms: peer.rtt_ms,
            congestion_window_bytes: peer.congestion_window_bytes,
            path_mtu: peer.path_mtu,
        });
        if let (Some(tun), Some(host)) = (&mut snapshot.tun, &client.ip) {
            (tun.name, tun.mtu, tun.names) = host.device();
        }
    }
}
