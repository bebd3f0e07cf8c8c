//! Rules of routing: which packets are looked up in which table.

use std::io;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::RouteHeader;
use netlink_packet_route::rule::{
    RuleAction, RuleAttribute, RuleFlags, RuleHeader, RuleMessage, RulePortRange,
};
use netlink_packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};
use serde::{Deserialize, Serialize};

use crate::dhcp;
use crate::error::{Explain, HostError};
use crate::link::is_absent;
use crate::network::Network;
use crate::route::MADE_BY_US;

/// Our rules come before those of the main table (32766) and of wg-quick (below it), which thereby hold for marked
/// packets and for what is excepted.
const PRIORITY_PROXY: u32 = 26_469;
const PRIORITY_DHCP: u32 = 26_470;
const PRIORITY_TUNNEL: u32 = 26_471;

/// A rule as it is listed among the changes to the host, and as it is found again to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    is_ipv4: bool,
    priority: u32,
    table: u32,
    packets: Packets,
}

/// What a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Packets {
    /// All that do not carry this mark.
    WithoutMark(u32),
    /// Those that carry this mark.
    WithMark(u32),
    /// Requests of DHCP to a server whose address is known, by which leases of the uplink are renewed. What the table
    /// makes unreachable is so for sockets that are bound to the uplink, too.
    DhcpRequests,
}

impl Rule {
    /// Packets without this mark are looked up in the table.
    pub(super) fn unmarked(is_ipv4: bool, mark: u32, table: u32) -> Self {
        Self {
            is_ipv4,
            priority: PRIORITY_TUNNEL,
            table,
            packets: Packets::WithoutMark(mark),
        }
    }

    /// Packets with this mark are looked up in the table.
    pub(crate) fn marked(is_ipv4: bool, mark: u32, table: u32) -> Self {
        Self {
            is_ipv4,
            priority: PRIORITY_PROXY,
            table,
            packets: Packets::WithMark(mark),
        }
    }

    /// Leases of IPv4 are renewed by the main table. Those of IPv6 need no rule: their requests go to link-local or
    /// multicast addresses.
    pub(super) fn dhcp_requests() -> Self {
        Self {
            is_ipv4: true,
            priority: PRIORITY_DHCP,
            table: RouteHeader::RT_TABLE_MAIN.into(),
            packets: Packets::DhcpRequests,
        }
    }

    /// Whether it leads packets of this IP version to this table.
    pub(super) fn leads(&self, is_ipv4: bool, table: u32) -> bool {
        self.is_ipv4 == is_ipv4 && self.table == table
    }

    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header = RuleHeader {
            family: if self.is_ipv4 {
                AddressFamily::Inet
            } else {
                AddressFamily::Inet6
            },
            action: RuleAction::ToTable,
            ..RuleHeader::default()
        };
        let attributes = &mut message.attributes;
        attributes.extend([
            RuleAttribute::Priority(self.priority),
            RuleAttribute::Table(self.table),
            RuleAttribute::Protocol(MADE_BY_US),
        ]);
        match self.packets {
            Packets::WithoutMark(mark) => {
                message.header.flags = RuleFlags::Invert;
                attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(u32::MAX)]);
            }
            Packets::WithMark(mark) => {
                attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(u32::MAX)]);
            }
            Packets::DhcpRequests => attributes.extend([
                RuleAttribute::IpProtocol(IpProtocol::Udp),
                RuleAttribute::SourcePortRange(one_port(dhcp::CLIENT_PORT_V4)),
                RuleAttribute::DestinationPortRange(one_port(dhcp::SERVER_PORT_V4)),
            ]),
        }
        message
    }
}

fn one_port(port: u16) -> RulePortRange {
    RulePortRange {
        start: port,
        end: port,
    }
}

impl Network {
    /// Adds a rule; that it is there already is fine.
    pub(crate) fn add_rule(&mut self, rule: &Rule) -> Result<(), HostError> {
        let request = RouteNetlinkMessage::NewRule(rule.message());
        match self.socket.change(NLM_F_CREATE | NLM_F_EXCL, request) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.explain(|| "add a rule of routing".to_owned()),
        }
    }

    /// Removes a rule of ours; that it is not there is fine.
    pub(crate) fn remove_rule(&mut self, rule: &Rule) -> Result<(), HostError> {
        let request = RouteNetlinkMessage::DelRule(rule.message());
        match self.socket.change(0, request) {
            Err(error) if is_absent(&error) => Ok(()),
            other => other.explain(|| "remove a rule of routing".to_owned()),
        }
    }
}
