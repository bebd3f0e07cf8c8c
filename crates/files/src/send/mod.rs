//! Sending: a thread walks and offers, this one hears what the receiver wants, one for each carrier sends it, and one
//! writes what is to be said. `desk` has what is left to do, `offer` what is walked, `lane` the carriers' threads.

mod desk;
mod lane;
mod offer;
mod pipe;
mod tcp;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use files_proto::message::{CarrierKind, Hello, LOOK, Message, PIECES, VERSION};
use files_proto::{EntryId, SkipReason};
use peer::blocking::{wait, wait_for};
use peer::{CloseReason, Peer};

use crate::cache::{Cache, Turns};
use crate::carrier::offer::Offered;
use crate::carrier::tcp::Listening;
use crate::carrier::{Carrier, RecordSender, Sockets};
use crate::choice::{Choice, Decision, Totals};
use crate::control::{Bell, Greeting, Heard, Held, INTERRUPTED, Inbox, Outbox, STORED};
use crate::error::TransferError;
use crate::filter;
use crate::limits::{
    CHUNK_PRIORITY, CHUNKS_OWN_QUIC, CONTROL_PRIORITY, FAREWELL_TIME_MAX, HEARD_TIME_MAX, QUIC_BUFFERS,
    QUIC_STREAMS, STREAMS_MAX, TURN,
};
use crate::options::{Report, SendOptions, Source as Named, Transport};
use crate::pool::{Pool, TransferMemory};
use crate::processor::process_time;
use crate::progress::{Counter, Event, How, Progress};
use crate::rate_limit::{RateLimit, RateShare};
use crate::remembered::{Between, Remembered};
use crate::walk::{Step, Walk};
use desk::{Desk, End};
use lane::{Compressing, LaneThread};
use offer::offer;
pub use pipe::is_stdin_spent;
use tcp::Tcp;

/// What all threads of a sender share.
struct Sending {
    desk: Desk,
    outbox: Outbox,
    progress: Progress,
    limit: Option<RateShare>,
    cache: Option<Cache>,
    problems: Mutex<Vec<(String, String)>>,
    /// Numbers of carriers' threads.
    lanes: AtomicUsize,
    /// TCP connections that are open, to be cut at the end.
    sockets: Sockets,
    tcp_open: AtomicUsize,
    /// TCP connections that have been made.
    tcp_taken: AtomicUsize,
    /// Whether the receiver's port is not reached.
    is_tcp_refused: AtomicBool,
    /// Takes TCP connections of the receiver.
    listening: Listening,
    is_over: AtomicBool,
    /// The pipe that is sent, and whether it is wanted.
    pipe: Mutex<Option<EntryId>>,
    /// Whether the receiver passes it on as it comes.
    takes_pieces: AtomicBool,
    /// Whether the receiver only looks at what is offered.
    only_looks: AtomicBool,
    chunks_sent: AtomicU64,
    /// Held while something comes to its end and that is told: DONE comes behind it.
    telling: Mutex<()>,
    /// Something has come for the thread that hears the receiver.
    bell: Bell,
}

impl Sending {
    fn new(progress: Progress) -> Self {
        Self {
            desk: Desk::default(),
            outbox: Outbox::default(),
            progress,
            limit: None,
            cache: None,
            problems: Mutex::default(),
            lanes: AtomicUsize::new(0),
            sockets: Sockets::default(),
            tcp_open: AtomicUsize::new(0),
            tcp_taken: AtomicUsize::new(0),
            is_tcp_refused: AtomicBool::new(false),
            listening: Listening::default(),
            is_over: AtomicBool::new(false),
            pipe: Mutex::default(),
            takes_pieces: AtomicBool::new(false),
            only_looks: AtomicBool::new(false),
            chunks_sent: AtomicU64::new(0),
            telling: Mutex::default(),
            bell: Bell::default(),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends to a peer that calls [`crate::receive()`], and returns when that one has everything; waits on this thread, and
/// ends the connection. What is wrong with single files is in the report.
///
/// # Errors
/// [`TransferError`].
pub fn send(peer: &Peer, options: &SendOptions, progress: &Progress) -> Result<Report, TransferError> {
    let select = filter::of(&options.include, &options.exclude).map_err(TransferError::Pattern)?;
    let sending = Sending {
        limit: options.limit.as_ref().map(RateLimit::share),
        // Without it files are hashed again.
        cache: options.state.as_ref().and_then(|state| Cache::open(state).ok()),
        ..Sending::new(progress.clone())
    };
    if let Some(files) = options.parallel_files {
        sending.desk.limit_files(files);
    }
    let lost = |closed: peer::Closed| TransferError::Lost(closed.to_string());
    let (mut writer, reader) = wait(peer.open(CONTROL_PRIORITY)).map_err(lost)?;
    let mut report = Report::default();
    let result = thread::scope(|scope| {
        let sending = &sending;
        scope.spawn(move || {
            // Without the stream, reading fails as well and tells why.
            let _ = sending.outbox.write_to(&mut writer, |_| {});
        });
        let mut conversation = Conversation {
            scope,
            sending,
            peer,
            options,
            inbox: Inbox::new(reader),
            choice: Choice::new(
                Carrier::Quic,
                sending.limit.as_ref().map(RateShare::bytes_per_second),
            ),
            memory: options.memory.transfer(),
            remembered: options
                .state
                .as_ref()
                .and_then(|state| Remembered::open(state).ok()),
            between: None,
            offered: Offered::default(),
            tcp: None,
            totals: Totals::default(),
            turns: Turns::new(Instant::now()),
            looked: Instant::now(),
            heard: Instant::now(),
            is_tcp_silent: false,
            has_tcp: false,
            began: Instant::now(),
            is_forgone: false,
            is_told: false,
            reason: None,
            held: Held::default(),
        };
        let result = match conversation.run(select) {
            Err(TransferError::Lost(why)) => match closed_by(peer) {
                // Nothing has come that a disk could have.
                Some(INTERRUPTED) if sending.desk.totals().stored == 0 => Err(TransferError::Interrupted),
                // Only its last word, or its code, says that nothing is lost where its machine is (FILE-42).
                code if sending.desk.is_complete() => {
                    match sending.only_looks.load(Ordering::SeqCst) || code == Some(STORED) {
                        true => Ok(()),
                        false => Err(TransferError::Unconfirmed(why)),
                    }
                }
                Some(INTERRUPTED) => Err(TransferError::Interrupted),
                _ => Err(TransferError::Lost(why)),
            },
            other => other,
        };
        conversation.keep_addresses();
        if result.is_ok() {
            conversation.forgo_tcp(true);
        }
        report.carrier_reason = conversation.reason.take();
        if let Err(error) = &result
            && !is_gone(error)
        {
            sending.outbox.push(&Message::Abort {
                text: error.to_string(),
            });
        }
        // Everything that a thread may wait for ends here.
        sending.is_over.store(true, Ordering::SeqCst);
        sending.listening.close();
        sending.desk.end_all();
        sending.outbox.close();
        if result.as_ref().is_err_and(|error| !is_gone(error)) {
            // It ends the connection when it has read why.
            wait_for(FAREWELL_TIME_MAX, peer.closed());
        }
        peer.close(0, "the transfer is over");
        sending.sockets.cut();
        result
    });
    result?;
    let totals = sending.desk.totals();
    report.stored = totals.stored;
    report.skipped = totals.skipped;
    report.failed = totals.failed;
    report.is_look = sending.only_looks.load(Ordering::SeqCst);
    report.is_passed_on = sending.takes_pieces.load(Ordering::SeqCst);
    let snapshot = progress.snapshot();
    report.bytes_there = snapshot.bytes_there;
    report.bytes_hashed = progress.count(Counter::BytesHashed);
    report.bytes_sent = snapshot.bytes_done - snapshot.bytes_there.min(snapshot.bytes_done);
    report.chunks_sent = sending.chunks_sent.load(Ordering::Relaxed);
    report.problems = sending
        .problems
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    Ok(report)
}

/// Whether the patterns have anything of the sources, as far as those can be read now; walks until there is something.
///
/// # Errors
/// [`TransferError::Pattern`].
pub fn finds_something(options: &SendOptions) -> Result<bool, TransferError> {
    let select = filter::of(&options.include, &options.exclude).map_err(TransferError::Pattern)?;
    let paths = options.sources.iter().filter_map(|source| match source {
        Named::Path(path) => Some(path.clone()),
        Named::Stdin { .. } => None,
    });
    let paths: Vec<_> = paths.collect();
    // What is read from standard input has no path.
    let has_pipe = paths.len() < options.sources.len();
    // What cannot be read may be what is meant.
    let is_something = |step| match step {
        Step::Found(_) => true,
        Step::Problem(problem) => problem.reason.is_some(),
        Step::DirectoryEnd { .. } => false,
    };
    Ok(has_pipe || Walk::new(paths, select).any(is_something))
}

/// The code with which a receiver has closed the connection, if it has.
fn closed_by(peer: &Peer) -> Option<u64> {
    match wait_for(TURN, peer.closed())? {
        CloseReason::ApplicationClosed { code, .. } => Some(code),
        _ => None,
    }
}

/// Whether nobody is left to be told of it.
fn is_gone(error: &TransferError) -> bool {
    matches!(
        error,
        TransferError::Lost(_)
            | TransferError::Interrupted
            | TransferError::Unconfirmed(_)
            | TransferError::Aborted(_)
    )
}

/// The thread that hears the receiver.
struct Conversation<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    sending: &'scope Sending,
    peer: &'scope Peer,
    options: &'scope SendOptions,
    inbox: Inbox,
    choice: Choice,
    memory: TransferMemory,
    /// Choices of earlier transfers.
    remembered: Option<Remembered>,
    /// Where TCP connections lead.
    between: Option<Between>,
    /// The receiver's port.
    offered: Offered,
    /// Once that is tried.
    tcp: Option<Tcp>,
    totals: Totals,
    /// Of keeping addresses.
    turns: Turns,
    looked: Instant,
    /// When the receiver said something last.
    heard: Instant,
    is_tcp_silent: bool,
    has_tcp: bool,
    began: Instant,
    /// Whether it has been told that there is no TCP, which was asked for.
    is_forgone: bool,
    /// Whether the receiver knows that nothing more comes.
    is_told: bool,
    reason: Option<String>,
    held: Held,
}

impl<'scope> Conversation<'scope, '_> {
    fn run(&mut self, select: crate::walk::Filter) -> Result<(), TransferError> {
        let ours = Hello {
            version: VERSION,
            sender: true,
            extensions: Vec::new(),
        };
        self.sending.outbox.push(&Message::Hello(ours.clone()));
        self.begin_quic()?;
        let paths = self.options.sources.clone();
        let (sending, xattrs) = (self.sending, self.options.xattrs);
        self.scope.spawn(move || offer(sending, paths, select, xattrs));
        let mut greeting = Greeting::new(Instant::now());
        loop {
            if self.sending.progress.is_cancelled() {
                return Err(TransferError::Cancelled);
            }
            let heard = self.inbox.next(TURN, &self.sending.bell)?;
            greeting.check(&heard, Instant::now())?;
            match heard {
                Heard::Message(Message::Hello(hello)) => {
                    ours.agree(&hello)?;
                    let takes_pieces = hello.has(PIECES);
                    self.sending.takes_pieces.store(takes_pieces, Ordering::SeqCst);
                    self.sending.only_looks.store(hello.has(LOOK), Ordering::SeqCst);
                }
                Heard::Message(Message::Done(_)) if self.sending.desk.is_complete() => return Ok(()),
                Heard::Message(Message::Done(_)) => {
                    return Err(TransferError::Broken(
                        "it ended before everything was stored".to_owned(),
                    ));
                }
                Heard::Message(message) => {
                    self.heard = Instant::now();
                    self.handle(message)?;
                }
                Heard::Nothing => {}
                Heard::End => return Err(TransferError::Lost("it stopped talking".to_owned())),
            }
            self.turn();
        }
    }

    fn handle(&mut self, message: Message) -> Result<(), TransferError> {
        let sending = self.sending;
        match message {
            Message::Want { .. } if sending.only_looks.load(Ordering::SeqCst) => {
                return Err(TransferError::Broken(
                    "it said that it only looks, and wants bytes of files".to_owned(),
                ));
            }
            Message::Want { entry, chunks } => {
                let there = sending.desk.want(entry, &chunks)?;
                sending.progress.add(Counter::BytesThere, there);
                sending.progress.add(Counter::BytesDone, there);
                sending.change_file(entry);
                let mut pipe = sending.pipe.lock().unwrap_or_else(PoisonError::into_inner);
                // It can be read once.
                let is_pipe = pipe.take_if(|pipe| *pipe == entry).is_some();
                drop(pipe);
                if is_pipe {
                    pipe::begin()?;
                    let streams = wait(self.peer.open_one_way(CHUNK_PRIORITY));
                    let stream = streams.map_err(|closed| TransferError::Lost(closed.to_string()))?;
                    let memory = self.memory.clone();
                    self.scope
                        .spawn(move || pipe::send(sending, &memory, entry, stream));
                } else {
                    // A WANT of no chunk asks for the end alone (FILE-14).
                    let step = sending.desk.completion(entry);
                    sending.go_on(entry, step);
                }
            }
            Message::Ask { entry } => {
                let step = sending.desk.ask(entry)?;
                sending.go_on(entry, step);
            }
            Message::Ack { entry, chunks } => {
                let (arrived, step) = sending.desk.acknowledge(entry, &chunks);
                self.count(arrived, chunks.len());
                sending.change_file(entry);
                sending.go_on(entry, step);
            }
            Message::Stored { entries } => {
                for entry in sending.desk.stored(&entries)? {
                    self.stored(entry);
                }
            }
            Message::Skip { entry, reason } => {
                // It was not left out because somebody wants it so (FILE-45).
                if reason.is_failure() {
                    self.failed(entry, &reason.to_string())?;
                } else {
                    let ended = sending.desk.end(entry, End::Skipped)?;
                    sending.progress.end_file(entry);
                    if let Some(ended) = ended {
                        self.skipped(ended, reason);
                    }
                }
            }
            Message::Failed { entry, text, .. } => self.failed(entry, &text)?,
            Message::TcpOffer(offer) => self.take_offer(offer),
            Message::TcpKey { key } => self.take_tcp(key),
            Message::Held { by } => sending.progress.set_other_end(by),
            Message::Measure(measure) => self.totals.cpu += Duration::from_nanos(measure.cpu_ns),
            Message::Abort { text } => return Err(TransferError::Aborted(text)),
            // What only a sender says, or a later version: nothing that we need.
            _ => {}
        }
        Ok(())
    }

    /// The receiver cannot store an entry.
    fn failed(&self, entry: EntryId, text: &str) -> Result<(), TransferError> {
        let sending = self.sending;
        let ended = sending.desk.end(entry, End::Failed)?;
        sending.progress.end_file(entry);
        if let Some(ended) = ended {
            if ended.source.is_some() {
                sending.progress.add(Counter::FilesDone, 1);
            }
            sending.problem(ended.name, format!("at the receiver: {text}"));
        }
        Ok(())
    }

    /// The receiver does not want an entry.
    fn skipped(&self, ended: desk::Ended, reason: SkipReason) {
        let Some(source) = ended.source else { return };
        let progress = &self.sending.progress;
        let how = match reason {
            SkipReason::Same => How::There,
            _ => How::Skipped,
        };
        if reason == SkipReason::Same {
            progress.add(Counter::BytesThere, ended.arrived.there);
            progress.add(Counter::BytesDone, ended.arrived.there);
        }
        progress.add(Counter::FilesDone, 1);
        progress.tell(Event::Done {
            path: source.name.clone(),
            bytes: source.stamp.size,
            how,
        });
    }

    fn stored(&mut self, ended: desk::Ended) {
        let arrived = ended.arrived;
        self.count(arrived, u64::from(arrived.came() > 0));
        if let Some(source) = ended.source {
            self.sending.progress.end_file(source.entry);
            self.sending.progress.add(Counter::FilesDone, 1);
            self.sending.progress.tell(Event::Done {
                path: source.name.clone(),
                bytes: source.stamp.size,
                how: How::Sent,
            });
        }
    }

    fn count(&mut self, arrived: desk::Arrived, chunks: u64) {
        self.totals.quic += arrived.quic;
        self.totals.tcp += arrived.tcp;
        let progress = &self.sending.progress;
        progress.add(Counter::BytesThere, arrived.there);
        progress.add(Counter::BytesDone, arrived.came() - arrived.again + arrived.there);
        self.sending.chunks_sent.fetch_add(chunks, Ordering::Relaxed);
    }

    /// What is due now and then.
    fn turn(&mut self) {
        let sending = self.sending;
        let telling = sending.telling();
        if sending.desk.is_complete() && !std::mem::replace(&mut self.is_told, true) {
            sending.outbox.push(&Message::Done(sending.desk.totals()));
        }
        drop(telling);
        self.offer_tcp();
        self.forgo_tcp(false);
        let now = Instant::now();
        let has_tcp = sending.tcp_open.load(Ordering::SeqCst) > 0;
        if has_tcp == self.has_tcp && now.duration_since(self.looked) < TURN / 2 {
            return;
        }
        self.looked = now;
        self.held.tell(now, &sending.progress, &sending.outbox);
        self.begin_tcp();
        sending
            .progress
            .set_path(self.peer.path().map(|path| path.to_string()));
        let totals = Totals {
            cpu: self.totals.cpu + process_time(),
            limited: sending.limit.as_ref().map_or(Duration::ZERO, RateShare::waited),
            left: sending.desk.left(),
            under_way: sending.desk.under_way(),
            is_heard: now.duration_since(self.heard) < HEARD_TIME_MAX,
            ..self.totals
        };
        let limit = sending.limit.as_ref().map(RateShare::bytes_per_second);
        self.choice.set_limit(limit);
        let decision = match (std::mem::replace(&mut self.has_tcp, has_tcp), has_tcp) {
            (false, true) if self.options.transport == Transport::Tcp => self.choice.prefer_tcp(),
            (false, true) => {
                let remembered = self.remembered.as_ref().zip(self.between);
                let choice = remembered.and_then(|(remembered, between)| remembered.choice(between));
                self.choice.offer_tcp(now, totals, choice)
            }
            (true, false) => {
                self.forget_tcp();
                self.choice.lose_tcp()
            }
            _ => {
                // What is remembered gets no younger by being used.
                let recalls = self.choice.recalls();
                let decision = self.choice.look(now, totals);
                if !recalls && matches!(decision, Some(Decision::Choose(..))) {
                    self.remember();
                }
                decision
            }
        };
        self.decide(decision);
        let is_silent = self.choice.is_tcp_silent();
        if std::mem::replace(&mut self.is_tcp_silent, is_silent) != is_silent {
            sending.desk.set_tcp_silent(is_silent);
        }
        let hashed = sending.progress.count(Counter::BytesHashed);
        if self.turns.is_due(now, hashed) {
            let bytes = self.keep_addresses();
            self.turns.keep(now, hashed, bytes);
        }
    }

    /// Keeps what was measured for later transfers.
    fn remember(&self) {
        if let (Some(remembered), Some(between), Some((carrier, rate))) =
            (&self.remembered, self.between, self.choice.chosen())
        {
            remembered.keep(between, carrier, rate);
        }
    }

    /// TCP's connections were lost: a later transfer measures again before it relies on them.
    fn forget_tcp(&self) {
        if let (Some(remembered), Some(between)) = (&self.remembered, self.between)
            // At the end the receiver closes them.
            && !self.sending.desk.is_complete()
            && matches!(remembered.choice(between), Some((Carrier::Tcp, _)))
        {
            remembered.forget(between);
        }
    }

    fn decide(&mut self, decision: Option<Decision>) {
        match decision {
            None => {}
            Some(Decision::Use(carriers)) => self.sending.desk.allow(carriers),
            Some(Decision::Choose(carrier, reason)) => {
                self.sending.desk.allow(&[carrier]);
                let kind = match carrier {
                    Carrier::Quic => CarrierKind::Quic,
                    Carrier::Tcp => CarrierKind::Tcp,
                };
                self.sending.outbox.push(&Message::Choice {
                    carrier: kind,
                    text: reason.clone(),
                });
                self.reason = Some(reason.clone());
                self.sending.progress.tell(Event::Carrier { carrier, reason });
            }
        }
    }

    /// Of files of how many bytes.
    fn keep_addresses(&self) -> u64 {
        let Some(cache) = &self.sending.cache else {
            return 0;
        };
        let mut bytes = 0;
        for (stamp, addresses) in self.sending.desk.partly_read() {
            cache.keep(&stamp, &addresses);
            bytes += stamp.size;
        }
        bytes
    }

    fn begin_quic(&mut self) -> Result<(), TransferError> {
        let streams = self.options.streams.unwrap_or(QUIC_STREAMS).clamp(1, STREAMS_MAX);
        let pool = self.memory.pool(CHUNKS_OWN_QUIC, QUIC_BUFFERS.max(streams));
        for _ in 0..streams {
            let stream = wait(self.peer.open_one_way(CHUNK_PRIORITY));
            let stream = stream.map_err(|closed| TransferError::Lost(closed.to_string()))?;
            let lane = self.lane(RecordSender::Quic(stream), pool.clone());
            self.scope.spawn(move || lane.run());
        }
        self.sending.desk.allow(&[Carrier::Quic]);
        self.sending.progress.set_carrier(Carrier::Quic);
        Ok(())
    }

    fn lane(&self, sender: RecordSender, pool: Pool) -> LaneThread<'scope> {
        LaneThread {
            number: self.sending.lanes.fetch_add(1, Ordering::Relaxed),
            sender,
            sending: self.sending,
            pool,
            compression: Compressing::new(self.options.compress),
        }
    }
}
