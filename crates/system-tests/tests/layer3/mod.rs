//! IP packets through TUN devices: two clients, a server, and a machine behind it that knows nothing of the tunnel.

mod comebacks;
mod dns;
mod floods;
mod helper;
mod host;
mod hostile_server;
mod leaks;
mod moves;
mod names;
mod offered_names;
mod order;
mod own_addresses;
mod policy_routes;
mod rules;
mod sandbox;
mod settings;
mod sizes;
mod tcp_shape;
mod traffic;
mod waits;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use system_tests::conservation::assert_conserved;
use system_tests::limits::PROGRAM_LIMIT;
use system_tests::program::{UNAVAILABLE, gramway_binary};
use system_tests::tunnel::{Client, Server};
use testbed::directory::Directory;
use testbed::iperf::{self, IperfResult, IperfRun, IperfServer};
use testbed::namespace::{End, Namespace, join};
use testbed::process::{Process, Signal};
use testbed::wait::{holds_within, wait_for, wait_until};

/// What two seconds of a load bring at least, in bytes.
const DELIVERED_MIN: f64 = 1_048_576.0;

/// Where the server listens.
const LISTEN: &str = "198.51.100.1:4433";

/// The same over IPv6.
const LISTEN_V6: &str = "[2001:db8:1::1]:4433";

/// The server's addresses in the tunnel.
const SERVER_V4: &str = "10.9.0.1";
const SERVER_V6: &str = "fd09::1";

/// Addresses of the machine behind the server.
const WORLD_V4: &str = "203.0.113.2";
const WORLD_V6: &str = "2001:db8:2::2";

/// What serves both pools, and opens the server's addresses in them.
const POOLS: [&str; 9] = [
    TUN,
    "--pool",
    "10.9.0.0/24",
    "--pool",
    "fd09::/64",
    "--allow-target",
    SERVER_V4,
    "--allow-target",
    SERVER_V6,
];

/// The name of every TUN here.
const TUN: &str = "--tun=tun0";

/// For a path to be found again after a change.
const PATH_LIMIT: Duration = Duration::from_secs(60);

/// The machines. Processes end before them, so whoever has both drops them first.
struct Machines {
    /// `eth0` 192.0.2.2 and 2001:db8:3::2.
    first: Namespace,
    /// `eth0` 192.0.3.2.
    second: Namespace,
    /// Between all; towards the server `outside`, towards the clients `inside` and `inside2`.
    router: Namespace,
    /// `eth0` 198.51.100.1 towards the router, `eth1` 203.0.113.1 towards the world.
    server: Namespace,
    /// `eth0`; it has a route to the server and no other.
    world: Namespace,
}

impl Machines {
    /// With this MTU in bytes on every cable.
    fn new(mtu_bytes: u16) -> Self {
        let [first, second, router, server, world] = std::array::from_fn(|_| Namespace::create().unwrap());
        let cable = |left: (&Namespace, &str, &[&str]), right: (&Namespace, &str, &[&str])| {
            let end = |(namespace, interface, addresses)| End {
                namespace,
                interface,
                addresses,
            };
            join(end(left), end(right), mtu_bytes).unwrap();
        };
        cable(
            (&first, "eth0", &["192.0.2.2/24", "2001:db8:3::2/64"]),
            (&router, "inside", &["192.0.2.1/24", "2001:db8:3::1/64"]),
        );
        cable(
            (&second, "eth0", &["192.0.3.2/24"]),
            (&router, "inside2", &["192.0.3.1/24"]),
        );
        cable(
            (&router, "outside", &["198.51.100.2/24", "2001:db8:1::2/64"]),
            (&server, "eth0", &["198.51.100.1/24", "2001:db8:1::1/64"]),
        );
        cable(
            (&server, "eth1", &["203.0.113.1/24", "2001:db8:2::1/64"]),
            (&world, "eth0", &["203.0.113.2/24", "2001:db8:2::2/64"]),
        );
        router.set_parameter("net.ipv4.ip_forward", "1").unwrap();
        router.set_parameter("net.ipv6.conf.all.forwarding", "1").unwrap();
        for (machine, gateway) in [
            (&first, "192.0.2.1"),
            (&second, "192.0.3.1"),
            (&server, "198.51.100.2"),
            (&first, "2001:db8:3::1"),
            (&server, "2001:db8:1::2"),
        ] {
            machine
                .run("ip", ["route", "add", "default", "via", gateway])
                .unwrap();
        }
        Self {
            first,
            second,
            router,
            server,
            world,
        }
    }

    fn serve(&self, options: &[&str], directory: &Directory) -> Server {
        self.serve_only(&[&POOLS[..], options].concat(), directory)
    }

    /// With these options alone.
    fn serve_only(&self, options: &[&str], directory: &Directory) -> Server {
        Server::start(&self.server.place(), "server", LISTEN, options, directory.path())
    }
}

/// A client with a TUN, connected, its addresses there.
fn connect(
    machine: &Namespace,
    name: &str,
    server: &Server,
    options: &[&str],
    directory: &Directory,
) -> Client {
    let options = [&[TUN][..], options].concat();
    let place = machine.place();
    let mut client = Client::start(&place, name, &server.link(), &[], &options, directory.path());
    client.process().wait_for_starts("TUN", 1, PROGRAM_LIMIT).unwrap();
    client
}

/// A server and its first client.
struct Tunnel {
    client: Client,
    server: Server,
    machines: Machines,
    directory: Directory,
}

impl Tunnel {
    fn new(mtu_bytes: u16, serving: &[&str], connecting: &[&str]) -> Self {
        let (machines, directory) = (Machines::new(mtu_bytes), Directory::create_for_test().unwrap());
        let server = machines.serve(serving, &directory);
        let client = connect(&machines.first, "client", &server, connecting, &directory);
        Self {
            client,
            server,
            machines,
            directory,
        }
    }

    /// Both ends keep the law.
    fn check(&self) {
        assert_conserved(&self.client.status());
        assert_conserved(&self.server.status());
    }
}

/// Sends pings until one is answered.
fn reaches(machine: &Namespace, address: &str) {
    wait_until(&format!("an answer of {address}"), PATH_LIMIT, || {
        ping(machine, address, &[])
    });
}

/// Whether one ping is answered within a second.
fn ping(machine: &Namespace, address: &str, options: &[&str]) -> bool {
    let mut command = machine.command("ping");
    command
        .args(["-n", "-c", "1", "-W", "1"])
        .args(options)
        .arg(address);
    command.output().unwrap().status.success()
}

/// What one ping says.
fn ping_says(machine: &Namespace, address: &str, options: &[&str]) -> String {
    let mut command = machine.command("ping");
    command
        .args(["-n", "-c", "1", "-W", "2"])
        .args(options)
        .arg(address);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The MTU of a machine's TUN.
fn mtu(machine: &Namespace) -> u64 {
    let text = machine.run("ip", ["-j", "link", "show", "dev", "tun0"]).unwrap();
    let links: Value = serde_json::from_str(&text).unwrap();
    links[0]["mtu"].as_u64().unwrap()
}

/// The global addresses of a machine's TUN.
fn addresses(machine: &Namespace) -> Vec<String> {
    let text = machine
        .run("ip", ["-j", "address", "show", "dev", "tun0"])
        .unwrap();
    let links: Value = serde_json::from_str(&text).unwrap();
    let addresses = links[0]["addr_info"].as_array().unwrap().iter();
    addresses
        .filter(|address| address["scope"] == "global")
        .map(|address| address["local"].as_str().unwrap().to_owned())
        .collect()
}

/// One TCP stream to this address for two seconds.
fn tcp(address: &str) -> IperfRun {
    IperfRun::tcp(SocketAddr::new(address.parse().unwrap(), 5_201), 2)
}

/// iperf3 from one machine to another; fails where it does not pass.
fn iperf(from: &Namespace, to: &Namespace, run: &IperfRun) -> IperfResult {
    let result = try_iperf(from, to, run).unwrap();
    assert!(result.received_bytes > DELIVERED_MIN, "{result:?}");
    result
}

/// iperf3 from one machine to another, whether it passes or not.
fn try_iperf(from: &Namespace, to: &Namespace, run: &IperfRun) -> Result<IperfResult, testbed::Error> {
    let _server = IperfServer::start(&to.place(), run.address).unwrap();
    iperf::run(&from.place(), run)
}

/// Datagrams dropped for a reason, in both directions of one end.
fn drops(status: &Value, reason: &str) -> u64 {
    let of = |direction: &str| status[direction]["drops"][reason].as_u64().unwrap_or(0);
    of("ingress") + of("egress")
}

/// Waits until an end has dropped something for this reason.
fn wait_for_drop(status: impl Fn() -> Value, reason: &str) {
    wait_for(reason, PROGRAM_LIMIT, || {
        (drops(&status(), reason) > 0).then_some(())
    });
}

/// The guardians that watch processes of this machine.
fn guardians(machine: &Namespace) -> Vec<i32> {
    processes(machine, "_guardian")
}

/// The processes of this machine with this word in their command line.
fn processes(machine: &Namespace, word: &str) -> Vec<i32> {
    let inside = machine.run("ip", ["netns", "pids", machine.name()]).unwrap();
    let has_word = |process: &i32| {
        std::fs::read(Path::new("/proc").join(process.to_string()).join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|one| one == word.as_bytes()))
    };
    inside
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(has_word)
        .collect()
}

/// Sends a process a signal; it may have ended meanwhile.
fn send_signal(process: i32, signal: Signal) {
    let process = rustix::process::Pid::from_raw(process).unwrap();
    let _ = rustix::process::kill_process(process, signal);
}

/// `gramway release` on this machine after `client`: its exit code and what it says.
fn release(machine: &Namespace, client: &Client) -> (Option<i32>, String) {
    let mut command = machine.command(gramway_binary());
    command.arg("release").arg("--state").arg(client.state());
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), told)
}

fn kill_guardians(machine: &Namespace) {
    for guardian in guardians(machine) {
        send_signal(guardian, Signal::KILL);
    }
}
