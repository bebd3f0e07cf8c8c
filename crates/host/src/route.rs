//! Routes of the main table, and the uplink: which interface leads to an address if the TUN is ignored.
//!
//! The kernel itself is asked for the uplink, as for packets with [`OUTER_MARK`]. With a TUN to ignore, the best other
//! route by prefix and metric names the interface, and the kernel is then asked again bound to it, which is what a
//! socket bound to that interface gets.

mod local;
mod message;
mod neighbour;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use rustix::io::Errno;

use super::error::{Explain, HostError};
use super::link::{family, is_absent};
use super::mark::OUTER_MARK;
use super::network::Network;
use super::prefix::Prefix;
use message::{Listed, MADE_BY_ADMINISTRATOR, route_message};
pub(super) use message::{MADE_BY_US, read_route};

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

/// Reads a message as listings do.
pub(super) fn read(message: RouteNetlinkMessage) -> Option<Route> {
    read_route(message).map(|listed| listed.route)
}

/// By destination and metric, the interfaces that have a route.
type Present = HashMap<(Prefix, u32), Vec<u32>>;

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

impl Network {
    /// The unicast routes of the main table.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn routes(&mut self) -> Result<Vec<Route>, HostError> {
        let listed = self.list_routes()?;
        let unicast = listed
            .into_iter()
            .filter(|listed| listed.kind == RouteType::Unicast);
        Ok(unicast.map(|listed| listed.route).collect())
    }

    fn list_routes(&mut self) -> Result<Vec<Listed>, HostError> {
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let listed = self.socket.list(request, |message| {
            // A cloned one is a cached exception, not a route.
            read_route(message).filter(|listed| {
                listed.table == RouteHeader::RT_TABLE_MAIN && !listed.flags.contains(RouteFlags::Cloned)
            })
        });
        listed.explain(|| "list the routes of this machine".to_owned())
    }

    /// Adds routes over the TUN. One for the same destination over the same interface is updated; one over another
    /// interface is never touched. What came of each, in their order.
    ///
    /// # Errors
    /// Another interface has a route of the same destination and metric, the interface is down, or a missing privilege.
    pub fn add_routes(&mut self, routes: &[Route]) -> Vec<Result<(), HostError>> {
        // Listed once, where one of them is there already.
        let mut present = None;
        let added = routes.iter().map(|route| self.add_route(route, &mut present));
        added.collect()
    }

    fn add_route(&mut self, route: &Route, present: &mut Option<Present>) -> Result<(), HostError> {
        let what = || format!("add a route to {}", route.destination);
        let new = RouteNetlinkMessage::NewRoute;
        let added = self.change_route(new, NLM_F_CREATE | NLM_F_EXCL, route, MADE_BY_ADMINISTRATOR);
        let Some(error) = added
            .as_ref()
            .err()
            .filter(|error| error.kind() == io::ErrorKind::AlreadyExists)
        else {
            return added.explain(what);
        };
        let present = match present {
            Some(present) => present,
            None => present.insert(self.present()?),
        };
        let key = (route.destination.network(), route.effective_metric());
        let mut others = present.get(&key).into_iter().flatten();
        let Some(rival) = others.find(|index| **index != route.index) else {
            return self
                .change_route(new, NLM_F_CREATE | NLM_F_REPLACE, route, MADE_BY_ADMINISTRATOR)
                .explain(what);
        };
        let name = self.name_of(*rival)?;
        let reason = format!("there is one already, via {name}; it is left unchanged");
        Err(HostError::new(what(), io::Error::new(error.kind(), reason)))
    }

    fn present(&mut self) -> Result<Present, HostError> {
        let mut present = Present::new();
        for route in self.routes()? {
            let key = (route.destination, route.effective_metric());
            present.entry(key).or_default().push(route.index);
        }
        Ok(present)
    }

    /// Removes a route that [`Self::add_routes`] added; that it is not there is fine.
    ///
    /// # Errors
    /// A missing privilege.
    pub fn remove_route(&mut self, route: &Route) -> Result<(), HostError> {
        self.delete_route(route, MADE_BY_ADMINISTRATOR)
    }

    /// Adds a route over another interface than the TUN, marked as ours; an equal one of somebody else serves as well.
    pub(super) fn add_marked_route(&mut self, route: &Route) -> Result<(), HostError> {
        match self.change_route(
            RouteNetlinkMessage::NewRoute,
            NLM_F_CREATE | NLM_F_EXCL,
            route,
            MADE_BY_US,
        ) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.explain(|| format!("add a route to {}", route.destination)),
        }
    }

    /// Removes a route that [`Self::add_marked_route`] added, and no other.
    pub(super) fn remove_marked_route(&mut self, route: &Route) -> Result<(), HostError> {
        self.delete_route(route, MADE_BY_US)
    }

    fn delete_route(&mut self, route: &Route, made_by: RouteProtocol) -> Result<(), HostError> {
        match self.change_route(RouteNetlinkMessage::DelRoute, 0, route, made_by) {
            Err(error) if is_absent(&error) => Ok(()),
            other => other.explain(|| format!("remove the route to {}", route.destination)),
        }
    }

    fn change_route(
        &mut self,
        kind: fn(RouteMessage) -> RouteNetlinkMessage,
        flags: u16,
        route: &Route,
        made_by: RouteProtocol,
    ) -> io::Result<()> {
        self.socket.change(flags, kind(route_message(route, made_by)))
    }

    /// How packets with [`OUTER_MARK`] to `destination` leave this machine, or would without the interface `excluding`
    /// and without exception routes; `None` where nothing leads there.
    ///
    /// # Errors
    /// The kernel does not answer.
    pub fn uplink_towards(
        &mut self,
        destination: IpAddr,
        excluding: Option<u32>,
    ) -> Result<Option<Uplink>, HostError> {
        let destination = destination.to_canonical();
        let asked = self.ask_route(destination, None)?;
        let Some(excluding) = excluding else {
            return Ok(asked);
        };
        if asked.as_ref().is_some_and(|uplink| uplink.index != excluding)
            && !self.is_exception(destination)?
        {
            return Ok(asked);
        }
        let best = self
            .list_routes()?
            .into_iter()
            .filter(|listed| {
                listed.route.index != excluding
                    && listed.made_by != MADE_BY_US
                    && listed.route.destination.contains(destination)
                    && !listed.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown)
            })
            .min_by_key(|listed| {
                let route = &listed.route;
                (Reverse(route.destination.length()), route.effective_metric())
            });
        let Some(best) = best.filter(|best| best.kind == RouteType::Unicast) else {
            return Ok(None);
        };
        let gateway = best.route.gateway;
        let over = self.ask_route(destination, Some(best.route.index))?;
        // The kernel may name an exception route's gateway.
        Ok(over.map(|uplink| Uplink { gateway, ..uplink }))
    }

    /// Whether the route that the kernel takes is an exception route.
    fn is_exception(&mut self, destination: IpAddr) -> Result<bool, HostError> {
        let mut message = question(destination);
        message.header.flags = RouteFlags::FibMatch;
        let matched = self.answer(destination, message)?;
        Ok(matched.is_some_and(|listed| listed.made_by == MADE_BY_US))
    }

    fn ask_route(&mut self, destination: IpAddr, over: Option<u32>) -> Result<Option<Uplink>, HostError> {
        let mut message = question(destination);
        message.attributes.extend(over.map(RouteAttribute::Oif));
        let answer = self.answer(destination, message)?;
        let usable = |listed: &Listed| matches!(listed.kind, RouteType::Unicast | RouteType::Local);
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

    /// What the kernel answers to a question about a destination; `None` where nothing leads there.
    fn answer(&mut self, destination: IpAddr, question: RouteMessage) -> Result<Option<Listed>, HostError> {
        let mut answer = None;
        let asked = self
            .socket
            .ask(RouteNetlinkMessage::GetRoute(question), |message| {
                answer = read_route(message).or(answer.take());
            });
        match asked {
            Ok(()) => Ok(answer),
            Err(error) if leads_nowhere(&error) => Ok(None),
            Err(error) => Err(HostError::new(
                format!("look up the route to {destination}"),
                error,
            )),
        }
    }
}

/// Asks which route the kernel takes for packets that keep beside the tunnel.
fn question(destination: IpAddr) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(destination);
    message.header.destination_prefix_length = Prefix::host(destination).length();
    message.attributes = vec![
        RouteAttribute::Destination(destination.into()),
        RouteAttribute::Mark(OUTER_MARK),
    ];
    message
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
