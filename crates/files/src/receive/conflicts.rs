//! Conflicts: something is in the place of an entry that is offered. The user's rule, or whoever is asked, decides
//! between keeping it, replacing it and a free name. Where it may be the file that is offered, the sender is asked for
//! the addresses of all chunks, and a comparison decides whether it is.
//!
//! Each place that was found is taken for its entry: two entries whose names the file system takes for the same never
//! replace each other.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files_proto::name::numbered;
use files_proto::plan::{self, Decision, Existing};
use files_proto::{Entry, SkipReason};

use super::compare::{Asked, Compared, Question};
use super::found::{Found, conflict, existing};
use super::place::{Place, Tried};
use super::plan::Planner;
use crate::destination::Destination;
use crate::options::{Answer, OnConflict};
use crate::progress::Event;

/// An entry that waits for a comparison.
pub(super) struct Unsure {
    pub(super) entry: Entry,
    /// Its place.
    pub(super) path: PathBuf,
    /// The file that it is compared with.
    pub(super) candidate: PathBuf,
    /// With that file, and should it differ.
    pub(super) tried: Tried,
}

impl Planner<'_> {
    /// Looks at what is in the place, and decides by the user's rule.
    pub(super) fn place(
        &self,
        destination: &Destination,
        entry: &Entry,
        path: &Path,
        mut tried: Tried,
    ) -> io::Result<Place> {
        let free = || Place::Free {
            path: path.to_owned(),
            like: None,
        };
        let Some(found) = existing(destination, path)? else {
            return Ok(free());
        };
        if tried.number == 0 && !self.take_place(&found) {
            // By a name that the file system takes for the same, whatever is known of it.
            return self.free_name(destination, entry, path, tried);
        }
        let decision = self.decide(entry, &found, path, &mut tried);
        let existing = found.existing;
        match decision {
            Decision::Create => Ok(free()),
            Decision::Skip(SkipReason::Same) => Ok(Place::Same(path.to_owned())),
            // Where it is not to be left out, it fails.
            Decision::Skip(_) if !tried.is_left_out(&self.options.on_conflict) => match existing {
                Existing::Directory => Ok(Place::Blocked("a directory is in its place; move it away")),
                Existing::Special => Ok(Place::Blocked(
                    "something that is no file is in its place; move it away",
                )),
                Existing::File { .. } | Existing::Symlink { .. } => Ok(Place::Skip),
            },
            Decision::Skip(_) | Decision::Merge => Ok(Place::Skip),
            Decision::Ask => Ok(Place::Asked),
            Decision::Compare => {
                tried.number = 1;
                Ok(Place::Unsure {
                    candidate: path.to_owned(),
                    tried,
                })
            }
            // Its addresses are compared, and only what differs is sent.
            Decision::Overwrite => Ok(Place::Taken(path.to_owned())),
            Decision::Rename => Ok(match self.free_name(destination, entry, path, tried)? {
                // Of what differs only that is sent (FILE-29).
                Place::Free { path: other, .. } if matches!(existing, Existing::File { .. }) => Place::Free {
                    path: other,
                    like: Some(path.to_owned()),
                },
                place => place,
            }),
        }
    }

    /// By the user's rule, or by the answer of whoever is asked, once for each entry; [`Decision::Ask`] only where this
    /// is a dry run, which asks nobody.
    fn decide(&self, entry: &Entry, found: &Found, path: &Path, tried: &mut Tried) -> Decision {
        let differs = tried.number > 0;
        let decide = |rule| self.decide_by(rule, entry, found, differs);
        let decision = decide(tried.answer.unwrap_or_else(|| rule(&self.options.on_conflict)));
        let OnConflict::Ask(ask) = &self.options.on_conflict else {
            return decision;
        };
        if decision != Decision::Ask || self.options.dry_run {
            return decision;
        }
        let answer = answered(ask(&conflict(entry, &found.existing, path)));
        tried.answer = Some(answer);
        decide(answer)
    }

    /// `differs`: both were compared.
    fn decide_by(&self, rule: plan::OnConflict, entry: &Entry, found: &Found, differs: bool) -> Decision {
        let existing = &found.existing;
        if self.receiving.doubt.has(found.changed_ns)
            && let Some(decision) = plan::decide_in_doubt(entry, existing, differs)
        {
            return decision;
        }
        match plan::decide(entry, Some(existing), rule, self.options.checksum) {
            Decision::Compare if differs => plan::resolve(entry, existing, rule, true),
            decision => decision,
        }
    }

    /// The lowest number that is free both on the disk and of what is offered (FILE-22), or in whose place a file is
    /// that may be the same.
    fn free_name(
        &self,
        destination: &Destination,
        entry: &Entry,
        path: &Path,
        mut tried: Tried,
    ) -> io::Result<Place> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        // The last one again: where it is what a power cut left, it is replaced.
        for number in 2.max(tried.number)..u32::MAX {
            let other_name = numbered(name, number);
            if !self.receiving.state().manifest.is_free(entry.id, &other_name) {
                continue;
            }
            let other = path.with_file_name(OsStr::from_bytes(&other_name));
            let found = existing(destination, &other)?;
            let differs = number == tried.number;
            let decide = |found| self.decide_by(plan::OnConflict::Rename, entry, found, differs);
            let takes_place = || found.as_ref().is_some_and(|found| self.take_place(found));
            let place = match found.as_ref().map_or(Decision::Create, decide) {
                Decision::Create => Place::Free {
                    path: other,
                    like: None,
                },
                Decision::Compare => {
                    tried.number = number;
                    return Ok(Place::Unsure {
                        candidate: other,
                        tried,
                    });
                }
                // Of an earlier transfer of the same file, unless another entry of this one is stored there.
                Decision::Skip(SkipReason::Same) if takes_place() => Place::Same(other),
                // What a power cut has left of it, unless another entry of this transfer is stored there.
                Decision::Overwrite if takes_place() => Place::Taken(other),
                _ => continue,
            };
            // Entries that come later get other names.
            if !self.receiving.state().manifest.reserve(entry.id, &other_name) {
                return Ok(Place::Blocked(
                    "more names are offered at once than are remembered",
                ));
            }
            if let Place::Free { path: other, .. } = &place
                && !self.options.dry_run
            {
                self.receiving.progress.tell(Event::Renamed {
                    from: path.display().to_string(),
                    to: other.display().to_string(),
                });
            }
            return Ok(place);
        }
        Ok(Place::Skip)
    }

    /// Asks for the addresses of a file, once, to know whether one that is here is the same.
    pub(super) fn ask_whether_same(&mut self, mut unsure: Unsure) {
        let (entry, size) = (unsure.entry.id, unsure.entry.size());
        let question = Question::Same {
            path: unsure.candidate.clone(),
        };
        let addresses = std::mem::take(&mut unsure.tried.addresses);
        self.unsure.insert(entry, unsure);
        if addresses.is_empty() {
            return self.ask(entry, size, question);
        }
        self.ready.push(Asked {
            entry,
            size,
            question,
            addresses,
        });
    }

    /// A file has been compared with that in its place.
    pub(super) fn compared(&mut self, compared: Compared) {
        // The sender may have given it up meanwhile.
        let Some(unsure) = self.unsure.remove(&compared.entry) else {
            return;
        };
        let Unsure {
            entry,
            path,
            candidate,
            mut tried,
        } = unsure;
        if let Some((missing, would)) = compared.missing {
            return self.offer(&entry, &path, missing, Some(would));
        }
        let is_same = compared.is_same && (tried.number == 1 || self.reserve(&entry, &candidate));
        match self.receiving.destination.clone().filter(|_| is_same) {
            Some(destination) => self.end_same(&destination, &entry, &candidate),
            None => {
                tried.addresses = compared.addresses;
                self.plan_placed(&entry, path, tried);
            }
        }
    }

    /// What was in doubt at this path is the file that is offered.
    pub(super) fn settle(&self, destination: &Destination, path: &Path) {
        if self.receiving.doubt.is_any()
            && let Ok(Some(found)) = existing(destination, path)
            && self.receiving.doubt.has(found.changed_ns)
        {
            // What cannot be changed stays in doubt.
            let _ = destination.confirm(path);
        }
    }

    /// Takes the name of a file that is the offered one; `false` where another entry has been offered for it meanwhile.
    fn reserve(&self, entry: &Entry, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let found = self
            .receiving
            .destination
            .as_ref()
            .and_then(|destination| existing(destination, path).ok()?);
        found.is_some_and(|found| self.take_place(&found))
            && self.receiving.state().manifest.reserve(entry.id, name)
    }

    /// Takes the place of what was found for an entry; `false` where another entry of this transfer has it.
    pub(super) fn take_place(&self, found: &Found) -> bool {
        found
            .identity
            .is_none_or(|identity| self.receiving.state().take_place(identity))
    }
}

/// The user's rule, as plans know it.
fn rule(on_conflict: &OnConflict) -> plan::OnConflict {
    match on_conflict {
        OnConflict::Skip => plan::OnConflict::Skip,
        OnConflict::Rename => plan::OnConflict::Rename,
        OnConflict::Overwrite => plan::OnConflict::Overwrite,
        OnConflict::Newer => plan::OnConflict::Newer,
        OnConflict::Ask(_) => plan::OnConflict::Ask,
    }
}

/// The rule that an answer is for one conflict.
fn answered(answer: Answer) -> plan::OnConflict {
    match answer {
        Answer::Skip => plan::OnConflict::Skip,
        Answer::Rename => plan::OnConflict::Rename,
        Answer::Overwrite => plan::OnConflict::Overwrite,
    }
}
