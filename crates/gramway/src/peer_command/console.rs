//! The standard input and output of `gramway peer listen`: one pipe at a time has them, and others wait.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use peer::{Bytes, CloseReason, Delivery, Outcome, Peer, ReceiveStream, SendStream, blocking};
use serde_json::json;

use super::TAKEN;
use super::pipe::{End, copy_output, read_chunk, spawn};
use super::reports::Reports;
use crate::close_code::{BUSY, DONE};
use crate::exit::Problem;
use crate::limits::PEER_INPUT_CHUNKS;

/// What a pipe waits for.
enum Event {
    /// Bytes of standard input.
    Input(Bytes),
    /// Its end.
    InputEnd,
    /// The connection of this number has ended.
    Gone(u64),
}

/// Tells of connections that have ended.
#[derive(Clone)]
pub(super) struct Goodbyes {
    events: SyncSender<Event>,
    /// The connection whose pipe is served; 0 for none.
    served: Arc<AtomicU64>,
}

impl Goodbyes {
    /// The connection of this number has ended.
    pub(super) fn gone(&self, number: u64) {
        if self.served.load(Ordering::SeqCst) == number {
            // Where there is no room, input waits, and cannot be written.
            let _ = self.events.try_send(Event::Gone(number));
        }
    }
}

/// Standard input and output.
pub(super) struct Console {
    events: Receiver<Event>,
    goodbyes: Goodbyes,
    is_reading: bool,
    has_ended: bool,
    reports: Reports,
}

impl Console {
    pub(super) fn new(reports: Reports) -> (Self, Goodbyes) {
        let (input, events) = mpsc::sync_channel(PEER_INPUT_CHUNKS);
        let goodbyes = Goodbyes {
            events: input,
            served: Arc::default(),
        };
        let console = Self {
            events,
            goodbyes: goodbyes.clone(),
            is_reading: false,
            has_ended: false,
            reports,
        };
        (console, goodbyes)
    }

    /// Serves a pipe of the connection with this number, counted from 1, until both of its directions or the connection
    /// have ended; whether all of it went as it should.
    ///
    /// # Errors
    /// Standard output cannot be used.
    pub(super) fn serve(
        &mut self,
        number: u64,
        peer: &Peer,
        mut to_peer: SendStream,
        from_peer: ReceiveStream,
    ) -> Result<bool, Problem> {
        self.goodbyes.served.store(number, Ordering::SeqCst);
        if peer.path_stats().is_none() {
            return Ok(false);
        }
        let copying = thread::Builder::new().name("output".to_owned());
        let copying = match self.read_input() {
            Ok(()) => copying.spawn(move || copy_output(from_peer)).ok(),
            Err(_) => None,
        };
        let Some(copying) = copying else {
            // No thread is left for it.
            to_peer.reset(BUSY);
            return Ok(false);
        };
        let answered = self.answer(number, &mut to_peer);
        to_peer.finish();
        match copying.join() {
            Ok(End::Complete | End::Sent) => {}
            Ok(End::Stream(_)) => return Ok(false),
            Ok(End::Local(problem)) => return Err(problem),
            Err(_) => return Err(Problem::bug("the thread of standard output has ended")),
        }
        // The peer may go once it knows, and has the answer.
        let Ok(ticket) = blocking::wait(peer.send(TAKEN, Delivery::unordered())) else {
            return Ok(false);
        };
        let has_all = blocking::wait(ticket) == Outcome::Acked && blocking::wait(to_peer.finished()).is_ok();
        Ok(answered && (has_all || is_done(peer)))
    }

    /// Copies standard input to a pipe; whether all of it went.
    fn answer(&mut self, number: u64, to_peer: &mut SendStream) -> bool {
        while !self.has_ended {
            match self.events.recv() {
                Ok(Event::Input(chunk)) => {
                    if blocking::wait(to_peer.write_chunk(chunk)).is_err() {
                        return false;
                    }
                }
                Ok(Event::Gone(other)) if other != number => {}
                Ok(Event::Gone(_)) | Err(_) => return false,
                Ok(Event::InputEnd) => self.has_ended = true,
            }
        }
        true
    }

    /// From the first pipe on, standard input is read.
    fn read_input(&mut self) -> Result<(), Problem> {
        if self.is_reading {
            return Ok(());
        }
        let (events, reports) = (self.goodbyes.events.clone(), self.reports);
        spawn("input", move || {
            let mut stdin = io::stdin().lock();
            loop {
                let event = match read_chunk(&mut stdin) {
                    Ok(Some(chunk)) => Event::Input(chunk),
                    Ok(None) => Event::InputEnd,
                    Err(problem) => {
                        let text = problem.to_string();
                        reports.note("problem", json!({ "text": text }), &format!("gramway: {text}"));
                        Event::InputEnd
                    }
                };
                let is_end = matches!(event, Event::InputEnd);
                if events.send(event).is_err() || is_end {
                    return;
                }
            }
        })?;
        self.is_reading = true;
        Ok(())
    }
}

/// Whether the peer has gone because it has everything, as it may before it acknowledges that.
fn is_done(peer: &Peer) -> bool {
    let reason = blocking::wait_for(Duration::ZERO, peer.closed());
    matches!(reason, Some(CloseReason::ApplicationClosed { code, .. }) if code == DONE)
}
