//! The network that the book is about.
//!
//! ```text
//! laptop ┐                                                        ┌ 198.51.100.20 www.example.org
//!        ├─ router ── internet ── server, vpn.example.com ── home └ 10.0.0.2 game.lan, intranet.lan
//! phone  ┘  (NAT)                 203.0.113.10, 10.0.0.1
//! ```
//!
//! Laptop and phone are in 192.168.1.0/24 behind a router that translates addresses, as in a home or a hotel.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};

use testbed::directory::Directory;
use testbed::namespace::{End, Namespace, join};

use super::machine::{Machine, NAME_SERVER};
use crate::name_server::answer;
use crate::service::Service;

/// What every machine knows by name.
const NAMES: &str = "203.0.113.10 vpn.example.com";

/// What the server knows besides.
const NAMES_BEHIND: &str = "10.0.0.2 game.lan intranet.lan";

/// What the game server tells whoever asks, in the words of Quake III.
const GAME: &[u8] = b"\xff\xff\xff\xffinfoResponse\n\\hostname\\Friday night\\mapname\\q3dm17\\clients\\3\n";

/// The machines and what runs on them. Programs end before their machines, and files go last.
pub struct World {
    machines: Vec<Machine>,
    _services: Vec<Service>,
    _others: [Namespace; 2],
    _directory: Directory,
}

impl World {
    /// Builds it; needs root.
    ///
    /// # Panics
    /// When the system refuses it.
    #[must_use]
    pub fn build() -> Self {
        let directory = Directory::create_for_test().unwrap();
        let machine = |name| Machine::new(name, NAMES, &directory);
        let [laptop, phone, router] = ["laptop", "phone", "router"].map(machine);
        let server = Machine::new("server", &format!("{NAMES}\n{NAMES_BEHIND}"), &directory);
        let [internet, home] = std::array::from_fn(|_| Namespace::create().unwrap());
        connect(&laptop, &phone, &router, &internet, &server, &home);
        let services = vec![
            Service::tcp(&internet, "198.51.100.20:80", |stream| {
                web_site(&stream, "www.example.org")
            }),
            Service::tcp(laptop.namespace(), "127.0.0.1:80", |stream| {
                web_site(&stream, "the laptop");
            }),
            Service::tcp(&home, "10.0.0.2:80", |stream| web_site(&stream, "the intranet")),
            Service::udp(
                &internet,
                &format!("{NAME_SERVER}:53"),
                |socket, question, source| {
                    // Every name is the web site's.
                    let answer = answer(question, Ipv4Addr::new(198, 51, 100, 20));
                    let _ = answer.map(|answer| socket.send_to(&answer, source));
                },
            ),
            Service::udp(&home, "10.0.0.2:27960", |socket, question, source| {
                if question == b"\xff\xff\xff\xffgetinfo" {
                    // Whoever asked asks again, as UDP does.
                    let _ = socket.send_to(GAME, source);
                }
            }),
        ];
        Self {
            machines: vec![laptop, phone, router, server],
            _services: services,
            _others: [internet, home],
            _directory: directory,
        }
    }

    /// Makes the machines as new for the next chapter, except what chapters changed in their networks and left.
    pub fn start_over(&mut self) {
        self.machines.iter_mut().for_each(Machine::start_over);
    }

    /// The machine of this name.
    pub fn machine(&mut self, name: &str) -> Option<&mut Machine> {
        self.machines.iter_mut().find(|machine| machine.name() == name)
    }
}

fn connect(
    laptop: &Machine,
    phone: &Machine,
    router: &Machine,
    internet: &Namespace,
    server: &Machine,
    home: &Namespace,
) {
    let [laptop, phone, router, server] = [laptop, phone, router, server].map(Machine::namespace);
    let cable = |left: (&Namespace, &str, &[&str]), right: (&Namespace, &str, &[&str])| {
        let end = |(namespace, interface, addresses)| End {
            namespace,
            interface,
            addresses,
        };
        join(end(left), end(right), 1500).unwrap();
    };
    let ip = |machine: &Namespace, line: &str| {
        machine.run("ip", line.split(' ')).unwrap();
    };
    ip(router, "link add lan type bridge");
    ip(router, "address add 192.168.1.1/24 dev lan");
    // With the module br_netfilter, bridges would hand frames to the firewall before the router's own IP layer.
    for version in ["iptables", "ip6tables"] {
        let _ = router.set_parameter(&format!("net.bridge.bridge-nf-call-{version}"), "0");
    }
    for (machine, address, port) in [
        (laptop, "192.168.1.2/24", "lan1"),
        (phone, "192.168.1.3/24", "lan2"),
    ] {
        cable((machine, "eth0", &[address]), (router, port, &[]));
        ip(router, &format!("link set {port} master lan"));
        ip(machine, "route add default via 192.168.1.1");
    }
    ip(router, "link set lan up");
    cable(
        (router, "wan", &["100.64.0.2/24"]),
        (internet, "subscriber", &["100.64.0.1/24"]),
    );
    cable(
        (server, "eth0", &["203.0.113.10/24"]),
        (internet, "servers", &["203.0.113.1/24"]),
    );
    cable(
        (server, "eth1", &["10.0.0.1/24"]),
        (home, "eth0", &["10.0.0.2/24"]),
    );
    ip(internet, "address add 198.51.100.20/32 dev lo");
    ip(router, "route add default via 100.64.0.1");
    ip(server, "route add default via 203.0.113.1");
    for forwarder in [router, internet] {
        forwarder.set_parameter("net.ipv4.ip_forward", "1").unwrap();
    }
    router
        .nft("table ip nat { chain out { type nat hook postrouting priority 100; oifname \"wan\" masquerade; }; }")
        .unwrap();
}

/// A web site of one page, which tells visitors where they come from.
fn web_site(mut stream: &TcpStream, name: &str) {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let Ok(visitor) = stream.peer_addr() else {
        return;
    };
    let page = format!("This is {name}. You come from {}.\n", visitor.ip());
    let length = page.len();
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}"
    );
    // A visitor that leaves early misses the page.
    let _ = stream.write_all(answer.as_bytes());
}
