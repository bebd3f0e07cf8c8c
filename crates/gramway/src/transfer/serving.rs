//! What `send` and `share` have in common: peers that connect are served by threads of their own, and what is sent to
//! each is shown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use files::{Progress, Report, SendOptions, TransferError};
use peer::{Endpoint, Peer, PeerId};

use super::display::Display;
use super::interrupt::Interrupt;
use crate::close_code::BUSY;
use crate::exit::Problem;
use crate::limits::{TRANSFER_GUESTS_MAX, TRANSFER_TURN};

/// What all threads share.
pub(super) struct Serving {
    pub(super) options: SendOptions,
    pub(super) display: Display,
    pub(super) interrupt: Interrupt,
    /// Connections that have a thread.
    busy: AtomicUsize,
    /// The last transfer to each peer, where one peer has one transfer.
    latest: Option<Mutex<BTreeMap<PeerId, Progress>>>,
}

/// One of the connections that have a thread, as long as that lives, however it ends.
struct Busy(Arc<Serving>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The threads of connections.
pub(super) struct Threads {
    serving: Arc<Serving>,
    running: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Where each peer receives once, `once`, one that comes again has lost its former connection, which may take this
    /// end a while to find: what is sent on that one ends.
    pub(super) fn new(options: SendOptions, display: Display, interrupt: Interrupt, once: bool) -> Arc<Self> {
        Arc::new(Self {
            options,
            display,
            interrupt,
            busy: AtomicUsize::new(0),
            latest: once.then(Mutex::default),
        })
    }

    /// Whether nobody is served.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::SeqCst) == 0
    }

    /// Sends to a peer, and shows it; `whose` is put before what is said of it.
    pub(super) fn send(&self, peer: &Peer, whose: &str) -> Result<Report, TransferError> {
        let progress = self.display.progress(whose);
        self.replace(peer.id(), &progress);
        let _running = self.interrupt.add(&progress);
        let began = Instant::now();
        let watch = self.display.watch(whose, &progress);
        let sent = files::send(peer, &self.options, &progress);
        drop(watch);
        let report = sent?;
        self.display
            .report(whose, "sent", &report, &progress.snapshot(), began.elapsed());
        Ok(report)
    }

    fn replace(&self, peer: PeerId, progress: &Progress) {
        let Some(latest) = &self.latest else { return };
        let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(former) = latest.insert(peer, progress.clone()) {
            former.cancel();
        }
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
        serve: impl FnOnce(&Peer) + Send + 'static,
    ) -> Result<(), Problem> {
        let Some(accepted) = self.serving.interrupt.wait_for(TRANSFER_TURN, endpoint.accept()) else {
            return Ok(());
        };
        let peer = accepted.ok_or_else(|| Problem::unavailable("the socket has failed"))?;
        self.running.retain(|thread| !thread.is_finished());
        if self.serving.busy.load(Ordering::SeqCst) >= TRANSFER_GUESTS_MAX {
            peer.close(BUSY, "too many at once");
            return Ok(());
        }
        self.serving.busy.fetch_add(1, Ordering::SeqCst);
        let busy = Busy(Arc::clone(&self.serving));
        let started = thread::Builder::new().name("serving".to_owned()).spawn(move || {
            let _busy = busy;
            serve(&peer);
        });
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
