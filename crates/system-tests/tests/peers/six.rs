//! Peers with IPv6: firewalls that let in answers alone are opened for each other, and peers that have no version of IP
//! in common are relayed by a server that has both.

use peer::blocking::wait_for;
use peer::{Endpoint, Rendezvous, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use system_tests::tunnel::Server;
use testbed::directory::Directory;
use testbed::namespace::Namespace;

use super::table::Table;
use super::world::{FIRST_PORT, cable, link_at, meet_directly, meet_relayed, route};

/// Where the rendezvous is, and its port.
const SERVER: [&str; 2] = ["203.0.113.2:4433", "[2001:db8:ff::2]:4433"];

/// What a router of IPv6 does: it lets in what answers something, and nothing else.
const FIREWALL: &str = "table ip6 router {
    chain in { type filter hook forward priority 0; iifname outside ct state != { established, related } drop; }
}";

/// A rendezvous with both versions of IP, and two machines, each behind a router of its own.
struct World {
    _between: [Namespace; 2],
    routers: Vec<Namespace>,
    machines: Vec<Namespace>,
    links: [String; 2],
    _server: Server,
    _directory: Directory,
}

impl World {
    fn new() -> Self {
        let (core, machine) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        cable(
            (&core, "server", &["203.0.113.1/24", "2001:db8:ff::1/64"]),
            (&machine, "eth0", &["203.0.113.2/24", "2001:db8:ff::2/64"]),
        );
        route(&machine, "203.0.113.1");
        route(&machine, "2001:db8:ff::1");
        let (mut routers, mut machines) = (Vec::new(), Vec::new());
        for number in [1, 2] {
            let (router, machine) = (Namespace::create().unwrap(), Namespace::create().unwrap());
            let outside = |host: u8| {
                [
                    format!("198.51.{number}.{host}/24"),
                    format!("2001:db8:{number}0::{host}/64"),
                ]
            };
            let inside = |host: u8| {
                [
                    format!("10.{number}.0.{host}/24"),
                    format!("2001:db8:{number}::{host}/64"),
                ]
            };
            let [of_core, of_router, to_inside, own] = [outside(1), outside(2), inside(1), inside(2)];
            let [of_core, of_router, to_inside, own] =
                [&of_core, &of_router, &to_inside, &own].map(|pair| pair.each_ref().map(String::as_str));
            let interface = format!("net{number}");
            cable((&core, &interface, &of_core), (&router, "outside", &of_router));
            cable((&router, "inside", &to_inside), (&machine, "eth0", &own));
            for gateway in [format!("198.51.{number}.1"), format!("2001:db8:{number}0::1")] {
                route(&router, &gateway);
            }
            for gateway in [format!("10.{number}.0.1"), format!("2001:db8:{number}::1")] {
                route(&machine, &gateway);
            }
            for (network, gateway) in [
                (format!("10.{number}.0.0/24"), format!("198.51.{number}.2")),
                (
                    format!("2001:db8:{number}::/64"),
                    format!("2001:db8:{number}0::2"),
                ),
            ] {
                core.run("ip", ["route", "add", &network, "via", &gateway])
                    .unwrap();
            }
            routers.push(router);
            machines.push(machine);
        }
        for forwarder in routers.iter().chain([&core]) {
            forwarder.set_parameter("net.ipv4.ip_forward", "1").unwrap();
            forwarder
                .set_parameter("net.ipv6.conf.all.forwarding", "1")
                .unwrap();
        }
        let directory = Directory::create_for_test().unwrap();
        let server = Server::start(&machine.place(), "server", "[::]:4433", &[], directory.path());
        Self {
            _between: [core, machine],
            routers,
            machines,
            links: SERVER.map(|place| link_at(&server, place)),
            _server: server,
            _directory: directory,
        }
    }

    /// Takes the addresses of a version of IP from a machine.
    fn without(&self, machine: usize, version: &str) {
        self.machines[machine]
            .run(
                "ip",
                [version, "address", "flush", "dev", "eth0", "scope", "global"],
            )
            .unwrap();
    }

    /// A new peer on a machine, which is registered by one version of IP.
    fn peer(&self, machine: usize, port: u16, is_six: bool) -> Endpoint {
        let rendezvous = Rendezvous::from_link(&self.links[usize::from(is_six)]).unwrap();
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).rendezvous(rendezvous);
        let address = format!("[::]:{port}").parse().unwrap();
        let endpoint = self.machines[machine].inside(|| builder.bind(address).unwrap());
        let seen_at = wait_for(PROGRAM_LIMIT, endpoint.registered()).flatten();
        let problem = endpoint.rendezvous_problem();
        let seen_at = seen_at.unwrap_or_else(|| panic!("not registered: {problem:?}"));
        assert_eq!(seen_at.ip().to_canonical().is_ipv6(), is_six, "{seen_at}");
        endpoint
    }
}

/// RDV-2, RDV-3, RDV-10.
#[test]
fn firewalls_of_ipv6_are_opened_for_each_other_and_peers_without_a_common_version_are_relayed() {
    require_root!();
    let world = World::new();
    let mut table = Table::new("versions", &["caller", "callee", "met"]);
    let mut ports = FIRST_PORT..;
    let firewall = "IPv6 behind a firewall";
    for router in &world.routers {
        router.nft(FIREWALL).unwrap();
    }
    for machine in [0, 1] {
        world.without(machine, "-4");
    }
    let (met, _ends) = meet_directly(firewall, &mut ports, |port| {
        [0, 1].map(|end| world.peer(end, port, true))
    });
    let remote = met.ends[0].path_stats().unwrap().remote;
    assert_eq!(remote.ip().to_string(), "2001:db8:2::2");
    table.add([firewall.to_owned(), firewall.to_owned(), met.outcome()]);

    // The caller has IPv4 alone from here on, the callee IPv6.
    let world = World::new();
    world.without(0, "-6");
    world.without(1, "-4");
    for (caller, names) in [
        (0, ["IPv4 alone", "IPv6 alone"]),
        (1, ["IPv6 alone", "IPv4 alone"]),
    ] {
        let ends = |port| [caller, 1 - caller].map(|end| world.peer(end, port, end == 1));
        let (met, ends) = meet_relayed(&names.join(" calls "), &mut ports, ends);
        table.add([names[0].to_owned(), names[1].to_owned(), met.outcome()]);
        ends.iter().for_each(|end| end.close(0, "the next pair"));
    }
    table.finish();
}
