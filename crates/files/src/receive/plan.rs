//! What becomes of an entry that is offered: where it goes, whether it is there already, and what of it is wanted.
//! `conflicts.rs` decides where something is in its place.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files_proto::content::{Address, chunk_count};
use files_proto::filter::Takes;
use files_proto::limits::{CHUNK_BYTES, PACKED_FILE_BYTES_MAX};
use files_proto::manifest::{Offered, Refused};
use files_proto::message::Message;
use files_proto::name::target_stays_inside;
use files_proto::{Entry, EntryId, FailReason, Kind, Ranges, SkipReason};

use super::chosen::Chosen;
use super::compare::{Asked, Candidate, Question};
use super::conflicts::Unsure;
use super::elsewhere::Elsewhere;
use super::file::{Incoming, Output, Part, Target};
use super::found::existing;
use super::kept::{Kept, beside, kept};
use super::looks::is_renamed;
use super::ordered::Ordered;
use super::place::{Place, Tried};
use super::shared::{Directory, Receiving, Small, reason_of, sentence};
use super::stdout::Stdout;
use crate::destination::Destination;
use crate::error::TransferError;
use crate::options::ReceiveOptions;
use crate::progress::{Counter, Event, How, Would};
use crate::room::There;
use crate::walk::Filter;

/// Plans entries in the order in which they are offered.
pub(super) struct Planner<'a> {
    pub(super) receiving: &'a Receiving,
    pub(super) options: &'a ReceiveOptions,
    pub(super) only: Filter,
    /// What that has of what was offered so far.
    pub(super) chosen: Chosen,
    /// Files that may have been moved.
    pub(super) elsewhere: Elsewhere,
    /// Files whose addresses were asked for.
    pub(super) asked: HashMap<EntryId, Asked>,
    /// Files in whose places are others, of which is not known yet whether they are the same.
    pub(super) unsure: HashMap<EntryId, Unsure>,
    /// Files whose addresses are known, to be compared.
    pub(super) ready: Vec<Asked>,
}

impl Planner<'_> {
    /// Plans one; an error ends the transfer.
    pub(super) fn plan(&mut self, entry: Entry) -> Result<(), TransferError> {
        let offered = String::from_utf8_lossy(&entry.name).into_owned();
        let handled = self.receiving.state().manifest.handle_entry(entry)?;
        let Offered { entry, path, renamed } = match handled {
            Ok(offered) => offered,
            Err(Refused { entry, reason, error }) => {
                self.chosen.has_some = true;
                if let Some(error) = error {
                    let mut path = self.receiving.state().manifest.path_of(entry.parent);
                    // As text: it is no name to be joined with anything.
                    path.push(offered.into_bytes());
                    let path = String::from_utf8_lossy(&path.join(&b'/')).into_owned();
                    self.receiving.problem(path, error.to_string());
                }
                match entry.kind {
                    // It is done when it has ended.
                    Kind::Directory => self.receiving.refuse_directory(entry.id, reason),
                    _ => self.receiving.skip(entry.id, reason),
                }
                return Ok(());
            }
        };
        let path: PathBuf = path.iter().map(|name| OsStr::from_bytes(name)).collect();
        if renamed && self.writes() {
            self.receiving.progress.tell(Event::Renamed {
                from: path.with_file_name(offered).display().to_string(),
                to: path.display().to_string(),
            });
        }
        let is_directory = entry.kind == Kind::Directory;
        match (self.only)(&path, is_directory) {
            Takes::No => {
                self.receiving.skip(entry.id, SkipReason::Filtered);
                return Ok(());
            }
            Takes::Inside => {
                self.wait_with_directory(entry, path);
                return Ok(());
            }
            Takes::Yes => self.chosen.has_some = true,
        }
        if !self.make_waiting(entry.parent) {
            self.refuse_in_refused(&entry);
        } else if is_directory {
            self.plan_directory(&entry, path);
        } else if self.options.list {
            self.offer(&entry, &path, entry.size(), None);
        } else if self.receiving.destination.is_none() && !self.options.dry_run {
            return self.plan_output(entry, path);
        } else {
            self.plan_placed(&entry, path, Tried::default());
        }
        Ok(())
    }

    pub(super) fn writes(&self) -> bool {
        !self.options.dry_run && !self.options.list
    }

    /// Makes a directory; what is in it fails where that fails.
    pub(super) fn plan_directory(&self, entry: &Entry, path: PathBuf) {
        let Some(destination) = self.receiving.destination.as_ref().filter(|_| self.writes()) else {
            // What is in it is looked at all the same.
            let reason = SkipReason::DryRun;
            return self.receiving.outbox.push(&Message::Skip {
                entry: entry.id,
                reason,
            });
        };
        let made = destination.make_directory(&path, entry.mode);
        // A new one has those of the one that it is in.
        let rules = matches!(made, Ok(false)).then(|| destination.rules(&path, true));
        let mut state = self.receiving.state();
        if let Some(rules) = rules {
            state.manifest.set_rules(entry.id, rules);
        }
        if made.is_err() {
            state.manifest.refuse_directory(entry.id);
            state.totals.failed += 1;
        }
        let directory = Directory {
            path: path.clone(),
            mode: entry.mode,
            modified: entry.modified_ns,
            is_made: made.is_ok(),
            is_new: matches!(made, Ok(true)),
            attributes: self.attributes(entry),
        };
        state.directories.insert(entry.id, directory);
        drop(state);
        if let Err(error) = made {
            let text = sentence(&error);
            self.receiving.outbox.push(&Message::Failed {
                entry: entry.id,
                reason: reason_of(&error),
                text: text.clone(),
            });
            self.receiving.problem(path.display().to_string(), text);
        }
    }

    /// The one file that goes to standard output, once all that is offered is known.
    pub(super) fn begin_output(&mut self) {
        let Some((entry, path)) = self.chosen.output.take() else {
            return;
        };
        let stdout = match Stdout::new(&self.receiving.is_over) {
            Ok(stdout) => stdout,
            Err(error) => {
                let text = sentence(&error);
                return self
                    .receiving
                    .fail(entry.id, &path.display().to_string(), reason_of(&error), &text);
            }
        };
        let output = Output::Stdout(Ordered::new(stdout));
        let file = Arc::new(Incoming::new(target(&entry, path), output, &BTreeMap::new()));
        self.count(entry.size());
        self.begin(&file);
    }

    fn count(&self, size: u64) {
        self.receiving.progress.add(Counter::FilesTotal, 1);
        self.receiving.progress.add(Counter::BytesTotal, size);
    }

    /// `tried`: files that it was compared with are others.
    pub(super) fn plan_placed(&mut self, entry: &Entry, path: PathBuf, tried: Tried) {
        let is_first = tried.number == 0;
        let Some(destination) = &self.receiving.destination else {
            return self.look_at_nothing(entry, &path);
        };
        let fail = |path: &Path, error: &io::Error| {
            let path = path.display().to_string();
            self.receiving
                .fail(entry.id, &path, reason_of(error), &sentence(error));
        };
        let place = match self.place(destination, entry, &path, tried) {
            Ok(place) => place,
            Err(error) => return fail(&path, &error),
        };
        // Once, also where it was compared meanwhile.
        if is_first && !matches!(entry.kind, Kind::Symlink { .. }) {
            self.count(entry.size());
        }
        if self.options.dry_run
            && let Some(look) = place.look(&path, is_renamed(entry, &path))
        {
            return self.look(destination, entry, look);
        }
        let (path, is_taken, like) = match place {
            Place::Unsure { candidate, tried } => {
                return self.ask_whether_same(Unsure {
                    entry: entry.clone(),
                    path,
                    candidate,
                    tried,
                });
            }
            Place::Free { path, like } => (path, false, like),
            Place::Taken(path) => (path, true, None),
            Place::Same(path) => return self.end_same(destination, entry, &path),
            Place::Skip | Place::Asked => {
                return self.end_unsent(entry, &path, How::Skipped, SkipReason::Conflict);
            }
            Place::Blocked(text) => {
                let path = path.display().to_string();
                return self.receiving.fail(entry.id, &path, FailReason::Denied, text);
            }
        };
        let begun = match &entry.kind {
            Kind::Symlink { target: to } => self.make_link(destination, entry, &path, to, is_taken),
            Kind::File { size } if *size <= PACKED_FILE_BYTES_MAX => {
                self.begin_small(destination, entry, &path, is_taken)
            }
            _ => {
                let candidate = match is_taken {
                    true => Some(Candidate::Replaced),
                    false => like.map(Candidate::Elsewhere),
                };
                self.begin_file(destination, entry, &path, candidate)
            }
        };
        if let Err(error) = begun {
            fail(&path, &error);
        }
    }

    /// What is offered is at this path: it gets mode, time and attributes, and no bytes are sent.
    pub(super) fn end_same(&self, destination: &Destination, entry: &Entry, path: &Path) {
        let size = entry.size();
        if size > CHUNK_BYTES && !self.options.dry_run {
            // Of a transfer that was killed right after its end; nothing is lost where it stays.
            let (part, journal) = beside(path);
            let _ = destination.clear_journal(&part, &journal);
        }
        if matches!(entry.kind, Kind::File { .. }) && !self.options.dry_run {
            let attributes = self.attributes(entry);
            let adopted = destination.adopt(path, entry.mode, entry.modified_ns, &attributes);
            if let Err(error) = adopted {
                // What is in it is complete.
                let text = format!("it is there, and its mode, time or attributes cannot be set: {error}");
                self.receiving.problem(path.display().to_string(), text);
            }
            self.settle(destination, path);
        }
        self.receiving.progress.add(Counter::BytesThere, size);
        self.receiving.progress.add(Counter::BytesDone, size);
        self.end_unsent(entry, path, How::There, SkipReason::Same);
    }

    /// Asks the sender for the addresses of a file's chunks, to answer this question.
    pub(super) fn ask(&mut self, entry: EntryId, size: u64, question: Question) {
        let asked = Asked {
            entry,
            size,
            question,
            addresses: Vec::new(),
        };
        self.asked.insert(entry, asked);
        self.receiving.outbox.push(&Message::Ask { entry });
    }

    /// The sender has given up an entry, for this reason.
    pub(super) fn give_up(&mut self, entry: EntryId, text: &str) {
        self.asked.remove(&entry);
        if let Some(unsure) = self.unsure.remove(&entry) {
            self.receiving.state().totals.failed += 1;
            self.receiving
                .problem(unsure.path.display().to_string(), text.to_owned());
            self.receiving.progress.add(Counter::FilesDone, 1);
            self.receiving.finish(entry);
        }
    }

    fn end_unsent(&self, entry: &Entry, path: &Path, how: How, reason: SkipReason) {
        self.receiving.progress.add(Counter::FilesDone, 1);
        let (path, bytes) = (path.display().to_string(), entry.size());
        let would = match how {
            How::Skipped => Would::Skip,
            _ => Would::Keep,
        };
        self.receiving.progress.tell(match self.options.dry_run {
            true => Event::Offered {
                path,
                bytes,
                missing: 0,
                would: Some(would),
            },
            false => Event::Done { path, bytes, how },
        });
        self.receiving.skip(entry.id, reason);
    }

    /// Leaves out a link that leads out, unless the user allows it; whether it did.
    pub(super) fn refuse_link(&self, entry: &Entry, path: &Path) -> bool {
        let Kind::Symlink { target } = &entry.kind else {
            return false;
        };
        let to = Path::new(OsStr::from_bytes(target));
        if self.options.links_all || stays_inside(path, to) {
            return false;
        }
        let text = format!(
            "a link to {} leads out of the destination and is left out; --all-links makes it",
            to.display()
        );
        self.receiving.problem(path.display().to_string(), text);
        self.receiving.skip(entry.id, SkipReason::UnsafeLink);
        true
    }

    fn make_link(
        &self,
        destination: &Destination,
        entry: &Entry,
        path: &Path,
        to: &[u8],
        is_taken: bool,
    ) -> io::Result<()> {
        if self.refuse_link(entry, path) {
            return Ok(());
        }
        let to = OsStr::from_bytes(to);
        let (part, _) = beside(path);
        destination.clear(&part)?;
        destination.symlink(to, path, &part, entry.modified_ns, is_taken)?;
        if let Ok(Some(found)) = existing(destination, path) {
            self.take_place(&found);
        }
        let path = path.display().to_string();
        self.receiving.stored(entry.id, path, 0, How::Sent);
        Ok(())
    }

    fn begin_small(
        &self,
        destination: &Destination,
        entry: &Entry,
        path: &Path,
        is_taken: bool,
    ) -> io::Result<()> {
        let (part, journal) = beside(path);
        if !self.is_in_new_directory(entry) {
            // Of a transfer that was killed when it was a large one. What stays has a name that tells what it is.
            match destination.clear_both(&part, &journal) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let small = Small {
            path: path.to_owned(),
            part,
            size: entry.size(),
            mode: entry.mode,
            modified: entry.modified_ns,
            attributes: self.attributes(entry),
            replaces: is_taken,
            damaged_arrivals: 0,
        };
        if small.size == 0 {
            self.receiving.store_small(entry.id, &small, b"");
            return Ok(());
        }
        self.receiving.state().small.insert(entry.id, small);
        self.receiving.outbox.push(&Message::Want {
            entry: entry.id,
            chunks: Ranges::from_range(0..1),
        });
        Ok(())
    }

    /// Whether this transfer has made the directory that an entry is in.
    fn is_in_new_directory(&self, entry: &Entry) -> bool {
        let state = self.receiving.state();
        let parent = entry.parent.and_then(|parent| state.directories.get(&parent));
        parent.is_some_and(|parent| parent.is_new)
    }

    fn attributes(&self, entry: &Entry) -> Vec<files_proto::Attribute> {
        match self.options.xattrs {
            true => entry.attributes.clone(),
            false => Vec::new(),
        }
    }

    fn begin_file(
        &mut self,
        destination: &Arc<Destination>,
        entry: &Entry,
        path: &Path,
        mut candidate: Option<Candidate>,
    ) -> io::Result<()> {
        let mut target = target(entry, path.to_owned());
        target.attributes = self.attributes(entry);
        target.replaces = matches!(candidate, Some(Candidate::Replaced));
        // Nobody else writes what is looked at here.
        let claimed = destination.claim(&target.part)?;
        let kept = match (&claimed, target.size) {
            (Some(part), Some(size)) => kept(destination, &target, part, size, &self.receiving.progress),
            _ => Kept::Nothing,
        };
        let there = There {
            part: claimed.as_ref(),
            is_replaced: target.replaces,
        };
        let room = destination.check_room(path, there, entry.disk_bytes_min.min(entry.size()))?;
        let mut kept_journal_bytes = None;
        let mut known = BTreeMap::new();
        let (mut checks_part, mut is_former) = (false, false);
        match kept {
            Kept::Same { journal, is_damaged } => {
                kept_journal_bytes = Some(journal.valid_bytes);
                known = journal.chunks;
                checks_part = is_damaged || self.options.checksum;
                let count = target.size.map(chunk_count);
                if checks_part || count == Some(known.len() as u64) {
                    // Killed just before its end: whether it is the sender's file, addresses tell.
                    candidate = candidate.or(Some(Candidate::Nowhere));
                }
            }
            // The source has changed since: what did not change is in the part of then.
            Kept::Other => {
                is_former = true;
                candidate = candidate.or(Some(Candidate::Nowhere));
            }
            Kept::Nothing if candidate.is_none() => {
                let found = self.elsewhere.find(destination, entry.size(), entry.modified_ns);
                candidate = found.map(Candidate::Elsewhere);
            }
            Kept::Nothing => {}
        }
        // The thread that writes the first chunk claims it again.
        drop(claimed);
        let part = match is_former {
            true => Part::former(destination),
            false => Part::new(destination, kept_journal_bytes),
        };
        let part = part.with_room(room);
        let file = Arc::new(Incoming::new(target, Output::Part(part), &known));
        match candidate {
            Some(candidate) if file.target.size.is_some() => {
                let (entry, size) = (file.target.entry, file.target.size.unwrap_or(0));
                self.receiving.state().files.insert(entry, Arc::clone(&file));
                let question = Question::Chunks {
                    file,
                    candidate,
                    checks_part,
                };
                self.ask(entry, size, question);
            }
            _ => self.begin(&file),
        }
        Ok(())
    }

    /// Wants what is missing.
    fn begin(&self, file: &Arc<Incoming>) {
        self.receiving.count_there(file);
        self.receiving
            .state()
            .files
            .insert(file.target.entry, Arc::clone(file));
        self.receiving.want(file);
    }

    /// Addresses of a file's chunks have come; the whole question where they are the last ones.
    pub(super) fn hashes(
        &mut self,
        entry: EntryId,
        first: u64,
        addresses: &[Address],
    ) -> Result<Option<Asked>, &'static str> {
        let Some(asked) = self.asked.get_mut(&entry) else {
            return Ok(None);
        };
        if asked.addresses.len() as u64 != first {
            return Err("addresses do not come one after the other");
        }
        asked.addresses.extend_from_slice(addresses);
        match (asked.addresses.len() as u64).cmp(&chunk_count(asked.size)) {
            std::cmp::Ordering::Less => Ok(None),
            std::cmp::Ordering::Equal => Ok(self.asked.remove(&entry)),
            std::cmp::Ordering::Greater => Err("a file has more addresses than chunks"),
        }
    }
}

impl Receiving {
    /// Wants the chunks of a file that are missing, or as many as can be kept on the way to standard output.
    pub(super) fn want(&self, file: &Arc<Incoming>) {
        let entry = file.target.entry;
        let mut missing = match file.target.size {
            None => Ranges::from_range(0..1),
            Some(_) => file.missing(),
        };
        if missing.is_empty() {
            // Everything is there; the hash is that of what the addresses say.
            let progressed = file.complete_by_itself();
            return self.go_on(file, &progressed);
        }
        if !self.state().begin_turn(file) || self.want_more(file) {
            return;
        }
        while !missing.is_empty() {
            let chunks = missing.split_first(files_proto::limits::RANGES_MAX);
            self.outbox.push(&Message::Want { entry, chunks });
        }
    }

    /// On the way to standard output, wants those behind as those before leave; `false` for all other files.
    pub(super) fn want_more(&self, file: &Arc<Incoming>) -> bool {
        let entry = file.target.entry;
        file.want_window(|chunks| self.outbox.push(&Message::Want { entry, chunks }))
    }
}

pub(super) fn target(entry: &Entry, path: PathBuf) -> Target {
    let (part, journal) = beside(&path);
    Target {
        entry: entry.id,
        path,
        part,
        journal,
        size: match entry.kind {
            Kind::File { size } => Some(size),
            _ => None,
        },
        mode: entry.mode,
        modified: entry.modified_ns,
        attributes: Vec::new(),
        replaces: false,
    }
}

/// Whether a link at `path` leads to something below the destination, as far as its text tells (FILE-23).
fn stays_inside(path: &Path, to: &Path) -> bool {
    let depth = path.components().count().saturating_sub(1);
    target_stays_inside(depth, to.as_os_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_out_by_their_text_or_stay() {
        let stays = |path: &str, to: &str| stays_inside(Path::new(path), Path::new(to));
        assert!(stays("tree/link", "file"));
        assert!(stays("tree/link", "../other/file"));
        assert!(stays("tree/deep/link", "../../file"));
        assert!(!stays("tree/link", "../../file"));
        assert!(!stays("link", ".."));
        assert!(!stays("tree/link", "/etc/passwd"));
        assert!(!stays("tree/link", "down/../../../out"));
        // `down` may be a link itself.
        assert!(!stays("tree/link", "down/../file"));
    }
}
