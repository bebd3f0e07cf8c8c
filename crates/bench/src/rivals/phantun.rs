//! phantun: UDP in packets that look like TCP, through a TUN device at each end that the machine's firewall translates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs;

use crate::network::Network;
use crate::{Error, limits};

/// How to get it.
pub(crate) const HOW_TO_GET: &str = "phantun is not installed: cargo xtask setup";

/// The client's rules, as its manual gives them. Without the parameter in [`start`] the kernel stops translating after
/// 64 KiB one way, because nobody acknowledges.
const CLIENT_RULES: &str = "table ip phantun {\n chain leaving {\n type nat hook postrouting priority srcnat;\n\
    iifname \"tun0\" masquerade\n}\n}\n";

/// Both programs of one phantun, and what it says about its version.
pub(crate) struct Installed {
    client: PathBuf,
    server: PathBuf,
    /// Its version.
    pub(crate) version: String,
}

/// Looks beside this program, where `cargo xtask setup` has installed it.
pub(crate) fn find() -> Option<Installed> {
    let own = std::env::current_exe().ok()?;
    let directory = own.ancestors().nth(2)?.join("phantun/bin");
    let [client, server] = ["client", "server"].map(|name| directory.join(name));
    let version = programs::said(Command::new(&client).arg("--version"));
    (client.is_file() && server.is_file()).then_some(Installed {
        client,
        server,
        version,
    })
}

/// Starts both ends, the client first: from UDP at `entrance` by TCP to `between`, and from there to UDP at `target`.
///
/// # Errors
/// When one does not start, with its own words, or the firewall refuses its rules.
pub(crate) fn start(
    installed: &Installed,
    network: &Network,
    [entrance, between, target]: [SocketAddr; 3],
) -> Result<[Process; 2], Error> {
    let server_rules = format!(
        "table ip phantun {{\n chain entering {{\n type nat hook prerouting priority dstnat;\n\
         iifname \"wire0\" tcp dport {} dnat to 192.168.201.2\n}}\n}}\n",
        between.port()
    );
    let (port, target) = (between.port().to_string(), target.to_string());
    let server = run(
        &installed.server,
        &network.server,
        &["--local", &port, "--remote", &target],
        &server_rules,
    )?;
    let (entrance, between) = (entrance.to_string(), between.to_string());
    let client = run(
        &installed.client,
        &network.client,
        &["--local", &entrance, "--remote", &between],
        CLIENT_RULES,
    )?;
    Ok([client, server])
}

fn run(program: &Path, namespace: &Namespace, arguments: &[&str], rules: &str) -> Result<Process, Error> {
    namespace.set_parameter("net.ipv4.ip_forward", "1")?;
    namespace.nft(rules)?;
    namespace.set_parameter("net.netfilter.nf_conntrack_tcp_be_liberal", "1")?;
    let mut command = namespace.command(program);
    command
        .args(arguments)
        .args(["-4", "--tun", "tun0"])
        .env("RUST_LOG", "info");
    let mut process = Process::start(command, "phantun")?;
    process.wait_for_line("Created TUN device", limits::READY_TIMEOUT)?;
    Ok(process)
}
