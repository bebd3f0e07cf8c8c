//! The rules of the kill switch: what leaves this machine although it does not go through the tunnel.

use netlink_packet_netfilter::nftables::{Expressions, Operator};

use super::Exception;
use crate::dhcp;
use crate::mark::OUTER_MARK;
use crate::nftables::expression::{
    IcmpV6Types, Side, accept, address_in, enters_by, has_mark, is_icmp_v6, is_udp_v4, is_udp_v6, jump,
    leaves_by, reject_as_prohibited,
};

/// Index of the loopback interface in every network.
const LOOPBACK: u32 = 1;

/// Multicast listener reports, solicitations and advertisements (RFC 2710, RFC 4861): without them there are no
/// neighbours and no routers. Redirects, which only routers send, are not among them.
const NEIGHBOUR_DISCOVERY: [IcmpV6Types; 2] = [
    IcmpV6Types {
        first: 131,
        last: 136,
    },
    // Version 2 of the reports (RFC 9777).
    IcmpV6Types {
        first: 143,
        last: 143,
    },
];

/// A rule and what it lets out, for people.
pub(super) struct Rule {
    pub(super) expressions: Vec<Expressions>,
    pub(super) comment: Option<String>,
}

/// Accepts what matches.
fn letting_out(what: &str, mut expressions: Vec<Expressions>) -> Rule {
    expressions.push(accept());
    Rule {
        expressions,
        comment: Some(what.to_owned()),
    }
}

fn without_comment(expressions: Vec<Expressions>) -> Rule {
    Rule {
        expressions,
        comment: None,
    }
}

/// What local programs send: refused, but for what is let out and what the chain `excepted` has.
pub(super) fn output(tun: u32, excepted: &str) -> Vec<Rule> {
    let mut rules = vec![
        letting_out("loopback", leaves_by(Operator::Equal, LOOPBACK)),
        letting_out("the tunnel", leaves_by(Operator::Equal, tun)),
        letting_out("connections to the server", has_mark(OUTER_MARK)),
        letting_out("DHCP", is_udp_v4(dhcp::CLIENT_PORT_V4, dhcp::SERVER_PORT_V4)),
        letting_out("DHCP", is_udp_v6(dhcp::CLIENT_PORT_V6, dhcp::SERVER_PORT_V6)),
    ];
    let discovery = NEIGHBOUR_DISCOVERY.map(|types| letting_out("neighbour discovery", is_icmp_v6(types)));
    rules.extend(discovery);
    rules.push(without_comment(vec![jump(excepted)]));
    rules.push(without_comment(vec![reject_as_prohibited()]));
    rules
}

/// What is forwarded: between the tunnel and networks behind this machine, and to what the chain `excepted` has.
pub(super) fn forward(tun: u32, excepted: &str) -> Vec<Rule> {
    vec![
        letting_out("from the tunnel", enters_by(Operator::Equal, tun)),
        letting_out("into the tunnel", leaves_by(Operator::Equal, tun)),
        without_comment(vec![jump(excepted)]),
    ]
}

/// What goes to an excepted network.
pub(super) fn excepted(exception: &Exception) -> Rule {
    let what = format!("{} ({})", exception.prefix, exception.reason.text());
    letting_out(&what, address_in(Side::Destination, &exception.prefix))
}
