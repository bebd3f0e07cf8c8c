//! The snapshot of one shard: counters of engine, sockets and relays in one place.

use packet_io::{DatagramSocket, IoStats};

use super::{Inner, Role, Shard};
use crate::snapshot::{Gauge, IoCounters, ShardSnapshot, Snapshot, StripeSnapshot, TunSnapshot};

pub(super) fn io_counters(stats: &IoStats) -> IoCounters {
    IoCounters {
        receives: stats.receives,
        segments_received: stats.segments_received,
        bytes_received: stats.bytes_received,
        gro_messages: stats.gro_messages,
        kernel_drops: stats.kernel_drops,
        sends: stats.sends,
        gso_messages: stats.gso_messages,
        messages_sent: stats.messages_sent,
        segments_sent: stats.segments_sent,
        bytes_sent: stats.bytes_sent,
        split_resends: stats.split_resends,
        gso_step_downs: stats.gso_step_downs,
        would_block: stats.would_block,
        receive_buffer_wanted: 0,
        receive_buffer_obtained: 0,
    }
}

impl Shard {
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let mut inner_io = self.inner_io_past;
        let upstreams = self.inner.iter_mut().flatten().filter_map(|inner| match inner {
            Inner::Upstream(socket) => Some(socket.as_mut()),
            _ => None,
        });
        for socket in upstreams.chain(self.udp_listeners.iter_mut().map(|listener| &mut listener.socket)) {
            // A number that is a little old is better than none.
            let _ = socket.refresh_kernel_drops();
            let mut counters = io_counters(socket.stats());
            counters.receive_buffer_wanted = socket.grants().receive.wanted;
            counters.receive_buffer_obtained = socket.grants().receive.obtained;
            inner_io += counters;
        }
        let [sessions, connections] = self.engine.gauges();
        let (ingress_waiting, egress_waiting) = (self.engine.ingress_waiting(), self.engine.egress_waiting());
        let ledger = *self.engine.ledger();
        let gauge = |(open, total)| Gauge { open, total };
        let quic = self.engine.quic_totals();
        let peers = self.engine.peers();
        let state = self.state_name().to_owned();
        let local = self.outer.socket().and_then(|socket| socket.local_addr().ok());
        let (role, stripe, (server_shard, stripe_reconnects)) = match &self.role {
            Role::Server(_) => ("server", None, (None, 0)),
            Role::Client(client) => {
                let peer = peers.first().filter(|_| client.is_up());
                let stripe = peer.map(|peer| StripeSnapshot {
                    rtt_ms: peer.rtt_ms,
                    congestion_window_bytes: peer.congestion_window_bytes,
                    path_mtu: peer.path_mtu,
                });
                ("client", stripe, client.whereabouts())
            }
        };
        let shard = ShardSnapshot {
            index: self.neighbours.own(),
            state: state.clone(),
            local,
            server_shard,
            stripe,
            reconnects: stripe_reconnects,
            connections: gauge(connections),
            udp_sessions: gauge(sessions),
            tcp_connections: gauge((self.tcp.open, self.tcp.total)),
            datagrams_sent: quic.datagrams_sent,
            datagrams_received: quic.datagrams_received,
            handover: self.neighbours.counters(),
        };
        Snapshot {
            role: role.to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            state,
            local,
            ingress: ledger.ingress.snapshot(ingress_waiting),
            egress: ledger.egress.snapshot(egress_waiting),
            quic,
            tun: self.tun_snapshot(),
            outer_io: self.outer.counters(),
            inner_io,
            tcp: self.tcp,
            udp_sessions: gauge(sessions),
            connections: gauge(connections),
            refused_requests: self.engine.refused_requests(),
            reconnects: self.reconnects,
            peers,
            shards: vec![shard],
        }
    }

    fn tun_snapshot(&self) -> Option<TunSnapshot> {
        let end = self.delivery.tun.as_ref()?;
        let (name, mtu) = match &self.role {
            Role::Server(server) => server.ip.as_ref()?.device(),
            Role::Client(client) => client.ip.as_ref()?.device(),
        };
        let (leases, leases_kept) = match &self.role {
            Role::Server(server) => server.ip.as_ref()?.leases(),
            Role::Client(_) => (Gauge::default(), 0),
        };
        Some(TunSnapshot {
            name,
            mtu,
            sessions: self.engine.ip_sessions() as u64,
            leases,
            leases_kept,
            io: end.counters(),
        })
    }

    fn state_name(&self) -> &'static str {
        match &self.role {
            _ if self.drain_until.is_some() => "draining",
            Role::Server(_) => "listening",
            Role::Client(client) => client.state_name(),
        }
    }
}
