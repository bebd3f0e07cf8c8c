//! Routes as messages of the kernel's routing subsystem.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Route;
use crate::link::family;
use crate::prefix::Prefix;

/// Who made a route, as for `ip route … proto`: what administrators write.
pub(super) const MADE_BY_ADMINISTRATOR: RouteProtocol = RouteProtocol::Static;
/// The protocol number that marks routes of ours on other interfaces than the TUN: only such are ever removed there.
pub(crate) const MADE_BY_US: RouteProtocol = RouteProtocol::Other(0x67);

/// A route of a listing, whatever it does.
pub(crate) struct Listed {
    pub(crate) route: Route,
    pub(super) table: u8,
    pub(crate) kind: RouteType,
    pub(super) made_by: RouteProtocol,
    pub(super) flags: RouteFlags,
}

/// The message that adds or removes a route of the main table.
pub(super) fn route_message(route: &Route, made_by: RouteProtocol) -> RouteMessage {
    let destination = route.destination.network();
    // The gateway is taken to be on the link even where no address says so, as clouds have it. The flag needs a gateway
    // to speak about.
    let on_link = made_by == MADE_BY_US && route.gateway.is_some();
    let on_scope_link = route.gateway.is_none() && destination.address().is_ipv4();
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(destination.address()),
        destination_prefix_length: destination.length(),
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: made_by,
        scope: if on_scope_link {
            RouteScope::Link
        } else {
            RouteScope::Universe
        },
        kind: RouteType::Unicast,
        flags: if on_link {
            RouteFlags::Onlink
        } else {
            RouteFlags::empty()
        },
        ..RouteHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(destination.address().into()));
    attributes.push(RouteAttribute::Oif(route.index));
    attributes.extend(route.gateway.map(|gateway| {
        if gateway.is_ipv4() == destination.address().is_ipv4() {
            RouteAttribute::Gateway(gateway.into())
        } else {
            RouteAttribute::Via(gateway.into())
        }
    }));
    attributes.extend(
        route
            .source
            .map(|source| RouteAttribute::PrefSource(source.into())),
    );
    attributes.extend(route.metric.map(RouteAttribute::Priority));
    message
}

/// Reads a route of a listing or an answer; `None` where it is none of IPv4 or IPv6.
pub(crate) fn read_route(message: RouteNetlinkMessage) -> Option<Listed> {
    let RouteNetlinkMessage::NewRoute(RouteMessage {
        header, attributes, ..
    }) = message
    else {
        return None;
    };
    let mut destination = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let (mut index, mut first_hop) = (None, None);
    let (mut gateway, mut source, mut metric) = (None, None, None);
    for attribute in attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip_address(&address)?,
            RouteAttribute::Oif(interface) => index = Some(interface),
            RouteAttribute::Gateway(address) => gateway = ip_address(&address),
            RouteAttribute::Via(via) => gateway = via_address(&via),
            RouteAttribute::PrefSource(address) => source = ip_address(&address),
            RouteAttribute::Priority(value) => metric = Some(value),
            RouteAttribute::MultiPath(hops) => first_hop = hops.into_iter().next(),
            _ => {}
        }
    }
    // Of several next hops the first stands for all.
    if let Some(hop) = first_hop.filter(|_| index.is_none()) {
        index = Some(hop.interface_index);
        gateway = hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => ip_address(address),
            RouteAttribute::Via(via) => via_address(via),
            _ => None,
        });
    }
    Some(Listed {
        route: Route {
            destination: Prefix::new(destination, header.destination_prefix_length)?,
            // A route that forbids may name no interface.
            index: index.unwrap_or(0),
            gateway,
            source,
            metric,
        },
        table: header.table,
        kind: header.kind,
        made_by: header.protocol,
        flags: header.flags,
    })
}

fn ip_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn via_address(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(address) => Some((*address).into()),
        RouteVia::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let route = Route {
            destination: "10.1.0.0/16".parse().unwrap(),
            index: 7,
            gateway: Some("192.0.2.1".parse().unwrap()),
            source: Some("192.0.2.7".parse().unwrap()),
            metric: Some(50),
        };
        let other_family = Route {
            gateway: Some("fe80::1".parse().unwrap()),
            ..route
        };
        for route in [
            route,
            other_family,
            Route::on_link("fd77::/64".parse().unwrap(), 3),
        ] {
            let message = RouteNetlinkMessage::NewRoute(route_message(&route, MADE_BY_US));
            assert_eq!(read_route(message).unwrap().route, route);
        }
    }

    #[test]
    fn the_first_of_several_next_hops_stands_for_all() {
        let hop = |index, gateway: &str| {
            let mut hop = netlink_packet_route::route::RouteNextHop::default();
            hop.interface_index = index;
            let gateway: IpAddr = gateway.parse().unwrap();
            hop.attributes = vec![RouteAttribute::Gateway(gateway.into())];
            hop
        };
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.attributes = vec![RouteAttribute::MultiPath(vec![
            hop(4, "192.0.2.1"),
            hop(5, "192.0.2.2"),
        ])];
        let route = read_route(RouteNetlinkMessage::NewRoute(message)).unwrap().route;
        assert_eq!(route.destination.to_string(), "0.0.0.0/0");
        assert_eq!(
            (route.index, route.gateway),
            (4, Some("192.0.2.1".parse().unwrap()))
        );
    }
}
