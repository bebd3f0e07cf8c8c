//! The host's network around a TUN: every operation, and that nothing of it stays behind, whoever is killed.
//!
//! One end of a cable stands for the TUN, and this test program for the process that changes the host.

mod default_route;
mod kill_switch;
mod undo;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use ::host::{Changes, Monitor, Nat, Network, Prefix, Route, Uplink, forwarding_blockers};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::topology::{self, Routed};
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

/// Both halves of both IP versions: together they win against every default route and leave it in place.
const HALF_DEFAULTS: [&str; 4] = ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"];

fn prefix(text: &str) -> Prefix {
    text.parse().unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Gives a machine an interface that leads nowhere.
fn add_interface(namespace: &Namespace, name: &str) {
    let peer = format!("{name}-end");
    namespace
        .run("ip", ["link", "add", name, "type", "veth", "peer", "name", &peer])
        .unwrap();
    for interface in [&peer, name] {
        namespace.set_link(interface, true).unwrap();
    }
}

/// Gives a machine an interface that stands for the TUN, and its index.
fn add_tun(namespace: &Namespace) -> u32 {
    add_interface(namespace, "tun0");
    namespace.inside(|| {
        let mut network = Network::open().unwrap();
        let index = network.index_of("tun0").unwrap();
        network.prepare_tun("tun0", true).unwrap();
        network.set_up(index, true).unwrap();
        index
    })
}

/// The routes that take everything from a default route.
fn half_defaults(index: u32) -> [Route; 4] {
    HALF_DEFAULTS.map(|half| Route::on_link(prefix(half), index))
}

fn add_routes(network: &mut Network, routes: &[Route]) {
    network.add_routes(routes).into_iter().for_each(Result::unwrap);
}

/// Everything that the network of a machine consists of, as text.
pub(crate) fn state(namespace: &Namespace) -> String {
    wait_until("addresses that are in use", PROGRAM_LIMIT, || {
        !namespace
            .run("ip", ["-j", "address"])
            .unwrap()
            .contains("tentative")
    });
    let mut state = String::new();
    for arguments in [
        "-j address",
        "-j -4 route show table all",
        "-j -6 route show table all",
        "-j -4 rule",
        "-j -6 rule",
    ] {
        let lines = namespace.run("ip", arguments.split(' ')).unwrap();
        writeln!(state, "ip {arguments}: {}", lines.replace("},{", "},\n{")).unwrap();
    }
    writeln!(
        state,
        "nft: {}",
        namespace.run("nft", ["list", "ruleset"]).unwrap()
    )
    .unwrap();
    for (name, value) in parameters(namespace) {
        writeln!(state, "{name} = {value}").unwrap();
    }
    state
}

/// All kernel parameters that may matter.
fn parameters(namespace: &Namespace) -> BTreeMap<String, String> {
    fn collect(directory: &Path, into: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if let Ok(value) = std::fs::read_to_string(&path) {
                into.insert(path.display().to_string(), value.trim().to_owned());
            }
        }
    }
    namespace.inside(|| {
        let mut parameters = BTreeMap::new();
        for directory in ["/proc/sys/net/ipv4/conf", "/proc/sys/net/ipv6/conf"] {
            collect(Path::new(directory), &mut parameters);
        }
        let forward = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        parameters.insert("ip_forward".to_owned(), forward.trim().to_owned());
        parameters
    })
}

/// Fails with the lines that differ.
pub(crate) fn assert_same(before: &str, after: &str) {
    let missing = before
        .lines()
        .filter(|line| !after.lines().any(|other| other == *line));
    let new = after
        .lines()
        .filter(|line| !before.lines().any(|other| other == *line));
    let differences: Vec<String> = missing
        .map(|line| format!("- {line}"))
        .chain(new.map(|line| format!("+ {line}")))
        .collect();
    assert!(before == after, "left behind:\n{}", differences.join("\n"));
}

#[test]
fn links_addresses_and_routes_come_and_go() {
    require_root!();
    require_program!("nft");
    let machine = Namespace::create().unwrap();
    let index = add_tun(&machine);
    let before = state(&machine);
    let routes = machine.inside(|| {
        let mut network = Network::open().unwrap();
        assert_eq!(network.name_of(index).unwrap(), "tun0");
        for text in ["10.9.0.2/24", "fd09::2/64"] {
            network.add_address(index, prefix(text)).unwrap();
            // It may be there already.
            network.add_address(index, prefix(text)).unwrap();
        }
        let listed = network.addresses(Some(index)).unwrap();
        let prefixes: Vec<_> = listed.iter().map(|address| address.prefix).collect();
        assert!(
            prefixes.contains(&prefix("10.9.0.2/24")) && prefixes.contains(&prefix("fd09::2/64")),
            "{listed:?}"
        );
        let routes = [
            Route::on_link(prefix("10.20.0.0/16"), index),
            Route {
                metric: Some(50),
                ..Route::on_link(prefix("fd20::/16"), index)
            },
        ];
        add_routes(&mut network, &routes);
        // The same destination again is updated.
        let with_source = Route {
            source: Some(address("10.9.0.2")),
            ..routes[0]
        };
        add_routes(&mut network, &[with_source]);
        add_routes(&mut network, &half_defaults(index));
        let listed = network.routes().unwrap();
        let found = listed
            .iter()
            .find(|route| route.destination == prefix("10.20.0.0/16"));
        assert_eq!(found, Some(&with_source));
        routes
    });
    let shown = machine.run("ip", ["route"]).unwrap() + &machine.run("ip", ["-6", "route"]).unwrap();
    for line in [
        "10.20.0.0/16 dev tun0",
        "fd20::/16 dev tun0",
        "0.0.0.0/1",
        "8000::/1",
    ] {
        assert!(shown.contains(line), "{line} is missing:\n{shown}");
    }
    machine.inside(|| {
        let mut network = Network::open().unwrap();
        network
            .replace_addresses(index, &[prefix("10.9.0.3/24"), prefix("fd09::3/64")])
            .unwrap();
        let listed = network.addresses(Some(index)).unwrap();
        assert!(
            !listed
                .iter()
                .any(|address| address.prefix == prefix("10.9.0.2/24"))
        );
        assert!(
            listed
                .iter()
                .any(|address| address.prefix == prefix("fd09::3/64"))
        );
        for route in half_defaults(index) {
            network.remove_route(&route).unwrap();
        }
        for route in routes {
            network.remove_route(&route).unwrap();
            // It may be gone already, as that of the address that went.
            network.remove_route(&route).unwrap();
        }
        network.replace_addresses(index, &[]).unwrap();
        network.remove_address(index, prefix("10.9.0.3/24")).unwrap();
    });
    assert_same(&before, &state(&machine));
}

#[test]
fn mtu_and_queue_follow_but_never_cost_ipv6_its_addresses() {
    require_root!();
    let machine = Namespace::create().unwrap();
    let index = add_tun(&machine);
    let mtu = || {
        let shown = machine.run("ip", ["-o", "link", "show", "tun0"]).unwrap();
        let mut words = shown.split_whitespace().skip_while(|word| *word != "mtu");
        words.nth(1).unwrap().parse::<u32>().unwrap()
    };
    machine.inside(|| {
        let mut network = Network::open().unwrap();
        for bytes in [1_400, 9_000, 1_000, 1_280] {
            network.set_mtu(index, bytes).unwrap();
            assert_eq!(mtu(), bytes);
        }
        network.set_queue_length(index, 321).unwrap();
        network.add_address(index, prefix("fd09::2/64")).unwrap();
        let refused = network.set_mtu(index, 1_279).unwrap_err().to_string();
        assert!(
            refused.contains("fd09::2") && refused.contains("1280"),
            "{refused}"
        );
        assert_eq!(mtu(), 1_280);
        assert!(network.index_of("nothing").is_err() && network.set_mtu(9_999, 1_400).is_err());
    });
    let shown = machine.run("ip", ["link", "show", "tun0"]).unwrap();
    assert!(shown.contains("qlen 321"), "{shown}");
}

#[test]
fn a_route_of_another_interface_is_left_alone() {
    require_root!();
    let network = Routed::new(1500);
    let index = add_tun(&network.client);
    network
        .client
        .run("ip", ["route", "add", "10.50.0.0/16", "via", "10.77.0.1"])
        .unwrap();
    let error = network.client.inside(|| {
        let mut network = Network::open().unwrap();
        let route = Route::on_link(prefix("10.50.0.0/16"), index);
        // Those beside it are added, and one that is there already is updated.
        let beside = half_defaults(index).map(|half| [half, half]).concat();
        let routes = [&beside[..2], &[route], &beside[2..]].concat();
        let mut added = network.add_routes(&routes);
        let error = added.remove(2).unwrap_err();
        added.into_iter().for_each(Result::unwrap);
        network.remove_route(&route).unwrap();
        error.to_string()
    });
    assert!(error.contains("via eth0"), "{error}");
    let shown = network.client.run("ip", ["route"]).unwrap();
    assert!(shown.contains("10.50.0.0/16 via 10.77.0.1 dev eth0"), "{shown}");
}

#[test]
fn the_uplink_is_found_beside_the_routes_of_the_tun() {
    require_root!();
    let network = Routed::new(1500);
    let tun = add_tun(&network.client);
    let servers = [topology::ROUTED_SERVER_V4, topology::ROUTED_SERVER_V6].map(address);
    let uplinks = |excluding| {
        network.client.inside(|| {
            let mut network = Network::open().unwrap();
            servers.map(|server| network.uplink_towards(server, excluding).unwrap())
        })
    };
    let own = [topology::CLIENT_V4, topology::CLIENT_V6].map(address);
    let gateways = ["10.77.0.1", "fd77::1"].map(address);
    let assert_found = |found: [Option<Uplink>; 2]| {
        for ((uplink, own), gateway) in found.into_iter().zip(own).zip(gateways) {
            let uplink = uplink.unwrap();
            assert_eq!((uplink.name.as_str(), uplink.gateway), ("eth0", Some(gateway)));
            assert_eq!(uplink.source, Some(own));
        }
    };
    assert_found(uplinks(None));
    network.client.inside(|| {
        add_routes(&mut Network::open().unwrap(), &half_defaults(tun));
    });
    assert!(
        uplinks(None)
            .into_iter()
            .all(|uplink| uplink.unwrap().index == tun)
    );
    assert_found(uplinks(Some(tun)));
    // An exception route, which follows the uplink, is not taken for it.
    for (server, stale) in [
        (topology::ROUTED_SERVER_V4, "10.77.0.9"),
        (topology::ROUTED_SERVER_V6, "fd77::9"),
    ] {
        let exception = [
            "route", "add", server, "via", stale, "dev", "eth0", "proto", "103", "onlink",
        ];
        network.client.run("ip", exception).unwrap();
    }
    assert!(uplinks(None).into_iter().all(|uplink| {
        uplink
            .unwrap()
            .gateway
            .is_some_and(|gateway| ["10.77.0.9", "fd77::9"].map(address).contains(&gateway))
    }));
    assert_found(uplinks(Some(tun)));
    let neighbour = network.client.inside(|| {
        Network::open()
            .unwrap()
            .uplink_towards(address("10.77.0.1"), Some(tun))
            .unwrap()
    });
    assert_eq!(neighbour.unwrap().gateway, None);
    network.client.set_link("eth0", false).unwrap();
    assert_eq!(uplinks(Some(tun)), [None, None]);
}

#[test]
fn changes_are_heard_but_not_those_of_ones_own_tun() {
    require_root!();
    let machine = Namespace::create().unwrap();
    let tun = add_tun(&machine);
    // What the kernel does by itself for new interfaces is over when their addresses are in use.
    state(&machine);
    let mut monitor = machine.inside(|| Monitor::open(Some(tun)).unwrap());
    machine
        .run("ip", ["address", "add", "10.9.0.2/24", "dev", "tun0"])
        .unwrap();
    machine
        .run("ip", ["route", "add", "10.20.0.0/16", "dev", "tun0"])
        .unwrap();
    assert_eq!(monitor.drain(), Changes::default());
    let heard = |monitor: &mut Monitor, what, which: fn(&Changes) -> bool| {
        wait_until(what, PROGRAM_LIMIT, || which(&monitor.drain()));
    };
    add_interface(&machine, "eth7");
    heard(&mut monitor, "news of a link", |changes| changes.links);
    machine
        .run("ip", ["address", "add", "10.10.0.2/24", "dev", "eth7"])
        .unwrap();
    heard(&mut monitor, "news of an address", |changes| changes.addresses);
    machine
        .run("ip", ["-6", "route", "add", "fd20::/64", "dev", "eth7"])
        .unwrap();
    heard(&mut monitor, "news of a route", |changes| changes.routes);
    wait_until("the end of the news", PROGRAM_LIMIT, || !monitor.drain().any());
    // An exception route that comes is ours and no news; one that goes is.
    let exception = "10.30.0.1/32 dev eth7 proto 103".split(' ');
    let change = |verb| ["route", verb].into_iter().chain(exception.clone());
    machine.run("ip", change("add")).unwrap();
    assert_eq!(monitor.drain(), Changes::default());
    machine.run("ip", change("del")).unwrap();
    heard(&mut monitor, "news of a route that is gone", |changes| {
        changes.routes && changes.made_by_us
    });
    let rule = "priority 26471 table 7 protocol 103".split(' ');
    let change = |verb| ["rule", verb].into_iter().chain(rule.clone());
    machine.run("ip", change("add")).unwrap();
    assert_eq!(monitor.drain(), Changes::default());
    machine.run("ip", change("del")).unwrap();
    heard(&mut monitor, "news of a rule that is gone", |changes| {
        changes.made_by_us
    });
    // More news than fit the socket: some are lost, so that everything may have changed.
    let directory = Directory::create_for_test().unwrap();
    let batch = directory.path().join("routes");
    let line = |number: u32| format!("route add 10.64.{}.{}/32 dev eth7\n", number / 256, number % 256);
    std::fs::write(&batch, (0..4_000).map(line).collect::<String>()).unwrap();
    machine
        .run("ip", [OsStr::new("-batch"), batch.as_os_str()])
        .unwrap();
    let everything = Changes {
        links: true,
        addresses: true,
        routes: true,
        made_by_us: true,
    };
    assert_eq!(monitor.drain(), everything);
    wait_until("the end of the news", PROGRAM_LIMIT, || !monitor.drain().any());
}

#[test]
fn nat_carries_the_pool_and_leaves_with_its_owner() {
    require_root!();
    require_program!("nft", "ping");
    let network = Routed::new(1500);
    // The server knows no way back to the pool.
    network.server.run("ip", ["route", "del", "default"]).unwrap();
    network
        .server
        .run("ip", ["-6", "route", "del", "default"])
        .unwrap();
    let before = state(&network.router);
    let nat = network.router.inside(|| {
        let inside = Network::open().unwrap().index_of("inside").unwrap();
        Nat::start(inside, &[prefix("10.77.0.0/24"), prefix("fd77::/64")]).unwrap()
    });
    let rules = network.router.run("nft", ["list", "ruleset"]).unwrap();
    assert!(rules.contains("flags owner"), "{rules}");
    for server in [topology::ROUTED_SERVER_V4, topology::ROUTED_SERVER_V6] {
        network
            .client
            .run("ping", ["-c", "1", "-W", "5", server])
            .unwrap();
        let bind = |namespace: &Namespace, address: &str| {
            let socket = namespace.inside(|| UdpSocket::bind((address, 0)).unwrap());
            socket.set_read_timeout(Some(PROGRAM_LIMIT)).unwrap();
            socket
        };
        let receiver = bind(&network.server, server);
        let any = if server.contains(':') { "::" } else { "0.0.0.0" };
        let sender = bind(&network.client, any);
        network
            .client
            .inside(|| sender.connect(receiver.local_addr().unwrap()).unwrap());
        let mut buffer = [0; 16];
        sender.send(b"ping").unwrap();
        let (_, seen) = receiver.recv_from(&mut buffer).unwrap();
        assert!([topology::ROUTER_OUTSIDE_V4, "fd78::2"].contains(&seen.ip().to_string().as_str()));
        receiver.send_to(b"pong", seen).unwrap();
        assert_eq!(sender.recv(&mut buffer).unwrap(), 4);
    }
    drop(nat);
    let rules = || network.router.run("nft", ["list", "ruleset"]).unwrap();
    wait_until("the end of the table", PROGRAM_LIMIT, || rules().is_empty());
    assert_same(&before, &state(&network.router));
}

#[test]
fn a_firewall_that_drops_what_is_forwarded_is_named() {
    require_root!();
    require_program!("nft");
    let machine = Namespace::create().unwrap();
    assert_eq!(machine.inside(forwarding_blockers), Vec::<String>::new());
    machine
        .nft(
            "table ip filter {\n\
         chain FORWARD { type filter hook forward priority 0; policy drop; }\n\
         chain INPUT { type filter hook input priority 0; policy drop; }\n\
         }\n\
         table inet quiet { chain forward { type filter hook forward priority 0; policy accept; }\n }\n",
        )
        .unwrap();
    let told = machine.inside(forwarding_blockers);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("chain FORWARD of table ip filter"), "{told:?}");
}
