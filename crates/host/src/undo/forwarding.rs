//! Side effects of switching forwarding on, which are undone, too.
//!
//! The switch sets the parameter of every interface, too, and resets `accept_redirects` of IPv4; switched off it does
//! so the other way. What was different before is therefore on the list before the switch, and undone after it.
//! IPv6 with forwarding ignores routers, and forgets those it knows, unless `accept_ra` is 2: set first, where it is 1.

use super::change::Change;
use crate::parameter;

/// The switch of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    V4,
    V6,
}

impl Forwarding {
    /// The parameter.
    pub(super) fn switch(self) -> &'static str {
        match self {
            Self::V4 => "net/ipv4/ip_forward",
            Self::V6 => "net/ipv6/conf/all/forwarding",
        }
    }

    /// Where all parameters of the protocol are.
    pub(super) fn parameters(self) -> &'static str {
        match self {
            Self::V4 => "net/ipv4/",
            Self::V6 => "net/ipv6/",
        }
    }

    /// Changes that switching off will make, for the list only.
    pub(super) fn side_effects(self) -> Vec<Change> {
        let directory = format!("{}conf", self.parameters());
        let mut affected: Vec<_> = parameter::interfaces(&directory)
            .into_iter()
            .chain(["default".to_owned()])
            .map(|interface| (format!("{directory}/{interface}/forwarding"), "0"))
            .collect();
        if self == Self::V4 {
            affected.push(("net/ipv4/conf/all/accept_redirects".to_owned(), "1"));
        }
        let differs = |(name, after): (String, &str)| {
            let before = parameter::read(&name).ok().filter(|before| before != after)?;
            Some(change(name, &before, after))
        };
        affected.into_iter().filter_map(differs).collect()
    }

    /// Changes to be made, in this order.
    pub(super) fn changes(self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self == Self::V6 {
            let learning = parameter::interfaces("net/ipv6/conf")
                .into_iter()
                .filter(|interface| interface != "lo")
                .map(|interface| format!("net/ipv6/conf/{interface}/accept_ra"))
                .filter(|name| parameter::read(name).is_ok_and(|value| value == "1"));
            changes.extend(learning.map(|name| change(name, "1", "2")));
        }
        changes.push(change(self.switch().to_owned(), "0", "1"));
        changes
    }
}

fn change(name: String, before: &str, after: &str) -> Change {
    Change::Parameter {
        name,
        before: before.to_owned(),
        after: after.to_owned(),
    }
}
