//! Which stream is read next where not all can be: found without a look at the others, however many a peer keeps
//! waiting.

use std::collections::{BTreeMap, BTreeSet};

use quic::StreamId;

/// A channel, and the position in it that a message waits for.
pub(super) type Wait = (u32, u64);

#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Streams that wait for no message, as far as is known of them.
    ready: BTreeSet<StreamId>,
    waiting: BTreeMap<Wait, BTreeSet<StreamId>>,
    /// Streams of both kinds that were left unread for want of room.
    held_back: BTreeSet<StreamId>,
}

impl Turns {
    /// A stream of which nothing is known yet.
    pub(super) fn opened(&mut self, stream: StreamId) {
        self.ready.insert(stream);
    }

    /// The stream's message waits for another one.
    pub(super) fn waits(&mut self, stream: StreamId, wait: Wait) {
        self.ready.remove(&stream);
        self.waiting.entry(wait).or_default().insert(stream);
    }

    /// The messages of `channel` up to `position` wait no longer.
    pub(super) fn resolved(&mut self, channel: u32, position: u64) {
        let is_over = |wait: &Wait| *wait <= (channel, position);
        while let Some((wait, _)) = self.waiting.range((channel, 0)..).next()
            && is_over(wait)
        {
            let wait = *wait;
            let mut streams = self.waiting.remove(&wait).unwrap_or_default();
            self.ready.append(&mut streams);
        }
    }

    /// The stream is gone; `wait` is what its message would wait for, if its head came.
    pub(super) fn forget(&mut self, stream: StreamId, wait: Option<Wait>) {
        self.ready.remove(&stream);
        self.held_back.remove(&stream);
        if let Some(wait) = wait
            && let Some(streams) = self.waiting.get_mut(&wait)
        {
            streams.remove(&stream);
            if streams.is_empty() {
                self.waiting.remove(&wait);
            }
        }
    }

    /// The oldest stream that waits for no message.
    pub(super) fn first(&self) -> Option<StreamId> {
        self.ready.first().copied()
    }

    pub(super) fn hold_back(&mut self, stream: StreamId) {
        self.held_back.insert(stream);
    }

    pub(super) fn is_held_back(&self, stream: StreamId) -> bool {
        self.held_back.contains(&stream)
    }

    pub(super) fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Takes a stream that was held back and can be read: where `is_over`, only the oldest that waits for none.
    pub(super) fn take(&mut self, is_over: bool) -> Option<StreamId> {
        let stream = if is_over {
            self.first()?
        } else {
            *self.held_back.first()?
        };
        self.held_back.remove(&stream).then_some(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u64) -> StreamId {
        StreamId::from(number * 4 + 2)
    }

    #[test]
    fn streams_that_wait_for_others_are_not_read_again_before_those_have_come() {
        let mut turns = Turns::default();
        for number in 0..100 {
            turns.opened(stream(number));
            turns.waits(stream(number), (7, number + 1));
            turns.hold_back(stream(number));
        }
        assert_eq!(turns.take(true), None);
        turns.resolved(6, 50);
        turns.resolved(8, 50);
        assert_eq!(turns.take(true), None);
        turns.resolved(7, 2);
        assert_eq!(turns.take(true), Some(stream(0)));
        // It goes on to be the one that is read, and is not to be read again before more of it has come.
        assert_eq!((turns.take(true), turns.first()), (None, Some(stream(0))));
        turns.forget(stream(0), Some((7, 1)));
        assert_eq!(turns.take(true), Some(stream(1)));
        assert_eq!(turns.take(false), Some(stream(2)));
        for number in 1..100 {
            turns.forget(stream(number), Some((7, number + 1)));
        }
        assert!(turns.ready.is_empty() && turns.waiting.is_empty() && turns.held_back.is_empty());
    }
}
