//! The snapshot of a shard: counters of engine, sockets and relays in one place.

use std::ops::AddAssign;

use packet_io::{DatagramSocket, IoStats};

use super::{Inner, Role, Shard};
use crate::snapshot::{Gauge, IoCounters, Snapshot};

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

impl AddAssign for IoCounters {
    fn add_assign(&mut self, other: Self) {
        self.receives += other.receives;
        self.segments_received += other.segments_received;
        self.bytes_received += other.bytes_received;
        self.gro_messages += other.gro_messages;
        self.kernel_drops += other.kernel_drops;
        self.sends += other.sends;
        self.gso_messages += other.gso_messages;
        self.messages_sent += other.messages_sent;
        self.segments_sent += other.segments_sent;
        self.bytes_sent += other.bytes_sent;
        self.split_resends += other.split_resends;
        self.gso_step_downs += other.gso_step_downs;
        self.would_block += other.would_block;
        self.receive_buffer_wanted = self.receive_buffer_wanted.max(other.receive_buffer_wanted);
        self.receive_buffer_obtained = self.receive_buffer_obtained.max(other.receive_buffer_obtained);
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
        Snapshot {
            role: match self.role {
                Role::Server(_) => "server",
                Role::Client(_) => "client",
            }
            .to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            state: self.state_name().to_owned(),
            local: self.outer.socket().and_then(|socket| socket.local_addr().ok()),
            ingress: ledger.ingress.snapshot(ingress_waiting),
            egress: ledger.egress.snapshot(egress_waiting),
            quic: self.engine.quic_totals(),
            outer_io: self.outer.counters(),
            inner_io,
            tcp: self.tcp,
            udp_sessions: gauge(sessions),
            connections: gauge(connections),
            refused_requests: self.engine.refused_requests(),
            reconnects: self.reconnects,
            peers: self.engine.peers(),
        }
    }

    fn state_name(&self) -> &'static str {
        match &self.role {
            _ if self.drain_until.is_some() => "draining",
            Role::Server(_) => "listening",
            Role::Client(client) => client.state_name(),
        }
    }
}
