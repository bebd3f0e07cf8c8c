//! What a receiver does with an entry, decided before bytes flow: from what is offered, what is in its place, and what
//! the user wants of conflicts (FILE-28, FILE-29).

use crate::content::Address;
use crate::entry::{Entry, Kind};
use crate::journal::{Header, Journal};
use crate::limits::{CHUNK_BYTES, PACKED_FILE_BYTES_MAX};
use crate::ranges::Ranges;
use crate::reason::SkipReason;

/// What the user wants where another file is in a file's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Asks.
    #[default]
    Ask,
    /// Keeps what is there.
    Skip,
    /// Stores under another name (see [`crate::name::numbered`]).
    Rename,
    /// Replaces what is there.
    Overwrite,
    /// Replaces what was modified earlier.
    Newer,
}

/// What is in an entry's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existing {
    /// A file.
    File {
        /// Its bytes.
        size: u64,
        /// When it was modified, in nanoseconds since 1970.
        modified_ns: i64,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: Vec<u8>,
    },
    /// A device, a socket, a pipe.
    Special,
}

/// What is to be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is in its place: it is stored.
    Create,
    /// A directory is there already, and what is offered is stored in it.
    Merge,
    /// It is not stored.
    Skip(SkipReason),
    /// The bytes of both must be compared (see [`compare`]); where they are the same, it is skipped as
    /// [`SkipReason::Same`], otherwise what the user wants of conflicts holds.
    Compare,
    /// The user is asked, and answers with what they want of this conflict.
    Ask,
    /// It is stored under the next name that is free, or in whose place the same file is.
    Rename,
    /// It is stored, and then takes the place of what is there; chunks that are the same need not be sent.
    Overwrite,
}

/// Decides on `entry` with `existing` in its place. `checksum`: size and time are not enough to call files the same.
///
/// Another time alone is no other content: where such a file would be stored or asked about, both are compared first.
///
/// A directory never takes the place of something else, nor something else that of a directory: that would delete what
/// nobody was asked about.
#[must_use]
pub fn decide(
    entry: &Entry,
    existing: Option<&Existing>,
    on_conflict: OnConflict,
    checksum: bool,
) -> Decision {
    let Some(existing) = existing else {
        return Decision::Create;
    };
    let may_replace = match (&entry.kind, existing) {
        (Kind::Directory, Existing::Directory) => return Decision::Merge,
        (
            Kind::File { size },
            Existing::File {
                size: there,
                modified_ns,
            },
        ) if size == there => {
            if checksum {
                return match size {
                    0 => Decision::Skip(SkipReason::Same),
                    _ => Decision::Compare,
                };
            }
            if same_time(entry.modified_ns, *modified_ns) {
                return Decision::Skip(SkipReason::Same);
            }
            return match resolve(entry, existing, on_conflict, true) {
                kept @ Decision::Skip(_) => kept,
                _ if *size == 0 => Decision::Skip(SkipReason::Same),
                // Its chunks are compared while it is stored.
                Decision::Overwrite if *size > PACKED_FILE_BYTES_MAX => Decision::Overwrite,
                _ => Decision::Compare,
            };
        }
        (Kind::Symlink { target }, Existing::Symlink { target: there }) if target == there => {
            return Decision::Skip(SkipReason::Same);
        }
        (Kind::Directory, _) | (_, Existing::Directory | Existing::Special) => false,
        _ => true,
    };
    resolve(entry, existing, on_conflict, may_replace)
}

/// Decides on a conflict, also where [`decide`] said [`Decision::Compare`] and the bytes differ.
#[must_use]
pub fn resolve(entry: &Entry, existing: &Existing, on_conflict: OnConflict, may_replace: bool) -> Decision {
    let is_newer = match existing {
        Existing::File { modified_ns, .. } => {
            entry.modified_ns > *modified_ns && !same_time(entry.modified_ns, *modified_ns)
        }
        _ => false,
    };
    match on_conflict {
        OnConflict::Ask => Decision::Ask,
        OnConflict::Rename => Decision::Rename,
        OnConflict::Overwrite if may_replace => Decision::Overwrite,
        OnConflict::Newer if may_replace && is_newer => Decision::Overwrite,
        OnConflict::Skip | OnConflict::Overwrite | OnConflict::Newer => Decision::Skip(SkipReason::Conflict),
    }
}

/// Decides where a file that is in doubt is in a file's place (FILE-47); `None` where that is decided as ever.
/// `differs`: both were compared.
///
/// One that has the offered time, and no more bytes than are offered, is what a power cut has left of it, whatever the
/// user wants of conflicts, unless a comparison says that it is the same. Larger files have a journal.
#[must_use]
pub fn decide_in_doubt(entry: &Entry, existing: &Existing, differs: bool) -> Option<Decision> {
    let (
        Kind::File { size },
        Existing::File {
            size: there,
            modified_ns,
        },
    ) = (&entry.kind, existing)
    else {
        return None;
    };
    if *size > CHUNK_BYTES || there > size || !same_time(entry.modified_ns, *modified_ns) {
        return None;
    }
    Some(match size {
        0 => Decision::Skip(SkipReason::Same),
        _ if differs || there < size => Decision::Overwrite,
        _ => Decision::Compare,
    })
}

/// What file systems cut times down to, in nanoseconds: NTFS and shares of SMB, UDF, exFAT, ext3 and HFS+, FAT.
const TIME_STEPS_NS: [i64; 5] = [100, 1_000, 10_000_000, 1_000_000_000, TIME_STEP_NS_MAX];

/// The longest of them: times that are further apart are never the same.
pub const TIME_STEP_NS_MAX: i64 = 2_000_000_000;

/// Whether two times are the same, where one of them may come from a file system that does not keep every nanosecond:
/// it is the other one, cut down to what such a file system keeps.
#[must_use]
pub fn same_time(first_ns: i64, second_ns: i64) -> bool {
    let is_cut = |cut: i64, whole: i64| {
        TIME_STEPS_NS
            .iter()
            .any(|step| cut == whole.div_euclid(*step).saturating_mul(*step))
    };
    first_ns == second_ns || is_cut(first_ns, second_ns) || is_cut(second_ns, first_ns)
}

/// What a partial file is worth for what is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// Its source has not changed: these chunks are missing.
    Missing(Ranges),
    /// Its source has changed, or what of it is there since it did is not known: the sender is asked for addresses, and
    /// [`compare`] finds the chunks that still count.
    Compare,
    /// Nothing: the file is received from its start.
    Nothing,
}

/// Decides what the journal of a partial file is worth (FILE-28).
#[must_use]
pub fn resume(size: u64, modified_ns: i64, journal: &Journal) -> Resume {
    let Header {
        size: journal_size,
        modified_ns: journal_ns,
        ..
    } = journal.header;
    if journal.chunks.is_empty() && journal.is_settled {
        return Resume::Nothing;
    }
    if size == journal_size && modified_ns == journal_ns && journal.is_settled {
        let there: Ranges = journal.chunks.keys().copied().collect();
        return Resume::Missing(there.missing_below(crate::content::chunk_count(size)));
    }
    Resume::Compare
}

/// The chunks of a file whose addresses the receiver has at the same place, and those that it wants (FILE-29): `theirs`
/// are the addresses of all its chunks, `ours` those that the receiver has, by place.
#[must_use]
pub fn compare(theirs: &[Address], ours: impl IntoIterator<Item = (u64, Address)>) -> Compared {
    let there: Ranges = ours
        .into_iter()
        .filter(|(index, address)| theirs.get(*index as usize) == Some(address))
        .map(|(index, _)| index)
        .collect();
    Compared {
        wanted: there.missing_below(theirs.len() as u64),
        there,
    }
}

/// What [`compare`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Chunks that need not be sent.
    pub there: Ranges,
    /// Chunks to be sent.
    pub wanted: Ranges,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn entry(kind: Kind, modified_ns: i64) -> Entry {
        Entry {
            id: 0,
            parent: None,
            name: b"name".to_vec(),
            kind,
            mode: 0o644,
            modified_ns,
            attributes: Vec::new(),
            disk_bytes_min: 0,
        }
    }

    fn file(size: u64, modified_ns: i64) -> Entry {
        entry(Kind::File { size }, modified_ns)
    }

    fn there(size: u64, modified_ns: i64) -> Existing {
        Existing::File { size, modified_ns }
    }

    const ALL: [OnConflict; 5] = [
        OnConflict::Ask,
        OnConflict::Skip,
        OnConflict::Rename,
        OnConflict::Overwrite,
        OnConflict::Newer,
    ];

    /// FILE-28.
    #[test]
    fn a_time_is_the_same_where_it_was_cut_as_some_file_system_does_and_only_then() {
        let time = 1_700_000_003 * SECOND + 987_654_321;
        for cut in [
            1_700_000_003 * SECOND + 987_654_300,
            1_700_000_003 * SECOND + 987_654_000,
            1_700_000_003 * SECOND + 980_000_000,
            1_700_000_003 * SECOND,
            1_700_000_002 * SECOND,
        ] {
            assert!(same_time(time, cut) && same_time(cut, time), "{cut}");
        }
        for other in [
            time + 1,
            time - 1,
            time - 987_654_321 + SECOND,
            // Whole pieces, and not the one that it is in.
            1_700_000_003 * SECOND + 987_654_200,
            1_700_000_003 * SECOND + 970_000_000,
            1_700_000_003 * SECOND + 900_000_000,
            1_700_000_001 * SECOND,
            1_700_000_004 * SECOND,
            1_700_000_000 * SECOND,
        ] {
            assert!(!same_time(time, other) && !same_time(other, time), "{other}");
        }
        // Odd seconds are not FAT's, even where they are near.
        assert!(!same_time(1_700_000_003 * SECOND, 1_700_000_002 * SECOND + 1));
        assert!(same_time(-17, -2 * SECOND) && !same_time(17, -2 * SECOND));
        assert!(same_time(i64::MIN, i64::MIN) && !same_time(i64::MIN, i64::MAX));
    }

    /// FILE-28.
    #[test]
    fn what_has_the_same_size_and_time_is_not_sent_whatever_the_user_wants_of_conflicts() {
        for on_conflict in ALL {
            let decide = |entry: &Entry, existing: &Existing, checksum| {
                decide(entry, Some(existing), on_conflict, checksum)
            };
            let same = Decision::Skip(SkipReason::Same);
            assert_eq!(decide(&file(5, 7), &there(5, 7), false), same);
            assert_eq!(decide(&file(5, 7), &there(5, 7), true), Decision::Compare);
            assert_eq!(decide(&file(5, 7), &there(5, 8), true), Decision::Compare);
            // Of nothing there are no addresses to ask for.
            assert_eq!(decide(&file(0, 7), &there(0, 8), true), same);
            // ext3 keeps whole seconds.
            assert_eq!(
                decide(&file(5, 3 * SECOND + 17), &there(5, 3 * SECOND), false),
                same
            );
            assert_eq!(decide(&file(5, -17), &there(5, -SECOND), false), same);
            assert_ne!(
                decide(&file(5, 3 * SECOND + 17), &there(5, 4 * SECOND), false),
                same
            );
            assert_ne!(decide(&file(5, 7), &there(6, 7), true), Decision::Compare);
            let link = |target: &[u8]| Kind::Symlink {
                target: target.to_vec(),
            };
            let link_there = Existing::Symlink {
                target: b"a".to_vec(),
            };
            assert_eq!(decide(&entry(link(b"a"), 7), &link_there, true), same);
            assert_ne!(decide(&entry(link(b"b"), 7), &link_there, false), same);
            assert_eq!(
                decide(&entry(Kind::Directory, 7), &Existing::Directory, false),
                Decision::Merge
            );
        }
        assert_eq!(
            decide(&file(5, 7), None, OnConflict::Skip, true),
            Decision::Create
        );
    }

    #[test]
    fn a_conflict_ends_as_the_user_wants() {
        let skip = Decision::Skip(SkipReason::Conflict);
        let (older, newer) = (there(5, SECOND), there(5, 9 * SECOND));
        for (on_conflict, over_older, over_newer) in [
            (OnConflict::Ask, Decision::Ask, Decision::Ask),
            (OnConflict::Skip, skip, skip),
            (OnConflict::Rename, Decision::Rename, Decision::Rename),
            (OnConflict::Overwrite, Decision::Overwrite, Decision::Overwrite),
            (OnConflict::Newer, Decision::Overwrite, skip),
        ] {
            let entry = file(6, 5 * SECOND);
            assert_eq!(decide(&entry, Some(&older), on_conflict, false), over_older);
            assert_eq!(decide(&entry, Some(&newer), on_conflict, false), over_newer);
        }
    }

    #[test]
    fn directories_and_devices_are_never_replaced() {
        for (entry, existing) in [
            (file(1, 9), Existing::Directory),
            (file(1, 9), Existing::Special),
            (entry(Kind::Directory, 9), there(1, 1)),
            (
                entry(Kind::Directory, 9),
                Existing::Symlink {
                    target: b"x".to_vec(),
                },
            ),
            (
                entry(
                    Kind::Symlink {
                        target: b"x".to_vec(),
                    },
                    9,
                ),
                Existing::Directory,
            ),
        ] {
            for on_conflict in [OnConflict::Overwrite, OnConflict::Newer] {
                let decision = decide(&entry, Some(&existing), on_conflict, false);
                assert_eq!(decision, Decision::Skip(SkipReason::Conflict), "{existing:?}");
            }
            assert_eq!(
                decide(&entry, Some(&existing), OnConflict::Rename, false),
                Decision::Rename
            );
        }
    }

    /// FILE-47.
    #[test]
    fn what_a_power_cut_left_of_a_small_file_is_compared_or_replaced_and_nothing_else_is() {
        let chunk = CHUNK_BYTES;
        for (size, existing, before, after) in [
            (5, there(5, 7), Some(Decision::Compare), Some(Decision::Overwrite)),
            (
                5,
                there(0, 7),
                Some(Decision::Overwrite),
                Some(Decision::Overwrite),
            ),
            (
                chunk,
                there(chunk, 7),
                Some(Decision::Compare),
                Some(Decision::Overwrite),
            ),
            (
                0,
                there(0, 7),
                Some(Decision::Skip(SkipReason::Same)),
                Some(Decision::Skip(SkipReason::Same)),
            ),
            // A user's: longer, of another time, or no file.
            (5, there(6, 7), None, None),
            (5, there(0, 8), None, None),
            (5, Existing::Directory, None, None),
            // It had reached the disk before it got its name.
            (chunk + 1, there(chunk, 7), None, None),
        ] {
            let decided = [false, true].map(|differs| decide_in_doubt(&file(size, 7), &existing, differs));
            assert_eq!(decided, [before, after], "{size} {existing:?}");
        }
        assert_eq!(
            decide_in_doubt(&entry(Kind::Directory, 7), &there(5, 7), false),
            None
        );
    }

    fn journal(size: u64, modified_ns: i64, chunks: &[u64]) -> Journal {
        Journal {
            header: Header {
                size,
                modified_ns,
                boot: [0; 16],
            },
            chunks: chunks.iter().map(|index| (*index, [*index as u8; 32])).collect(),
            unsynced: std::collections::BTreeSet::new(),
            is_settled: true,
            valid_bytes: 0,
        }
    }

    /// FILE-28.
    #[test]
    fn a_partial_file_is_resumed_where_its_source_has_not_changed() {
        let size = (4 << 20) + 1;
        let missing = |chunks: &[u64]| Resume::Missing(chunks.iter().copied().collect());
        assert_eq!(resume(size, 7, &journal(size, 7, &[0, 2])), missing(&[1, 3, 4]));
        assert_eq!(resume(size, 7, &journal(size, 7, &[0, 1, 2, 3, 4])), missing(&[]));
        assert_eq!(resume(size, 7, &journal(size, 7, &[])), Resume::Nothing);
        // A journal's time is exact: another one is another content.
        assert_eq!(resume(size, 7, &journal(size, 8, &[0])), Resume::Compare);
        assert_eq!(resume(size, 7, &journal(size + 1, 7, &[0])), Resume::Compare);
        // More may be there than was written down.
        for chunks in [&[][..], &[0]] {
            let unsettled = Journal {
                is_settled: false,
                ..journal(size, 7, chunks)
            };
            assert_eq!(resume(size, 7, &unsettled), Resume::Compare);
        }
    }

    /// FILE-29.
    #[test]
    fn only_chunks_that_changed_are_wanted() {
        let theirs = [[0; 32], [1; 32], [9; 32], [3; 32]];
        let compared = compare(&theirs, journal(8 << 20, 7, &[0, 1, 2, 5]).chunks);
        assert_eq!(compared.there, [0, 1].into_iter().collect());
        assert_eq!(compared.wanted, [2, 3].into_iter().collect());
        assert_eq!(compare(&[], [(0, [0; 32])]).wanted, Ranges::new());
    }
}
