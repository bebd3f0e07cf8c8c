//! Links and their addresses, by rtnetlink.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::error::{Explain, HostError};
use super::network::Network;
use super::prefix::Prefix;

/// Below it the kernel takes IPv6 from an interface (RFC 8200 section 5).
const IPV6_MTU_MIN: u32 = 1280;

/// Index of the loopback interface in every network namespace.
const LOOPBACK: u32 = 1;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface.
    pub index: u32,
    /// The address, with the length of the network that is on the link.
    pub prefix: Prefix,
}

impl Network {
    /// Takes an interface up or down.
    ///
    /// # Errors
    /// No such interface, or a missing privilege.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), HostError> {
        let mut message = link(index);
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        self.change_link(message)
            .explain(|| format!("set interface {index} {}", if up { "up" } else { "down" }))
    }

    /// Sets the MTU of an interface in bytes.
    ///
    /// # Errors
    /// No such interface, a missing privilege, or less than 1280 bytes while it has IPv6 addresses (others than
    /// link-local): the kernel would delete them.
    pub fn set_mtu(&mut self, index: u32, bytes: u32) -> Result<(), HostError> {
        let what = || format!("set the MTU of interface {index} to {bytes}");
        if bytes < IPV6_MTU_MIN {
            let addresses = self.addresses(Some(index))?;
            if let Some(lost) = addresses.iter().find(|address| is_global_v6(&address.prefix)) {
                let reason = format!(
                    "its IPv6 address {} needs at least {IPV6_MTU_MIN} bytes",
                    lost.prefix.address()
                );
                return Err(HostError::new(
                    what(),
                    io::Error::new(io::ErrorKind::InvalidInput, reason),
                ));
            }
        }
        let mut message = link(index);
        message.attributes.push(LinkAttribute::Mtu(bytes));
        self.change_link(message).explain(what)
    }

    /// Sets the length of an interface's transmit queue in packets.
    ///
    /// # Errors
    /// No such interface, or a missing privilege.
    pub fn set_queue_length(&mut self, index: u32, packets: u32) -> Result<(), HostError> {
        let mut message = link(index);
        message.attributes.push(LinkAttribute::TxQueueLen(packets));
        self.change_link(message)
            .explain(|| format!("set the queue of interface {index} to {packets} packets"))
    }

    fn change_link(&mut self, message: LinkMessage) -> io::Result<()> {
        self.socket.change(0, RouteNetlinkMessage::NewLink(message))
    }

    /// The addresses of one interface, or of all.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn addresses(&mut self, index: Option<u32>) -> Result<Vec<InterfaceAddress>, HostError> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let addresses = self.socket.list(request, read_address);
        let mut addresses = addresses.explain(|| "list the addresses of this machine".to_owned())?;
        addresses.retain(|address| index.is_none_or(|index| index == address.index));
        Ok(addresses)
    }

    /// The networks that are on the links of this machine, but for those of the interface `tun`: whoever is there is
    /// reached without it. Nobody is on the loopback interface.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn local_networks(&mut self, tun: u32) -> Result<Vec<Prefix>, HostError> {
        let mut networks: Vec<Prefix> = self
            .addresses(None)?
            .into_iter()
            .filter(|address| ![tun, LOOPBACK].contains(&address.index) && !means_one_link(&address.prefix))
            .map(|address| address.prefix.network())
            .collect();
        networks.sort_unstable();
        networks.dedup();
        Ok(networks)
    }

    /// Gives an interface an address; that it has it already is fine. IPv6 addresses work at once.
    ///
    /// # Errors
    /// No such interface, a missing privilege, IPv6 switched off.
    pub fn add_address(&mut self, index: u32, prefix: Prefix) -> Result<(), HostError> {
        self.socket
            .change(
                NLM_F_CREATE | NLM_F_REPLACE,
                RouteNetlinkMessage::NewAddress(address_message(index, prefix)),
            )
            .explain(|| format!("add the address {prefix} to interface {index}"))
    }

    /// Takes an address from an interface; that it does not have it is fine.
    ///
    /// # Errors
    /// A missing privilege.
    pub fn remove_address(&mut self, index: u32, prefix: Prefix) -> Result<(), HostError> {
        let request = RouteNetlinkMessage::DelAddress(address_message(index, prefix));
        match self.socket.change(0, request) {
            Err(error) if is_absent(&error) => Ok(()),
            other => other.explain(|| format!("remove the address {prefix} from interface {index}")),
        }
    }

    /// Gives an interface exactly these addresses; link-local ones stay. New ones come before old ones go.
    ///
    /// # Errors
    /// As [`Self::add_address`].
    pub fn replace_addresses(&mut self, index: u32, wanted: &[Prefix]) -> Result<(), HostError> {
        for &prefix in wanted {
            self.add_address(index, prefix)?;
        }
        for present in self.addresses(Some(index))? {
            let kept = wanted.contains(&present.prefix) || is_link_local_v6(&present.prefix);
            if !kept {
                self.remove_address(index, present.prefix)?;
            }
        }
        Ok(())
    }
}

fn link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn address_message(index: u32, prefix: Prefix) -> AddressMessage {
    let address = prefix.address();
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix.length();
    message.header.index = index;
    if address.is_ipv6() {
        // No duplicate address detection: nobody else is on a TUN, and the address is wanted now.
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes = vec![
        AddressAttribute::Local(address),
        AddressAttribute::Address(address),
    ];
    if prefix == Prefix::host(address) {
        // Routes of a single address are made by whoever gives it.
        let flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
        let flags = AddressAttribute::Flags(flags | AddressFlags::Noprefixroute);
        message.attributes.push(flags);
    }
    message
}

fn read_address(message: RouteNetlinkMessage) -> Option<InterfaceAddress> {
    let RouteNetlinkMessage::NewAddress(message) = message else {
        return None;
    };
    let (mut local, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(address) => local = Some(*address),
            // On a point-to-point link it is the other end.
            AddressAttribute::Address(address) => other = Some(*address),
            _ => {}
        }
    }
    Some(InterfaceAddress {
        index: message.header.index,
        prefix: Prefix::new(local.or(other)?, message.header.prefix_len)?,
    })
}

fn is_link_local_v6(prefix: &Prefix) -> bool {
    matches!(prefix.address(), IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Loopback and link-local addresses are everywhere.
fn means_one_link(prefix: &Prefix) -> bool {
    let is_link_local = match prefix.address() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || prefix.address().is_loopback()
}

fn is_global_v6(prefix: &Prefix) -> bool {
    prefix.address().is_ipv6() && !is_link_local_v6(prefix)
}

/// What the kernel says where an object to remove is not there, or its interface is not.
pub(super) fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let absent = [
        Errno::ADDRNOTAVAIL,
        Errno::SRCH,
        Errno::NODEV,
        Errno::NOENT,
        Errno::NXIO,
    ];
    Errno::from_io_error(error).is_some_and(|number| absent.contains(&number))
}

/// The address family of an address.
pub(super) fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}
