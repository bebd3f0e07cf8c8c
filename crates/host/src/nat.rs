//! NAT for the pools of a server, in an nftables table that belongs to this process.
//!
//! The table has the flag `owner`: nobody else may change it, and it vanishes with the netlink socket that made it,
//! however the process ends. The same protocol shows whether another forward chain drops unknown packets.

use std::io;
use std::net::IpAddr;

use super::error::{Explain, HostError};
use super::link::{family, octets};
use super::netlink::{ACKNOWLEDGE, Attributes, CREATE, DUMP, EXCLUSIVE, Family, Message, Messages, Socket};
use super::prefix::Prefix;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// Subsystem "nftables" in the upper byte of a message's kind.
const NFTABLES: u16 = 10 << 8;
const NEW_TABLE: u16 = NFTABLES;
const NEW_CHAIN: u16 = NFTABLES | 3;
const GET_CHAIN: u16 = NFTABLES | 4;
const NEW_RULE: u16 = NFTABLES | 6;

/// Rules for both protocols (`inet`).
const FAMILY_INET: u8 = 1;
const HEADER_BYTES: usize = 4;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
const TABLE_FLAG_OWNER: u32 = 0x2;

const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_FORWARD: u32 = 2;
const HOOK_POSTROUTING: u32 = 4;
/// `srcnat`.
const PRIORITY_SOURCE_NAT: u32 = 100;
const POLICY_DROP: u32 = 0;

const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;

/// The one register the rules need.
const REGISTER: u32 = 1;
const META_OUTPUT_INTERFACE: u32 = 5;
const META_PROTOCOL_FAMILY: u32 = 15;
const PAYLOAD_NETWORK_HEADER: u32 = 1;
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

const CHAIN: &str = "postrouting";

/// Masquerades the pools while it lives.
#[derive(Debug)]
pub struct Nat {
    /// The table lives as long as this socket.
    _owner: Socket,
}

impl Nat {
    /// From now on packets of the pools that leave by another interface than `tun` carry this machine's address.
    ///
    /// # Errors
    /// A missing privilege, or a kernel without nftables, masquerading or owned tables (before Linux 5.12).
    pub fn start(tun: u32, pools: &[Prefix]) -> Result<Self, HostError> {
        let start = || {
            let mut socket = Socket::open(Family::Netfilter)?;
            socket.request(table(&format!("gramway_{}", std::process::id()), tun, pools))?;
            Ok::<_, io::Error>(Self { _owner: socket })
        };
        start().explain(|| "set up NAT for the pool (nftables, Linux 5.12 or later)".to_owned())
    }
}

fn table(name: &str, tun: u32, pools: &[Prefix]) -> Messages {
    let new = ACKNOWLEDGE | CREATE;
    let inet = header(FAMILY_INET, 0);
    let batch = header(0, NFTABLES >> 8);
    let mut messages = Messages::one(BATCH_BEGIN, 0, &batch, |_| ());
    messages.push(NEW_TABLE, new | EXCLUSIVE, &inet, |table| {
        table.put_text(TABLE_NAME, name);
        table.put(TABLE_FLAGS, &TABLE_FLAG_OWNER.to_be_bytes());
    });
    messages.push(NEW_CHAIN, new | EXCLUSIVE, &inet, |chain| {
        chain.put_text(CHAIN_TABLE, name);
        chain.put_text(CHAIN_NAME, CHAIN);
        chain.put_text(CHAIN_TYPE, "nat");
        chain.nest(CHAIN_HOOK, |hook| {
            hook.put(HOOK_NUMBER, &HOOK_POSTROUTING.to_be_bytes());
            hook.put(HOOK_PRIORITY, &PRIORITY_SOURCE_NAT.to_be_bytes());
        });
    });
    for pool in pools {
        messages.push(NEW_RULE, new | APPEND, &inet, |rule| {
            rule.put_text(RULE_TABLE, name);
            rule.put_text(RULE_CHAIN, CHAIN);
            rule.nest(RULE_EXPRESSIONS, |list| masquerade(list, tun, pool));
        });
    }
    messages.push(BATCH_END, 0, &batch, |_| ());
    messages
}

/// Behind the rules that are there.
const APPEND: u16 = 0x800;

/// `meta nfproto FAMILY oif != TUN ip saddr POOL masquerade`.
fn masquerade(list: &mut Attributes<'_>, tun: u32, pool: &Prefix) {
    meta(list, META_PROTOCOL_FAMILY);
    // The numbers of the two protocol families are the same here.
    compare(list, EQUAL, &[family(pool.address())]);
    meta(list, META_OUTPUT_INTERFACE);
    compare(list, NOT_EQUAL, &tun.to_ne_bytes());
    let network = octets(pool.network().address());
    let offset: u32 = if pool.address().is_ipv4() { 12 } else { 8 };
    let length = u32::try_from(network.len()).expect("an address has at most 16 bytes");
    expression(list, "payload", |payload| {
        payload.put(1, &REGISTER.to_be_bytes());
        payload.put(2, &PAYLOAD_NETWORK_HEADER.to_be_bytes());
        payload.put(3, &offset.to_be_bytes());
        payload.put(4, &length.to_be_bytes());
    });
    expression(list, "bitwise", |bitwise| {
        bitwise.put(1, &REGISTER.to_be_bytes());
        bitwise.put(2, &REGISTER.to_be_bytes());
        bitwise.put(3, &length.to_be_bytes());
        bitwise.nest(4, |mask| mask.put(1, &mask_octets(pool)));
        bitwise.nest(5, |flip| flip.put(1, &vec![0; network.len()]));
    });
    compare(list, EQUAL, &network);
    expression(list, "masq", |_| ());
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

fn meta(list: &mut Attributes<'_>, key: u32) {
    expression(list, "meta", |meta| {
        meta.put(1, &REGISTER.to_be_bytes());
        meta.put(2, &key.to_be_bytes());
    });
}

fn compare(list: &mut Attributes<'_>, operation: u32, value: &[u8]) {
    expression(list, "cmp", |compare| {
        compare.put(1, &REGISTER.to_be_bytes());
        compare.put(2, &operation.to_be_bytes());
        compare.nest(3, |data| data.put(1, value));
    });
}

fn expression(list: &mut Attributes<'_>, name: &str, data: impl FnOnce(&mut Attributes<'_>)) {
    list.nest(LIST_ELEMENT, |element| {
        element.put_text(EXPRESSION_NAME, name);
        element.nest(EXPRESSION_DATA, data);
    });
}

fn header(family: u8, resource: u16) -> [u8; HEADER_BYTES] {
    let [high, low] = resource.to_be_bytes();
    [family, 0, high, low]
}

/// One sentence for each chain of another program that drops forwarded packets unless a rule of it accepts them:
/// firewalls and container runtimes have such. Empty, too, where the system does not say.
#[must_use]
pub fn forwarding_blockers() -> Vec<String> {
    let list = || {
        let request = Messages::one(GET_CHAIN, DUMP, &header(0, 0), |_| ());
        Socket::open(Family::Netfilter)?.list(request, |message| blocker(&message))
    };
    list().unwrap_or_default()
}

fn blocker(message: &Message<'_>) -> Option<String> {
    let attributes = message.attributes(HEADER_BYTES);
    let number = |payload: &[u8]| Some(u32::from_be_bytes(payload.try_into().ok()?));
    let hook = super::netlink::AttributeReader(attributes.find(CHAIN_HOOK)?);
    let drops = message.kind == NEW_CHAIN
        && hook.find(HOOK_NUMBER).and_then(number) == Some(HOOK_FORWARD)
        && attributes.find(CHAIN_POLICY).and_then(number) == Some(POLICY_DROP);
    let text = |kind| {
        let payload = attributes.find(kind)?;
        Some(String::from_utf8_lossy(payload.strip_suffix(b"\0").unwrap_or(payload)).into_owned())
    };
    let protocol = match message.payload.first()? {
        &FAMILY_INET => "inet",
        2 => "ip",
        10 => "ip6",
        _ => return None,
    };
    drops.then_some(())?;
    Some(format!(
        "the firewall chain {} of table {protocol} {} drops forwarded packets that no rule of it accepts; \
         let it accept those from and to the tunnel's interface",
        text(CHAIN_NAME)?,
        text(CHAIN_TABLE)?
    ))
}
