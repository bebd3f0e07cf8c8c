//! A server that means harm: what it assigns, advertises and sends does not reach the networks of a client's machine,
//! whose kernel would forward.

use system_tests::{require_program, require_root};

use super::*;

/// A network of the client's machine.
const LOCAL: &str = "192.168.1.0/24";

/// Its address there, and a neighbour's.
const OWN: &str = "192.168.1.1/24";
const NEIGHBOUR: &str = "192.168.1.2";

/// Machines whose first one forwards, and has a network of its own with a neighbour on it.
fn machines_with_neighbour() -> (Machines, Namespace) {
    let (machines, neighbour) = (Machines::new(1500), Namespace::create().unwrap());
    let end = |namespace, interface, addresses| End {
        namespace,
        interface,
        addresses,
    };
    join(
        end(&machines.first, "lan", &[OWN]),
        end(&neighbour, "eth0", &["192.168.1.2/24"]),
        1500,
    )
    .unwrap();
    neighbour
        .run("ip", ["route", "add", "default", "via", "192.168.1.1"])
        .unwrap();
    machines.first.set_parameter("net.ipv4.ip_forward", "1").unwrap();
    (machines, neighbour)
}

/// What the kernel of a machine routes into the TUN.
fn tun_routes(machine: &Namespace) -> String {
    machine.run("ip", ["route", "show", "dev", "tun0"]).unwrap()
}

fn spoofed(client: &Client) -> u64 {
    client.status()["egress"]["drops"]["source_spoofed"]
        .as_u64()
        .unwrap_or(0)
}

#[test]
fn routes_to_the_clients_networks_and_to_public_ones_are_not_taken_unasked() {
    require_root!();
    require_program!("ping");
    let (machines, _neighbour) = machines_with_neighbour();
    let directory = Directory::create_for_test().unwrap();
    let offered = ["10.88.0.0/16", "192.168.0.0/16", "203.0.113.0/24", "64.0.0.0/2"];
    let options: Vec<&str> = offered.iter().flat_map(|route| ["--advertise", route]).collect();
    let server = machines.serve(&options, &directory);
    let mut client = connect(&machines.first, "client", &server, &[], &directory);
    reaches(&machines.first, SERVER_V4);
    let routes = tun_routes(&machines.first);
    assert!(routes.contains("10.88.0.0/16"), "{routes}");
    for refused in &offered[1..] {
        assert!(!routes.contains(refused), "{routes}");
    }
    assert!(ping(&machines.first, NEIGHBOUR, &[]));
    client
        .process()
        .wait_for_line("the server routes", PROGRAM_LIMIT)
        .unwrap();

    // Packets that claim to come from there: of a neighbour, and of the world, where no route of the client leads.
    for own in [NEIGHBOUR, "192.168.7.7"] {
        let own = format!("{own}/32");
        machines
            .server
            .run("ip", ["address", "add", &own, "dev", "lo"])
            .unwrap();
    }
    let lease = addresses(&machines.first)
        .into_iter()
        .find(|text| text.contains('.'))
        .unwrap();
    assert!(ping(&machines.server, &lease, &["-I", SERVER_V4]));
    let before = spoofed(&client);
    for source in [NEIGHBOUR, "192.168.7.7", "203.0.113.1"] {
        assert!(!ping(&machines.server, &lease, &["-I", source]), "{source}");
    }
    assert_eq!(spoofed(&client), before + 3);
    assert_eq!(client.stop(), Some(0));

    // What the user names is taken.
    let options = ["--route", "203.0.113.0/24", "--route", "10.9.0.0/24"];
    let _client = connect(&machines.first, "again", &server, &options, &directory);
    reaches(&machines.first, SERVER_V4);
    assert!(tun_routes(&machines.first).contains("203.0.113.0/24"));
}

#[test]
fn an_address_of_the_clients_network_is_not_taken_and_nothing_is_forwarded_there() {
    require_root!();
    require_program!("ping");
    let (machines, neighbour) = machines_with_neighbour();
    let directory = Directory::create_for_test().unwrap();
    let options = [TUN, "--pool", LOCAL, "--pool", "fd09::/64"];
    let server = machines.serve_only(&options, &directory);
    let mut client = connect(&machines.first, "client", &server, &[], &directory);
    reaches(&machines.first, SERVER_V6);
    assert_eq!(addresses(&machines.first).len(), 1, "of IPv6 alone");
    let line = client
        .process()
        .wait_for_line("the server assigned 192.168.1.", PROGRAM_LIMIT)
        .unwrap();
    assert!(line.contains("not used"), "{line}");
    assert!(ping(&machines.first, NEIGHBOUR, &[]));
    // The server leased the neighbour's address, and reaches it nevertheless through nobody.
    let packets_before = received(&neighbour);
    assert!(!ping(&machines.server, NEIGHBOUR, &[]));
    let routed_drop = || {
        client.status()["egress"]["drops"]["no_route"]
            .as_u64()
            .unwrap_or(0)
            + client.status()["egress"]["drops"]["source_spoofed"]
                .as_u64()
                .unwrap_or(0)
    };
    wait_until("the drop", PROGRAM_LIMIT, || routed_drop() > 0);
    assert_eq!(received(&neighbour), packets_before);
}

/// Echo requests that reached a machine.
fn received(machine: &Namespace) -> u64 {
    let text = machine.run("cat", ["/proc/net/snmp"]).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split(' ').position(|name| name == "InEchos").unwrap();
    values.split(' ').nth(place).unwrap().parse().unwrap()
}

/// The kernel looks, too: it takes no packet of its own addresses, and has no route that nobody asked for.
#[test]
fn the_kernel_takes_no_packet_of_the_machines_own_addresses_from_the_tun() {
    require_root!();
    require_program!("ping");
    let tunnel = Tunnel::new(1500, &[], &[]);
    let machine = &tunnel.machines.first;
    reaches(machine, SERVER_V4);
    let parameter = |name: &str| {
        let name = format!("net.ipv4.conf.tun0.{name}");
        machine.run("sysctl", ["-n", &name]).unwrap().trim().to_owned()
    };
    assert_eq!(
        (parameter("accept_local"), parameter("rp_filter")),
        ("0".into(), "2".into())
    );
    let addresses = machine.run("ip", ["address", "show", "dev", "tun0"]).unwrap();
    assert_eq!(addresses.matches("noprefixroute").count(), 2, "{addresses}");
    // Answers of the client's end come nevertheless.
    let text = ping_says(machine, SERVER_V4, &["-t", "1"]);
    assert!(text.contains("Time to live exceeded"), "{text}");
}
