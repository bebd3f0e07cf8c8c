//! The table in the kernel: its transactions, and what is read from it.

use std::io;

use netlink_packet_netfilter::NetfilterMessage;
use netlink_packet_netfilter::nftables::InetHookNumber;

use super::Exception;
use super::rules::{self, Rule};
use crate::holder::Process;
use crate::netlink::Socket;
use crate::nftables::{BaseChain, POLICY_DROP, Transaction, listing};

const TABLE: &str = "gramway_kill_switch";

/// What comes before the process ID in the table's comment, and between it and the start.
const COMMENT: [&str; 2] = [
    "gramway release removes it; made by process ",
    ", started at tick ",
];

/// `filter`, after those who change where a packet goes.
const PRIORITY: u32 = 0;

/// What local programs send.
const OUTPUT: BaseChain = BaseChain {
    name: "output",
    kind: "filter",
    hook: InetHookNumber::LocalOut,
    priority: PRIORITY,
    policy: Some(POLICY_DROP),
};

/// What this machine forwards for others.
const FORWARD: BaseChain = BaseChain {
    name: "forward",
    kind: "filter",
    hook: InetHookNumber::Forward,
    priority: PRIORITY,
    policy: Some(POLICY_DROP),
};

/// What both let out, in a chain of its own, so that a long list is there once.
const EXCEPTED: &str = "excepted";

/// Puts the table in the place of whatever stands there.
pub(super) fn replacement(holder: Process, tun: u32, exceptions: &[Exception]) -> Transaction {
    let [before, between] = COMMENT;
    let comment = format!("{before}{}{between}{}", holder.id, holder.started_ticks);
    let mut transaction = Transaction::replace(TABLE, &comment);
    transaction.chain(EXCEPTED);
    for rule in exceptions.iter().map(rules::excepted) {
        add(&mut transaction, EXCEPTED, rule);
    }
    transaction.base_chain(&OUTPUT);
    for rule in rules::output(tun, EXCEPTED) {
        add(&mut transaction, OUTPUT.name, rule);
    }
    transaction.base_chain(&FORWARD);
    for rule in rules::forward(tun, EXCEPTED) {
        add(&mut transaction, FORWARD.name, rule);
    }
    transaction
}

fn add(transaction: &mut Transaction, chain: &str, rule: Rule) {
    transaction.rule(chain, rule.expressions, rule.comment.as_deref());
}

/// Removes the table, which must stand.
pub(super) fn removal() -> Transaction {
    Transaction::delete(TABLE)
}

/// Who made the table, where its comment says so; `None` where there is no table.
pub(super) fn holder(socket: &mut Socket<NetfilterMessage>) -> io::Result<Option<Option<Process>>> {
    let comment = listing::table_comment(socket, TABLE)?;
    Ok(comment.map(|comment| parse(&comment)))
}

fn parse(comment: &str) -> Option<Process> {
    let [before, between] = COMMENT;
    let process = comment.strip_prefix(before)?;
    let (id, started_ticks) = process.split_once(between)?;
    Some(Process {
        id: id.parse().ok()?,
        started_ticks: started_ticks.parse().ok()?,
    })
}

/// What the table lets out of this machine, in the words of its rules.
pub(super) fn comments(socket: &mut Socket<NetfilterMessage>) -> io::Result<Vec<String>> {
    let mut comments = listing::rule_comments(socket, TABLE, OUTPUT.name)?;
    comments.extend(listing::rule_comments(socket, TABLE, EXCEPTED)?);
    comments.dedup();
    Ok(comments)
}
