//! `gramway peer`: messages and streams between two machines that know each other by public keys, around crate `peer`.
//!
//! Each machine has a key in its state directory, which the first command makes; its peer ID is what others name it by.
//! `listen` answers what `ping` and `pipe` ask: a message that begins with [`PING`] comes back with [`ANSWER`] in its
//! place, and a stream in both directions whose first byte is [`PIPE`] is a pipe, whose end is told by [`TAKEN`].

mod arguments;
mod attempts;
mod candidates;
mod connection;
mod console;
mod listen;
mod news;
mod ping;
mod pipe;
mod rendezvous;
mod reports;
mod stats;

use std::net::SocketAddr;
use std::path::Path;

use peer::{Builder, Endpoint, KeyFileError, SecretKey};

use arguments::PeerAction;
pub(crate) use arguments::{PeerArguments, RendezvousArguments};
pub(crate) use connection::peer_id;
pub(crate) use rendezvous::reached_as_said;

use crate::exit::Problem;
use crate::output;
use crate::sandbox::{OfPeer, confine_peer};
use crate::state::StateDirectory;

/// The key's file in the state directory.
const KEY_FILE: &str = "peer.key";

/// Begins a message that is to be answered; a number follows.
const PING: &[u8] = b"ping";
/// Begins the answer; the same number follows.
const ANSWER: &[u8] = b"pong";
/// First byte of a pipe's stream.
const PIPE: u8 = 0x01;

/// Message that says that all of a pipe is written to standard output: an acknowledgement says only that it came.
const TAKEN: &[u8] = b"taken";

/// Runs the command.
///
/// # Errors
/// What is wrong with the arguments, or why the other machine was not reached.
pub(crate) fn run(arguments: &PeerArguments) -> Result<(), Problem> {
    let key = key(arguments.state.as_deref())?;
    let confinement = Confinement {
        is_unwanted: arguments.no_sandbox,
    };
    match &arguments.action {
        PeerAction::Id => output::data(&key.id().to_string()),
        PeerAction::Listen(arguments) => listen::run(key, arguments, confinement),
        PeerAction::Ping(arguments) => ping::run(key, arguments, confinement),
        PeerAction::Pipe(arguments) => pipe::run(key, arguments, confinement),
    }
}

/// Confines the process once its files are read, before its first socket and its first thread.
#[derive(Clone, Copy, Debug)]
struct Confinement {
    is_unwanted: bool,
}

impl Confinement {
    /// From here on, no more than this can be done.
    fn enter(self, needs: OfPeer) {
        if !self.is_unwanted {
            confine_peer(needs);
        }
    }
}

/// Binds an endpoint there, or for both families where the machine has both.
///
/// # Errors
/// The address cannot be had.
pub(crate) fn bind(builder: Builder, address: Option<SocketAddr>) -> Result<Endpoint, Problem> {
    let bound = match address {
        Some(address) => builder.bind(address),
        None => builder.bind_anywhere(),
    };
    bound.map_err(|error| Problem::unavailable(error.to_string()))
}

/// The addresses of these places, HOST:PORT each; where others name some, there need be none.
///
/// # Errors
/// A place is none, there are none or too many, or no name has an address.
pub(crate) fn places<'a>(
    places: impl Iterator<Item = &'a str>,
    others_name_some: bool,
) -> Result<Vec<SocketAddr>, Problem> {
    let found = candidates::of_places(places, others_name_some)?;
    Ok(found.into_iter().map(|candidate| candidate.address).collect())
}

/// This machine's key, made where there is none.
///
/// # Errors
/// It cannot be read or written, or others may read it.
pub(crate) fn key(state: Option<&Path>) -> Result<SecretKey, Problem> {
    let directory = StateDirectory::locate(state, |name| std::env::var_os(name))?;
    directory.create()?;
    // Whose it is, and who may read it.
    directory.has_secret(KEY_FILE)?;
    SecretKey::load_or_create(directory.file(KEY_FILE)).map_err(|error| match &error {
        KeyFileError::File { path, error } => Problem::file("use", path, error),
        KeyFileError::Exposed { .. } => Problem::permission(error.to_string()),
        KeyFileError::Malformed { path } => Problem::configuration(format!(
            "{} holds no key; if nobody knows this machine by its peer ID yet, remove the file",
            path.display()
        )),
        KeyFileError::NoRandomness => Problem::bug(error.to_string()),
    })
}
