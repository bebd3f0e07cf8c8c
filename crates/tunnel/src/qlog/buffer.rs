//! Records of one connection that wait for the thread that writes them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::{QLOG_UNDECIDED_BYTES_MAX, QLOG_WAITING_BYTES_MAX};

/// The buffer of one trace. The shard holds its lock for one record, the writer for the time of a move.
pub(super) struct Buffer(Mutex<State>);

#[derive(Default)]
struct State {
    choice: Choice,
    has_ended: bool,
    records: Vec<u8>,
    /// Records for which there was no room.
    left_out: u64,
}

#[derive(Default)]
enum Choice {
    #[default]
    Undecided,
    /// It is written, under this name.
    Written(String),
    Forgotten,
}

/// What the writer finds in a buffer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The trace's name; `None`: it is not to be written, or not yet.
    pub(super) name: Option<String>,
    pub(super) records: Vec<u8>,
    pub(super) left_out: u64,
    /// Nothing follows.
    pub(super) has_ended: bool,
}

impl Buffer {
    /// A trace that may be chosen later.
    pub(super) fn undecided() -> Self {
        Self(Mutex::default())
    }

    /// A chosen trace of this name.
    pub(super) fn of(name: String) -> Self {
        Self(Mutex::new(State {
            choice: Choice::Written(name),
            ..State::default()
        }))
    }

    /// Adds a record. Whether the writer should hurry.
    pub(super) fn push(&self, record: &[u8]) -> bool {
        let mut state = self.lock();
        let most = match state.choice {
            Choice::Undecided => QLOG_UNDECIDED_BYTES_MAX,
            Choice::Written(_) => QLOG_WAITING_BYTES_MAX,
            Choice::Forgotten => return false,
        };
        let half = most / 2;
        let before = state.records.len();
        if before + record.len() > most {
            state.left_out += 1;
            return false;
        }
        state.records.extend_from_slice(record);
        let is_written = matches!(state.choice, Choice::Written(_));
        is_written && before <= half && state.records.len() > half
    }

    /// It is written under this name, or forgotten, unless that is decided. Whether it is written.
    pub(super) fn decide(&self, name: Option<String>) -> bool {
        let mut state = self.lock();
        if matches!(state.choice, Choice::Undecided) {
            state.choice = match name {
                Some(name) => Choice::Written(name),
                None => {
                    state.records = Vec::new();
                    Choice::Forgotten
                }
            };
        }
        matches!(state.choice, Choice::Written(_))
    }

    /// No record follows.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
    }

    /// Everything that is to be written; the room is free again.
    pub(super) fn take(&self) -> Taken {
        let mut state = self.lock();
        let Choice::Written(name) = &state.choice else {
            return Taken {
                has_ended: state.has_ended,
                ..Taken::default()
            };
        };
        Taken {
            name: Some(name.clone()),
            has_ended: state.has_ended,
            records: std::mem::take(&mut state.records),
            left_out: std::mem::take(&mut state.left_out),
        }
    }

    /// Bytes that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().records.len()
    }

    #[cfg(test)]
    pub(super) fn left_out(&self) -> u64 {
        self.lock().left_out
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_waits_in_memory_until_it_is_chosen() {
        let buffer = Buffer::undecided();
        buffer.push(b"one");
        assert_eq!(buffer.take(), Taken::default());
        assert!(buffer.decide(Some("ann".to_owned())));
        assert!(buffer.decide(None), "it is decided once");
        buffer.push(b"two");
        buffer.end();
        let expected = Taken {
            name: Some("ann".to_owned()),
            records: b"onetwo".to_vec(),
            left_out: 0,
            has_ended: true,
        };
        assert_eq!(buffer.take(), expected);
    }

    #[test]
    fn a_trace_that_is_not_chosen_keeps_nothing() {
        let buffer = Buffer::undecided();
        buffer.push(b"one");
        assert!(!buffer.decide(None));
        buffer.push(b"two");
        assert!(buffer.lock().records.is_empty());
    }

    #[test]
    fn what_waits_is_bounded_by_whole_records_and_the_rest_is_counted() {
        let record = [b'x'; 1_000];
        for (buffer, most) in [
            (Buffer::undecided(), QLOG_UNDECIDED_BYTES_MAX),
            (Buffer::of("client".to_owned()), QLOG_WAITING_BYTES_MAX),
        ] {
            let fit = most / record.len();
            let hurries = (0..fit + 7).filter(|_| buffer.push(&record)).count();
            buffer.decide(Some("ann".to_owned()));
            let taken = buffer.take();
            assert_eq!((taken.records.len(), taken.left_out), (fit * record.len(), 7));
            assert_eq!(hurries, usize::from(most == QLOG_WAITING_BYTES_MAX));
        }
    }
}
