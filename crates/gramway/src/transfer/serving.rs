//! What `send` and `share` have in common: peers that connect are served by threads of their own, and what is sent to
//! each is shown.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use files::{Progress, Report, SendOptions, Source, TransferError};
use peer::{Bytes, Delivery, Endpoint, Outcome, Peer, PeerId};

use super::display::{Display, End};
use super::guests::{Guests, Place};
use super::interrupt::Interrupt;
use crate::close_code::{BUSY, SPENT};
use crate::exit::Problem;
use crate::limits::{TRANSFER_PRESENCE_TIME_MAX, TRANSFER_TURN};

/// What all threads share.
pub(super) struct Serving {
    pub(super) options: SendOptions,
    pub(super) display: Display,
    pub(super) interrupt: Interrupt,
    /// Connections that have a thread.
    guests: Arc<Guests>,
    /// The transfer to each peer, where one peer has one at a time.
    running: Option<Mutex<Running>>,
}

/// Transfers that run.
#[derive(Default)]
struct Running {
    of_peers: BTreeMap<PeerId, Transfer>,
    /// So far.
    count: u64,
}

struct Transfer {
    number: u64,
    peer: Peer,
    progress: Progress,
}

/// A transfer that is the one to its peer, until this is dropped.
struct Turn<'a> {
    running: Option<&'a Mutex<Running>>,
    peer: PeerId,
    number: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(running) = self.running else { return };
        let of_peers = &mut lock(running).of_peers;
        if of_peers
            .get(&self.peer)
            .is_some_and(|transfer| transfer.number == self.number)
        {
            of_peers.remove(&self.peer);
        }
    }
}

fn lock(running: &Mutex<Running>) -> MutexGuard<'_, Running> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The threads of connections.
pub(super) struct Threads {
    serving: Arc<Serving>,
    running: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Where each peer receives once, `once`, one that comes again waits for its former transfer. Where it has lost the
    /// connection of that, which may take this end a while to find, the former one ends.
    pub(super) fn new(options: SendOptions, display: Display, interrupt: Interrupt, once: bool) -> Arc<Self> {
        Arc::new(Self {
            options,
            display,
            interrupt,
            guests: Arc::default(),
            running: once.then(Mutex::default),
        })
    }

    /// Whether nobody is served.
    pub(super) fn is_idle(&self) -> bool {
        self.guests.is_empty()
    }

    /// Whether what is sent can be read once only, and somebody has had a part of it.
    pub(super) fn is_spent(&self) -> bool {
        let mut sources = self.options.sources.iter();
        sources.any(|source| matches!(source, Source::Stdin { .. })) && files::is_stdin_spent()
    }

    /// Sends to a peer, and shows it there, unless it only looks. `None`: a former transfer to the peer runs, or too
    /// much is sent at once, and it is told to come again.
    pub(super) fn send(
        &self,
        peer: &Peer,
        place: &Place,
        display: &Display,
    ) -> Result<Option<Report>, TransferError> {
        if !place.begin() {
            peer.close(BUSY, "too many at once");
            return Ok(None);
        }
        let progress = display.progress();
        let Some(_turn) = self.begin(peer, &progress) else {
            peer.close(BUSY, "another transfer to this machine runs");
            return Ok(None);
        };
        if self.is_spent() {
            peer.close(SPENT, "standard input can be read once");
            return Err(TransferError::InputSpent);
        }
        let _running = self.interrupt.add(&progress);
        let began = Instant::now();
        let watch = display.watch(End::Sender, &progress, |_| {});
        let sent = files::send(peer, &self.options, &progress);
        drop(watch);
        let report = sent?;
        if !report.is_look {
            display.report("sent", &report, &progress.snapshot(), began.elapsed());
        }
        Ok(Some(report))
    }

    /// Ends a former transfer to the peer where that one does not answer on its connection any more; `None` where it
    /// does.
    fn begin(&self, peer: &Peer, progress: &Progress) -> Option<Turn<'_>> {
        let mut silent = None;
        let number = loop {
            let Some(running) = &self.running else { break 0 };
            let mut running = lock(running);
            let former = running.of_peers.get(&peer.id());
            if let Some(former) = former.filter(|former| silent != Some(former.number)) {
                let (number, former) = (former.number, former.peer.clone());
                drop(running);
                if self.is_there(&former) {
                    return None;
                }
                silent = Some(number);
                continue;
            }
            running.count += 1;
            let transfer = Transfer {
                number: running.count,
                peer: peer.clone(),
                progress: progress.clone(),
            };
            if let Some(former) = running.of_peers.insert(peer.id(), transfer) {
                former.progress.cancel();
            }
            break running.count;
        };
        Some(Turn {
            running: self.running.as_ref(),
            peer: peer.id(),
            number,
        })
    }

    /// Whether the other end of a connection answers, whatever its transfer waits for.
    fn is_there(&self, peer: &Peer) -> bool {
        let asked = async {
            let delivery = Delivery::unordered().with_deadline(TRANSFER_PRESENCE_TIME_MAX);
            let ticket = peer.send(Bytes::from_static(b"there?"), delivery).await;
            Some(ticket.ok()?.await)
        };
        let answer = self.interrupt.wait_for(TRANSFER_PRESENCE_TIME_MAX, asked);
        answer.flatten() == Some(Outcome::Acked)
    }
}

impl Threads {
    pub(super) fn new(serving: &Arc<Serving>) -> Self {
        Self {
            serving: Arc::clone(serving),
            running: Vec::new(),
        }
    }

    /// Waits for a turn for somebody to connect, and has a thread serve it.
    ///
    /// # Errors
    /// Nobody can connect any more.
    pub(super) fn take_next(
        &mut self,
        endpoint: &Endpoint,
        serve: impl FnOnce(&Peer, &Place) + Send + 'static,
    ) -> Result<(), Problem> {
        let Some(accepted) = self.serving.interrupt.wait_for(TRANSFER_TURN, endpoint.accept()) else {
            return Ok(());
        };
        let peer = accepted.ok_or_else(|| Problem::unavailable("the socket has failed"))?;
        self.running.retain(|thread| !thread.is_finished());
        let Some(place) = self.serving.guests.come(&peer) else {
            peer.close(BUSY, "too many at once");
            return Ok(());
        };
        let started = thread::Builder::new()
            .name("serving".to_owned())
            .spawn(move || serve(&peer, &place));
        // Where there is no thread, the connection ends with it.
        self.running.extend(started.ok());
        Ok(())
    }

    /// Ends what still runs, and waits for it.
    pub(super) fn end(self) {
        self.serving.interrupt.end();
        for thread in self.running {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use peer::SecretKey;
    use peer::blocking::wait;

    use super::*;

    #[test]
    fn a_peer_that_comes_again_waits_while_its_former_connection_answers() {
        let options = SendOptions::default();
        let serving = Serving::new(options, Display::new(false, false), Interrupt::default(), true);
        let bind = |key| Endpoint::bind(key, "127.0.0.1:0".parse().unwrap()).unwrap();
        let host = bind(SecretKey::generate().unwrap());
        let come = || {
            let guest = bind(SecretKey::from_bytes([1; 32]));
            let to_host = wait(guest.connect(host.id(), &[host.local_addr()])).unwrap();
            (guest, to_host, wait(host.accept()).unwrap())
        };
        let (first, second) = (come(), come());
        let begin = |peer| serving.begin(peer, &Progress::default());
        let turn = begin(&first.2);
        assert!(turn.is_some());
        assert!(begin(&second.2).is_none());
        drop(turn);
        let turn = begin(&second.2);
        assert!(turn.is_some());
        second.1.close(0, "");
        let another = begin(&first.2);
        assert!(another.is_some());
        // What is replaced takes nobody's turn when it ends.
        drop(turn);
        assert!(begin(&come().2).is_none());
    }
}
