//! How one stripe finds its server: which server and address come next, how long each may take, and the pauses between.
//!
//! Addresses at which the server has taken the token come first, the latest one before the others: a connection that is
//! lost is often back there before a name could be resolved, and name servers may be out of reach without the tunnel.
//! Then servers are tried in their order, and of each its addresses in the resolver's order. Where all failed, a pause
//! follows that doubles from round to round and is random in its second half. A connection that is lost after it was up
//! begins again at once.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::limits;

/// Why an attempt without any answer failed.
const NO_ANSWER: &str = "no answer";

/// What the driver has to do next for the connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectAction {
    /// Resolve a name, and tell [`Reconnection::handle_resolved`] whatever comes of it.
    Resolve {
        /// Goes back with the answer.
        resolution: u64,
        /// The name.
        host: String,
        /// Goes into the addresses.
        port: u16,
    },
    /// Begin to connect. Where that fails at once, tell [`Reconnection::handle_attempt_failed`].
    Connect {
        /// The address.
        address: SocketAddr,
        /// The server as the settings name it.
        server_name: String,
    },
    /// Close the attempt, which takes too long; [`Reconnection::handle_lost`] is to follow.
    Disconnect,
    /// Every address of every server has failed, and a pause follows: a sentence for people.
    Unreachable {
        /// Server, and what happened last.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A server's name is being resolved.
    Resolving,
    /// An address is being tried.
    Attempt { until: Instant },
    /// An attempt took too long, and its end has not been told.
    Expired,
    /// The server has taken the token.
    Up,
    /// Every address has failed, or nothing has been tried.
    Pause { until: Instant },
}

/// An address of a server, which is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    server: usize,
    address: SocketAddr,
}

/// One stripe's connection to a server, which is made again whenever it is lost.
pub struct Reconnection {
    /// Host name or address, and port, in order of preference; at least one.
    servers: Vec<(String, u16)>,
    phase: Phase,
    /// Where the server has taken the token, the latest first.
    good: Vec<Candidate>,
    /// The server whose addresses come next, by index.
    next_server: usize,
    /// What has not been tried, last first.
    untried: Vec<Candidate>,
    /// Addresses of this round that need not be tried again.
    tried: Vec<SocketAddr>,
    /// What was tried last.
    present: Option<Candidate>,
    /// Rounds over all servers that failed one after the other.
    failed_rounds: u32,
    has_been_up: bool,
    /// How often it was up again.
    rejoins: u64,
    last_reason: String,
    /// Numbers the resolutions, so that only the last answer counts.
    resolutions: u64,
    /// Until when a stripe that has not been up keeps its local traffic.
    grace_until: Instant,
    random: StdRng,
    actions: VecDeque<ConnectAction>,
}

impl Reconnection {
    /// Begins with the next [`Reconnection::handle_timeout`]. The pauses follow from `seed`.
    ///
    /// # Panics
    /// Where there is no server.
    #[must_use]
    pub fn new(servers: Vec<(String, u16)>, seed: u64, now: Instant) -> Self {
        assert!(!servers.is_empty(), "a client knows a server");
        Self {
            servers,
            phase: Phase::Pause { until: now },
            good: Vec::new(),
            next_server: 0,
            untried: Vec::new(),
            tried: Vec::new(),
            present: None,
            failed_rounds: 0,
            has_been_up: false,
            rejoins: 0,
            last_reason: String::new(),
            resolutions: 0,
            grace_until: now + limits::STRIPE_GRACE,
            random: StdRng::seed_from_u64(seed),
            actions: VecDeque::new(),
        }
    }

    /// Whether the server has taken the token.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// The server's address that is used, or was tried last.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.present.map(|candidate| candidate.address)
    }

    /// `connecting`, `connected` or `reconnecting`.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        match self.phase {
            Phase::Up => "connected",
            _ if self.has_been_up => "reconnecting",
            _ => "connecting",
        }
    }

    /// How often it was up again.
    #[must_use]
    pub fn rejoins(&self) -> u64 {
        self.rejoins
    }

    /// What went wrong last, for people.
    #[must_use]
    pub fn last_reason(&self) -> &str {
        &self.last_reason
    }

    /// Why the connection is about to be given up by us, for people.
    pub fn set_reason(&mut self, reason: &str) {
        reason.clone_into(&mut self.last_reason);
    }

    /// Whether a sibling should take this stripe's local traffic: it is down, and what it would take away from this
    /// stripe has been here before, or has waited long enough.
    #[must_use]
    pub fn wants_stand_in(&self, now: Instant) -> bool {
        !self.is_up() && (self.has_been_up || self.grace_until <= now)
    }

    /// When [`Reconnection::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Attempt { until } | Phase::Pause { until } => Some(until),
            Phase::Resolving | Phase::Expired | Phase::Up => None,
        }
    }

    /// What is to be done; to be asked after every other call until there is nothing.
    pub fn poll_action(&mut self) -> Option<ConnectAction> {
        self.actions.pop_front()
    }

    /// An attempt that took too long ends, a pause that is over ends.
    pub fn handle_timeout(&mut self, now: Instant) {
        match self.phase {
            Phase::Attempt { until } if until <= now => {
                self.set_reason(NO_ANSWER);
                self.phase = Phase::Expired;
                self.actions.push_back(ConnectAction::Disconnect);
            }
            Phase::Pause { until } if until <= now => self.begin_round(now),
            _ => {}
        }
    }

    /// The addresses of a name, in the order of preference; none where it cannot be resolved.
    pub fn handle_resolved(&mut self, now: Instant, resolution: u64, addresses: &[SocketAddr]) {
        if self.phase != Phase::Resolving || self.resolutions != resolution {
            return;
        }
        let server = self.next_server - 1;
        if addresses.is_empty() {
            self.last_reason = format!("the name {} cannot be resolved", self.servers[server].0);
        }
        let addresses = addresses.iter().rev().copied();
        self.untried
            .extend(addresses.map(|address| Candidate { server, address }));
        self.try_next_address(now);
    }

    /// An attempt could not begin.
    pub fn handle_attempt_failed(&mut self, now: Instant, reason: String) {
        self.last_reason = reason;
        self.try_next_address(now);
    }

    /// The server has taken the token, and the stripe stays. Whether it had been up before.
    pub fn handle_up(&mut self) -> bool {
        self.phase = Phase::Up;
        self.failed_rounds = 0;
        if let Some(present) = self.present {
            self.good.retain(|known| known.address != present.address);
            self.good.insert(0, present);
            self.good.truncate(limits::GOOD_ADDRESSES_MAX);
        }
        let is_again = std::mem::replace(&mut self.has_been_up, true);
        self.rejoins += u64::from(is_again);
        is_again
    }

    /// The present address is to be tried once more as soon as this attempt has ended, from another port.
    pub fn retry_address(&mut self) {
        if let Some(present) = self.present {
            self.tried.retain(|tried| *tried != present.address);
            self.untried.push(present);
        }
    }

    /// The connection, or the attempt, is over: why, unless we ended it ourselves.
    pub fn handle_lost(&mut self, now: Instant, reason: Option<String>) {
        if let Some(reason) = reason {
            self.last_reason = reason;
        }
        match self.phase {
            Phase::Up => self.begin_round(now),
            Phase::Attempt { .. } | Phase::Expired => self.try_next_address(now),
            Phase::Resolving | Phase::Pause { .. } => {}
        }
    }

    /// Begins with what is known to be good.
    fn begin_round(&mut self, now: Instant) {
        self.next_server = 0;
        self.tried.clear();
        self.untried = self.good.iter().rev().copied().collect();
        self.try_next_address(now);
    }

    /// Goes on with the addresses of the next server.
    fn try_next_server(&mut self, now: Instant) {
        let server = self.next_server;
        self.next_server += 1;
        self.resolutions += 1;
        let (host, port) = self.servers[server].clone();
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = SocketAddr::new(address, port);
            self.untried.push(Candidate { server, address });
            return self.try_next_address(now);
        }
        self.phase = Phase::Resolving;
        self.actions.push_back(ConnectAction::Resolve {
            resolution: self.resolutions,
            host,
            port,
        });
    }

    /// Tries the next address, the next server, or pauses.
    fn try_next_address(&mut self, now: Instant) {
        while let Some(candidate) = self.untried.pop() {
            if self.tried.contains(&candidate.address) {
                continue;
            }
            self.tried.push(candidate.address);
            self.present = Some(candidate);
            self.phase = Phase::Attempt {
                until: now + limits::CONNECT_ATTEMPT,
            };
            self.actions.push_back(ConnectAction::Connect {
                address: candidate.address,
                server_name: self.servers[candidate.server].0.clone(),
            });
            return;
        }
        if self.next_server < self.servers.len() {
            return self.try_next_server(now);
        }
        let until = now + self.pause();
        self.phase = Phase::Pause { until };
        let (host, port) = &self.servers[self.servers.len() - 1];
        let hint = if self.last_reason == NO_ANSWER {
            "; a firewall?"
        } else {
            ""
        };
        let reason = format!(
            "cannot reach {host} (UDP {port}, {}{hint}), retrying",
            self.last_reason
        );
        self.actions.push_back(ConnectAction::Unreachable { reason });
    }

    /// The pause after a failed round.
    fn pause(&mut self) -> Duration {
        let doubled = limits::BACKOFF_MIN.saturating_mul(1 << self.failed_rounds.min(16));
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        doubled
            .min(limits::BACKOFF_MAX)
            .mul_f64(self.random.random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Instant {
        // tidy-allow(pure): first instant of virtual time
        Instant::now()
    }

    fn reconnection(hosts: &[&str], now: Instant) -> Reconnection {
        let servers = hosts.iter().map(|host| ((*host).to_owned(), 443)).collect();
        Reconnection::new(servers, 7, now)
    }

    fn connects_to(reconnection: &mut Reconnection, host: &str) -> bool {
        let expected = SocketAddr::new(host.parse().unwrap(), 443);
        matches!(reconnection.poll_action(), Some(ConnectAction::Connect { address, .. }) if address == expected)
    }

    /// Lets the attempt or the pause run out, and tells the loss of an attempt.
    fn run_out(reconnection: &mut Reconnection) -> Instant {
        let due = reconnection.poll_timeout().unwrap();
        reconnection.handle_timeout(due);
        if reconnection.actions.front() == Some(&ConnectAction::Disconnect) {
            reconnection.poll_action();
            assert_eq!(reconnection.poll_timeout(), None);
            reconnection.handle_lost(due, None);
        }
        due
    }

    #[test]
    fn addresses_come_in_their_order_then_the_next_server_then_a_pause() {
        let now = start();
        let mut reconnection = reconnection(&["a.test", "192.0.2.9"], now);
        assert_eq!(reconnection.state_name(), "connecting");
        reconnection.handle_timeout(now);
        let Some(ConnectAction::Resolve { resolution, host, .. }) = reconnection.poll_action() else {
            panic!("a name is resolved first");
        };
        assert_eq!(host, "a.test");
        reconnection.handle_resolved(now, resolution + 1, &[]);
        assert_eq!(reconnection.poll_action(), None);
        let addresses = ["192.0.2.1", "192.0.2.2"].map(|ip| SocketAddr::new(ip.parse().unwrap(), 443));
        reconnection.handle_resolved(now, resolution, &addresses);
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
        reconnection.handle_attempt_failed(now, "no route".to_owned());
        assert!(connects_to(&mut reconnection, "192.0.2.2"));
        assert_eq!(reconnection.poll_timeout(), Some(now + limits::CONNECT_ATTEMPT));
        run_out(&mut reconnection);
        assert!(connects_to(&mut reconnection, "192.0.2.9"));
        run_out(&mut reconnection);
        let reason = "cannot reach 192.0.2.9 (UDP 443, no answer; a firewall?), retrying".to_owned();
        assert_eq!(
            reconnection.poll_action(),
            Some(ConnectAction::Unreachable { reason })
        );
        run_out(&mut reconnection);
        assert!(matches!(
            reconnection.poll_action(),
            Some(ConnectAction::Resolve { .. })
        ));
    }

    #[test]
    fn a_name_that_cannot_be_resolved_leaves_the_next_server() {
        let now = start();
        let mut reconnection = reconnection(&["a.test", "b.test", "192.0.2.9"], now);
        reconnection.handle_timeout(now);
        reconnection.poll_action();
        reconnection.handle_resolved(now, 1, &[]);
        assert_eq!(reconnection.last_reason(), "the name a.test cannot be resolved");
        assert!(matches!(
            reconnection.poll_action(),
            Some(ConnectAction::Resolve { host, .. }) if host == "b.test"
        ));
        reconnection.handle_resolved(now, 2, &[]);
        assert!(connects_to(&mut reconnection, "192.0.2.9"));
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_their_second_half_is_random() {
        let mut now = start();
        let mut reconnection = reconnection(&["192.0.2.1"], now);
        reconnection.handle_timeout(now);
        let mut full = limits::BACKOFF_MIN;
        for _ in 0..40 {
            assert!(connects_to(&mut reconnection, "192.0.2.1"));
            reconnection.handle_lost(now, Some("refused".to_owned()));
            reconnection.poll_action();
            let pause = reconnection.poll_timeout().unwrap() - now;
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
            now = run_out(&mut reconnection);
            full = (full * 2).min(limits::BACKOFF_MAX);
        }
        reconnection.poll_action();
        reconnection.handle_up();
        reconnection.handle_lost(now, Some("timed out".to_owned()));
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
        reconnection.handle_lost(now, Some("refused".to_owned()));
        assert!(reconnection.poll_timeout().unwrap() - now <= limits::BACKOFF_MIN);
    }

    #[test]
    fn pauses_are_those_of_the_seed() {
        let now = start();
        let pause = |seed| {
            let mut reconnection = Reconnection::new(vec![("192.0.2.1".to_owned(), 443)], seed, now);
            reconnection.handle_timeout(now);
            reconnection.handle_lost(now, None);
            reconnection.poll_timeout()
        };
        assert_eq!(pause(1), pause(1));
        assert_ne!(pause(1), pause(2));
    }

    #[test]
    fn a_lost_connection_is_sought_where_it_was_before_a_name_is_resolved() {
        let now = start();
        let mut reconnection = reconnection(&["a.test"], now);
        reconnection.handle_timeout(now);
        reconnection.poll_action();
        let at = |host: &str| SocketAddr::new(host.parse().unwrap(), 443);
        reconnection.handle_resolved(now, 1, &[at("192.0.2.1"), at("192.0.2.2")]);
        reconnection.poll_action();
        reconnection.handle_up();
        reconnection.handle_lost(now, None);
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
        let now = run_out(&mut reconnection);
        assert!(matches!(
            reconnection.poll_action(),
            Some(ConnectAction::Resolve { host, .. }) if host == "a.test"
        ));
        // What was tried in this round is not tried again.
        reconnection.handle_resolved(now, 2, &[at("192.0.2.1"), at("192.0.2.3")]);
        assert!(connects_to(&mut reconnection, "192.0.2.3"));
        reconnection.handle_up();
        reconnection.handle_lost(now, None);
        assert!(connects_to(&mut reconnection, "192.0.2.3"));
        run_out(&mut reconnection);
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
    }

    #[test]
    fn no_more_good_addresses_are_kept_than_the_limit() {
        let now = start();
        let mut reconnection = reconnection(&["a.test"], now);
        reconnection.handle_timeout(now);
        for last in 1..=9 {
            let address = SocketAddr::from(([192, 0, 2, last], 443));
            while let Some(action) = reconnection.poll_action() {
                match action {
                    ConnectAction::Resolve { resolution, .. } => {
                        reconnection.handle_resolved(now, resolution, &[address]);
                    }
                    ConnectAction::Connect { address: tried, .. } if tried == address => break,
                    _ => reconnection.handle_attempt_failed(now, "no route".to_owned()),
                }
            }
            reconnection.handle_up();
            assert_eq!(reconnection.good[0].address, address);
            reconnection.handle_lost(now, None);
        }
        assert_eq!(reconnection.good.len(), limits::GOOD_ADDRESSES_MAX);
    }

    #[test]
    fn a_lost_connection_begins_again_at_once() {
        let now = start();
        let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
        reconnection.handle_timeout(now);
        reconnection.poll_action();
        reconnection.handle_lost(now, Some("refused".to_owned()));
        assert!(connects_to(&mut reconnection, "192.0.2.2"));
        assert!(!reconnection.handle_up());
        assert_eq!(reconnection.state_name(), "connected");
        assert_eq!(reconnection.poll_timeout(), None);
        reconnection.handle_lost(now, Some("timed out".to_owned()));
        assert!(connects_to(&mut reconnection, "192.0.2.2"));
        assert_eq!(reconnection.state_name(), "reconnecting");
        assert!(reconnection.handle_up());
        assert_eq!(reconnection.rejoins(), 1);
    }

    #[test]
    fn an_address_is_tried_again_where_another_port_may_lead_elsewhere() {
        let now = start();
        let mut reconnection = reconnection(&["192.0.2.1", "192.0.2.2"], now);
        reconnection.handle_timeout(now);
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
        reconnection.retry_address();
        reconnection.handle_lost(now, None);
        assert!(connects_to(&mut reconnection, "192.0.2.1"));
    }

    #[test]
    fn local_traffic_goes_to_a_sibling_after_the_grace_or_where_it_was_up() {
        let now = start();
        let mut reconnection = reconnection(&["192.0.2.1"], now);
        reconnection.handle_timeout(now);
        assert!(!reconnection.wants_stand_in(now));
        assert!(reconnection.wants_stand_in(now + limits::STRIPE_GRACE));
        reconnection.handle_up();
        assert!(!reconnection.wants_stand_in(now + limits::STRIPE_GRACE));
        reconnection.handle_lost(now, None);
        assert!(reconnection.wants_stand_in(now));
    }
}
