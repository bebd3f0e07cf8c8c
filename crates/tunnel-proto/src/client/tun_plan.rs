//! What a client's TUN device should have: the addresses, routes and MTU that settings, server and paths make together.
//!
//! The driver gives the device what this says, and reports what the host refused.

mod warnings;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Instant;

use masque::ip::Prefix;

use super::acceptance::{Acceptance, LocalNetworks};
use super::holders::Holders;
use crate::engine::Assignment;
use crate::limits;

#[derive(Clone, Copy, Default)]
struct Stripe {
    is_up: bool,
    packet_max: Option<usize>,
}

/// All stripes' IP sessions, and the device that follows from them.
pub struct TunPlan {
    acceptance: Acceptance,
    stripes: Vec<Stripe>,
    holders: Holders,
    addresses: Vec<Prefix>,
    /// What the server routes, as it said last.
    advertised: Vec<Prefix>,
    /// When the addresses, the routes or the MTU changed last, until it was told.
    changed: Option<Instant>,
    /// Warnings that were given.
    told: Vec<String>,
    warnings: VecDeque<String>,
}

impl TunPlan {
    /// No stripe has a session.
    #[must_use]
    pub fn new(stripes: usize, acceptance: Acceptance) -> Self {
        Self {
            acceptance,
            stripes: vec![Stripe::default(); stripes],
            holders: Holders::One(None),
            addresses: Vec::new(),
            advertised: Vec::new(),
            changed: None,
            told: Vec::new(),
            warnings: VecDeque::new(),
        }
    }

    /// What the machine reaches past the tunnel: nothing of the server leads there.
    pub fn set_local(&mut self, local: &LocalNetworks) {
        self.acceptance.set_local(local);
    }

    /// Whether a stripe may ask for a session.
    pub fn may_ask(&mut self, stripe: usize) -> bool {
        self.holders.may_ask(stripe)
    }

    /// A stripe got addresses and routes; its longest packet is `packet_max`.
    pub fn handle_assigned(
        &mut self,
        now: Instant,
        stripe: usize,
        assignment: &Assignment,
        packet_max: Option<usize>,
    ) {
        self.changed = Some(now);
        self.stripes[stripe] = Stripe {
            is_up: true,
            packet_max,
        };
        if assignment.is_by_name {
            self.holders = Holders::All;
        }
        self.warn_of_name(assignment);
        let carries_v6 =
            assignment.can_split || packet_max.is_some_and(|bytes| bytes >= packet::limits::IPV6_MTU_MIN);
        self.addresses.clone_from(&assignment.addresses);
        if !carries_v6 && self.has_address(false) {
            self.addresses.retain(|prefix| prefix.address().is_ipv4());
            self.warn_of_narrow_path();
        }
        self.warn_of_addresses(&assignment.refused);
        if let Some(routes) = &assignment.routes {
            self.advertised.clone_from(routes);
            self.warn_of_missing_default();
        }
        self.warn_of_useless_routes();
    }

    /// A stripe's session is over, or did not come about.
    pub fn handle_lost(&mut self, stripe: usize) {
        self.stripes[stripe] = Stripe::default();
        let is_last = !self.stripes.iter().any(|stripe| stripe.is_up);
        self.holders.lost(stripe, is_last);
    }

    /// A stripe's longest packet. Whether it changed.
    pub fn set_packet_max(&mut self, stripe: usize, packet_max: Option<usize>) -> bool {
        std::mem::replace(&mut self.stripes[stripe].packet_max, packet_max) != packet_max
    }

    /// The device's MTU changed.
    pub fn mark_changed(&mut self, now: Instant) {
        self.changed = Some(now);
    }

    /// True once after changes, when nothing has changed for [`limits::TUN_SETTLED`].
    pub fn take_settled(&mut self, now: Instant) -> bool {
        let settled = |changed: &mut Instant| now.saturating_duration_since(*changed) >= limits::TUN_SETTLED;
        self.changed.take_if(settled).is_some()
    }

    /// The addresses of the device.
    #[must_use]
    pub fn addresses(&self) -> &[Prefix] {
        &self.addresses
    }

    /// What every stripe carries, and at least what the kernel takes; `None` while no stripe is up.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        let up = self.stripes.iter().filter(|stripe| stripe.is_up);
        let least = up.filter_map(|stripe| stripe.packet_max).min()?;
        let floor = if self.has_address(false) {
            packet::limits::IPV6_MTU_MIN
        } else {
            packet::limits::IPV4_MTU_MIN
        };
        Some(u32::try_from(least.max(floor)).unwrap_or(u32::MAX))
    }

    /// The routes of the device: packets on those of an IP version without address could not be answered. Under a default
    /// route such a version is unreachable.
    #[must_use]
    pub fn routes(&self) -> Vec<Prefix> {
        let mut routes = self.configured_routes();
        routes.retain(|route| self.has_address(route.address().is_ipv4()));
        routes
    }

    /// Whether a packet to `address` would be routed into the TUN, once it has addresses.
    #[must_use]
    pub fn leads_into_tun(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.configured_routes()
            .iter()
            .any(|route| route.contains(address))
    }

    /// Whether the device has an address of this version.
    fn has_address(&self, is_ipv4: bool) -> bool {
        self.addresses
            .iter()
            .any(|prefix| prefix.address().is_ipv4() == is_ipv4)
    }

    /// The routes that the settings and the server make together, whatever addresses there are.
    fn configured_routes(&self) -> Vec<Prefix> {
        self.acceptance.routes(&self.advertised)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::TunRoutes;

    fn start() -> Instant {
        // tidy-allow(pure): first instant of virtual time
        Instant::now()
    }

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn assignment(addresses: &[&str], routes: &[&str], is_by_name: bool) -> Assignment {
        Assignment {
            addresses: prefixes(addresses),
            routes: Some(prefixes(routes)),
            is_by_name,
            is_name_taken: false,
            is_name_shared: false,
            name_servers: Vec::new(),
            refused: Vec::new(),
            can_split: false,
        }
    }

    fn plan(stripes: usize, routes: TunRoutes, default_route: bool) -> TunPlan {
        TunPlan::new(stripes, Acceptance::new(routes, default_route))
    }

    fn warnings(plan: &mut TunPlan) -> usize {
        std::iter::from_fn(|| plan.poll_warning()).count()
    }

    #[test]
    fn advertised_routes_are_taken_but_no_default_route_which_is_told_once() {
        let mut plan = plan(1, TunRoutes::Advertised, false);
        let assigned = assignment(&["10.77.0.2"], &["10.0.0.0/8", "0.0.0.0/0", "fd00::/8"], true);
        plan.handle_assigned(start(), 0, &assigned, Some(1_400));
        assert_eq!(plan.routes(), prefixes(&["10.0.0.0/8"]));
        assert!(plan.leads_into_tun("10.1.2.3".parse().unwrap()));
        assert!(!plan.leads_into_tun("192.0.2.1".parse().unwrap()));
        assert_eq!(warnings(&mut plan), 1);
        plan.handle_assigned(start(), 0, &assigned, Some(1_400));
        assert_eq!(warnings(&mut plan), 0);
    }

    #[test]
    fn a_default_route_is_one_of_each_version_that_has_an_address() {
        let mut plan = plan(1, TunRoutes::None, true);
        plan.handle_assigned(
            start(),
            0,
            &assignment(&["10.77.0.2"], &["0.0.0.0/0"], true),
            Some(1_400),
        );
        assert_eq!(plan.routes(), prefixes(&["0.0.0.0/0"]));
        let warning = plan.poll_warning().unwrap();
        assert!(warning.contains("IPv6 is unreachable"), "{warning}");
        assert!(plan.leads_into_tun("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn an_empty_assignment_takes_the_routes_and_the_next_one_brings_them_back() {
        let mut plan = plan(1, TunRoutes::Advertised, true);
        let assigned = assignment(&["10.77.0.2", "fd77::2"], &["10.77.0.0/24"], true);
        let all = prefixes(&["10.77.0.0/24", "0.0.0.0/0", "::/0"]);
        plan.handle_assigned(start(), 0, &assigned, Some(1_400));
        assert_eq!(plan.routes(), all);
        plan.handle_assigned(start(), 0, &assignment(&[], &["10.77.0.0/24"], true), Some(1_400));
        assert!(plan.routes().is_empty() && plan.addresses().is_empty());
        // The server is outside the tunnel by its mark, not by a route: nothing else may go past.
        assert!(plan.leads_into_tun("203.0.113.1".parse().unwrap()));
        plan.handle_assigned(start(), 0, &assigned, Some(1_400));
        assert_eq!(plan.routes(), all);
    }

    #[test]
    fn a_default_route_to_a_server_that_does_not_carry_everything_is_told_once() {
        let told = |routes: &[&str], default_route| {
            let mut plan = plan(1, TunRoutes::Advertised, default_route);
            for _ in 0..2 {
                let assigned = assignment(&["10.77.0.2"], routes, true);
                plan.handle_assigned(start(), 0, &assigned, Some(1_400));
            }
            let all: Vec<_> = std::iter::from_fn(|| plan.poll_warning()).collect();
            all.iter().filter(|text| text.contains("--nat")).count()
        };
        assert_eq!(told(&["10.0.0.0/8"], true), 1);
        assert_eq!(told(&[], true), 1);
        assert_eq!(told(&["0.0.0.0/0"], true), 0);
        assert_eq!(told(&["0.0.0.0/1", "128.0.0.0/1"], true), 0);
        assert_eq!(told(&["0.0.0.0/1"], true), 1);
        assert_eq!(told(&["10.0.0.0/8"], false), 0);
    }

    #[test]
    fn the_mtu_is_that_of_the_narrowest_stripe_and_at_least_what_the_kernel_takes() {
        let mut plan = plan(2, TunRoutes::Advertised, false);
        assert_eq!(plan.mtu(), None);
        let assigned = assignment(&["10.77.0.2"], &[], true);
        plan.handle_assigned(start(), 0, &assigned, Some(1_400));
        plan.handle_assigned(start(), 1, &assigned, Some(1_300));
        assert_eq!(plan.mtu(), Some(1_300));
        assert!(plan.set_packet_max(1, Some(10)) && !plan.set_packet_max(1, Some(10)));
        assert_eq!(plan.mtu(), Some(packet::limits::IPV4_MTU_MIN as u32));
        plan.handle_lost(1);
        assert_eq!(plan.mtu(), Some(1_400));
    }

    #[test]
    fn an_ipv6_address_needs_a_path_that_carries_its_least_packets() {
        let mut plan = plan(1, TunRoutes::Advertised, false);
        let mut assigned = assignment(&["10.77.0.2", "fd77::2"], &[], true);
        plan.handle_assigned(start(), 0, &assigned, Some(1_200));
        assert_eq!(plan.addresses(), prefixes(&["10.77.0.2"]));
        assert_eq!(warnings(&mut plan), 1);
        assigned.can_split = true;
        plan.handle_assigned(start(), 0, &assigned, Some(1_200));
        assert_eq!(plan.addresses().len(), 2);
        assert_eq!(plan.mtu(), Some(1_280));
    }

    #[test]
    fn where_each_session_has_its_own_address_one_stripe_has_a_session() {
        let mut plan = plan(2, TunRoutes::Advertised, false);
        assert!(plan.may_ask(1) && !plan.may_ask(0));
        plan.handle_assigned(start(), 1, &assignment(&["10.77.0.2"], &[], false), Some(1_400));
        assert!(!plan.may_ask(0));
        assert_eq!(warnings(&mut plan), 1);
        plan.handle_lost(1);
        assert!(plan.may_ask(0));
        plan.handle_assigned(start(), 0, &assignment(&["10.77.0.2"], &[], true), Some(1_400));
        assert!(plan.may_ask(1));
    }

    #[test]
    fn changes_are_settled_once_after_a_while_without_any() {
        let now = start();
        let mut plan = plan(1, TunRoutes::Advertised, false);
        assert!(!plan.take_settled(now));
        plan.mark_changed(now);
        plan.mark_changed(now + limits::TUN_SETTLED / 2);
        assert!(!plan.take_settled(now + limits::TUN_SETTLED));
        let later = now + 2 * limits::TUN_SETTLED;
        assert!(plan.take_settled(later) && !plan.take_settled(later + Duration::from_secs(1)));
    }
}
