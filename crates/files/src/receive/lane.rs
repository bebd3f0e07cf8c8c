//! The thread of one carrier: reads a record, checks it, writes it to its place, and reads the next one.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use files_proto::compress::Decompression;
use files_proto::limits::{CHUNK_BYTES, RECORD_HEAD_BYTES};
use files_proto::pack::{self, Packed};
use files_proto::record::{Body, Chunk, Piece, RecordHead};
use files_proto::{EntryId, FailReason};

use super::damaged::chunk_of;
use super::file::{Incoming, Progressed, StoreError, Target};
use super::shared::{Receiving, Small, reason_of, sentence};
use crate::carrier::RecordReceiver;
use crate::destination::Destination;
use crate::error::TransferError;
use crate::progress::{Counter, DamagedAt, Event, FileInWork, How};
use crate::waits::Wait;

/// Works until nothing more comes.
pub(super) fn run(receiving: &Receiving, mut carrier: RecordReceiver) {
    if let Err(broken) = receive(receiving, &mut carrier) {
        receiving.end_by(TransferError::Broken(broken.to_owned()));
    }
}

fn receive(receiving: &Receiving, carrier: &mut RecordReceiver) -> Result<(), &'static str> {
    let mut head = [0; RECORD_HEAD_BYTES];
    let mut stored = Vec::new();
    let mut opened = Vec::new();
    let mut decompression = Decompression::new();
    let network = Wait::Network(carrier.carrier());
    // A carrier that ends in the middle is none of ours to judge: what it carried comes again by another.
    while !receiving.is_over() {
        let waiting = receiving.progress.wait(network);
        if !matches!(carrier.read(&mut head), Ok(true)) {
            return Ok(());
        }
        let head = RecordHead::decode(&head).map_err(|_| "a record has impossible lengths")?;
        stored.resize(head.stored_bytes as usize, 0);
        if !stored.is_empty() && !matches!(carrier.read(&mut stored), Ok(true)) {
            return Ok(());
        }
        drop(waiting);
        receiving
            .progress
            .add(Counter::BytesWire, (RECORD_HEAD_BYTES + stored.len()) as u64);
        let hole = matches!(head.body, Body::Chunk(Chunk { hole: true, .. }));
        let bytes = if hole {
            opened.clear();
            opened.resize(head.raw_bytes as usize, 0);
            &opened
        } else if head.compressed {
            opened.resize(head.raw_bytes as usize, 0);
            match (decompression.decompress(&stored, &mut opened), &head.body) {
                (Ok(()), _) => &opened,
                (Err(_), Body::Chunk(chunk)) => {
                    receiving
                        .hands
                        .work(|| receiving.take_damaged(chunk, u64::from(head.raw_bytes)))?;
                    continue;
                }
                // Nobody knows what it has.
                (Err(_), _) => return Err("a record cannot be decompressed"),
            }
        } else {
            &stored
        };
        match head.body {
            Body::Chunk(chunk) => receiving.hands.work(|| receiving.take_chunk(&chunk, bytes))?,
            Body::Pack => receiving.hands.work(|| receiving.take_pack(bytes))?,
            Body::Piece(piece) => receiving.hands.work(|| receiving.take_piece(&piece, bytes))?,
            Body::Unknown => {}
        }
    }
    Ok(())
}

impl Receiving {
    fn take_chunk(&self, chunk: &Chunk, bytes: &[u8]) -> Result<(), &'static str> {
        let Some(file) = self.state().files.get(&chunk.entry).map(Arc::clone) else {
            // It failed, or was complete before a carrier was lost.
            return Ok(());
        };
        if chunk.verify(bytes).is_err() {
            return self.take_damaged(chunk, bytes.len() as u64);
        }
        if !self.begin_file(&file) {
            return Ok(());
        }
        let waiting = self.progress.wait(Wait::Disk);
        let stored = file.store(chunk, bytes);
        drop(waiting);
        if stored.is_err() && !self.state().files.contains_key(&chunk.entry) {
            // It has come to its end meanwhile.
            return Ok(());
        }
        match stored {
            Ok(Progressed::Known) => self.acknowledge(&file, chunk.index),
            Ok(Progressed::InOtherHands) => {}
            Ok(progressed) => {
                let length = bytes.len() as u64;
                if file.target.size.is_none() {
                    // A pipe has no size that was counted when it was offered.
                    self.progress.add(Counter::BytesTotal, length);
                }
                self.progress.add(Counter::BytesDone, length);
                self.progress
                    .change_file(chunk.entry, |file| file.bytes_done += length);
                self.bytes_sent.fetch_add(length, Ordering::Relaxed);
                self.chunks_sent.fetch_add(1, Ordering::Relaxed);
                let waiting = self.progress.wait(Wait::Disk);
                self.write_back.wrote(&file, length);
                drop(waiting);
                self.acknowledge(&file, chunk.index);
                self.want_more(&file);
                self.go_on(&file, &progressed);
            }
            Err(StoreError::Broken(how)) => return Err(how),
            Err(StoreError::Write(error)) => {
                self.fail_write(&file, &error);
            }
        }
        Ok(())
    }

    /// A chunk of a file has come, which may be its first one; `false` where the file has come to its end meanwhile.
    fn begin_file(&self, file: &Incoming) -> bool {
        let Target { entry, size, .. } = file.target;
        if size.is_none_or(|size| size > CHUNK_BYTES) {
            self.progress.begin_file(entry, || FileInWork {
                path: file.target.path.display().to_string(),
                bytes_done: file.there().0,
                bytes_total: size,
            });
        }
        let is_there = self.state().files.contains_key(&entry);
        if !is_there {
            self.progress.end_file(entry);
        }
        is_there
    }

    fn take_piece(&self, piece: &Piece, bytes: &[u8]) -> Result<(), &'static str> {
        let Some(file) = self.state().files.get(&piece.entry).map(Arc::clone) else {
            return Ok(());
        };
        match file.begin(piece, bytes) {
            Ok(()) => {}
            Err(StoreError::Broken(how)) => return Err(how),
            Err(StoreError::Write(error)) => {
                self.fail_write(&file, &error);
            }
        }
        Ok(())
    }

    /// Does what is due after a step of a file.
    pub(super) fn go_on(&self, file: &Arc<Incoming>, progressed: &Progressed) {
        match progressed {
            Progressed::More | Progressed::Known | Progressed::InOtherHands => {}
            Progressed::Damaged => {
                if file.restart() {
                    // A disk, a journal, or a source that has changed: everything comes again, once.
                    self.progress.tell(Event::Damaged {
                        path: file.target.path.display().to_string(),
                        bytes: file.target.size.unwrap_or(0),
                        at: DamagedAt::Whole,
                    });
                    self.unacknowledge(file);
                    self.want(file);
                } else {
                    let text = "what came does not have the hash of the file, twice";
                    self.fail_file(file, FailReason::Damaged, text, true);
                }
            }
            // The disk is waited for by others, while this carrier brings what follows.
            Progressed::Complete if file.has_journal() => {
                let _waiting = self.progress.wait(Wait::Disk);
                self.placing.push(file);
            }
            Progressed::Complete => self.place(file),
        }
    }

    /// Puts a complete file in its place.
    pub(super) fn place(&self, file: &Arc<Incoming>) {
        let is_doubted = self.destination.as_deref().filter(|_| !file.has_journal());
        let marked = is_doubted.map_or(Ok(()), |destination| self.doubt.begin(destination));
        if let Err(error) = marked.and_then(|()| file.place(|file| self.take_place(file))) {
            return self.fail_file(file, reason_of(&error), &sentence(&error), true);
        }
        let target = &file.target;
        if self.state().files.remove(&target.entry).is_none() {
            return;
        }
        let (bytes, came) = file.there();
        let count = files_proto::content::chunk_count(bytes);
        let how = match came {
            0 => How::There,
            came if came < count => How::Resumed,
            _ => How::Sent,
        };
        let path = target.path.display().to_string();
        self.stored(target.entry, path, bytes, how);
        self.end_turn(target.entry);
    }

    fn take_pack(&self, bytes: &[u8]) -> Result<(), &'static str> {
        for file in pack::read(bytes).map_err(|_| "a pack cannot be read")? {
            let (entry, content) = (file.entry, file.bytes);
            if !file.verify() {
                self.take_damaged_whole(&file)?;
                continue;
            }
            let small = self.state().small.remove(&entry);
            let Some(small) = small else {
                self.take_whole(&file)?;
                continue;
            };
            if content.len() as u64 != small.size {
                return Err("a file of a pack has another size than it was offered with");
            }
            self.chunks_sent.fetch_add(1, Ordering::Relaxed);
            self.bytes_sent.fetch_add(small.size, Ordering::Relaxed);
            self.progress.add(Counter::BytesDone, small.size);
            self.store_small(entry, &small, content);
        }
        let _waiting = self.progress.wait(Wait::Disk);
        self.write_back.wait();
        Ok(())
    }

    /// A small file that does not go to a place: the one for standard output.
    fn take_whole(&self, packed: &Packed<'_>) -> Result<(), &'static str> {
        let Some(file) = self.state().files.get(&packed.entry).map(Arc::clone) else {
            // It failed, or was complete before a carrier was lost.
            return Ok(());
        };
        let chunk = chunk_of(packed);
        let length = packed.bytes.len() as u64;
        let stored = file.store(&chunk, packed.bytes);
        if matches!(stored, Ok(Progressed::Known | Progressed::InOtherHands)) {
            // Whoever brought it first tells its end.
            return Ok(());
        }
        match stored.and_then(|_| file.end(length, packed.root)) {
            Ok(progressed) => {
                self.progress.add(Counter::BytesDone, length);
                self.bytes_sent.fetch_add(length, Ordering::Relaxed);
                self.chunks_sent.fetch_add(1, Ordering::Relaxed);
                self.go_on(&file, &progressed);
            }
            Err(StoreError::Broken(how)) => return Err(how),
            Err(StoreError::Write(error)) => {
                self.fail_write(&file, &error);
            }
        }
        Ok(())
    }

    /// Makes a small file of its bytes, which have been verified.
    pub(super) fn store_small(&self, entry: EntryId, small: &Small, bytes: &[u8]) {
        let path = small.path.display().to_string();
        let Some(destination) = &self.destination else {
            return;
        };
        let waiting = self.progress.wait(Wait::Disk);
        // Of nothing no bytes can be lost.
        let marked = match small.size {
            0 => Ok(()),
            _ => self.doubt.begin(destination),
        };
        let written =
            marked.and_then(|()| write_small(destination, small, bytes, |file| self.take_place(file)));
        drop(waiting);
        match written {
            Ok(()) => {
                self.write_back.wrote_small(small.size);
                self.stored(entry, path, small.size, How::Sent);
            }
            Err(error) => self.fail(entry, &path, reason_of(&error), &sentence(&error)),
        }
    }
}

/// `named` is told before it has its name. A file that takes a free place needs no name before it is complete, and so
/// no second one.
fn write_small(
    destination: &Destination,
    small: &Small,
    bytes: &[u8],
    named: impl Fn(&File),
) -> std::io::Result<()> {
    if !small.replaces
        && let Some(file) = destination.create_unnamed(&small.path)?
    {
        fill(destination, &file, small, bytes)?;
        destination.finish(file.as_fd(), small.mode, small.modified)?;
        named(&file);
        if destination.name(file.as_fd(), &small.path)? {
            return Ok(());
        }
    }
    let file = destination.create_part(&small.part)?;
    fill(destination, &file, small, bytes)
        .and_then(|()| destination.finish_part(file.as_fd(), small.mode, small.modified))
        .inspect(|()| named(&file))
        .and_then(|()| destination.place(&file, &small.part, &small.path, small.replaces))
        .inspect_err(|_| {
            destination.discard(&file, &small.part);
        })?;
    destination.restrict(file.as_fd(), small.mode)
}

fn fill(destination: &Destination, mut file: &File, small: &Small, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)?;
    destination.attribute(file, &small.attributes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_small_file_takes_its_place_whole_on_any_file_system() {
        for (has_unnamed, replaces) in [(true, false), (false, false), (true, true)] {
            let directory = tempfile::tempdir().unwrap();
            let destination = Destination::open(directory.path()).unwrap();
            if !has_unnamed {
                destination.forgo_unnamed();
            }
            let small = Small {
                path: "file".into(),
                part: ".part".into(),
                size: 5,
                mode: 0o640,
                modified: 7_000_000_000,
                attributes: Vec::new(),
                replaces,
                damaged_arrivals: 0,
            };
            // Of a transfer that was killed.
            fs::write(directory.path().join(".part"), "by").unwrap();
            if replaces {
                fs::write(directory.path().join("file"), "old").unwrap();
            }
            write_small(&destination, &small, b"bytes", |_| ()).unwrap();
            let path = directory.path().join("file");
            assert_eq!(fs::read(&path).unwrap(), b"bytes");
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!(
                metadata.permissions().mode() & 0o077,
                0o040 & !crate::processor::umask()
            );
            assert_eq!(
                metadata.modified().unwrap(),
                std::time::UNIX_EPOCH + std::time::Duration::from_secs(7)
            );
            if !replaces {
                let refused = write_small(&destination, &small, b"other", |_| ()).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
                assert_eq!(fs::read(&path).unwrap(), b"bytes");
            }
        }
    }
}
