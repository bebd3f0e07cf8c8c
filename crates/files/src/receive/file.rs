//! A file that is being received: its part beside the place, what has come of it, and its end. Several threads write
//! chunks of it at once; only what is known of it is locked.

mod former;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use files_proto::content::{Address, Root, RootBuilder, chunk_count, chunk_length};
use files_proto::limits::CHUNK_BYTES;
use files_proto::plan;
use files_proto::record::{Chunk, Piece};
use files_proto::{Attribute, EntryId, FailReason, Ranges};
use rustix::fs::FallocateFlags;

pub(super) use former::Former;

use super::journal_file::JournalFile;
use super::ordered::Ordered;
use crate::destination::Destination;
use crate::limits::{DAMAGED_CHUNKS_MAX, ORDERED_CHUNKS, PREALLOCATED_CHUNKS, WRITE_BYTES};
use crate::part;
use crate::room::Promise;

/// Where it is and what it is to be.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) entry: EntryId,
    /// Below the destination.
    pub(super) path: PathBuf,
    pub(super) part: PathBuf,
    pub(super) journal: PathBuf,
    /// `None` where only its end tells.
    pub(super) size: Option<u64>,
    pub(super) mode: u32,
    pub(super) modified: i64,
    pub(super) attributes: Vec<Attribute>,
    /// Whether it takes the place of what is there.
    pub(super) replaces: bool,
}

/// One file.
pub(super) struct Incoming {
    pub(super) target: Target,
    output: Output,
    state: Mutex<State>,
}

pub(super) enum Output {
    Part(Part),
    /// Standard output: chunks leave in order.
    Stdout(Ordered),
}

/// A part, opened by the first chunk that is written to it: of the files that are wanted few are being written.
pub(super) struct Part {
    pub(super) destination: Arc<Destination>,
    /// Where it is gone on with: so many bytes of its journal count.
    pub(super) kept_journal_bytes: Option<u64>,
    open: Mutex<Opened>,
    /// On its disk, until it has come to its end.
    room: Mutex<Option<Promise>>,
}

#[derive(Clone, Default)]
enum Opened {
    #[default]
    NotYet,
    /// What is beside the place came of the file as it was: nobody writes it before it is known what of it is this
    /// file's.
    Former,
    Open(Arc<File>),
    /// It is complete, or has failed: a thread that comes late does not make another one. What was open is claimed
    /// until it has its place.
    Closed(Option<Arc<File>>),
}

impl Part {
    pub(super) fn new(destination: &Arc<Destination>, kept_journal_bytes: Option<u64>) -> Self {
        Self {
            destination: Arc::clone(destination),
            kept_journal_bytes,
            open: Mutex::default(),
            room: Mutex::default(),
        }
    }

    /// That of the file as it was, which is gone on with where it did not change.
    pub(super) fn former(destination: &Arc<Destination>) -> Self {
        Self {
            open: Mutex::new(Opened::Former),
            ..Self::new(destination, None)
        }
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the room that it was promised.
    pub(super) fn with_room(self, room: Option<Promise>) -> Self {
        Self {
            room: Mutex::new(room),
            ..self
        }
    }

    /// It is being written.
    fn begin_room(&self, file: &Arc<File>) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = &mut *room {
            room.begin(file);
        }
    }

    /// It takes no more.
    fn end_room(&self) {
        drop(self.room.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[derive(Default)]
struct State {
    addresses: Vec<Option<Address>>,
    have: Ranges,
    /// Chunks that threads are writing.
    writing: BTreeSet<u64>,
    /// Size and root, once the sender has told them.
    end: Option<(u64, Root)>,
    journal: Option<JournalFile>,
    is_finished: bool,
    /// Chunks that came over the network in this transfer.
    came: u64,
    damaged: u64,
    /// Chunks that came with other bytes than their addresses say.
    damaged_arrivals: u64,
    /// On the way to standard output.
    wanted_until: u64,
    /// Windows of chunks for which room was made.
    preallocated: Ranges,
}

/// What a step led to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progressed {
    /// Chunks or the end are missing.
    More,
    /// Everything is there and has its hash.
    Complete,
    /// Everything is there, and is not what the sender read.
    Damaged,
    /// It was there already: nothing changed.
    Known,
    /// Another thread has it in its hands, and tells what comes of it.
    InOtherHands,
}

/// Why a chunk is not in its place.
#[derive(Debug)]
pub(super) enum StoreError {
    /// The sender breaks the protocol.
    Broken(&'static str),
    Write(io::Error),
}

impl Incoming {
    /// With these chunks in it already.
    pub(super) fn new(target: Target, output: Output, known: &BTreeMap<u64, Address>) -> Self {
        let mut state = State::default();
        state.know(
            target.size,
            known.iter().map(|(index, address)| (*index, *address)),
        );
        Self {
            target,
            output,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it goes to standard output.
    pub(super) fn is_passed_on(&self) -> bool {
        matches!(self.output, Output::Stdout(_))
    }

    /// The part, open, with its journal.
    fn file(&self, part: &Part) -> io::Result<Arc<File>> {
        let mut open = part.opened();
        match &*open {
            Opened::Open(file) => return Ok(Arc::clone(file)),
            Opened::Closed(_) => return Err(ended()),
            Opened::Former => {
                return Err(io::Error::other(
                    "what of the file did not change is not known yet",
                ));
            }
            Opened::NotYet => {}
        }
        let Target {
            part: path, journal, ..
        } = &self.target;
        let destination = &part.destination;
        let file = match part.kept_journal_bytes {
            Some(bytes) => {
                let file = destination.claim(path)?.ok_or_else(part::busy)?;
                // Another receive may have gone on with it since it was looked at.
                let read = JournalFile::read(destination, journal);
                if !read.is_some_and(|read| read.valid_bytes == bytes && self.state().knows(&read.chunks)) {
                    return Err(part::busy());
                }
                file
            }
            None => destination.create_part(path)?,
        };
        let begun = self.begin_part(part, &file).inspect_err(|_| {
            if part.kept_journal_bytes.is_none() {
                // Nothing is in it to go on with.
                destination.discard_both(&file, path, journal);
            }
        });
        self.state().journal = begun?;
        let file = Arc::new(file);
        part.begin_room(&file);
        *open = Opened::Open(Arc::clone(&file));
        Ok(file)
    }

    /// Gives a claimed part its size and, where it is to have one, its journal.
    fn begin_part(&self, part: &Part, file: &File) -> io::Result<Option<JournalFile>> {
        let destination = &part.destination;
        let Target {
            journal,
            size,
            modified,
            ..
        } = &self.target;
        if part.kept_journal_bytes.is_none() {
            // What would claim that something is in the part.
            destination.remove(journal)?;
        }
        if let Some(size) = *size {
            file.set_len(size)?;
        }
        match (part.kept_journal_bytes, size) {
            (Some(bytes), _) => JournalFile::go_on(destination, journal, bytes).map(Some),
            // One chunk is nothing to go on with.
            (None, Some(size)) if *size > CHUNK_BYTES => {
                JournalFile::create(destination, journal, *size, *modified).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Chunks that are missing.
    pub(super) fn missing(&self) -> Ranges {
        let count = self.target.size.map_or(0, chunk_count);
        self.state().have.missing_below(count)
    }

    /// Whether a chunk is there.
    pub(super) fn has(&self, index: u64) -> bool {
        self.state().have.contains(index)
    }

    /// How many bytes of it are there, and how many chunks came over the network.
    pub(super) fn there(&self) -> (u64, u64) {
        let state = self.state();
        let size = self.target.size.unwrap_or(u64::MAX);
        let bytes = state
            .have
            .iter()
            .flatten()
            .map(|index| chunk_length(size, index))
            .sum();
        (bytes, state.came)
    }

    /// Takes a chunk that has its address.
    pub(super) fn store(&self, chunk: &Chunk, bytes: &[u8]) -> Result<Progressed, StoreError> {
        let length = bytes.len() as u64;
        let index = chunk.index;
        if let Some(size) = self.target.size {
            if chunk_length(size, index) != length {
                return Err(StoreError::Broken(
                    "a chunk has another length than its file has there",
                ));
            }
        } else if index > self.state().addresses.len() as u64 {
            return Err(StoreError::Broken("the chunks of a pipe do not come in order"));
        } else if length < CHUNK_BYTES
            && self
                .state()
                .end
                .is_some_and(|(size, _)| chunk_length(size, index) != length)
        {
            return Err(StoreError::Broken(
                "a chunk has another length than its pipe has there",
            ));
        }
        if self.is_undecided() {
            // Nobody has wanted it.
            return Ok(Progressed::Known);
        }
        let mut state = self.state();
        if state.have.contains(index) {
            return Ok(Progressed::Known);
        }
        // Written twice, it might be written once more after the file is in its place.
        if !state.writing.insert(index) {
            return Ok(Progressed::InOtherHands);
        }
        drop(state);
        let written = self.write(chunk, bytes);
        // Kept and out of its hands in one step: what `restart` forgets comes again, and is nobody's then.
        let mut state = self.state();
        state.writing.remove(&index);
        let kept = written.and_then(|()| state.keep(self.target.size, index, chunk.address, true));
        kept.map_err(StoreError::Write)
    }

    /// A chunk came with other bytes than its address says. Whether it may come again; of a pipe nothing can (FILE-43).
    pub(super) fn may_come_again(&self) -> bool {
        let Some(size) = self.target.size else {
            return false;
        };
        let mut state = self.state();
        state.damaged_arrivals += 1;
        state.damaged_arrivals <= damaged_chunks_max(size)
    }

    /// Passes on a piece of a chunk of a pipe, which comes whole later (FILE-39).
    pub(super) fn begin(&self, piece: &Piece, bytes: &[u8]) -> Result<(), StoreError> {
        let (Output::Stdout(ordered), None) = (&self.output, self.target.size) else {
            return Err(StoreError::Broken("a piece came of what is not passed on"));
        };
        match ordered.begin(piece.index, piece.offset, bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::Broken("the pieces of a pipe do not come in order")),
            Err(error) => Err(StoreError::Write(error)),
        }
    }

    /// Has `acknowledge` tell the sender of a chunk that is there still: what `restart` has forgotten is to come again.
    pub(super) fn acknowledge(&self, index: u64, acknowledge: impl FnOnce()) {
        let state = self.state();
        if state.have.contains(index) {
            acknowledge();
        }
    }

    fn write(&self, chunk: &Chunk, bytes: &[u8]) -> io::Result<()> {
        let offset = chunk.index * CHUNK_BYTES;
        match &self.output {
            Output::Part(part) => self.file(part).and_then(|file| match chunk.hole {
                true => punch(&file, offset, bytes),
                false => {
                    self.preallocate(&file, chunk.index);
                    write_in_pieces(&file, offset, bytes)
                }
            }),
            Output::Stdout(ordered) => ordered.write(chunk.index, bytes),
        }
    }

    /// Makes room on the disk for the chunks around one that has bytes, once; those that are there stay as they are,
    /// and those that turn out to be holes are punched when they come. A hole that is punched at this very moment may
    /// get its room back, and reads as zeros all the same.
    fn preallocate(&self, file: &File, index: u64) {
        let count = self.target.size.map_or(0, chunk_count);
        let window = index / PREALLOCATED_CHUNKS;
        let (start, end) = (window * PREALLOCATED_CHUNKS, (window + 1) * PREALLOCATED_CHUNKS);
        let mut state = self.state();
        if count < 2 || state.preallocated.insert(window..window + 1) == 0 {
            return;
        }
        let missing = state.have.missing_below(count.min(end));
        drop(state);
        for range in missing.iter().filter(|range| range.end > start) {
            let (start, end) = (range.start.max(start) * CHUNK_BYTES, range.end * CHUNK_BYTES);
            // File systems that cannot, and disks that are full, which is told when the bytes are written.
            let length = end.min(self.target.size.unwrap_or(0)) - start;
            let _ = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, start, length);
        }
    }

    /// Takes a chunk that was read from another file of the destination and has its address. It is written from memory:
    /// that file may change at any time, so that what the kernel would copy is not what was verified (FILE-29).
    pub(super) fn take(&self, bytes: &[u8], index: u64, address: Address) -> io::Result<Progressed> {
        let Output::Part(part) = &self.output else {
            return Ok(Progressed::Known);
        };
        let file = self.file(part)?;
        let offset = index * CHUNK_BYTES;
        match bytes.iter().all(|byte| *byte == 0) {
            // What was a hole stays one.
            true => punch(&file, offset, bytes)?,
            false => write_in_pieces(&file, offset, bytes)?,
        }
        self.state().keep(self.target.size, index, address, false)
    }

    /// The sender has told the file's end.
    pub(super) fn end(&self, size: u64, root: Root) -> Result<Progressed, StoreError> {
        if self.target.size.is_some_and(|expected| expected != size) {
            return Err(StoreError::Broken("a file ends elsewhere than it was offered"));
        }
        let mut state = self.state();
        state.end = Some((size, root));
        Ok(state.progressed())
    }

    /// On the way to standard output, has `want` ask for the chunks that can be kept and were not wanted before: one
    /// window behind the other (FILE-14), whichever threads do so. `false` for all other files.
    pub(super) fn want_window(&self, want: impl FnOnce(Ranges)) -> bool {
        let (Output::Stdout(ordered), Some(size)) = (&self.output, self.target.size) else {
            return false;
        };
        let end = (ordered.next() + ORDERED_CHUNKS).min(chunk_count(size));
        let mut state = self.state();
        if end > state.wanted_until {
            want(Ranges::from_range(state.wanted_until..end));
            state.wanted_until = end;
        }
        true
    }

    /// Everything is there before the sender has told the root: what the addresses give is what it would be.
    pub(super) fn complete_by_itself(&self) -> Progressed {
        let mut state = self.state();
        let Some(size) = self.target.size else {
            return Progressed::More;
        };
        if state.end.is_none()
            && let Some(root) = state.root(chunk_count(size))
        {
            state.end = Some((size, root));
        }
        state.progressed()
    }

    /// Forgets chunks that have another address than the sender's.
    pub(super) fn forget_others(&self, addresses: &[Address]) -> io::Result<()> {
        let state = self.state();
        let ours = (0..).zip(&state.addresses);
        let ours = ours.filter_map(|(index, address)| Some((index, (*address)?)));
        let there = plan::compare(addresses, ours).there;
        let lost: Vec<u64> = state.have.iter().flatten().collect();
        drop(state);
        let lost: Vec<u64> = lost.into_iter().filter(|index| !there.contains(*index)).collect();
        self.forget(&lost)
    }

    /// Forgets chunks that are not in the part, or are damaged there (FILE-27).
    pub(super) fn forget(&self, lost: &[u64]) -> io::Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        self.open()?;
        let mut state = self.state();
        for index in lost {
            state.have.remove(*index..*index + 1);
            if let Some(place) = usize::try_from(*index)
                .ok()
                .and_then(|index| state.addresses.get_mut(index))
            {
                *place = None;
            }
        }
        match &mut state.journal {
            Some(journal) => journal.lost(lost),
            None => Ok(()),
        }
    }

    /// A disk has failed: nobody knows what of it is in the part.
    pub(super) fn distrust(&self) {
        self.state().have = Ranges::new();
    }

    /// The part, claimed; `None` on the way to standard output.
    pub(super) fn open(&self) -> io::Result<Option<Arc<File>>> {
        match &self.output {
            Output::Part(part) => self.file(part).map(Some),
            Output::Stdout(_) => Ok(None),
        }
    }

    /// Whether its part is open.
    pub(super) fn is_open(&self) -> bool {
        let Output::Part(part) = &self.output else {
            return false;
        };
        let open = part.opened();
        matches!(&*open, Opened::Open(_))
    }

    /// Forgets all chunks, once; `false` where that has been tried.
    pub(super) fn restart(&self) -> bool {
        // A pipe cannot be read twice, and what has left cannot be taken back.
        if self.target.size.is_none() || matches!(self.output, Output::Stdout(_)) {
            return false;
        }
        let mut state = self.state();
        state.damaged += 1;
        if state.damaged > 1 {
            return false;
        }
        let have: Vec<u64> = std::mem::take(&mut state.have).iter().flatten().collect();
        if let Some(journal) = &mut state.journal
            && journal.lost(&have).is_err()
        {
            return false;
        }
        state.addresses.fill(None);
        state.is_finished = false;
        true
    }

    /// Writes what the system holds to the disk, and has the journal say so.
    pub(super) fn sync(&self) -> io::Result<()> {
        let Output::Part(part) = &self.output else {
            return Ok(());
        };
        let open = part.opened().clone();
        let Opened::Open(file) = open else {
            return Ok(());
        };
        if let Some(journal) = &mut self.state().journal {
            journal.begin_sync();
        }
        file.sync_data()?;
        match &mut self.state().journal {
            Some(journal) => journal.end_sync(),
            None => Ok(()),
        }
    }

    /// What the journal says is on disk, too. Others write on meanwhile.
    pub(super) fn sync_journal(&self) -> io::Result<()> {
        let file = self
            .state()
            .journal
            .as_ref()
            .map(JournalFile::to_sync)
            .transpose()?;
        file.map_or(Ok(()), |file| file.sync_data())
    }

    /// The same, and the journal is on disk as well: nobody writes any more.
    pub(super) fn sync_for_good(&self) -> io::Result<()> {
        self.sync()?;
        match &self.state().journal {
            Some(journal) => journal.sync(),
            None => Ok(()),
        }
    }

    /// Whether it has one, and is on disk before it has its name.
    pub(super) fn has_journal(&self) -> bool {
        self.state().journal.is_some()
    }

    /// Puts a complete file in its place; `named` is told of it before.
    pub(super) fn place(&self, named: impl FnOnce(&File)) -> io::Result<()> {
        let target = &self.target;
        match &self.output {
            Output::Part(part) => {
                let file = self.file(part)?;
                if let Some((size, _)) = self.state().end {
                    file.set_len(size)?;
                }
                part.destination.attribute(&*file, &target.attributes);
                part.destination
                    .finish_part(file.as_fd(), target.mode, target.modified)?;
                *part.opened() = Opened::Closed(Some(Arc::clone(&file)));
                if self.state().journal.is_some() {
                    // What has this name, size and time later is taken for complete. A disk tells of failures here.
                    file.sync_data().inspect_err(|_| self.distrust())?;
                }
                named(&file);
                part.destination
                    .place(&file, &target.part, &target.path, target.replaces)?;
                part.destination.restrict(file.as_fd(), target.mode)?;
                part.end_room();
                // Others may hold this for long: what is open, and claimed, ends here.
                *part.opened() = Opened::Closed(None);
                let journal = self.state().journal.take();
                // The part's name is free, and by now another receive may have one there.
                journal.map_or(Ok(()), |journal| {
                    journal.remove(&part.destination, &target.journal)
                })
            }
            Output::Stdout(ordered) => ordered.flush(),
        }
    }

    /// A file that failed: its part is left where a later transfer can go on with it.
    pub(super) fn abandon(&self, reason: FailReason) {
        let Output::Part(part) = &self.output else { return };
        let mut open = part.opened();
        let opened = std::mem::replace(&mut *open, Opened::Closed(None));
        drop(open);
        part.end_room();
        if matches!(opened, Opened::Former) {
            // A later transfer finds what came of the file as it was.
            return;
        }
        let has_journal = self.state().journal.take().is_some() || part.kept_journal_bytes.is_some();
        let mut state = self.state();
        // Each chunk is what it is to be, and all of them are not: nobody knows which.
        let is_wrong = reason == FailReason::Damaged && std::mem::take(&mut state.is_finished);
        let is_useless = state.have.is_empty() || !has_journal || is_wrong;
        drop(state);
        // What was never claimed may be another receive's.
        if let Opened::Open(file) | Opened::Closed(Some(file)) = opened
            && is_useless
        {
            part.destination
                .discard_both(&file, &self.target.part, &self.target.journal);
        }
    }
}

impl State {
    /// A chunk is in its place, of a file of this size.
    fn keep(
        &mut self,
        size: Option<u64>,
        index: u64,
        address: Address,
        came: bool,
    ) -> io::Result<Progressed> {
        if self.is_finished || self.have.insert(index..index + 1) == 0 {
            return Ok(Progressed::Known);
        }
        let place = usize::try_from(index).unwrap_or(usize::MAX);
        if self.addresses.is_empty() {
            self.make_room(size);
        }
        if place >= self.addresses.len() {
            if size.is_some() {
                return Ok(Progressed::Known);
            }
            self.addresses.resize(place + 1, None);
        }
        self.addresses[place] = Some(address);
        self.came += u64::from(came);
        if let Some(journal) = &mut self.journal {
            journal.chunk(index, address)?;
        }
        Ok(self.progressed())
    }

    /// These chunks, of a file of this size, are in its part.
    fn know(&mut self, size: Option<u64>, chunks: impl Iterator<Item = (u64, Address)>) {
        for (index, address) in chunks {
            if self.addresses.is_empty() {
                self.make_room(size);
            }
            let place = usize::try_from(index).ok();
            if let Some(place) = place.and_then(|place| self.addresses.get_mut(place)) {
                *place = Some(address);
                self.have.insert(index..index + 1);
            }
        }
    }

    /// Whether these are the chunks that are there.
    fn knows(&self, chunks: &BTreeMap<u64, Address>) -> bool {
        let known = |(index, address): (&u64, &Address)| {
            let place = usize::try_from(*index)
                .ok()
                .and_then(|index| self.addresses.get(index));
            self.have.contains(*index) && place == Some(&Some(*address))
        };
        self.have.len() == chunks.len() as u64 && chunks.iter().all(known)
    }

    /// For the addresses of all chunks, once there is one: what is only offered takes no memory.
    fn make_room(&mut self, size: Option<u64>) {
        let count = usize::try_from(size.map_or(0, chunk_count)).unwrap_or(0);
        self.addresses = vec![None; count];
    }

    fn progressed(&mut self) -> Progressed {
        let Some((size, root)) = self.end else {
            return Progressed::More;
        };
        let count = chunk_count(size);
        if self.is_finished || self.have.len() < count {
            return Progressed::More;
        }
        self.is_finished = true;
        match self.root(count) == Some(root) {
            true => Progressed::Complete,
            false => Progressed::Damaged,
        }
    }

    fn root(&self, count: u64) -> Option<Root> {
        let mut builder = RootBuilder::default();
        for (index, address) in self.addresses.iter().enumerate() {
            if let Some(address) = address {
                builder.insert(index as u64, *address);
            }
        }
        builder.root(count)
    }
}

/// What a thread that comes late hears.
fn ended() -> io::Error {
    io::Error::other("the file has come to its end")
}

/// How many chunks of a file of this size may come damaged.
pub(super) fn damaged_chunks_max(size: u64) -> u64 {
    DAMAGED_CHUNKS_MAX.min(2 * chunk_count(size))
}

/// Writes pieces of [`WRITE_BYTES`].
fn write_in_pieces(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let offsets = (offset..).step_by(WRITE_BYTES);
    let mut pieces = offsets.zip(bytes.chunks(WRITE_BYTES));
    pieces.try_for_each(|(offset, piece)| file.write_all_at(piece, offset))
}

/// Leaves a hole, where the file system can; what was there before is gone in any case.
fn punch(file: &File, offset: u64, zeros: &[u8]) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, zeros.len() as u64) {
        Ok(()) => Ok(()),
        Err(_) => write_in_pieces(file, offset, zeros),
    }
}

#[cfg(test)]
mod tests;
