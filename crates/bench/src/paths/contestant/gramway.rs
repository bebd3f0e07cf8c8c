//! The program under test: `up` and `connect` with two forwards and their defaults.

use std::net::SocketAddr;

use testbed::directory::Directory;
use testbed::process::Process;

use super::{Contestant, Running, entrances, targets};
use crate::counters::Counters;
use crate::network::{Network, SERVER};
use crate::tunnel::{serve, status};
use crate::{Error, Programs};

/// The server's UDP port.
const PORT: u16 = 4_433;

/// State directories of client and server.
const STATES: [&str; 2] = ["client", "server"];

/// Number of the forwards of a second client.
const SECOND: u16 = 9;

/// Starts server and client; gives the link too.
pub(super) fn start(programs: &Programs, network: &Network) -> Result<(Running, String), Error> {
    let directory = Directory::create()?;
    let state = directory.path().join(STATES[1]);
    let listen = SocketAddr::from((SERVER, PORT));
    let up = ["--allow-target".to_owned(), format!("{SERVER}/32")];
    let (server, link) = serve(programs, &network.server.place(), &state, listen, &up)?;
    let entrances = Contestant::Gramway.entrances();
    let running = with_client(programs, network, directory, &link, entrances, Some(server))?;
    Ok((running, link))
}

/// Starts another client of the server with this link.
pub(super) fn join(programs: &Programs, network: &Network, link: &str) -> Result<Running, Error> {
    with_client(
        programs,
        network,
        Directory::create()?,
        link,
        entrances(SECOND),
        None,
    )
}

fn with_client(
    programs: &Programs,
    network: &Network,
    directory: Directory,
    link: &str,
    entrances: [SocketAddr; 2],
    server: Option<Process>,
) -> Result<Running, Error> {
    let link_file = directory.write("link", link)?;
    let mut connect = programs.gramway();
    connect.arg("connect").arg("--link-file").arg(link_file);
    connect.arg("--state").arg(directory.path().join(STATES[0]));
    for (entrance, target) in entrances.into_iter().zip(targets()) {
        for protocol in ["udp", "tcp"] {
            connect.args(["-L", &format!("{protocol}:{entrance}={target}")]);
        }
    }
    Running::with_client(
        Contestant::Gramway,
        entrances,
        connect,
        server,
        directory,
        network,
    )
}

/// What both ends have counted so far.
pub(super) fn counters(
    programs: &Programs,
    directory: &Directory,
    [client, server]: [&Process; 2],
) -> Option<[Counters; 2]> {
    let of = |state: &str, end: &Process| {
        let status = status(programs, &directory.path().join(state))?;
        Counters::of_process(&status, end.id())
    };
    Some([of(STATES[0], client)?, of(STATES[1], server)?])
}
