//! Peers behind a router that lets nobody in, and that maps ports for who asks: miniupnpd, which many routers run.

use std::net::{IpAddr, SocketAddr};

use peer::blocking::{wait, wait_for};
use peer::{Endpoint, SecretKey};
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::{require_program, require_root};
use testbed::directory::Directory;
use testbed::namespace::{End, Namespace, join};
use testbed::process::Process;
use testbed::wait::wait_until;

/// The router's address outside: miniupnpd maps no ports where this is a private one or one of documentation.
const OUTSIDE: &str = "198.51.5.2";

/// Translates each flow to a port of its own, and lets in what miniupnpd maps alone.
const RULES: &str = "
    table inet filter {
        chain miniupnpd { }
        chain forward {
            type filter hook forward priority 0; policy accept;
            jump miniupnpd
            iifname outside ct state new drop
        }
        chain prerouting_miniupnpd { }
        chain postrouting_miniupnpd { }
        chain prerouting { type nat hook prerouting priority -100; jump prerouting_miniupnpd; }
        chain postrouting {
            type nat hook postrouting priority 100;
            jump postrouting_miniupnpd
            oifname outside masquerade fully-random
        }
    }";

/// A machine, its router, and the world.
struct Home {
    machine: Namespace,
    router: Namespace,
    world: Namespace,
    directory: Directory,
}

impl Home {
    fn new() -> Self {
        let [machine, router, world] = [(); 3].map(|()| Namespace::create().unwrap());
        let end = |namespace, interface, addresses| End {
            namespace,
            interface,
            addresses,
        };
        join(
            end(&machine, "eth0", &["10.5.0.2/24"]),
            end(&router, "inside", &["10.5.0.1/24"]),
            1_500,
        )
        .unwrap();
        join(
            end(&router, "outside", &["198.51.5.2/24"]),
            end(&world, "eth0", &["198.51.5.1/24"]),
            1_500,
        )
        .unwrap();
        let route = ["route", "add", "default", "via", "10.5.0.1"];
        machine.run("ip", route).unwrap();
        router.set_parameter("net.ipv4.ip_forward", "1").unwrap();
        router.nft(RULES).unwrap();
        Self {
            machine,
            router,
            world,
            directory: Directory::create_for_test().unwrap(),
        }
    }

    /// Starts miniupnpd, which speaks some protocols alone.
    fn start(&self, has_pcp: bool, has_upnp: bool) -> Process {
        let word = |is_on| if is_on { "yes" } else { "no" };
        let configuration = format!(
            "ext_ifname=outside\nlistening_ip=inside\nenable_natpmp={}\nenable_upnp={}\nsecure_mode=yes\n\
             upnp_table_name=filter\nupnp_nat_table_name=filter\nuuid=7d3b0f3a-5d3c-4b8a-9a51-3b9a6f6c1e55\n\
             allow 1024-65535 10.5.0.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
            word(has_pcp),
            word(has_upnp),
        );
        let name = if has_pcp { "pcp.conf" } else { "upnp.conf" };
        let file = self.directory.write(name, &configuration).unwrap();
        let mut command = self.router.command("miniupnpd");
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
        let mut router = home.start(has_pcp, !has_pcp);
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
