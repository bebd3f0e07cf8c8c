//! What is left to send: entries that are open, chunks that are wanted, and those under way, by the carrier that has
//! them. Carriers' threads take work from here and tell what became of it; no call blocks but [`Desk::next_within`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files_proto::content::{Address, RootBuilder, chunk_count, chunk_length};
use files_proto::limits::{PACK_BYTES_MAX, PACK_FILES_MAX, PACKED_FILE_BYTES_MAX};
use files_proto::message::{Message, Totals};
use files_proto::offers::{AnswerError, Offers};
use files_proto::{Entry, EntryId, Ranges, pack};

use crate::carrier::Carrier;
use crate::source::Source;
use crate::walk::Stamp;

/// Number of a carrier's thread.
pub(super) type Lane = usize;

/// Something for a carrier's thread to do.
pub(super) enum Job {
    /// Read a chunk and send it.
    Send { source: Arc<Source>, index: u64 },
    /// Read a chunk, because its address is needed.
    Hash { source: Arc<Source>, index: u64 },
    /// Read small files and send them together.
    Pack(Vec<Arc<Source>>),
}

/// What a carrier's thread does next.
pub(super) enum Next {
    Job(Job),
    /// It looks whether its carrier is still there.
    Nothing,
    /// The transfer is over.
    Over,
}

/// What is left to do for a file after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Chunks are missing.
    More,
    /// The last chunk has been read: this is the file's hash.
    Complete { root: Address },
    /// All addresses are known that the receiver asked for.
    Answer { addresses: Vec<Address> },
    /// A chunk that was read again is another one than before.
    Changed,
}

#[derive(Default)]
struct State {
    offers: Offers,
    open: BTreeMap<EntryId, Open>,
    /// Files with chunks to send.
    chunks: VecDeque<EntryId>,
    /// Files with chunks to hash, after all that are to be sent.
    hashes: VecDeque<EntryId>,
    /// Small files that are wanted.
    small: VecDeque<EntryId>,
    small_bytes: u64,
    under_way: BTreeMap<(EntryId, u64), (Lane, Carrier)>,
    /// Carriers that take work.
    allowed: Vec<Carrier>,
    /// Files of which threads have chunks in their hands, and how many of them there may be.
    reading: usize,
    reading_max: Option<usize>,
    is_offered: bool,
    is_over: bool,
    totals: Totals,
}

struct Open {
    /// Of a file.
    source: Option<Arc<Source>>,
    /// To be sent.
    wanted: Ranges,
    /// To be hashed only.
    unhashed: Ranges,
    /// Chunks that threads have in their hands.
    in_hands: u64,
    /// By chunk, as far as they are known.
    addresses: Vec<Option<Address>>,
    known: u64,
    is_asked: bool,
    is_wanted: bool,
    is_told: bool,
}

/// The state, shared by all threads of a sender.
#[derive(Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

/// Of a carrier's chunks that the receiver has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    pub(super) quic: u64,
    pub(super) tcp: u64,
}

impl Arrived {
    fn add(&mut self, carrier: Carrier, bytes: u64) {
        match carrier {
            Carrier::Quic => self.quic += bytes,
            Carrier::Tcp => self.tcp += bytes,
        }
    }
}

/// A file that has come to its end, and what of it arrived without being acknowledged.
pub(super) type Ended = (Option<Arc<Source>>, Arrived);

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Offers an entry, once there is room; addresses of its chunks that are known from before come with it. `false`
    /// once the transfer is over.
    pub(super) fn offer(
        &self,
        entry: &Entry,
        source: Option<Arc<Source>>,
        known: Vec<Option<Address>>,
    ) -> bool {
        let chunks = source.as_ref().map_or(0, |source| chunk_count(source.stamp.size));
        let mut addresses = known;
        addresses.resize(usize::try_from(chunks).unwrap_or(usize::MAX), None);
        let known = addresses.iter().flatten().count() as u64;
        let open = Open {
            source,
            wanted: Ranges::new(),
            unhashed: Ranges::new(),
            in_hands: 0,
            addresses,
            known,
            is_asked: false,
            is_wanted: false,
            is_told: false,
        };
        let state = self.changed.wait_while(self.state(), |state| {
            !state.offers.has_room(entry) && !state.is_over
        });
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.is_over {
            return false;
        }
        state.offers.offer(entry);
        state.open.insert(entry.id, open);
        true
    }

    /// Everything has been offered: what is told then.
    pub(super) fn end_offer(&self) -> Message {
        self.change(|state| {
            state.is_offered = true;
            state.offers.end()
        })
    }

    /// Whether every entry has come to its end.
    pub(super) fn is_complete(&self) -> bool {
        let state = self.state();
        state.is_offered && state.offers.open_entries() == 0
    }

    /// The receiver wants chunks.
    pub(super) fn want(&self, entry: EntryId, chunks: &Ranges) -> Result<(), AnswerError> {
        self.change(|state| {
            let is_open = state.offers.handle_want(entry, chunks)?;
            if !is_open {
                return Ok(());
            }
            let Some(open) = state.open.get_mut(&entry) else {
                // It failed meanwhile.
                return Ok(());
            };
            let Some(source) = &open.source else { return Ok(()) };
            let count = open.addresses.len() as u64;
            let is_first = !std::mem::replace(&mut open.is_wanted, true);
            let size = source.stamp.size;
            if size <= PACKED_FILE_BYTES_MAX {
                // What wants nothing gets nothing.
                if chunks.is_empty() {
                    return Ok(());
                }
                state.small.push_back(entry);
                state.small_bytes += size;
                return Ok(());
            }
            chunks.iter().for_each(|range| {
                open.wanted.insert(range);
            });
            if !state.chunks.contains(&entry) {
                state.chunks.push_back(entry);
            }
            if is_first && open.known < count {
                open.hash_the_rest();
                if !open.unhashed.is_empty() {
                    state.hashes.push_back(entry);
                }
            }
            Ok(())
        })
    }

    /// The receiver asks for the addresses of all chunks: what is left to do until they are known.
    pub(super) fn ask(&self, entry: EntryId) -> Result<Step, AnswerError> {
        self.change(|state| {
            state.offers.handle_ask(entry)?;
            let Some(open) = state.open.get_mut(&entry) else {
                return Ok(Step::More);
            };
            open.is_asked = true;
            if let Some(addresses) = open.answer() {
                return Ok(Step::Answer { addresses });
            }
            open.hash_the_rest();
            state.hashes.push_front(entry);
            Ok(Step::More)
        })
    }

    /// Lets threads read only so many files at once.
    pub(super) fn limit_files(&self, files: usize) {
        self.change(|state| state.reading_max = Some(files.max(1)));
    }

    /// Lets only these carriers take work.
    pub(super) fn allow(&self, carriers: &[Carrier]) {
        self.change(|state| state.allowed = carriers.to_vec());
    }

    /// The next job for a thread; waits so long for one.
    pub(super) fn next_within(&self, time: Duration, lane: Lane, carrier: Carrier) -> Next {
        let deadline = Instant::now() + time;
        let mut state = self.state();
        loop {
            if state.is_over {
                return Next::Over;
            }
            if state.allowed.contains(&carrier)
                && let Some(job) = state.take(lane, carrier)
            {
                return Next::Job(job);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Nothing;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A chunk has been read.
    pub(super) fn read(&self, entry: EntryId, index: u64, address: Address) -> Step {
        self.change(|state| {
            state.let_go(entry);
            let Some(open) = state.open.get_mut(&entry) else {
                return Step::More;
            };
            let place = usize::try_from(index)
                .ok()
                .and_then(|index| open.addresses.get_mut(index));
            match place {
                Some(place @ None) => {
                    *place = Some(address);
                    open.known += 1;
                }
                Some(Some(before)) if *before == address => {}
                _ => return Step::Changed,
            }
            if let Some(addresses) = open.answer() {
                return Step::Answer { addresses };
            }
            open.completion()
        })
    }

    /// After an answer has been given: whether the file is complete by it.
    pub(super) fn completion(&self, entry: EntryId) -> Step {
        self.change(|state| state.open.get_mut(&entry).map_or(Step::More, Open::completion))
    }

    /// A job could not be sent, because its carrier failed: others send it, and all that was under way on it.
    pub(super) fn lose(&self, lane: Lane) {
        self.change(|state| {
            let lost: Vec<(EntryId, u64)> = state
                .under_way
                .iter()
                .filter(|(_, (other, _))| *other == lane)
                .map(|(chunk, _)| *chunk)
                .collect();
            for (entry, index) in lost {
                state.under_way.remove(&(entry, index));
                let Some(open) = state.open.get_mut(&entry) else {
                    continue;
                };
                let size = open.source.as_ref().map_or(0, |source| source.stamp.size);
                if size <= PACKED_FILE_BYTES_MAX {
                    state.small.push_front(entry);
                    state.small_bytes += size;
                } else {
                    open.wanted.insert(index..index + 1);
                    if !state.chunks.contains(&entry) {
                        state.chunks.push_front(entry);
                    }
                }
            }
        });
    }

    /// A chunk that a thread had in its hands could not be read.
    pub(super) fn put_down(&self, entry: EntryId) {
        self.change(|state| state.let_go(entry));
    }

    /// The receiver has these chunks: how many bytes of them came by each carrier.
    pub(super) fn acknowledge(&self, entry: EntryId, chunks: &Ranges) -> Arrived {
        self.change(|state| {
            let mut arrived = Arrived::default();
            for range in chunks.iter() {
                // What was never sent is not acknowledged: a receiver cannot make us walk 2^62 numbers.
                let under_way = state.under_way.range((entry, range.start)..(entry, range.end));
                let here: Vec<u64> = under_way.map(|((_, index), _)| *index).collect();
                for index in here {
                    if let Some((_, carrier)) = state.under_way.remove(&(entry, index)) {
                        let source = state.open.get(&entry).and_then(|open| open.source.as_ref());
                        let size = source.map_or(0, |source| source.stamp.size);
                        arrived.add(carrier, chunk_length(size, index));
                    }
                }
            }
            arrived
        })
    }

    /// The receiver has these entries in their places.
    pub(super) fn stored(&self, entries: &Ranges) -> Result<Vec<Ended>, AnswerError> {
        self.change(|state| {
            let stored = state.offers.handle_stored(entries)?;
            Ok(stored
                .into_iter()
                .filter_map(|entry| state.end(entry, End::Stored))
                .collect())
        })
    }

    /// An entry has come to its end; the file that it was, unless it has ended before.
    pub(super) fn end(&self, entry: EntryId, end: End) -> Result<Option<Ended>, AnswerError> {
        self.change(|state| {
            state.offers.finish(entry)?;
            Ok(state.end(entry, end))
        })
    }

    /// The file of an entry that is open.
    pub(super) fn source(&self, entry: EntryId) -> Option<Arc<Source>> {
        self.state().open.get(&entry)?.source.clone()
    }

    /// The known addresses of a file's chunks.
    pub(super) fn addresses(&self, entry: EntryId) -> Vec<Option<Address>> {
        self.state()
            .open
            .get(&entry)
            .map(|open| open.addresses.clone())
            .unwrap_or_default()
    }

    /// Files whose chunks are known in part.
    pub(super) fn partly_read(&self) -> Vec<(Stamp, Vec<Option<Address>>)> {
        let state = self.state();
        let open = state.open.values();
        let open = open.filter(|open| open.known > 0 && open.known < open.addresses.len() as u64);
        open.filter_map(|open| Some((open.source.as_ref()?.stamp, open.addresses.clone())))
            .collect()
    }

    pub(super) fn totals(&self) -> Totals {
        self.state().totals
    }

    /// Everybody ends.
    pub(super) fn end_all(&self) {
        self.change(|state| state.is_over = true);
    }
}

/// How an entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Stored,
    Skipped,
    Failed,
}

impl State {
    fn end(&mut self, entry: EntryId, end: End) -> Option<Ended> {
        let open = self.open.remove(&entry)?;
        self.reading -= usize::from(open.in_hands > 0);
        let size = open.source.as_ref().map_or(0, |source| source.stamp.size);
        let mut arrived = Arrived::default();
        let under_way = self.under_way.range((entry, 0)..=(entry, u64::MAX));
        let left: Vec<u64> = under_way.map(|((_, index), _)| *index).collect();
        for index in left {
            if let Some((_, carrier)) = self.under_way.remove(&(entry, index)) {
                arrived.add(carrier, chunk_length(size, index));
            }
        }
        match end {
            End::Stored => self.totals.stored += 1,
            End::Skipped => self.totals.skipped += 1,
            End::Failed => self.totals.failed += 1,
        }
        if end != End::Stored {
            arrived = Arrived::default();
        }
        if let Some(source) = &open.source {
            source.close();
        }
        Some((open.source, arrived))
    }

    fn take(&mut self, lane: Lane, carrier: Carrier) -> Option<Job> {
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
                self.reading += usize::from(open.in_hands == 0);
                open.in_hands += 1;
                self.under_way.insert((entry, index), (lane, carrier));
                return Some(job);
            }
            self.chunks.pop_front();
        }
        if let Some(job) = self.take_pack(lane, carrier) {
            return Some(job);
        }
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

    /// A thread has one chunk less of a file in its hands.
    fn let_go(&mut self, entry: EntryId) {
        if let Some(open) = self.open.get_mut(&entry)
            && open.in_hands > 0
        {
            open.in_hands -= 1;
            self.reading -= usize::from(open.in_hands == 0);
        }
    }

    fn take_pack(&mut self, lane: Lane, carrier: Carrier) -> Option<Job> {
        let mut pack = Vec::new();
        let mut room = (PACK_BYTES_MAX - pack::COUNT_BYTES) as u64;
        while pack.len() < PACK_FILES_MAX
            && let Some(entry) = self.small.front().copied()
        {
            let source = self.open.get(&entry).and_then(|open| open.source.clone());
            let size = source.as_ref().map_or(0, |source| source.stamp.size);
            let cost = size + pack::ITEM_BYTES as u64;
            if cost > room {
                break;
            }
            self.small.pop_front();
            self.small_bytes = self.small_bytes.saturating_sub(size);
            if let Some(source) = source {
                room -= cost;
                self.under_way.insert((entry, 0), (lane, carrier));
                pack.push(source);
            }
        }
        (!pack.is_empty()).then_some(Job::Pack(pack))
    }
}

impl Open {
    /// Everything that is neither known nor to be sent is to be hashed.
    fn hash_the_rest(&mut self) {
        let mut rest = Ranges::new();
        for (index, address) in self.addresses.iter().enumerate() {
            let index = index as u64;
            if address.is_none() && (self.is_asked || !self.wanted.contains(index)) {
                rest.insert(index..index + 1);
            }
        }
        self.unhashed = rest;
    }

    fn answer(&mut self) -> Option<Vec<Address>> {
        if !self.is_asked || self.known < self.addresses.len() as u64 {
            return None;
        }
        self.is_asked = false;
        self.addresses.iter().copied().collect()
    }

    fn completion(&mut self) -> Step {
        let count = self.addresses.len() as u64;
        let is_complete =
            self.is_wanted && self.known == count && self.wanted.is_empty() && self.in_hands == 0;
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
            .root(count)
            .map_or(Step::More, |root| Step::Complete { root })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use files_proto::Kind;

    use super::*;

    impl Desk {
        /// What is there to be done; nobody brings more.
        fn next(&self, lane: Lane, carrier: Carrier) -> Option<Job> {
            match self.next_within(Duration::ZERO, lane, carrier) {
                Next::Job(job) => Some(job),
                Next::Nothing | Next::Over => None,
            }
        }
    }

    fn desk(size: u64) -> Desk {
        let desk = Desk::default();
        offer(&desk, 0, size);
        desk.allow(&[Carrier::Quic, Carrier::Tcp]);
        desk
    }

    fn offer(desk: &Desk, id: EntryId, size: u64) {
        let stamp = Stamp {
            device: 1,
            inode: 1 + id,
            size,
            modified: 0,
            changed: 0,
            mode: 0o644,
            is_sparse: false,
        };
        let source = Arc::new(Source::new(id, PathBuf::from("file"), "file".to_owned(), stamp));
        let entry = Entry {
            id,
            parent: None,
            name: b"file".to_vec(),
            kind: Kind::File { size },
            mode: 0o644,
            modified_ns: 0,
            attributes: Vec::new(),
        };
        assert!(desk.offer(&entry, Some(source), Vec::new()));
    }

    fn index_of(job: Option<Job>) -> u64 {
        match job {
            Some(Job::Send { index, .. }) => index,
            Some(Job::Hash { index, .. }) => 1_000 + index,
            Some(Job::Pack(sources)) => 2_000 + sources.len() as u64,
            None => panic!("there is nothing to do"),
        }
    }

    #[test]
    fn what_a_lost_carrier_had_is_sent_by_another_and_what_arrived_is_not() {
        let desk = desk(4 << 20);
        desk.want(0, &Ranges::from_range(0..4)).unwrap();
        for expected in 0..3 {
            assert_eq!(index_of(desk.next(1, Carrier::Tcp)), expected);
            assert_eq!(desk.read(0, expected, [expected as u8; 32]), Step::More);
        }
        assert_eq!(index_of(desk.next(2, Carrier::Quic)), 3);
        let arrived = desk.acknowledge(0, &Ranges::from_range(1..2));
        assert_eq!((arrived.quic, arrived.tcp), (0, 1 << 20));
        desk.lose(1);
        assert_eq!(index_of(desk.next(2, Carrier::Quic)), 0);
        assert_eq!(index_of(desk.next(2, Carrier::Quic)), 2);
        desk.read(0, 0, [0; 32]);
        desk.read(0, 2, [2; 32]);
        assert!(matches!(desk.read(0, 3, [3; 32]), Step::Complete { .. }));
        let arrived = desk.acknowledge(0, &Ranges::from_range(0..u64::from(u32::MAX)));
        assert_eq!(arrived.quic, 3 << 20);
    }

    #[test]
    fn chunks_that_the_receiver_has_are_hashed_for_the_root_after_all_that_it_wants() {
        let desk = desk(3 << 20);
        desk.want(0, &Ranges::from_range(2..3)).unwrap();
        let order: Vec<u64> = (0..3).map(|_| index_of(desk.next(0, Carrier::Quic))).collect();
        assert_eq!(order, [2, 1_000, 1_001]);
        assert_eq!(desk.read(0, 2, [2; 32]), Step::More);
        assert_eq!(desk.read(0, 0, [0; 32]), Step::More);
        assert!(matches!(desk.read(0, 1, [1; 32]), Step::Complete { .. }));
        assert_eq!(desk.read(0, 1, [9; 32]), Step::Changed);
    }

    #[test]
    fn a_question_for_addresses_is_answered_once_all_are_known() {
        let desk = desk(2 << 20);
        assert_eq!(desk.ask(0).unwrap(), Step::More);
        for index in [0, 1] {
            assert_eq!(index_of(desk.next(0, Carrier::Quic)), 1_000 + index);
        }
        assert_eq!(desk.read(0, 1, [1; 32]), Step::More);
        let addresses = vec![[0; 32], [1; 32]];
        assert_eq!(desk.read(0, 0, [0; 32]), Step::Answer { addresses });
        assert_eq!(desk.completion(0), Step::More, "nothing of it is wanted");
        assert!(!desk.is_complete());
        desk.stored(&Ranges::from_range(0..1)).unwrap();
        desk.end_offer();
        assert!(desk.is_complete());
    }

    #[test]
    fn small_files_go_together_and_again_where_their_carrier_is_lost() {
        let desk = desk(5);
        desk.want(0, &Ranges::from_range(0..1)).unwrap();
        assert_eq!(index_of(desk.next(0, Carrier::Quic)), 2_001);
        desk.lose(0);
        assert_eq!(index_of(desk.next(1, Carrier::Quic)), 2_001);
    }

    #[test]
    fn no_more_files_are_read_at_once_than_the_user_allows() {
        let desk = desk(2 << 20);
        desk.limit_files(1);
        offer(&desk, 1, 1 << 20);
        desk.want(0, &Ranges::from_range(0..2)).unwrap();
        desk.want(1, &Ranges::from_range(0..1)).unwrap();
        for expected in [0, 1] {
            assert_eq!(index_of(desk.next(expected as usize, Carrier::Quic)), expected);
        }
        assert!(
            desk.next(2, Carrier::Quic).is_none(),
            "the first file is being read"
        );
        desk.read(0, 0, [0; 32]);
        assert!(desk.next(2, Carrier::Quic).is_none());
        desk.read(0, 1, [1; 32]);
        assert_eq!(index_of(desk.next(2, Carrier::Quic)), 0);
        // What fails while it is read makes room as well.
        offer(&desk, 2, 1 << 20);
        desk.want(2, &Ranges::from_range(0..1)).unwrap();
        assert!(desk.next(0, Carrier::Quic).is_none());
        desk.end(1, End::Failed).unwrap();
        desk.put_down(1);
        assert_eq!(index_of(desk.next(0, Carrier::Quic)), 0);
    }
}
