//! Routes that lead past the tunnel: of DHCP and of routers, and where the tunnel has no address of the protocol. And
//! what the user lets out.

use system_tests::underlay::Flow;
use system_tests::{require_program, require_root};

use super::*;

/// Options, and whether they let a flow out.
type LetOut = (&'static [&'static str], fn(&Flow) -> bool);

/// Whether it goes beyond the router.
fn is_far(flow: &Flow) -> bool {
    [WORLD_V4, WORLD_V6].contains(&flow.to.ip().to_string().as_str())
}

/// A server that leases addresses of IPv4 alone.
fn serve_v4(watched: &Watched) -> Server {
    let options = [TUN, "--nat", "--pool", "10.9.0.0/24"];
    watched.machines.serve_only(&options, &watched.directory)
}

#[test]
fn routes_of_dhcp_and_of_routers_and_a_protocol_without_a_lease_lead_nothing_out() {
    require_root!();
    require_program!("nft", "ping");
    let watched = Watched::new();
    let server = serve_v4(&watched);
    let mut client = watched.start_client(&server.link(), &[]);
    watched.send();
    reaches(&watched.machines.first, SERVER_V4);
    watched.assert_closed("with a lease of IPv4 alone");
    let machine = &watched.machines.first;
    // As DHCP's option 121 and a router's advertisement would make them.
    for (route, gateway) in [
        ("203.0.113.0/24", "192.0.2.1"),
        ("2001:db8:2::/64", "2001:db8:3::1"),
    ] {
        machine
            .run("ip", ["route", "add", route, "via", gateway])
            .unwrap();
    }
    watched.assert_closed("with routes past the tunnel");
    assert_eq!(client.stop(), Some(0));
    watched.assert_open("after the end");
}

#[test]
fn what_is_excluded_and_what_is_near_leaves_and_nothing_else() {
    require_root!();
    require_program!("nft", "ping");
    let watched = Watched::new();
    let server = watched.machines.serve(&["--nat"], &watched.directory);
    let cases: [LetOut; 2] = [
        (&["--allow-lan"], |flow| !is_far(flow)),
        (&["--exclude", "203.0.113.0/24"], |flow| {
            is_far(flow) && flow.to.is_ipv4()
        }),
    ];
    for (options, is_let_out) in cases {
        let mut client = watched.start_client(&server.link(), options);
        client.wait_until_connected(1, PROGRAM_LIMIT);
        client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
        watched.send();
        let expected: Vec<Flow> = watched.sender.flows().into_iter().filter(&is_let_out).collect();
        assert!(!expected.is_empty());
        wait_until(&format!("what {options:?} lets out"), PROGRAM_LIMIT, || {
            let seen = watched.underlay.in_clear();
            expected.iter().all(|flow| seen.contains_key(flow))
        });
        watched.sender.wait_for_turns(TURNS);
        let seen = watched.underlay.in_clear();
        assert!(seen.keys().all(is_let_out), "{options:?}: {seen:?}");
        assert_eq!(client.stop(), Some(0));
        watched.assert_open("after the end");
    }
}
