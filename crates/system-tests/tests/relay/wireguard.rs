//! WireGuard inside a pair of relays: its user-space implementation at both ends, and iperf3 in its tunnel.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use system_tests::limits::PROGRAM_LIMIT;
use system_tests::topology::Routed;
use system_tests::{require_go, require_program, require_root};
use testbed::iperf::{self, IperfRun, IperfServer};
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::wait::wait_until;

use super::{ENTRANCE, TARGET, end, start_pair, watch, watched};
use crate::scene::load;

/// One end. Keys of a test are no secrets.
struct Device<'a> {
    namespace: &'a Namespace,
    /// Unique on the machine: its socket is.
    interface: String,
    address: &'static str,
    private_key: &'static str,
    public_key: &'static str,
    _process: Process,
}

/// Where wireguard-go takes what it is told.
fn socket(interface: &str) -> PathBuf {
    Path::new("/var/run/wireguard").join(format!("{interface}.sock"))
}

impl<'a> Device<'a> {
    fn start(
        program: &Path,
        namespace: &'a Namespace,
        name: &str,
        address: &'static str,
        (private_key, public_key): (&'static str, &'static str),
    ) -> Self {
        let interface = format!("{name}{}", std::process::id());
        let mut command = namespace.command(program);
        command.args(["-f", &interface]);
        let process = Process::start(command, "wireguard").unwrap();
        wait_until("WireGuard's socket", PROGRAM_LIMIT, || {
            UnixStream::connect(socket(&interface)).is_ok()
        });
        for arguments in [
            &["address", "add", &format!("{address}/24"), "dev", &interface][..],
            &["link", "set", &interface, "mtu", "1420", "up"],
        ] {
            namespace.run("ip", arguments).unwrap();
        }
        Self {
            namespace,
            interface,
            address,
            private_key,
            public_key,
            _process: process,
        }
    }

    /// Tells it its key and port, and who is at the other end (`set` of WireGuard's cross-platform interface).
    fn set(&self, own: &str, peer: &Self, of_peer: &str) {
        let mut stream = UnixStream::connect(socket(&self.interface)).unwrap();
        write!(
            stream,
            "set=1\nprivate_key={}\n{own}public_key={}\nallowed_ip={}/32\n{of_peer}\n",
            self.private_key, peer.public_key, peer.address
        )
        .unwrap();
        let mut answer = [0; 64];
        let length = stream.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]);
        assert!(answer.contains("errno=0"), "{answer}");
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        // It removes the socket itself, unless it was killed.
        let _ = std::fs::remove_file(socket(&self.interface));
    }
}

/// X25519 keys, drawn for this test: private and public.
const SERVER: (&str, &str) = (
    "77076d0a7318a57d3c16c17251b26645df4c2f92ebc099295a5d3e3d8c4a7c2a",
    "51b11774275a2085e27e01440150b7b772cc69b0590c6d51cfe2b6b76beb8156",
);
const CLIENT: (&str, &str) = (
    "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
);

#[test]
fn wireguard_works_inside() {
    require_root!();
    require_program!("iperf3", "nft");
    let program = require_go!().join("wireguard");
    let _load = load();
    let net = Routed::new(1500);
    watch(&net);
    let (near, far) = start_pair(&net, &[]);
    let server = Device::start(&program, &net.server, "gwts", "10.97.0.1", SERVER);
    let client = Device::start(&program, &net.client, "gwtc", "10.97.0.2", CLIENT);
    let port = TARGET.rsplit_once(':').unwrap().1;
    server.set(&format!("listen_port={port}\n"), &client, "");
    client.set("", &server, &format!("endpoint={ENTRANCE}\n"));
    let address = format!("{}:5201", server.address).parse().unwrap();
    let run = IperfRun::tcp(address, 2);
    let _sink = IperfServer::start(&server.namespace.place(), address).unwrap();
    for run in [run.clone(), run.reversed()] {
        let result = iperf::run(&client.namespace.place(), &run).unwrap();
        println!(
            "{:.2} Gbit/s inside WireGuard",
            result.receiver_bits_per_second / 1e9
        );
        assert!(result.received_bytes > 1e6, "{result:?}");
    }
    let counters = end(near);
    assert_eq!(counters["flows"]["all"], 1, "{counters}");
    assert_eq!(counters["reconnects"], 0, "{counters}");
    end(far);
    assert_eq!(watched(&net, "invalid"), 0);
}
