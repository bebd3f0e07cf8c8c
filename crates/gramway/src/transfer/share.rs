//! `gramway share`: a directory that named peers may read, until a signal ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use files::{Source, TransferError};
use peer::{Peer, PeerId, blocking};
use serde_json::json;

use super::arguments::ShareArguments;
use super::display::Display;
use super::interrupt::Interrupt;
use super::proof::UNPROVED;
use super::send::listen_for;
use super::{Busy, close, confine, options, server, state};
use crate::exit::Problem;
use crate::limits::{TRANSFER_GUESTS_MAX, TRANSFER_TURN};
use crate::output;
use crate::peer_command::{key, peer_id};

/// What the threads of all peers share.
struct Sharing {
    options: files::SendOptions,
    display: Display,
    interrupt: Interrupt,
    busy: Arc<AtomicUsize>,
}

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
    confine(&arguments.common, &state, vec![path], Vec::new());
    let display = Display::new(arguments.common.json, false);
    let interrupt = Interrupt::watch()?;
    let endpoint = listen_for(
        key,
        server,
        peers,
        arguments.common.no_lan,
        arguments.offer.listen,
    )?;
    let id = endpoint.id();
    display.json(&json!({ "event": "waiting", "peer": id.to_string() }));
    if !arguments.common.json {
        output::note(&format!(
            "sharing {}; those who may read it run: gramway receive --peer {id} [--list]",
            directory.display()
        ));
    }
    let sharing = Arc::new(Sharing {
        options,
        display,
        interrupt,
        busy: Arc::default(),
    });
    let mut threads = Vec::new();
    while !sharing.interrupt.is_over() {
        let Some(accepted) = blocking::wait_for(TRANSFER_TURN, endpoint.accept()) else {
            continue;
        };
        let Some(peer) = accepted else {
            return Err(Problem::unavailable("the socket has failed"));
        };
        threads.retain(|thread: &thread::JoinHandle<()>| !thread.is_finished());
        if sharing.busy.load(Ordering::SeqCst) >= TRANSFER_GUESTS_MAX {
            peer.close(UNPROVED, "too many at once");
            continue;
        }
        let busy = Busy::new(&sharing.busy);
        let of_thread = Arc::clone(&sharing);
        let started = thread::Builder::new().name("reader".to_owned()).spawn(move || {
            let _busy = busy;
            of_thread.serve(&peer);
        });
        // Where there is no thread, the connection ends with it.
        threads.extend(started.ok());
    }
    for thread in threads {
        let _ = thread.join();
    }
    close(&endpoint);
    Ok(())
}

impl Sharing {
    fn serve(&self, peer: &Peer) {
        let whose = format!("{}: ", &peer.id().to_string()[..8]);
        let progress = self.display.progress(&whose);
        let _running = self.interrupt.add(&progress);
        let began = Instant::now();
        let watch = self.display.watch(&whose, &progress);
        let sent = files::send(peer, &self.options, &progress);
        drop(watch);
        match sent {
            Ok(report) => self
                .display
                .report(&whose, "sent", &report, &progress.snapshot(), began.elapsed()),
            Err(TransferError::Cancelled) => {}
            Err(error) => {
                let why = output::shown(&error.to_string()).into_owned();
                self.display.tell("failed", &format!("{whose}{why}"));
            }
        }
    }
}
