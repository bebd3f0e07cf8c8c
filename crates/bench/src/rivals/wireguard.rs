//! wireguard-go as a contestant: one device in each namespace, configured by `wg`.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs;
use testbed::wait::holds_within;

use crate::error::During;
use crate::l3::{Contestant, Installed, Rival, Running};
use crate::network::{Network, SERVER};
use crate::{Error, limits};

/// What `bench l3` knows of it.
pub(super) const RIVAL: Rival = Rival {
    contestant: Contestant::WIREGUARD_GO,
    how_to_get: "go install golang.zx2c4.com/wireguard@latest && apt-get install wireguard-tools (apt-get install wireguard-go is older)",
    find,
    start,
};

/// Where wireguard-go keeps the sockets by which it is configured, those of all namespaces together.
const SOCKETS: &str = "/var/run/wireguard";

/// Both ends of a tunnel.
const ROLES: [&str; 2] = ["client", "server"];

/// The server's and the client's address in the tunnel.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 98, 1, 1), Ipv4Addr::new(10, 98, 1, 2)];

/// The server's UDP port.
const PORT: u16 = 51_820;

/// MTU of the tunnel in bytes: WireGuard's default on a 1,500-byte wire.
const MTU_BYTES: &str = "1420";

/// wireguard-go (which `go install` names `wireguard`; it comes first because it is newer than the distributions')
/// and wg, with the version of the former.
fn find() -> Option<(Vec<PathBuf>, String)> {
    let go = programs::find(&["wireguard", "wireguard-go"])?;
    let tool = programs::find(&["wg"])?;
    let version = programs::said(Command::new(&go).arg("--version"));
    Some((vec![go, tool], version))
}

struct End<'a> {
    namespace: &'a Namespace,
    interface: String,
    key_file: PathBuf,
    public_key: String,
}

/// The device of a benchmark's `client` or `server`. Unlike other devices' names it is unique on the machine, because its
/// socket's is.
fn interface(process: u32, role: &str) -> String {
    format!("gwb{}{process}", &role[..1])
}

/// The socket by which wireguard-go is told what to do with this device.
fn socket(interface: &str) -> PathBuf {
    Path::new(SOCKETS).join(format!("{interface}.sock"))
}

/// Removes the sockets of the benchmark with this process ID, where it had some.
pub(super) fn remove_sockets(process: u32) {
    for role in ROLES {
        // Most benchmarks have none.
        let _ = std::fs::remove_file(socket(&interface(process, role)));
    }
}

/// Starts both devices and makes them peers.
fn start(installed: &Installed, network: &Network) -> Result<Running, Error> {
    let [go, tool] = installed.programs.as_slice() else {
        return Err(Error::Setup("wireguard-go needs two programs".to_owned()));
    };
    let directory = Directory::create()?;
    let end = |namespace, role: &str| -> Result<End<'_>, Error> {
        let interface = interface(std::process::id(), role);
        let private_key = programs::run(Command::new(tool).arg("genkey"))?;
        let key_file = directory.write(role, &private_key)?;
        let file = std::fs::File::open(&key_file).during(|| format!("read {}", key_file.display()))?;
        let output = Command::new(tool).arg("pubkey").stdin(file).output();
        let output = output.during(|| format!("start {} pubkey", tool.display()))?;
        let public_key = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Ok(End {
            namespace,
            interface,
            key_file,
            public_key,
        })
    };
    let (server, client) = (end(&network.server, ROLES[1])?, end(&network.client, ROLES[0])?);
    let server_process = device(go, &server, ADDRESSES[0])?;
    let client_process = device(go, &client, ADDRESSES[1])?;
    let port = PORT.to_string();
    configure(tool, &server, &["listen-port", &port], &client, ADDRESSES[1], &[])?;
    let endpoint = format!("{SERVER}:{PORT}");
    configure(
        tool,
        &client,
        &[],
        &server,
        ADDRESSES[0],
        &["endpoint", &endpoint],
    )?;
    let ends = [client_process, server_process];
    Ok(Running::new(RIVAL.contestant, ADDRESSES[0], ends, directory))
}

fn device(go: &Path, end: &End<'_>, address: Ipv4Addr) -> Result<Process, Error> {
    let socket = socket(&end.interface);
    // One of an earlier case would look as if this device were ready.
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new(go);
    command.args(["-f", &end.interface]).env("LOG_LEVEL", "error");
    let mut process = Process::start(end.namespace.wrap(&command), "wireguard-go")?;
    let ready = holds_within(limits::READY_TIMEOUT, || socket.exists() || !process.is_running());
    if !ready || !process.is_running() {
        let program = "wireguard-go".to_owned();
        return Err(Error::NotReady {
            program,
            reason: process.last_words(),
        });
    }
    let address = format!("{address}/24");
    end.namespace
        .run("ip", ["address", "add", &address, "dev", &end.interface])?;
    end.namespace
        .run("ip", ["link", "set", &end.interface, "mtu", MTU_BYTES, "up"])?;
    Ok(process)
}

fn configure(
    tool: &Path,
    end: &End<'_>,
    own: &[&str],
    peer: &End<'_>,
    peer_address: Ipv4Addr,
    of_peer: &[&str],
) -> Result<(), Error> {
    let mut command = Command::new(tool);
    command
        .args(["set", &end.interface, "private-key"])
        .arg(&end.key_file)
        .args(own);
    command
        .args([
            "peer",
            &peer.public_key,
            "allowed-ips",
            &format!("{peer_address}/32"),
        ])
        .args(of_peer);
    programs::run(&mut end.namespace.wrap(&command))
        .map(drop)
        .map_err(Error::from)
}
