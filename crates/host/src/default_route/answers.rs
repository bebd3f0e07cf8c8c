//! Answers to marked packets, marked before a reverse-path filter looks at them.
//!
//! The filter asks by which interface an answer to the sender would leave, and drops what came in by another one.
//! Without the mark that is the TUN, or nothing at all. So what comes in by any other interface for an address of that
//! interface gets the mark. Packets on their way through stay without, so that they are routed into the TUN, and so do
//! those for the TUN's own addresses, which nobody outside the tunnel should send.

use netlink_packet_netfilter::nftables::{InetHookNumber, Operator};

use crate::error::{Explain, HostError};
use crate::mark::OUTER_MARK;
use crate::nftables::expression::{enters_by, is_for_interface, set_mark};
use crate::nftables::{BaseChain, OwnedTable};

/// `raw`, the first of the named priorities: filters of other programs come behind it.
const PREROUTING: BaseChain = BaseChain {
    name: "prerouting",
    kind: "filter",
    hook: InetHookNumber::PreRouting,
    priority: (-300_i32).cast_unsigned(),
    policy: None,
};

/// Marks answers while it lives.
#[derive(Debug)]
pub(super) struct Answers {
    _table: OwnedTable,
}

impl Answers {
    /// # Errors
    /// A missing privilege, or a kernel without nftables, its `fib` expression or owned tables (before Linux 5.12).
    pub(super) fn start(tun: u32) -> Result<Self, HostError> {
        let name = format!("gramway_answers_{}_{tun}", std::process::id());
        let matches = [enters_by(Operator::NotEqual, tun), is_for_interface()].concat();
        let rule = [matches, set_mark(OUTER_MARK)].concat();
        OwnedTable::make(&name, &PREROUTING, [rule])
            .map(|table| Self { _table: table })
            .explain(|| "mark them (nftables, Linux 5.12 or later)".to_owned())
    }
}
