//! What people and programs see of transfers: a bar on a terminal, lines of JSON where they are asked for, otherwise
//! what went wrong and how it ended.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use files::{Event, How, Progress, Report, Snapshot};
use indicatif::{MultiProgress, ProgressDrawTarget};
use serde_json::{Value, json};

use super::bars::{Bars, Rate};
use crate::limits::{TRANSFER_BAR_TURN, TRANSFER_JSON_TURN};
use crate::output;
use crate::units;

/// Which end of a transfer this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// How everything is shown.
#[derive(Clone)]
pub(super) struct Display(Arc<Mode>);

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
        Self(Arc::new(match (is_json, io::stderr().is_terminal()) {
            (true, _) => Mode::Json { on_stdout: !has_data },
            (false, true) => Mode::Bars(MultiProgress::with_draw_target(ProgressDrawTarget::stderr())),
            (false, false) => Mode::Quiet,
        }))
    }

    /// Whether it is drawn on a terminal.
    pub(super) fn is_drawn(&self) -> bool {
        matches!(*self.0, Mode::Bars(_))
    }

    /// Tells people, above the bars, and programs by an event with this name.
    pub(super) fn tell(&self, event: &str, text: &str) {
        match &*self.0 {
            Mode::Bars(bars) => bars.suspend(|| output::note(text)),
            Mode::Json { .. } => self.json(&json!({ "event": event, "text": text })),
            Mode::Quiet => output::note(text),
        }
    }

    /// The same for programs alone.
    pub(super) fn json(&self, value: &Value) {
        if let Mode::Json { on_stdout } = *self.0 {
            let line = output::json(value);
            // Who reads no more is not told more.
            let _ = match on_stdout {
                true => writeln!(io::stdout().lock(), "{line}"),
                false => writeln!(io::stderr().lock(), "{line}"),
            };
        }
    }

    /// Asks somebody at the terminal, without bars in between.
    pub(super) fn ask(&self, question: &str) -> io::Result<String> {
        let ask = || {
            let mut stderr = io::stderr().lock();
            write!(stderr, "{}", output::shown_lines(question))?;
            stderr.flush()?;
            let mut answer = String::new();
            io::stdin().read_line(&mut answer)?;
            Ok(answer)
        };
        match &*self.0 {
            Mode::Bars(bars) => bars.suspend(ask),
            Mode::Json { .. } | Mode::Quiet => ask(),
        }
    }

    /// The progress of a transfer that is about to begin; `whose` is put before its lines where there are several.
    pub(super) fn progress(&self, whose: &str) -> Progress {
        let (display, whose) = (self.clone(), whose.to_owned());
        Progress::new(move |event| display.event(&whose, event))
    }

    fn event(&self, whose: &str, event: Event) {
        let value = match &event {
            Event::Done { path, bytes, how } => {
                json!({ "event": "file", "path": path, "bytes": bytes, "how": how_name(*how) })
            }
            Event::Renamed { from, to } => json!({ "event": "renamed", "from": from, "to": to }),
            Event::Problem { path, text } => json!({ "event": "problem", "path": path, "text": text }),
            Event::Carrier { carrier, reason } => {
                json!({ "event": "carrier", "carrier": carrier.name(), "reason": reason })
            }
            Event::Offered { path, bytes, missing } => {
                json!({ "event": "offered", "path": path, "bytes": bytes, "missing": missing })
            }
            _ => return,
        };
        self.json(&value);
        if matches!(*self.0, Mode::Json { .. }) {
            return;
        }
        match &event {
            Event::Renamed { from, to } => self.tell("", &format!("{whose}{from} is stored as {to}")),
            Event::Problem { path, text } if path.is_empty() => self.tell("", &format!("{whose}{text}")),
            Event::Problem { path, text } => self.tell("", &format!("{whose}{path}: {text}")),
            // Elsewhere how it ended names the carrier.
            Event::Carrier { reason, .. } if self.is_drawn() => {
                self.tell("", &format!("{whose}{}", output::shown(reason)));
            }
            Event::Offered { path, bytes, missing } => {
                let there = match missing {
                    0 => "  (there)".to_owned(),
                    missing if missing < bytes => format!("  ({} of it missing)", units::bytes(*missing)),
                    _ => String::new(),
                };
                // A reader that has left is told nothing more.
                let _ = output::data(&format!(
                    "{:>8}  {}{there}",
                    units::bytes(*bytes),
                    output::shown(path)
                ));
            }
            _ => {}
        }
    }

    /// Shows a transfer until the end of what this returns.
    pub(super) fn watch(&self, whose: &str, at: End, progress: &Progress) -> Watch {
        let (end, ended) = mpsc::channel();
        let (display, whose, progress) = (self.clone(), whose.to_owned(), progress.clone());
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let mut bars = match &*display.0 {
                Mode::Bars(terminal) => Some(Bars::new(terminal, &whose, at)),
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
                rate.take(
                    Instant::now(),
                    snapshot.bytes_done.saturating_sub(snapshot.bytes_there),
                );
                match &mut bars {
                    Some(bars) => bars.draw(&snapshot, &rate),
                    None => display.json(&as_json(&snapshot, &rate)),
                }
            }
        });
        Watch {
            end: Some(end),
            thread: thread.ok(),
        }
    }

    /// Tells how a transfer ended. What failed was told when it did.
    pub(super) fn report(
        &self,
        whose: &str,
        verb: &str,
        report: &Report,
        snapshot: &Snapshot,
        took: Duration,
    ) {
        self.json(&json!({
            "event": "end", "stored": report.stored, "skipped": report.skipped, "failed": report.failed,
            "bytes_sent": report.bytes_sent, "bytes_there": report.bytes_there, "seconds": took.as_secs_f64(),
            "carrier_reason": report.carrier_reason,
        }));
        if matches!(*self.0, Mode::Json { .. }) {
            return;
        }
        self.tell("end", &summary(whose, verb, report, snapshot, took));
    }
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
        "event": "progress", "bytes_total": snapshot.bytes_total, "bytes_done": snapshot.bytes_done,
        "bytes_there": snapshot.bytes_there, "bytes_wire": snapshot.bytes_wire, "files_total": snapshot.files_total,
        "files_done": snapshot.files_done, "is_complete_list": snapshot.manifest_complete,
        "bytes_per_second": rate.bytes_per_second() as u64,
        "seconds_left": rate.seconds_left(snapshot).map(|seconds| seconds.ceil() as u64),
        "carrier": snapshot.carrier.map(files::Carrier::name), "path": snapshot.path,
        "limited_by": snapshot.limited_by.name(), "in_work": in_work,
    })
}

fn summary(whose: &str, verb: &str, report: &Report, snapshot: &Snapshot, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    let rate = units::bytes((report.bytes_sent as f64 / seconds.max(1e-3)) as u64);
    let mut text = format!(
        "{whose}{verb} {} in {} entries within {seconds:.1} s ({rate}/s)",
        units::bytes(report.bytes_sent),
        units::count(report.stored),
    );
    if report.bytes_there > 0 {
        text += &format!("; {} were there already", units::bytes(report.bytes_there));
    }
    if report.skipped > 0 {
        text += &format!(
            "; {} entries were there or left out",
            units::count(report.skipped)
        );
    }
    if report.failed > 0 {
        text += &format!("; {} failed", units::count(report.failed));
    }
    if let Some(carrier) = snapshot.carrier {
        text += &format!("; by {}", carrier.name());
    }
    text
}

fn how_name(how: How) -> &'static str {
    match how {
        How::Sent => "sent",
        How::Resumed => "resumed",
        How::There => "there",
        How::Skipped => "skipped",
    }
}
