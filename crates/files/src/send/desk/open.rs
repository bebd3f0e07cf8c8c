//! One entry that is open: which of its chunks are to be sent or hashed, and which addresses are known.

use std::ops::Range;
use std::sync::Arc;

use files_proto::Ranges;
use files_proto::content::{Address, RootBuilder, chunk_count};
use files_proto::limits::CHUNK_BYTES;

use crate::source::Source;

/// What is offered.
pub(in crate::send) enum Offered {
    File(Arc<Source>),
    /// A directory, a link or a pipe.
    Other {
        /// For people: below what the user named.
        name: String,
    },
}

/// A file, or another entry, from when it is offered until it ends.
pub(super) struct Open {
    /// Of a file.
    pub(super) source: Option<Arc<Source>>,
    /// For people: below what the user named.
    name: String,
    /// To be sent.
    pub(super) wanted: Ranges,
    /// Whether it waits among the small files that are to be sent.
    pub(super) is_in_small: bool,
    /// Whether it waits among the others.
    pub(super) is_in_chunks: bool,
    /// To be hashed only.
    pub(super) unhashed: Ranges,
    /// Chunks that threads have in their hands.
    pub(super) in_hands: u64,
    /// By chunk, as far as they are known.
    pub(super) addresses: Vec<Option<Address>>,
    pub(super) known: u64,
    pub(super) is_asked: bool,
    pub(super) is_wanted: bool,
    /// Bytes that may have to come still.
    pub(super) left: u64,
    /// Bytes that were not counted so far, as come or as there: each is counted once, whatever is wanted.
    pub(super) uncounted: u64,
    /// Behind the last chunk that was wanted so far: receivers want in order (FILE-14), so that chunks before it are
    /// there, and those behind may be wanted still.
    wanted_until: u64,
    is_told: bool,
}

/// What is left to do for a file after a step.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::send) enum Step {
    /// Chunks are missing.
    More,
    /// The last chunk has been read: this is the file's hash.
    Complete { root: Address },
    /// All addresses are known that the receiver asked for.
    Answer { addresses: Vec<Address> },
    /// A chunk that was read again is another one than before.
    Changed,
}

impl Open {
    /// Addresses of its chunks that are known from before come with it.
    pub(super) fn new(offered: Offered, known: Vec<Option<Address>>) -> Self {
        let (source, name) = match offered {
            Offered::File(source) => (Some(source), String::new()),
            Offered::Other { name } => (None, name),
        };
        let left = source.as_ref().map_or(0, |source| source.stamp.size);
        let chunks = chunk_count(left);
        let mut addresses = known;
        addresses.resize(usize::try_from(chunks).unwrap_or(usize::MAX), None);
        let known = addresses.iter().flatten().count() as u64;
        Self {
            source,
            name,
            wanted: Ranges::new(),
            is_in_small: false,
            is_in_chunks: false,
            unhashed: Ranges::new(),
            in_hands: 0,
            addresses,
            known,
            is_asked: false,
            is_wanted: false,
            left,
            uncounted: left,
            wanted_until: 0,
            is_told: false,
        }
    }

    /// For people.
    pub(super) fn name(&self) -> &str {
        self.source.as_ref().map_or(&self.name, |source| &source.name)
    }

    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.stamp.size)
    }

    /// These chunks are wanted: how many bytes the receiver has by that.
    pub(super) fn want(&mut self, chunks: &Ranges) -> u64 {
        let mut there = 0;
        for range in chunks.iter() {
            there += self.bytes(self.wanted_until..range.start);
            self.wanted_until = self.wanted_until.max(range.end);
            self.wanted.insert(range);
        }
        let wanted = self.wanted.iter().map(|range| self.bytes(range)).sum();
        // What is wanted once more has been counted before.
        self.left = self.left.saturating_sub(there).max(wanted);
        self.count(there)
    }

    /// Counts bytes that the receiver has: those that had not been counted.
    pub(super) fn count(&mut self, bytes: u64) -> u64 {
        let counted = bytes.min(self.uncounted);
        self.uncounted -= counted;
        counted
    }

    fn bytes(&self, chunks: Range<u64>) -> u64 {
        let [start, end] = [chunks.start, chunks.end].map(|chunk| (chunk * CHUNK_BYTES).min(self.size()));
        end.saturating_sub(start)
    }

    /// Whether the addresses of all chunks are known.
    pub(super) fn is_known(&self) -> bool {
        self.known == self.addresses.len() as u64
    }

    /// A chunk has been read, which has this address.
    pub(super) fn read(&mut self, index: u64, address: Address) -> Step {
        let place = usize::try_from(index)
            .ok()
            .and_then(|index| self.addresses.get_mut(index));
        match place {
            Some(place @ None) => {
                *place = Some(address);
                self.known += 1;
            }
            Some(Some(before)) if *before == address => {}
            _ => return Step::Changed,
        }
        if let Some(addresses) = self.answer() {
            return Step::Answer { addresses };
        }
        self.completion()
    }

    /// Everything that is neither known nor to be sent is to be hashed.
    pub(super) fn hash_the_rest(&mut self) {
        let mut rest = Ranges::new();
        for (index, address) in self.addresses.iter().enumerate() {
            let index = index as u64;
            if address.is_none() && (self.is_asked || !self.wanted.contains(index)) {
                rest.insert(index..index + 1);
            }
        }
        self.unhashed = rest;
    }

    /// The addresses, once all are known and the receiver has asked for them.
    pub(super) fn answer(&mut self) -> Option<Vec<Address>> {
        if !self.is_asked || !self.is_known() {
            return None;
        }
        self.is_asked = false;
        self.addresses.iter().copied().collect()
    }

    /// Tells once that the file is complete.
    pub(super) fn completion(&mut self) -> Step {
        let is_complete = self.is_wanted && self.is_known() && self.wanted.is_empty() && self.in_hands == 0;
        if !is_complete || std::mem::replace(&mut self.is_told, true) {
            return Step::More;
        }
        let mut builder = RootBuilder::default();
        for (index, address) in self.addresses.iter().enumerate() {
            if let Some(address) = address {
                builder.insert(index as u64, *address);
            }
        }
        builder
            .root(self.addresses.len() as u64)
            .map_or(Step::More, |root| Step::Complete { root })
    }
}
