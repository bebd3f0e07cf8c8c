//! A rendezvous, two networks behind routers of any kind, and peers in them.

use std::net::SocketAddr;
use std::ops::RangeFrom;
use std::time::{Duration, Instant};

use peer::blocking::{wait, wait_for};
use peer::{
    AddressSource, Attempt, AttemptState, Builder, Delivery, Endpoint, Peer, PeerPath, Rendezvous, SecretKey,
};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::tunnel::Server;
use testbed::directory::Directory;
use testbed::namespace::{End, Namespace, join};
use testbed::wait::wait_until;

/// Port of the first pair's endpoints, which the routers' rules name. Each further pair has the next one: the kernel
/// goes on translating flows that it knows.
pub(crate) const FIRST_PORT: u16 = 4_000;

/// Where the rendezvous is.
const SERVER: &str = "203.0.113.2:4433";

/// What a router does with UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is none.
    Open,
    /// One port outside for one inside; lets everybody in.
    FullCone,
    /// The same; lets in addresses to which something went out.
    AddressRestricted,
    /// The same; lets in addresses and ports to which something went out: Linux.
    PortRestricted,
    /// Another port for each destination.
    Symmetric,
}

pub(crate) use Kind::{AddressRestricted, FullCone, Open, PortRestricted, Symmetric};

impl Kind {
    /// The router's rules; the peer is at this address, and the world behind `outside`.
    pub(crate) fn script(self, peer: &str, port: u16) -> String {
        // As routers do, it drops what comes to itself: otherwise an early packet of the other end would take the port
        // that the peer's packets leave from.
        let closed =
            "chain input { type filter hook input priority 0; iifname outside meta l4proto udp drop; }";
        let masquerade = |how: &str| {
            format!(
                "chain out {{ type nat hook postrouting priority 100; oifname outside meta l4proto udp masquerade {how}; }}"
            )
        };
        let lets_in = |who: &str| {
            format!(
                "chain in {{ type nat hook prerouting priority -100; iifname outside {who} udp dport {port} dnat to \
                 {peer}:{port}; }}"
            )
        };
        let rules = match self {
            Open => return String::new(),
            FullCone => vec![masquerade(""), lets_in("")],
            AddressRestricted => {
                let seen = "set seen { type ipv4_addr; flags dynamic; size 64; }";
                let note = "chain note { type filter hook forward priority 0; oifname outside add @seen { ip daddr }; }";
                let (seen, note) = (seen.to_owned(), note.to_owned());
                vec![seen, note, masquerade(""), lets_in("ip saddr @seen")]
            }
            PortRestricted => vec![masquerade("")],
            Symmetric => vec![masquerade("fully-random")],
        };
        let hidden = format!(
            "chain hidden {{ type filter hook forward priority 1; iifname outside ct original ip daddr {peer} drop; }}"
        );
        let lines = [closed.to_owned(), hidden].into_iter().chain(rules);
        format!(
            "table ip router {{\n{}\n}}\n",
            lines.collect::<Vec<_>>().join("\n")
        )
    }
}

/// A rendezvous and two networks, each behind a router of its own.
pub(crate) struct World {
    /// The networks between, and the machine of the rendezvous.
    pub(crate) between: [Namespace; 2],
    pub(crate) routers: [Namespace; 2],
    pub(crate) machines: [Namespace; 2],
    link: String,
    pub(crate) server: Server,
    _directory: Directory,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// The server has these options.
    pub(crate) fn with(options: &[&str]) -> Self {
        let core = Namespace::create().unwrap();
        let server = Namespace::create().unwrap();
        cable(
            (&core, "server", &["203.0.113.1/24"]),
            (&server, "eth0", &["203.0.113.2/24"]),
        );
        route(&server, "203.0.113.1");
        let [one, two] = [1, 2].map(|number| {
            let (router, machine) = (Namespace::create().unwrap(), Namespace::create().unwrap());
            let outside = |host: u8| format!("198.51.{number}.{host}/24");
            let inside = |host: u8| format!("10.{number}.0.{host}/24");
            let interface = format!("net{number}");
            cable(
                (&core, &interface, &[&outside(1)]),
                (&router, "outside", &[&outside(2)]),
            );
            cable(
                (&router, "inside", &[&inside(1)]),
                (&machine, "eth0", &[&inside(2)]),
            );
            route(&router, &format!("198.51.{number}.1"));
            route(&machine, &format!("10.{number}.0.1"));
            // For machines without a translating router.
            let back = [
                &format!("10.{number}.0.0/24"),
                "via",
                &format!("198.51.{number}.2"),
            ];
            core.run("ip", ["route", "add"].into_iter().chain(back)).unwrap();
            router.set_parameter("net.ipv4.ip_forward", "1").unwrap();
            (router, machine)
        });
        core.set_parameter("net.ipv4.ip_forward", "1").unwrap();
        let directory = Directory::create_for_test().unwrap();
        let running = Server::start(&server.place(), "server", SERVER, options, directory.path());
        Self {
            between: [core, server],
            routers: [one.0, two.0],
            machines: [one.1, two.1],
            link: link_at(&running, SERVER),
            server: running,
            _directory: directory,
        }
    }

    /// What peers know the server by.
    pub(crate) fn link(&self) -> &str {
        &self.link
    }

    /// Gives both routers their rules.
    pub(crate) fn set_kinds(&self, kinds: [Kind; 2], port: u16) {
        for (index, kind) in kinds.into_iter().enumerate() {
            set_kind(&self.routers[index], kind, &format!("10.{}.0.2", index + 1), port);
        }
    }

    /// Both routers forget what they translated: masquerading does when its interface goes down.
    pub(crate) fn restart_routers(&self) {
        for (index, router) in self.routers.iter().enumerate() {
            router.set_link("outside", false).unwrap();
            router.set_link("outside", true).unwrap();
            route(router, &format!("198.51.{}.1", index + 1));
        }
    }

    /// Another machine behind the first router, in a network of its own there.
    pub(crate) fn neighbour(&self) -> Namespace {
        let machine = Namespace::create().unwrap();
        cable(
            (&self.routers[0], "inside3", &["10.3.0.1/24"]),
            (&machine, "eth0", &["10.3.0.2/24"]),
        );
        route(&machine, "10.3.0.1");
        machine
    }

    /// A new peer on a machine, which is registered.
    pub(crate) fn peer(&self, machine: usize, port: u16) -> Endpoint {
        self.peer_on(&self.machines[machine], port)
    }

    pub(crate) fn peer_on(&self, machine: &Namespace, port: u16) -> Endpoint {
        Self::registered(machine, port, self.builder())
    }

    /// The same that asks its router for a port.
    pub(super) fn mapped_peer_on(&self, machine: &Namespace, port: u16) -> Endpoint {
        Self::registered(machine, port, self.builder().map_port())
    }

    fn builder(&self) -> Builder {
        let rendezvous = Rendezvous::from_link(&self.link).unwrap();
        Endpoint::builder(SecretKey::generate().unwrap()).rendezvous(rendezvous)
    }

    /// A new peer on a machine whose user has no link, but a number.
    pub(crate) fn guest(&self, machine: usize, port: u16, number: u32) -> Endpoint {
        let rendezvous = Rendezvous::as_guest(SERVER, number).unwrap();
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).rendezvous(rendezvous);
        Self::registered(&self.machines[machine], port, builder)
    }

    fn registered(machine: &Namespace, port: u16, builder: Builder) -> Endpoint {
        let address = SocketAddr::from(([0, 0, 0, 0], port));
        let endpoint = machine.inside(|| builder.bind(address).unwrap());
        let registered = wait_for(PROGRAM_LIMIT, endpoint.registered());
        let problem = endpoint.rendezvous_problem();
        registered
            .flatten()
            .unwrap_or_else(|| panic!("not registered: {problem:?}"));
        endpoint
    }
}

/// Gives a router its rules, and takes those that it had; the peer is at this address inside.
pub(crate) fn set_kind(router: &Namespace, kind: Kind, peer: &str, port: u16) {
    // All at once: what passes without rules is remembered by the router, and goes untranslated from then on.
    let script = kind.script(peer, port);
    router.nft(&format!("flush ruleset\n{script}")).unwrap();
}

/// Two machines, their interfaces, and the addresses of these with prefix lengths.
pub(super) fn cable(left: (&Namespace, &str, &[&str]), right: (&Namespace, &str, &[&str])) {
    let end = |(namespace, interface, addresses)| End {
        namespace,
        interface,
        addresses,
    };
    join(end(left), end(right), 1_500).unwrap();
}

/// All that this machine sends by the gateway's version of IP leaves through it.
pub(super) fn route(machine: &Namespace, gateway: &str) {
    let version = if gateway.contains(':') { "-6" } else { "-4" };
    machine
        .run("ip", [version, "route", "add", "default", "via", gateway])
        .unwrap();
}

/// A server's link with this address, instead of those that the server found.
pub(super) fn link_at(server: &Server, place: &str) -> String {
    let link = server.link();
    let (before, rest) = link.split_once('@').unwrap();
    let (_, query) = rest.split_once('?').unwrap();
    format!("{before}@{place}?{query}")
}

/// How often a pair with a direct path is tried that is relayed at first: on a machine that is busy the relay may
/// answer sooner, but not each time.
const TRIES: usize = 5;

/// In how many tries of all pairs of a table the relay may answer first: a machine that is busy has it so now and then,
/// a relay that is asked too early much more often.
pub(crate) const LOST_TRIES_MAX: usize = 6;

/// How two peers met.
pub(crate) struct Met {
    /// From the call to the first message in the callee's program.
    pub(crate) took: Duration,
    /// The connection at both ends.
    pub(crate) ends: [Peer; 2],
    /// The relay answered the caller first.
    pub(crate) is_by_relay: bool,
    /// In how many tries before it did so, though there is a direct path.
    pub(crate) tries_lost: usize,
}

impl Met {
    /// How and how soon, for the table.
    pub(crate) fn outcome(&self) -> String {
        let how = if self.is_by_relay { "relayed" } else { "direct" };
        format!("{how}, {} ms", self.took.as_millis())
    }
}

/// The caller calls, and its first message comes.
pub(crate) fn meet(caller: &Endpoint, callee: &Endpoint, limit: Duration) -> Option<Met> {
    let begin = Instant::now();
    let connecting = caller.begin(callee.id(), &[]).ok()?;
    let peer = wait_for(limit, connecting.connected())?.ok()?;
    drop(wait(peer.send("first", Delivery::ordered(1))).unwrap());
    let incoming = wait_for(PROGRAM_LIMIT, callee.accept()).flatten().unwrap();
    assert_eq!(incoming.id(), caller.id());
    let message = wait_for(PROGRAM_LIMIT, incoming.receive()).unwrap().unwrap();
    assert_eq!(message.body, "first");
    let took = begin.elapsed();
    let is_winner = |attempt: &Attempt| attempt.state == AttemptState::Connected;
    let winner = connecting.attempts().into_iter().find(is_winner).unwrap();
    Some(Met {
        took,
        ends: [peer, incoming],
        is_by_relay: winner.source == AddressSource::Relay,
        tries_lost: 0,
    })
}

/// The first message of a caller: how long it took from the call to the callee's program, and the connection at both
/// ends.
pub(crate) fn first_message(
    caller: &Endpoint,
    callee: &Endpoint,
    limit: Duration,
) -> Option<(Duration, [Peer; 2])> {
    let Met { took, ends, .. } = meet(caller, callee, limit)?;
    Some((took, ends))
}

/// New peers meet whose routers have a direct path: by that, without having been relayed before, in one of some tries
/// at most. `ends` makes the caller and the callee at a port, which no other try has.
pub(crate) fn meet_directly(
    what: &str,
    ports: &mut RangeFrom<u16>,
    mut ends: impl FnMut(u16) -> [Endpoint; 2],
) -> (Met, [Endpoint; 2]) {
    let mut outcomes = Vec::new();
    for port in ports.take(TRIES) {
        let endpoints = ends(port);
        let met = meet(&endpoints[0], &endpoints[1], PROGRAM_LIMIT);
        let mut met = met.unwrap_or_else(|| panic!("{what}: not connected"));
        wait_until(&format!("{what}: a direct path"), PROGRAM_LIMIT, || {
            met.ends.iter().all(|end| !is_relayed(end))
        });
        if !met.is_by_relay {
            met.tries_lost = outcomes.len();
            return (met, endpoints);
        }
        println!("{what}: the relay answered first: {}", met.outcome());
        outcomes.push(met.outcome());
        endpoints
            .iter()
            .for_each(|endpoint| endpoint.close(0, "the next try"));
    }
    panic!("{what}: a direct path was found, but each time after the relay had answered: {outcomes:?}");
}

/// New peers meet whose routers have no direct path.
pub(crate) fn meet_relayed(
    what: &str,
    ports: &mut RangeFrom<u16>,
    mut ends: impl FnMut(u16) -> [Endpoint; 2],
) -> (Met, [Endpoint; 2]) {
    let endpoints = ends(ports.next().unwrap());
    let met = meet(&endpoints[0], &endpoints[1], PROGRAM_LIMIT);
    let met = met.unwrap_or_else(|| panic!("{what}: not connected"));
    assert!(met.is_by_relay && met.ends.iter().all(is_relayed), "{what}");
    (met, endpoints)
}

pub(crate) fn is_relayed(end: &Peer) -> bool {
    matches!(end.path(), Some(PeerPath::Relayed(_)))
}
