//! Where carriers' threads take work and tell what became of it. [`State`] knows what is left to send; this locks it,
//! and wakes those that wait. No call blocks but [`Desk::offer`] and [`Desk::next_within`].

mod open;
mod state;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files_proto::content::Address;
use files_proto::message::{Message, Totals};
use files_proto::offers::AnswerError;
use files_proto::{Entry, EntryId, Ranges};

use crate::carrier::Carrier;
use crate::source::Source;
use crate::walk::Stamp;
pub(super) use open::{Offered, Step};
use state::State;
pub(super) use state::{Arrived, End, Ended, Job, Lane, Next};

/// The state, shared by all threads of a sender.
#[derive(Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

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
    pub(super) fn offer(&self, entry: &Entry, offered: Offered, known: Vec<Option<Address>>) -> bool {
        let state = self
            .changed
            .wait_while(self.state(), |state| !state.has_room(entry) && !state.is_over());
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.is_over() {
            return false;
        }
        state.offer(entry, offered, known);
        true
    }

    /// Something that was to be sent is not offered.
    pub(super) fn leave_out(&self) {
        self.change(State::leave_out);
    }

    /// Everything has been offered: what is told then.
    pub(super) fn end_offer(&self) -> Message {
        self.change(State::end_offer)
    }

    /// Whether every entry has come to its end.
    pub(super) fn is_complete(&self) -> bool {
        self.state().is_complete()
    }

    /// The receiver wants chunks: how many bytes it has by that.
    pub(super) fn want(&self, entry: EntryId, chunks: &Ranges) -> Result<u64, AnswerError> {
        self.change(|state| state.want(entry, chunks))
    }

    /// Bytes that may have to come still, once that is known.
    pub(super) fn left(&self) -> Option<u64> {
        self.state().left()
    }

    /// The receiver asks for the addresses of all chunks: what is left to do until they are known.
    pub(super) fn ask(&self, entry: EntryId) -> Result<Step, AnswerError> {
        self.change(|state| state.ask(entry))
    }

    /// Lets threads read only so many files at once.
    pub(super) fn limit_files(&self, files: usize) {
        self.change(|state| state.limit_files(files));
    }

    /// Lets only these carriers take work.
    pub(super) fn allow(&self, carriers: &[Carrier]) {
        self.change(|state| state.allow(carriers));
    }

    /// What a thread does next; waits so long for a job.
    pub(super) fn next_within(&self, time: Duration, lane: Lane, carrier: Carrier) -> Next {
        let deadline = Instant::now() + time;
        let mut state = self.state();
        loop {
            let next = state.next(lane, carrier);
            let left = deadline.saturating_duration_since(Instant::now());
            if !matches!(next, Next::Nothing) || left.is_zero() {
                return next;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A chunk has been read.
    pub(super) fn read(&self, entry: EntryId, index: u64, address: Address) -> Step {
        self.change(|state| state.read(entry, index, address))
    }

    /// After an answer has been given: whether the file is complete by it.
    pub(super) fn completion(&self, entry: EntryId) -> Step {
        self.change(|state| state.completion(entry))
    }

    /// A job could not be sent, because its carrier failed: others send it, and all that was under way on it.
    pub(super) fn lose(&self, lane: Lane) {
        self.change(|state| state.lose(lane));
    }

    /// A chunk that a thread had in its hands could not be read.
    pub(super) fn put_down(&self, entry: EntryId) {
        self.change(|state| state.put_down(entry));
    }

    /// Threads of each carrier of which chunks are on their way.
    pub(super) fn under_way(&self) -> [usize; 2] {
        self.state().under_way()
    }

    /// Whether TCP brings nothing of what it has: QUIC sends that as well, where nothing else is to be done, and TCP
    /// takes nothing.
    pub(super) fn set_tcp_silent(&self, is_silent: bool) {
        self.change(|state| state.set_tcp_silent(is_silent));
    }

    /// The receiver has these chunks: how many bytes of them came by each carrier, and what is left to do for the file.
    pub(super) fn acknowledge(&self, entry: EntryId, chunks: &Ranges) -> (Arrived, Step) {
        self.change(|state| state.acknowledge(entry, chunks))
    }

    /// The receiver has these entries in their places.
    pub(super) fn stored(&self, entries: &Ranges) -> Result<Vec<Ended>, AnswerError> {
        let ended = self.change(|state| state.stored(entries))?;
        ended.iter().for_each(close);
        Ok(ended)
    }

    /// An entry has come to its end; the file that it was, unless it has ended before.
    pub(super) fn end(&self, entry: EntryId, end: End) -> Result<Option<Ended>, AnswerError> {
        let ended = self.change(|state| state.end(entry, end))?;
        ended.iter().for_each(close);
        Ok(ended)
    }

    /// The file of an entry that is open.
    pub(super) fn source(&self, entry: EntryId) -> Option<Arc<Source>> {
        self.state().source(entry)
    }

    /// Bytes that the receiver has of an entry that is open.
    pub(super) fn counted(&self, entry: EntryId) -> Option<u64> {
        self.state().counted(entry)
    }

    /// The known addresses of a file's chunks.
    pub(super) fn addresses(&self, entry: EntryId) -> Vec<Option<Address>> {
        self.state().addresses(entry)
    }

    /// Files whose chunks are known in part.
    pub(super) fn partly_read(&self) -> Vec<(Stamp, Vec<Option<Address>>)> {
        self.state().partly_read()
    }

    pub(super) fn totals(&self) -> Totals {
        self.state().totals()
    }

    /// Everybody ends.
    pub(super) fn end_all(&self) {
        self.change(State::end_all);
    }
}

/// Nothing more is read of a file that has ended.
fn close(ended: &Ended) {
    if let Some(source) = &ended.source {
        source.close();
    }
}
