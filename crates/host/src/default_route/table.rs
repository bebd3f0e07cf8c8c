//! What the table of our own holds, and how it gets there.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteScope, RouteType};

use crate::error::{Explain, HostError};
use crate::link::{family, is_absent};
use crate::network::Network;
use crate::prefix::Prefix;
use crate::route::{MADE_BY_US, read_route};

/// The kernel's default for IPv6; the same for IPv4.
const METRIC: u32 = 1_024;

/// Every other route of the same prefix wins.
const LAST_METRIC: u32 = u32::MAX;

/// Packets to these never leave the link (RFC 4291 section 2.5.6), and DHCPv6 needs them. An unreachable route would
/// hold for sockets that are bound to the link, too.
const LINK_LOCAL_V6: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10);

/// A route of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) destination: Prefix,
    leads: Leads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leads {
    IntoTun,
    /// Back to the rules behind ours.
    PastTunnel,
    /// Nowhere, unless another entry does: programs hear so at once.
    Nowhere,
}

/// The entries that lead `into_tun` and what is in `exceptions` past it, with those that are always there.
pub(super) fn wanted(into_tun: &[Prefix], exceptions: &[Prefix]) -> BTreeSet<Entry> {
    let whole = |address: IpAddr| Prefix::new(address, 0);
    let everything = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let nowhere = everything.into_iter().filter_map(whole);
    let past: BTreeSet<Prefix> = exceptions
        .iter()
        .copied()
        .chain(Prefix::new(LINK_LOCAL_V6.0, LINK_LOCAL_V6.1))
        .map(|prefix| prefix.network())
        .collect();
    let into: BTreeSet<Prefix> = into_tun.iter().map(Prefix::network).collect();
    let entry = |leads| move |destination| Entry { destination, leads };
    into.difference(&past)
        .copied()
        .map(entry(Leads::IntoTun))
        .chain(past.iter().copied().map(entry(Leads::PastTunnel)))
        .chain(nowhere.map(entry(Leads::Nowhere)))
        .collect()
}

impl Entry {
    fn kind(self) -> RouteType {
        match self.leads {
            Leads::IntoTun => RouteType::Unicast,
            Leads::PastTunnel => RouteType::Throw,
            Leads::Nowhere => RouteType::Unreachable,
        }
    }

    fn metric(self) -> u32 {
        match self.leads {
            Leads::IntoTun | Leads::PastTunnel => METRIC,
            Leads::Nowhere => LAST_METRIC,
        }
    }

    fn message(self, table: u32, tun: u32) -> RouteMessage {
        let destination = self.destination;
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(destination.address()),
            destination_prefix_length: destination.length(),
            // The attribute has the number, which does not fit.
            table: RouteHeader::RT_TABLE_UNSPEC,
            protocol: MADE_BY_US,
            // Where somebody adds a route over a gateway, the kernel looks for the gateway by narrower scopes: it must
            // not find it in the tunnel, nor unreachable.
            scope: RouteScope::Universe,
            kind: self.kind(),
            ..RouteHeader::default()
        };
        message.attributes = vec![
            RouteAttribute::Destination(destination.address().into()),
            RouteAttribute::Table(table),
            RouteAttribute::Priority(self.metric()),
        ];
        if self.leads == Leads::IntoTun {
            message.attributes.push(RouteAttribute::Oif(tun));
        }
        message
    }

    /// What a listed route is in the table of this TUN; `None` where it is none of ours.
    fn read(tun: u32, listed: &RouteMessage) -> Option<Self> {
        let listed = read_route(RouteNetlinkMessage::NewRoute(listed.clone()))?;
        let destination = listed.route.destination;
        let entry = |leads| Self { destination, leads };
        let mut all = [Leads::IntoTun, Leads::PastTunnel, Leads::Nowhere]
            .map(entry)
            .into_iter();
        all.find(|entry| {
            entry.kind() == listed.kind
                && Some(entry.metric()) == listed.route.metric
                && (entry.leads != Leads::IntoTun || listed.route.index == tun)
        })
    }
}

impl Network {
    /// Gives the table exactly these entries; new ones come before old ones go. What was refused, and why.
    pub(super) fn fill(
        &mut self,
        table: u32,
        tun: u32,
        wanted: &BTreeSet<Entry>,
    ) -> Result<Vec<(Prefix, HostError)>, HostError> {
        let listed = self.list_table(table)?.into_iter();
        let listed: Vec<_> = listed.map(|route| (Entry::read(tun, &route), route)).collect();
        let present: BTreeSet<Entry> = listed.iter().filter_map(|(entry, _)| *entry).collect();
        let mut refused = Vec::new();
        for entry in wanted.difference(&present) {
            let request = RouteNetlinkMessage::NewRoute(entry.message(table, tun));
            let added = self.socket.change(NLM_F_CREATE | NLM_F_REPLACE, request);
            if let Err(error) = added.explain(|| format!("add a route to {}", entry.destination)) {
                refused.push((entry.destination, error));
            }
        }
        let is_wanted = |entry: Option<Entry>| entry.is_some_and(|entry| wanted.contains(&entry));
        for (_, left_over) in listed.into_iter().filter(|(entry, _)| !is_wanted(*entry)) {
            self.remove_listed(left_over)?;
        }
        Ok(refused)
    }

    /// The routes of a table, as the kernel lists them.
    fn list_table(&mut self, table: u32) -> Result<Vec<RouteMessage>, HostError> {
        let request = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let listed = self.socket.list(request, |message| match message {
            RouteNetlinkMessage::NewRoute(route) => {
                let is_here = route.attributes.contains(&RouteAttribute::Table(table));
                is_here.then_some(route)
            }
            _ => None,
        });
        listed.explain(|| format!("list the routes of table {table}"))
    }

    fn remove_listed(&mut self, listed: RouteMessage) -> Result<(), HostError> {
        match self.socket.change(0, RouteNetlinkMessage::DelRoute(listed)) {
            Err(error) if is_absent(&error) => Ok(()),
            other => other.explain(|| "remove a route of --default-route".to_owned()),
        }
    }
}

/// Empties a table of ours; that it is empty is fine.
pub(crate) fn clear(network: &mut Network, table: u32) -> Result<(), HostError> {
    for listed in network.list_table(table)? {
        network.remove_listed(listed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn leading(entries: &BTreeSet<Entry>, leads: Leads) -> Vec<String> {
        let so = entries.iter().filter(|entry| entry.leads == leads);
        so.map(|entry| entry.destination.to_string()).collect()
    }

    #[test]
    fn without_a_lease_everything_is_unreachable_but_the_link_itself() {
        let entries = wanted(&[], &[]);
        assert_eq!(leading(&entries, Leads::Nowhere), ["0.0.0.0/0", "::/0"]);
        assert_eq!(leading(&entries, Leads::PastTunnel), ["fe80::/10"]);
        assert_eq!(entries.len(), 3);
    }

    #[test]
    fn an_exception_wins_over_an_equal_route_and_host_bits_do_not_count() {
        let into_tun = prefixes(&["0.0.0.0/0", "10.0.0.0/8", "10.9.0.0/24"]);
        let entries = wanted(&into_tun, &prefixes(&["10.1.2.3/8", "198.51.100.1"]));
        assert_eq!(leading(&entries, Leads::IntoTun), ["0.0.0.0/0", "10.9.0.0/24"]);
        assert_eq!(
            leading(&entries, Leads::PastTunnel),
            ["10.0.0.0/8", "198.51.100.1/32", "fe80::/10"]
        );
        // Below the default route into the TUN is the one that forbids.
        assert_eq!(leading(&entries, Leads::Nowhere), ["0.0.0.0/0", "::/0"]);
    }

    #[test]
    fn what_is_written_is_found_again_and_is_no_other_entry() {
        let entries = wanted(
            &prefixes(&["0.0.0.0/0", "::/0", "10.0.0.0/8"]),
            &prefixes(&["fd00::/8"]),
        );
        for entry in entries {
            let listed = entry.message(0x6772_0007, 7);
            assert_eq!(Entry::read(7, &listed), Some(entry));
            let is_of_the_tun = entry.leads == Leads::IntoTun;
            assert_eq!(Entry::read(8, &listed), (!is_of_the_tun).then_some(entry));
        }
    }
}
