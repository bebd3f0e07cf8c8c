//! The order in which messages can be read: channels, latest values, and the queue of what the program reads.

use std::collections::BTreeMap;
use std::time::Instant;

use super::kept::{Kept, cost};
use super::{Receiver, Violation};
use crate::delivery::{Order, Received};
use crate::frame::{Head, Place};
use crate::limits::{ACK_DELAY, CHANNELS_MAX, FIRST_CREDIT, KEYS_MAX, MESSAGE_COST_BYTES, WINDOW_NUMBERS};

#[derive(Debug, Default)]
pub(super) struct Channel {
    /// The highest position that was delivered or skipped.
    pub(super) resolved: u64,
    /// Later ones, which wait; without a body where skipped.
    pub(super) held: BTreeMap<u64, (Place, Option<Kept>)>,
}

impl Receiver {
    /// Whether a message can be delivered as soon as it is whole.
    pub(crate) fn is_next(&self, head: Head) -> bool {
        match head {
            Head::Unordered | Head::Latest { .. } => true,
            Head::Ordered(place) => {
                let channel = self.channels.get(&place.channel);
                place.waits_for() <= channel.map_or(0, |channel| channel.resolved)
            }
        }
    }

    pub(super) fn deliver(&mut self, head: Head, kept: Kept) -> Result<(), Violation> {
        self.counters.received += 1;
        match head {
            Head::Unordered => self.enqueue(Order::Unordered, kept, false),
            Head::Ordered(place) => self.place(place, Some(kept))?,
            Head::Latest { key, version } => self.replace(key, version, kept)?,
        }
        Ok(())
    }

    /// Takes a message of a channel, or its absence, and delivers what it was waited for.
    pub(super) fn place(&mut self, place: Place, kept: Option<Kept>) -> Result<(), Violation> {
        if !self.channels.contains_key(&place.channel) && self.channels.len() >= CHANNELS_MAX {
            return Err("too many ordered channels");
        }
        let counts = kept.is_some();
        let channel = self.channels.entry(place.channel).or_default();
        if place.position <= channel.resolved || channel.held.contains_key(&place.position) {
            self.counters.overtaken += u64::from(counts);
            return Ok(());
        }
        self.held_bytes += cost(kept.as_ref());
        self.counters.held += u64::from(counts);
        channel.held.insert(place.position, (place, kept));
        let mut ready = Vec::new();
        while let Some(first) = channel.held.first_entry()
            && first.get().0.waits_for() <= channel.resolved
        {
            let (place, kept) = first.remove();
            channel.resolved = place.position;
            ready.push(kept);
        }
        if !ready.is_empty() {
            self.advanced.insert(place.channel);
        }
        self.release(place.channel, ready, false);
        Ok(())
    }

    /// Lets messages of a channel be read.
    fn release(&mut self, channel: u32, ready: impl IntoIterator<Item = Option<Kept>>, is_behind_gap: bool) {
        for kept in ready {
            self.held_bytes -= cost(kept.as_ref());
            if let Some(kept) = kept {
                self.counters.held -= 1;
                self.enqueue(Order::Ordered(channel), kept, is_behind_gap);
            }
        }
    }

    /// The connection has ended: nothing comes any more that messages could wait for.
    pub(crate) fn end(&mut self) {
        for (channel, of_channel) in std::mem::take(&mut self.channels) {
            let waiting = of_channel.held.into_values().map(|(_, kept)| kept);
            self.release(channel, waiting, true);
        }
    }

    fn replace(&mut self, key: u32, version: u64, kept: Kept) -> Result<(), Violation> {
        if !self.latest.contains_key(&key) && self.latest.len() >= KEYS_MAX {
            return Err("too many keys of latest values");
        }
        let (newest, queued) = self.latest.entry(key).or_default();
        if version <= *newest {
            self.counters.superseded += 1;
            return Ok(());
        }
        *newest = version;
        let next = self.read + self.queue.len() as u64;
        let waiting = queued.filter(|place| *place >= self.read);
        *queued = Some(waiting.unwrap_or(next));
        match waiting {
            Some(place) => {
                let (older, bytes) = &mut self.queue[(place - self.read) as usize];
                self.queued_bytes = self.queued_bytes - *bytes + kept.bytes;
                (older.body, *bytes) = (kept.body, kept.bytes);
                self.counters.superseded += 1;
            }
            None => self.enqueue(Order::Latest(key), kept, false),
        }
        Ok(())
    }

    fn enqueue(&mut self, order: Order, kept: Kept, is_behind_gap: bool) {
        self.queued_bytes += cost(Some(&kept));
        let received = Received {
            body: kept.body,
            order,
            is_behind_gap,
        };
        self.queue.push_back((received, kept.bytes));
    }

    /// Messages that can be read.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The next message.
    pub(crate) fn read(&mut self, now: Instant) -> Option<Received> {
        let (received, bytes) = self.queue.pop_front()?;
        self.read += 1;
        self.counters.delivered += 1;
        self.queued_bytes -= bytes + MESSAGE_COST_BYTES;
        // A sender that waits for credit hears of room before it has used up the rest.
        let step = if self.queue.is_empty() {
            FIRST_CREDIT / 2
        } else {
            WINDOW_NUMBERS / 32
        };
        if self.credit_now() >= self.credit + step {
            self.ack_due.get_or_insert(now + ACK_DELAY);
        }
        Some(received)
    }

    /// Channels that went on since the last question, each with the position up to which nothing waits any more.
    pub(crate) fn take_advanced(&mut self) -> impl Iterator<Item = (u32, u64)> {
        let channels = &self.channels;
        std::mem::take(&mut self.advanced)
            .into_iter()
            .filter_map(|number| channels.get(&number).map(|channel| (number, channel.resolved)))
    }
}
