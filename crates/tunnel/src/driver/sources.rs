//! Descriptors of a shard that belong to no request: a client's listeners, its news of the network, connections that
//! have no target yet.
//!
//! Each has a slot, the interest that the poller knows, and perhaps a deadline; each kind has counters. What a source
//! is and does, its role says. A slot that is used again has another generation: an event that was on its way when a
//! source was closed finds nobody. Deadlines are in order, so that the next one is known without a look at the others.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use packet_io::{Interest, Poller};

use super::PollToken;
use crate::snapshot::SourceCounters;

/// A descriptor and what its role knows about it.
pub(super) trait Source {
    /// The same one as long as the source lives.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What it is counted as.
    fn kind(&self) -> &'static str;
}

/// A role that has none.
impl Source for Infallible {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match *self {}
    }

    fn kind(&self) -> &'static str {
        match *self {}
    }
}

/// One source among all that were ever there, but for the wrap-around of the generations of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SourceId {
    slot: u32,
    generation: u32,
}

const GENERATION_BITS: u32 = 24;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

impl SourceId {
    /// Bits of [`SourceId::to_bits`].
    pub(super) const BITS: u32 = u32::BITS + GENERATION_BITS;

    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.generation) << u32::BITS | u64::from(self.slot)
    }

    pub(super) fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            generation: (bits >> u32::BITS) as u32 & GENERATION_MASK,
        }
    }
}

/// Why a source cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotWatched {
    /// [`crate::limits::SOURCES_MAX`].
    #[error("the shard has no room for another descriptor")]
    NoRoom,
    /// The poller's refusal.
    #[error(transparent)]
    Poller(#[from] io::Error),
}

struct Entry<S> {
    source: S,
    interest: Interest,
    deadline: Option<Instant>,
    counters: SourceCounters,
}

struct Slot<S> {
    generation: u32,
    entry: Option<Entry<S>>,
}

/// The sources of one shard.
pub(super) struct Sources<S> {
    slots: Vec<Slot<S>>,
    /// Slots without a source.
    free: Vec<u32>,
    slots_max: usize,
    deadlines: BTreeSet<(Instant, SourceId)>,
    /// By kind: what those that are closed have counted.
    past: BTreeMap<&'static str, SourceCounters>,
}

impl<S: Source> Sources<S> {
    pub(super) fn new(slots_max: usize) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            slots_max,
            deadlines: BTreeSet::new(),
            past: BTreeMap::new(),
        }
    }

    /// Takes a source up and has the poller watch it.
    pub(super) fn insert(
        &mut self,
        poller: &Poller,
        source: S,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> Result<SourceId, NotWatched> {
        let id = self.vacant()?;
        watch(poller, &source, id, Interest::NONE, interest)?;
        if self.free.last() == Some(&id.slot) {
            self.free.pop();
        } else {
            self.slots.push(Slot {
                generation: id.generation,
                entry: None,
            });
        }
        self.slots[id.slot as usize].entry = Some(Entry {
            source,
            interest,
            deadline: None,
            counters: SourceCounters {
                open: 1,
                total: 1,
                ..SourceCounters::default()
            },
        });
        self.set_deadline(id, deadline);
        Ok(id)
    }

    /// The ID that the next source gets.
    fn vacant(&self) -> Result<SourceId, NotWatched> {
        if let Some(&slot) = self.free.last() {
            let generation = self.slots[slot as usize].generation;
            return Ok(SourceId { slot, generation });
        }
        let slot = u32::try_from(self.slots.len()).map_err(|_| NotWatched::NoRoom)?;
        if self.slots.len() >= self.slots_max {
            return Err(NotWatched::NoRoom);
        }
        Ok(SourceId { slot, generation: 0 })
    }

    /// Closes the entry; the source is its caller's, and the poller knows it no longer.
    pub(super) fn remove(&mut self, poller: &Poller, id: SourceId) -> Option<S> {
        self.set_deadline(id, None);
        let slot = self.slots.get_mut(id.slot as usize)?;
        let entry = slot.entry.take_if(|_| slot.generation == id.generation)?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(id.slot);
        // A descriptor that the poller has lost already is as good.
        let _ = watch(poller, &entry.source, id, entry.interest, Interest::NONE);
        *self.past.entry(entry.source.kind()).or_default() += SourceCounters {
            open: 0,
            ..entry.counters
        };
        Some(entry.source)
    }

    /// An event has come. Whether its source is still there.
    pub(super) fn take_event(&mut self, id: SourceId) -> bool {
        let entry = self.entry_mut(id);
        entry.map(|entry| entry.counters.events += 1).is_some()
    }

    pub(super) fn get_mut(&mut self, id: SourceId) -> Option<&mut S> {
        self.entry_mut(id).map(|entry| &mut entry.source)
    }

    pub(super) fn get(&self, id: SourceId) -> Option<&S> {
        let slot = self.slots.get(id.slot as usize)?;
        let entry = slot.entry.as_ref()?;
        (slot.generation == id.generation).then_some(&entry.source)
    }

    fn entry_mut(&mut self, id: SourceId) -> Option<&mut Entry<S>> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.entry.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (SourceId, &mut S)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let id = SourceId {
                slot: index as u32,
                generation: slot.generation,
            };
            slot.entry.as_mut().map(|entry| (id, &mut entry.source))
        })
    }

    /// Changes what the poller watches. With [`Interest::NONE`] it reports nothing, not even a hang-up.
    pub(super) fn set_interest(
        &mut self,
        poller: &Poller,
        id: SourceId,
        interest: Interest,
    ) -> io::Result<()> {
        let Some(entry) = self.entry_mut(id) else {
            return Ok(());
        };
        if entry.interest != interest {
            watch(poller, &entry.source, id, entry.interest, interest)?;
            entry.interest = interest;
        }
        Ok(())
    }

    /// Has [`Sources::poll_due`] name the source at this time, or never.
    pub(super) fn set_deadline(&mut self, id: SourceId, deadline: Option<Instant>) {
        let Some(entry) = self.entry_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut entry.deadline, deadline);
        if let Some(before) = before {
            self.deadlines.remove(&(before, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }

    /// The earliest deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A source whose deadline has passed; it has none from here on.
    pub(super) fn poll_due(&mut self, now: Instant) -> Option<SourceId> {
        let (_, id) = *self.deadlines.first().filter(|(deadline, _)| *deadline <= now)?;
        self.set_deadline(id, None);
        self.entry_mut(id)?.counters.deadlines += 1;
        Some(id)
    }

    /// By kind, those that are closed included.
    pub(super) fn counters(&self) -> BTreeMap<&'static str, SourceCounters> {
        let mut sum = self.past.clone();
        for entry in self.slots.iter().filter_map(|slot| slot.entry.as_ref()) {
            *sum.entry(entry.source.kind()).or_default() += entry.counters;
        }
        sum
    }
}

/// Takes the poller from one interest to another; without any, the poller does not know the descriptor: it would go on
/// to report hang-ups.
fn watch(
    poller: &Poller,
    source: &impl Source,
    id: SourceId,
    before: Interest,
    after: Interest,
) -> io::Result<()> {
    let (descriptor, token) = (source.descriptor(), PollToken::Source(id).encode());
    match (before == Interest::NONE, after == Interest::NONE) {
        (true, true) => Ok(()),
        (true, false) => poller.add(&descriptor, token, after),
        (false, true) => poller.remove(&descriptor),
        (false, false) => poller.modify(&descriptor, token, after),
    }
}

#[cfg(test)]
mod tests;
