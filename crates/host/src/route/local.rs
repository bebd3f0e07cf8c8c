//! What the kernel takes for this machine: addresses of interfaces, and what is in the table of local routes besides.

use std::io;
use std::os::fd::AsFd;

use netlink_packet_route::route::{RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::message::read_route;
use crate::error::{Explain, HostError};
use crate::network::Network;
use crate::prefix::Prefix;

/// The kernel's own table (`RT_TABLE_LOCAL` of `linux/rtnetlink.h`).
const LOCAL_TABLE: u8 = 255;

impl Network {
    /// Every destination that leads to this machine itself: its addresses, also those of interfaces with tables of
    /// their own, broadcast and anycast addresses, and networks like those of `ip route add local`.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn local_destinations(&mut self) -> Result<Vec<Prefix>, HostError> {
        let addresses = self.addresses(None)?.into_iter();
        let mut found: Vec<Prefix> = addresses
            .map(|address| Prefix::host(address.prefix.address()))
            .collect();
        // An older kernel lists all tables, which is only more to read.
        let _ = packet_io::set_strict_listing(self.socket.as_fd());
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let listed = self.list_local(family);
            found.extend(listed.explain(|| "list the local routes of this machine".to_owned())?);
        }
        Ok(found)
    }

    fn list_local(&mut self, family: AddressFamily) -> io::Result<Vec<Prefix>> {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message.header.table = LOCAL_TABLE;
        let listed = self
            .socket
            .list(RouteNetlinkMessage::GetRoute(message), |message| {
                read_route(message).filter(|listed| {
                    let leads_here = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast];
                    listed.table == LOCAL_TABLE && leads_here.contains(&listed.kind)
                })
            });
        match listed {
            // Nothing was ever up: the table does not exist.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => Ok(listed?
                .into_iter()
                .map(|listed| listed.route.destination)
                .collect()),
        }
    }
}
