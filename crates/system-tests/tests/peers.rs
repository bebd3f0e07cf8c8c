//! Peers behind routers, with a Gramway server as rendezvous: which kinds of routers can be opened for each other, and
//! how soon the first message comes through.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peer::blocking::{wait, wait_for};
use peer::{Delivery, Endpoint, Peer, Rendezvous, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::tunnel::Server;
use testbed::directory::Directory;
use testbed::namespace::{End, Namespace, join};

/// Port of the first pair's endpoints, which the routers' rules name. Each further pair has the next one: the kernel
/// goes on translating flows that it knows.
const FIRST_PORT: u16 = 4_000;

/// Where the rendezvous is.
const SERVER: &str = "203.0.113.2:4433";

/// How long a pair is given that cannot be connected: longer than its checks and first packets go on.
const REFUSED_AFTER: Duration = Duration::from_secs(4);

/// What a router does with UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

use Kind::{AddressRestricted, FullCone, Open, PortRestricted, Symmetric};

impl Kind {
    /// The router's rules; the peer is at this address, and the world behind `outside`.
    fn script(self, peer: &str, port: u16) -> String {
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
struct World {
    /// The networks between, and the machine of the rendezvous.
    _between: [Namespace; 2],
    routers: [Namespace; 2],
    machines: [Namespace; 2],
    link: String,
    server: Server,
    _directory: Directory,
}

impl World {
    fn new() -> Self {
        let core = Namespace::create().unwrap();
        let server = Namespace::create().unwrap();
        cable(
            (&core, "server", "203.0.113.1/24"),
            (&server, "eth0", "203.0.113.2/24"),
        );
        route(&server, "203.0.113.1");
        let [one, two] = [1, 2].map(|number| {
            let (router, machine) = (Namespace::create().unwrap(), Namespace::create().unwrap());
            let outside = |host: u8| format!("198.51.{number}.{host}/24");
            let inside = |host: u8| format!("10.{number}.0.{host}/24");
            let interface = format!("net{number}");
            cable(
                (&core, &interface, &outside(1)),
                (&router, "outside", &outside(2)),
            );
            cable((&router, "inside", &inside(1)), (&machine, "eth0", &inside(2)));
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
        let running = Server::start(&server.place(), "server", SERVER, &[], directory.path());
        // The link names the addresses that the server found; peers know it by this one.
        let link = running.link();
        let (before, rest) = link.split_once('@').unwrap();
        let (_, query) = rest.split_once('?').unwrap();
        Self {
            _between: [core, server],
            routers: [one.0, two.0],
            machines: [one.1, two.1],
            link: format!("{before}@{SERVER}?{query}"),
            server: running,
            _directory: directory,
        }
    }

    /// Gives both routers their rules.
    fn set_kinds(&self, kinds: [Kind; 2], port: u16) {
        for (index, kind) in kinds.into_iter().enumerate() {
            let router = &self.routers[index];
            router.nft("flush ruleset").unwrap();
            let script = kind.script(&format!("10.{}.0.2", index + 1), port);
            if !script.is_empty() {
                router.nft(&script).unwrap();
            }
        }
    }

    /// Another machine behind the first router, in a network of its own there.
    fn neighbour(&self) -> Namespace {
        let machine = Namespace::create().unwrap();
        cable(
            (&self.routers[0], "inside3", "10.3.0.1/24"),
            (&machine, "eth0", "10.3.0.2/24"),
        );
        route(&machine, "10.3.0.1");
        machine
    }

    /// A new peer on a machine, which is registered.
    fn peer(&self, machine: usize, port: u16) -> Endpoint {
        self.peer_on(&self.machines[machine], port)
    }

    fn peer_on(&self, machine: &Namespace, port: u16) -> Endpoint {
        let rendezvous = Rendezvous::from_link(&self.link).unwrap();
        let endpoint = machine.inside(|| {
            let builder = Endpoint::builder(SecretKey::generate().unwrap()).rendezvous(rendezvous);
            builder.bind(SocketAddr::from(([0, 0, 0, 0], port))).unwrap()
        });
        let registered = wait_for(PROGRAM_LIMIT, endpoint.registered());
        let problem = endpoint.rendezvous_problem();
        registered
            .flatten()
            .unwrap_or_else(|| panic!("not registered: {problem:?}"));
        endpoint
    }
}

fn cable(left: (&Namespace, &str, &str), right: (&Namespace, &str, &str)) {
    let end = |(namespace, interface, address): (_, _, _)| (namespace, interface, [address]);
    let (left, right) = (end(left), end(right));
    let ends = [&left, &right].map(|(namespace, interface, addresses)| End {
        namespace,
        interface,
        addresses,
    });
    let [left, right] = ends;
    join(left, right, 1_500).unwrap();
}

fn route(machine: &Namespace, gateway: &str) {
    machine
        .run("ip", ["route", "add", "default", "via", gateway])
        .unwrap();
}

/// The first message of a caller: how long it took from the call to the callee's program, and the connection at both
/// ends.
fn first_message(caller: &Endpoint, callee: &Endpoint, limit: Duration) -> Option<(Duration, [Peer; 2])> {
    let begin = Instant::now();
    let peer = wait_for(limit, caller.connect(callee.id(), &[]))?.ok()?;
    drop(wait(peer.send("first", Delivery::ordered(1))).unwrap());
    let incoming = wait_for(PROGRAM_LIMIT, callee.accept()).flatten().unwrap();
    assert_eq!(incoming.id(), caller.id());
    let message = wait_for(PROGRAM_LIMIT, incoming.receive()).unwrap().unwrap();
    assert_eq!(message.body, "first");
    Some((begin.elapsed(), [peer, incoming]))
}

/// RDV-2, RDV-3, RDV-7, RDV-8.
#[test]
fn all_pairs_of_routers_that_can_be_opened_for_each_other_are_and_no_others() {
    require_root!();
    let world = World::new();
    let kinds = [Open, FullCone, AddressRestricted, PortRestricted, Symmetric];
    let mut table = String::new();
    let mut port = FIRST_PORT;
    for one in kinds {
        for two in kinds {
            world.set_kinds([one, two], port);
            let (caller, callee) = (world.peer(0, port), world.peer(1, port));
            port += 1;
            let cannot = matches!(
                (one, two),
                (Symmetric, PortRestricted | Symmetric) | (PortRestricted, Symmetric)
            );
            let limit = if cannot { REFUSED_AFTER } else { PROGRAM_LIMIT };
            let met = first_message(&caller, &callee, limit);
            let outcome = match &met {
                Some((took, _)) => format!("direct after {} ms", took.as_millis()),
                None => "refused".to_owned(),
            };
            table.push_str(&format!("{one:?} calls {two:?}: {outcome}\n"));
            assert_eq!(met.is_none(), cannot, "{table}");
            for endpoint in [caller, callee] {
                endpoint.close(0, "the next pair");
            }
        }
    }
    println!("{table}");
}

/// RDV-9.
#[test]
fn connections_live_on_without_the_rendezvous_and_others_are_made_when_it_is_back() {
    require_root!();
    let mut world = World::new();
    world.set_kinds([PortRestricted, PortRestricted], FIRST_PORT);
    let (one, two) = (world.peer(0, FIRST_PORT), world.peer(1, FIRST_PORT));
    let (_, [peer, incoming]) = first_message(&one, &two, PROGRAM_LIMIT).unwrap();
    world.server.kill();
    let ticket = wait(peer.send("without it", Delivery::ordered(1))).unwrap();
    assert_eq!(wait_for(PROGRAM_LIMIT, ticket), Some(peer::Outcome::Acked));
    drop((peer, incoming));
    world.server.start_again();
    testbed::wait::wait_until("another meeting", PROGRAM_LIMIT, || {
        first_message(&two, &one, REFUSED_AFTER).is_some()
    });
}

/// RDV-3, RDV-7.
#[test]
fn neighbours_behind_one_router_meet_without_it_where_it_turns_nothing_back() {
    require_root!();
    let world = World::new();
    world.set_kinds([Symmetric, Open], FIRST_PORT);
    let neighbour = world.neighbour();
    let (caller, callee) = (world.peer(0, FIRST_PORT), world.peer_on(&neighbour, FIRST_PORT));
    let (_, [peer, _incoming]) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
    let remote = peer.path_stats().unwrap().remote;
    assert_eq!(remote, SocketAddr::from(([10, 3, 0, 2], FIRST_PORT)));
}
