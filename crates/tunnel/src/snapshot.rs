//! The counters of a process at one moment, as `gramway status` shows them: sums over its shards, and what each has.

mod cover;
mod listeners;
mod tun;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::AddAssign;

use packet_io::{BATCH_BUCKETS, BufferGrants, DatagramSocket, IoStats, UdpSocket};
use serde::Serialize;
use tunnel_proto::{
    AuthorizationCounters, Direction, PeerSnapshot, RendezvousCounters, TimeSamples, UserId, UserSnapshot,
};

pub use packet::Histogram;
pub use quic::{Classified, Counters as QuicCounters, IncomingCounters};
pub use reality::door::DoorCounters;

pub use cover::{CoverLooks, CoverProfile, CoverSnapshot, CoverTcpCounters};
pub use listeners::ListenerSnapshot;
pub use tun::{NameServerCounters, NamesSnapshot, TunCounters, TunSnapshot};

/// All counters of a running server or client.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// `server` or `client`.
    pub role: String,
    /// Process ID.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_seconds: f64,
    /// `connecting`, `connected`, `redirected`, `reconnecting`, `draining` (client); `listening`, `draining` (server).
    pub state: String,
    /// Address of the outer socket.
    pub local: Option<SocketAddr>,
    /// Datagrams from inner sockets towards QUIC:
    /// `accepted + split + parity_sent + repaired = sent + joined + parity_received + sum(drops) + waiting`.
    pub ingress: Direction,
    /// DATAGRAM frames from QUIC towards inner sockets: the same law.
    pub egress: Direction,
    /// Sums over all QUIC connections, those that have ended included.
    pub quic: QuicCounters,
    /// Datagrams at the outer socket: read by QUIC, another shard's, given away, or dropped, by reason.
    pub classified: Classified,
    /// How long handshakes, round trips and waits in queues took.
    pub times: TimeSamples,
    /// Server: what became of the new connections that peers asked for.
    pub incoming: IncomingCounters,
    /// The outer UDP socket.
    pub outer_io: IoCounters,
    /// All inner UDP sockets together.
    pub inner_io: IoCounters,
    /// TCP forwards.
    pub tcp: TcpCounters,
    /// UDP sessions open at present, and since the start.
    pub udp_sessions: Gauge,
    /// QUIC connections open at present, and since the start.
    pub connections: Gauge,
    /// Ports of the server whose connections lead to clients: a server's own, and those that a client asks for.
    pub listeners: Vec<ListenerSnapshot>,
    /// Descriptors that belong to no request, by kind: listeners, for instance.
    pub sources: BTreeMap<String, SourceCounters>,
    /// Requests refused before a valid token: status code as text, count.
    pub refused_requests: BTreeMap<String, u64>,
    /// Server: what became of the questions whose a credential is.
    pub authorizations: AuthorizationCounters,
    /// Server: its users, each with the numbers of all shards.
    pub users: BTreeMap<UserId, UserSnapshot>,
    /// Client: how often the tunnel was up again after no connection was left.
    pub reconnects: u64,
    /// The TUN device, where there is one.
    pub tun: Option<TunSnapshot>,
    /// Server: where peers of its users find each other, unless it is switched off.
    pub rendezvous: Option<RendezvousCounters>,
    /// Server: its cover, where it has one.
    pub cover: Option<CoverSnapshot>,
    /// The living connections.
    pub peers: Vec<PeerSnapshot>,
    /// What each shard has of all this: how flows and packets are distributed.
    pub shards: Vec<ShardSnapshot>,
}

/// One shard: of a client also its stripe.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShardSnapshot {
    /// Its number in the process.
    pub index: usize,
    /// As [`Snapshot::state`], of this shard alone.
    pub state: String,
    /// Address of its outer socket.
    pub local: Option<SocketAddr>,
    /// Client: the shard of the server that the stripe ends at, where the server says.
    pub server_shard: Option<u8>,
    /// Client: round trip, window and path MTU of the stripe while it is up.
    pub stripe: Option<StripeSnapshot>,
    /// Client: what carries its connection while it is up.
    pub carrier: Option<CarrierSnapshot>,
    /// Client: how often its connection was made again.
    pub reconnects: u64,
    /// QUIC connections open at present, and since the start.
    pub connections: Gauge,
    /// UDP sessions open at present, and since the start.
    pub udp_sessions: Gauge,
    /// TCP connections open at present, and since the start.
    pub tcp_connections: Gauge,
    /// DATAGRAM frames sent.
    pub datagrams_sent: u64,
    /// DATAGRAM frames received.
    pub datagrams_received: u64,
    /// What passed between this shard and the others.
    pub handover: HandoverCounters,
}

/// What carries a stripe's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CarrierSnapshot {
    /// `udp` or `tcp`.
    pub kind: &'static str,
    /// Why, for people.
    pub reason: &'static str,
}

/// A client's stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StripeSnapshot {
    /// Smoothed round-trip time in milliseconds.
    pub rtt_ms: f64,
    /// Congestion window in bytes.
    pub congestion_window_bytes: u64,
    /// Path MTU in bytes of UDP payload.
    pub path_mtu: u16,
}

/// What a shard gave to others and took from them: segments of their connections, local traffic of a stripe that was
/// down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HandoverCounters {
    /// Given to other shards.
    pub given: u64,
    /// Taken from other shards.
    pub taken: u64,
    /// Given up because the other shard, or the process before an upgrade, does not keep up or does not exist.
    pub dropped: u64,
}

/// What a UDP socket counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IoCounters {
    /// recvmmsg calls.
    pub receives: u64,
    /// Datagrams of each such call.
    pub receive_batches: Histogram<BATCH_BUCKETS>,
    /// Datagrams received.
    pub segments_received: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Messages that the kernel had coalesced.
    pub gro_messages: u64,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    pub kernel_drops: u64,
    /// sendmmsg calls.
    pub sends: u64,
    /// Datagrams of each call that sent something.
    pub send_batches: Histogram<BATCH_BUCKETS>,
    /// Messages sent with segmentation offload.
    pub gso_messages: u64,
    /// Messages sent.
    pub messages_sent: u64,
    /// Datagrams sent.
    pub segments_sent: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Messages that were split and sent again because the kernel refused the offload.
    pub split_resends: u64,
    /// Paths stepped down from segmentation offload.
    pub gso_step_downs: u64,
    /// Sends that found the socket full.
    pub would_block: u64,
    /// Receive buffer asked for, in bytes.
    pub receive_buffer_wanted: usize,
    /// Receive buffer obtained, in bytes.
    pub receive_buffer_obtained: usize,
}

impl IoCounters {
    /// What a socket has done, and its buffer.
    pub(crate) fn of_socket(socket: &mut UdpSocket) -> Self {
        // Where the kernel does not tell, a number that is a little old is better than none.
        let _ = socket.refresh_kernel_drops();
        Self::of_stats(socket.stats(), socket.grants())
    }

    /// The same of another socket.
    pub(crate) fn of_stats(stats: &IoStats, grants: BufferGrants) -> Self {
        let buffer = grants.receive;
        Self {
            receives: stats.receives,
            receive_batches: stats.receive_batches,
            segments_received: stats.segments_received,
            bytes_received: stats.bytes_received,
            gro_messages: stats.gro_messages,
            kernel_drops: stats.kernel_drops,
            sends: stats.sends,
            send_batches: stats.send_batches,
            gso_messages: stats.gso_messages,
            messages_sent: stats.messages_sent,
            segments_sent: stats.segments_sent,
            bytes_sent: stats.bytes_sent,
            split_resends: stats.split_resends,
            gso_step_downs: stats.gso_step_downs,
            would_block: stats.would_block,
            receive_buffer_wanted: buffer.wanted,
            receive_buffer_obtained: buffer.obtained,
        }
    }

    /// The same of a socket that is closed, which has no buffer any more.
    pub(crate) fn closed(self) -> Self {
        Self {
            receive_buffer_wanted: 0,
            receive_buffer_obtained: 0,
            ..self
        }
    }
}

/// What TCP forwards count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpCounters {
    /// Connections open at present.
    pub open: u64,
    /// Connections since the start.
    pub total: u64,
    /// Connections that failed to open (refused, unreachable, unresolvable, tunnel down).
    pub failed: u64,
    /// Bytes from local sockets into QUIC.
    pub bytes_in: u64,
    /// Bytes from QUIC to local sockets.
    pub bytes_out: u64,
}

/// What the sources of one kind count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceCounters {
    /// Open at present.
    pub open: u64,
    /// Since the start.
    pub total: u64,
    /// How often one was ready.
    pub events: u64,
    /// Deadlines that passed.
    pub deadlines: u64,
}

/// A number at present and since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// At present.
    pub open: u64,
    /// Since the start.
    pub total: u64,
}

impl Snapshot {
    /// The sums over all shards of a process; `None` where there is none.
    pub(crate) fn merge(parts: Vec<Self>) -> Option<Self> {
        parts.into_iter().reduce(|mut sum, part| {
            sum.uptime_seconds = sum.uptime_seconds.max(part.uptime_seconds);
            if state_rank(&part.state) > state_rank(&sum.state) {
                sum.state = part.state;
            }
            sum.local = sum.local.or(part.local);
            sum.ingress += part.ingress;
            sum.egress += part.egress;
            sum.quic += part.quic;
            sum.classified += part.classified;
            sum.times += part.times;
            sum.incoming += part.incoming;
            sum.outer_io += part.outer_io;
            sum.inner_io += part.inner_io;
            sum.tcp += part.tcp;
            sum.udp_sessions += part.udp_sessions;
            sum.connections += part.connections;
            listeners::add(&mut sum.listeners, part.listeners);
            add_counts(&mut sum.sources, part.sources);
            add_counts(&mut sum.refused_requests, part.refused_requests);
            sum.authorizations += part.authorizations;
            for (id, user) in part.users {
                let known = sum.users.entry(id).or_default();
                // Every shard says the same of a user, but one that has only seen the account of a former link.
                if (user.connections, user.bytes) >= (known.connections, known.bytes) {
                    *known = user;
                }
            }
            sum.reconnects += part.reconnects;
            sum.tun = match (sum.tun, part.tun) {
                (Some(one), Some(other)) => Some(one.with(other)),
                (one, other) => one.or(other),
            };
            // All shards have the same.
            sum.rendezvous = part.rendezvous.or(sum.rendezvous);
            sum.cover = match (sum.cover, part.cover) {
                (Some(one), Some(other)) => Some(one.with(other)),
                (one, other) => one.or(other),
            };
            sum.peers.extend(part.peers);
            sum.shards.extend(part.shards);
            sum
        })
    }
}

/// Of the shards' states the highest is the process's: one stripe that is up makes a client connected.
fn state_rank(state: &str) -> u8 {
    match state {
        "connecting" => 0,
        "redirected" | "reconnecting" => 1,
        "connected" | "listening" => 2,
        _ => 3,
    }
}

impl AddAssign for Gauge {
    fn add_assign(&mut self, other: Self) {
        self.open += other.open;
        self.total += other.total;
    }
}

impl AddAssign for SourceCounters {
    fn add_assign(&mut self, other: Self) {
        self.open += other.open;
        self.total += other.total;
        self.events += other.events;
        self.deadlines += other.deadlines;
    }
}

impl AddAssign for TcpCounters {
    fn add_assign(&mut self, other: Self) {
        self.open += other.open;
        self.total += other.total;
        self.failed += other.failed;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
    }
}

impl AddAssign for IoCounters {
    fn add_assign(&mut self, other: Self) {
        self.receives += other.receives;
        self.receive_batches += other.receive_batches;
        self.segments_received += other.segments_received;
        self.bytes_received += other.bytes_received;
        self.gro_messages += other.gro_messages;
        self.kernel_drops += other.kernel_drops;
        self.sends += other.sends;
        self.send_batches += other.send_batches;
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

/// Adds counts by name to those of the same name.
fn add_counts<C: AddAssign + Default>(sum: &mut BTreeMap<String, C>, other: BTreeMap<String, C>) {
    for (name, count) in other {
        *sum.entry(name).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: usize, state: &str) -> Snapshot {
        let mut part = Snapshot {
            role: "client".to_owned(),
            state: state.to_owned(),
            shards: vec![ShardSnapshot {
                index,
                ..ShardSnapshot::default()
            }],
            ..Snapshot::default()
        };
        part.ingress.account.accepted = 5;
        part.ingress.account.drop(tunnel_proto::DropReason::QueueFull, 2);
        part.inner_io.receive_buffer_obtained = 100;
        part.classified.dropped.insert("short", 3);
        (part.incoming.offered, part.incoming.refused) = (2, 1);
        let listener = SourceCounters {
            open: 1,
            events: 3,
            ..SourceCounters::default()
        };
        part.sources.insert("udp_listener".to_owned(), listener);
        part
    }

    #[test]
    fn sums_of_all_shards_and_each_of_them_are_in_one_snapshot() {
        let parts = vec![
            part(0, "reconnecting"),
            part(1, "connected"),
            part(2, "connecting"),
        ];
        let merged = Snapshot::merge(parts).unwrap();
        assert_eq!(merged.state, "connected");
        assert_eq!(merged.ingress.account.accepted, 15);
        assert_eq!(merged.ingress.account.drops()["queue_full"], 6);
        assert_eq!(merged.inner_io.receive_buffer_obtained, 100);
        assert_eq!(merged.classified.dropped["short"], 9);
        assert_eq!((merged.incoming.offered, merged.incoming.refused), (6, 3));
        let listeners = merged.sources["udp_listener"];
        assert_eq!((listeners.open, listeners.events), (3, 9));
        let indices: Vec<_> = merged.shards.iter().map(|shard| shard.index).collect();
        assert_eq!(indices, [0, 1, 2]);
        assert_eq!(Snapshot::merge(Vec::new()), None);
    }
}
