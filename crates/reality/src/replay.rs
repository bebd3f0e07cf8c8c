//! Which hellos were accepted before, so that none is accepted twice: also after a restart, and when the clock jumps.
//!
//! Tags are kept in two generations. When the present one is two windows old, it becomes the previous one, whose tags
//! are forgotten: each is known for two windows at least, and four at most. Forgotten tags belong to hellos of some
//! time; a hello that is not later than all of them is refused, whatever the clock says. So is every hello up to one
//! window after the start where the file of the process before is lost, because a client's clock may be fast by a
//! window.
//!
//! One window serves all shards: its owner locks it, for hellos with a right tag only.

mod file;

use std::collections::BTreeSet;
use std::time::Duration;

pub use file::{BootId, RECORD_BYTES, begin_again};

use crate::limits;

/// `T` of QR1-5.
pub type Tag = [u8; 16];

/// Why a hello is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It was accepted before.
    Replayed,
    /// It might have been accepted before.
    Forgotten,
    /// There is no room for its tag.
    Full,
}

/// Tags that came in one stretch of time.
#[derive(Debug, Default)]
struct Generation {
    /// With the Unix times of their hellos and of their acceptance, in seconds.
    tags: BTreeSet<(Tag, u32, u32)>,
    /// The latest time of a hello.
    latest: Option<u32>,
}

impl Generation {
    fn has(&self, tag: &Tag) -> bool {
        self.tags
            .range((*tag, 0, 0)..)
            .next()
            .is_some_and(|(first, ..)| first == tag)
    }

    fn insert(&mut self, tag: Tag, time: u32, accepted: u32) {
        self.tags.insert((tag, time, accepted));
        self.latest = self.latest.max(Some(time));
    }
}

/// The tags of accepted hellos.
#[derive(Debug)]
pub struct ReplayWindow {
    window_seconds: u32,
    tags_max: usize,
    present: Generation,
    previous: Generation,
    /// Unix time at which the present generation began, in seconds.
    began: u32,
    /// Hellos up to this time are refused.
    floor: Option<u32>,
}

impl ReplayWindow {
    /// Of a server whose key is new, so that nobody can have been accepted before.
    #[must_use]
    pub fn new(now_unix: u32, window: Duration) -> Self {
        Self {
            window_seconds: window.min(limits::CLOCK_WINDOW_MAX).as_secs() as u32,
            tags_max: limits::REPLAY_TAGS_MAX,
            present: Generation::default(),
            previous: Generation::default(),
            began: now_unix,
            floor: None,
        }
    }

    /// Of a server whose clients' clocks may be off by `window`, either way. `file` is what the process before wrote,
    /// as far as there is a file; where that did not end in its own time and was of another boot of the machine, or the
    /// file is damaged, it counts as lost.
    #[must_use]
    pub fn restore(file: Option<&[u8]>, boot: &BootId, now_unix: u32, window: Duration) -> Self {
        let mut restored = Self::new(now_unix, window);
        match file.and_then(|bytes| file::read(bytes, boot)) {
            Some((floor, records)) => {
                restored.floor = floor;
                for (tag, time, accepted) in records {
                    restored.present.insert(tag, time, accepted);
                }
            }
            None => restored.floor = Some(now_unix.saturating_add(restored.window_seconds)),
        }
        restored
    }

    /// Accepts the hello of this tag and time, and remembers it. The bytes are to be appended to the file before the
    /// server answers.
    pub fn accept(&mut self, now_unix: u32, tag: &Tag, time: u32) -> Result<[u8; RECORD_BYTES], Refused> {
        self.turn(now_unix);
        if self.present.has(tag) || self.previous.has(tag) {
            return Err(Refused::Replayed);
        }
        if self.floor.is_some_and(|floor| time <= floor) {
            return Err(Refused::Forgotten);
        }
        if self.len() >= self.tags_max {
            return Err(Refused::Full);
        }
        self.present.insert(*tag, time, now_unix);
        Ok(file::record(tag, time, now_unix))
    }

    /// The whole file: to be written at the start, and before appending makes it longer than
    /// [`limits::REPLAY_FILE_BYTES_MAX`].
    #[must_use]
    pub fn to_file(&self, boot: &BootId) -> Vec<u8> {
        let records = self.previous.tags.iter().chain(&self.present.tags);
        file::write(boot, self.floor, records)
    }

    /// The whole file of a process that ends. It is to be on the disk before it has its name.
    #[must_use]
    pub fn to_last_file(&self, boot: &BootId) -> Vec<u8> {
        let mut bytes = self.to_file(boot);
        file::mark_ended(&mut bytes);
        bytes
    }

    /// Tags that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.tags.len() + self.previous.tags.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins new generations as time passes.
    fn turn(&mut self, now_unix: u32) {
        let age = now_unix.saturating_sub(self.began);
        let turns = match age / (2 * self.window_seconds + 1) {
            0 => return,
            1 => 1,
            _ => 2,
        };
        for _ in 0..turns {
            let forgotten = std::mem::replace(&mut self.previous, std::mem::take(&mut self.present));
            self.floor = self.floor.max(forgotten.latest);
        }
        self.began = now_unix;
    }
}

#[cfg(test)]
mod tests;
