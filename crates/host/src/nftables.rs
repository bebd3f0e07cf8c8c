//! Transactions of nftables: tables, base chains and rules for both protocols, made or replaced as one.
//!
//! The kernel applies all messages of a transaction, or none. Only the last asks for an acknowledgement, and what the
//! kernel refuses it tells anyway: so many answers as there are rules would not fit the socket's buffer.

pub(super) mod expression;
pub(super) mod listing;

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

/// Number of a comment among the user data of tables, and among those of rules.
const COMMENT_TYPE: u8 = 0;

/// What `nft` takes for a comment, with its zero, in bytes.
const COMMENT_BYTES_MAX: usize = 128;

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

/// A table of this process alone: it has the flag `owner`, so that nobody else may change it, and it vanishes with the
/// netlink socket that made it, however the process ends.
#[derive(Debug)]
pub(super) struct OwnedTable {
    _owner: Socket<NetfilterMessage>,
}

impl OwnedTable {
    /// Makes it, with one chain and its rules; it stands as long as this lives.
    pub(super) fn make(
        name: &str,
        chain: &BaseChain,
        rules: impl IntoIterator<Item = Vec<Expressions>>,
    ) -> io::Result<Self> {
        Self::make_with(name, |transaction| {
            transaction.base_chain(chain);
            for rule in rules {
                transaction.rule(chain.name, rule, None);
            }
        })
    }

    /// Makes it with what `fill` adds.
    pub(super) fn make_with(name: &str, fill: impl FnOnce(&mut Transaction)) -> io::Result<Self> {
        let mut owner = Socket::open()?;
        let mut transaction = Transaction::create_owned(name);
        fill(&mut transaction);
        transaction.apply(&mut owner)?;
        Ok(Self { _owner: owner })
    }
}

impl Transaction {
    /// Makes a table that must not exist yet, and belongs to the socket that makes it.
    fn create_owned(table: &str) -> Self {
        let mut transaction = Self::empty(table);
        let attributes = vec![transaction.name(), TableAttribute::Flags(TableFlags::Owner)];
        transaction.add(
            NLM_F_CREATE | NLM_F_EXCL,
            NfTablesMessage::NewTable(TableMessage { attributes }),
        );
        transaction
    }

    /// Makes a table without flags, in the place of one of this name and all that it has.
    pub(super) fn replace(table: &str, comment: &str) -> Self {
        let mut transaction = Self::empty(table);
        // Only what exists can be deleted.
        let existing = vec![transaction.name()];
        transaction.add(
            NLM_F_CREATE,
            NfTablesMessage::NewTable(TableMessage { attributes: existing }),
        );
        transaction.delete_table();
        let attributes = vec![
            transaction.name(),
            TableAttribute::UserData(comment_data(comment)),
        ];
        transaction.add(
            NLM_F_CREATE | NLM_F_EXCL,
            NfTablesMessage::NewTable(TableMessage { attributes }),
        );
        transaction
    }

    /// Removes a table, which must exist, and all that it has.
    pub(super) fn delete(table: &str) -> Self {
        let mut transaction = Self::empty(table);
        transaction.delete_table();
        transaction
    }

    fn delete_table(&mut self) {
        let attributes = vec![self.name()];
        self.add(0, NfTablesMessage::DeleteTable(TableMessage { attributes }));
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
    pub(super) fn base_chain(&mut self, chain: &BaseChain) {
        let hook = vec![Hook::Number(chain.hook.into()), Hook::Priority(chain.priority)];
        let mut attributes = vec![
            ChainAttribute::Type(chain.kind.to_owned()),
            ChainAttribute::Hook(hook),
        ];
        attributes.extend(chain.policy.map(ChainAttribute::Policy));
        self.new_chain(chain.name, attributes);
    }

    /// Adds a chain that rules of others jump to.
    pub(super) fn chain(&mut self, name: &str) {
        self.new_chain(name, Vec::new());
    }

    fn new_chain(&mut self, name: &str, more: Vec<ChainAttribute>) {
        let mut attributes = vec![
            ChainAttribute::Table(self.table.clone()),
            ChainAttribute::Name(name.to_owned()),
        ];
        attributes.extend(more);
        self.add(
            NLM_F_CREATE | NLM_F_EXCL,
            NfTablesMessage::NewChain(ChainMessage { attributes }),
        );
    }

    /// Adds a rule behind those of this chain.
    pub(super) fn rule(&mut self, chain: &str, expressions: Vec<Expressions>, comment: Option<&str>) {
        let mut attributes = vec![
            RuleAttribute::Table(self.table.clone()),
            RuleAttribute::Chain(chain.to_owned()),
            RuleAttribute::Expressions(expressions.into_iter().map(Into::into).collect()),
        ];
        attributes.extend(comment.map(|comment| RuleAttribute::UserData(comment_data(comment))));
        self.add(
            NLM_F_CREATE | NLM_F_APPEND,
            NfTablesMessage::NewRule(RuleMessage { attributes }),
        );
    }

    /// Has the kernel apply it.
    pub(super) fn apply(mut self, socket: &mut Socket<NetfilterMessage>) -> io::Result<()> {
        if let Some((flags, _)) = self.messages.last_mut() {
            *flags |= NLM_F_ACK;
        }
        self.messages.push((0, batch(ControlMessage::BatchEnd)));
        socket.transact(self.messages)
    }
}

/// A comment as `nft` writes it into the user data of tables and rules: its type, its length, the text and a zero.
fn comment_data(text: &str) -> Vec<u8> {
    let mut text = text.as_bytes().to_vec();
    text.truncate(COMMENT_BYTES_MAX - 1);
    text.push(0);
    let length = u8::try_from(text.len()).expect("it was cut to fewer bytes");
    [&[COMMENT_TYPE, length], text.as_slice()].concat()
}

/// The text of such a comment; `None` where the user data begins with something else.
fn comment_text(data: &[u8]) -> Option<String> {
    let (&[kind, length], text) = data.split_first_chunk::<2>()?;
    let text = text.get(..usize::from(length))?.strip_suffix(&[0])?;
    (kind == COMMENT_TYPE).then(|| String::from_utf8_lossy(text).into_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_as_they_were_written_and_what_is_none_is_left_alone() {
        for text in ["", "DHCP", "2001:db8::/32 (excluded)"] {
            assert_eq!(comment_text(&comment_data(text)).as_deref(), Some(text));
        }
        let long = "x".repeat(500);
        assert_eq!(comment_text(&comment_data(&long)).unwrap(), long[..127]);
        for data in [&[][..], &[0], &[0, 3, b'a', 0], &[0, 1, b'a'], &[1, 2, b'a', 0]] {
            assert_eq!(comment_text(data), None, "{data:?}");
        }
    }
}
