//! A client's listeners: opened before the threads run, and the same set for every shard.
//!
//! With several shards each has its own socket at the same address, in a group over which the kernel spreads sources by
//! address and port. The group stays as it is while the process runs, because leaving it and joining it again would
//! send sources to other sockets whose stripes were never in trouble: a shard whose stripe is down gives what comes to
//! a sibling instead.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use packet_io::{SocketOptions, UdpSocket, listen_tcp_group, listen_transparent_tcp_group};
use tunnel_proto::{Protocol, RequestId, Target};

use super::transparent::{TransparentListener, transparent_options};
use crate::config::{CommonConfig, Forward, Negotiator, Proxy};
use crate::driver::outer;
use crate::driver::start::{cannot_listen, unavailable};
use crate::handle::Failure;

/// The way out where a port is not for everybody.
const OTHER_PORT: &str = "another local port";

/// A UDP listener and the sessions behind it.
pub(in crate::driver) struct UdpListener {
    /// Its siblings at other shards have the same.
    pub(in crate::driver) number: usize,
    pub(in crate::driver) socket: UdpSocket,
    pub(in crate::driver) sessions: HashMap<SocketAddr, RequestId>,
    pub(in crate::driver) target: Target,
}

/// A TCP listener.
pub(in crate::driver) struct TcpListener {
    pub(in crate::driver) socket: std::net::TcpListener,
    pub(in crate::driver) kind: ListenerKind,
}

/// Where the target of a listener's connections comes from.
#[derive(Clone)]
pub(in crate::driver) enum ListenerKind {
    /// All have this one.
    Fixed(Target),
    /// Each names its own.
    Negotiated(Negotiator),
    /// Each was on its way there: its local address is the target's.
    Transparent,
}

/// The listeners of one shard.
#[derive(Default)]
pub(in crate::driver) struct Listeners {
    pub(in crate::driver) udp: Vec<UdpListener>,
    pub(in crate::driver) tcp: Vec<TcpListener>,
    pub(in crate::driver) transparent: Vec<TransparentListener>,
}

impl Listeners {
    /// Opens every forward and every proxy for every shard.
    pub(in crate::driver) fn open(
        forwards: &[Forward],
        proxies: &[Proxy],
        transparent_port: Option<u16>,
        common: &CommonConfig,
        shards: usize,
    ) -> Result<Vec<Self>, Failure> {
        let mut listeners: Vec<Self> = (0..shards).map(|_| Self::default()).collect();
        let options = socket_options(common);
        for forward in forwards {
            let target = Target::new(&forward.host, forward.port).map_err(|error| {
                Failure::Configuration(format!(
                    "the target {}:{} cannot be used: {error}",
                    forward.host, forward.port
                ))
            })?;
            match forward.protocol {
                Protocol::Udp => {
                    let sockets = UdpSocket::bind_group(forward.listen, shards, &options)
                        .map_err(|error| cannot_listen(&error, forward.listen, OTHER_PORT))?;
                    for (shard, socket) in listeners.iter_mut().zip(sockets) {
                        shard.udp.push(UdpListener {
                            number: shard.udp.len(),
                            socket,
                            sessions: HashMap::new(),
                            target: target.clone(),
                        });
                    }
                }
                Protocol::Tcp => {
                    open_tcp(&mut listeners, forward.listen, &ListenerKind::Fixed(target))?;
                }
            }
        }
        for proxy in proxies {
            let kind = ListenerKind::Negotiated(Arc::clone(&proxy.negotiator));
            open_tcp(&mut listeners, proxy.listen, &kind)?;
        }
        if let Some(port) = transparent_port {
            open_transparent(&mut listeners, port, common)?;
        }
        Ok(listeners)
    }
}

/// Of a socket to which local programs send datagrams.
pub(super) fn socket_options(common: &CommonConfig) -> SocketOptions {
    SocketOptions {
        receive_ecn: false,
        dont_fragment: false,
        ..outer::options(common)
    }
}

/// Opens the listeners of the transparent proxy for every shard, at the loopback addresses: what nftables leads there
/// has other ones.
fn open_transparent(listeners: &mut [Listeners], port: u16, common: &CommonConfig) -> Result<(), Failure> {
    let options = transparent_options(common);
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let at = SocketAddr::new(ip, port);
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => Failure::Permission(format!(
                "{error}: the transparent proxy needs root or the capability CAP_NET_RAW"
            )),
            _ => unavailable(&error),
        };
        let tcp = match listen_transparent_tcp_group(at, listeners.len()) {
            // The machine has no IPv6.
            Err(error) if ip.is_ipv6() && error.kind() == io::ErrorKind::AddrNotAvailable => continue,
            other => other.map_err(refused)?,
        };
        let udp = UdpSocket::bind_group(at, listeners.len(), &options).map_err(refused)?;
        for ((shard, tcp), udp) in listeners.iter_mut().zip(tcp).zip(udp) {
            shard.tcp.push(TcpListener {
                socket: tcp,
                kind: ListenerKind::Transparent,
            });
            let number = shard.transparent.len();
            shard.transparent.push(TransparentListener::new(number, udp));
        }
    }
    Ok(())
}

/// Opens a TCP listener for every shard.
fn open_tcp(listeners: &mut [Listeners], at: SocketAddr, kind: &ListenerKind) -> Result<(), Failure> {
    let sockets =
        listen_tcp_group(at, listeners.len()).map_err(|error| cannot_listen(&error, at, OTHER_PORT))?;
    for (shard, socket) in listeners.iter_mut().zip(sockets) {
        let kind = kind.clone();
        shard.tcp.push(TcpListener { socket, kind });
    }
    Ok(())
}
