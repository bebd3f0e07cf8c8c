//! What a default route leaves outside the tunnel: the server's addresses, what the user excludes, and networks near
//! this machine where the user lets those out. Routing and the kill switch have the same list.
//!
//! Of the server's addresses those count that the link names, and those where the pinned server has answered. An
//! address that only a name server told could be anybody's.

use std::collections::VecDeque;
use std::net::IpAddr;

use host::kill_switch::{Exception, Reason, near_networks};
use host::{HostError, Network, Prefix};

use crate::config::ClientTun;
use crate::driver::tun::host_prefix;
use crate::limits;

pub(super) struct Exceptions {
    /// Index of the TUN, whose networks are not near.
    tun: u32,
    /// The server's addresses in the link.
    named: Vec<IpAddr>,
    /// Other addresses where it was met, the latest last.
    met: VecDeque<IpAddr>,
    excluded: Vec<Prefix>,
    /// `None` where the user does not let them out.
    near: Option<Vec<Prefix>>,
}

impl Exceptions {
    /// # Errors
    /// The kernel does not say which networks are near.
    pub(super) fn new(
        settings: &ClientTun,
        tun: u32,
        servers: &[(String, u16)],
        network: &mut Network,
    ) -> Result<Self, HostError> {
        let named = servers.iter().filter_map(|(host, _)| host.parse().ok());
        let mut exceptions = Self {
            tun,
            named: named.map(|address: IpAddr| address.to_canonical()).collect(),
            met: VecDeque::new(),
            excluded: settings.exclude.iter().filter_map(host_prefix).collect(),
            near: settings.allow_lan.then(Vec::new),
        };
        exceptions.follow_network(network)?;
        Ok(exceptions)
    }

    /// The server was met at this address; the oldest of too many is forgotten. Whether that changes the list.
    pub(super) fn meet(&mut self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if self.named.contains(&address) || self.met.contains(&address) {
            return false;
        }
        if self.met.len() == limits::MET_ADDRESSES_MAX {
            self.met.pop_front();
        }
        self.met.push_back(address);
        true
    }

    /// Looks which networks are near. Whether that changes the list.
    ///
    /// # Errors
    /// The kernel does not answer; the list stays as it was.
    pub(super) fn follow_network(&mut self, network: &mut Network) -> Result<bool, HostError> {
        let Some(near) = &mut self.near else {
            return Ok(false);
        };
        let present = near_networks(network, self.tun)?;
        let is_new = *near != present;
        *near = present;
        Ok(is_new)
    }

    pub(super) fn list(&self) -> Vec<Exception> {
        let servers = self.named.iter().chain(&self.met);
        let servers = servers.map(|address| (Prefix::host(*address), Reason::Server));
        let excluded = self.excluded.iter().map(|prefix| (*prefix, Reason::Excluded));
        let near = self.near.iter().flatten().map(|prefix| (*prefix, Reason::Lan));
        let all = servers.chain(excluded).chain(near);
        all.map(|(prefix, reason)| Exception { prefix, reason }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_where_the_server_was_met_are_bounded_and_those_of_the_link_stay() {
        let named: IpAddr = "192.0.2.1".parse().unwrap();
        let mut exceptions = Exceptions {
            tun: 0,
            named: vec![named],
            met: VecDeque::new(),
            excluded: Vec::new(),
            near: None,
        };
        assert!(!exceptions.meet("::ffff:192.0.2.1".parse().unwrap()));
        for number in 0..2 * limits::MET_ADDRESSES_MAX {
            let address = IpAddr::from([198, 51, 100, u8::try_from(number).unwrap()]);
            assert!(exceptions.meet(address) && !exceptions.meet(address));
        }
        let list = exceptions.list();
        assert_eq!(list.len(), 1 + limits::MET_ADDRESSES_MAX);
        assert_eq!(list[0].prefix, Prefix::host(named));
        assert!(list.iter().all(|exception| exception.reason == Reason::Server));
    }
}
