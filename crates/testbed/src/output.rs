//! What a program prints: both outputs, read by threads so that the program never blocks on them, kept up to a bound.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::limits::{OUTPUT_BYTES_MAX, POLL_INTERVAL};

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

/// What came through one pipe: finished lines, and what stood behind the last one when the pipe ended.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Whether nothing more can come.
    pub(crate) is_complete: bool,
    /// Bytes that [`Output::next_line`] has passed.
    passed: usize,
}

impl Output {
    /// Reads a pipe until it ends.
    pub(crate) fn read(&self, stream: Stream, pipe: impl Read + Send + 'static) {
        let output = self.clone();
        thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            let mut line = Vec::new();
            while let Ok(1..) = pipe.read_until(b'\n', &mut line) {
                let text = &mut output.texts()[stream as usize].text;
                if text.len() + line.len() <= OUTPUT_BYTES_MAX {
                    text.push_str(&String::from_utf8_lossy(&line));
                }
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

    /// Waits until nothing more can come; `false` when `limit` passes first.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> bool {
        let ended = |texts: &mut [Text; 2]| texts.iter().all(|text| text.is_complete).then_some(());
        self.wait_for(limit, ended).is_some()
    }

    fn texts(&self) -> MutexGuard<'_, [Text; 2]> {
        self.0.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
