//! The event loop's turns, events and packets as a server treats them.

use std::io;
use std::time::Instant;

use packet_io::{UdpSocket, VNET_HEADER_BYTES};
use quic::CloseReason;
use tunnel_proto::rendezvous::Rendezvous;
use tunnel_proto::{AllowedTarget, AttemptId, Ending, Protocol, RequestId, ServerAction};

use super::cover::ShardCover;
use super::{Server, ServerInner, ServerMessage, ServerSource};
use crate::carrier::OfferedSocket;
use crate::driver::inner_turns::Served;
use crate::driver::resolver::Answer;
use crate::driver::role::Role;
use crate::driver::sources::SourceId;
use crate::driver::{Inner, Shard};
use crate::handle::Visitor;
use crate::snapshot::{ShardSnapshot, Snapshot};

impl Role for Server {
    type Proto = tunnel_proto::Server;
    type Action = ServerAction;
    type Inner = ServerInner;
    type Source = ServerSource;
    type Message = ServerMessage;

    const NAME: &'static str = "server";

    fn poll_timeout(&self) -> Option<Instant> {
        let next = match self.ip {
            Some(_) => self.next_sweep.min(self.next_ip_turn),
            None => self.next_sweep,
        };
        let due = [&self.attempts_due, &self.upstreams_due]
            .into_iter()
            .filter_map(|queue| queue.front().map(|(due, _)| *due));
        let door = self.cover.as_ref().and_then(ShardCover::poll_timeout);
        due.chain(door).chain([next]).min()
    }

    fn state_name(&self) -> &'static str {
        "listening"
    }

    fn turn(shard: &mut Shard<Self>, now: Instant) {
        shard.server_turn(now);
    }

    fn take_strangers(shard: &mut Shard<Self>, now: Instant) {
        shard.receive_strangers(now);
    }

    fn before_sending(shard: &mut Shard<Self>) {
        shard.note_sent();
    }

    fn source_ready(shard: &mut Shard<Self>, now: Instant, id: SourceId) {
        match shard.sources.get(id) {
            Some(ServerSource::Flow(_)) => shard.receive_cover(now, id),
            Some(ServerSource::Listener(_)) => shard.accept_at_listener(now, id),
            Some(ServerSource::Predecessor(_)) => shard.predecessor_has_ended(id),
            None => {}
        }
    }

    fn source_due(shard: &mut Shard<Self>, now: Instant, id: SourceId) {
        shard.listener_due(now, id);
    }

    fn carry_out(shard: &mut Shard<Self>, now: Instant, action: ServerAction) {
        match action {
            ServerAction::Open {
                request,
                protocol,
                target,
                reach,
            } => shard.open_target(now, request, protocol, &target, reach),
            ServerAction::Listen {
                request,
                user,
                connection,
                path,
            } => shard.listen(now, request, user, connection, path),
            ServerAction::Lease {
                request,
                owner,
                leases_max,
            } => shard.lease(now, request, owner, leases_max),
            ServerAction::Came { user, remote } => shard.tell_visitor(Visitor::Came { user, remote }),
            ServerAction::Left {
                user,
                remote,
                reason,
                exclusion,
            } => {
                if exclusion.is_some() {
                    shard.close_ports_of(user);
                } else if matches!(reason, CloseReason::ApplicationClosed { .. }) {
                    shard.close_abandoned_ports_of(user);
                }
                shard.tell_visitor(Visitor::Left {
                    user,
                    remote,
                    reason: exclusion
                        .map_or_else(|| reason.to_string(), |exclusion| exclusion.reason().to_owned()),
                });
            }
            ServerAction::TurnedAway { remote } => shard.tell_turned_away(now, remote),
            ServerAction::LeaseOver { owner, addresses } => shard.lease_over(owner, &addresses),
        }
    }

    fn resolved(shard: &mut Shard<Self>, now: Instant, answer: Answer) {
        shard.target_resolved(now, answer);
    }

    fn handed_over(shard: &mut Shard<Self>, now: Instant, message: ServerMessage) {
        match message {
            ServerMessage::Packet { header, mut bytes } => {
                shard.take_handed_packet(now, &header, &mut bytes);
            }
        }
    }

    fn woken(shard: &mut Shard<Self>, now: Instant) {
        shard.end_older_runs();
        while let Some(answers) = &shard.role.answers
            && let Ok((id, decision)) = answers.try_recv()
        {
            shard.engine.authorized(now, id, decision, &mut shard.delivery);
        }
    }

    fn inner_ready(shard: &mut Shard<Self>, now: Instant, id: RequestId) {
        match shard.inner.get(id.index()) {
            Some(Some(Inner::Role(ServerInner::Upstream(_)))) => shard.inner_turns.push(id),
            Some(Some(Inner::Role(ServerInner::Opening(_)))) => shard.target_ready(now, id),
            _ => {}
        }
    }

    fn serve_inner(shard: &mut Shard<Self>, now: Instant, id: RequestId) -> Served {
        shard.receive_upstream(now, id)
    }

    /// A TCP connection that was never opened gives its place back.
    fn request_ended(shard: &mut Shard<Self>, now: Instant, id: RequestId, _: &Ending) {
        match shard.inner.get(id.index()) {
            Some(Some(Inner::Role(ServerInner::Opening(opening)))) if opening.protocol == Protocol::Tcp => {
                shard.io.tcp_closed();
            }
            Some(Some(Inner::Role(ServerInner::Listening(address)))) => {
                let address = *address;
                shard.stop_listening(now, address, id);
            }
            _ => {}
        }
    }

    fn close_inner(shard: &mut Shard<Self>, _: RequestId, inner: ServerInner) {
        match inner {
            ServerInner::Opening(opening) => opening.close(&shard.io.poller),
            ServerInner::Listening(_) => {}
            ServerInner::Upstream(upstream) => {
                shard.io.inner_io_past += upstream.close(&mut shard.role.upstream_buffers);
            }
        }
    }

    /// The engine refuses what is new.
    fn allow_targets(shard: &mut Shard<Self>, allowed: &[AllowedTarget]) {
        shard.role.rules.allow(allowed.to_vec());
        shard.engine.allow_targets(allowed.to_vec());
    }

    fn start_drain(shard: &mut Shard<Self>) {
        shard.close_all_ports();
    }

    /// What a server with a cover or a TUN has besides cannot be taken over.
    fn offer(shard: &mut Shard<Self>) -> io::Result<OfferedSocket> {
        if shard.role.cover.is_some() || shard.role.ip.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let offered = shard.offer_carrier()?;
        let role = &shard.role;
        role.kin.set_successor(Some(role.generation.next()));
        Ok(offered)
    }

    fn withdraw(shard: &mut Shard<Self>) {
        shard.role.kin.set_successor(None);
        shard.withdraw_carrier();
    }

    fn end(shard: &mut Shard<Self>, _: Instant) {
        shard.save_leases();
    }

    /// It is one client's affair, whose connection ends by its timeouts.
    fn port_is_closed(_: &mut Shard<Self>, _: Instant) {}

    /// A server does not connect.
    fn attempt_ready(_: &mut Shard<Self>, _: Instant, _: AttemptId) {}

    fn send_packet(
        shard: &mut Shard<Self>,
        now: Instant,
        header: &[u8; VNET_HEADER_BYTES],
        packet: &mut [u8],
    ) {
        if let Some(elsewhere) = shard.engine.send_packet(now, header, packet, &mut shard.delivery) {
            shard.pass_on(now, elsewhere, header, packet);
        }
    }

    fn send_trains(shard: &mut Shard<Self>) {
        let inner = &mut shard.inner;
        shard.delivery.flush(
            shard.engine.egress(),
            |id| Some((id.index(), None)),
            |index, send| {
                if let Some(Some(Inner::Role(ServerInner::Upstream(upstream)))) = inner.get_mut(index) {
                    send(&mut upstream.socket);
                }
            },
        );
    }

    fn for_each_inner_socket(shard: &mut Shard<Self>, mut each: impl FnMut(&mut UdpSocket)) {
        for inner in shard.inner.iter_mut().flatten() {
            if let Inner::Role(ServerInner::Upstream(upstream)) = inner {
                each(&mut upstream.socket);
            }
        }
    }

    fn complete(shard: &mut Shard<Self>, snapshot: &mut Snapshot, _: &mut ShardSnapshot) {
        snapshot.refused_requests = shard.engine.refused_requests();
        snapshot.authorizations = shard.engine.authorizations();
        snapshot.users = shard.engine.users();
        if let Some(host) = &shard.role.ip {
            host.count_leases(&mut snapshot.users);
        }
        snapshot.listeners = shard.listener_snapshots();
        snapshot.rendezvous = shard.role.rendezvous.as_ref().map(Rendezvous::counters);
        snapshot.cover = shard.role.cover.as_ref().map(ShardCover::snapshot);
        if let (Some(tun), Some(host)) = (&mut snapshot.tun, &shard.role.ip) {
            (tun.name, tun.mtu) = host.device();
            (tun.leases, tun.leases_kept) = host.leases();
            tun.name_server = host.name_server();
            // All shards have the same; one goes to the trouble of sorting them.
            if shard.neighbours.own() == 0 {
                tun.lease_list = host.list_leases();
            }
        }
    }
}
