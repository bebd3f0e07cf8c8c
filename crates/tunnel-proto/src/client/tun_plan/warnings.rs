//! What people hear of a TUN device that is not what they may expect. Each warning is given once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use masque::ip::Prefix;

use super::TunPlan;
use crate::config::TunRoutes;
use crate::engine::Assignment;
use crate::limits;

/// Both halves of both IP versions: a server that routes them carries everything.
const HALF_DEFAULTS: [(IpAddr, u8); 4] = [
    (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 1),
    (IpAddr::V4(Ipv4Addr::new(128, 0, 0, 0)), 1),
    (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 1),
    (IpAddr::V6(Ipv6Addr::new(0x8000, 0, 0, 0, 0, 0, 0, 0)), 1),
];

impl TunPlan {
    /// Gives a warning, unless it was given before.
    pub fn warn(&mut self, text: String) {
        if !self.told.contains(&text) && self.told.len() < limits::SENTENCES_MAX {
            self.told.push(text.clone());
            self.warnings.push_back(text);
        }
    }

    /// The next warning for people.
    pub fn poll_warning(&mut self) -> Option<String> {
        self.warnings.pop_front()
    }

    /// The server does not go by this machine's name alone.
    pub(super) fn warn_of_name(&mut self, assignment: &Assignment) {
        if assignment.is_name_taken {
            self.warn(
                "another machine that runs has the same name at the server (a copied state directory?), so this one gets \
                 another address, and uses one connection for IP packets: remove client-*.id from the state directory of \
                 one of them, and start it again"
                    .to_owned(),
            );
        } else if !assignment.is_by_name && self.stripes.len() > 1 {
            self.warn(format!(
                "the server is not Gramway and would give each connection another address: IP packets use one of the \
                 {} connections",
                self.stripes.len()
            ));
        }
        if assignment.is_name_shared {
            self.warn(
                "another machine that runs has the same name at the server (a copied state directory?), and gets another \
                 address: remove client-*.id from the state directory of one of them, and start it again"
                    .to_owned(),
            );
        }
    }

    /// An address that the path cannot serve.
    pub(super) fn warn_of_narrow_path(&mut self) {
        self.warn(
            "the server's IPv6 address is not used: the path carries less than 1,280 bytes, and the server does not \
             split packets"
                .to_owned(),
        );
    }

    /// Addresses that are not taken, or none at all.
    pub(super) fn warn_of_addresses(&mut self, refused: &[Prefix]) {
        for refused in refused {
            self.warn(format!(
                "the server assigned {refused}, which is not used: it is no single address, or belongs to a network that \
                 this machine reaches without the tunnel; the server's owner can choose another --pool"
            ));
        }
        if self.addresses.is_empty() {
            self.warn("the server assigned no address to the TUN".to_owned());
        }
    }

    /// The default route leads to a server that does not carry everything.
    pub(super) fn warn_of_missing_default(&mut self) {
        let carries_all = |is_ipv4: bool| {
            let has = |address, length| {
                let mut advertised = self.advertised.iter();
                advertised.any(|prefix| prefix.address() == address && prefix.length() == length)
            };
            let mut halves = HALF_DEFAULTS.iter().filter(|(half, _)| half.is_ipv4() == is_ipv4);
            let all = if is_ipv4 { Prefix::ALL_V4 } else { Prefix::ALL_V6 };
            has(all.address(), 0) || halves.all(|(half, length)| has(*half, *length))
        };
        let is_missing = [true, false]
            .into_iter()
            .any(|is_ipv4| self.has_address(is_ipv4) && !carries_all(is_ipv4));
        if self.acceptance.has_default_route() && is_missing {
            self.warn(
                "the server does not carry everything that --default-route sends to it, and refuses the rest: its owner \
                 can start it with `gramway up --tun --nat`"
                    .to_owned(),
            );
        }
    }

    /// Routes that the server advertises and that are not taken unasked.
    fn warn_of_refused_routes(&mut self) {
        if self.advertised.iter().any(|route| route.length() <= 1) {
            self.warn(
                "the server routes everything, which is used only with --default-route; --route CIDR takes a part of it"
                    .to_owned(),
            );
        }
        let refused = |route: &&Prefix| route.length() > 1 && !self.acceptance.takes_advertised(route);
        let refused: Vec<String> = self
            .advertised
            .iter()
            .filter(refused)
            .take(limits::ROUTES_TOLD_MAX)
            .map(ToString::to_string)
            .collect();
        if !refused.is_empty() {
            self.warn(format!(
                "the server routes {}, which is public or covers what this machine reaches without the tunnel, and is not \
                 used: --route CIDR takes it all the same",
                refused.join(", ")
            ));
        }
    }

    /// What the user asked for, or may expect, and does not get.
    pub(super) fn warn_of_useless_routes(&mut self) {
        let configured = self.configured_routes();
        let useless = configured
            .iter()
            .find(|route| !self.has_address(route.address().is_ipv4()));
        let default_route = self.acceptance.has_default_route();
        let is_asked_for = default_route || matches!(self.acceptance.settings(), TunRoutes::These(_));
        if let (Some(route), true) = (useless, is_asked_for && !self.addresses.is_empty()) {
            let version = if route.address().is_ipv4() { "IPv4" } else { "IPv6" };
            let consequence = if default_route {
                "is unreachable while this client runs"
            } else {
                "is not routed through the TUN"
            };
            self.warn(format!(
                "{version} {consequence}: the server assigned no {version} address"
            ));
        }
        if !default_route && *self.acceptance.settings() == TunRoutes::Advertised {
            self.warn_of_refused_routes();
        }
    }
}
