//! `gramway send`, `receive` and `share`: files from one machine to another, around crate `files`.
//!
//! The sender listens and the receiver connects. Who has only a code finds the sender by the code's number, at a
//! server ([`server`]) or on the local network ([`meeting`], with what a guest is allowed in [`allowance`]), one
//! command of a machine at a time ([`alone`]); both then prove that they know its words ([`proof`], [`codes`]). Peers
//! that know each other's IDs need no code. [`display`] has what people and programs see, [`bars`] what moves on a
//! terminal, [`looked`] what a list and a dry run tell, and [`tally`] sums over connections.

mod allowance;
mod alone;
mod arguments;
mod bars;
mod codes;
mod display;
mod events;
mod guests;
mod interrupt;
mod looked;
mod meeting;
mod proof;
mod receive;
mod send;
mod server;
mod serving;
mod share;
mod tally;

use std::net::SocketAddr;
use std::path::PathBuf;

use files::{ChunkMemory, Compress, RateLimit, Report, SendOptions, Source, TransferError, Transport};
use peer::{Endpoint, PeerId, SecretKey, blocking};

use arguments::{CarrierArgument, CommonArguments, CompressArgument, OfferArguments};
pub(crate) use arguments::{ReceiveArguments, SendArguments, ShareArguments};
pub(crate) use receive::run as receive;
pub(crate) use send::run as send;
use server::Server;
pub(crate) use share::run as share;

use crate::close_code::ENDED;
use crate::exit::{Problem, sentence};
use crate::limits::PEER_GOODBYE_MAX;
use crate::peer_command::bind;
use crate::sandbox::OfPeer;
use crate::state::StateDirectory;
use crate::{sandbox, startup};

/// The state directory of a command, made where there is none.
fn state(arguments: &CommonArguments) -> Result<StateDirectory, Problem> {
    let directory = StateDirectory::locate(arguments.state.as_deref(), |name| std::env::var_os(name))?;
    directory.create()?;
    // Each file under way has two, and each connection one.
    startup::raise_file_limit();
    Ok(directory)
}

/// From here on, the program reads these files alone and writes these and its state, and runs nothing: before its first
/// socket and thread.
fn confine(
    arguments: &CommonArguments,
    needs: OfPeer,
    state: &StateDirectory,
    reads: Vec<PathBuf>,
    mut writes: Vec<PathBuf>,
) {
    if !arguments.no_sandbox {
        writes.push(state.path().to_owned());
        sandbox::confine_transfer(needs, reads, writes);
    }
}

/// What somebody needs who is to be met at this server, and listens there.
fn needs(server: Option<&Server>, listen: Option<SocketAddr>) -> OfPeer {
    OfPeer {
        listen,
        has_tcp: server.is_some_and(|server| server.rendezvous.may_look_like_tcp()),
    }
}

/// What a sender offers, and how.
fn options(
    offer: &OfferArguments,
    common: &CommonArguments,
    state: &StateDirectory,
    sources: Vec<Source>,
) -> SendOptions {
    SendOptions {
        sources,
        include: offer.include.clone(),
        exclude: offer.exclude.clone(),
        compress: match offer.compress {
            CompressArgument::Auto => Compress::Auto,
            CompressArgument::No => Compress::No,
        },
        streams: offer.streams.0,
        transport: match offer.carrier {
            CarrierArgument::Auto => Transport::Auto,
            CarrierArgument::Quic => Transport::Quic,
            CarrierArgument::Tcp => Transport::Tcp,
        },
        parallel_files: offer.parallel_files.map(usize::from),
        limit: offer.limit.map(RateLimit::new),
        memory: ChunkMemory::default(),
        xattrs: common.xattrs,
        state: Some(state.path().to_owned()),
        has_passing_peers: false,
    }
}

/// Listens for peers that are known.
fn listen(
    common: &CommonArguments,
    offer: &OfferArguments,
    key: SecretKey,
    server: Option<Server>,
    peers: impl IntoIterator<Item = PeerId>,
) -> Result<Endpoint, Problem> {
    let mut builder = Endpoint::builder(key).allow(peers);
    if let Some(server) = server {
        builder = builder.rendezvous(server.rendezvous);
    }
    let is_for_this_machine = offer.listen.is_some_and(|address| address.ip().is_loopback());
    if !common.no_lan && !is_for_this_machine {
        builder = builder.announce_on_lan();
    }
    bind(builder, offer.listen)
}

/// Takes leave of all peers, so that they do not wait for us.
fn close(endpoint: &Endpoint) {
    endpoint.close(ENDED, "");
    let _ = blocking::wait_for(PEER_GOODBYE_MAX, endpoint.ended());
}

/// A transfer's end as the program's.
fn problem(error: &TransferError) -> Problem {
    match error {
        TransferError::Destination { path, error } => Problem::file("write to", path, error),
        TransferError::System { what, error } => {
            Problem::unavailable(format!("cannot {what}: {}", sentence(error)))
        }
        TransferError::Pattern(text) => Problem::usage(text.clone()),
        TransferError::NothingChosen(_) => Problem::unavailable(format!(
            "{error}: paths begin with the name of what is sent, as --list shows them. The sender waits for the command with \
             other patterns"
        )),
        TransferError::SeveralChosen => Problem::unavailable(format!(
            "{error}: choose it by --only, as --list shows it. The sender waits for that"
        )),
        other => Problem::unavailable(other.to_string()),
    }
}

/// What failed of single files, told already, as the program's end.
fn complete(report: &Report) -> Result<(), Problem> {
    let failed = report.failed;
    if failed == 0 {
        return Ok(());
    }
    if report.is_passed_on {
        return Err(Problem::unavailable(
            "not all has come, for the reasons above. What has gone to the receiver's standard output stays there, and another \
             transfer brings everything from its beginning",
        ));
    }
    let (what, were, reasons) = match failed {
        1 => ("file, directory or link", "was", "reason"),
        _ => ("files, directories or links", "were", "reasons"),
    };
    Err(Problem::unavailable(match report.is_look {
        true => format!("{failed} {what} could not be transferred, for the {reasons} above; the rest could"),
        false => format!(
            "{failed} {what} {were} not transferred, for the {reasons} above; the rest was. Another transfer into the same \
             directory brings only what is missing"
        ),
    }))
}
