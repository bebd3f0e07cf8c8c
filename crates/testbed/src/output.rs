//! What a program prints: both outputs, read by threads so that the program never blocks on them, kept up to a bound.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::{LINE_BYTES_MAX, OUTPUT_BYTES_MAX, POLL_INTERVAL};

/// One of the two outputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The outputs of one program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    texts: Mutex<[Text; 2]>,
    changed: Condvar,
}

/// A line without the time that programs put before it where nobody watches: `2026-01-31T23:59:59.123Z `.
fn without_time(line: &str) -> &str {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000Z ";
    let fits = |(byte, shape): (u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == *shape,
    };
    let has_time = line.len() >= SHAPE.len() && line.bytes().zip(SHAPE).all(fits);
    if has_time { &line[SHAPE.len()..] } else { line }
}

/// The last of what came through one pipe: finished lines, and what stood behind the last one when the pipe ended.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Whether nothing more can come.
    pub(crate) is_complete: bool,
    /// Bytes that [`Output::next_line`] has passed.
    passed: usize,
}

impl Text {
    /// Appends; where it becomes too long, the older half goes.
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > OUTPUT_BYTES_MAX {
            let cut = self
                .text
                .floor_char_boundary(self.text.len() - OUTPUT_BYTES_MAX / 2);
            self.text.drain(..cut);
            self.passed = self.passed.saturating_sub(cut);
        }
    }
}

impl Output {
    /// Reads a pipe until it ends.
    pub(crate) fn read(&self, stream: Stream, pipe: impl Read + Send + 'static) {
        let output = self.clone();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while let Ok(1..) = pipe.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                output.texts()[stream as usize].push(without_time(&String::from_utf8_lossy(&line)));
                line.clear();
                output.0.changed.notify_all();
            }
            output.texts()[stream as usize].is_complete = true;
            output.0.changed.notify_all();
        });
    }

    /// Waits until `find` gives something; it is asked again when more has come, and now and then. `None` when `limit`
    /// passes first.
    pub(crate) fn wait_for<T>(
        &self,
        limit: Duration,
        mut find: impl FnMut(&mut [Text; 2]) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut texts = self.texts();
        loop {
            let found = find(&mut texts);
            let rest = deadline.saturating_duration_since(Instant::now());
            if found.is_some() || rest.is_zero() {
                return found;
            }
            let waited = self.0.changed.wait_timeout(texts, rest.min(POLL_INTERVAL));
            texts = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The first line behind those already passed that `wanted` accepts, or `None` when time is over or the output has
    /// ended.
    pub(crate) fn next_line(
        &self,
        stream: Stream,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let next = |texts: &mut [Text; 2]| {
            let text = &mut texts[stream as usize];
            while let Some(line) = text.text[text.passed..].split_inclusive('\n').next() {
                text.passed += line.len();
                let line = line.trim_end_matches(['\n', '\r']);
                if wanted(line) {
                    return Some(Some(line.to_owned()));
                }
            }
            text.is_complete.then_some(None)
        };
        self.wait_for(limit, next).flatten()
    }

    /// All that one output has had so far.
    pub(crate) fn text(&self, stream: Stream) -> String {
        self.texts()[stream as usize].text.clone()
    }

    /// Whether nothing more can come of one output.
    pub(crate) fn is_complete(&self, stream: Stream) -> bool {
        self.texts()[stream as usize].is_complete
    }

    /// Waits until nothing more can come; `false` when `limit` passes first.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        let ended = |texts: &mut [Text; 2]| texts.iter().all(|text| text.is_complete).then_some(());
        self.wait_for(limit, ended).is_some()
    }

    fn texts(&self) -> MutexGuard<'_, [Text; 2]> {
        self.0.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_before_a_line_is_left_out() {
        assert_eq!(
            without_time("2026-01-31T23:59:59.123Z connected\n"),
            "connected\n"
        );
        for line in [
            "",
            "connected\n",
            "2026-01-31 23:59:59.123Z connected\n",
            "2026-01-31T23:59:59.123",
        ] {
            assert_eq!(without_time(line), line);
        }
    }

    #[test]
    fn of_too_much_output_the_last_is_kept_and_lines_go_on() {
        let mut text = Text::default();
        let line = "x".repeat(OUTPUT_BYTES_MAX / 4 - 1) + "\n";
        for _ in 0..4 {
            text.push(&line);
        }
        text.passed = text.text.len();
        text.push("the end\n");
        assert!(text.text.len() <= OUTPUT_BYTES_MAX);
        assert_eq!(&text.text[text.passed..], "the end\n");
    }
}
