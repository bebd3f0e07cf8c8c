//! Links and their addresses, by rtnetlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::{Explain, HostError};
use super::netlink::{ACKNOWLEDGE, CREATE, DUMP, Messages, REPLACE, number};
use super::network::Network;
use super::prefix::Prefix;

pub(super) const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
pub(super) const NEW_ADDRESS: u16 = 20;
const DELETE_ADDRESS: u16 = 21;
const GET_ADDRESS: u16 = 22;

const LINK_MTU: u16 = 4;
const LINK_QUEUE_LENGTH: u16 = 13;
const LINK_HEADER_BYTES: usize = 16;
const LINK_UP: u32 = 1;

const ADDRESS_PEER: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_HEADER_BYTES: usize = 8;
/// No duplicate address detection: nobody else is on a TUN, and the address is wanted now.
const ADDRESS_NO_DETECTION: u8 = 0x02;

/// Below it the kernel takes IPv6 from an interface (RFC 8200 section 5).
const IPV6_MTU_MIN: u32 = 1280;

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
        let flags = if up { LINK_UP } else { 0 };
        self.change_link(index, (flags, LINK_UP), None)
            .explain(|| format!("set interface {index} {}", if up { "up" } else { "down" }))
    }

    /// The MTU of an interface in bytes.
    ///
    /// # Errors
    /// No such interface.
    pub fn mtu(&mut self, index: u32) -> Result<u32, HostError> {
        let mut mtu = None;
        let request = Messages::one(GET_LINK, ACKNOWLEDGE, &link_header(index, 0, 0), |_| ());
        self.socket
            .ask(request, |message| {
                mtu = message.attributes(LINK_HEADER_BYTES).find_number(LINK_MTU);
            })
            .and_then(|()| mtu.ok_or_else(|| io::ErrorKind::InvalidData.into()))
            .explain(|| format!("read the MTU of interface {index}"))
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
        self.change_link(index, (0, 0), Some((LINK_MTU, bytes)))
            .explain(what)
    }

    /// Sets the length of an interface's transmit queue in packets.
    ///
    /// # Errors
    /// No such interface, or a missing privilege.
    pub fn set_queue_length(&mut self, index: u32, packets: u32) -> Result<(), HostError> {
        self.change_link(index, (0, 0), Some((LINK_QUEUE_LENGTH, packets)))
            .explain(|| format!("set the queue of interface {index} to {packets} packets"))
    }

    fn change_link(
        &mut self,
        index: u32,
        (flags, mask): (u32, u32),
        attribute: Option<(u16, u32)>,
    ) -> io::Result<()> {
        let header = link_header(index, flags, mask);
        let request = Messages::one(NEW_LINK, ACKNOWLEDGE, &header, |attributes| {
            if let Some((kind, value)) = attribute {
                attributes.put(kind, &value.to_ne_bytes());
            }
        });
        self.socket.request(request)
    }

    /// The addresses of one interface, or of all.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn addresses(&mut self, index: Option<u32>) -> Result<Vec<InterfaceAddress>, HostError> {
        let request = Messages::one(GET_ADDRESS, DUMP, &[0; ADDRESS_HEADER_BYTES], |_| ());
        let addresses = self.socket.list(request, |message| {
            if message.kind != NEW_ADDRESS {
                return None;
            }
            let attributes = message.attributes(ADDRESS_HEADER_BYTES);
            // On a point-to-point link ADDRESS_PEER is the other end.
            let address = attributes
                .find(ADDRESS_LOCAL)
                .or_else(|| attributes.find(ADDRESS_PEER))
                .and_then(ip_address)?;
            Some(InterfaceAddress {
                index: number(message.payload.get(4..8))?,
                prefix: Prefix::new(address, *message.payload.get(1)?)?,
            })
        });
        let mut addresses = addresses.explain(|| "list the addresses of this machine".to_owned())?;
        addresses.retain(|address| index.is_none_or(|index| index == address.index));
        Ok(addresses)
    }

    /// Gives an interface an address; that it has it already is fine. IPv6 addresses work at once.
    ///
    /// # Errors
    /// No such interface, a missing privilege, IPv6 switched off.
    pub fn add_address(&mut self, index: u32, prefix: Prefix) -> Result<(), HostError> {
        self.change_address(NEW_ADDRESS, CREATE | REPLACE, index, prefix)
            .explain(|| format!("add the address {prefix} to interface {index}"))
    }

    /// Takes an address from an interface; that it does not have it is fine.
    ///
    /// # Errors
    /// A missing privilege.
    pub fn remove_address(&mut self, index: u32, prefix: Prefix) -> Result<(), HostError> {
        match self.change_address(DELETE_ADDRESS, 0, index, prefix) {
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

    fn change_address(&mut self, kind: u16, flags: u16, index: u32, prefix: Prefix) -> io::Result<()> {
        let mut header = [0; ADDRESS_HEADER_BYTES];
        header[0] = family(prefix.address());
        header[1] = prefix.length();
        header[2] = if prefix.address().is_ipv6() {
            ADDRESS_NO_DETECTION
        } else {
            0
        };
        header[4..].copy_from_slice(&index.to_ne_bytes());
        let address = octets(prefix.address());
        self.socket
            .request(Messages::one(kind, flags | ACKNOWLEDGE, &header, |attributes| {
                attributes.put(ADDRESS_LOCAL, &address);
                attributes.put(ADDRESS_PEER, &address);
            }))
    }
}

fn link_header(index: u32, flags: u32, mask: u32) -> [u8; LINK_HEADER_BYTES] {
    let mut header = [0; LINK_HEADER_BYTES];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..].copy_from_slice(&mask.to_ne_bytes());
    header
}

fn is_link_local_v6(prefix: &Prefix) -> bool {
    matches!(prefix.address(), IpAddr::V6(address) if address.is_unicast_link_local())
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

/// The number of an address family.
pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

/// An address in network order.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// An address in network order, by its length.
pub(super) fn ip_address(octets: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        return Some(IpAddr::V4(Ipv4Addr::from(octets)));
    }
    let octets = <[u8; 16]>::try_from(octets).ok()?;
    Some(IpAddr::V6(Ipv6Addr::from(octets)))
}
