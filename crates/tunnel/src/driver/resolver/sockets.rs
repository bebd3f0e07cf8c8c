//! Sockets towards name servers. Those of a client with a TUN keep to the uplink as its outer socket does: through the
//! tunnel they would wait for the very server whose name they ask for.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime};
use host::{Network, OUTER_MARK};
use packet_io::{InterfaceName, bind_to_interface, set_mark};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

use crate::limits;

/// How packets that are not to go through a tunnel of ours leave this machine.
#[derive(Clone, Default)]
pub(in crate::driver) enum Way {
    /// As the routes say: there is no such tunnel.
    #[default]
    Routes,
    /// By the uplink, as if the interface of this index were not there.
    Uplink(Arc<Mutex<Network>>, u32),
}

impl Way {
    /// By the uplink, whatever routes the interface `tun` has.
    pub(in crate::driver) fn beside(network: Network, tun: u32) -> Self {
        Self::Uplink(Arc::new(Mutex::new(network)), tun)
    }

    /// Whether something leads there; nothing is sent.
    pub(super) fn leads_to(&self, address: IpAddr) -> bool {
        match self {
            Self::Routes => has_route(address),
            Self::Uplink(..) => self.device_towards(address).is_ok(),
        }
    }

    /// The interface that a socket has to be bound to, if any.
    fn device_towards(&self, address: IpAddr) -> io::Result<Option<InterfaceName>> {
        let Self::Uplink(network, tun) = self else {
            return Ok(None);
        };
        if address.is_loopback() {
            return Ok(None);
        }
        // Each call leaves it whole.
        let mut network = network.lock().unwrap_or_else(PoisonError::into_inner);
        match network.uplink_towards(address, Some(*tun)) {
            Ok(Some(uplink)) => uplink.name.parse().map(Some),
            Ok(None) => Err(io::ErrorKind::NetworkUnreachable.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// Whether the kernel knows a way there; nothing is sent, and the port does not matter.
fn has_route(address: IpAddr) -> bool {
    let unspecified: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    std::net::UdpSocket::bind((unspecified, 0))
        .is_ok_and(|socket| socket.connect((address, limits::ANY_PORT)).is_ok())
}

/// Makes the sockets that name servers are asked by.
#[derive(Clone, Default)]
pub(super) struct Sockets {
    runtime: TokioRuntimeProvider,
    way: Way,
}

impl Sockets {
    pub(super) fn new(way: Way) -> Self {
        Self {
            runtime: TokioRuntimeProvider::default(),
            way,
        }
    }
}

type Made<T> = Pin<Box<dyn Send + Future<Output = io::Result<T>>>>;

impl RuntimeProvider for Sockets {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> Self::Handle {
        self.runtime.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        local: Option<SocketAddr>,
        limit: Option<Duration>,
    ) -> Made<Self::Tcp> {
        let device = self.way.device_towards(server.ip());
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            if let Some(device) = device? {
                set_mark(&socket, OUTER_MARK)?;
                bind_to_interface(&socket, device)?;
            }
            if let Some(local) = local {
                socket.bind(local)?;
            }
            socket.set_nodelay(true)?;
            let limit = limit.unwrap_or(limits::RESOLUTION_TRY_TIME);
            let stream = tokio::time::timeout(limit, socket.connect(server)).await??;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, local: SocketAddr, server: SocketAddr) -> Made<Self::Udp> {
        let device = self.way.device_towards(server.ip());
        Box::pin(async move {
            let device = device?;
            let socket = UdpSocket::bind(local).await?;
            if let Some(device) = device {
                set_mark(&socket, OUTER_MARK)?;
                bind_to_interface(&socket, device)?;
            }
            Ok(socket)
        })
    }
}
