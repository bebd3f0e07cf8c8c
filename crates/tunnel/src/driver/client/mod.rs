//! What only a client's shard does: its connection to the server, its listeners, its end of the TUN device.

mod connection;
pub(super) mod listeners;
mod local;
mod role;
pub(super) mod start;
mod stripes;
mod tun;
mod uplink;
mod ways;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use host::Monitor;
use tunnel_proto::{AddressMove, Reconnection, ServerShard, Target};

use super::PollToken;
use super::neighbours::Cost;
use crate::carrier::Carriers;
use listeners::UdpListener;
use stripes::SharedStripes;
use tun::ClientHost;
use uplink::UplinkBinding;

/// What a client's shard keeps besides.
pub(in crate::driver) struct Client {
    reconnection: Reconnection,
    pin: [u8; 32],
    bind: Option<IpAddr>,
    pub(super) carriers: Arc<dyn Carriers>,
    payload_seen: usize,
    payload_settled: usize,
    /// This stripe's number, and all of them.
    index: usize,
    stripes: SharedStripes,
    server_shard: Option<ServerShard>,
    /// How often the tunnel was up again after no connection was left.
    reconnects: u64,
    next_tick: Instant,
    pub(in crate::driver) udp_listeners: Vec<UdpListener>,
    pub(super) tcp_listeners: Vec<(TcpListener, Target)>,
    /// When a refused session was last told about.
    pub(super) refusal_told: Option<Instant>,
    /// The TUN device; `None` where there is none.
    pub(super) ip: Option<ClientHost>,
    /// There are no forwards: without an IP session the client is of no use.
    pub(super) carries_only_ip: bool,
    /// From when on an IP session is to be asked for, as soon as the other stripes let this one.
    pub(super) ip_due: Option<Instant>,
    /// News of links, addresses and routes.
    pub(super) monitor: Option<Monitor>,
    /// How the outer socket leaves this machine, where there is a TUN device.
    pub(super) uplink: Option<UplinkBinding>,
    /// The uplink is to be looked at again: the host's thread is finding it.
    pub(super) follows_uplink: bool,
    /// Address and name of the server to which the host's thread is finding the way; then it is tried.
    waiting_attempt: Option<(SocketAddr, String)>,
    /// The version of the device's routes that was last looked at.
    pub(super) routes_seen: u64,
    /// When the connection moved to another local address, until something is heard there.
    pub(super) moved: AddressMove,
    next_ip_turn: Instant,
}

impl Client {
    pub(super) fn new(
        reconnection: Reconnection,
        pin: [u8; 32],
        bind: Option<IpAddr>,
        index: usize,
        stripes: SharedStripes,
        carriers: Arc<dyn Carriers>,
        now: Instant,
    ) -> Self {
        Self {
            reconnection,
            pin,
            bind,
            carriers,
            payload_seen: 0,
            payload_settled: 0,
            index,
            stripes,
            server_shard: None,
            reconnects: 0,
            next_tick: now,
            udp_listeners: Vec::new(),
            tcp_listeners: Vec::new(),
            refusal_told: None,
            ip: None,
            carries_only_ip: false,
            ip_due: None,
            monitor: None,
            uplink: None,
            follows_uplink: false,
            waiting_attempt: None,
            routes_seen: 0,
            moved: AddressMove::default(),
            next_ip_turn: now,
        }
    }

    /// The server's address that is tried or used.
    pub(super) fn server_address(&self) -> Option<SocketAddr> {
        self.reconnection.address()
    }

    /// The local address to use towards the server, where it was chosen.
    pub(super) fn bind_address(&self) -> Option<SocketAddr> {
        self.bind.map(|ip| SocketAddr::new(ip, 0))
    }

    pub(super) fn is_up(&self) -> bool {
        self.reconnection.is_up()
    }

    /// Why the connection is about to be given up by us, for the line that people read.
    pub(super) fn set_reason(&mut self, reason: &str) {
        self.reconnection.set_reason(reason);
    }
}

/// A source behind a UDP listener: the inner end of a UDP session.
pub(super) struct Source {
    pub(super) listener: usize,
    pub(super) address: SocketAddr,
}

/// A descriptor that only a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientSource {
    UdpListener(usize),
    TcpListener(usize),
    /// News of the host's network.
    Monitor,
}

impl ClientSource {
    pub(super) fn token(self) -> PollToken {
        let (kind, index) = match self {
            Self::UdpListener(index) => (0, index),
            Self::TcpListener(index) => (1, index),
            Self::Monitor => (2, 0),
        };
        PollToken::Role { kind, index }
    }

    fn of(kind: u8, index: usize) -> Option<Self> {
        match kind {
            0 => Some(Self::UdpListener(index)),
            1 => Some(Self::TcpListener(index)),
            2 => Some(Self::Monitor),
            _ => None,
        }
    }
}

/// What a client's shards hand to each other.
pub(super) enum ClientMessage {
    /// Datagrams of one source at a listener, from a shard whose stripe is down: all of `segment_size` bytes but the
    /// last.
    Datagrams {
        listener: usize,
        source: SocketAddr,
        bytes: BytesMut,
        segment_size: usize,
    },
    /// A connection to a TCP listener, from a shard whose stripe is down.
    Connection { listener: usize, stream: TcpStream },
    /// A sibling's connection is lost, so perhaps all are.
    Probe,
}

impl Cost for ClientMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::Datagrams { bytes, .. } => bytes.len(),
            Self::Connection { .. } | Self::Probe => 0,
        }
    }
}
