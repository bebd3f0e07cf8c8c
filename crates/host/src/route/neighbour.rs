//! What the kernel knows about the way to one address: the next hop's interface and hardware address.

use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};

use super::Uplink;
use crate::error::HostError;
use crate::link::{family, is_absent};
use crate::network::Network;

impl Network {
    /// How packets with [`crate::OUTER_MARK`] to `destination` leave this machine, or would over interface `over`;
    /// `None` where nothing leads there.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn way_towards(
        &mut self,
        destination: IpAddr,
        over: Option<u32>,
    ) -> Result<Option<Uplink>, HostError> {
        self.ask_route(destination.to_canonical(), over)
    }

    /// The Ethernet address of a neighbour on interface `index`, where the kernel knows it. Linux 5.0.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn neighbour(&mut self, index: u32, address: IpAddr) -> Result<Option<[u8; 6]>, HostError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.attributes = vec![NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        })];
        let mut known = None;
        let asked = self
            .socket
            .ask(RouteNetlinkMessage::GetNeighbour(message), |message| {
                if let RouteNetlinkMessage::NewNeighbour(message) = message {
                    known = ethernet_address(&message).or(known);
                }
            });
        match asked {
            Ok(()) => Ok(known),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(HostError::new(format!("look up the neighbour {address}"), error)),
        }
    }
}

/// The address of an entry that is in use, be it confirmed or not.
fn ethernet_address(message: &NeighbourMessage) -> Option<[u8; 6]> {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    let is_known = matches!(
        message.header.state,
        Reachable | Stale | Delay | Probe | Noarp | Permanent
    );
    message
        .attributes
        .iter()
        .filter(|_| is_known)
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => bytes.as_slice().try_into().ok(),
            _ => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_without_an_answer_is_not_known() {
        let mut network = Network::open().unwrap();
        let way = network
            .way_towards("127.0.0.1".parse().unwrap(), None)
            .unwrap()
            .unwrap();
        assert_eq!((way.name.as_str(), way.gateway), ("lo", None));
        let unknown = network
            .neighbour(way.index, "192.0.2.1".parse().unwrap())
            .unwrap();
        assert_eq!(unknown, None);
        let mut message = NeighbourMessage::default();
        message.attributes = vec![NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 1])];
        for (state, expected) in [
            (NeighbourState::Stale, Some([2, 0, 0, 0, 0, 1])),
            (NeighbourState::Incomplete, None),
            (NeighbourState::Failed, None),
        ] {
            message.header.state = state;
            assert_eq!(ethernet_address(&message), expected);
        }
    }
}
