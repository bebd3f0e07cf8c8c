//! What this machine reaches past the tunnel, so that nothing that the server says leads there.

use std::net::IpAddr;

use host::{HostError, Network, present_name_servers};
use tunnel_proto::{LocalNetworks, Prefix};

use crate::driver::resolver::OwnNameServers;

/// The networks of all interfaces but `tun`, what is excluded, and name servers that it has not brought (`own`).
pub(super) fn find(
    network: &mut Network,
    tun: u32,
    excluded: &[Prefix],
    own: &OwnNameServers,
) -> Result<LocalNetworks, HostError> {
    let on_links = network.local_networks(tun)?;
    let on_links = on_links
        .iter()
        .filter_map(|network| Prefix::new(network.address(), network.length()).ok());
    let is_far = |server: &IpAddr| !server.is_loopback() && !own.contain(*server);
    Ok(LocalNetworks {
        networks: on_links.collect(),
        excluded: excluded.to_vec(),
        resolvers: present_name_servers().into_iter().filter(is_far).collect(),
    })
}
