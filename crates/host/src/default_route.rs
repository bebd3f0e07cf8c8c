//! Everything of this machine into a TUN, by rules of routing and a table of our own.
//!
//! A rule sends all packets without [`OUTER_MARK`] to the table, before the main table is asked: no route that DHCP, a
//! router or somebody else puts there wins over the tunnel. In the table a default route leads into the TUN where there
//! is a lease, and below it one that makes everything unreachable is always there, so that an address family without a
//! lease, a TUN without addresses and a TUN that is gone let nothing past. What is excepted is thrown back to the rules
//! behind ours, which decide as if there were no tunnel.
//!
//! Answers to marked packets come without the mark, so a reverse-path filter would hold them against the table; they
//! are given it before it looks ([`answers::Answers`]).

mod answers;
mod rule;
mod table;

use std::path::Path;

use super::error::HostError;
use super::mark::OUTER_MARK;
use super::network::Network;
use super::prefix::Prefix;
use answers::Answers;
pub(crate) use rule::Rule;
pub(crate) use table::clear;

/// The first of our tables; the interface's index is added, so that each TUN has its own.
const TABLE_BASE: u32 = 0x6772_0000;

/// Without it the reverse-path filter of IPv4 does not look at marks.
pub(crate) const FILTER_HEEDS_MARKS: &str = "net/ipv4/conf/all/src_valid_mark";

/// It is there where the kernel has IPv6.
const IPV6_PARAMETERS: &str = "/proc/sys/net/ipv6";

/// Leads everything into a TUN. Made by [`crate::Undo::start_default_route`], and undone by that.
#[derive(Debug)]
pub struct DefaultRoute {
    tun: u32,
    table: u32,
    rules: Vec<Rule>,
    answers: Option<Answers>,
    warning: Option<String>,
}

impl DefaultRoute {
    /// The table for this TUN, and the rules that lead to it; nothing is made.
    pub(crate) fn new(tun: u32) -> Self {
        let table = TABLE_BASE.wrapping_add(tun);
        let mut rules = vec![Rule::dhcp_requests(), Rule::unmarked(true, OUTER_MARK, table)];
        if Path::new(IPV6_PARAMETERS).exists() {
            rules.push(Rule::unmarked(false, OUTER_MARK, table));
        }
        Self {
            tun,
            table,
            rules,
            answers: None,
            warning: None,
        }
    }

    pub(crate) fn table(&self) -> u32 {
        self.table
    }

    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Makes what stands before the rules lead to the table: everything is unreachable, and answers are marked.
    pub(crate) fn prepare(&mut self, network: &mut Network) -> Result<(), HostError> {
        let refused = self.fill(network, &[], &[])?;
        if let Some((_, error)) = refused.into_iter().next() {
            return Err(error);
        }
        match Answers::start(self.tun) {
            Ok(answers) => self.answers = Some(answers),
            Err(error) => {
                self.warning = Some(format!(
                    "a reverse-path filter may drop what is answered outside the tunnel: {error}"
                ));
            }
        }
        Ok(())
    }

    /// What the kernel cannot do, and what comes of it.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.warning.clone()
    }

    /// Leads these destinations into the TUN, and what is in `exceptions` past it; of equal prefixes the exception
    /// counts. Everything else is unreachable. What others took away meanwhile, rules included, is made again. Each
    /// destination that could not be set, and why.
    ///
    /// # Errors
    /// The kernel does not answer, or a rule cannot be made.
    pub fn set(
        &self,
        network: &mut Network,
        into_tun: &[Prefix],
        exceptions: &[Prefix],
    ) -> Result<Vec<(Prefix, HostError)>, HostError> {
        let refused = self.fill(network, into_tun, exceptions)?;
        self.rules.iter().try_for_each(|rule| network.add_rule(rule))?;
        Ok(refused)
    }

    fn fill(
        &self,
        network: &mut Network,
        into_tun: &[Prefix],
        exceptions: &[Prefix],
    ) -> Result<Vec<(Prefix, HostError)>, HostError> {
        let mut wanted = table::wanted(into_tun, exceptions);
        wanted.retain(|entry| {
            let is_ipv4 = entry.destination.address().is_ipv4();
            self.rules.iter().any(|rule| rule.leads(is_ipv4, self.table))
        });
        network.fill(self.table, self.tun, &wanted)
    }
}
