//! Everything into the TUN by rules and a table of our own: what wins, what passes, and that it goes again.

use ::host::{DefaultRoute, OUTER_MARK, Undo};
use system_tests::topology::{CLIENT_V4, ROUTED_SERVER_V4, ROUTED_SERVER_V6, ROUTER_OUTSIDE_V4};

use super::undo::{files, guardian};
use super::*;

/// An address that everybody routes to the router.
const ELSEWHERE_V4: &str = "203.0.113.9";
const ELSEWHERE_V6: &str = "2001:db8:9::9";

/// A machine behind a router, with an interface that stands for the TUN, and everything led there.
struct Led {
    undo: Undo,
    route: DefaultRoute,
    tun: u32,
    before: String,
    network: Routed,
    directory: Directory,
}

impl Led {
    fn new() -> Self {
        let (network, directory) = (Routed::new(1500), Directory::create_for_test().unwrap());
        let tun = add_tun(&network.client);
        let before = state(&network.client);
        let mut undo = Undo::new(directory.path(), guardian());
        let route = network.client.inside(|| undo.start_default_route(tun).unwrap());
        Self {
            undo,
            route,
            tun,
            before,
            network,
            directory,
        }
    }

    fn set(&self, into_tun: &[&str], exceptions: &[&str]) {
        let prefixes = |texts: &[&str]| texts.iter().map(|text| prefix(text)).collect::<Vec<_>>();
        let refused = self.network.client.inside(|| {
            let mut network = Network::open().unwrap();
            self.route
                .set(&mut network, &prefixes(into_tun), &prefixes(exceptions))
                .unwrap()
        });
        assert!(refused.is_empty(), "{refused:?}");
    }

    /// The interface that a packet leaves by, or why it does not.
    fn way(&self, destination: &str, mark: u32) -> String {
        let mark = mark.to_string();
        let mut command = self.network.client.command("ip");
        command.args(["route", "get", destination, "mark", &mark]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace();
        match words.find(|word| *word == "dev") {
            Some(_) if output.status.success() => words.next().unwrap().to_owned(),
            _ => String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Whether a ping with this mark is answered.
    fn answers(&self, destination: &str, mark: u32) -> bool {
        let mark = mark.to_string();
        let mut ping = self.network.client.command("ping");
        ping.args(["-n", "-c", "1", "-W", "1", "-m", &mark, destination]);
        ping.output().unwrap().status.success()
    }

    /// Takes everything back, and fails where something is left.
    fn end(mut self) {
        self.network.client.inside(|| self.undo.undo().unwrap());
        drop(self.route);
        assert_same(&self.before, &state(&self.network.client));
        assert!(files(self.directory.path()).is_empty());
    }
}

#[test]
fn without_a_lease_everything_is_unreachable_but_marked_packets_and_neighbours_on_the_link() {
    require_root!();
    require_program!("ping", "nft");
    let led = Led::new();
    for destination in [ELSEWHERE_V4, ROUTED_SERVER_V4, "10.77.0.1"] {
        assert!(
            led.way(destination, 0).contains("No route to host"),
            "{destination}"
        );
        assert_eq!(led.way(destination, OUTER_MARK), "eth0");
    }
    for destination in [ELSEWHERE_V6, ROUTED_SERVER_V6, "fd77::1"] {
        assert!(
            led.way(destination, 0).contains("No route to host"),
            "{destination}"
        );
        assert_eq!(led.way(destination, OUTER_MARK), "eth0");
    }
    assert_eq!(led.way("fe80::1", 0), "eth0");
    assert_eq!(led.way(CLIENT_V4, 0), "lo");
    led.end();
}

#[test]
fn an_address_family_with_a_lease_goes_into_the_tun_and_the_other_one_nowhere() {
    require_root!();
    require_program!("nft");
    let led = Led::new();
    let client = &led.network.client;
    client
        .run("ip", ["address", "add", "10.9.0.2/32", "dev", "tun0"])
        .unwrap();
    // As DHCP option 121 and router advertisements make them.
    for route in ["203.0.113.0/24 via 10.77.0.1", "2001:db8:9::/48 via fd77::1"] {
        client
            .run("ip", ["route", "add"].into_iter().chain(route.split(' ')))
            .unwrap();
    }
    led.set(&["0.0.0.0/0"], &[]);
    let tunnel_source = client.run("ip", ["route", "get", ELSEWHERE_V4]).unwrap();
    assert!(tunnel_source.contains("dev tun0") && tunnel_source.contains("src 10.9.0.2"));
    assert_eq!(led.way("10.77.0.1", 0), "tun0");
    assert!(led.way(ELSEWHERE_V6, 0).contains("No route to host"));
    // The lease goes, and with it what it led into the tunnel; nothing goes past it.
    client
        .run("ip", ["address", "del", "10.9.0.2/32", "dev", "tun0"])
        .unwrap();
    assert!(led.way(ELSEWHERE_V4, 0).contains("No route to host"));
    client
        .run("ip", ["address", "add", "10.9.0.2/32", "dev", "tun0"])
        .unwrap();
    led.set(&["0.0.0.0/0", "::/0"], &[]);
    assert_eq!(led.way(ELSEWHERE_V4, 0), "tun0");
    assert_eq!(led.way(ELSEWHERE_V6, 0), "tun0");
    led.set(&[], &[]);
    assert!(led.way(ELSEWHERE_V4, 0).contains("No route to host"));
    assert!(led.way(ELSEWHERE_V6, 0).contains("No route to host"));
    for route in ["203.0.113.0/24", "2001:db8:9::/48"] {
        client.run("ip", ["route", "del", route]).unwrap();
    }
    client
        .run("ip", ["address", "del", "10.9.0.2/32", "dev", "tun0"])
        .unwrap();
    led.end();
}

#[test]
fn routes_of_the_uplink_find_their_gateways_outside_the_tunnel() {
    require_root!();
    require_program!("nft");
    let led = Led::new();
    let client = &led.network.client;
    let routes = ["198.18.0.0/24 via 10.77.0.1", "2001:db8:9::/48 via fd77::1"];
    for into_tun in [&["0.0.0.0/0", "::/0"][..], &[]] {
        led.set(into_tun, &[]);
        for route in routes {
            for device in [&[][..], &["dev", "eth0"]] {
                let change = |verb| {
                    ["route", verb]
                        .into_iter()
                        .chain(route.split(' '))
                        .chain(device.iter().copied())
                };
                client.run("ip", change("add")).unwrap();
                let destination = route.split(' ').next().unwrap();
                let version = if destination.contains(':') { "-6" } else { "-4" };
                let shown = client.run("ip", [version, "route", "show", destination]).unwrap();
                assert!(shown.contains("dev eth0"), "{shown}");
                client.run("ip", change("del")).unwrap();
            }
        }
    }
    led.end();
}

#[test]
fn exceptions_are_routed_as_if_there_were_no_tunnel() {
    require_root!();
    require_program!("nft");
    let led = Led::new();
    let exceptions = ["10.78.0.0/16", ROUTED_SERVER_V6];
    led.set(&["0.0.0.0/0", "::/0", "10.78.5.0/24"], &exceptions);
    assert_eq!(led.way(ROUTED_SERVER_V4, 0), "eth0");
    assert_eq!(led.way(ROUTED_SERVER_V6, 0), "eth0");
    // What the tunnel carries inside of an exception is more particular.
    assert_eq!(led.way("10.78.5.1", 0), "tun0");
    assert_eq!(led.way("fd78::2", 0), "tun0");
    led.set(&["0.0.0.0/0", "::/0"], &exceptions[..1]);
    assert_eq!(led.way(ROUTED_SERVER_V4, 0), "eth0");
    assert_eq!(led.way(ROUTED_SERVER_V6, 0), "tun0");
    assert_eq!(led.way("10.78.5.1", 0), "eth0");
    led.end();
}

#[test]
fn a_reverse_path_filter_lets_answers_to_marked_packets_in_and_no_others() {
    require_root!();
    require_program!("ping", "nft");
    let led = Led::new();
    assert_eq!(led.route.warning(), None);
    for (filter, into_tun) in [("1", &["0.0.0.0/0"][..]), ("2", &[]), ("1", &[])] {
        for interface in ["all", "eth0"] {
            led.network
                .client
                .set_parameter(&format!("net.ipv4.conf.{interface}.rp_filter"), filter)
                .unwrap();
        }
        led.set(into_tun, &[]);
        assert!(
            led.answers(ROUTED_SERVER_V4, OUTER_MARK),
            "filter {filter}, {into_tun:?}"
        );
        assert!(!led.answers(ROUTED_SERVER_V4, 0));
    }
    // That is because the filter looks at the mark.
    let client = &led.network.client;
    let heed_marks = |value| client.set_parameter("net.ipv4.conf.all.src_valid_mark", value);
    heed_marks("0").unwrap();
    assert!(!led.answers(ROUTED_SERVER_V4, OUTER_MARK));
    heed_marks("1").unwrap();
    for interface in ["all", "eth0"] {
        client
            .set_parameter(&format!("net.ipv4.conf.{interface}.rp_filter"), "0")
            .unwrap();
    }
    assert!(led.answers(ROUTER_OUTSIDE_V4, OUTER_MARK));
    led.set(&[], &[]);
    led.end();
}

#[test]
fn what_others_took_away_is_made_again() {
    require_root!();
    require_program!("nft");
    let led = Led::new();
    led.set(&["0.0.0.0/0", "::/0"], &[]);
    let client = &led.network.client;
    for family in ["-4", "-6"] {
        client
            .run("ip", [family, "rule", "del", "priority", "26471"])
            .unwrap();
    }
    let tables = (0x6772_0000 + led.tun).to_string();
    client.run("ip", ["route", "flush", "table", &tables]).unwrap();
    assert_eq!(led.way(ELSEWHERE_V4, 0), "eth0");
    assert_eq!(led.way(ELSEWHERE_V6, 0), "eth0");
    led.set(&["0.0.0.0/0", "::/0"], &[]);
    assert_eq!(led.way(ELSEWHERE_V4, 0), "tun0");
    assert_eq!(led.way(ELSEWHERE_V6, 0), "tun0");
    led.end();
}

#[test]
fn of_two_that_lead_everything_the_first_wins_and_the_last_puts_the_machine_back() {
    require_root!();
    require_program!("nft");
    let led = Led::new();
    led.set(&["0.0.0.0/0"], &[]);
    let client = &led.network.client;
    add_interface(client, "tun1");
    let second = client.inside(|| Network::open().unwrap().index_of("tun1").unwrap());
    let mut undo = Undo::new(led.directory.path(), guardian());
    let route = client.inside(|| undo.start_default_route(second).unwrap());
    assert_eq!(led.way(ELSEWHERE_V4, 0), "tun0");
    client.inside(|| undo.undo().unwrap());
    drop(route);
    client.run("ip", ["link", "del", "tun1"]).unwrap();
    assert_eq!(led.way(ELSEWHERE_V4, 0), "tun0");
    let rules = client.run("ip", ["rule"]).unwrap();
    assert!(rules.contains("dport 67"), "{rules}");
    let valid = client
        .run("sysctl", ["-n", "net.ipv4.conf.all.src_valid_mark"])
        .unwrap();
    assert_eq!(valid.trim(), "1");
    led.end();
}
