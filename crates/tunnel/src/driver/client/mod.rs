//! What only a client's shard does: its connection to the server, its listeners, its end of the TUN device.

mod associations;
mod attempts;
mod carriers;
mod connection;
mod exceptions;
mod front_door;
mod ip_session;
pub(super) mod listeners;
mod local;
mod local_networks;
mod names;
mod negotiating;
mod opening;
mod reaching;
mod remote_ports;
mod role;
pub(super) mod start;
mod stripes;
mod transparent;
mod tun;
pub(super) mod uplink;
mod ways;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use host::{Monitor, OUTER_MARK};
use packet_io::UdpSocket;
use tunnel_proto::{AddressMove, KnownServer, PathWatch, Reconnection, Resting, ServerShard};

use super::neighbours::Cost;
use super::sources::{Source, SourceId, Sources};
use crate::carrier::Carriers;
use associations::{AssociatedAddress, Association, Control, DatagramRelay};
use attempts::WaitingAttempt;
use listeners::{TcpListener, UdpListener};
use negotiating::{Farewell, Negotiating};
use opening::{LocalConnection, Opening};
use reaching::Reaching;
use remote_ports::RemotePorts;
use stripes::SharedStripes;
use transparent::{Flow, TransparentFlow, TransparentListener};
use tun::ClientHost;
use uplink::UplinkBinding;

/// What a client's shard keeps besides.
pub(in crate::driver) struct Client {
    reconnection: Reconnection,
    knows: KnownServer,
    /// Connections to the genuine site of a cover.
    resting: Resting,
    bind: Option<IpAddr>,
    pub(super) carriers: Arc<dyn Carriers>,
    /// Path MTU at the last tick, and the last one that stood for two.
    mtu_seen: u16,
    mtu_settled: u16,
    /// This stripe's number, and all of them.
    index: usize,
    stripes: SharedStripes,
    server_shard: Option<ServerShard>,
    /// How often the tunnel was up again after no connection was left.
    reconnects: u64,
    next_tick: Instant,
    /// By number, the same at each shard.
    pub(super) udp_listeners: Vec<SourceId>,
    pub(super) tcp_listeners: Vec<SourceId>,
    /// By number, the same at each shard.
    transparent_listeners: Vec<SourceId>,
    /// Ports of the server whose connections lead here.
    remote_ports: RemotePorts,
    /// Numbers the resolutions of their targets, so that a late answer never meets a reused request.
    resolutions: u64,
    /// How many associations there are.
    associations: usize,
    /// The TUN device; `None` where there is none.
    pub(super) ip: Option<ClientHost>,
    /// There are no forwards: without an IP session the client is of no use.
    pub(super) carries_only_ip: bool,
    /// From when on an IP session is to be asked for, as soon as the other stripes let this one.
    pub(super) ip_due: Option<Instant>,
    /// How the outer socket leaves this machine, where there is a TUN device.
    pub(super) uplink: Option<UplinkBinding>,
    /// The uplink is to be looked at again: the host's thread is finding it.
    pub(super) follows_uplink: bool,
    /// Attempts that begin when the host's thread has found their way, one after the other.
    waiting_attempts: VecDeque<WaitingAttempt>,
    /// The version of the device's routes that was last looked at.
    pub(super) routes_seen: u64,
    /// The version of the local networks that the engine knows.
    pub(super) local_seen: u64,
    /// When the connection moved to another local address, until something is heard there.
    pub(super) moved: AddressMove,
    pub(super) path_watch: PathWatch,
    next_path_watch: Instant,
    next_carrier_watch: Instant,
    next_ip_turn: Instant,
}

impl Client {
    pub(super) fn new(
        reconnection: Reconnection,
        knows: KnownServer,
        bind: Option<IpAddr>,
        index: usize,
        stripes: SharedStripes,
        carriers: Arc<dyn Carriers>,
        now: Instant,
    ) -> Self {
        let moved = if knows.is_cover() {
            AddressMove::of_front_door()
        } else {
            AddressMove::default()
        };
        Self {
            reconnection,
            knows,
            resting: Resting::default(),
            bind,
            carriers,
            mtu_seen: 0,
            mtu_settled: 0,
            index,
            stripes,
            server_shard: None,
            reconnects: 0,
            next_tick: now,
            udp_listeners: Vec::new(),
            tcp_listeners: Vec::new(),
            transparent_listeners: Vec::new(),
            remote_ports: RemotePorts::default(),
            resolutions: 0,
            associations: 0,
            ip: None,
            carries_only_ip: false,
            ip_due: None,
            uplink: None,
            follows_uplink: false,
            waiting_attempts: VecDeque::new(),
            routes_seen: 0,
            local_seen: 0,
            moved,
            path_watch: PathWatch::default(),
            next_path_watch: now,
            next_carrier_watch: now,
            next_ip_turn: now,
        }
    }

    /// With ports of the server that lead here.
    pub(super) fn with_remote_ports(self, remote_ports: RemotePorts) -> Self {
        Self { remote_ports, ..self }
    }

    /// The server's address that is used.
    pub(super) fn server_address(&self) -> Option<SocketAddr> {
        self.reconnection.address()
    }

    /// The local address to use towards the server, where it was chosen.
    pub(super) fn bind_address(&self) -> Option<SocketAddr> {
        self.bind.map(|ip| SocketAddr::new(ip, 0))
    }

    /// The mark of what goes to the server: beside a tunnel of our own, packets are told from those for it.
    pub(super) fn mark(&self) -> Option<u32> {
        self.ip.as_ref().map(|_| OUTER_MARK)
    }

    pub(super) fn is_up(&self) -> bool {
        self.reconnection.is_up()
    }

    /// Whether a route of our own device leads there.
    fn leads_into_tun(&self, server: IpAddr) -> bool {
        self.ip.as_ref().is_some_and(|host| host.leads_into_tun(server))
    }

    /// Why the connection is about to be given up by us, for the line that people read.
    pub(super) fn set_reason(&mut self, reason: &str) {
        self.reconnection.set_reason(reason);
    }
}

/// The inner end of a request that only a client has.
pub(in crate::driver) enum ClientInner {
    /// Of a UDP session.
    Local(LocalAddress),
    /// Of a UDP session of an association.
    Associated(Box<AssociatedAddress>),
    /// Of a UDP session of the transparent proxy.
    Transparent(Box<TransparentFlow>),
    /// A TCP connection whose target is not open yet.
    Opening(Box<Opening>),
    /// A request that waits for a connection at a port of the server, by the port's number.
    Listening(usize),
    /// A connection that came to a port of the server, and whose target is not open yet.
    Reaching(Box<Reaching>),
}

/// A local program's address at a UDP listener.
pub(super) struct LocalAddress {
    pub(super) listener: SourceId,
    pub(super) address: SocketAddr,
}

/// A client's descriptors that belong to no request.
pub(in crate::driver) enum ClientSource {
    UdpListener(Box<UdpListener>),
    TcpListener(TcpListener),
    /// A TCP connection that names its target.
    Negotiating(Box<Negotiating>),
    /// A TCP connection that comes to nothing.
    Farewell(Farewell),
    /// The socket of an association.
    DatagramRelay(Box<DatagramRelay>),
    /// The TCP connection of an association.
    Control(Control),
    /// UDP of the transparent proxy.
    TransparentListener(Box<TransparentListener>),
    /// What leaves from a target's address.
    AnswerSocket(Box<UdpSocket>),
    /// News of links, addresses and routes.
    Monitor(Monitor),
}

impl Source for ClientSource {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::UdpListener(listener) => listener.socket.as_fd(),
            Self::TcpListener(listener) => listener.socket.as_fd(),
            Self::Negotiating(negotiating) => negotiating.stream.as_fd(),
            Self::Farewell(farewell) => farewell.stream.as_fd(),
            Self::DatagramRelay(relay) => relay.socket.as_fd(),
            Self::Control(control) => control.stream.as_fd(),
            Self::TransparentListener(listener) => listener.socket.as_fd(),
            Self::AnswerSocket(socket) => socket.as_fd(),
            Self::Monitor(monitor) => monitor.as_fd(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::UdpListener(_) => "udp_listener",
            Self::TcpListener(_) => "tcp_listener",
            Self::Negotiating(_) => "negotiation",
            Self::Farewell(_) => "farewell",
            Self::DatagramRelay(_) => "association",
            Self::Control(_) => "association_control",
            Self::TransparentListener(_) => "transparent_listener",
            Self::AnswerSocket(_) => "transparent_answers",
            Self::Monitor(_) => "network_monitor",
        }
    }
}

impl ClientSource {
    pub(super) fn inner_socket(&mut self) -> Option<&mut UdpSocket> {
        match self {
            Self::UdpListener(listener) => Some(&mut listener.socket),
            Self::DatagramRelay(relay) => Some(&mut relay.socket),
            Self::TransparentListener(listener) => Some(&mut listener.socket),
            Self::AnswerSocket(socket) => Some(&mut **socket),
            _ => None,
        }
    }
}

impl Sources<ClientSource> {
    pub(super) fn udp_listener(&mut self, id: SourceId) -> Option<&mut UdpListener> {
        match self.get_mut(id)? {
            ClientSource::UdpListener(listener) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn datagram_relay(&mut self, id: SourceId) -> Option<&mut DatagramRelay> {
        match self.get_mut(id)? {
            ClientSource::DatagramRelay(relay) => Some(relay),
            _ => None,
        }
    }

    /// The socket that local programs' datagrams come to.
    pub(super) fn inner_socket(&mut self, id: SourceId) -> Option<&mut UdpSocket> {
        self.get_mut(id)?.inner_socket()
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
    /// Datagrams of one flow at a transparent listener, from a shard whose stripe is down: all of `segment_size` bytes
    /// but the last.
    TransparentDatagrams {
        listener: usize,
        flow: Flow,
        bytes: BytesMut,
        segment_size: usize,
    },
    /// A local connection with a target, from a shard whose stripe is down.
    Connection(Box<LocalConnection>),
    /// An association of a shard whose stripe is down.
    Association(Box<Association>),
    /// A sibling's connection is lost, so perhaps all are.
    Probe,
}

impl Cost for ClientMessage {
    fn bytes(&self) -> usize {
        match self {
            Self::Datagrams { bytes, .. } | Self::TransparentDatagrams { bytes, .. } => bytes.len(),
            Self::Connection(connection) => connection.bytes(),
            Self::Association(association) => association.answer.len(),
            Self::Probe => 0,
        }
    }
}
