//! What is read of a table: its comment, and those of its rules.

use std::io;

use netlink_packet_netfilter::nftables::{
    NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute, TableMessage,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner};

use super::{comment_text, inet};
use crate::netlink::Socket;

/// The comment of a table, empty where it has none; `None` where there is no such table.
pub(crate) fn table_comment(
    socket: &mut Socket<NetfilterMessage>,
    table: &str,
) -> io::Result<Option<String>> {
    let attributes = vec![TableAttribute::Name(table.to_owned())];
    let question = inet(NfTablesMessage::GetTable(TableMessage { attributes }));
    let mut data = Vec::new();
    let asked = socket.ask(question, |message| {
        if let NetfilterMessageInner::NfTables(NfTablesMessage::NewTable(table)) = message.inner {
            let user_data = table
                .attributes
                .into_iter()
                .find_map(|attribute| match attribute {
                    TableAttribute::UserData(data) => Some(data),
                    _ => None,
                });
            data = user_data.unwrap_or_default();
        }
    });
    match asked {
        Ok(()) => Ok(Some(comment_text(&data).unwrap_or_default())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The comments of a chain's rules, in their order; a rule without one is passed over.
pub(crate) fn rule_comments(
    socket: &mut Socket<NetfilterMessage>,
    table: &str,
    chain: &str,
) -> io::Result<Vec<String>> {
    let attributes = vec![
        RuleAttribute::Table(table.to_owned()),
        RuleAttribute::Chain(chain.to_owned()),
    ];
    let question = inet(NfTablesMessage::GetRule(RuleMessage { attributes }));
    socket.list(question, |message| {
        let NetfilterMessageInner::NfTables(NfTablesMessage::NewRule(rule)) = message.inner else {
            return None;
        };
        rule.attributes.into_iter().find_map(|attribute| match attribute {
            RuleAttribute::UserData(data) => comment_text(&data),
            _ => None,
        })
    })
}
