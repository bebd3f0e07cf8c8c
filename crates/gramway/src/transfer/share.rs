//! `gramway share`: a directory that named peers may read, until a signal ends it.

use std::sync::Arc;

use files::{Source, TransferError};
use peer::{Peer, PeerId};
use serde_json::json;

use super::arguments::ShareArguments;
use super::display::Display;
use super::events::EventName;
use super::guests::Place;
use super::interrupt::Interrupt;
use super::serving::{Serving, Threads};
use super::{close, confine, listen, needs, options, server, state};
use crate::exit::Problem;
use crate::output;
use crate::peer_command::{key, peer_id};

/// Characters of a peer's ID by which people tell peers apart.
const SHOWN_OF_ID: usize = 8;

/// Runs the command.
///
/// # Errors
/// The command line is wrong, or the socket cannot be bound.
pub(crate) fn run(arguments: &ShareArguments) -> Result<(), Problem> {
    let directory = &arguments.directory;
    let cannot = |error: std::io::Error| Problem::file("share", directory, &error);
    let path = std::fs::canonicalize(directory).map_err(cannot)?;
    if !path.is_dir() {
        return Err(Problem::usage(format!(
            "{} is not a directory",
            directory.display()
        )));
    }
    let state = state(&arguments.common)?;
    let peers: Vec<PeerId> = arguments
        .peers
        .iter()
        .map(|text| peer_id(text))
        .collect::<Result<_, _>>()?;
    let key = key(arguments.common.state.as_deref())?;
    let server = server::of(&arguments.common.rendezvous)?;
    let options = options(
        &arguments.offer,
        &arguments.common,
        &state,
        vec![Source::Path(path.clone())],
    );
    let needs = needs(server.as_ref(), arguments.offer.listen);
    confine(&arguments.common, needs, &state, vec![path], Vec::new());
    let display = Display::new(arguments.common.json, false);
    let interrupt = Interrupt::watch()?;
    let endpoint = listen(&arguments.common, &arguments.offer, key, server, peers)?;
    let id = endpoint.id();
    display.json(EventName::Waiting, json!({ "peer": id.to_string() }));
    if !arguments.common.json {
        output::note(&format!(
            "sharing {}; those who may read it run: gramway receive --peer {id} [--list]",
            directory.display()
        ));
    }
    let sharing = Serving::new(options, display, interrupt, false);
    let mut threads = Threads::new(&sharing);
    let ended = loop {
        if sharing.interrupt.is_over() {
            break Ok(());
        }
        let of_thread = Arc::clone(&sharing);
        if let Err(problem) = threads.take_next(&endpoint, move |peer, place| serve(&of_thread, peer, place))
        {
            break Err(problem);
        }
    };
    threads.end();
    close(&endpoint);
    ended
}

/// Sends to one of them what it wants.
fn serve(sharing: &Serving, peer: &Peer, place: &Place) {
    let whose = format!("{}: ", &peer.id().to_string()[..SHOWN_OF_ID]);
    let display = sharing.display.of_receiver(peer.id(), None, whose);
    match sharing.send(peer, place, &display) {
        Ok(Some(report)) if report.is_look => {
            display.tell(EventName::Looked, "it has looked at what is shared");
        }
        Ok(_) | Err(TransferError::Cancelled) => {}
        Err(TransferError::Interrupted) => display.tell(EventName::Failed, "the receiver was interrupted"),
        Err(error) => {
            let why = output::shown(&error.to_string()).into_owned();
            display.tell(EventName::Failed, &why);
        }
    }
}
