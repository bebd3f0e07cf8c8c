//! What was written and is not on disk yet, bounded: a thread has the disk take it while others write on, and where the
//! disk is too slow for that the writers wait, and by that the sender.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use files_proto::EntryId;

use super::file::Incoming;
use crate::limits::{WRITE_BACK_BYTES, WRITE_BACK_BYTES_MAX};

#[derive(Default)]
pub(super) struct WriteBack {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    bytes: u64,
    files: BTreeMap<EntryId, Arc<Incoming>>,
    is_over: bool,
}

impl WriteBack {
    /// So many bytes of a file were written; waits where there are too many.
    pub(super) fn wrote(&self, file: &Arc<Incoming>, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes += bytes;
        state
            .files
            .entry(file.target.entry)
            .or_insert_with(|| Arc::clone(file));
        if state.bytes < WRITE_BACK_BYTES {
            return;
        }
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, |state| {
            state.bytes > WRITE_BACK_BYTES_MAX && !state.is_over
        });
        drop(waited);
    }

    /// The thread that has the disk take it, until the end; `failed` is told of files that it does not take.
    pub(super) fn run(&self, failed: impl Fn(&Arc<Incoming>, &io::Error)) {
        loop {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut state = self
                .changed
                .wait_while(state, |state| state.bytes < WRITE_BACK_BYTES && !state.is_over)
                .unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let bytes = state.bytes;
            let files = std::mem::take(&mut state.files);
            drop(state);
            for file in files.into_values() {
                // A disk tells of a failure once, to whoever asks.
                if let Err(error) = file.sync() {
                    failed(&file, &error);
                }
            }
            self.state.lock().unwrap_or_else(PoisonError::into_inner).bytes -= bytes;
            self.changed.notify_all();
        }
    }

    /// Lets everybody go.
    pub(super) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.changed.notify_all();
    }
}
