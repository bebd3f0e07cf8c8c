//! The snapshot of one shard: counters of engine, sockets and relays in one place.

use std::collections::BTreeMap;

use tunnel_proto::Direction;

use super::Shard;
use super::role::Role;
use crate::snapshot::{
    Gauge, HandoverCounters, IoCounters, ShardSnapshot, Snapshot, SourceCounters, TunSnapshot,
};

impl<R: Role> Shard<R> {
    pub(super) fn snapshot(&mut self) -> Snapshot {
        let inner_io = self.inner_io();
        let [sessions, connections] = self.engine.gauges();
        let (ingress_waiting, egress_waiting) = (self.engine.ingress_waiting(), self.engine.egress_waiting());
        let ledger = *self.engine.ledger();
        let gauge = |(open, total)| Gauge { open, total };
        let quic = self.engine.quic_totals();
        let peers = self.engine.peers();
        let state = self.state_name().to_owned();
        let local = self.io.outer.carrier().and_then(|carrier| carrier.local_addr());
        let mut own = ShardSnapshot {
            index: self.neighbours.own(),
            state: state.clone(),
            local,
            connections: gauge(connections),
            udp_sessions: gauge(sessions),
            tcp_connections: gauge((self.io.tcp.open, self.io.tcp.total)),
            datagrams_sent: quic.datagrams_sent,
            datagrams_received: quic.datagrams_received,
            handover: self.handover_counters(),
            ..ShardSnapshot::default()
        };
        let mut snapshot = Snapshot {
            role: R::NAME.to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.io.started.elapsed().as_secs_f64(),
            state,
            local,
            ingress: Direction {
                account: ledger.ingress,
                waiting: ingress_waiting,
            },
            egress: Direction {
                account: ledger.egress,
                waiting: egress_waiting,
            },
            quic,
            times: self.engine.times(),
            classified: self.engine.classified().clone(),
            incoming: self.engine.incoming_totals(),
            tun: self.tun_snapshot(),
            outer_io: self.io.outer.counters(),
            inner_io,
            tcp: self.io.tcp,
            udp_sessions: gauge(sessions),
            connections: gauge(connections),
            sources: self.source_counters(),
            peers,
            ..Snapshot::default()
        };
        R::complete(self, &mut snapshot, &mut own);
        snapshot.shards.push(own);
        snapshot
    }

    fn handover_counters(&self) -> HandoverCounters {
        let mut counters = self.neighbours.counters();
        counters.dropped += self.delivery.not_handed_back;
        counters
    }

    fn source_counters(&self) -> BTreeMap<String, SourceCounters> {
        let counters = self.sources.counters().into_iter();
        counters
            .map(|(kind, counters)| (kind.to_owned(), counters))
            .collect()
    }

    /// All inner UDP sockets together, those that are closed included.
    fn inner_io(&mut self) -> IoCounters {
        let mut sum = self.io.inner_io_past;
        R::for_each_inner_socket(self, |socket| {
            sum += IoCounters::of_socket(socket);
        });
        sum
    }

    /// What the engine and the device's queue say; name, MTU and leases are the role's to enter.
    fn tun_snapshot(&self) -> Option<TunSnapshot> {
        let end = self.delivery.tun.as_ref()?;
        Some(TunSnapshot {
            sessions: self.engine.ip_sessions() as u64,
            io: end.counters(),
            ..TunSnapshot::default()
        })
    }

    fn state_name(&self) -> &'static str {
        if self.drain.is_some() {
            "draining"
        } else {
            self.role.state_name()
        }
    }
}
