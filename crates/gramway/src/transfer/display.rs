//! What people and programs see of transfers: a bar on a terminal, lines of JSON where they are asked for, otherwise
//! what went wrong and how it ended.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use files::{Event, How, Progress, Report, Snapshot};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::limits::{TRANSFER_BAR_TURN, TRANSFER_JSON_TURN, TRANSFER_RATE_SPAN};
use crate::output;
use crate::units;

/// The two lines of a transfer.
const BAR: &str = "{bar:24} {percent:>3} %  {msg}";

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
    pub(super) fn watch(&self, whose: &str, progress: &Progress) -> Watch {
        let (end, ended) = mpsc::channel();
        let (display, whose, progress) = (self.clone(), whose.to_owned(), progress.clone());
        let thread = thread::Builder::new().name("progress".to_owned()).spawn(move || {
            let bar = display.bar();
            let turn = if bar.is_some() {
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
                match &bar {
                    Some(bar) => draw(bar, &whose, &snapshot, &rate),
                    None => display.json(&as_json(&snapshot, &rate)),
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        Watch {
            end: Some(end),
            thread: thread.ok(),
        }
    }

    fn bar(&self) -> Option<ProgressBar> {
        let Mode::Bars(bars) = &*self.0 else { return None };
        let style = ProgressStyle::with_template(BAR).expect("the template is well-formed");
        Some(bars.add(ProgressBar::new(1).with_style(style)))
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

/// The rate of the last seconds.
struct Rate {
    /// When, and how many bytes there were.
    marks: std::collections::VecDeque<(Instant, u64)>,
}

impl Rate {
    fn new(now: Instant) -> Self {
        Self {
            marks: [(now, 0)].into(),
        }
    }

    fn take(&mut self, now: Instant, bytes: u64) {
        self.marks.push_back((now, bytes));
        while self.marks.len() > 2 && now.saturating_duration_since(self.marks[0].0) > TRANSFER_RATE_SPAN {
            self.marks.pop_front();
        }
    }

    fn bytes_per_second(&self) -> f64 {
        match (self.marks.front(), self.marks.back()) {
            (Some((begun, before)), Some((now, after))) if now > begun => {
                after.saturating_sub(*before) as f64 / (*now - *begun).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// Seconds until these bytes have come; `None` where nothing comes.
    fn seconds_for(&self, bytes: u64) -> Option<f64> {
        let rate = self.bytes_per_second();
        (rate >= 1.0).then(|| bytes as f64 / rate)
    }
}

fn draw(bar: &ProgressBar, whose: &str, snapshot: &Snapshot, rate: &Rate) {
    bar.set_length(snapshot.bytes_total.max(1));
    bar.set_position(snapshot.bytes_done);
    bar.set_message(line(whose, snapshot, rate));
}

/// What stands behind a bar, and the file below it.
fn line(whose: &str, snapshot: &Snapshot, rate: &Rate) -> String {
    let mut parts = vec![
        format!(
            "{whose}{} of {}",
            units::bytes(snapshot.bytes_done),
            units::bytes(snapshot.bytes_total)
        ),
        format!("{}/s", units::bytes(rate.bytes_per_second() as u64)),
    ];
    let left = snapshot.bytes_total.saturating_sub(snapshot.bytes_done);
    match rate.seconds_for(left) {
        _ if !snapshot.manifest_complete => parts.push("still looking for files".to_owned()),
        Some(seconds) => parts.push(format!("{} left", units::span(seconds.ceil()))),
        None => {}
    }
    if let Some(carrier) = snapshot.carrier {
        parts.push(carrier.name().to_owned());
    }
    if let Some(path) = &snapshot.path {
        parts.push(output::shown(path).into_owned());
    }
    if snapshot.limited_by != files::LimitedBy::Nothing {
        parts.push(format!("limited by {}", snapshot.limited_by.name()));
    }
    let files = format!(
        "{} of {} files",
        units::count(snapshot.files_done),
        units::count(snapshot.files_total)
    );
    let current = snapshot.current.as_deref().map(output::shown).unwrap_or_default();
    format!("{}\n  {files}  {current}", parts.join(", "))
}

fn as_json(snapshot: &Snapshot, rate: &Rate) -> Value {
    json!({
        "event": "progress", "bytes_total": snapshot.bytes_total, "bytes_done": snapshot.bytes_done,
        "bytes_there": snapshot.bytes_there, "bytes_wire": snapshot.bytes_wire, "files_total": snapshot.files_total,
        "files_done": snapshot.files_done, "is_complete_list": snapshot.manifest_complete,
        "bytes_per_second": rate.bytes_per_second() as u64,
        "carrier": snapshot.carrier.map(files::Carrier::name), "path": snapshot.path,
        "limited_by": snapshot.limited_by.name(), "current": snapshot.current,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_says_how_long_the_rest_takes() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut rate = Rate::new(start);
        assert_eq!(rate.seconds_for(1), None);
        for number in 1..=20 {
            rate.take(start + second * number, 1_000 * u64::from(number));
        }
        assert!((rate.bytes_per_second() - 1_000.0).abs() < 1e-6);
        assert!((rate.seconds_for(3_000).unwrap() - 3.0).abs() < 1e-6);
        for number in 21..=30 {
            rate.take(start + second * number, 20_000);
        }
        assert_eq!(rate.seconds_for(1), None);
    }
}
