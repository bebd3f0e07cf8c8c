//! Peers behind the same router, which turns their packets back to each other or does not, and behind two routers in a
//! row, as where a provider translates the addresses of its customers once more (RFC 6888); the inner one may map
//! ports.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

use peer::blocking::wait_for;
use peer::{Endpoint, PeerPath};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::require_root;
use testbed::namespace::Namespace;
use testbed::wait::wait_until;

use super::moves::Talk;
use super::table::Table;
use super::world::{
    FIRST_PORT, FullCone, Kind, PortRestricted, Symmetric, World, cable, first_message, is_relayed,
    meet_directly, meet_relayed, route, set_kind,
};

/// The outside address of the first router.
const OUTSIDE: [u8; 4] = [198, 51, 1, 2];

/// The first router's rules for the machine and its neighbour, who do not reach each other but by the address outside,
/// where that leads back in.
fn shared_router(port: u16, turns_back: bool) -> String {
    let back = "iifname inside* ip daddr 198.51.1.2 udp dport";
    let other = port + 1;
    let (lead_in, return_address) = match turns_back {
        true => (
            format!("{back} {port} dnat to 10.1.0.2:{port}\n{back} {other} dnat to 10.3.0.2:{other}"),
            "oifname inside* ct status dnat snat to 198.51.1.2",
        ),
        false => (String::new(), ""),
    };
    format!(
        "table ip router {{
            chain input {{ type filter hook input priority 0; iifname outside meta l4proto udp drop; }}
            chain apart {{
                type filter hook forward priority 0;
                iifname inside* oifname inside* ct status dnat accept
                iifname inside* oifname inside* drop
            }}
            chain back {{
                type nat hook prerouting priority -100;
                {lead_in}
            }}
            chain out {{
                type nat hook postrouting priority 100;
                oifname outside masquerade
                {return_address}
            }}
        }}"
    )
}

/// RDV-2, RDV-3: what both know of each other are the same address outside and addresses that lead nowhere.
#[test]
fn neighbours_who_are_kept_apart_meet_where_their_router_turns_packets_back_and_are_relayed_elsewhere() {
    require_root!();
    let world = World::new();
    world.set_kinds([PortRestricted, PortRestricted], FIRST_PORT);
    let neighbour = world.neighbour();
    for (turns_back, port) in [(true, FIRST_PORT), (false, FIRST_PORT + 2)] {
        world.routers[0].nft("flush ruleset").unwrap();
        world.routers[0].nft(&shared_router(port, turns_back)).unwrap();
        let (caller, callee) = (world.peer(0, port), world.peer_on(&neighbour, port + 1));
        let (took, ends) = first_message(&caller, &callee, PROGRAM_LIMIT).unwrap();
        println!("turns back: {turns_back}, first message after {took:?}");
        if turns_back {
            let back_in = PeerPath::Direct(SocketAddr::from((OUTSIDE, port + 1)));
            wait_until("a path by the router", PROGRAM_LIMIT, || {
                ends[0].path() == Some(back_in) && !is_relayed(&ends[1])
            });
        } else {
            assert!(ends.iter().all(is_relayed));
        }
        let talk = Talk::new(ends);
        talk.finish();
        for endpoint in [caller, callee] {
            endpoint.close(0, "the next case");
        }
    }
}

/// A machine behind a router of its own, which is behind one of the provider.
struct Customer {
    router: Arc<Namespace>,
    machine: Namespace,
    provider: usize,
}

impl Customer {
    fn of(world: &World, provider: usize) -> Self {
        let (router, machine) = (
            Arc::new(Namespace::create().unwrap()),
            Namespace::create().unwrap(),
        );
        let between = |host: u8| format!("100.64.{}.{host}/24", provider + 1);
        let inside = |host: u8| format!("10.{}.0.{host}/24", provider + 4);
        cable(
            (&world.routers[provider], "customers", &[&between(1)]),
            (&router, "outside", &[&between(2)]),
        );
        cable(
            (&router, "inside", &[&inside(1)]),
            (&machine, "eth0", &[&inside(2)]),
        );
        route(&router, &format!("100.64.{}.1", provider + 1));
        route(&machine, &format!("10.{}.0.1", provider + 4));
        router.set_parameter("net.ipv4.ip_forward", "1").unwrap();
        Self {
            router,
            machine,
            provider,
        }
    }

    /// Its router restricts ports, as Linux does, and the provider's is of this kind.
    fn peer(&self, world: &World, of_provider: Kind, port: u16) -> Endpoint {
        self.set_kinds(world, of_provider, port);
        world.peer_on(&self.machine, port)
    }

    fn set_kinds(&self, world: &World, of_provider: Kind, port: u16) {
        let (network, provider) = (self.provider + 4, &world.routers[self.provider]);
        set_kind(&self.router, PortRestricted, &format!("10.{network}.0.2"), port);
        let customer = format!("100.64.{}.2", self.provider + 1);
        set_kind(provider, of_provider, &customer, port);
    }

    /// Has its router map the ports that are asked for by PCP for IPv4 (RFC 6887), and say that they are at the address
    /// outside that is put here. The provider's router leads nothing there by itself.
    fn speak_pcp(&self) -> Arc<Mutex<Ipv4Addr>> {
        let address = SocketAddr::from(([10, self.provider as u8 + 4, 0, 1], 5_351));
        let socket = self.router.inside(|| UdpSocket::bind(address).unwrap());
        let outside = Arc::new(Mutex::new(Ipv4Addr::UNSPECIFIED));
        // The thread waits for the next question after the end of the test.
        let (named, router) = (Arc::clone(&outside), Arc::downgrade(&self.router));
        thread::spawn(move || {
            let mut question = [0; 1_100];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                let ([2, 1, ..], 60, Some(router)) = (&question[..], length, router.upgrade()) else {
                    continue;
                };
                let mut answer = question[..60].to_vec();
                answer[1] |= 0x80;
                let port = u16::from_be_bytes([answer[40], answer[41]]);
                answer.copy_within(40..42, 42);
                let named = named.lock().unwrap().to_ipv6_mapped();
                answer[44..].copy_from_slice(&named.octets());
                let rules = match answer[4..8] {
                    [0, 0, 0, 0] => "table ip mapped\ndelete table ip mapped".to_owned(),
                    _ => format!(
                        "table ip mapped\nflush table ip mapped\ntable ip mapped {{ chain in {{ type nat hook prerouting priority -101; iifname outside udp \
                         dport {port} dnat to {}:{port}; }}; }}",
                        from.ip()
                    ),
                };
                router.nft(&rules).unwrap();
                let _ = socket.send_to(&answer, from);
            }
        });
        outside
    }

    /// Whether its router leads a port to the machine.
    fn has_mapping(&self) -> bool {
        self.router
            .run("nft", ["list", "tables"])
            .unwrap()
            .contains("mapped")
    }
}

/// RDV-2, RDV-3.
#[test]
fn customers_of_providers_that_translate_once_more_meet_as_if_the_stricter_router_were_alone() {
    require_root!();
    let world = World::new();
    let customers = [Customer::of(&world, 0), Customer::of(&world, 1)];
    // The kinds of the providers' routers; whether the second peer is a customer, too, or alone behind that router; and
    // whether there is a direct path.
    let rows = [
        ([PortRestricted, PortRestricted], false, true),
        ([PortRestricted, PortRestricted], true, true),
        ([Symmetric, FullCone], false, true),
        ([Symmetric, PortRestricted], false, false),
        ([FullCone, Symmetric], true, false),
    ];
    let head = ["provider of the caller", "provider of the callee", "met"];
    let mut table = Table::new("providers", &head);
    let mut ports = FIRST_PORT..;
    for (kinds, both, is_direct) in rows {
        let ends = |port| {
            world.set_kinds(kinds, port);
            let caller = customers[0].peer(&world, kinds[0], port);
            let callee = match both {
                true => customers[1].peer(&world, kinds[1], port),
                false => world.peer(1, port),
            };
            [caller, callee]
        };
        let what = format!("providers {kinds:?}, both: {both}");
        let (met, endpoints) = match is_direct {
            true => meet_directly(&what, &mut ports, ends),
            false => meet_relayed(&what, &mut ports, ends),
        };
        let of_callee = match both {
            true => format!("{:?}", kinds[1]),
            false => format!("none, alone behind {:?}", kinds[1]),
        };
        table.add([format!("{:?}", kinds[0]), of_callee, met.outcome()]);
        endpoints
            .iter()
            .for_each(|endpoint| endpoint.close(0, "the next row"));
    }
    table.finish();
}

/// RDV-10, RDV-15.
#[test]
fn a_guest_that_no_path_joins_with_who_invited_it_is_relayed() {
    require_root!();
    let world = World::new();
    world.set_kinds([Symmetric, Symmetric], FIRST_PORT);
    let host = world.peer(0, FIRST_PORT);
    let number = peer::blocking::wait(host.invite()).unwrap();
    let guest = world.guest(1, FIRST_PORT, number);
    let (took, ends) = first_message(&guest, &host, PROGRAM_LIMIT).unwrap();
    println!("first message after {took:?}");
    assert!(ends.iter().all(is_relayed));
    let talk = Talk::new(ends);
    talk.finish();
}

/// RDV-2, RDV-3, RDV-7: a listener whose own router maps a port, behind a provider's that maps none. A router that
/// knows no more than its own address outside is told from one that names the provider's, which may be of use.
#[test]
fn a_listener_whose_router_maps_a_port_behind_another_one_is_reached_as_that_other_one_allows() {
    require_root!();
    let world = World::new();
    let customer = Customer::of(&world, 1);
    let outside = customer.speak_pcp();
    let (own, of_provider) = (Ipv4Addr::new(100, 64, 2, 2), Ipv4Addr::new(198, 51, 2, 2));
    // The kinds of the caller's router and of the provider's, what the listener's router says, and whether there is a
    // direct path.
    let rows = [
        ([PortRestricted, PortRestricted], own, true),
        ([PortRestricted, PortRestricted], of_provider, true),
        ([PortRestricted, Symmetric], own, false),
        ([PortRestricted, Symmetric], of_provider, false),
        ([Symmetric, FullCone], own, false),
        // The mapping lets everybody in whom the provider's router lets in.
        ([Symmetric, FullCone], of_provider, true),
    ];
    let mut ports = FIRST_PORT..;
    for (kinds, named, is_direct) in rows {
        let ends = |port| {
            wait_until("the port is given back", PROGRAM_LIMIT, || {
                !customer.has_mapping()
            });
            world.set_kinds(kinds, port);
            customer.set_kinds(&world, kinds[1], port);
            *outside.lock().unwrap() = named;
            let callee = world.mapped_peer_on(&customer.machine, port);
            let asked = wait_for(PROGRAM_LIMIT, callee.asked_for_mapping())
                .flatten()
                .unwrap();
            if named == own {
                assert_eq!(asked.unwrap_err().name(), "behind_another");
                assert!(!customer.has_mapping());
            } else {
                assert_eq!(asked, Ok(SocketAddr::from((named, port))));
                assert!(customer.has_mapping());
            }
            [world.peer(0, port), callee]
        };
        let what = format!("caller and provider {kinds:?}, mapped at {named}");
        let (met, endpoints) = match is_direct {
            true => meet_directly(&what, &mut ports, ends),
            false => meet_relayed(&what, &mut ports, ends),
        };
        println!("{what}: {}", met.outcome());
        endpoints
            .iter()
            .for_each(|endpoint| endpoint.close(0, "the next row"));
    }
    wait_until("the port is given back", PROGRAM_LIMIT, || {
        !customer.has_mapping()
    });
}
