//! What only a server's shard does: targets of requests, its end of the TUN device.

mod cover;
mod guests;
mod held_ports;
mod lease_file;
mod listeners;
mod names;
mod own_addresses;
mod predecessor;
mod role;
mod sources;
pub(super) mod start;
mod takeovers;
mod targets;
mod tun;
mod upstream;
mod upstream_buffers;
mod users;
mod visitors;
mod whereabouts;

pub use names::fuzz as fuzz_name_message;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Instant;

use bytes::BytesMut;
use packet_io::VNET_HEADER_BYTES;
use quic::{Generation, Kin};
use tunnel_proto::rendezvous::Rendezvous;
use tunnel_proto::{AuthorizationId, Decision, RequestId, TargetRules};

use super::neighbours::Cost;
use cover::ShardCover;
use held_ports::HeldPorts;
use listeners::Ports;
use own_addresses::OwnAddressList;
use sources::ServerSource;
use targets::Opening;
use tun::ServerHost;
use upstream::Upstream;
use upstream_buffers::UpstreamBuffers;

/// What a server's shard keeps besides.
pub(super) struct Server {
    rules: TargetRules,
    own_addresses: OwnAddressList,
    next_sweep: Instant,
    /// Numbers the resolutions, so that a late answer never meets a reused request.
    resolutions: u64,
    /// Targets that have another address to try, and when; in that order.
    attempts_due: VecDeque<(Instant, RequestId)>,
    /// UDP targets that have another address, and when it is to be seen whether the present one has answered; in that
    /// order.
    upstreams_due: VecDeque<(Instant, RequestId)>,
    pub(super) upstream_buffers: UpstreamBuffers,
    /// Ports whose connections lead to clients: those of all shards, and what this one has of them.
    held_ports: HeldPorts,
    ports: Ports,
    /// The TUN device; `None` where there is none.
    ip: Option<ServerHost>,
    /// What it looks like to strangers; `None`: what it is.
    cover: Option<ShardCover>,
    /// Where peers find each other: one for all shards.
    rendezvous: Option<Rendezvous>,
    /// Of the authentication hook; `None`: there is none.
    answers: Option<mpsc::Receiver<(AuthorizationId, Decision)>>,
    next_ip_turn: Instant,
    /// Which process it is of those that took over each other's sockets, and those beside it.
    generation: Generation,
    kin: Kin,
}

impl Server {
    fn new(
        rules: TargetRules,
        own_addresses: OwnAddressList,
        upstream_buffers: UpstreamBuffers,
        held_ports: HeldPorts,
        now: Instant,
    ) -> Self {
        Self {
            rules,
            own_addresses,
            next_sweep: now,
            resolutions: 0,
            attempts_due: VecDeque::new(),
            upstreams_due: VecDeque::new(),
            upstream_buffers,
            held_ports,
            ports: Ports::new(),
            ip: None,
            cover: None,
            rendezvous: None,
            answers: None,
            next_ip_turn: now,
            generation: Generation::default(),
            kin: Kin::default(),
        }
    }

    fn with_kin(self, generation: Generation, kin: Kin) -> Self {
        Self {
            generation,
            kin,
            ..self
        }
    }
}

/// The inner end of a request that only a server has.
pub(super) enum ServerInner {
    /// A target that is being resolved or connected.
    Opening(Opening),
    /// A UDP socket connected to the target.
    Upstream(Box<Upstream>),
    /// A request that waits for a connection to come there.
    Listening(SocketAddr),
}

/// What a server's shards hand to each other.
pub(super) enum ServerMessage {
    /// A packet of the TUN device for a client whose session is on the other shard.
    Packet {
        header: [u8; VNET_HEADER_BYTES],
        bytes: BytesMut,
    },
}

impl Cost for ServerMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::Packet { bytes, .. } => bytes.len(),
        }
    }
}
