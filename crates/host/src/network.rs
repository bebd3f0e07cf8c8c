//! The routing socket, and what concerns interfaces by name.

use std::io;

use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::netdevice;

use super::error::{Explain, HostError};
use super::netlink::Socket;
use super::parameter;

/// A connection to the kernel's routing subsystem: links, addresses and routes of the namespace it was opened in.
#[derive(Debug)]
pub struct Network {
    pub(super) socket: Socket<RouteNetlinkMessage>,
}

impl Network {
    /// Opens it; needs no privilege, changes do.
    ///
    /// # Errors
    /// The system has no more sockets.
    pub fn open() -> Result<Self, HostError> {
        let socket =
            Socket::open().explain(|| "query the kernel's network configuration (netlink)".to_owned())?;
        Ok(Self { socket })
    }

    /// The index of an interface.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn index_of(&self, name: &str) -> Result<u32, HostError> {
        netdevice::name_to_index(&self.socket, name).explain(|| format!("find the interface {name}"))
    }

    /// The name of an interface.
    ///
    /// # Errors
    /// There is none of this index.
    pub fn name_of(&self, index: u32) -> Result<String, HostError> {
        netdevice::index_to_name(&self.socket, index).explain(|| format!("find the interface number {index}"))
    }

    /// Readies a TUN that is still down: IPv6 on but without addresses and routers of its own making, and a filter of
    /// reverse paths that does not judge by the routes of other interfaces. With `takes_own`, packets from this
    /// machine's own addresses are taken: a server's ICMP answers come from one. All of it vanishes with the TUN.
    ///
    /// # Errors
    /// A missing privilege.
    pub fn prepare_tun(&self, name: &str, takes_own: bool) -> Result<(), HostError> {
        let settings = [
            (format!("net/ipv6/conf/{name}/disable_ipv6"), "0"),
            (format!("net/ipv6/conf/{name}/accept_ra"), "0"),
            (format!("net/ipv6/conf/{name}/addr_gen_mode"), "1"),
            (format!("net/ipv4/conf/{name}/rp_filter"), "2"),
            (
                format!("net/ipv4/conf/{name}/accept_local"),
                if takes_own { "1" } else { "0" },
            ),
        ];
        for (parameter, value) in settings {
            match parameter::write(&parameter, value) {
                // A kernel without IPv6, or older than the parameter.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
        Ok(())
    }
}
