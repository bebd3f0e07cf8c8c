//! What rules are made of: matches on a packet, each a few expressions, and verdicts.
//!
//! Each match loads something into the one register that is used, and compares it. Numbers of the kernel's own
//! (marks, interfaces) have its byte order, what is read from a packet has the network's.

use std::net::IpAddr;

use netlink_packet_core::DefaultNla;
use netlink_packet_netfilter::nftables::{
    Bitwise, Cmp, DataAttribute, Expressions, Immediate, Meta, MetaKey, Operator, Payload, Register,
};

use crate::link::family;
use crate::prefix::Prefix;

const REGISTER: Register = Register::Reg1;
const PAYLOAD_NETWORK_HEADER: u32 = 1;

/// An address of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
}

impl Side {
    /// Where it is in the header, in bytes (RFC 791 section 3.1, RFC 8200 section 3).
    fn offset(self, is_v4: bool) -> u32 {
        match (self, is_v4) {
            (Self::Source, true) => 12,
            (Self::Source, false) => 8,
        }
    }
}

/// `oif INDEX`, or `oif != INDEX`.
pub(crate) fn leaves_by(operator: Operator, index: u32) -> Vec<Expressions> {
    vec![
        meta(MetaKey::Oif),
        compare(operator, index.to_ne_bytes().to_vec()),
    ]
}

/// `iif != INDEX`.
pub(crate) fn arrives_elsewhere(index: u32) -> Vec<Expressions> {
    vec![
        meta(MetaKey::Iif),
        compare(Operator::NotEqual, index.to_ne_bytes().to_vec()),
    ]
}

/// `fib daddr . iif type local`: the packet is for an address of the interface that it came in by.
pub(crate) fn is_for_interface() -> Vec<Expressions> {
    // `NFTA_FIB_…` of linux/netfilter/nf_tables.h, with the address type as result, and `RTN_LOCAL`.
    const REGISTER_ATTRIBUTE: u16 = 1;
    const RESULT_ATTRIBUTE: u16 = 2;
    const FLAGS_ATTRIBUTE: u16 = 3;
    const RESULT_ADDRESS_TYPE: u32 = 3;
    const FLAG_DESTINATION: u32 = 1 << 1;
    const FLAG_INPUT_INTERFACE: u32 = 1 << 3;
    const LOCAL: u32 = 2;
    let attribute = |kind, value: u32| DefaultNla::new(kind, value.to_be_bytes().to_vec());
    vec![
        Expressions::Other {
            expression_type: "fib".to_owned(),
            attributes: vec![
                attribute(REGISTER_ATTRIBUTE, REGISTER.into()),
                attribute(RESULT_ATTRIBUTE, RESULT_ADDRESS_TYPE),
                attribute(FLAGS_ATTRIBUTE, FLAG_DESTINATION | FLAG_INPUT_INTERFACE),
            ],
        },
        compare(Operator::Equal, LOCAL.to_ne_bytes().to_vec()),
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

/// `meta nfproto FAMILY ip saddr PREFIX`.
pub(crate) fn address_in(side: Side, prefix: &Prefix) -> Vec<Expressions> {
    let network = octets(prefix.network().address());
    let length = u32::try_from(network.len()).expect("an address has at most 16 bytes");
    let offset = side.offset(prefix.address().is_ipv4());
    vec![
        meta(MetaKey::Nfproto),
        // The numbers of the two protocol families are the same here.
        compare(Operator::Equal, vec![family(prefix.address()).into()]),
        Expressions::Payload(vec![
            Payload::DestinationRegister(REGISTER),
            Payload::Base(PAYLOAD_NETWORK_HEADER),
            Payload::Offset(offset),
            Payload::Len(length),
        ]),
        Expressions::Bitwise(vec![
            Bitwise::SourceRegister(REGISTER),
            Bitwise::DestinationRegister(REGISTER),
            Bitwise::Length(length),
            Bitwise::Mask(DataAttribute::Value(mask_octets(prefix))),
            Bitwise::Xor(DataAttribute::Value(vec![0; network.len()])),
        ]),
        compare(Operator::Equal, network),
    ]
}

/// `masquerade`.
pub(crate) fn masquerade() -> Expressions {
    Expressions::Other {
        expression_type: "masq".to_owned(),
        attributes: Vec::new(),
    }
}

fn mask_octets(prefix: &Prefix) -> Vec<u8> {
    let ones = if prefix.address().is_ipv4() {
        IpAddr::from([0xff; 4])
    } else {
        IpAddr::from([0xff; 16])
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

fn meta(key: MetaKey) -> Expressions {
    Expressions::Meta(vec![Meta::DestinationRegister(REGISTER), Meta::Key(key)])
}

fn compare(operator: Operator, value: Vec<u8>) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(REGISTER),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(value)),
    ])
}
