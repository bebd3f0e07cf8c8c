//! Which addresses a stripe tries, and in which order.
//!
//! A round begins with the addresses at which the server has taken the token, the latest one first: a connection that is
//! lost is often back there before a name could be resolved, and name servers may be out of reach without the tunnel.
//! The addresses of all servers follow as the settings name them and as names resolve, IPv6 and IPv4 in turn (RFC 8305
//! section 4); what names resolved to before serves until they are resolved again. Each is tried over every carrier that
//! may be used; carriers have queues of their own, because [`Race`](super::race::Race) begins them at different times.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use packet::CarrierKind;

use super::ConnectAction;
use crate::limits;

/// Over what a client reaches its servers; at least one carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarrierChoice {
    /// Over UDP.
    pub udp: bool,
    /// In TCP's shape, at this port of each server.
    pub tcp_port: Option<u16>,
}

impl CarrierChoice {
    /// UDP alone.
    pub const UDP: Self = Self {
        udp: true,
        tcp_port: None,
    };

    /// Whether there is one carrier only.
    pub(super) fn is_sole(self) -> bool {
        !self.udp || self.tcp_port.is_none()
    }

    /// What is tried of a server, for people.
    pub(super) fn ports(self, udp: u16) -> String {
        match (self.udp, self.tcp_port) {
            (_, None) => format!("UDP {udp}"),
            (false, Some(tcp)) => format!("TCP {tcp}"),
            (true, Some(tcp)) => format!("UDP {udp} and TCP {tcp}"),
        }
    }

    /// An address over a carrier; `None` where that may not be used.
    fn address(self, kind: CarrierKind, mut address: SocketAddr) -> Option<SocketAddr> {
        match kind {
            CarrierKind::Udp => self.udp.then_some(address),
            CarrierKind::Tcp => {
                address.set_port(self.tcp_port?);
                Some(kind.mark(address))
            }
        }
    }
}

/// An address of a server, which is named by its index, over one carrier ([`CarrierKind`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) server: usize,
    pub(super) address: SocketAddr,
}

impl Candidate {
    pub(super) fn carrier(&self) -> CarrierKind {
        CarrierKind::of(self.address)
    }
}

/// What one stripe knows of its servers' addresses.
pub(super) struct Candidates {
    /// Host name or address, and port, in order of preference; at least one.
    servers: Vec<(String, u16)>,
    carriers: CarrierChoice,
    /// Where the server has taken the token, the latest first.
    good: Vec<Candidate>,
    /// What waits for its turn in this round, over UDP and in TCP's shape.
    waiting: [VecDeque<Candidate>; 2],
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
    pub(super) fn new(servers: Vec<(String, u16)>, carriers: CarrierChoice) -> Self {
        assert!(!servers.is_empty(), "a client knows a server");
        let literal = |(host, port): &(String, u16)| host.parse().map(|ip| vec![SocketAddr::new(ip, *port)]);
        Self {
            resolved: servers
                .iter()
                .map(|server| literal(server).unwrap_or_default())
                .collect(),
            servers,
            carriers,
            good: Vec::new(),
            waiting: [VecDeque::new(), VecDeque::new()],
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
        self.end_round();
        for candidate in &self.good {
            if !self.met.contains(&candidate.address) {
                self.met.push(candidate.address);
                self.waiting[candidate.carrier() as usize].push_back(*candidate);
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
        self.add(&known);
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
        let addresses = self.resolved[server].iter();
        let addresses: Vec<_> = addresses.map(|address| (server, *address)).collect();
        self.add(&addresses);
    }

    /// Lets addresses wait that are new in this round: IPv6 and IPv4 in turn, beginning with the kind of the first one.
    fn add(&mut self, addresses: &[(usize, SocketAddr)]) {
        for kind in [CarrierKind::Udp, CarrierKind::Tcp] {
            self.add_over(kind, addresses);
        }
    }

    fn add_over(&mut self, kind: CarrierKind, addresses: &[(usize, SocketAddr)]) {
        let mut added: Vec<Candidate> = Vec::new();
        for (server, address) in addresses {
            let (server, Some(address)) = (*server, self.carriers.address(kind, *address)) else {
                continue;
            };
            if !self.met.contains(&address) {
                self.met.push(address);
                added.push(Candidate { server, address });
            }
        }
        let is_v6 = |candidate: &Candidate| candidate.address.ip().to_canonical().is_ipv6();
        let Some(first) = added.first().map(is_v6) else {
            return;
        };
        let (leading, other): (Vec<_>, Vec<_>) =
            added.into_iter().partition(|candidate| is_v6(candidate) == first);
        let (mut leading, mut other) = (leading.into_iter(), other.into_iter());
        let waiting = &mut self.waiting[kind as usize];
        loop {
            let before = waiting.len();
            waiting.extend(leading.next());
            waiting.extend(other.next());
            if waiting.len() == before {
                return;
            }
        }
    }

    /// Whether anything waits to be tried over this carrier.
    pub(super) fn waits(&self, kind: CarrierKind) -> bool {
        !self.waiting[kind as usize].is_empty()
    }

    /// Whether anything waits to be tried.
    pub(super) fn any_waits(&self) -> bool {
        self.waits(CarrierKind::Udp) || self.waits(CarrierKind::Tcp)
    }

    /// Over what the servers are reached.
    pub(super) fn carriers(&self) -> CarrierChoice {
        self.carriers
    }

    /// Whether addresses of names may still come, and nothing is known that could be tried before.
    pub(super) fn awaits_names(&self) -> bool {
        !self.resolving.is_empty() && self.good.is_empty()
    }

    /// The same address of a server over the other carrier; `None` where that may not be used.
    pub(super) fn over_other(&self, candidate: Candidate) -> Option<Candidate> {
        let mut address = CarrierKind::unmark(candidate.address);
        address.set_port(self.servers[candidate.server].1);
        let address = self.carriers.address(candidate.carrier().other(), address)?;
        Some(Candidate { address, ..candidate })
    }

    pub(super) fn take_next(&mut self, kind: CarrierKind) -> Option<Candidate> {
        self.waiting[kind as usize].pop_front()
    }

    /// An address is the next one again.
    pub(super) fn put_back(&mut self, candidate: Candidate) {
        self.waiting[candidate.carrier() as usize].push_front(candidate);
    }

    /// The server has taken the token there, and the round is over.
    pub(super) fn found(&mut self, candidate: Candidate) {
        self.end_round();
        self.good.retain(|known| known.address != candidate.address);
        self.good.insert(0, candidate);
        self.good.truncate(limits::GOOD_ADDRESSES_MAX);
    }

    /// The round is over.
    pub(super) fn end_round(&mut self) {
        self.waiting.iter_mut().for_each(VecDeque::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> SocketAddr {
        SocketAddr::new(host.parse().unwrap(), 443)
    }

    fn candidates(hosts: &[&str]) -> Candidates {
        candidates_over(hosts, CarrierChoice::UDP)
    }

    fn candidates_over(hosts: &[&str], carriers: CarrierChoice) -> Candidates {
        let servers = hosts.iter().map(|host| ((*host).to_owned(), 443));
        Candidates::new(servers.collect(), carriers)
    }

    fn all(candidates: &mut Candidates) -> Vec<SocketAddr> {
        std::iter::from_fn(|| candidates.take_next(CarrierKind::Udp))
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
    fn every_address_is_tried_over_every_carrier_that_may_be_used() {
        let both = CarrierChoice {
            udp: true,
            tcp_port: Some(8_443),
        };
        let tcp_alone = CarrierChoice { udp: false, ..both };
        for (carriers, over_udp) in [(both, 2), (tcp_alone, 0)] {
            let mut candidates = candidates_over(&["192.0.2.1", "2001:db8::1"], carriers);
            candidates.begin_round(&[], &mut VecDeque::new());
            assert_eq!(all(&mut candidates).len(), over_udp);
            let next = std::iter::from_fn(|| candidates.take_next(CarrierKind::Tcp));
            let found: Vec<_> = next.map(|candidate| candidate.address).collect();
            assert!(
                found
                    .iter()
                    .all(|address| CarrierKind::of(*address) == CarrierKind::Tcp)
            );
            let plain: Vec<_> = found.into_iter().map(CarrierKind::unmark).collect();
            let wanted = ["[2001:db8::1]:8443", "192.0.2.1:8443"].map(|text| text.parse().unwrap());
            assert_eq!(plain, wanted);
        }
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
