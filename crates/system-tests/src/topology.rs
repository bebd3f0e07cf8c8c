//! The networks that tests stand on: two machines on one cable, or two machines with a router between.

use std::net::{IpAddr, Ipv4Addr};

use testbed::namespace::{End, Namespace, join};

/// Address of the client's machine in both networks.
pub const CLIENT_V4: &str = "10.77.0.2";
/// Address of the client's machine in both networks.
pub const CLIENT_V6: &str = "fd77::2";
/// Address of the server's machine on one cable with the client.
pub const PAIR_SERVER_V4: &str = "10.77.0.1";
/// Address of the server's machine on one cable with the client.
pub const PAIR_SERVER_V6: &str = "fd77::1";
/// Address of the server's machine behind the router.
pub const ROUTED_SERVER_V4: &str = "10.78.0.1";
/// Address of the server's machine behind the router.
pub const ROUTED_SERVER_V6: &str = "fd78::1";
/// Address of the router on the server's side: what the server sees when the router translates.
pub const ROUTER_OUTSIDE_V4: &str = "10.78.0.2";

/// Networks that strangers come from: more than the server lets in at a time from one.
const STRANGER_NETWORKS: u8 = 40;

/// Two machines on one cable, `eth0` each.
pub struct Pair {
    /// The client's machine, [`CLIENT_V4`] and [`CLIENT_V6`].
    pub client: Namespace,
    /// The server's machine, [`PAIR_SERVER_V4`] and [`PAIR_SERVER_V6`].
    pub server: Namespace,
}

impl Pair {
    /// Builds it with this MTU in bytes; needs root.
    ///
    /// # Panics
    /// When `ip` fails.
    #[must_use]
    pub fn new(mtu_bytes: u16) -> Self {
        let (client, server) = (Namespace::create().unwrap(), Namespace::create().unwrap());
        join(
            End {
                namespace: &client,
                interface: "eth0",
                addresses: &["10.77.0.2/24", "fd77::2/64"],
            },
            End {
                namespace: &server,
                interface: "eth0",
                addresses: &["10.77.0.1/24", "fd77::1/64"],
            },
            mtu_bytes,
        )
        .unwrap();
        Self { client, server }
    }

    /// Gives the client's machine the networks that strangers come from, and their addresses there.
    ///
    /// # Panics
    /// When `ip` fails.
    #[must_use]
    pub fn add_stranger_networks(&self) -> Vec<IpAddr> {
        self.add_networks(80, STRANGER_NETWORKS)
    }

    /// Gives the client's machine an address in each of so many networks behind it, `10.SECOND.0.0/24` and on.
    ///
    /// # Panics
    /// When `ip` fails.
    #[must_use]
    pub fn add_networks(&self, second: u8, count: u8) -> Vec<IpAddr> {
        let addresses = (0..count).map(|network| Ipv4Addr::new(10, second, network, 1));
        self.add_behind_client(second, addresses)
    }

    /// Gives it so many addresses in one network behind it, `10.SECOND.0.0/24`.
    ///
    /// # Panics
    /// When `ip` fails.
    #[must_use]
    pub fn add_addresses(&self, second: u8, count: u8) -> Vec<IpAddr> {
        let addresses = (1..=count).map(|host| Ipv4Addr::new(10, second, 0, host));
        self.add_behind_client(second, addresses)
    }

    fn add_behind_client(&self, second: u8, addresses: impl Iterator<Item = Ipv4Addr>) -> Vec<IpAddr> {
        let addresses: Vec<IpAddr> = addresses.map(IpAddr::V4).collect();
        for address in &addresses {
            let address = format!("{address}/32");
            let arguments = ["address", "add", &address, "dev", "eth0"];
            self.client.run("ip", arguments).unwrap();
        }
        let network = format!("10.{second}.0.0/16");
        let route = ["route", "add", &network, "via", CLIENT_V4];
        self.server.run("ip", route).unwrap();
        addresses
    }
}

/// Two machines, `eth0` each, and a router between them with `inside` (client) and `outside` (server). The server has
/// a route back, so translation (nft on the router) is a test's choice.
pub struct Routed {
    /// The client's machine, [`CLIENT_V4`] and [`CLIENT_V6`].
    pub client: Namespace,
    /// Forwards between both.
    pub router: Namespace,
    /// The server's machine, [`ROUTED_SERVER_V4`] and [`ROUTED_SERVER_V6`].
    pub server: Namespace,
}

impl Routed {
    /// Builds it with this MTU in bytes on both cables; needs root.
    ///
    /// # Panics
    /// When `ip` fails.
    #[must_use]
    pub fn new(mtu_bytes: u16) -> Self {
        let (client, router, server) = (
            Namespace::create().unwrap(),
            Namespace::create().unwrap(),
            Namespace::create().unwrap(),
        );
        join(
            End {
                namespace: &client,
                interface: "eth0",
                addresses: &["10.77.0.2/24", "fd77::2/64"],
            },
            End {
                namespace: &router,
                interface: "inside",
                addresses: &["10.77.0.1/24", "fd77::1/64"],
            },
            mtu_bytes,
        )
        .unwrap();
        join(
            End {
                namespace: &router,
                interface: "outside",
                addresses: &["10.78.0.2/24", "fd78::2/64"],
            },
            End {
                namespace: &server,
                interface: "eth0",
                addresses: &["10.78.0.1/24", "fd78::1/64"],
            },
            mtu_bytes,
        )
        .unwrap();
        router.set_parameter("net.ipv4.ip_forward", "1").unwrap();
        router.set_parameter("net.ipv6.conf.all.forwarding", "1").unwrap();
        for (namespace, v4, v6) in [
            (&client, "10.77.0.1", "fd77::1"),
            (&server, "10.78.0.2", "fd78::2"),
        ] {
            namespace
                .run("ip", ["route", "add", "default", "via", v4])
                .unwrap();
            namespace
                .run("ip", ["-6", "route", "add", "default", "via", v6])
                .unwrap();
        }
        Self {
            client,
            router,
            server,
        }
    }

    /// Gives the client's machine another cable to the router, `eth1` with the address 10.79.0.2, by which everything
    /// leaves from here on; the first one is dead.
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn add_second_uplink(&self) {
        let end = |namespace, interface, addresses| End {
            namespace,
            interface,
            addresses,
        };
        join(
            end(&self.client, "eth1", &["10.79.0.2/24"]),
            end(&self.router, "inside1", &["10.79.0.1/24"]),
            1_500,
        )
        .unwrap();
        let route = ["route", "replace", "default", "via", "10.79.0.1"];
        self.client.run("ip", route).unwrap();
        self.client.set_link("eth0", false).unwrap();
    }

    /// Gives the router another hardware address towards the client, and tells everybody on the cable, as when a spare
    /// router takes over the IP addresses of one that fails (RFC 5798).
    ///
    /// # Panics
    /// When `ip` fails.
    pub fn replace_router(&self) {
        self.router
            .set_parameter("net.ipv4.conf.inside.arp_notify", "1")
            .unwrap();
        let inside = ["link", "set", "inside", "address", "02:00:00:00:00:77"];
        self.router.run("ip", inside).unwrap();
    }

    /// Gives the client's machine another gateway on the same cable, 10.77.0.3 with a hardware address of its own, by
    /// which everything leaves from here on; the first one forwards nothing any more.
    ///
    /// # Panics
    /// When `ip` or `nft` fails.
    pub fn replace_gateway(&self) {
        // Either interface answers for its own addresses alone.
        self.router
            .set_parameter("net.ipv4.conf.all.arp_ignore", "1")
            .unwrap();
        let gateway = [
            "link", "add", "link", "inside", "name", "spare", "type", "macvlan",
        ];
        self.router.run("ip", gateway).unwrap();
        let address = ["address", "add", "10.77.0.3/24", "dev", "spare"];
        self.router.run("ip", address).unwrap();
        self.router.set_link("spare", true).unwrap();
        self.router
            .nft(
                "table ip replaced { chain forward { type filter hook forward priority 0; \
                 iifname \"inside\" drop; }; }",
            )
            .unwrap();
        let route = ["route", "replace", "default", "via", "10.77.0.3"];
        self.client.run("ip", route).unwrap();
    }

    /// Makes the router translate the client's UDP port to this port of [`ROUTER_OUTSIDE_V4`], and answers back. Called
    /// again with another outside port, a flow moves there at once, as when a home router forgets its table.
    ///
    /// # Panics
    /// When `nft` refuses it.
    pub fn translate_udp(&self, client_port: u16, outside_port: u16) {
        // Connection tracking keeps its first choice for a flow's life; rewriting without state does not.
        self.router
            .nft(&format!(
                "table ip rebinding\n\
             delete table ip rebinding\n\
             table ip rebinding {{\n\
             chain leaving {{ type filter hook postrouting priority 0;\n\
             oifname \"outside\" ip saddr {CLIENT_V4} udp sport {client_port} \
             ip saddr set {ROUTER_OUTSIDE_V4} udp sport set {outside_port}; }}\n\
             chain entering {{ type filter hook prerouting priority -300;\n\
             iifname \"outside\" ip daddr {ROUTER_OUTSIDE_V4} udp dport {outside_port} \
             ip daddr set {CLIENT_V4} udp dport set {client_port}; }}\n\
             }}\n"
            ))
            .unwrap();
    }
}
