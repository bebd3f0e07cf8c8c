//! The program under test as a contestant: `up --tun` and `connect --tun` with their defaults.

use std::net::{Ipv4Addr, SocketAddr};

use testbed::directory::Directory;
use testbed::process::Process;

use super::{Contestant, Running};
use crate::counters::Counters;
use crate::network::{Network, SERVER};
use crate::tunnel::{serve, status};
use crate::{Error, Programs};

/// The server's address in the tunnel: the first of [`POOL`].
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 98, 3, 1);

/// What the server leases.
const POOL: &str = "10.98.3.0/24";

/// The server's UDP port.
const PORT: u16 = 443;

/// State directories of client and server.
const STATES: [&str; 2] = ["client", "server"];

/// Starts server and client.
pub(super) fn start(programs: &Programs, network: &Network) -> Result<Running, Error> {
    let directory = Directory::create()?;
    let [client_state, server_state] = STATES.map(|name| directory.path().join(name));
    let listen = SocketAddr::from((SERVER, PORT));
    let own = format!("{ADDRESS}/32");
    let up = ["--tun", "--pool", POOL, "--allow-target", &own].map(str::to_owned);
    let (server, link) = serve(programs, &network.server.place(), &server_state, listen, &up)?;
    let link_file = directory.write("link", &link)?;
    let mut connect = programs.gramway();
    connect
        .arg("connect")
        .arg("--link-file")
        .arg(link_file)
        .arg("--state")
        .arg(client_state)
        .arg("--tun");
    let client = Process::start(network.client.wrap(&connect), "gramway connect --tun")?;
    Ok(Running::new(
        Contestant::GRAMWAY,
        ADDRESS,
        [client, server],
        directory,
    ))
}

/// What both ends have counted so far.
pub(super) fn counters(
    programs: &Programs,
    directory: &Directory,
    ends: &[Process; 2],
) -> Option<[Counters; 2]> {
    let of = |index: usize| {
        let status = status(programs, &directory.path().join(STATES[index]))?;
        Counters::of_process(&status, ends[index].id())
    };
    Some([of(0)?, of(1)?])
}
