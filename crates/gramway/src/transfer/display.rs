//! What people and programs see of transfers: a bar on a terminal, lines of JSON where they are asked for, otherwise
//! what went wrong and how it ended.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use files::{DamagedAt, Event, How, Progress, Report, Snapshot, Would};
use indicatif::{MultiProgress, ProgressDrawTarget};
use peer::PeerId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::bars::{Bars, Rate};
use super::events::EventName;
use super::interrupt::Interrupt;
use super::looked::{Looked, offered};
use crate::limits::{TRANSFER_BAR_TURN, TRANSFER_JSON_TURN, TRANSFER_TURN};
use crate::output;
use crate::units;

/// Which end of a transfer this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// How everything is shown; a clone is the same.
#[derive(Clone)]
pub(super) struct Display {
    mode: Arc<Mode>,
    /// Put before what people are told of one of several transfers.
    whose: String,
    /// What programs are told of it with each event.
    fields: Map<String, Value>,
    /// What was offered in a transfer in which this end only looks.
    looked: Arc<Mutex<Looked>>,
}

enum Mode {
    /// On a terminal.
    Bars(MultiProgress),
    /// For programs: on standard output, or on standard error where that has the data.
    Json { on_stdout: bool },
    /// In pipes and logs.
    Quiet,
}

impl Display {
    /// `has_data`: standard output is for the data.
    pub(super) fn new(is_json: bool, has_data: bool) -> Self {
        let mode = match (is_json, io::stderr().is_terminal()) {
            (true, _) => Mode::Json { on_stdout: !has_data },
            (false, true) => Mode::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stderr())),
            (false, false) => Mode::Quiet,
        };
        Self {
            mode: Arc::new(mode),
            whose: String::new(),
            fields: Map::new(),
            looked: Arc::default(),
        }
    }

    /// The same for a transfer to one of several receivers: programs are told its ID and the number of its code, and
    /// people, where there are several, what `whose` says.
    pub(super) fn of_receiver(&self, receiver: PeerId, code: Option<u32>, whose: String) -> Self {
        let mut fields = Map::new();
        fields.insert("receiver".to_owned(), json!(receiver.to_string()));
        if let Some(code) = code {
            fields.insert("code_number".to_owned(), json!(code));
        }
        Self {
            mode: Arc::clone(&self.mode),
            whose,
            fields,
            looked: Arc::default(),
        }
    }

    /// Whether it is drawn on a terminal.
    pub(super) fn is_drawn(&self) -> bool {
        matches!(*self.mode, Mode::Bars(_))
    }

    /// Tells people, above the bars, and programs by this event.
    pub(super) fn tell(&self, event: EventName, text: &str) {
        self.json(event, json!({ "text": text }));
        self.note(text);
    }

    /// Tells people alone.
    fn note(&self, text: &str) {
        match &*self.mode {
            Mode::Bars(bars) => bars.suspend(|| output::note(&format!("{}{text}", self.whose))),
            Mode::Json { .. } => {}
            Mode::Quiet => output::note(&format!("{}{text}", self.whose)),
        }
    }

    /// Tells programs alone.
    pub(super) fn json(&self, event: EventName, fields: Value) {
        if let Mode::Json { on_stdout } = *self.mode {
            let mut line = Map::new();
            line.insert("event".to_owned(), json!(event.text()));
            if let Value::Object(fields) = fields {
                line.extend(fields);
            }
            line.extend(self.fields.clone());
            debug_assert!(
                line.keys().all(|field| field == "event" || event.has(field)),
                "docs/file-events.md does not list all of {line:?}"
            );
            let line = output::json(&Value::Object(line));
            // Who reads no more is not told more.
            let _ = match on_stdout {
                true => writeln!(io::stdout().lock(), "{line}"),
                false => writeln!(io::stderr().lock(), "{line}"),
            };
        }
    }

    /// Asks somebody at the terminal, without bars in between; an error of the kind `Interrupted` where the user wants
    /// an end instead.
    pub(super) fn ask(&self, question: &str, interrupt: &Interrupt) -> io::Result<String> {
        let ask = || {
            let mut stderr = io::stderr().lock();
            write!(stderr, "{}", output::shown_lines(question))?;
            stderr.flush()?;
            drop(stderr);
            read_line(interrupt)
        };
        match &*self.mode {
            Mode::Bars(bars) => bars.suspend(ask),
            Mode::Json { .. } | Mode::Quiet => ask(),
        }
    }

    /// The progress of a transfer that is about to begin.
    pub(super) fn progress(&self) -> Progress {
        // One whose connection was lost tells all again.
        *self.looked() = Looked::default();
        let display = self.clone();
        Progress::new(move |event| display.event(event))
    }

    fn event(&self, event: Event) {
        let (name, fields) = match &event {
            Event::Done { path, bytes, how } => (
                EventName::File,
                json!({ "path": path, "bytes": bytes, "how": how_name(*how) }),
            ),
            Event::Renamed { from, to } => (EventName::Renamed, json!({ "from": from, "to": to })),
            Event::Problem { path, text } => (EventName::Problem, json!({ "path": path, "text": text })),
            Event::Note { text } => (EventName::Note, json!({ "text": text })),
            Event::Damaged { path, bytes, at } => (
                EventName::Damaged,
                json!({ "path": path, "bytes": bytes, "at": at.name() }),
            ),
            Event::Carrier { carrier, reason } => (
                EventName::Carrier,
                json!({ "carrier": carrier.name(), "reason": reason }),
            ),
            Event::Offered {
                path,
                bytes,
                missing,
                would,
            } => {
                self.looked().add(*bytes, *missing, *would);
                let would = would.map(Would::name);
                (
                    EventName::Offered,
                    json!({ "path": path, "bytes": bytes, "missing": missing, "would": would }),
                )
            }
            _ => return,
        };
        self.json(name, fields);
        if matches!(*self.mode, Mode::Json { .. }) {
            return;
        }
        match &event {
            Event::Renamed { from, to } => self.note(&format!("{from} is stored as {to}")),
            Event::Problem { path, text } if path.is_empty() => self.note(text),
            Event::Problem { path, text } => self.note(&format!("{path}: {text}")),
            Event::Damaged { path, bytes, at } => {
                let bytes = units::bytes(*bytes);
                let how = match at {
                    DamagedAt::Disk => "of what was here are damaged",
                    DamagedAt::Whole => "do not have the sender's hash",
                    DamagedAt::Arrival => "came damaged",
                };
                self.note(&format!("{path}: {bytes} {how}, and come again"));
            }
            // Elsewhere how it ended names the carrier.
            Event::Carrier { reason, .. } if self.is_drawn() => {
                self.note(reason);
            }
            Event::Note { text } => self.note(text),
            Event::Offered {
                path,
                bytes,
                missing,
                would,
            } => self.data(&offered(path, *bytes, *missing, *would)),
            _ => {}
        }
    }

    /// Shows a transfer until the end of what this returns; `look` is given what is shown.
    pub(super) fn watch(
        &self,
        at: End,
        progress: &Progress,
        mut look: impl FnMut(&Snapshot) + Send + 'static,
    ) -> Watch {
        let (end, ended) = mpsc::channel();
        let (display, progress) = (self.clone(), progress.clone());
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let mut bars = match &*display.mode {
                Mode::Bars(terminal) => Some(Bars::new(terminal, &display.whose, at)),
                Mode::Json { .. } | Mode::Quiet => None,
            };
            let turn = if bars.is_some() {
                TRANSFER_BAR_TURN
            } else {
                TRANSFER_JSON_TURN
            };
            let mut rate = Rate::new(Instant::now());
            while ended.recv_timeout(turn) == Err(RecvTimeoutError::Timeout) {
                let snapshot = progress.snapshot();
                look(&snapshot);
                rate.take(
                    Instant::now(),
                    snapshot.bytes_done.saturating_sub(snapshot.bytes_there),
                );
                match &mut bars {
                    Some(bars) => bars.draw(&snapshot, &rate),
                    None => display.json(EventName::Progress, as_json(&snapshot, &rate)),
                }
            }
        });
        Watch {
            end: Some(end),
            thread: thread.ok(),
        }
    }

    /// Tells how a transfer ended. What failed was told when it did.
    pub(super) fn report(&self, verb: &str, report: &Report, snapshot: &Snapshot, took: Duration) {
        let end = json!({
            "stored": report.stored, "skipped": report.skipped, "failed": report.failed,
            "bytes_sent": report.bytes_sent, "bytes_there": report.bytes_there, "seconds": took.as_secs_f64(),
            "carrier_reason": report.carrier_reason,
        });
        self.json(EventName::End, end);
        self.note(&summary(verb, report, snapshot, took));
    }

    /// Tells what all that is offered, or would be received, comes to.
    pub(super) fn end_look(&self) {
        let looked = *self.looked();
        match &*self.mode {
            Mode::Json { .. } => self.json(EventName::OfferedEnd, looked.as_json()),
            Mode::Bars(_) | Mode::Quiet => self.data(&looked.to_string()),
        }
    }

    /// Prints a line of data, above the bars.
    fn data(&self, line: &str) {
        // A reader that has left is told nothing more.
        let _ = match &*self.mode {
            Mode::Bars(bars) => bars.suspend(|| output::data(line)),
            Mode::Json { .. } | Mode::Quiet => output::data(line),
        };
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of what somebody types; looks now and then whether the user wants an end, which a system call that goes on
/// after a signal would not show.
fn read_line(interrupt: &Interrupt) -> io::Result<String> {
    let stdin = io::stdin();
    let turn = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(TRANSFER_TURN.subsec_nanos()),
    };
    loop {
        if interrupt.is_over() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&turn)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // A terminal has whole lines.
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    Ok(line)
}

/// Shows a transfer as long as it lives.
pub(super) struct Watch {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn as_json(snapshot: &Snapshot, rate: &Rate) -> Value {
    let in_work: Vec<Value> = snapshot
        .in_work
        .iter()
        .map(|file| {
            json!({ "path": file.path, "bytes_done": file.bytes_done, "bytes_total": file.bytes_total })
        })
        .collect();
    json!({
        "bytes_total": snapshot.bytes_total, "bytes_done": snapshot.bytes_done,
        "bytes_there": snapshot.bytes_there, "bytes_wire": snapshot.bytes_wire, "files_total": snapshot.files_total,
        "files_done": snapshot.files_done, "is_complete_list": snapshot.manifest_complete,
        "bytes_per_second": rate.bytes_per_second() as u64,
        "seconds_left": rate.seconds_left(snapshot).map(|seconds| seconds.ceil() as u64),
        "carrier": snapshot.carrier.map(files::Carrier::name), "path": snapshot.path,
        "limited_by": snapshot.limited_by.name(), "in_work": in_work,
    })
}

fn summary(verb: &str, report: &Report, snapshot: &Snapshot, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let rate = units::bytes((report.bytes_sent as f64 / seconds.max(1e-3)) as u64);
    let mut text = format!(
        "{verb} {} in {} within {seconds:.1} s ({rate}/s)",
        units::bytes(report.bytes_sent),
        entries(report.stored),
    );
    if report.bytes_there > 0 {
        text += &format!("; {} were there already", units::bytes(report.bytes_there));
    }
    if report.skipped > 0 {
        let were = if report.skipped == 1 { "was" } else { "were" };
        text += &format!("; {} {were} there or left out", entries(report.skipped));
    }
    if report.failed > 0 {
        text += &format!("; {} failed", units::count(report.failed));
    }
    if let Some(carrier) = snapshot.carrier {
        text += &format!("; by {}", carrier.name());
    }
    text
}

fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{} entries", units::count(count)),
    }
}

fn how_name(how: How) -> &'static str {
    match how {
        How::Sent => "sent",
        How::Resumed => "resumed",
        How::There => "there",
        How::Skipped => "skipped",
    }
}
