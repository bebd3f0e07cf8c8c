//! What a terminal shows of one transfer while it runs: a bar of all of it, what carries it and what limits it, and
//! below that a bar of each of the first files in work.

use std::collections::VecDeque;
use std::time::Instant;

use files::{FileInWork, LimitedBy, Snapshot};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::display::End;
use crate::limits::{TRANSFER_FILE_BARS_MAX, TRANSFER_RATE_SPAN};
use crate::{output, units};

/// The two lines of a transfer.
const WHOLE: &str = "{bar:24} {percent:>3} %  {wide_msg}\n  {prefix}";

/// A file below it, and a pipe, whose end nobody knows.
const FILE: &str = "  {bar:22} {percent:>3} %  {wide_msg}";
const PIPE: &str = "  {wide_msg}";

/// Of one transfer; gone from the terminal with this.
pub(super) struct Bars {
    terminal: MultiProgress,
    /// Put before what is said, where there are several transfers.
    whose: String,
    end: End,
    whole: ProgressBar,
    files: Vec<ProgressBar>,
}

impl Bars {
    pub(super) fn new(terminal: &MultiProgress, whose: &str, end: End) -> Self {
        let whole = terminal.add(ProgressBar::new(1).with_style(style(WHOLE)));
        Self {
            terminal: terminal.clone(),
            whose: whose.to_owned(),
            end,
            whole,
            files: Vec::new(),
        }
    }

    /// Draws the state of the transfer.
    pub(super) fn draw(&mut self, snapshot: &Snapshot, rate: &Rate) {
        self.whole.set_length(snapshot.bytes_total.max(1));
        self.whole.set_position(snapshot.bytes_done);
        self.whole.set_prefix(below(snapshot, self.end));
        self.whole
            .set_message(format!("{}{}", self.whose, line(snapshot, rate)));
        let shown = snapshot.in_work.len().min(TRANSFER_FILE_BARS_MAX);
        for surplus in self.files.drain(shown.min(self.files.len())..) {
            surplus.finish_and_clear();
            self.terminal.remove(&surplus);
        }
        for (place, file) in snapshot.in_work.iter().take(shown).enumerate() {
            if place == self.files.len() {
                let above = self.files.last().unwrap_or(&self.whole);
                let bar = self.terminal.insert_after(above, ProgressBar::new(1));
                self.files.push(bar);
            }
            draw_file(&self.files[place], file);
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        for bar in self.files.iter().chain([&self.whole]) {
            bar.finish_and_clear();
            self.terminal.remove(bar);
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well-formed")
}

fn draw_file(bar: &ProgressBar, file: &FileInWork) {
    let (done, path) = (units::bytes(file.bytes_done), output::shown(&file.path));
    match file.bytes_total {
        Some(total) => {
            bar.set_style(style(FILE));
            bar.set_length(total.max(1));
            bar.set_position(file.bytes_done);
            bar.set_message(format!("{done} of {}  {path}", units::bytes(total)));
        }
        None => {
            bar.set_style(style(PIPE));
            bar.set_message(format!("{done}  {path}"));
        }
    }
}

/// What stands behind the bar of a transfer: how much of it, how fast, and how long still.
pub(super) fn line(snapshot: &Snapshot, rate: &Rate) -> String {
    let done = units::bytes(snapshot.bytes_done);
    let speed = format!("{}/s", units::bytes(rate.bytes_per_second() as u64));
    if has_pipe(snapshot) {
        return format!("{done}, {speed}");
    }
    let mut text = format!("{done} of {}, {speed}", units::bytes(snapshot.bytes_total));
    match rate.seconds_left(snapshot) {
        _ if !snapshot.manifest_complete => text += ", still looking for files",
        Some(seconds) => text += &format!(", {} left", units::span(seconds.ceil())),
        None => {}
    }
    text
}

/// What stands below it: files, what carries them, and what limits that.
pub(super) fn below(snapshot: &Snapshot, end: End) -> String {
    let mut text = format!(
        "{} of {} files",
        units::count(snapshot.files_done),
        units::count(snapshot.files_total)
    );
    if let Some(carrier) = snapshot.carrier {
        text += &format!(", by {}", carrier.name());
    }
    if let Some(path) = &snapshot.path {
        text += &format!(", {}", output::shown(path));
    }
    if let Some(by) = limited_by(snapshot.limited_by, end) {
        text += &format!(", limited by {by}");
    }
    text
}

/// What limits a transfer, for people at this end.
fn limited_by(by: LimitedBy, end: End) -> Option<&'static str> {
    Some(match (by, end) {
        (LimitedBy::Nothing, _) => return None,
        (LimitedBy::Network, _) => "the network",
        (LimitedBy::Limit, End::Sender) => "--limit",
        (LimitedBy::Limit, End::Receiver) => "the sender's --limit",
        (LimitedBy::Disk, End::Sender) => "reading here",
        (LimitedBy::Disk, End::Receiver) => "writing here",
        (LimitedBy::Peer, End::Sender) => "writing at the receiver",
        (LimitedBy::Peer, End::Receiver) => "reading at the sender",
    })
}

fn has_pipe(snapshot: &Snapshot) -> bool {
    snapshot.in_work.iter().any(|file| file.bytes_total.is_none())
}

/// The rate of the last seconds.
pub(super) struct Rate {
    /// When, and how many bytes there were.
    marks: VecDeque<(Instant, u64)>,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            marks: [(now, 0)].into(),
        }
    }

    /// So many bytes have come by now.
    pub(super) fn take(&mut self, now: Instant, bytes: u64) {
        self.marks.push_back((now, bytes));
        while self.marks.len() > 2 && now.saturating_duration_since(self.marks[0].0) > TRANSFER_RATE_SPAN {
            self.marks.pop_front();
        }
    }

    pub(super) fn bytes_per_second(&self) -> f64 {
        match (self.marks.front(), self.marks.back()) {
            (Some((begun, before)), Some((now, after))) if now > begun => {
                after.saturating_sub(*before) as f64 / (*now - *begun).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    /// Seconds until the rest of a transfer has come; `None` where nothing comes, or nobody knows how much it is.
    pub(super) fn seconds_left(&self, snapshot: &Snapshot) -> Option<f64> {
        if !snapshot.manifest_complete || has_pipe(snapshot) {
            return None;
        }
        let rate = self.bytes_per_second();
        let bytes = snapshot.bytes_total.saturating_sub(snapshot.bytes_done);
        (rate >= 1.0).then(|| bytes as f64 / rate)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use files::Carrier;
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    use super::*;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.bytes_total = 4_000_000;
        snapshot.bytes_done = 1_000_000;
        snapshot.files_total = 1_200;
        snapshot.files_done = 7;
        snapshot.manifest_complete = true;
        snapshot.carrier = Some(Carrier::Tcp);
        snapshot.path = Some("192.0.2.1:4000".to_owned());
        snapshot.limited_by = LimitedBy::Peer;
        snapshot
    }

    fn file(path: &str, bytes_done: u64, bytes_total: Option<u64>) -> FileInWork {
        FileInWork::new(path.to_owned(), bytes_done, bytes_total)
    }

    /// So many bytes have come in ten seconds.
    fn rate(bytes: u64) -> Rate {
        let (start, mut rate) = (
            Instant::now(),
            Rate {
                marks: VecDeque::new(),
            },
        );
        rate.take(start, 0);
        rate.take(start + Duration::from_secs(10), bytes);
        rate
    }

    #[test]
    fn a_transfer_says_how_far_it_is_how_fast_how_long_still_and_what_limits_it() {
        let mut snapshot = snapshot();
        assert_eq!(
            line(&snapshot, &rate(1_000_000)),
            "1.0 MB of 4.0 MB, 100 kB/s, 30 s left"
        );
        assert_eq!(line(&snapshot, &rate(0)), "1.0 MB of 4.0 MB, 0 B/s");
        assert_eq!(
            below(&snapshot, End::Sender),
            "7 of 1,200 files, by TCP, 192.0.2.1:4000, limited by writing at the receiver"
        );
        for (by, end, expected) in [
            (LimitedBy::Peer, End::Receiver, "reading at the sender"),
            (LimitedBy::Disk, End::Sender, "reading here"),
            (LimitedBy::Disk, End::Receiver, "writing here"),
            (LimitedBy::Limit, End::Sender, "--limit"),
            (LimitedBy::Limit, End::Receiver, "the sender's --limit"),
            (LimitedBy::Network, End::Receiver, "the network"),
        ] {
            snapshot.limited_by = by;
            let text = below(&snapshot, end);
            assert!(text.ends_with(&format!(", limited by {expected}")), "{text}");
        }
        snapshot.limited_by = LimitedBy::Nothing;
        assert!(!below(&snapshot, End::Sender).contains("limited"));
        snapshot.manifest_complete = false;
        assert_eq!(
            line(&snapshot, &rate(1_000_000)),
            "1.0 MB of 4.0 MB, 100 kB/s, still looking for files"
        );
        snapshot.in_work.push(file("standard input", 1_000_000, None));
        assert_eq!(line(&snapshot, &rate(1_000_000)), "1.0 MB, 100 kB/s");
    }

    #[test]
    fn the_terminal_shows_the_whole_and_the_first_files_in_work_and_nothing_at_the_end() {
        let screen = InMemoryTerm::new(12, 100);
        let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
        let terminal = MultiProgress::with_draw_target(target);
        let mut bars = Bars::new(&terminal, "4711: ", End::Receiver);
        let mut snapshot = snapshot();
        for (name, done) in [("a", 1), ("b\u{1b}[2J", 2), ("c", 3), ("d", 4)] {
            snapshot
                .in_work
                .push(file(name, done * 1_000_000, Some(4_000_000)));
        }
        bars.draw(&snapshot, &rate(1_000_000));
        let shown = screen.contents();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 2 + TRANSFER_FILE_BARS_MAX, "{shown}");
        assert!(
            lines[0].ends_with(" 25 %  4711: 1.0 MB of 4.0 MB, 100 kB/s, 30 s left"),
            "{shown}"
        );
        assert_eq!(
            lines[1],
            "  7 of 1,200 files, by TCP, 192.0.2.1:4000, limited by reading at the sender"
        );
        assert!(lines[2].ends_with(" 25 %  1.0 MB of 4.0 MB  a"), "{shown}");
        assert!(
            lines[3].ends_with(r" 50 %  2.0 MB of 4.0 MB  b\u{1b}[2J"),
            "{shown}"
        );
        // The first one has come.
        snapshot.in_work.remove(0);
        snapshot.in_work.truncate(1);
        bars.draw(&snapshot, &rate(1_000_000));
        let shown = screen.contents();
        assert_eq!(shown.lines().count(), 3, "{shown}");
        assert!(shown.ends_with(r" 50 %  2.0 MB of 4.0 MB  b\u{1b}[2J"), "{shown}");
        snapshot.in_work = vec![file("standard input", 5_000_000, None)];
        bars.draw(&snapshot, &rate(1_000_000));
        let shown = screen.contents();
        assert!(shown.ends_with("\n  5.0 MB  standard input"), "{shown}");
        drop(bars);
        assert_eq!(screen.contents(), "");
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_says_how_long_the_rest_takes() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut rate = Rate::new(start);
        let mut left = Snapshot::default();
        left.manifest_complete = true;
        left.bytes_total = 3_000;
        assert_eq!(rate.seconds_left(&left), None);
        for number in 1..=20 {
            rate.take(start + second * number, 1_000 * u64::from(number));
        }
        assert!((rate.bytes_per_second() - 1_000.0).abs() < 1e-6);
        assert!((rate.seconds_left(&left).unwrap() - 3.0).abs() < 1e-6);
        for number in 21..=30 {
            rate.take(start + second * number, 20_000);
        }
        assert_eq!(rate.seconds_left(&left), None);
    }
}
