//! Which addresses a stripe tries, and in which order.
//!
//! A round begins with the addresses at which the server has taken the token, the latest one first: a connection that is
//! lost is often back there before a name could be resolved, and name servers may be out of reach without the tunnel.
//! The addresses of all servers follow as the settings name them and as names resolve, IPv6 and IPv4 in turn (RFC 8305
//! section 4); what names resolved to before serves until they are resolved again.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::ConnectAction;
use crate::limits;

/// An address of a server, which is named by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) server: usize,
    pub(super) address: SocketAddr,
}

/// What one stripe knows of its servers' addresses.
pub(super) struct Candidates {
    /// Host name or address, and port, in order of preference; at least one.
    servers: Vec<(String, u16)>,
    /// Where the server has taken the token, the latest first.
    good: Vec<Candidate>,
    /// What waits for its turn in this round.
    waiting: VecDeque<Candidate>,
    /// All addresses of this round.
    met: Vec<SocketAddr>,
    /// By server, its address, or what its name resolved to last.
    resolved: Vec<Vec<SocketAddr>>,
    /// Names on their way, by the number of the resolution: the server's index.
    resolving: Vec<(u64, usize)>,
    /// Numbers the resolutions.
    resolutions: u64,
}

impl Candidates {
    /// # Panics
    /// Where there is no server.
    pub(super) fn new(servers: Vec<(String, u16)>) -> Self {
        assert!(!servers.is_empty(), "a client knows a server");
        let literal = |(host, port): &(String, u16)| host.parse().map(|ip| vec![SocketAddr::new(ip, *port)]);
        Self {
            resolved: servers
                .iter()
                .map(|server| literal(server).unwrap_or_default())
                .collect(),
            servers,
            good: Vec::new(),
            waiting: VecDeque::new(),
            met: Vec::new(),
            resolving: Vec::new(),
            resolutions: 0,
        }
    }

    /// A server as the settings name it.
    pub(super) fn host(&self, server: usize) -> &str {
        &self.servers[server].0
    }

    /// The server that is named last, host and port.
    pub(super) fn last_server(&self) -> &(String, u16) {
        &self.servers[self.servers.len() - 1]
    }

    /// Lets all known addresses wait but those in `tried`, the good ones first, and asks for names.
    pub(super) fn begin_round(&mut self, tried: &[SocketAddr], actions: &mut VecDeque<ConnectAction>) {
        self.met = tried.to_vec();
        self.waiting.clear();
        for candidate in &self.good {
            if !self.met.contains(&candidate.address) {
                self.met.push(candidate.address);
                self.waiting.push_back(*candidate);
            }
        }
        let mut known = Vec::new();
        for (server, (host, port)) in self.servers.iter().enumerate() {
            known.extend(self.resolved[server].iter().map(|address| (server, *address)));
            if host.parse::<IpAddr>().is_err() && self.resolving.iter().all(|(_, open)| *open != server) {
                self.resolutions += 1;
                self.resolving.push((self.resolutions, server));
                actions.push_back(ConnectAction::Resolve {
                    resolution: self.resolutions,
                    host: host.clone(),
                    port: *port,
                });
            }
        }
        known.sort_by_key(|(_, address)| address.is_ipv4());
        self.add(known.into_iter());
    }

    /// The addresses of a name have come, possibly none. The server, where this resolution was open.
    pub(super) fn handle_resolved(&mut self, resolution: u64, addresses: &[SocketAddr]) -> Option<usize> {
        let index = self.resolving.iter().position(|(open, _)| *open == resolution)?;
        let (_, server) = self.resolving.swap_remove(index);
        if !addresses.is_empty() {
            addresses.clone_into(&mut self.resolved[server]);
        }
        Some(server)
    }

    /// What this server's name resolved to goes into the present round.
    pub(super) fn add_resolved(&mut self, server: usize) {
        let addresses = self.resolved[server].clone();
        self.add(addresses.into_iter().map(|address| (server, address)));
    }

    /// Lets addresses wait that are new in this round: IPv6 and IPv4 in turn, beginning with the kind of the first one.
    fn add(&mut self, addresses: impl Iterator<Item = (usize, SocketAddr)>) {
        let mut added: Vec<Candidate> = Vec::new();
        for (server, address) in addresses {
            if !self.met.contains(&address) {
                self.met.push(address);
                added.push(Candidate { server, address });
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

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether addresses of names may still come, and nothing is known that could be tried before.
    pub(super) fn awaits_names(&self) -> bool {
        !self.resolving.is_empty() && self.good.is_empty()
    }

    pub(super) fn take_next(&mut self) -> Option<Candidate> {
        self.waiting.pop_front()
    }

    /// An address is the next one again.
    pub(super) fn put_back(&mut self, candidate: Candidate) {
        self.waiting.push_front(candidate);
    }

    /// The server has taken the token there, and the round is over.
    pub(super) fn found(&mut self, candidate: Candidate) {
        self.waiting.clear();
        self.good.retain(|known| known.address != candidate.address);
        self.good.insert(0, candidate);
        self.good.truncate(limits::GOOD_ADDRESSES_MAX);
    }

    /// The round is over.
    pub(super) fn end_round(&mut self) {
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> SocketAddr {
        SocketAddr::new(host.parse().unwrap(), 443)
    }

    fn candidates(hosts: &[&str]) -> Candidates {
        Candidates::new(hosts.iter().map(|host| ((*host).to_owned(), 443)).collect())
    }

    fn all(candidates: &mut Candidates) -> Vec<SocketAddr> {
        std::iter::from_fn(|| candidates.take_next())
            .map(|candidate| candidate.address)
            .collect()
    }

    #[test]
    fn versions_take_turns_ipv6_first_and_no_address_comes_twice() {
        let mut candidates = candidates(&["192.0.2.1", "192.0.2.2", "2001:db8::1", "192.0.2.1"]);
        let mut actions = VecDeque::new();
        candidates.begin_round(&[], &mut actions);
        assert_eq!(
            all(&mut candidates),
            [at("2001:db8::1"), at("192.0.2.1"), at("192.0.2.2")]
        );
        candidates.begin_round(&[at("192.0.2.1")], &mut actions);
        assert_eq!(all(&mut candidates), [at("2001:db8::1"), at("192.0.2.2")]);
        assert_eq!(actions, []);
    }

    #[test]
    fn no_more_good_addresses_are_kept_than_the_limit_and_the_latest_comes_first() {
        let mut candidates = candidates(&["192.0.2.1"]);
        for last in 1..=9 {
            let address = SocketAddr::from(([192, 0, 2, last], 443));
            candidates.found(Candidate { server: 0, address });
        }
        assert_eq!(candidates.good.len(), limits::GOOD_ADDRESSES_MAX);
        candidates.begin_round(&[], &mut VecDeque::new());
        let order = [9, 8, 7, 6, 1].map(|last| SocketAddr::from(([192, 0, 2, last], 443)));
        assert_eq!(all(&mut candidates), order);
    }
}
