//! quincy as a contestant: its defaults, with the Noise protocol, because that needs no certificates.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use testbed::directory::Directory;
use testbed::namespace::Namespace;
use testbed::process::Process;
use testbed::programs;

use crate::Error;
use crate::error::During;
use crate::l3::{Contestant, Installed, Rival, Running};
use crate::network::{Network, SERVER};

/// What `bench l3` knows of it.
pub(super) const RIVAL: Rival = Rival {
    contestant: Contestant::rival("quincy"),
    how_to_get: "cargo install --locked quincy-server quincy-client quincy-identity",
    find,
    start,
};

/// The server's address in the tunnel.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 2, 1);

/// The server's UDP port.
const PORT: u16 = 55_555;

/// Server, client and the key tool. They do not tell their version.
fn find() -> Option<(Vec<PathBuf>, String)> {
    let programs = ["quincy-server", "quincy-client", "quincy-identity"];
    let found: Option<Vec<PathBuf>> = programs.iter().map(|name| programs::find(&[name])).collect();
    Some((found?, installed_version().unwrap_or_default()))
}

/// What cargo noted when it installed the server.
fn installed_version() -> Option<String> {
    let list = programs::run(Command::new("cargo").args(["install", "--list"])).ok()?;
    let line = list
        .lines()
        .find_map(|line| line.strip_prefix("quincy-server "))?;
    Some(line.trim_end_matches(':').to_owned())
}

/// Starts server and client.
fn start(installed: &Installed, network: &Network) -> Result<Running, Error> {
    let [server, client, identity] = installed.programs.as_slice() else {
        return Err(Error::Setup("quincy needs three programs".to_owned()));
    };
    let directory = Directory::create()?;
    let (server_private, server_public) = keys(identity, &directory, "server-key")?;
    let (client_private, client_public) = keys(identity, &directory, "client-key")?;
    let users = directory.write(
        "users.toml",
        &format!("[users.bench]\nauthorized_keys = [\"{client_public}\"]\nauthorized_certs = []\n"),
    )?;
    let protocol =
        |rest: String| format!("[protocol]\nmode = \"noise\"\nkey_exchange = \"standard\"\n{rest}");
    let log = "[log]\nlevel = \"error\"\n";
    let server_file = directory.write(
        "server.toml",
        &format!(
            "name = \"bench\"\ninterface_name = \"quincy0\"\nbind_address = \"{SERVER}\"\nbind_port = {PORT}\n\
             tunnel_network = \"{ADDRESS}/24\"\nusers_file = \"{}\"\n{log}{}",
            users.display(),
            protocol(format!("private_key = \"{server_private}\"\n"))
        ),
    )?;
    let client_keys =
        format!("server_public_key = \"{server_public}\"\nprivate_key = \"{client_private}\"\n");
    let client_file = directory.write(
        "client.toml",
        &format!(
            "connection_string = \"{SERVER}:{PORT}\"\n[network]\ninterface_name = \"quincy0\"\n{log}{}",
            protocol(client_keys)
        ),
    )?;
    let spawn = |program: &Path, file: &Path, namespace: &Namespace| {
        let mut command = Command::new(program);
        command.arg("--config-path").arg(file);
        Process::start(namespace.wrap(&command), "quincy")
    };
    let server = spawn(server, &server_file, &network.server)?;
    let client = spawn(client, &client_file, &network.client)?;
    Ok(Running::new(
        RIVAL.contestant,
        ADDRESS,
        [client, server],
        directory,
    ))
}

/// A private key and its public one.
fn keys(identity: &Path, directory: &Directory, name: &str) -> Result<(String, String), Error> {
    let private = programs::run(Command::new(identity).args(["noise", "genkey"]))?;
    let path = directory.write(name, &private)?;
    let file = std::fs::File::open(&path).during(|| format!("read {}", path.display()))?;
    let output = Command::new(identity)
        .args(["noise", "pubkey"])
        .stdin(file)
        .output();
    let output = output.during(|| format!("start {} noise pubkey", identity.display()))?;
    let public = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok((private.trim().to_owned(), public))
}
