//! NAT for the pools of a server, in an nftables table that belongs to this process.
//!
//! It vanishes however the process ends ([`OwnedTable`]). With the last table of this kind the kernel stops
//! translating, and answers packets of connections that were translated by resets; so the guardian has a table of its
//! own, whose rule never applies ([`NatHold`]). The same protocol shows whether another forward chain drops unknown
//! packets.

use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Expressions, Hook, HookNumber, InetHookNumber, NfTablesMessage, Operator,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};

use super::error::{Explain, HostError};
use super::netlink::Socket;
use super::nftables::expression::{Side, address_in, leaves_by, masquerade};
use super::nftables::{BaseChain, OwnedTable, POLICY_DROP};
use super::prefix::Prefix;

/// `srcnat` is the priority of those who translate sources.
const POSTROUTING: BaseChain = BaseChain {
    name: "postrouting",
    kind: "nat",
    hook: InetHookNumber::PostRouting,
    priority: 100,
    policy: None,
};

/// Masquerades the pools while it lives.
#[derive(Debug)]
pub struct Nat {
    _table: OwnedTable,
}

impl Nat {
    /// From now on packets of the pools that leave by another interface than `tun` carry this machine's address.
    ///
    /// # Errors
    /// A missing privilege, or a kernel without nftables, masquerading or owned tables (before Linux 5.12).
    pub fn start(tun: u32, pools: &[Prefix]) -> Result<Self, HostError> {
        let rules = pools.iter().map(|pool| masquerade_pool(tun, pool));
        OwnedTable::make(&format!("gramway_{}", std::process::id()), &POSTROUTING, rules)
            .map(|table| Self { _table: table })
            .explain(|| "set up NAT for the pool (nftables, Linux 5.12 or later)".to_owned())
    }
}

/// Has the kernel go on translating the connections that it translates, and no others, while this lives.
#[derive(Debug)]
pub(super) struct NatHold {
    _table: OwnedTable,
}

impl NatHold {
    /// # Errors
    /// As of [`Nat::start`].
    pub(super) fn start() -> Result<Self, HostError> {
        let name = format!("gramway_hold_{}", std::process::id());
        OwnedTable::make(&name, &POSTROUTING, [masquerade_nothing()])
            .map(|table| Self { _table: table })
            .explain(|| "keep the connections of NAT".to_owned())
    }
}

/// `ip saddr POOL oif != TUN masquerade`.
fn masquerade_pool(tun: u32, pool: &Prefix) -> Vec<Expressions> {
    let mut rule = address_in(Side::Source, pool);
    rule.extend(leaves_by(Operator::NotEqual, tun));
    rule.push(masquerade());
    rule
}

/// `oif 0 masquerade`: no interface has this index. Connections are tracked and translated as long as there is such a
/// rule.
fn masquerade_nothing() -> Vec<Expressions> {
    let mut rule = leaves_by(Operator::Equal, 0);
    rule.push(masquerade());
    rule
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
