//! Why an entry is not transferred: numbers on the wire, sentences for people.

use std::fmt;

/// Why a receiver does not want an entry (FILE-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// It has it.
    Same,
    /// Another file is in its place and stays.
    Conflict,
    /// The receiver's patterns leave it out.
    Filtered,
    /// Nothing is stored: the receiver only wants to know.
    DryRun,
    /// Its name cannot be used at the receiver.
    UnsafeName,
    /// It is in a directory that is not stored.
    Parent,
    /// A link that leaves the destination, or of a kind that the receiver does not store.
    UnsafeLink,
    /// A reason that this version does not know.
    Other,
}

/// Why nothing more comes of an entry, or it cannot be stored (FILE-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailReason {
    /// The source cannot be read.
    Unreadable,
    /// The source changed while it was read.
    Changed,
    /// The source is gone.
    Vanished,
    /// What came does not have the hash that was told, also when sent again.
    Damaged,
    /// The destination is full.
    NoSpace,
    /// The destination is read-only.
    ReadOnly,
    /// The destination refuses it.
    Denied,
    /// A bound of this protocol.
    Limit,
    /// A reason that this version does not know.
    Other,
}

impl SkipReason {
    /// Whether the receiver cannot store the entry, which nobody wanted so: it counts as failed (FILE-45).
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::UnsafeName | Self::UnsafeLink)
    }

    pub(crate) fn code(self) -> u64 {
        self as u64
    }

    pub(crate) fn of(code: u64) -> Self {
        const ALL: [SkipReason; 7] = [
            SkipReason::Same,
            SkipReason::Conflict,
            SkipReason::Filtered,
            SkipReason::DryRun,
            SkipReason::UnsafeName,
            SkipReason::Parent,
            SkipReason::UnsafeLink,
        ];
        usize::try_from(code)
            .ok()
            .and_then(|code| ALL.get(code).copied())
            .unwrap_or(Self::Other)
    }
}

impl FailReason {
    pub(crate) fn code(self) -> u64 {
        self as u64
    }

    pub(crate) fn of(code: u64) -> Self {
        const ALL: [FailReason; 8] = [
            FailReason::Unreadable,
            FailReason::Changed,
            FailReason::Vanished,
            FailReason::Damaged,
            FailReason::NoSpace,
            FailReason::ReadOnly,
            FailReason::Denied,
            FailReason::Limit,
        ];
        usize::try_from(code)
            .ok()
            .and_then(|code| ALL.get(code).copied())
            .unwrap_or(Self::Other)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Same => "the receiver has it already",
            Self::Conflict => "another file is in its place at the receiver and stays",
            Self::Filtered => "the receiver's patterns leave it out",
            Self::DryRun => "the receiver only asked what would be sent",
            Self::UnsafeName => "its name cannot be used at the receiver",
            Self::Parent => "its directory is not stored",
            Self::UnsafeLink => "a link that leads out of the destination",
            Self::Other => "the receiver does not want it",
        })
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unreadable => "the source cannot be read",
            Self::Changed => "the source changed while it was read; send it again",
            Self::Vanished => "the source is gone",
            Self::Damaged => "what arrived does not have its hash, also when sent again",
            Self::NoSpace => "the destination is full; free space and transfer it again, which resumes",
            Self::ReadOnly => "the destination is read-only",
            Self::Denied => "the destination refuses it",
            Self::Limit => "it is beyond what this version can transfer",
            Self::Other => "the other end gave it up",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FILE-4: a later version may have more reasons.
    #[test]
    fn every_reason_is_read_as_it_was_written_and_unknown_ones_as_other() {
        for code in 0..7 {
            assert_eq!(SkipReason::of(code).code(), code);
        }
        for code in 0..8 {
            assert_eq!(FailReason::of(code).code(), code);
        }
        for code in [8, 9, 200, u64::MAX] {
            assert_eq!(SkipReason::of(code), SkipReason::Other);
            assert_eq!(FailReason::of(code), FailReason::Other);
        }
    }
}
