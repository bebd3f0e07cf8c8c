//! How one stripe finds its server: which address comes next, how long each may take, and the pauses between.
//!
//! A round begins with the addresses at which the server has taken the token, the latest one first: a connection that is
//! lost is often back there before a name could be resolved, and name servers may be out of reach without the tunnel.
//! The addresses of all servers follow as the settings name them and as names resolve, IPv6 and IPv4 in turn (RFC 8305
//! section 4); what names resolved to before serves until they are resolved again. While others wait, an address that
//! stays silent is left after a quarter of a second (section 5), and has another turn, a longer one, after them; one that
//! answers, or is the last, keeps its attempt. One that fails is done with. Where all have failed, a pause follows that
//! doubles from round to round and is random in its second half. A connection that is lost after it was up begins again
//! at once.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::limits;

/// Why an attempt without any answer failed, in the words of [`quic::CloseReason::TimedOut`].
const NO_ANSWER: &str = "no answer";

/// Why an attempt failed that was answered.
const NO_HANDSHAKE: &str = "it answers, but the connection did not come about in time";

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
    /// There is no address until a name is resolved.
    Resolving,
    /// An address is being tried.
    Attempt { began: Instant, is_answered: bool },
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
    /// How often it was left in this round because it stayed silent.
    turn: usize,
}

/// One stripe's connection to a server, which is made again whenever it is lost.
pub struct Reconnection {
    /// Host name or address, and port, in order of preference; at least one.
    servers: Vec<(String, u16)>,
    phase: Phase,
    /// Where the server has taken the token, the latest first.
    good: Vec<Candidate>,
    /// What waits for its turn in this round.
    waiting: Vec<Candidate>,
    /// All addresses of this round.
    met: Vec<SocketAddr>,
    /// By server, its address, or what its name resolved to last.
    resolved: Vec<Vec<SocketAddr>>,
    /// What was tried last.
    present: Option<Candidate>,
    /// Names on their way, by the number of the resolution: the server's index.
    resolving: Vec<(u64, usize)>,
    /// Rounds over all servers that failed one after the other.
    failed_rounds: u32,
    has_been_up: bool,
    /// How often it was up again.
    rejoins: u64,
    last_reason: String,
    /// Numbers the resolutions.
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
        let literal = |(host, port): &(String, u16)| host.parse().map(|ip| vec![SocketAddr::new(ip, *port)]);
        Self {
            resolved: servers
                .iter()
                .map(|server| literal(server).unwrap_or_default())
                .collect(),
            servers,
            phase: Phase::Pause { until: now },
            good: Vec::new(),
            waiting: Vec::new(),
            met: Vec::new(),
            present: None,
            resolving: Vec::new(),
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

    /// Whether the server may be found at another address than the present one.
    #[must_use]
    pub fn has_alternative(&self) -> bool {
        let good = self.good.iter().map(|candidate| candidate.address);
        let mut known = self.resolved.iter().flatten().copied().chain(good);
        known.any(|address| Some(address) != self.address())
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
            Phase::Attempt { began, is_answered } => Some(began + self.patience(is_answered)),
            Phase::Pause { until } => Some(until),
            Phase::Resolving | Phase::Expired | Phase::Up => None,
        }
    }

    /// What is to be done; to be asked after every other call until there is nothing.
    pub fn poll_action(&mut self) -> Option<ConnectAction> {
        self.actions.pop_front()
    }

    /// An attempt that took too long ends, a pause that is over ends.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|due| now < due) {
            return;
        }
        match self.phase {
            Phase::Attempt { began, is_answered } => {
                self.set_reason(if is_answered { NO_HANDSHAKE } else { NO_ANSWER });
                let has_had_all = began + limits::CONNECT_ATTEMPT <= now;
                if let Some(present) = self.present.filter(|_| !has_had_all) {
                    let turn = present.turn + 1;
                    self.waiting.push(Candidate { turn, ..present });
                }
                self.phase = Phase::Expired;
                self.actions.push_back(ConnectAction::Disconnect);
            }
            Phase::Pause { .. } => self.begin_round(now),
            Phase::Resolving | Phase::Expired | Phase::Up => {}
        }
    }

    /// Something was received at `heard`: an attempt that began before goes on.
    pub fn handle_heard(&mut self, heard: Instant) {
        if let Phase::Attempt { began, is_answered } = &mut self.phase {
            *is_answered |= *began <= heard;
        }
    }

    /// The addresses of a name, in the order of preference; none where it cannot be resolved.
    pub fn handle_resolved(&mut self, now: Instant, resolution: u64, addresses: &[SocketAddr]) {
        let Some(index) = self.resolving.iter().position(|(open, _)| *open == resolution) else {
            return;
        };
        let (_, server) = self.resolving.swap_remove(index);
        if !addresses.is_empty() {
            addresses.clone_into(&mut self.resolved[server]);
        }
        if self.phase == Phase::Up {
            return;
        }
        if addresses.is_empty() {
            self.last_reason = format!("the name {} cannot be resolved", self.servers[server].0);
        }
        let had = self.waiting.len();
        self.add(addresses.iter().map(|address| (server, *address)));
        match self.phase {
            Phase::Resolving => self.try_next_address(now),
            Phase::Pause { .. } if self.waiting.len() > had => self.try_next_address(now),
            _ => {}
        }
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
        self.waiting.clear();
        if let Some(present) = self.present {
            self.good.retain(|known| known.address != present.address);
            self.good.insert(0, Candidate { turn: 0, ..present });
            self.good.truncate(limits::GOOD_ADDRESSES_MAX);
        }
        let is_again = std::mem::replace(&mut self.has_been_up, true);
        self.rejoins += u64::from(is_again);
        is_again
    }

    /// The present address is to be tried once more as soon as this attempt has ended, from another port.
    pub fn retry_address(&mut self) {
        if let Some(present) = self.present {
            self.waiting.insert(0, Candidate { turn: 0, ..present });
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

    /// How long the present attempt may take.
    fn patience(&self, is_answered: bool) -> Duration {
        let turn = self.present.map_or(0, |present| present.turn);
        let is_urged = !is_answered && !self.waiting.is_empty();
        let patience = limits::SILENT_TURNS.get(turn).filter(|_| is_urged);
        *patience.unwrap_or(&limits::CONNECT_ATTEMPT)
    }

    /// Begins with what is known to be good.
    fn begin_round(&mut self, now: Instant) {
        self.waiting.clone_from(&self.good);
        self.met = self.good.iter().map(|candidate| candidate.address).collect();
        let mut known = Vec::new();
        for (server, (host, port)) in self.servers.iter().enumerate() {
            known.extend(self.resolved[server].iter().map(|address| (server, *address)));
            if host.parse::<IpAddr>().is_err() && self.resolving.iter().all(|(_, open)| *open != server) {
                self.resolutions += 1;
                self.resolving.push((self.resolutions, server));
                self.actions.push_back(ConnectAction::Resolve {
                    resolution: self.resolutions,
                    host: host.clone(),
                    port: *port,
                });
            }
        }
        known.sort_by_key(|(_, address)| address.is_ipv4());
        self.add(known.into_iter());
        self.try_next_address(now);
    }

    /// Lets addresses wait that are new in this round: IPv6 and IPv4 in turn, beginning with the kind of the first one.
    fn add(&mut self, addresses: impl Iterator<Item = (usize, SocketAddr)>) {
        let mut added: Vec<Candidate> = Vec::new();
        for (server, address) in addresses {
            if !self.met.contains(&address) {
                self.met.push(address);
                added.push(Candidate {
                    server,
                    address,
                    turn: 0,
                });
            }
        }
        let Some(first) = added.first().map(|candidate| candidate.address.is_ipv6()) else {
            return;
        };
        let (leading, other): (Vec<_>, Vec<_>) = added
            .into_iter()
            .partition(|candidate| candidate.address.is_ipv6() == first);
        let (mut leading, mut other) = (leading.into_iter(), other.into_iter());
        loop {
            let before = self.waiting.len();
            self.waiting.extend(leading.next());
            self.waiting.extend(other.next());
            if self.waiting.len() == before {
                return;
            }
        }
    }

    /// Tries the next address, or pauses.
    fn try_next_address(&mut self, now: Instant) {
        let next = (0..self.waiting.len()).min_by_key(|index| self.waiting[*index].turn);
        if let Some(next) = next {
            let candidate = self.waiting.remove(next);
            self.present = Some(candidate);
            self.phase = Phase::Attempt {
                began: now,
                is_answered: false,
            };
            self.actions.push_back(ConnectAction::Connect {
                address: candidate.address,
                server_name: self.servers[candidate.server].0.clone(),
            });
            return;
        }
        // Where the server was before, it may be again before its name is known.
        if !self.resolving.is_empty() && self.good.is_empty() {
            self.phase = Phase::Resolving;
            return;
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
