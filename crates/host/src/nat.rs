//! NAT for the pools of a server, in an nftables table that belongs to this process.
//!
//! The table has the flag `owner`: nobody else may change it, and it vanishes with the netlink socket that made it,
//! however the process ends. With the last such table the kernel stops translating, and answers packets of connections
//! that were translated by resets; so the guardian has a table of its own, whose rule never applies ([`NatHold`]). The
//! same protocol shows whether another forward chain drops unknown packets.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, Expressions, Hook, HookNumber, InetHookNumber,
    Meta, MetaKey, NfTablesMessage, Operator, Payload, Register, RuleAttribute, RuleMessage, TableAttribute,
    TableFlags, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily, NetfilterSubsystem,
};

use super::error::{Explain, HostError};
use super::link::family;
use super::netlink::Socket;
use super::prefix::Prefix;

/// `srcnat`.
const PRIORITY_SOURCE_NAT: u32 = 100;
const POLICY_DROP: u32 = 0;
/// The one register the rules need.
const REGISTER: Register = Register::Reg1;
const PAYLOAD_NETWORK_HEADER: u32 = 1;

const CHAIN: &str = "postrouting";

/// Masquerades the pools while it lives.
#[derive(Debug)]
pub struct Nat {
    /// The table lives as long as this socket.
    _owner: Socket<NetfilterMessage>,
}

impl Nat {
    /// From now on packets of the pools that leave by another interface than `tun` carry this machine's address.
    ///
    /// # Errors
    /// A missing privilege, or a kernel without nftables, masquerading or owned tables (before Linux 5.12).
    pub fn start(tun: u32, pools: &[Prefix]) -> Result<Self, HostError> {
        let rules = pools.iter().map(|pool| masquerade(tun, pool));
        own_table(&format!("gramway_{}", std::process::id()), rules)
            .map(|owner| Self { _owner: owner })
            .explain(|| "set up NAT for the pool (nftables, Linux 5.12 or later)".to_owned())
    }
}

/// Has the kernel go on translating the connections that it translates, and no others, while this lives.
#[derive(Debug)]
pub(super) struct NatHold {
    _owner: Socket<NetfilterMessage>,
}

impl NatHold {
    /// # Errors
    /// As of [`Nat::start`].
    pub(super) fn start() -> Result<Self, HostError> {
        own_table(
            &format!("gramway_hold_{}", std::process::id()),
            [masquerade_nothing()],
        )
        .map(|owner| Self { _owner: owner })
        .explain(|| "keep the connections of NAT".to_owned())
    }
}

/// Makes a table with these rules; it lives as long as the socket.
fn own_table<const N: usize>(
    name: &str,
    rules: impl IntoIterator<Item = [Expressions; N]>,
) -> io::Result<Socket<NetfilterMessage>> {
    let mut socket = Socket::open()?;
    socket.transact(table(name, rules))?;
    Ok(socket)
}

/// The table with a chain and its rules, in one transaction; each message with its flags.
fn table<const N: usize>(
    name: &str,
    rules: impl IntoIterator<Item = [Expressions; N]>,
) -> Vec<(u16, NetfilterMessage)> {
    const NEW: u16 = NLM_F_ACK | NLM_F_CREATE;
    let name = || name.to_owned();
    let table = TableMessage {
        attributes: vec![
            TableAttribute::Name(name()),
            TableAttribute::Flags(TableFlags::Owner),
        ],
    };
    let hook = vec![
        Hook::Number(InetHookNumber::PostRouting.into()),
        Hook::Priority(PRIORITY_SOURCE_NAT),
    ];
    let chain = ChainMessage {
        attributes: vec![
            ChainAttribute::Table(name()),
            ChainAttribute::Name(CHAIN.to_owned()),
            ChainAttribute::Type("nat".to_owned()),
            ChainAttribute::Hook(hook),
        ],
    };
    let rule = |expressions: [Expressions; N]| RuleMessage {
        attributes: vec![
            RuleAttribute::Table(name()),
            RuleAttribute::Chain(CHAIN.to_owned()),
            RuleAttribute::Expressions(expressions.map(Into::into).into()),
        ],
    };
    let rules = rules.into_iter().map(|expressions| {
        (
            NEW | NLM_F_APPEND,
            inet(NfTablesMessage::NewRule(rule(expressions))),
        )
    });
    let mut messages = vec![
        (0, batch(ControlMessage::BatchBegin)),
        (NEW | NLM_F_EXCL, inet(NfTablesMessage::NewTable(table))),
        (NEW | NLM_F_EXCL, inet(NfTablesMessage::NewChain(chain))),
    ];
    messages.extend(rules);
    messages.push((0, batch(ControlMessage::BatchEnd)));
    messages
}

/// A message about rules for both protocols.
fn inet(message: NfTablesMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0), message)
}

fn batch(message: ControlMessage) -> NetfilterMessage {
    let subsystem = u8::from(NetfilterSubsystem::NfTables).into();
    NetfilterMessage::new(
        NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, subsystem),
        message,
    )
}

/// `meta nfproto FAMILY oif != TUN ip saddr POOL masquerade`.
fn masquerade(tun: u32, pool: &Prefix) -> [Expressions; 8] {
    let network = octets(pool.network().address());
    let offset = if pool.address().is_ipv4() { 12 } else { 8 };
    let length = u32::try_from(network.len()).expect("an address has at most 16 bytes");
    [
        meta(MetaKey::Nfproto),
        // The numbers of the two protocol families are the same here.
        compare(Operator::Equal, vec![family(pool.address()).into()]),
        meta(MetaKey::Oif),
        compare(Operator::NotEqual, tun.to_ne_bytes().to_vec()),
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
            Bitwise::Mask(DataAttribute::Value(mask_octets(pool))),
            Bitwise::Xor(DataAttribute::Value(vec![0; network.len()])),
        ]),
        compare(Operator::Equal, network),
        masquerading(),
    ]
}

/// `oif 0 masquerade`: no interface has this index. Connections are tracked and translated as long as there is such a
/// rule.
fn masquerade_nothing() -> [Expressions; 3] {
    [
        meta(MetaKey::Oif),
        compare(Operator::Equal, 0_u32.to_ne_bytes().to_vec()),
        masquerading(),
    ]
}

fn masquerading() -> Expressions {
    Expressions::Other {
        expression_type: "masq".to_owned(),
        attributes: Vec::new(),
    }
}

fn mask_octets(pool: &Prefix) -> Vec<u8> {
    let ones = if pool.address().is_ipv4() {
        IpAddr::from([0xff; 4])
    } else {
        IpAddr::from([0xff; 16])
    };
    let mask = Prefix::new(ones, pool.length()).expect("the pool has the same length and family");
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

/// One sentence for each chain of another program that drops forwarded packets unless a rule of it accepts them:
/// firewalls and container runtimes have such. Empty, too, where the system does not say.
#[must_use]
pub fn forwarding_blockers() -> Vec<String> {
    let list = || {
        let chains = NfTablesMessage::GetChain(ChainMessage {
            attributes: Vec::new(),
        });
        let request = NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0), chains);
        Socket::open()?.list(request, blocker)
    };
    list().unwrap_or_default()
}

fn blocker(message: NetfilterMessage) -> Option<String> {
    let NetfilterMessageInner::NfTables(NfTablesMessage::NewChain(chain)) = message.inner else {
        return None;
    };
    let protocol = match message.header.family {
        NetfilterProtoFamily::Inet => "inet",
        NetfilterProtoFamily::IPv4 => "ip",
        NetfilterProtoFamily::IPv6 => "ip6",
        _ => return None,
    };
    let forward = Hook::Number(HookNumber::Inet(InetHookNumber::Forward));
    let (mut forwards, mut drops) = (false, false);
    let (mut table, mut name) = (None, None);
    for attribute in chain.attributes {
        match attribute {
            ChainAttribute::Hook(hook) => forwards = hook.contains(&forward),
            ChainAttribute::Policy(policy) => drops = policy == POLICY_DROP,
            ChainAttribute::Table(text) => table = Some(text),
            ChainAttribute::Name(text) => name = Some(text),
            _ => {}
        }
    }
    if !(forwards && drops) {
        return None;
    }
    Some(format!(
        "the firewall chain {} of table {protocol} {} drops forwarded packets that no rule of it accepts; \
         let it accept those from and to the tunnel's interface",
        name?, table?
    ))
}
