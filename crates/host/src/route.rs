//! Routes of the main table, and the uplink: which interface leads to an address if the TUN is ignored.
//!
//! The kernel itself is asked for the uplink. With a TUN to ignore, the best other route by prefix and metric
//! names the interface, and the kernel is then asked again bound to it, which is what a socket bound to that interface
//! gets.

use std::cmp::Reverse;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use super::error::{Explain, HostError};
use super::link::{family, ip_address, is_absent, octets};
use super::netlink::{
    ACKNOWLEDGE, AttributeReader, CREATE, DUMP, EXCLUSIVE, Message, Messages, REPLACE, number,
};
use super::network::Network;
use super::prefix::Prefix;

pub(super) const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;

pub(super) const ROUTE_HEADER_BYTES: usize = 12;
const TABLE_MAIN: u8 = 254;
const SCOPE_LINK: u8 = 253;
const KIND_UNICAST: u8 = 1;
const KIND_LOCAL: u8 = 2;
/// Who made a route, as for `ip route … proto`; 4 is "static", what administrators write.
const MADE_BY_ADMINISTRATOR: u8 = 4;
/// The protocol number that marks routes of ours on other interfaces than the TUN: only such are ever removed there.
pub(super) const MADE_BY_US: u8 = 0x67;

const FLAG_DEAD: u32 = 0x1;
/// The gateway is taken to be on the link even where no address says so, as clouds have it.
const FLAG_ON_LINK: u32 = 0x4;
const FLAG_LINK_DOWN: u32 = 0x10;
/// A cached exception, not a route.
const FLAG_CLONED: u32 = 0x200;

const ROUTE_DESTINATION: u16 = 1;
pub(super) const ROUTE_INTERFACE: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_METRIC: u16 = 6;
const ROUTE_SOURCE: u16 = 7;
const ROUTE_SETTINGS: u16 = 8;
const ROUTE_HOPS: u16 = 9;
const ROUTE_VIA: u16 = 18;
const SETTING_MTU: u16 = 2;
const HOP_HEADER_BYTES: usize = 8;

/// The kernel's metric of IPv6 routes that name none.
const IPV6_METRIC: u32 = 1024;

/// A route of the main table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// What it leads to.
    pub destination: Prefix,
    /// The interface it leads over.
    pub index: u32,
    /// The next hop, where there is one.
    pub gateway: Option<IpAddr>,
    /// The address that packets of this machine carry on it, where it says one.
    pub source: Option<IpAddr>,
    /// Its own MTU in bytes, where it has one.
    pub mtu: Option<u32>,
    /// The least is taken of equal prefixes; `None` is the kernel's default.
    pub metric: Option<u32>,
}

impl Route {
    /// A route straight over an interface.
    #[must_use]
    pub fn on_link(destination: Prefix, index: u32) -> Self {
        Self {
            destination,
            index,
            gateway: None,
            source: None,
            mtu: None,
            metric: None,
        }
    }

    fn effective_metric(&self) -> u32 {
        let default = if self.destination.address().is_ipv6() {
            IPV6_METRIC
        } else {
            0
        };
        self.metric.unwrap_or(default)
    }
}

/// How packets to an address leave this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The interface.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The next hop; `None` where the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The address that packets of this machine carry.
    pub source: Option<IpAddr>,
}

/// A route of a listing, whatever it does.
struct Listed {
    route: Route,
    table: u8,
    kind: u8,
    flags: u32,
}

impl Network {
    /// The unicast routes of the main table.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn routes(&mut self) -> Result<Vec<Route>, HostError> {
        let listed = self.list_routes()?;
        let unicast = listed.into_iter().filter(|listed| listed.kind == KIND_UNICAST);
        Ok(unicast.map(|listed| listed.route).collect())
    }

    fn list_routes(&mut self) -> Result<Vec<Listed>, HostError> {
        let request = Messages::one(GET_ROUTE, DUMP, &[0; ROUTE_HEADER_BYTES], |_| ());
        let listed = self.socket.list(request, |message| {
            read_route(&message)
                .filter(|listed| listed.table == TABLE_MAIN && listed.flags & FLAG_CLONED == 0)
        });
        listed.explain(|| "list the routes of this machine".to_owned())
    }

    /// Adds a route over the TUN. One for the same destination over the same interface is updated; one over another
    /// interface is never touched.
    ///
    /// # Errors
    /// Another interface has a route of the same destination and metric, the interface is down, or a missing privilege.
    pub fn add_route(&mut self, route: &Route) -> Result<(), HostError> {
        let what = || format!("add a route to {}", route.destination);
        let error = match self.change_route(NEW_ROUTE, CREATE | EXCLUSIVE, route, MADE_BY_ADMINISTRATOR) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => error,
            other => return other.explain(what),
        };
        let rival = self.routes()?.into_iter().find(|other| {
            other.destination == route.destination.network()
                && other.effective_metric() == route.effective_metric()
                && other.index != route.index
        });
        let Some(rival) = rival else {
            return self
                .change_route(NEW_ROUTE, CREATE | REPLACE, route, MADE_BY_ADMINISTRATOR)
                .explain(what);
        };
        let name = self.name_of(rival.index)?;
        let reason = format!("there is one already, via {name}; it is left unchanged");
        Err(HostError::new(what(), io::Error::new(error.kind(), reason)))
    }

    /// Removes a route that [`Self::add_route`] added; that it is not there is fine.
    ///
    /// # Errors
    /// A missing privilege.
    pub fn remove_route(&mut self, route: &Route) -> Result<(), HostError> {
        self.delete_route(route, MADE_BY_ADMINISTRATOR)
    }

    /// Adds a route over another interface than the TUN, marked as ours; an equal one of somebody else serves as well.
    pub(super) fn add_marked_route(&mut self, route: &Route) -> Result<(), HostError> {
        match self.change_route(NEW_ROUTE, CREATE | EXCLUSIVE, route, MADE_BY_US) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.explain(|| format!("add a route to {}", route.destination)),
        }
    }

    /// Removes a route that [`Self::add_marked_route`] added, and no other.
    pub(super) fn remove_marked_route(&mut self, route: &Route) -> Result<(), HostError> {
        self.delete_route(route, MADE_BY_US)
    }

    fn delete_route(&mut self, route: &Route, made_by: u8) -> Result<(), HostError> {
        match self.change_route(DELETE_ROUTE, 0, route, made_by) {
            Err(error) if is_absent(&error) => Ok(()),
            other => other.explain(|| format!("remove the route to {}", route.destination)),
        }
    }

    fn change_route(&mut self, kind: u16, flags: u16, route: &Route, made_by: u8) -> io::Result<()> {
        let destination = route.destination.network();
        // The on-link flag needs a gateway to speak about.
        let on_link = made_by == MADE_BY_US && route.gateway.is_some();
        let scope = if route.gateway.is_none() && destination.address().is_ipv4() {
            SCOPE_LINK
        } else {
            0
        };
        let mut header = [0; ROUTE_HEADER_BYTES];
        header[0] = family(destination.address());
        header[1] = destination.length();
        header[4..8].copy_from_slice(&[TABLE_MAIN, made_by, scope, KIND_UNICAST]);
        header[8..].copy_from_slice(&(if on_link { FLAG_ON_LINK } else { 0 }).to_ne_bytes());
        let request = Messages::one(kind, flags | ACKNOWLEDGE, &header, |attributes| {
            attributes.put(ROUTE_DESTINATION, &octets(destination.address()));
            attributes.put(ROUTE_INTERFACE, &route.index.to_ne_bytes());
            match route.gateway {
                Some(gateway) if family(gateway) == family(destination.address()) => {
                    attributes.put(ROUTE_GATEWAY, &octets(gateway));
                }
                Some(gateway) => {
                    let mut via = u16::from(family(gateway)).to_ne_bytes().to_vec();
                    via.extend(octets(gateway));
                    attributes.put(ROUTE_VIA, &via);
                }
                None => {}
            }
            if let Some(source) = route.source {
                attributes.put(ROUTE_SOURCE, &octets(source));
            }
            if let Some(metric) = route.metric {
                attributes.put(ROUTE_METRIC, &metric.to_ne_bytes());
            }
            if let Some(mtu) = route.mtu {
                attributes.nest(ROUTE_SETTINGS, |settings| {
                    settings.put(SETTING_MTU, &mtu.to_ne_bytes());
                });
            }
        });
        self.socket.request(request)
    }

    /// How packets to `destination` leave this machine, or would without the interface `excluding`; `None` where
    /// nothing leads there.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn uplink_towards(
        &mut self,
        destination: IpAddr,
        excluding: Option<u32>,
    ) -> Result<Option<Uplink>, HostError> {
        let destination = destination.to_canonical();
        match self.ask_route(destination, None)? {
            Some(uplink) if Some(uplink.index) != excluding => return Ok(Some(uplink)),
            None if excluding.is_none() => return Ok(None),
            _ => {}
        }
        let best = self
            .list_routes()?
            .into_iter()
            .filter(|listed| {
                Some(listed.route.index) != excluding
                    && listed.route.destination.contains(destination)
                    && listed.flags & (FLAG_DEAD | FLAG_LINK_DOWN) == 0
            })
            .min_by_key(|listed| {
                let route = &listed.route;
                (Reverse(route.destination.length()), route.effective_metric())
            });
        match best {
            Some(best) if best.kind == KIND_UNICAST => self.ask_route(destination, Some(best.route.index)),
            _ => Ok(None),
        }
    }

    fn ask_route(&mut self, destination: IpAddr, over: Option<u32>) -> Result<Option<Uplink>, HostError> {
        let mut header = [0; ROUTE_HEADER_BYTES];
        header[0] = family(destination);
        header[1] = Prefix::host(destination).length();
        let request = Messages::one(GET_ROUTE, ACKNOWLEDGE, &header, |attributes| {
            attributes.put(ROUTE_DESTINATION, &octets(destination));
            if let Some(index) = over {
                attributes.put(ROUTE_INTERFACE, &index.to_ne_bytes());
            }
        });
        let mut answer = None;
        let asked = self
            .socket
            .ask(request, |message| answer = read_route(&message).or(answer.take()));
        match asked {
            Ok(()) => {}
            Err(error) if leads_nowhere(&error) => return Ok(None),
            Err(error) => {
                return Err(HostError::new(
                    format!("look up the route to {destination}"),
                    error,
                ));
            }
        }
        let usable = |listed: &Listed| matches!(listed.kind, KIND_UNICAST | KIND_LOCAL);
        let Some(route) = answer.filter(usable).map(|listed| listed.route) else {
            return Ok(None);
        };
        // It may vanish between the two questions.
        let Ok(name) = self.name_of(route.index) else {
            return Ok(None);
        };
        Ok(Some(Uplink {
            index: route.index,
            name,
            gateway: route.gateway,
            source: route.source,
        }))
    }
}

/// No route, a route that forbids, or an interface that is down or gone.
fn leads_nowhere(error: &io::Error) -> bool {
    let nowhere = [
        Errno::NETUNREACH,
        Errno::HOSTUNREACH,
        Errno::ACCESS,
        Errno::INVAL,
        Errno::NETDOWN,
        Errno::NODEV,
        Errno::AGAIN,
    ];
    Errno::from_io_error(error).is_some_and(|number| nowhere.contains(&number))
}

fn read_route(message: &Message<'_>) -> Option<Listed> {
    if message.kind != NEW_ROUTE {
        return None;
    }
    let header = message.payload.get(..ROUTE_HEADER_BYTES)?;
    let attributes = message.attributes(ROUTE_HEADER_BYTES);
    let address = |kind| attributes.find(kind).and_then(ip_address);
    let default = if header[0] == family(IpAddr::from([0; 4])) {
        IpAddr::from([0; 4])
    } else {
        IpAddr::from([0; 16])
    };
    let via = |payload: &[u8]| payload.get(2..).and_then(ip_address);
    let (mut index, mut gateway) = (
        attributes.find_number(ROUTE_INTERFACE),
        address(ROUTE_GATEWAY).or_else(|| attributes.find(ROUTE_VIA).and_then(via)),
    );
    // Of several next hops the first stands for all.
    if let Some(hop) = attributes.find(ROUTE_HOPS).filter(|_| index.is_none()) {
        index = number(hop.get(4..8));
        let inner = AttributeReader(hop.get(HOP_HEADER_BYTES..).unwrap_or_default());
        gateway = inner.find(ROUTE_GATEWAY).and_then(ip_address);
    }
    let settings = attributes.find(ROUTE_SETTINGS).map(AttributeReader);
    Some(Listed {
        route: Route {
            destination: Prefix::new(address(ROUTE_DESTINATION).unwrap_or(default), header[1])?,
            // A route that forbids may name no interface.
            index: index.unwrap_or(0),
            gateway,
            source: address(ROUTE_SOURCE),
            mtu: settings.and_then(|settings| settings.find_number(SETTING_MTU)),
            metric: attributes.find_number(ROUTE_METRIC),
        },
        table: header[4],
        kind: header[7],
        flags: number(header.get(8..12))?,
    })
}
