//! What rules are made of: matches on a packet, each a few expressions, and verdicts.
//!
//! Each match loads something into the one register that is used, and compares it. Numbers of the kernel's own
//! (marks, interfaces) have its byte order, what is read from a packet has the network's.

use std::net::IpAddr;

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Meta, MetaKey, Operator, Payload, Register, Verdict,
    VerdictAttribute,
};
use netlink_packet_route::AddressFamily;

use packet_io::InterfaceName;

use crate::link::family;
use crate::prefix::Prefix;

const REGISTER: Register = Register::Reg1;
const PAYLOAD_NETWORK_HEADER: u32 = 1;
const PAYLOAD_TRANSPORT_HEADER: u32 = 2;

/// Bytes of an interface's name with zeros behind it (`IFNAMSIZ`).
const INTERFACE_NAME_ROOM: usize = 16;

const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const VERDICT_DROP: u32 = 0;
const VERDICT_ACCEPT: u32 = 1;

/// Attributes of `reject`, their values: an ICMP error of the packet's own protocol, and which.
const REJECT_TYPE: u16 = 1;
const REJECT_CODE: u16 = 2;
const REJECT_BY_ICMP_OF_EITHER: u32 = 2;
const REJECT_PROHIBITED: u8 = 3;

/// An address of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// A range of message types of ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcmpV6Types {
    pub(crate) first: u8,
    pub(crate) last: u8,
}

impl Side {
    /// Where it is in the header, in bytes (RFC 791 section 3.1, RFC 8200 section 3).
    fn offset(self, is_v4: bool) -> u32 {
        match (self, is_v4) {
            (Self::Source, true) => 12,
            (Self::Source, false) => 8,
            (Self::Destination, true) => 16,
            (Self::Destination, false) => 24,
        }
    }
}

/// `oif INDEX`, or `oif != INDEX`.
pub(crate) fn leaves_by(operator: Operator, index: u32) -> Vec<Expressions> {
    has_meta(MetaKey::Oif, operator, index.to_ne_bytes().to_vec())
}

/// `iif INDEX`, or `iif != INDEX`.
pub(crate) fn enters_by(operator: Operator, index: u32) -> Vec<Expressions> {
    has_meta(MetaKey::Iif, operator, index.to_ne_bytes().to_vec())
}

/// `iifname NAME`.
pub(crate) fn enters_by_name(name: &InterfaceName) -> Vec<Expressions> {
    let mut value = name.as_str().as_bytes().to_vec();
    value.resize(INTERFACE_NAME_ROOM, 0);
    has_meta(MetaKey::Iifname, Operator::Equal, value)
}

/// What an address is to this machine (`RTN_…` of linux/rtnetlink.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressType {
    Local = 2,
    Broadcast = 3,
}

/// `fib daddr . iif type local`: the packet is for an address of the interface that it came in by.
pub(crate) fn is_for_interface() -> Vec<Expressions> {
    fib_type(FIB_DESTINATION | FIB_INPUT_INTERFACE, AddressType::Local)
}

/// `fib daddr type TYPE`.
pub(crate) fn is_destination_of(kind: AddressType) -> Vec<Expressions> {
    fib_type(FIB_DESTINATION, kind)
}

const FIB_DESTINATION: u32 = 1 << 1;
const FIB_INPUT_INTERFACE: u32 = 1 << 3;

fn fib_type(flags: u32, kind: AddressType) -> Vec<Expressions> {
    // `NFTA_FIB_…` of linux/netfilter/nf_tables.h, with the address type as result.
    const REGISTER_ATTRIBUTE: u16 = 1;
    const RESULT_ATTRIBUTE: u16 = 2;
    const FLAGS_ATTRIBUTE: u16 = 3;
    const RESULT_ADDRESS_TYPE: u32 = 3;
    let attribute = |kind, value: u32| DefaultNla::new(kind, value.to_be_bytes().to_vec());
    vec![
        Expressions::Other {
            expression_type: "fib".to_owned(),
            attributes: vec![
                attribute(REGISTER_ATTRIBUTE, REGISTER.into()),
                attribute(RESULT_ATTRIBUTE, RESULT_ADDRESS_TYPE),
                attribute(FLAGS_ATTRIBUTE, flags),
            ],
        },
        compare(Operator::Equal, (kind as u32).to_ne_bytes().to_vec()),
    ]
}

/// `meta nfproto FAMILY meta l4proto PROTOCOL`, of the family of this address.
pub(crate) fn is_transport(address: IpAddr, protocol: u8) -> Vec<Expressions> {
    is_protocol(family(address), protocol)
}

/// `meta l4proto PROTOCOL`.
pub(crate) fn is_transport_of_either(protocol: u8) -> Vec<Expressions> {
    has_meta(MetaKey::L4Proto, Operator::Equal, vec![protocol])
}

/// `tproxy to ADDRESS:PORT`: the packet goes to the socket there, which is transparent.
pub(crate) fn lead_to(address: IpAddr, port: u16) -> Vec<Expressions> {
    // `NFTA_TPROXY_…` of linux/netfilter/nf_tables.h.
    const FAMILY_ATTRIBUTE: u16 = 1;
    const ADDRESS_ATTRIBUTE: u16 = 2;
    const PORT_ATTRIBUTE: u16 = 3;
    const PORT_REGISTER: Register = Register::Reg2;
    let attribute = |kind, value: u32| DefaultNla::new(kind, value.to_be_bytes().to_vec());
    let load = |register, value| {
        Expressions::Immediate(vec![
            Immediate::DestinationRegister(register),
            Immediate::Data(DataAttribute::Value(value)),
        ])
    };
    let family: u8 = family(address).into();
    vec![
        load(REGISTER, octets(address)),
        load(PORT_REGISTER, port.to_be_bytes().to_vec()),
        Expressions::Other {
            expression_type: "tproxy".to_owned(),
            attributes: vec![
                attribute(FAMILY_ATTRIBUTE, family.into()),
                attribute(ADDRESS_ATTRIBUTE, REGISTER.into()),
                attribute(PORT_ATTRIBUTE, PORT_REGISTER.into()),
            ],
        },
    ]
}

/// `meta mark set MARK`.
pub(crate) fn set_mark(mark: u32) -> Vec<Expressions> {
    vec![
        Expressions::Immediate(vec![
            Immediate::DestinationRegister(REGISTER),
            Immediate::Data(DataAttribute::Value(mark.to_ne_bytes().to_vec())),
        ]),
        Expressions::Meta(vec![Meta::Key(MetaKey::Mark), Meta::SourceRegister(REGISTER)]),
    ]
}

/// `meta mark MARK`.
pub(crate) fn has_mark(mark: u32) -> Vec<Expressions> {
    has_meta(MetaKey::Mark, Operator::Equal, mark.to_ne_bytes().to_vec())
}

/// `meta nfproto ipv4 udp sport SOURCE udp dport DESTINATION`.
pub(crate) fn is_udp_v4(source: u16, destination: u16) -> Vec<Expressions> {
    is_udp(AddressFamily::Inet, source, destination)
}

/// `meta nfproto ipv6 udp sport SOURCE udp dport DESTINATION`.
pub(crate) fn is_udp_v6(source: u16, destination: u16) -> Vec<Expressions> {
    is_udp(AddressFamily::Inet6, source, destination)
}

fn is_udp(family: AddressFamily, source: u16, destination: u16) -> Vec<Expressions> {
    let mut expressions = is_protocol(family, UDP);
    // Both ports, one behind the other (RFC 768).
    expressions.extend([
        payload(PAYLOAD_TRANSPORT_HEADER, 0, 4),
        compare(
            Operator::Equal,
            [source.to_be_bytes(), destination.to_be_bytes()].concat(),
        ),
    ]);
    expressions
}

/// `meta nfproto ipv6 icmpv6 type FIRST-LAST`.
pub(crate) fn is_icmp_v6(types: IcmpV6Types) -> Vec<Expressions> {
    let mut expressions = is_protocol(AddressFamily::Inet6, ICMP_V6);
    expressions.extend([
        payload(PAYLOAD_TRANSPORT_HEADER, 0, 1),
        compare(Operator::GreatherThanEqual, vec![types.first]),
        compare(Operator::LessThanEqual, vec![types.last]),
    ]);
    expressions
}

/// `meta nfproto FAMILY`; the numbers of the two families are the same here as in routing.
fn is_of(family: AddressFamily) -> Vec<Expressions> {
    has_meta(MetaKey::Nfproto, Operator::Equal, vec![family.into()])
}

fn is_protocol(family: AddressFamily, protocol: u8) -> Vec<Expressions> {
    [
        is_of(family),
        has_meta(MetaKey::L4Proto, Operator::Equal, vec![protocol]),
    ]
    .concat()
}

/// `meta nfproto FAMILY ip saddr PREFIX`, or `ip daddr`.
pub(crate) fn address_in(side: Side, prefix: &Prefix) -> Vec<Expressions> {
    let network = octets(prefix.network().address());
    let length = u32::try_from(network.len()).expect("an address has at most 16 bytes");
    let offset = side.offset(prefix.address().is_ipv4());
    let mut expressions = is_of(family(prefix.address()));
    expressions.extend([
        payload(PAYLOAD_NETWORK_HEADER, offset, length),
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(REGISTER),
            Bitwise::DestinationRegister(REGISTER),
            Bitwise::Length(length),
            Bitwise::Mask(DataAttribute::Value(mask_octets(prefix))),
            Bitwise::Xor(DataAttribute::Value(vec![0; network.len()])),
        ]),
        compare(Operator::Equal, network),
    ]);
    expressions
}

/// `accept`.
pub(crate) fn accept() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(VERDICT_ACCEPT))])
}

/// `drop`.
pub(crate) fn drop_packet() -> Expressions {
    verdict(vec![VerdictAttribute::Code(Verdict::Other(VERDICT_DROP))])
}

/// `jump CHAIN`.
pub(crate) fn jump(chain: &str) -> Expressions {
    verdict(vec![
        VerdictAttribute::Code(Verdict::Jump),
        VerdictAttribute::Chain(chain.to_owned()),
    ])
}

fn verdict(attributes: Vec<VerdictAttribute>) -> Expressions {
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(attributes)),
    ])
}

/// `reject with icmpx admin-prohibited`.
pub(crate) fn reject_as_prohibited() -> Expressions {
    Expressions::Other {
        expression_type: "reject".to_owned(),
        attributes: vec![
            DefaultNla::new(REJECT_TYPE, REJECT_BY_ICMP_OF_EITHER.to_be_bytes().to_vec()),
            DefaultNla::new(REJECT_CODE, vec![REJECT_PROHIBITED]),
        ],
    }
}

/// `masquerade`.
pub(crate) fn masquerade() -> Expressions {
    Expressions::Other {
        expression_type: "masq".to_owned(),
        attributes: Vec::new(),
    }
}

fn mask_octets(prefix: &Prefix) -> Vec<u8> {
    let ones = match prefix.address() {
        IpAddr::V4(_) => IpAddr::from([0xff; 4]),
        IpAddr::V6(_) => IpAddr::from([0xff; 16]),
    };
    let mask = Prefix::new(ones, prefix.length()).expect("the prefix has the same length and family");
    octets(mask.network().address())
}

/// An address in network order.
fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn payload(base: u32, offset: u32, length: u32) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(REGISTER),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

/// What the kernel knows of the packet compares like this with the value.
fn has_meta(key: MetaKey, operator: Operator, value: Vec<u8>) -> Vec<Expressions> {
    vec![
        Expressions::Meta(vec![Meta::DestinationRegister(REGISTER), Meta::Key(key)]),
        compare(operator, value),
    ]
}

fn compare(operator: Operator, value: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(REGISTER),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
}
