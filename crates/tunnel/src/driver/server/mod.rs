//! What only a server's shard does: targets of requests, its end of the TUN device.

mod cover;
mod guests;
mod lease_file;
mod names;
mod own_addresses;
mod role;
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
use std::time::Instant;

use bytes::BytesMut;
use packet_io::VNET_HEADER_BYTES;
use tunnel_proto::limits::REFUSALS_TOLD_AT_A_TIME;
use tunnel_proto::{FewAtATime, RequestId, TargetRules};

use super::neighbours::Cost;
use cover::ShardCover;
use own_addresses::OwnAddressList;
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
    /// The TUN device; `None` where there is none.
    ip: Option<ServerHost>,
    /// What it looks like to strangers; `None`: what it is.
    cover: Option<ShardCover>,
    /// That the pools are exhausted.
    exhaustion_told: FewAtATime,
    turned_away_told: FewAtATime,
    next_ip_turn: Instant,
}

impl Server {
    fn new(
        rules: TargetRules,
        own_addresses: OwnAddressList,
        upstream_buffers: UpstreamBuffers,
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
            ip: None,
            cover: None,
            exhaustion_told: FewAtATime::new(1),
            turned_away_told: FewAtATime::new(REFUSALS_TOLD_AT_A_TIME),
            next_ip_turn: now,
        }
    }
}

/// The inner end of a request that only a server has.
pub(super) enum ServerInner {
    /// A target that is being resolved or connected.
    Opening(Opening),
    /// A UDP socket connected to the target.
    Upstream(Box<Upstream>),
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
