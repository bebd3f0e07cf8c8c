//! Transactions of nftables: tables, base chains and rules for both protocols, made or replaced as one.
//!
//! The kernel applies all messages of a transaction, or none. Only the last asks for an acknowledgement, and what the
//! kernel refuses it tells anyway: so many answers as there are rules would not fit the socket's buffer.

pub(super) mod expression;

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Expressions, Hook, InetHookNumber, NfTablesMessage, RuleAttribute,
    RuleMessage, TableAttribute, TableFlags, TableMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily, NetfilterSubsystem};

use super::netlink::Socket;

/// What becomes of packets that no rule of a base chain decides on.
pub(super) const POLICY_DROP: u32 = 0;

/// A base chain: where the kernel calls it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseChain {
    pub(super) name: &'static str,
    /// `filter` or `nat`.
    pub(super) kind: &'static str,
    pub(super) hook: InetHookNumber,
    /// The lower, the earlier.
    pub(super) priority: u32,
    /// `None`: the kernel's default, which accepts.
    pub(super) policy: Option<u32>,
}

/// Changes to one table that are made together.
#[derive(Debug)]
pub(super) struct Transaction {
    table: String,
    messages: Vec<(u16, NetfilterMessage)>,
}

impl Transaction {
    /// Makes a table that must not exist yet.
    pub(super) fn create(table: &str, flags: TableFlags) -> Self {
        let mut transaction = Self::empty(table);
        let attributes = vec![transaction.name(), TableAttribute::Flags(flags)];
        transaction.add(
            NLM_F_CREATE | NLM_F_EXCL,
            NfTablesMessage::NewTable(TableMessage { attributes }),
        );
        transaction
    }

    fn empty(table: &str) -> Self {
        Self {
            table: table.to_owned(),
            messages: vec![(0, batch(ControlMessage::BatchBegin))],
        }
    }

    fn name(&self) -> TableAttribute {
        TableAttribute::Name(self.table.clone())
    }

    fn add(&mut self, flags: u16, message: NfTablesMessage) {
        self.messages.push((flags, inet(message)));
    }

    /// Adds a base chain.
    pub(super) fn chain(&mut self, chain: &BaseChain) {
        let hook = vec![Hook::Number(chain.hook.into()), Hook::Priority(chain.priority)];
        let mut attributes = vec![
            ChainAttribute::Table(self.table.clone()),
            ChainAttribute::Name(chain.name.to_owned()),
            ChainAttribute::Type(chain.kind.to_owned()),
            ChainAttribute::Hook(hook),
        ];
        attributes.extend(chain.policy.map(ChainAttribute::Policy));
        self.add(
            NLM_F_CREATE | NLM_F_EXCL,
            NfTablesMessage::NewChain(ChainMessage { attributes }),
        );
    }

    /// Adds a rule behind those of this chain.
    pub(super) fn rule(&mut self, chain: &BaseChain, expressions: Vec<Expressions>) {
        let attributes = vec![
            RuleAttribute::Table(self.table.clone()),
            RuleAttribute::Chain(chain.name.to_owned()),
            RuleAttribute::Expressions(expressions.into_iter().map(Into::into).collect()),
        ];
        self.add(
            NLM_F_CREATE | NLM_F_APPEND,
            NfTablesMessage::NewRule(RuleMessage { attributes }),
        );
    }

    /// Has the kernel apply it; what was made belongs to the socket where the table has an owner.
    pub(super) fn apply(mut self, socket: &mut Socket<NetfilterMessage>) -> io::Result<()> {
        if let Some((flags, _)) = self.messages.last_mut() {
            *flags |= NLM_F_ACK;
        }
        self.messages.push((0, batch(ControlMessage::BatchEnd)));
        socket.transact(self.messages)
    }
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
