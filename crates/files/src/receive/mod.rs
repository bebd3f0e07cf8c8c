//! Receiving: this thread hears what is offered and plans it, one for each carrier takes chunks, one compares files
//! that are here with what is offered, one has the disk take what was written, some put complete files in their
//! places, and one writes what is to be said.

mod chosen;
mod compare;
mod conflicts;
mod damaged;
mod doubt;
mod elsewhere;
mod file;
mod found;
mod hands;
mod journal_file;
mod kept;
mod lane;
mod looks;
mod ordered;
mod place;
mod placing;
mod plan;
mod shared;
mod stdout;
mod synced;
mod tcp;
mod write_back;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use files_proto::message::{CarrierKind, Hello, LOOK, Measure, Message, PIECES, VERSION};
use peer::blocking::{wait, wait_for};
use peer::{Peer, SendStream};
use quic::KeyIdentity;

use crate::carrier::offer::Offered;
use crate::carrier::tcp::Listening;
use crate::carrier::{Carrier, RecordReceiver, Sockets};
use crate::control::{Bell, Greeting, Heard, Held, INTERRUPTED, Inbox, Outbox, STORED};
use crate::destination::Destination;
use crate::error::TransferError;
use crate::filter;
use crate::limits::{FAREWELL_TIME_MAX, HELLO_TIME_MAX, LANES_MAX, PLACING_THREADS, TURN};
use crate::options::{Destination as To, ReceiveOptions, Report, Transport};
use crate::processor::process_time;
use crate::progress::{Counter, Event, Progress};
use chosen::Chosen;
use compare::{Asked, Compared};
use doubt::Doubt;
use elsewhere::Elsewhere;
use hands::Hands;
use placing::Placing;
use plan::Planner;
use shared::{Receiving, State};
use write_back::WriteBack;

/// Receives from a peer that calls [`crate::send()`], and returns when everything is in its place; waits on this
/// thread, and ends the connection. What is wrong with single files is in the report.
///
/// # Errors
/// [`TransferError`].
pub fn receive(peer: &Peer, options: &ReceiveOptions, progress: &Progress) -> Result<Report, TransferError> {
    let only = filter::of(&options.only, &[]).map_err(TransferError::Pattern)?;
    let destination = match &options.to {
        // Nothing is there that what is offered could be compared with.
        To::Directory(path) if options.list || options.dry_run && !path.exists() => None,
        To::Directory(path) => Some(Arc::new(open(path)?)),
        To::Stdout => None,
    };
    let (writer, reader) = accept(peer, progress)?;
    let asks = !options.dry_run && !options.list;
    let rules = destination
        .as_ref()
        .map(|destination| destination.rules(Path::new(""), asks));
    let doubt = Doubt::read(destination.as_deref());
    let receiving = Receiving {
        destination,
        doubt,
        outbox: Outbox::default(),
        progress: progress.clone(),
        write_back: WriteBack::default(),
        synced: Arc::default(),
        placing: Placing::default(),
        bell: Bell::default(),
        listening: Listening::default(),
        state: Mutex::new(State::new(rules.unwrap_or_default())),
        ended: Condvar::new(),
        fatal: Mutex::default(),
        is_over: Arc::new(AtomicBool::new(false)),
        lanes: AtomicUsize::new(0),
        sockets: Sockets::default(),
        hands: Hands::default(),
        bytes_sent: AtomicU64::new(0),
        chunks_sent: AtomicU64::new(0),
        damaged_arrivals: AtomicU64::new(0),
    };
    receiving.state().turns.max = options.parallel_files.map(|files| files.max(1));
    progress.set_receiver();
    progress.set_carrier(Carrier::Quic);
    let mut report = Report::default();
    let result = thread::scope(|scope| {
        let receiving = &receiving;
        scope.spawn(move || {
            let mut writer = writer;
            // Without the stream, reading fails as well and tells why.
            let _ = receiving
                .outbox
                .write_to(&mut writer, |out| receiving.write_acks(out));
        });
        scope.spawn(|| {
            let failed = |file: &Arc<_>, error: &_| {
                file::Incoming::distrust(file);
                receiving.fail_file(file, shared::reason_of(error), &shared::sentence(error), true);
            };
            receiving.write_back.run(failed, |is_over| {
                if let Some(Err(error)) = receiving.sync(is_over) {
                    receiving.end_by(error);
                }
            });
        });
        for _ in 0..PLACING_THREADS {
            scope.spawn(|| receiving.placing.run(|file| receiving.place(file)));
        }
        scope.spawn(|| take_streams(scope, receiving, peer));
        let (to_compare, compared) = mpsc::channel::<Asked>();
        let (to_tell, told) = mpsc::channel::<Compared>();
        scope.spawn(move || {
            while let Ok(asked) = compared.recv() {
                if let Some(compared) = receiving.compare(asked) {
                    // Who is to be told ends with the transfer.
                    let _ = to_tell.send(compared);
                    receiving.bell.ring();
                }
            }
        });
        let mut conversation = Conversation {
            scope,
            receiving,
            peer,
            options,
            inbox: Inbox::new(reader),
            planner: Planner {
                receiving,
                options,
                only,
                chosen: Chosen::default(),
                elsewhere: Elsewhere::default(),
                asked: HashMap::new(),
                unsure: HashMap::new(),
                ready: Vec::new(),
            },
            to_compare,
            compared: told,
            key: None,
            takes_tcp: false,
            offered: Offered::default(),
            measured: (Instant::now(), process_time()),
            records_done: 0,
            carrier: Carrier::Quic,
            reason: None,
            held: Held::default(),
        };
        let result = conversation.run();
        report.carrier_reason = conversation.reason.take();
        drop(conversation);
        // Whose user has ended it, or chooses again, may come again, and says so by its code.
        let may_come_again = matches!(
            result,
            Err(TransferError::Cancelled | TransferError::NothingChosen(_) | TransferError::SeveralChosen)
        );
        let is_silent =
            may_come_again || matches!(result, Err(TransferError::Lost(_) | TransferError::Aborted(_)));
        if let Err(error) = &result
            && !is_silent
        {
            receiving.outbox.push(&Message::Abort {
                text: error.to_string(),
            });
        }
        receiving.is_over.store(true, Ordering::SeqCst);
        receiving.listening.close();
        receiving.placing.end();
        receiving.write_back.end();
        receiving.outbox.close();
        if !is_silent {
            // The sender ends the connection when it has read our last word.
            wait_for(FAREWELL_TIME_MAX, peer.closed());
        }
        match result {
            Ok(()) => peer.close(STORED, "the transfer is over"),
            Err(_) if may_come_again => peer.close(INTERRUPTED, "the receiver was interrupted"),
            Err(_) => peer.close(0, "the transfer is over"),
        }
        receiving.sockets.cut();
        result
    });
    if let Err(error) = &result {
        // Who connects again must not find the parts claimed by this transfer.
        let is_last = !matches!(error, TransferError::Lost(_));
        receiving
            .write_back
            .keep_parts(|| is_last || progress.is_cancelled());
    }
    result?;
    let destination = receiving.destination.as_ref();
    match destination.map_or(0, |destination| destination.without_attributes()) {
        0 => {}
        count => progress.tell(Event::Note {
            text: format!("the destination does not take all extended attributes; files and directories without some: {count}"),
        }),
    }
    let state = receiving
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    report.stored = state.totals.stored;
    report.skipped = state.totals.skipped;
    report.failed = state.totals.failed;
    report.is_look = options.list || options.dry_run;
    report.is_passed_on = options.to == To::Stdout;
    report.problems = state.problems;
    report.bytes_sent = receiving.bytes_sent.into_inner();
    report.chunks_sent = receiving.chunks_sent.into_inner();
    report.bytes_there = progress.snapshot().bytes_there;
    report.bytes_hashed = progress.count(Counter::BytesHashed);
    Ok(report)
}

impl Receiving {
    /// Has the disk take all that was written; `None` where the wait for it is over before.
    fn sync(&self, is_over: impl Fn() -> bool) -> Option<Result<(), TransferError>> {
        let Some(destination) = &self.destination else {
            return Some(Ok(()));
        };
        let to_sync = Arc::clone(destination);
        let synced = self.synced.ask_until(is_over, move || to_sync.sync())?;
        Some(synced.map_err(|error| TransferError::Destination {
            path: destination.path().to_owned(),
            error,
        }))
    }

    /// Everything is on the disk.
    fn end_doubt(&self) {
        if let Some(destination) = &self.destination {
            self.doubt.end(destination, &self.progress);
        }
    }

    /// What ends the transfer, where something does.
    fn take_fatal(&self) -> Result<(), TransferError> {
        let mut fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
        fatal.take().map_or(Ok(()), Err)
    }
}

fn open(path: &Path) -> Result<Destination, TransferError> {
    let failed = |error| TransferError::Destination {
        path: path.to_owned(),
        error,
    };
    let destination = Destination::open(path).map_err(failed)?;
    // Also where nothing is written: the run would end so.
    destination.check_writable().map_err(failed)?;
    Ok(destination)
}

/// The control stream, which the sender opens.
fn accept(peer: &Peer, progress: &Progress) -> Result<(SendStream, peer::ReceiveStream), TransferError> {
    let deadline = Instant::now() + HELLO_TIME_MAX;
    loop {
        match wait_for(TURN, peer.accept()) {
            Some(accepted) => return accepted.map_err(|closed| TransferError::Lost(closed.to_string())),
            None if progress.is_cancelled() => return Err(TransferError::Cancelled),
            None if Instant::now() > deadline => {
                return Err(TransferError::Lost("the sender offered nothing".to_owned()));
            }
            None => {}
        }
    }
}

fn broken(how: &str) -> TransferError {
    TransferError::Broken(how.to_owned())
}

/// Gives each stream of chunks a thread.
fn take_streams<'scope>(scope: &'scope Scope<'scope, '_>, receiving: &'scope Receiving, peer: &Peer) {
    while let Ok(stream) = wait(peer.accept_one_way()) {
        begin_lane(scope, receiving, RecordReceiver::Quic(stream));
    }
}

fn begin_lane<'scope>(
    scope: &'scope Scope<'scope, '_>,
    receiving: &'scope Receiving,
    carrier: RecordReceiver,
) {
    if receiving.lanes.fetch_add(1, Ordering::SeqCst) >= LANES_MAX {
        receiving.lanes.fetch_sub(1, Ordering::SeqCst);
        return receiving.end_by(broken("it opens more streams than a transfer has"));
    }
    scope.spawn(move || {
        lane::run(receiving, carrier);
        receiving.lanes.fetch_sub(1, Ordering::SeqCst);
    });
}

/// The thread that hears the sender.
struct Conversation<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    receiving: &'scope Receiving,
    peer: &'scope Peer,
    options: &'scope ReceiveOptions,
    inbox: Inbox,
    planner: Planner<'scope>,
    to_compare: Sender<Asked>,
    compared: Receiver<Compared>,
    /// Of TCP connections.
    key: Option<KeyIdentity>,
    takes_tcp: bool,
    /// The sender's port.
    offered: Offered,
    /// Since when, and with how much processor time, the sender knows.
    measured: (Instant, Duration),
    /// Of carriers, when that was last looked at.
    records_done: u64,
    carrier: Carrier,
    reason: Option<String>,
    held: Held,
}

impl Conversation<'_, '_> {
    fn run(&mut self) -> Result<(), TransferError> {
        let has_extensions = [(PIECES, self.options.to == To::Stdout), (LOOK, !self.writes())];
        let ours = Hello {
            version: VERSION,
            sender: false,
            extensions: has_extensions
                .into_iter()
                .filter_map(|(number, has)| has.then_some((number, Vec::new())))
                .collect(),
        };
        self.receiving.outbox.push(&Message::Hello(ours.clone()));
        if self.options.transport != Transport::Quic {
            self.offer_tcp();
        }
        let mut greeting = Greeting::new(Instant::now());
        loop {
            if self.receiving.progress.is_cancelled() {
                return Err(TransferError::Cancelled);
            }
            self.receiving.take_fatal()?;
            if !self.receiving.outbox.has_room_within(TURN) {
                continue;
            }
            let heard = self.inbox.next(TURN, &self.receiving.bell)?;
            greeting.check(&heard, Instant::now())?;
            match heard {
                Heard::Message(Message::Hello(hello)) => {
                    ours.agree(&hello)?;
                }
                Heard::Message(Message::Done(_)) => {
                    if !self.receiving.state().manifest.is_done() {
                        return Err(broken("it ended before everything had come"));
                    }
                    if self.writes() {
                        // Who is told that all is stored may remove the source.
                        let progress = &self.receiving.progress;
                        let synced = self.receiving.sync(|| progress.is_cancelled());
                        synced.unwrap_or(Err(TransferError::Cancelled))?;
                        self.receiving.end_doubt();
                    }
                    // What came up since this turn began.
                    self.receiving.take_fatal()?;
                    let totals = self.receiving.state().totals;
                    self.receiving.outbox.push(&Message::Done(totals));
                    return Ok(());
                }
                Heard::Message(message) => self.handle(message)?,
                Heard::Nothing => {}
                Heard::End => return Err(TransferError::Lost("it stopped talking".to_owned())),
            }
            while let Ok(compared) = self.compared.try_recv() {
                self.planner.compared(compared);
            }
            for asked in self.planner.ready.drain(..) {
                // The thread that compares ends with us.
                let _ = self.to_compare.send(asked);
            }
            self.turn();
        }
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        let receiving = self.receiving;
        match message {
            Message::Entry(entry) => self.planner.plan(entry)?,
            Message::DirectoryEnd { entry } => {
                receiving.state().manifest.handle_directory_end(entry)?;
                self.planner.end_directory(entry);
                receiving.finish_directories();
            }
            Message::OfferEnd { entries, bytes } => {
                receiving.state().manifest.handle_offer_end(entries, bytes)?;
                self.planner.end_offer()?;
                receiving.progress.complete_manifest();
            }
            Message::Hashes {
                entry,
                first,
                addresses,
            } => {
                receiving.state().manifest.is_open(entry)?;
                let hashed = self.planner.hashes(entry, first, &addresses);
                if let Some(asked) = hashed.map_err(broken)? {
                    // The thread that compares ends with us.
                    let _ = self.to_compare.send(asked);
                }
            }
            Message::FileEnd { entry, size, root } => {
                receiving.state().manifest.is_open(entry)?;
                let file = receiving.state().files.get(&entry).map(Arc::clone);
                if let Some(file) = file {
                    match file.end(size, root) {
                        Ok(progressed) => receiving.go_on(&file, &progressed),
                        Err(file::StoreError::Broken(how)) => return Err(broken(how)),
                        Err(file::StoreError::Write(_)) => {}
                    }
                }
            }
            Message::Failed { entry, reason, text } => {
                receiving.state().manifest.is_open(entry)?;
                let text = format!("at the sender: {text}");
                self.planner.give_up(entry, &text);
                let file = receiving.state().files.get(&entry).map(Arc::clone);
                let small = receiving.state().small.remove(&entry);
                if let Some(file) = file {
                    receiving.fail_file(&file, reason, &text, false);
                } else if let Some(small) = small {
                    receiving.state().totals.failed += 1;
                    receiving.problem(small.path.display().to_string(), text);
                    receiving.progress.add(Counter::FilesDone, 1);
                    receiving.finish(entry);
                }
            }
            Message::Unoffered { path, text, .. } => {
                receiving.state().totals.failed += 1;
                receiving.problem(path, format!("at the sender: {text}"));
            }
            Message::TcpKey { key } => self.begin_tcp(key),
            Message::Held { by } => receiving.progress.set_other_end(by),
            Message::TcpOffer(offer) => self.take_offer(offer),
            Message::Choice { carrier, text } => {
                self.carrier = match carrier {
                    CarrierKind::Quic => Carrier::Quic,
                    CarrierKind::Tcp => Carrier::Tcp,
                };
                self.reason = Some(text.clone());
                receiving.progress.tell(Event::Carrier {
                    carrier: self.carrier,
                    reason: text,
                });
            }
            Message::Abort { text } => return Err(TransferError::Aborted(text)),
            // What only a receiver says, or a later version: nothing that we need.
            _ => {}
        }
        Ok(())
    }

    fn writes(&self) -> bool {
        !self.options.dry_run && !self.options.list
    }

    fn turn(&mut self) {
        let (since, before) = self.measured;
        let elapsed = since.elapsed();
        if elapsed < TURN {
            return;
        }
        self.connect_tcp();
        self.held
            .tell(Instant::now(), &self.receiving.progress, &self.receiving.outbox);
        self.receiving
            .progress
            .set_path(self.peer.path().map(|path| path.to_string()));
        let cpu = process_time();
        self.measured = (Instant::now(), cpu);
        if self.receiving.hands.are_held(&mut self.records_done) {
            // Who is heard, and acknowledges nothing, is taken for one whom nothing reaches.
            return;
        }
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(0);
        let spent = cpu.saturating_sub(before);
        if self.receiving.lanes.load(Ordering::Relaxed) > 0 && spent > Duration::ZERO {
            self.receiving.outbox.push(&Message::Measure(Measure {
                carrier: match self.carrier {
                    Carrier::Quic => CarrierKind::Quic,
                    Carrier::Tcp => CarrierKind::Tcp,
                },
                bytes: self.receiving.bytes_sent.load(Ordering::Relaxed),
                elapsed_ns: nanoseconds(elapsed),
                cpu_ns: nanoseconds(spent),
            }));
        }
    }
}
