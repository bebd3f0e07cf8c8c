//! Peers behind routers: which pairs reach each other directly, and how soon.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use packet::{Ecn, Path};
use peer_proto::{AddressSource, Delivery, Meeting, limits};
use sim::Clock;

use crate::world::{End, id, parameters};

/// One way between two public addresses.
const DELAY: Duration = Duration::from_millis(40);

/// Most events of one run, so that a livelock fails instead of hanging.
const EVENTS_MAX: usize = 100_000;

const MEETING: Meeting = Meeting {
    transaction: [3; 12],
    key: [4; 16],
};

/// A router's kind, in the terms of RFC 3489.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No router.
    Open,
    FullCone,
    AddressRestricted,
    PortRestricted,
    Symmetric,
    /// Translates nothing, and lets in answers alone: a firewall of IPv6.
    Firewall,
}

use Kind::{AddressRestricted, Firewall, FullCone, Open, PortRestricted, Symmetric};

/// Mapping and filtering of one router (RFC 4787 sections 4.1 and 5).
struct Router {
    kind: Kind,
    outside: IpAddr,
    /// Ports of sources and, with [`Kind::Symmetric`], destinations.
    ports: BTreeMap<(SocketAddr, Option<SocketAddr>), u16>,
    /// Where each port has sent to.
    sent: BTreeSet<(u16, SocketAddr)>,
}

impl Router {
    fn new(kind: Kind, outside: &str) -> Self {
        Self {
            kind,
            outside: outside.parse().unwrap(),
            ports: BTreeMap::new(),
            sent: BTreeSet::new(),
        }
    }

    /// A packet leaves: where it seems to come from.
    fn leave(&mut self, source: SocketAddr, destination: SocketAddr) -> SocketAddr {
        if matches!(self.kind, Open | Firewall) {
            self.sent.insert((source.port(), destination));
            return source;
        }
        let fresh = 10_000 + 7 * self.ports.len() as u16;
        let by = (self.kind == Symmetric).then_some(destination);
        let port = *self.ports.entry((source, by)).or_insert(fresh);
        self.sent.insert((port, destination));
        SocketAddr::new(self.outside, port)
    }

    /// A packet comes to one of its ports: whose it is, if it is let in.
    fn enter(&self, source: SocketAddr, port: u16) -> Option<SocketAddr> {
        let owner = self.ports.iter().find(|(_, known)| **known == port);
        let ((inside, _), _) = owner?;
        let mut sent = self.sent.iter().filter(|(from, _)| *from == port);
        let is_let_in = match self.kind {
            Open | FullCone => true,
            AddressRestricted => sent.any(|(_, to)| to.ip() == source.ip()),
            PortRestricted | Symmetric | Firewall => sent.any(|(_, to)| *to == source),
        };
        is_let_in.then_some(*inside)
    }
}

/// Two peers, each behind a router of its own or both behind the first one, and what is under way.
struct Site {
    clock: Clock,
    ends: [End; 2],
    routers: [Router; 2],
    is_shared: bool,
    under_way: BTreeMap<(Instant, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    sequence: u64,
}

/// Where the rendezvous is.
fn rendezvous() -> SocketAddr {
    "203.0.113.1:443".parse().unwrap()
}

impl Site {
    fn new(one: Kind, two: Kind) -> Self {
        Self::at(one, two, ["10.1.0.2:4000", "10.2.0.2:4000"])
    }

    /// With these addresses inside.
    fn at(one: Kind, two: Kind, [address_of_one, address_of_two]: [&str; 2]) -> Self {
        Self {
            clock: Clock::default(),
            ends: [
                End::new(parameters(1), address_of_one),
                End::new(parameters(2), address_of_two),
            ],
            routers: [Router::new(one, "198.51.100.1"), Router::new(two, "198.51.100.2")],
            is_shared: false,
            under_way: BTreeMap::new(),
            sequence: 0,
        }
    }

    fn router_of(&self, end: usize) -> usize {
        if self.is_shared { 0 } else { end }
    }

    /// What a rendezvous and an end itself know of its addresses.
    fn candidates(&mut self, end: usize) -> Vec<SocketAddr> {
        let (local, router) = (self.ends[end].address, self.router_of(end));
        let observed = self.routers[router].leave(local, rendezvous());
        vec![observed, local]
    }

    fn flush(&mut self) {
        let now = self.clock.now();
        for index in 0..2 {
            let mut sent = Vec::new();
            let end = &mut self.ends[index];
            loop {
                let more = end.peers.flush(now, &mut end.outbox);
                for train in end.outbox.trains() {
                    for segment in packet::segments(&train.bytes, train.segment_size) {
                        sent.push((train.destination, segment.to_vec()));
                    }
                }
                end.outbox.release(usize::MAX);
                if !more {
                    break;
                }
            }
            end.handle_events(now);
            for (destination, bytes) in sent {
                self.send(index, destination, bytes);
            }
        }
    }

    fn send(&mut self, end: usize, destination: SocketAddr, bytes: Vec<u8>) {
        let local = self.ends[end].address;
        let is_neighbour = self.is_shared && self.ends[1 - end].address == destination;
        let source = match is_neighbour {
            true => local,
            false => self.routers[self.router_of(end)].leave(local, destination),
        };
        self.sequence += 1;
        let at = (self.clock.now() + DELAY, self.sequence);
        self.under_way.insert(at, (source, destination, bytes));
    }

    /// Where a packet ends up; routers do not turn packets back to their own side.
    fn reach(&self, source: SocketAddr, destination: SocketAddr) -> Option<usize> {
        let direct = self.ends.iter().position(|end| end.address == destination);
        if let Some(end) = direct {
            let is_neighbour = self.is_shared && self.ends[1 - end].address == source;
            let router = &self.routers[end];
            let answers = router.kind == Firewall && router.sent.contains(&(destination.port(), source));
            return (is_neighbour || answers || router.kind == Open).then_some(end);
        }
        let router = self
            .routers
            .iter()
            .find(|router| router.outside == destination.ip() && router.outside != source.ip())?;
        let inside = router.enter(source, destination.port())?;
        self.ends.iter().position(|end| end.address == inside)
    }

    /// Runs until `condition`, for at most `limit`; whether it came true.
    fn drive_until(&mut self, limit: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let until = self.clock.now() + limit;
        for _ in 0..EVENTS_MAX {
            self.flush();
            if condition(self) {
                return true;
            }
            let timers = self.ends.iter().filter_map(|end| end.peers.poll_timeout());
            let arrival = self.under_way.keys().next().map(|(at, _)| *at);
            let Some(next) = timers.chain(arrival).min().filter(|next| *next <= until) else {
                self.clock.advance_to(until);
                return false;
            };
            self.clock.advance_to(next.max(self.clock.now()));
            self.step();
        }
        panic!("the peers do not come to rest");
    }

    fn step(&mut self) {
        let now = self.clock.now();
        for end in &mut self.ends {
            if end.peers.poll_timeout().is_some_and(|due| due <= now) {
                end.peers.handle_timeout(now);
            }
        }
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= now) {
            let (source, destination, bytes) = entry.remove();
            let Some(index) = self.reach(source, destination) else {
                continue;
            };
            let end = &mut self.ends[index];
            let path = Path {
                remote: source,
                local: None,
            };
            let bytes = BytesMut::from(&bytes[..]);
            end.peers
                .handle_received(now, path, Ecn::NotEct, bytes, 0, &mut end.outbox);
        }
    }

    /// The first calls the second: its addresses come there, the second sends checks and answers with its own.
    fn meet(&mut self) {
        // The answer comes by two links.
        self.meet_after(Duration::ZERO, 2 * DELAY);
    }

    /// The same where it takes so long until the second has heard of the call, and then until the first has the answer.
    fn meet_after(&mut self, called_after: Duration, answered_after: Duration) {
        let [of_first, of_second] = [0, 1].map(|end| self.candidates(end));
        let now = self.clock.now();
        let until = now + called_after + answered_after + Duration::from_secs(3);
        let caller = &mut self.ends[0].peers;
        let key = caller.connect_and_meet(now, id(2), &[], MEETING, until).unwrap();
        self.drive_until(called_after, |_| false);
        let now = self.clock.now();
        assert!(self.ends[1].peers.send_checks(now, id(1), MEETING, &of_first));
        self.drive_until(answered_after, |_| false);
        let now = self.clock.now();
        let caller = &mut self.ends[0].peers;
        caller.add_addresses(now, key, AddressSource::Rendezvous, &of_second);
        caller.expect_no_more_addresses(now, key, AddressSource::Rendezvous);
    }

    fn is_connected(&self) -> bool {
        self.ends.iter().all(|end| !end.connected.is_empty())
    }
}

/// RDV-2, RDV-3.
#[test]
fn all_pairs_of_routers_that_can_be_opened_connect_directly_within_a_second() {
    let kinds = [Open, FullCone, AddressRestricted, PortRestricted, Symmetric];
    for one in kinds {
        for two in kinds {
            let mut site = Site::new(one, two);
            let begin = site.clock.now();
            site.meet();
            let is_direct = site.drive_until(Duration::from_secs(60), Site::is_connected);
            let cannot = matches!(
                (one, two),
                (Symmetric, PortRestricted | Symmetric) | (PortRestricted, Symmetric)
            );
            assert_eq!(is_direct, !cannot, "{one:?} calls {two:?}");
            if is_direct {
                let took = site.clock.now() - begin;
                assert!(took <= Duration::from_secs(1), "{one:?} calls {two:?}: {took:?}");
                let (now, peer) = (site.clock.now(), site.ends[0].peer());
                let sent = site.ends[0]
                    .peers
                    .send(now, peer, "hello".into(), Delivery::ordered(1));
                assert!(sent.is_ok());
                let arrives = |site: &Site| !site.ends[1].received.is_empty();
                assert!(site.drive_until(Duration::from_secs(5), arrives));
            } else {
                assert_eq!(site.ends[0].failed.len(), 1, "{one:?} calls {two:?}");
            }
        }
    }
}

/// RDV-2, RDV-3: neither the rounds of checks nor the time that direct addresses have before the relay follow the round
/// trip to the rendezvous. They need not: what is late by it is late for the relay, too.
#[test]
fn pairs_of_a_far_rendezvous_open_sooner_than_a_handshake_by_its_relay_would_take() {
    let kinds = [Open, FullCone, AddressRestricted, PortRestricted, Symmetric];
    for milliseconds in [80, 300, 450, 600] {
        let round_trip = Duration::from_millis(milliseconds);
        let mut last = Duration::ZERO;
        for one in kinds {
            for two in kinds {
                if matches!(
                    (one, two),
                    (Symmetric, PortRestricted | Symmetric) | (PortRestricted, Symmetric)
                ) {
                    continue;
                }
                let mut site = Site::new(one, two);
                let begin = site.clock.now();
                // A call goes by the rendezvous to the other end, and its answer back.
                site.meet_after(round_trip, round_trip);
                assert!(site.drive_until(Duration::from_secs(60), Site::is_connected));
                last = last.max(site.clock.now() - begin);
            }
        }
        // A handshake by the relay goes the same way as the call and its answer.
        let by_relay = 2 * round_trip + limits::RELAY_DELAY + 2 * round_trip;
        println!(
            "a rendezvous {milliseconds} ms away: direct within {last:?}, relayed after {by_relay:?} at the soonest"
        );
        assert!(
            last < by_relay,
            "{last:?} with {round_trip:?}, relayed after {by_relay:?}"
        );
    }
}

/// RDV-2, RDV-3: IPv6 has no translation, and firewalls that let in answers alone.
#[test]
fn peers_behind_firewalls_of_ipv6_open_them_for_each_other_within_a_second() {
    for (one, two) in [(Firewall, Firewall), (Firewall, Open), (Open, Firewall)] {
        let addresses = ["[2001:db8:1::2]:4000", "[2001:db8:2::2]:4000"];
        let mut site = Site::at(one, two, addresses);
        let begin = site.clock.now();
        site.meet();
        assert!(
            site.drive_until(Duration::from_secs(60), Site::is_connected),
            "{one:?} calls {two:?}"
        );
        let took = site.clock.now() - begin;
        assert!(took <= Duration::from_secs(1), "{one:?} calls {two:?}: {took:?}");
        let (remote, peer) = (site.ends[1].address, site.ends[0].peer());
        assert_eq!(site.ends[0].peers.path_stats(peer).unwrap().remote, remote);
    }
    // Who only answers opens nothing.
    let mut site = Site::at(Open, Firewall, ["[2001:db8:1::2]:4000", "[2001:db8:2::2]:4000"]);
    let (now, remote) = (site.clock.now(), site.ends[1].address);
    site.ends[0].peers.connect(now, id(2), &[remote]).unwrap();
    assert!(!site.drive_until(Duration::from_secs(60), Site::is_connected));
}

/// RDV-3.
#[test]
fn neighbours_meet_by_their_local_addresses_behind_a_router_that_turns_nothing_back() {
    let mut site = Site::new(Symmetric, Symmetric);
    site.is_shared = true;
    site.meet();
    assert!(site.drive_until(Duration::from_secs(1), Site::is_connected));
    let remote = site.ends[1].address;
    let peer = site.ends[0].peer();
    assert_eq!(site.ends[0].peers.path_stats(peer).unwrap().remote, remote);
}

/// RDV-2.
#[test]
fn checks_end_when_the_peer_has_connected_or_after_their_rounds() {
    let mut site = Site::new(PortRestricted, PortRestricted);
    site.meet();
    assert!(site.drive_until(Duration::from_secs(1), Site::is_connected));
    site.drive_until(Duration::from_secs(10), |_| false);
    assert_eq!(site.ends[0].connected.len(), 1);
    assert_eq!(site.ends[1].connected.len(), 1);

    let mut site = Site::new(Open, Open);
    let nobody = ["192.0.2.9:9".parse().unwrap()];
    let now = site.clock.now();
    assert!(site.ends[0].peers.send_checks(now, id(9), MEETING, &nobody));
    site.drive_until(Duration::from_secs(60), |_| false);
    assert_eq!(site.sequence, limits::CHECK_DELAYS.len() as u64);
    assert_eq!(site.ends[0].peers.poll_timeout(), None);
}

/// RDV-2.
#[test]
fn a_check_of_another_meeting_begins_nothing() {
    let mut site = Site::new(Open, Open);
    let forged = Meeting {
        key: [9; 16],
        ..MEETING
    };
    let first = site.ends[0].address;
    let now = site.clock.now();
    let until = now + Duration::from_secs(3);
    site.ends[0]
        .peers
        .connect_and_meet(now, id(2), &[], MEETING, until)
        .unwrap();
    assert!(site.ends[1].peers.send_checks(now, id(1), forged, &[first]));
    site.drive_until(Duration::from_secs(10), |_| false);
    assert_eq!(site.ends[0].failed.len(), 1);
    assert!(site.ends[0].failed[0].is_empty());
}

/// RDV-2.
#[test]
fn checks_go_to_a_bounded_number_of_peers_and_addresses() {
    let mut site = Site::new(Open, Open);
    let now = site.clock.now();
    let many: Vec<SocketAddr> = (1..=1_000).map(|port| ([192, 0, 2, 9], port).into()).collect();
    let peers = &mut site.ends[0].peers;
    for number in 0..limits::CHECKED_PEERS_MAX {
        assert!(peers.send_checks(now, id(10 + number as u8), MEETING, &many));
    }
    assert!(!peers.send_checks(now, id(200), MEETING, &many));
    site.drive_until(Duration::from_secs(60), |_| false);
    let most = limits::CHECKED_PEERS_MAX * limits::CANDIDATES_MAX * limits::CHECK_DELAYS.len();
    assert!(site.sequence <= most as u64);
}
