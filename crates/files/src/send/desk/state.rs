//! What is left to send, as plain data: entries that are open, their chunks that are wanted or to be hashed, and those
//! under way. No lock, no clock, no file: sources are passed on as they came.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use files_proto::content::{Address, chunk_length};
use files_proto::limits::{PACK_BYTES_MAX, PACK_FILES_MAX, PACKED_FILE_BYTES_MAX};
use files_proto::message::{Message, Totals};
use files_proto::offers::{AnswerError, Offers};
use files_proto::{Entry, EntryId, Ranges, pack};

use super::open::{Offered, Open, Step};
use crate::carrier::Carrier;
use crate::source::Source;
use crate::walk::Stamp;

/// Number of a carrier's thread.
pub(in crate::send) type Lane = usize;

/// Something for a carrier's thread to do.
pub(in crate::send) enum Job {
    /// Read a chunk and send it.
    Send { source: Arc<Source>, index: u64 },
    /// Read a chunk, because its address is needed.
    Hash { source: Arc<Source>, index: u64 },
    /// Read small files and send them together.
    Pack(Vec<Arc<Source>>),
}

/// What a carrier's thread does next.
pub(in crate::send) enum Next {
    Job(Job),
    /// It looks whether its carrier is still there.
    Nothing,
    /// The transfer is over.
    Over,
}

/// All entries that are open, and what is to be done for them.
#[derive(Default)]
pub(super) struct State {
    offers: Offers,
    open: BTreeMap<EntryId, Open>,
    /// Files with chunks to send.
    chunks: VecDeque<EntryId>,
    /// Files with chunks to hash, after all that are to be sent.
    hashes: VecDeque<EntryId>,
    /// Small files that are wanted, and some that have ended meanwhile.
    small: VecDeque<EntryId>,
    /// Without those that have ended.
    small_bytes: u64,
    under_way: BTreeMap<(EntryId, u64), (Lane, Carrier)>,
    /// What waits to be sent once more, and the carrier that had it, by which it may have arrived all the same.
    again: BTreeMap<(EntryId, u64), Carrier>,
    /// Carriers that take work.
    allowed: Vec<Carrier>,
    /// Whether TCP brings nothing of what it has.
    is_tcp_silent: bool,
    /// Files of which threads have chunks in their hands, and how many of them there may be.
    reading: usize,
    reading_max: Option<usize>,
    is_offered: bool,
    is_over: bool,
    totals: Totals,
    /// Bytes of all files that may have to come still.
    left: u64,
}

/// Bytes that the receiver has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::send) struct Arrived {
    pub(in crate::send) quic: u64,
    pub(in crate::send) tcp: u64,
    /// Of what was sent, what had been counted before: chunks that were wanted again, or out of order.
    pub(in crate::send) again: u64,
    /// Not sent.
    pub(in crate::send) there: u64,
}

impl Arrived {
    fn add(&mut self, carrier: Carrier, bytes: u64) {
        match carrier {
            Carrier::Quic => self.quic += bytes,
            Carrier::Tcp => self.tcp += bytes,
        }
    }

    /// What was sent.
    pub(in crate::send) fn came(self) -> u64 {
        self.quic + self.tcp
    }
}

/// An entry that has come to its end.
pub(in crate::send) struct Ended {
    /// Of a file.
    pub(in crate::send) source: Option<Arc<Source>>,
    /// For people.
    pub(in crate::send) name: String,
    /// What of it arrived without being acknowledged.
    pub(in crate::send) arrived: Arrived,
}

/// How an entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::send) enum End {
    Stored,
    Skipped,
    Failed,
}

impl State {
    /// Whether an entry may be offered.
    pub(super) fn has_room(&mut self, entry: &Entry) -> bool {
        self.offers.has_room(entry)
    }

    /// Takes an entry that is offered; addresses of its chunks that are known from before come with it.
    pub(super) fn offer(&mut self, entry: &Entry, offered: Offered, known: Vec<Option<Address>>) {
        self.offers.offer(entry);
        let open = Open::new(offered, known);
        self.left += open.left;
        self.open.insert(entry.id, open);
    }

    /// Something that was to be sent is not offered.
    pub(super) fn leave_out(&mut self) {
        self.totals.failed += 1;
    }

    /// Everything has been offered: what is told then.
    pub(super) fn end_offer(&mut self) -> Message {
        self.is_offered = true;
        self.offers.end()
    }

    /// Whether every entry has come to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.is_offered && self.offers.open_entries() == 0
    }

    /// The receiver wants chunks: how many bytes it has by that.
    pub(super) fn want(&mut self, entry: EntryId, chunks: &Ranges) -> Result<u64, AnswerError> {
        let is_open = self.offers.handle_want(entry, chunks)?;
        if !is_open {
            return Ok(0);
        }
        let Some(open) = self.open.get_mut(&entry) else {
            // It failed meanwhile.
            return Ok(0);
        };
        let Some(source) = &open.source else { return Ok(0) };
        let size = source.stamp.size;
        let is_first = !std::mem::replace(&mut open.is_wanted, true);
        if size <= PACKED_FILE_BYTES_MAX {
            // What wants nothing gets nothing.
            if chunks.is_empty() {
                return Ok(0);
            }
            if !std::mem::replace(&mut open.is_in_small, true) {
                self.small.push_back(entry);
                self.small_bytes += size;
            }
            return Ok(0);
        }
        // What it had of them it has lost.
        for range in chunks.iter() {
            let lost = self.again.range((entry, range.start)..(entry, range.end));
            let lost: Vec<(EntryId, u64)> = lost.map(|(chunk, _)| *chunk).collect();
            for chunk in lost {
                self.again.remove(&chunk);
            }
        }
        self.left -= open.left;
        let there = open.want(chunks);
        self.left += open.left;
        if !std::mem::replace(&mut open.is_in_chunks, true) {
            self.chunks.push_back(entry);
        }
        if is_first && !open.is_known() {
            open.hash_the_rest();
            if !open.unhashed.is_empty() {
                self.hashes.push_back(entry);
            }
        }
        Ok(there)
    }

    /// Bytes that may have to come still, once everything has been offered: those of files of which nothing is known,
    /// and what is wanted of the others.
    pub(super) fn left(&self) -> Option<u64> {
        self.is_offered.then_some(self.left)
    }

    /// The receiver asks for the addresses of all chunks: what is left to do until they are known.
    pub(super) fn ask(&mut self, entry: EntryId) -> Result<Step, AnswerError> {
        self.offers.handle_ask(entry)?;
        let Some(open) = self.open.get_mut(&entry) else {
            return Ok(Step::More);
        };
        open.is_asked = true;
        if let Some(addresses) = open.answer() {
            return Ok(Step::Answer { addresses });
        }
        open.hash_the_rest();
        self.hashes.push_front(entry);
        Ok(Step::More)
    }

    /// Lets threads read only so many files at once.
    pub(super) fn limit_files(&mut self, files: usize) {
        self.reading_max = Some(files.max(1));
    }

    /// Lets only these carriers take work.
    pub(super) fn allow(&mut self, carriers: &[Carrier]) {
        self.allowed = carriers.to_vec();
    }

    /// Whether TCP brings nothing of what it has.
    pub(super) fn set_tcp_silent(&mut self, is_silent: bool) {
        self.is_tcp_silent = is_silent;
    }

    /// What a thread does next.
    pub(super) fn next(&mut self, lane: Lane, carrier: Carrier) -> Next {
        if self.is_over {
            return Next::Over;
        }
        let is_silent = carrier == Carrier::Tcp && self.is_tcp_silent;
        if is_silent || !self.allowed.contains(&carrier) {
            return Next::Nothing;
        }
        let mut job = self.take_body(lane, carrier);
        if job.is_none() && self.is_tcp_silent {
            self.send_again(|_, by| by == Carrier::Tcp);
            job = self.take_body(lane, carrier);
        }
        job.or_else(|| self.take_hash()).map_or(Next::Nothing, Next::Job)
    }

    /// A chunk has been read.
    pub(super) fn read(&mut self, entry: EntryId, index: u64, address: Address) -> Step {
        self.put_down(entry);
        let open = self.open.get_mut(&entry);
        open.map_or(Step::More, |open| open.read(index, address))
    }

    /// After an answer has been given: whether the file is complete by it.
    pub(super) fn completion(&mut self, entry: EntryId) -> Step {
        self.open.get_mut(&entry).map_or(Step::More, Open::completion)
    }

    /// A job could not be sent, because its carrier failed: others send it, and all that was under way on it.
    pub(super) fn lose(&mut self, lane: Lane) {
        self.send_again(|other, _| other == lane);
    }

    /// What is under way on these carriers is to be sent once more.
    fn send_again(&mut self, is_lost: impl Fn(Lane, Carrier) -> bool) {
        let lost: Vec<(EntryId, u64)> = self
            .under_way
            .iter()
            .filter(|(_, (lane, carrier))| is_lost(*lane, *carrier))
            .map(|(chunk, _)| *chunk)
            .collect();
        for (entry, index) in lost {
            let had = self.under_way.remove(&(entry, index));
            let Some(open) = self.open.get_mut(&entry) else {
                continue;
            };
            if let Some((_, carrier)) = had {
                self.again.insert((entry, index), carrier);
            }
            let size = open.size();
            if size <= PACKED_FILE_BYTES_MAX {
                if !std::mem::replace(&mut open.is_in_small, true) {
                    self.small.push_front(entry);
                    self.small_bytes += size;
                }
            } else {
                open.wanted.insert(index..index + 1);
                if !std::mem::replace(&mut open.is_in_chunks, true) {
                    self.chunks.push_front(entry);
                }
            }
        }
    }

    /// A thread has one chunk less of a file in its hands.
    pub(super) fn put_down(&mut self, entry: EntryId) {
        if let Some(open) = self.open.get_mut(&entry)
            && open.in_hands > 0
        {
            open.in_hands -= 1;
            self.reading -= usize::from(open.in_hands == 0);
        }
    }

    /// Threads of each carrier of which chunks are on their way.
    pub(super) fn under_way(&self) -> [usize; 2] {
        let lanes: BTreeSet<(Lane, Carrier)> = self.under_way.values().copied().collect();
        [Carrier::Quic, Carrier::Tcp].map(|carrier| lanes.iter().filter(|(_, by)| *by == carrier).count())
    }

    /// The receiver has these chunks: how many bytes of them came by each carrier, and what is left to do for the file.
    pub(super) fn acknowledge(&mut self, entry: EntryId, chunks: &Ranges) -> (Arrived, Step) {
        let mut arrived = Arrived::default();
        let mut step = Step::More;
        let size = self.open.get(&entry).map_or(0, Open::size);
        for range in chunks.iter() {
            // What was never sent is not acknowledged: a receiver cannot make us walk 2^62 numbers.
            for (index, carrier) in self.take_sent(entry, range) {
                arrived.add(carrier, chunk_length(size, index));
            }
        }
        if let Some(open) = self.open.get_mut(&entry) {
            self.left -= open.left;
            open.left = open.left.saturating_sub(arrived.came());
            self.left += open.left;
            arrived.again = arrived.came() - open.count(arrived.came());
            step = open.completion();
        }
        (arrived, step)
    }

    /// Takes note that chunks are there: those of them that were sent, and by which carrier. What waits to be sent once
    /// more is sent no more.
    fn take_sent(&mut self, entry: EntryId, chunks: Range<u64>) -> Vec<(u64, Carrier)> {
        let chunks = (entry, chunks.start)..(entry, chunks.end);
        let under_way = self.under_way.range(chunks.clone());
        let mut sent: Vec<(u64, Carrier)> = under_way
            .map(|((_, index), (_, carrier))| (*index, *carrier))
            .collect();
        for (index, _) in &sent {
            self.under_way.remove(&(entry, *index));
        }
        let again = self.again.range(chunks);
        let again: Vec<(u64, Carrier)> = again.map(|((_, index), carrier)| (*index, *carrier)).collect();
        for (index, _) in &again {
            self.again.remove(&(entry, *index));
            if let Some(open) = self.open.get_mut(&entry) {
                open.wanted.remove(*index..*index + 1);
            }
        }
        sent.extend(again);
        sent
    }

    /// The receiver has these entries in their places.
    pub(super) fn stored(&mut self, entries: &Ranges) -> Result<Vec<Ended>, AnswerError> {
        let stored = self.offers.handle_stored(entries)?;
        Ok(stored
            .into_iter()
            .filter_map(|entry| self.close(entry, End::Stored))
            .collect())
    }

    /// An entry has come to its end; the file that it was, unless it has ended before.
    pub(super) fn end(&mut self, entry: EntryId, end: End) -> Result<Option<Ended>, AnswerError> {
        self.offers.finish(entry)?;
        Ok(self.close(entry, end))
    }

    /// The file of an entry that is open.
    pub(super) fn source(&self, entry: EntryId) -> Option<Arc<Source>> {
        self.open.get(&entry)?.source.clone()
    }

    /// Bytes that the receiver has of an entry that is open.
    pub(super) fn counted(&self, entry: EntryId) -> Option<u64> {
        let open = self.open.get(&entry)?;
        Some(open.size().saturating_sub(open.uncounted))
    }

    /// The known addresses of a file's chunks.
    pub(super) fn addresses(&self, entry: EntryId) -> Vec<Option<Address>> {
        let open = self.open.get(&entry);
        open.map(|open| open.addresses.clone()).unwrap_or_default()
    }

    /// Files whose chunks are known in part.
    pub(super) fn partly_read(&self) -> Vec<(Stamp, Vec<Option<Address>>)> {
        let open = self.open.values();
        let open = open.filter(|open| open.known > 0 && !open.is_known());
        open.filter_map(|open| Some((open.source.as_ref()?.stamp, open.addresses.clone())))
            .collect()
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Everybody ends.
    pub(super) fn end_all(&mut self) {
        self.is_over = true;
    }

    fn close(&mut self, entry: EntryId, end: End) -> Option<Ended> {
        let mut open = self.open.remove(&entry)?;
        self.reading -= usize::from(open.in_hands > 0);
        self.left -= open.left;
        let size = open.size();
        if open.is_in_small {
            self.small_bytes -= size;
        }
        let mut arrived = Arrived::default();
        for (index, carrier) in self.take_sent(entry, 0..u64::MAX) {
            arrived.add(carrier, chunk_length(size, index));
        }
        match end {
            End::Stored => self.totals.stored += 1,
            End::Skipped => self.totals.skipped += 1,
            End::Failed => self.totals.failed += 1,
        }
        if end != End::Stored {
            arrived = Arrived::default();
        }
        arrived.again = arrived.came() - open.count(arrived.came());
        arrived.there = match end {
            End::Stored | End::Skipped => open.uncounted,
            End::Failed => 0,
        };
        let name = open.name().to_owned();
        Some(Ended {
            source: open.source,
            name,
            arrived,
        })
    }

    fn take_body(&mut self, lane: Lane, carrier: Carrier) -> Option<Job> {
        let enough = self.small_bytes >= PACK_BYTES_MAX as u64 / 2 || self.small.len() >= PACK_FILES_MAX;
        if enough && let Some(job) = self.take_pack(lane, carrier) {
            return Some(job);
        }
        while let Some(entry) = self.chunks.front().copied() {
            if !self.may_read(entry) {
                break;
            }
            if let Some(open) = self.open.get_mut(&entry)
                && let Some(index) = open.wanted.first()
                && let Some(source) = &open.source
            {
                let job = Job::Send {
                    source: Arc::clone(source),
                    index,
                };
                open.wanted.remove(index..index + 1);
                self.again.remove(&(entry, index));
                self.reading += usize::from(open.in_hands == 0);
                open.in_hands += 1;
                self.under_way.insert((entry, index), (lane, carrier));
                return Some(job);
            }
            self.chunks.pop_front();
            if let Some(open) = self.open.get_mut(&entry) {
                open.is_in_chunks = false;
            }
        }
        self.take_pack(lane, carrier)
    }

    fn take_hash(&mut self) -> Option<Job> {
        while let Some(entry) = self.hashes.front().copied() {
            if !self.may_read(entry) {
                break;
            }
            if let Some(open) = self.open.get_mut(&entry)
                && let Some(index) = open.unhashed.first()
                && let Some(source) = &open.source
            {
                let job = Job::Hash {
                    source: Arc::clone(source),
                    index,
                };
                open.unhashed.remove(index..index + 1);
                self.reading += usize::from(open.in_hands == 0);
                open.in_hands += 1;
                return Some(job);
            }
            self.hashes.pop_front();
        }
        None
    }

    /// Whether a chunk of this file may be read, with those that are being read.
    fn may_read(&self, entry: EntryId) -> bool {
        let is_being_read = self.open.get(&entry).is_none_or(|open| open.in_hands > 0);
        is_being_read || self.reading_max.is_none_or(|max| self.reading < max)
    }

    fn take_pack(&mut self, lane: Lane, carrier: Carrier) -> Option<Job> {
        let mut pack = Vec::new();
        let mut room = (PACK_BYTES_MAX - pack::COUNT_BYTES) as u64;
        while pack.len() < PACK_FILES_MAX
            && let Some(entry) = self.small.front().copied()
        {
            // One that has ended meanwhile is passed over.
            if let Some(open) = self.open.get_mut(&entry)
                && let Some(source) = &open.source
            {
                let size = source.stamp.size;
                let cost = size + pack::ITEM_BYTES as u64;
                if cost > room {
                    break;
                }
                room -= cost;
                open.is_in_small = false;
                self.small_bytes -= size;
                self.again.remove(&(entry, 0));
                self.under_way.insert((entry, 0), (lane, carrier));
                pack.push(Arc::clone(source));
            }
            self.small.pop_front();
        }
        (!pack.is_empty()).then_some(Job::Pack(pack))
    }
}

#[cfg(test)]
mod tests;
