//! Peers behind a router that lets nobody in, and that maps ports of IPv4 and opens its firewall of IPv6 for who asks:
//! miniupnpd, which many routers run, and one that knows NAT-PMP alone.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread;

use peer::blocking::{wait, wait_for};
use peer::limits::ROUTER_LOOK;
use peer::{Endpoint, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::{End, Namespace, join};
use testbed::process::Process;
use testbed::wait::wait_until;

use crate::peer_command::{id, run, start};

/// The router's address outside: miniupnpd maps no ports where this is a private one or one of documentation.
const OUTSIDE: &str = "198.51.5.2";

/// The machine's own address of IPv6: a public one, because no router is asked to let others in to one of documentation
/// or benchmarks. Nothing leaves the namespaces.
const MACHINE: &str = "2a00:5::2";

/// Translates each flow of IPv4 to a port of its own, and lets in what miniupnpd maps or opens alone.
const RULES: &str = "
    table inet filter {
        counter refused { }
        chain miniupnpd { }
        chain forward {
            type filter hook forward priority 0; policy accept;
            jump miniupnpd
            iifname outside ct state new counter name refused drop
        }
        chain prerouting_miniupnpd { }
        chain postrouting_miniupnpd { }
        chain prerouting { type nat hook prerouting priority -100; jump prerouting_miniupnpd; }
        chain postrouting {
            type nat hook postrouting priority 100;
            jump postrouting_miniupnpd
            oifname outside meta nfproto ipv4 masquerade fully-random
        }
    }";

/// A machine, its router, and the world.
struct Home {
    machine: Namespace,
    router: Arc<Namespace>,
    world: Namespace,
    directory: Directory,
}

impl Home {
    fn new() -> Self {
        let [machine, router, world] = [(); 3].map(|()| Namespace::create().unwrap());
        let router = Arc::new(router);
        let end = |namespace, interface, addresses| End {
            namespace,
            interface,
            addresses,
        };
        join(
            end(&machine, "eth0", &["10.5.0.2/24", "2a00:5::2/64"]),
            end(&router, "inside", &["10.5.0.1/24", "2a00:5::1/64", "fe80::1/64"]),
            1_500,
        )
        .unwrap();
        join(
            end(&router, "outside", &["198.51.5.2/24", "2a00:6::2/64"]),
            end(&world, "eth0", &["198.51.5.1/24", "2a00:6::1/64"]),
            1_500,
        )
        .unwrap();
        let route = ["route", "add", "default", "via", "10.5.0.1"];
        machine.run("ip", route).unwrap();
        // As routers announce themselves (RFC 4861 section 4.2).
        let route = ["route", "add", "default", "via", "fe80::1", "dev", "eth0"];
        machine.run("ip", route).unwrap();
        let back = ["route", "add", "2a00:5::/64", "via", "2a00:6::2"];
        world.run("ip", back).unwrap();
        for parameter in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            router.set_parameter(parameter, "1").unwrap();
        }
        router.nft(RULES).unwrap();
        Self {
            machine,
            router,
            world,
            directory: Directory::create_for_test().unwrap(),
        }
    }

    /// Starts miniupnpd on the router, which speaks some protocols alone, and those of IPv6 where it is asked to.
    fn start(&self, has_pcp: bool, has_upnp: bool, has_ipv6: bool) -> Process {
        self.start_on(&self.router, has_pcp, has_upnp, has_ipv6)
    }

    fn start_on(&self, router: &Namespace, has_pcp: bool, has_upnp: bool, has_ipv6: bool) -> Process {
        let word = |is_on| if is_on { "yes" } else { "no" };
        let configuration = format!(
            "ext_ifname=outside\nlistening_ip=inside\nipv6_disable={}\nenable_natpmp={}\nenable_upnp={}\nsecure_mode=yes\n\
             min_lifetime=1\n\
             upnp_table_name=filter\nupnp_nat_table_name=filter\nuuid=7d3b0f3a-5d3c-4b8a-9a51-3b9a6f6c1e55\n\
             allow 1024-65535 10.5.0.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
            word(!has_ipv6),
            word(has_pcp),
            word(has_upnp),
        );
        let name = if has_pcp { "pcp.conf" } else { "upnp.conf" };
        let file = self.directory.write(name, &configuration).unwrap();
        let mut command = router.command("miniupnpd");
        command.arg("-d").arg("-f").arg(file);
        command.arg("-P").arg(self.directory.join("miniupnpd.pid"));
        let router = Process::start(command, "miniupnpd").unwrap();
        let listens = if has_pcp {
            "Listening for NAT-PMP/PCP"
        } else {
            "HTTP listening on port"
        };
        wait_until("miniupnpd listens", PROGRAM_LIMIT, || {
            router.stderr().contains(listens)
        });
        router
    }

    /// A new peer on the machine, at this port, and where the router leads to it from.
    fn mapped(&self, port: u16) -> (Endpoint, SocketAddr) {
        let endpoint = self.machine.inside(|| {
            let builder = Endpoint::builder(SecretKey::generate().unwrap()).map_port();
            builder.bind(SocketAddr::from(([0; 4], port))).unwrap()
        });
        let mapped = wait_for(PROGRAM_LIMIT, endpoint.mapped()).flatten();
        let external = mapped.unwrap_or_else(|| panic!("no mapping: {:?}", endpoint.mapping_problem()));
        assert_eq!(external.ip(), OUTSIDE.parse::<IpAddr>().unwrap());
        (endpoint, external)
    }

    /// The rules by which miniupnpd lets others in.
    fn mappings(&self) -> String {
        let chain = ["list", "chain", "inet", "filter", "prerouting_miniupnpd"];
        self.router.run("nft", chain).unwrap()
    }
}

#[test]
fn a_router_that_lets_nobody_in_maps_a_port_for_a_peer_until_that_closes() {
    require_root!();
    require_program!("miniupnpd");
    let home = Home::new();
    let stranger = home.world.inside(|| {
        let key = SecretKey::generate().unwrap();
        Endpoint::bind(key, "0.0.0.0:0".parse().unwrap()).unwrap()
    });
    for (port, has_pcp) in [(4_000, true), (4_001, false)] {
        let mut router = home.start(has_pcp, !has_pcp, false);
        let (listener, external) = home.mapped(port);
        let connected = wait_for(PROGRAM_LIMIT, stranger.connect(listener.id(), &[external]));
        let peer = connected.unwrap().unwrap();
        assert_eq!(peer.id(), listener.id());
        assert!(
            home.mappings().contains(&format!("10.5.0.2:{port}")),
            "{}",
            home.mappings()
        );
        listener.close(0, "");
        wait(listener.ended());
        wait_until("the port is given back", PROGRAM_LIMIT, || {
            !home.mappings().contains("10.5.0.2")
        });
        router.kill();
        let _ = router.wait(PROGRAM_LIMIT);
    }
}

impl Home {
    /// A peer of the world has no way in to this port of the machine.
    fn assert_closed(&self, port: u16) {
        let address = SocketAddr::new(MACHINE.parse().unwrap(), port);
        let refused = || {
            self.router
                .run("nft", ["list", "counter", "inet", "filter", "refused"])
                .unwrap()
        };
        // A peer that has ended leaves its port soon.
        let bind = || self.machine.inside(|| UdpSocket::bind(address).ok());
        let inside = testbed::wait::wait_for("the port", PROGRAM_LIMIT, bind);
        let outside = self.world.inside(|| UdpSocket::bind("[::]:0").unwrap());
        let before = refused();
        outside.send_to(b"in", address).unwrap();
        wait_until("the router refuses it", PROGRAM_LIMIT, || refused() != before);
        inside.set_nonblocking(true).unwrap();
        let received = inside.recv(&mut [0; 8]);
        assert_eq!(received.unwrap_err().kind(), ErrorKind::WouldBlock);
    }

    /// What the router's miniupnpd lets in.
    fn let_in(&self) -> String {
        let_in(&self.router)
    }

    /// Another router on the machine's network, which nothing leads to.
    fn neighbour(&self) -> Namespace {
        let neighbour = Namespace::create().unwrap();
        let on_router = "link add link inside name spare type macvlan mode bridge";
        self.router.run("ip", on_router.split(' ')).unwrap();
        let name = neighbour.name();
        let moved = ["link", "set", "spare", "netns", name, "name", "inside"];
        self.router.run("ip", moved).unwrap();
        for line in [
            "address add 10.5.0.9/24 dev inside",
            "address add 2a00:5::9/64 dev inside nodad",
            "link set inside up",
            "link add outside type bridge",
            "address add 198.51.7.2/24 dev outside",
            "link set outside up",
        ] {
            neighbour.run("ip", line.split(' ')).unwrap();
        }
        neighbour.nft(RULES).unwrap();
        neighbour
    }
}

/// What miniupnpd lets in.
fn let_in(router: &Namespace) -> String {
    let chain = ["list", "chain", "inet", "filter", "miniupnpd"];
    router.run("nft", chain).unwrap()
}

#[test]
fn a_firewall_of_ipv6_is_opened_for_a_peer_until_that_closes() {
    require_root!();
    require_program!("miniupnpd");
    let home = Home::new();
    let stranger = home.world.inside(|| {
        let key = SecretKey::generate().unwrap();
        Endpoint::bind(key, "[::]:0".parse().unwrap()).unwrap()
    });
    for (port, has_pcp) in [(4_010, true), (4_011, false)] {
        let mut router = home.start(has_pcp, !has_pcp, true);
        home.assert_closed(port);
        let bind = || {
            home.machine.inside(|| {
                let builder = Endpoint::builder(SecretKey::generate().unwrap()).map_port();
                builder.bind(SocketAddr::from(([0_u16; 8], port))).ok()
            })
        };
        // A program that was just started may still have a copy of the socket that was there.
        let listener = testbed::wait::wait_for("the port", PROGRAM_LIMIT, bind);
        let opened = wait_for(PROGRAM_LIMIT, listener.pinhole()).flatten();
        let address = opened.unwrap_or_else(|| {
            panic!(
                "not let in: {:?}\n{}",
                listener.pinhole_problem(),
                router.last_words()
            )
        });
        assert_eq!(address, SocketAddr::new(MACHINE.parse().unwrap(), port));
        let connected = wait_for(PROGRAM_LIMIT, stranger.connect(listener.id(), &[address]));
        assert_eq!(connected.unwrap().unwrap().id(), listener.id());
        assert!(home.let_in().contains(&port.to_string()), "{}", home.let_in());
        listener.close(0, "");
        wait(listener.ended());
        drop(listener);
        wait_until("the firewall is closed again", PROGRAM_LIMIT, || {
            !home.let_in().contains(&port.to_string())
        });
        home.assert_closed(port);
        router.kill();
        let _ = router.wait(PROGRAM_LIMIT);
    }
}

/// The program is confined: what a router is asked for has to pass.
#[test]
fn the_program_tells_where_a_firewall_of_ipv6_lets_others_in() {
    require_root!();
    require_program!("miniupnpd");
    let home = Home::new();
    for (port, has_pcp) in [(4_012, true), (4_013, false)] {
        let router = home.start(has_pcp, !has_pcp, true);
        let listening = id(&home.machine, &home.directory, "listener");
        let at = format!("[::]:{port}");
        let listen = ["listen", "--any", "--listen", &at, "--no-lan", "--json"];
        let mut listener = start(&home.machine, &home.directory, "listener", &listen);
        let told = listener.wait_for_line("\"let_in\"", PROGRAM_LIMIT).unwrap();
        let address = format!("[{MACHINE}]:{port}");
        assert!(told.contains(&format!("\"address\":\"{address}\"")), "{told}");
        let place = format!("{listening}@{address}");
        let ping = ["ping", &place, "-c", "1", "--timeout", "60", "--no-lan"];
        let (code, text, errors) = run(&home.world, &home.directory, "caller", &ping);
        assert_eq!(code, 0, "{errors}");
        assert!(text.contains("1 sent, 1 answered"), "{text}");
        for mut process in [listener, router] {
            process.kill();
            let _ = process.wait(PROGRAM_LIMIT);
        }
    }
}

/// NAT-PMP, and nothing else (RFC 6886): answers to whoever asks on the inside of the router. PCP it leaves without an
/// answer, as some routers do.
fn speak_natpmp(home: &Home) {
    let socket = home.router.inside(|| UdpSocket::bind("10.5.0.1:5351").unwrap());
    // The thread waits for the next request after the end of the test.
    let router = Arc::downgrade(&home.router);
    thread::spawn(move || {
        let mut request = [0; 1_100];
        while let Ok((length, from)) = socket.recv_from(&mut request) {
            let outside: Ipv4Addr = OUTSIDE.parse().unwrap();
            let Some(router) = router.upgrade() else {
                return;
            };
            let answer = match request[..length] {
                [0, 0] => [&[0, 128, 0, 0, 0, 0, 0, 1][..], &outside.octets()].concat(),
                [0, 1, _, _, ref rest @ ..] if rest.len() == 8 => {
                    let [inside, lifetime] = [&rest[..2], &rest[4..]];
                    let port = u16::from_be_bytes([rest[0], rest[1]]);
                    let rule = format!(
                        "add rule inet filter prerouting_miniupnpd iifname outside udp dport 40000 dnat ip to {}:{port}",
                        from.ip()
                    );
                    let accepted = "add rule inet filter miniupnpd iifname outside ct status dnat accept";
                    if lifetime != [0; 4] {
                        router.nft(&format!("{rule}\n{accepted}")).unwrap();
                    } else {
                        router
                            .nft("flush chain inet filter prerouting_miniupnpd")
                            .unwrap();
                    }
                    let head = [0, 129, 0, 0, 0, 0, 0, 1];
                    [&head[..], inside, &40_000_u16.to_be_bytes(), lifetime].concat()
                }
                _ => continue,
            };
            let _ = socket.send_to(&answer, from);
        }
    });
}

/// The machine leaves the network of that router.
#[test]
fn the_program_tells_when_a_port_that_it_had_is_lost() {
    require_root!();
    let home = Home::new();
    speak_natpmp(&home);
    let listen = ["listen", "--any", "--listen", "0.0.0.0:4014", "--no-lan"];
    let mut listener = start(&home.machine, &home.directory, "listener", &listen);
    let mapped = format!("the router leads {OUTSIDE}:40000 to this machine");
    listener.wait_for_line(&mapped, PROGRAM_LIMIT).unwrap();
    home.machine.run("ip", ["route", "del", "default"]).unwrap();
    let lost = "warning: the router leads no port to this machine any more: no router can be asked: ";
    listener.wait_for_line(lost, ROUTER_LOOK + PROGRAM_LIMIT).unwrap();
}

#[test]
fn a_router_that_knows_natpmp_alone_and_says_nothing_to_pcp_maps_a_port() {
    require_root!();
    let home = Home::new();
    speak_natpmp(&home);
    let stranger = home.world.inside(|| {
        let key = SecretKey::generate().unwrap();
        Endpoint::bind(key, "0.0.0.0:0".parse().unwrap()).unwrap()
    });
    let (listener, external) = home.mapped(4_000);
    assert_eq!(external.port(), 40_000);
    let connected = wait_for(PROGRAM_LIMIT, stranger.connect(listener.id(), &[external]));
    assert_eq!(connected.unwrap().unwrap().id(), listener.id());
    listener.close(0, "");
    wait(listener.ended());
    wait_until("the port is given back", PROGRAM_LIMIT, || {
        !home.mappings().contains("10.5.0.2")
    });
}

/// Answers every search of UPnP on this machine's network first, and leads whoever asks to a server that says nothing.
fn answer_nonsense(machine: &Namespace) -> (UdpSocket, TcpListener) {
    machine.inside(|| {
        let searches = UdpSocket::bind("0.0.0.0:1900").unwrap();
        let group = "239.255.255.250".parse().unwrap();
        searches
            .join_multicast_v4(&group, &"10.5.0.2".parse().unwrap())
            .unwrap();
        let silent = TcpListener::bind("10.5.0.2:0").unwrap();
        let location = format!("http://{}/description.xml", silent.local_addr().unwrap());
        let answers = searches.try_clone().unwrap();
        thread::spawn(move || {
            let mut search = [0; 2_048];
            while let Ok((_, from)) = answers.recv_from(&mut search) {
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nCACHE-CONTROL: max-age=60\r\nST: \
                     urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\nLOCATION: {location}\r\n\r\n"
                );
                let _ = answers.send_to(answer.as_bytes(), from);
            }
        });
        (searches, silent)
    })
}

#[test]
fn who_answers_a_search_first_with_nonsense_does_not_keep_the_router_from_mapping() {
    require_root!();
    require_program!("miniupnpd");
    let home = Home::new();
    let _router = home.start(false, true, false);
    let _nonsense = answer_nonsense(&home.machine);
    let (listener, _) = home.mapped(4_002);
    listener.close(0, "");
    wait(listener.ended());
}

#[test]
fn a_router_that_answers_nothing_is_named() {
    require_root!();
    let home = Home::new();
    let endpoint = home.machine.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).map_port();
        builder.bind("[::]:4003".parse().unwrap()).unwrap()
    });
    let asked = wait_for(PROGRAM_LIMIT, endpoint.asked_for_mapping()).flatten();
    let problem = asked.unwrap().unwrap_err();
    assert_eq!(problem.name(), "no_answer");
    assert!(problem.to_string().contains("the router 10.5.0.1"), "{problem}");
    let asked = wait_for(PROGRAM_LIMIT, endpoint.asked_for_pinhole()).flatten();
    let problem = asked.unwrap().unwrap_err();
    assert_eq!(problem.name(), "no_answer");
    assert!(problem.to_string().contains("the router fe80::1"), "{problem}");
}

#[test]
fn a_neighbour_that_opens_its_own_firewall_does_not_count_for_the_router() {
    require_root!();
    require_program!("miniupnpd");
    let home = Home::new();
    let neighbour = home.neighbour();
    let _of_neighbour = home.start_on(&neighbour, false, true, true);
    let endpoint = home.machine.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).map_port();
        builder.bind("[::]:4014".parse().unwrap()).unwrap()
    });
    let asked = wait_for(PROGRAM_LIMIT, endpoint.asked_for_pinhole()).flatten();
    let problem = asked.unwrap().unwrap_err();
    assert_eq!(problem.name(), "no_answer");
    assert!(!let_in(&neighbour).contains("4014"), "{}", let_in(&neighbour));
}

#[test]
fn a_machine_without_a_public_address_of_ipv6_asks_no_router_for_a_hole() {
    require_root!();
    let home = Home::new();
    for line in [
        "address del 2a00:5::2/64 dev eth0",
        "address add fd00:5::2/64 dev eth0 nodad",
    ] {
        home.machine.run("ip", line.split(' ')).unwrap();
    }
    let endpoint = home.machine.inside(|| {
        let builder = Endpoint::builder(SecretKey::generate().unwrap()).map_port();
        builder.bind("[::]:4015".parse().unwrap()).unwrap()
    });
    let asked = wait_for(PROGRAM_LIMIT, endpoint.asked_for_pinhole()).flatten();
    let problem = asked.unwrap().unwrap_err();
    assert_eq!(problem.name(), "no_router");
    assert!(problem.to_string().contains("fd00:5::2"), "{problem}");
}
