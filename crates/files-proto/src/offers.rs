//! The sender's account of what it has offered: how much more it may offer, and which answers of the receiver make
//! sense, whatever the receiver does (FILE-8, FILE-13, FILE-14).
//!
//! A receiver can make a sender read its files again by asking again, and keep it busy by asking for ever. What it may
//! want of a file is what the file has, a few times over; then it has had its share.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::content::chunk_count;
use crate::entry::{Entry, EntryId, Kind};
use crate::limits::{
    ASKED_TIMES_MAX, CHUNKS_OPEN_MAX, ENTRIES_OPEN_BYTES_MAX, ENTRIES_OPEN_MAX, WANTED_TIMES_MAX,
};
use crate::message::Message;
use crate::ranges::Ranges;

/// Entries that were offered and not answered to the end.
#[derive(Debug, Default)]
pub struct Offers {
    open: BTreeMap<EntryId, Open>,
    open_bytes: usize,
    open_chunks: u64,
    next: EntryId,
    bytes: u64,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    kept_bytes: usize,
    /// Of a file, as the receiver counts them.
    kept_chunks: u64,
    /// Chunks of a file; a pipe is wanted as one (FILE-15); of everything else none.
    chunks: u64,
    /// How many chunks were wanted, those wanted again included.
    wanted: u64,
    wanted_max: u64,
    asked: u32,
    asked_max: u32,
}

/// A receiver's answer that no receiver of this version gives: the transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// About an entry that was not offered.
    #[error("the other end answered about entry {0}, which was not offered: end the transfer")]
    NotOffered(EntryId),
    /// A chunk that the file does not have.
    #[error("the other end wants chunk {chunk} of entry {entry}, which does not have it: end the transfer")]
    NoChunk {
        /// The file.
        entry: EntryId,
        /// The chunk.
        chunk: u64,
    },
    /// The same again and again.
    #[error("the other end wants entry {0} again and again: end the transfer")]
    Again(EntryId),
}

impl Offers {
    /// Nothing offered yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is room to offer `entry` (FILE-8); otherwise the walk waits for answers.
    #[must_use]
    pub fn has_room(&mut self, entry: &Entry) -> bool {
        self.scratch.clear();
        entry.write(&mut self.scratch);
        self.open.len() < ENTRIES_OPEN_MAX
            && self.open_bytes + self.scratch.len() <= ENTRIES_OPEN_BYTES_MAX
            && self.open_chunks + chunk_count(entry.size()) <= CHUNKS_OPEN_MAX
    }

    /// `entry` is offered.
    ///
    /// # Panics
    /// When there is no room, or its number is not the next one.
    pub fn offer(&mut self, entry: &Entry) {
        assert!(
            entry.id == self.next && self.has_room(entry),
            "entries are offered in turn, where there is room"
        );
        self.next += 1;
        self.bytes += entry.size();
        self.open_bytes += self.scratch.len();
        self.open_chunks += chunk_count(entry.size());
        let chunks = match entry.kind {
            Kind::File { size } => chunk_count(size),
            Kind::Pipe => 1,
            Kind::Directory | Kind::Symlink { .. } => 0,
        };
        self.open.insert(
            entry.id,
            Open {
                kept_bytes: self.scratch.len(),
                kept_chunks: chunk_count(entry.size()),
                chunks,
                wanted: 0,
                wanted_max: if entry.kind == Kind::Pipe {
                    1
                } else {
                    chunks * WANTED_TIMES_MAX
                },
                asked_max: if entry.kind == Kind::Pipe {
                    0
                } else {
                    ASKED_TIMES_MAX
                },
                asked: 0,
            },
        );
    }

    /// What is told once everything has been offered.
    #[must_use]
    pub fn end(&self) -> Message {
        Message::OfferEnd {
            entries: self.next,
            bytes: self.bytes,
        }
    }

    /// A WANT came; `false` where the entry is done, and the WANT has crossed with its end.
    ///
    /// # Errors
    /// The transfer ends.
    pub fn handle_want(&mut self, entry: EntryId, chunks: &Ranges) -> Result<bool, AnswerError> {
        let Some(open) = self.open_entry(entry)? else {
            return Ok(false);
        };
        if let Some(chunk) = chunks.last().filter(|last| *last >= open.chunks) {
            return Err(AnswerError::NoChunk { entry, chunk });
        }
        // One of no chunk makes the sender read what is missing of the root, so that it counts as well.
        open.wanted += chunks.len().max(1);
        if open.wanted > open.wanted_max {
            return Err(AnswerError::Again(entry));
        }
        Ok(true)
    }

    /// An ASK came; `false` where the entry is done, and the ASK has crossed with its end.
    ///
    /// # Errors
    /// The transfer ends.
    pub fn handle_ask(&mut self, entry: EntryId) -> Result<bool, AnswerError> {
        let Some(open) = self.open_entry(entry)? else {
            return Ok(false);
        };
        open.asked += 1;
        if open.asked > open.asked_max || open.chunks == 0 {
            return Err(AnswerError::Again(entry));
        }
        Ok(true)
    }

    /// A SKIP or FAILED came, or the sender gave the entry up: it is done. `false` where it was done already.
    ///
    /// # Errors
    /// It was not offered: the transfer ends.
    pub fn finish(&mut self, entry: EntryId) -> Result<bool, AnswerError> {
        if self.open_entry(entry)?.is_none() {
            return Ok(false);
        }
        self.close(entry);
        Ok(true)
    }

    /// A STORED came: those of its entries that were open, each of which is done.
    ///
    /// # Errors
    /// One of them was not offered: the transfer ends.
    pub fn handle_stored(&mut self, entries: &Ranges) -> Result<Vec<EntryId>, AnswerError> {
        if entries.last().is_some_and(|last| last >= self.next) {
            return Err(AnswerError::NotOffered(self.next));
        }
        // Ranges may be long: what counts, and costs, is what is open in them.
        let stored: Vec<EntryId> = entries
            .iter()
            .flat_map(|range| self.open.range(range).map(|(entry, _)| *entry))
            .collect();
        for entry in &stored {
            self.close(*entry);
        }
        Ok(stored)
    }

    /// How many entries are open.
    #[must_use]
    pub fn open_entries(&self) -> usize {
        self.open.len()
    }

    /// `None` for one that is done.
    fn open_entry(&mut self, entry: EntryId) -> Result<Option<&mut Open>, AnswerError> {
        if entry >= self.next {
            return Err(AnswerError::NotOffered(entry));
        }
        Ok(self.open.get_mut(&entry))
    }

    fn close(&mut self, entry: EntryId) {
        if let Some(open) = self.open.remove(&entry) {
            self.open_bytes -= open.kept_bytes;
            self.open_chunks -= open.kept_chunks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: EntryId, kind: Kind) -> Entry {
        Entry {
            id,
            parent: None,
            name: b"name".to_vec(),
            kind,
            mode: 0o644,
            modified_ns: 0,
            attributes: Vec::new(),
            disk_bytes_min: 0,
        }
    }

    fn offers() -> Offers {
        let mut offers = Offers::new();
        offers.offer(&entry(0, Kind::File { size: (3 << 20) + 1 }));
        offers.offer(&entry(1, Kind::Directory));
        offers.offer(&entry(2, Kind::File { size: 5 }));
        offers.offer(&entry(3, Kind::Pipe));
        offers
    }

    fn ranges(range: std::ops::Range<u64>) -> Ranges {
        Ranges::from_range(range)
    }

    /// FILE-14: a receiver that asks for what is not offered.
    #[test]
    fn what_no_file_has_cannot_be_wanted() {
        let mut offers = offers();
        assert_eq!(offers.handle_want(0, &ranges(0..4)), Ok(true));
        assert_eq!(offers.handle_want(3, &ranges(0..1)), Ok(true));
        for (entry, chunk) in [(0, 4), (1, 0), (2, 1), (0, 1 << 40), (3, 1)] {
            let error = AnswerError::NoChunk { entry, chunk };
            assert_eq!(offers.handle_want(entry, &ranges(chunk..chunk + 1)), Err(error));
        }
        assert_eq!(
            offers.handle_want(4, &ranges(0..1)),
            Err(AnswerError::NotOffered(4))
        );
        assert_eq!(offers.handle_ask(4), Err(AnswerError::NotOffered(4)));
        assert_eq!(offers.finish(4), Err(AnswerError::NotOffered(4)));
        // What crosses with the end of an entry is no error.
        assert_eq!(offers.finish(0), Ok(true));
        assert_eq!(offers.handle_want(0, &ranges(0..1)), Ok(false));
        assert_eq!(offers.handle_ask(0), Ok(false));
        assert_eq!(offers.finish(0), Ok(false));
    }

    /// FILE-14: a receiver that asks for ever.
    #[test]
    fn a_file_is_sent_a_few_times_and_not_for_ever() {
        let mut offers = offers();
        for _ in 0..WANTED_TIMES_MAX {
            offers.handle_want(0, &ranges(0..4)).unwrap();
        }
        assert_eq!(offers.handle_want(0, &ranges(2..3)), Err(AnswerError::Again(0)));
        for _ in 0..ASKED_TIMES_MAX {
            offers.handle_ask(2).unwrap();
        }
        assert_eq!(offers.handle_ask(2), Err(AnswerError::Again(2)));
        assert_eq!(offers.handle_ask(1), Err(AnswerError::Again(1)));
    }

    /// FILE-14: what names no chunk is work as well, and what a program writes comes once.
    #[test]
    fn wants_of_no_chunk_and_of_a_pipe_are_bounded() {
        let mut offers = offers();
        offers.offer(&entry(4, Kind::File { size: 0 }));
        assert_eq!(offers.handle_want(4, &Ranges::new()), Err(AnswerError::Again(4)));
        for _ in 0..WANTED_TIMES_MAX {
            offers.handle_want(2, &Ranges::new()).unwrap();
        }
        assert_eq!(offers.handle_want(2, &Ranges::new()), Err(AnswerError::Again(2)));
        offers.handle_want(3, &ranges(0..1)).unwrap();
        assert_eq!(offers.handle_want(3, &ranges(0..1)), Err(AnswerError::Again(3)));
        assert_eq!(offers.handle_ask(3), Err(AnswerError::Again(3)));
    }

    /// FILE-13: one range may name everything at once, and costs nothing beyond what is open.
    #[test]
    fn entries_are_stored_by_ranges_of_what_is_open() {
        let mut offers = offers();
        assert_eq!(
            offers.handle_stored(&ranges(0..1 << 61)),
            Err(AnswerError::NotOffered(4))
        );
        assert_eq!(offers.open_entries(), 4);
        offers.finish(1).unwrap();
        assert_eq!(offers.handle_stored(&ranges(0..3)), Ok(vec![0, 2]));
        assert_eq!(offers.handle_stored(&ranges(0..4)), Ok(vec![3]));
        assert_eq!((offers.open_entries(), offers.open_bytes), (0, 0));
        assert_eq!(offers.handle_stored(&ranges(0..4)), Ok(Vec::new()));
    }

    /// FILE-8.
    #[test]
    fn a_sender_offers_no_more_than_a_receiver_keeps() {
        let mut offers = Offers::new();
        let mut manifest = crate::manifest::Manifest::new(crate::name::Rules::default());
        for long in [false, true] {
            loop {
                let id = offers.next;
                let target = vec![b'x'; if long { 4_000 } else { 1 }];
                let entry = Entry {
                    name: id.to_string().into_bytes(),
                    ..entry(id, Kind::Symlink { target })
                };
                if !offers.has_room(&entry) {
                    assert!(manifest.handle_entry(entry).is_err());
                    break;
                }
                offers.offer(&entry);
                manifest.handle_entry(entry).unwrap().unwrap();
            }
            for id in 0..offers.next {
                if offers.finish(id) == Ok(true) {
                    manifest.finish(id);
                }
            }
        }
        let size = crate::limits::FILE_BYTES_MAX;
        for room in [true, true, false] {
            let entry = Entry {
                name: offers.next.to_string().into_bytes(),
                ..entry(offers.next, Kind::File { size })
            };
            assert_eq!(offers.has_room(&entry), room);
            if room {
                offers.offer(&entry);
            }
            assert_eq!(manifest.handle_entry(entry).is_ok(), room);
        }
        offers.finish(offers.next - 1).unwrap();
        assert!(offers.has_room(&entry(offers.next, Kind::File { size })));
        assert_eq!(
            offers.end(),
            Message::OfferEnd {
                entries: offers.next,
                bytes: 2 * size
            }
        );
    }
}
