//! Ports of a server whose connections lead to a client, as either end shows them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Serialize;
use tunnel_proto::UserId;

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListenerSnapshot {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Server: whose client has it.
    pub user: Option<UserId>,
    /// Client: where connections lead.
    pub target: Option<String>,
    /// Whether the server listens there.
    pub is_open: bool,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Connections that came.
    pub total: u64,
}

impl Default for ListenerSnapshot {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            user: None,
            target: None,
            is_open: false,
            waiting: 0,
            total: 0,
        }
    }
}

/// Adds what another shard has: of each port one has the requests.
pub(super) fn add(sum: &mut Vec<ListenerSnapshot>, part: Vec<ListenerSnapshot>) {
    for listener in part {
        match sum.iter_mut().find(|known| known.address == listener.address) {
            Some(known) => {
                known.is_open |= listener.is_open;
                known.waiting += listener.waiting;
                known.total += listener.total;
            }
            None => sum.push(listener),
        }
    }
    sum.sort_by_key(|listener| listener.address);
}
