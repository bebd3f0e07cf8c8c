//! Offering: what is to be sent is walked, and told to the receiver entry by entry.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, PoisonError};

use files_proto::message::Message;
use files_proto::{Entry, Kind};

use super::Sending;
use super::desk::Offered as What;
use crate::attributes;
use crate::options::Source as Named;
use crate::progress::Counter;
use crate::source::Source;
use crate::walk::{Content, Found, Problem, Step, Walk};

/// Walks over the sources and offers what it finds.
pub(super) fn offer(sending: &Sending, sources: Vec<Named>, select: crate::walk::Filter, xattrs: bool) {
    let mut paths = Vec::new();
    let mut pipes = Vec::new();
    for source in sources {
        match source {
            Named::Path(path) => paths.push(path),
            Named::Stdin { name } => pipes.push(name),
        }
    }
    let mut entries = 0;
    for step in Walk::new(paths, select) {
        if !sending.outbox.wait_for_room() {
            return;
        }
        match step {
            Step::Found(found) => {
                entries = found.entry + 1;
                if !offer_one(sending, found, xattrs) {
                    return;
                }
            }
            Step::DirectoryEnd { entry } => sending.outbox.push(&Message::DirectoryEnd { entry }),
            Step::Problem(problem) => leave_out(sending, problem),
        }
    }
    // There is one standard input.
    if let Some(name) = pipes.into_iter().next() {
        let entry = entries;
        *sending.pipe.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
        let offered = Entry {
            id: entry,
            parent: None,
            name: name.clone().into_bytes(),
            kind: Kind::Pipe,
            mode: 0o644,
            modified_ns: crate::processor::now_ns(),
            attributes: Vec::new(),
            disk_bytes_min: 0,
        };
        if !sending.desk.offer(&offered, What::Other { name }, Vec::new()) {
            return;
        }
        sending.progress.add(Counter::FilesTotal, 1);
        sending.outbox.push(&Message::Entry(offered));
    }
    let telling = sending.telling();
    sending.outbox.push(&sending.desk.end_offer());
    drop(telling);
    sending.progress.complete_manifest();
}

/// Tells of what is not offered; where that is a failure, the receiver is to know that what it gets is not all
/// (FILE-44).
fn leave_out(sending: &Sending, problem: Problem) {
    if let Some(reason) = problem.reason {
        sending.desk.leave_out();
        sending.outbox.push(&Message::Unoffered {
            reason,
            path: problem.relative.display().to_string(),
            text: problem.text.clone(),
        });
    }
    sending.problem(problem.path.display().to_string(), problem.text);
}

/// `false` once the transfer is over.
fn offer_one(sending: &Sending, found: Found, xattrs: bool) -> bool {
    let attributes = match xattrs {
        true => attributes::of(&found.path),
        false => Vec::new(),
    };
    let kind = match &found.content {
        Content::File => Kind::File {
            size: found.stamp.size,
        },
        Content::Directory => Kind::Directory,
        Content::Symlink { target } => Kind::Symlink {
            target: target.as_bytes().to_vec(),
        },
    };
    let name = found.relative.display().to_string();
    let (what, known) = match found.content {
        Content::File => {
            sending.progress.add(Counter::FilesTotal, 1);
            sending.progress.add(Counter::BytesTotal, found.stamp.size);
            let known = sending.cache.as_ref().map(|cache| cache.known(&found.stamp));
            let source = Source::new(found.entry, found.path.clone(), name, found.stamp);
            (What::File(Arc::new(source)), known.unwrap_or_default())
        }
        Content::Directory | Content::Symlink { .. } => (What::Other { name }, Vec::new()),
    };
    let entry = Entry {
        id: found.entry,
        parent: found.parent,
        name: OsStr::as_bytes(&found.name).to_vec(),
        kind,
        mode: found.stamp.mode,
        modified_ns: found.stamp.modified,
        attributes,
        disk_bytes_min: match found.content {
            Content::File if !found.stamp.is_sparse => found.stamp.size,
            _ => 0,
        },
    };
    let is_offered = sending.desk.offer(&entry, what, known);
    if is_offered {
        sending.outbox.push(&Message::Entry(entry));
    }
    is_offered
}
