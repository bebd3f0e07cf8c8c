//! The sender of the model: offers what its source had when it began, and reads the source anew for each chunk.

use std::collections::{BTreeMap, VecDeque};

use files_proto::compress::Compression;
use files_proto::content::{chunk_address, chunk_count, chunk_length};
use files_proto::limits::{CHUNK_BYTES, PACKED_FILE_BYTES_MAX};
use files_proto::message::{Hello, Message, VERSION};
use files_proto::offers::Offers;
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{Entry, EntryId, FailReason, Kind, Ranges, pack};

use crate::{Record, Source};

pub(crate) struct Sender {
    offers: Offers,
    /// What is still to be offered, and the directories among it that end.
    walk: VecDeque<Step>,
    files: BTreeMap<EntryId, File>,
    small: Ranges,
    messages: Vec<Message>,
    compression: Compression,
}

enum Step {
    Offer(Entry, Vec<Vec<u8>>),
    End(EntryId),
}

struct File {
    path: Vec<Vec<u8>>,
    size: u64,
    modified_ns: i64,
    wanted: Ranges,
    /// Chunks that were sent and not acknowledged, and by which carrier.
    under_way: BTreeMap<u64, usize>,
}

impl Sender {
    pub(crate) fn new(source: &Source) -> Self {
        let hello = Message::Hello(Hello {
            version: VERSION,
            sender: true,
            extensions: vec![(4_000, b"of a later version".to_vec())],
        });
        Self {
            offers: Offers::new(),
            walk: walk(source),
            files: BTreeMap::new(),
            small: Ranges::new(),
            messages: vec![hello],
            compression: Compression::new(),
        }
    }

    /// Offers some more, and gives what is to be told.
    pub(crate) fn poll_messages(&mut self, _source: &Source) -> Vec<Message> {
        match self.walk.pop_front() {
            Some(Step::Offer(entry, path)) if self.offers.has_room(&entry) => {
                self.offers.offer(&entry);
                if let Kind::File { size } = entry.kind {
                    let file = File {
                        path,
                        size,
                        modified_ns: entry.modified_ns,
                        wanted: Ranges::new(),
                        under_way: BTreeMap::new(),
                    };
                    self.files.insert(entry.id, file);
                }
                self.messages.push(Message::Entry(entry));
                if self.walk.is_empty() {
                    self.messages.push(self.offers.end());
                }
            }
            Some(Step::End(entry)) => {
                self.messages.push(Message::DirectoryEnd { entry });
                if self.walk.is_empty() {
                    self.messages.push(self.offers.end());
                }
            }
            Some(step) => self.walk.push_front(step),
            None => {}
        }
        std::mem::take(&mut self.messages)
    }

    pub(crate) fn handle_message(&mut self, message: Message, source: &Source) {
        match message {
            Message::Want { entry, chunks } => {
                if !self
                    .offers
                    .handle_want(entry, &chunks)
                    .expect("the receiver wants what there is")
                {
                    return;
                }
                let Some(bytes) = self.unchanged(entry, source) else {
                    return;
                };
                let file = self.files.get_mut(&entry).expect("it is open");
                if file.size <= PACKED_FILE_BYTES_MAX {
                    self.small.insert(entry..entry + 1);
                    return;
                }
                for range in chunks.iter() {
                    file.wanted.insert(range);
                }
                self.messages.push(Message::FileEnd {
                    entry,
                    size: file.size,
                    root: *blake3::hash(bytes).as_bytes(),
                });
            }
            Message::Ask { entry } => {
                if !self
                    .offers
                    .handle_ask(entry)
                    .expect("the receiver asks a few times")
                {
                    return;
                }
                let Some(bytes) = self.unchanged(entry, source) else {
                    return;
                };
                let only = bytes.len() as u64 <= CHUNK_BYTES;
                let addresses = bytes.chunks(CHUNK_BYTES as usize).enumerate();
                let addresses = addresses
                    .map(|(index, chunk)| chunk_address(index as u64, only, chunk))
                    .collect();
                self.messages.push(Message::Hashes {
                    entry,
                    first: 0,
                    addresses,
                });
            }
            Message::Ack { entry, chunks } => {
                if let Some(file) = self.files.get_mut(&entry) {
                    file.under_way.retain(|index, _| !chunks.contains(*index));
                }
            }
            Message::Stored { entries } => {
                for entry in self
                    .offers
                    .handle_stored(&entries)
                    .expect("what was offered is stored")
                {
                    self.files.remove(&entry);
                }
            }
            Message::Skip { entry, .. } | Message::Failed { entry, .. } => {
                self.offers.finish(entry).expect("it was offered");
                self.files.remove(&entry);
            }
            Message::Hello(hello) => assert!(!hello.sender),
            other => panic!("a receiver does not say {other:?}"),
        }
    }

    /// The next record for a carrier: a pack of all small files that are wanted, or a chunk.
    pub(crate) fn poll_record(&mut self, source: &Source, carrier: usize) -> Option<Record> {
        let mut builder = pack::Builder::default();
        while let Some(entry) = self.small.first() {
            self.small.remove(entry..entry + 1);
            if let Some(bytes) = self.unchanged(entry, source) {
                assert!(builder.push(entry, bytes));
                let file = self.files.get_mut(&entry).expect("it is open");
                file.under_way.insert(0, carrier);
            }
        }
        if !builder.is_empty() {
            let mut raw = Vec::new();
            builder.finish(&mut raw);
            return Some(self.record(Body::Pack, raw));
        }
        let (entry, index) = self
            .files
            .iter()
            .find_map(|(entry, file)| Some((*entry, file.wanted.first()?)))?;
        let bytes = self.unchanged(entry, source)?;
        let file = self.files.get_mut(&entry).expect("it is open");
        file.wanted.remove(index..index + 1);
        file.under_way.insert(index, carrier);
        let start = (index * CHUNK_BYTES) as usize;
        let raw = bytes[start..start + chunk_length(file.size, index) as usize].to_vec();
        let only = chunk_count(file.size) == 1;
        let chunk = Chunk {
            entry,
            index,
            address: chunk_address(index, only, &raw),
            only,
            hole: raw.iter().all(|byte| *byte == 0),
        };
        Some(self.record(Body::Chunk(chunk), raw))
    }

    /// What a carrier had in its hands is wanted again.
    pub(crate) fn handle_lost_carrier(&mut self, carrier: usize) {
        for (entry, file) in &mut self.files {
            let lost: Ranges = file
                .under_way
                .iter()
                .filter(|(_, by)| **by == carrier)
                .map(|(index, _)| *index)
                .collect();
            file.under_way.retain(|_, by| *by != carrier);
            for range in lost.iter() {
                if file.size <= PACKED_FILE_BYTES_MAX {
                    self.small.insert(*entry..entry + 1);
                } else {
                    file.wanted.insert(range);
                }
            }
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.walk.is_empty() && self.offers.open_entries() == 0
    }

    pub(crate) fn state(&self) -> String {
        let wanted: u64 = self.files.values().map(|file| file.wanted.len()).sum();
        format!(
            "sender: {} open, {wanted} wanted, {} to offer",
            self.offers.open_entries(),
            self.walk.len()
        )
    }

    /// The file as it was offered; otherwise the receiver is told that it failed.
    fn unchanged<'a>(&mut self, entry: EntryId, source: &'a Source) -> Option<&'a [u8]> {
        let file = self.files.get(&entry)?;
        let (bytes, modified_ns) = &source[&file.path];
        if bytes.len() as u64 == file.size && *modified_ns == file.modified_ns {
            return Some(bytes);
        }
        self.files.remove(&entry);
        self.offers.finish(entry).expect("it was offered");
        self.messages.push(Message::Failed {
            entry,
            reason: FailReason::Changed,
            text: String::new(),
        });
        None
    }

    fn record(&mut self, body: Body, raw: Vec<u8>) -> Record {
        let raw_bytes = raw.len() as u32;
        let is_hole = matches!(body, Body::Chunk(chunk) if chunk.hole);
        let mut out = Vec::new();
        let compressed = !is_hole && self.compression.compress(&raw, &mut out);
        if is_hole {
            out.clear();
        } else if !compressed {
            out = raw;
        }
        let head = RecordHead {
            body,
            compressed,
            stored_bytes: out.len() as u32,
            raw_bytes,
        };
        (RecordHead::decode(&head.encode()).expect("a head of ours"), out)
    }
}

/// Depth first, each directory ended behind the last entry in it.
fn walk(source: &Source) -> VecDeque<Step> {
    let mut steps = VecDeque::new();
    let mut next = 0;
    // Directories that have not ended: their names and numbers.
    let mut open: Vec<(Vec<u8>, EntryId)> = Vec::new();
    let mut offer = |open: &[(Vec<u8>, EntryId)], name: &[u8], kind, modified_ns, path: Vec<Vec<u8>>| {
        let entry = Entry {
            id: next,
            parent: open.last().map(|(_, id)| *id),
            name: name.to_vec(),
            kind,
            mode: 0o644,
            modified_ns,
            attributes: Vec::new(),
            disk_bytes_min: 0,
        };
        next += 1;
        (entry.id, Step::Offer(entry, path))
    };
    for (path, (bytes, modified_ns)) in source {
        let (name, directories) = path.split_last().expect("a path has a name");
        let same = open
            .iter()
            .zip(directories)
            .take_while(|((name, _), other)| name == *other)
            .count();
        steps.extend(open.drain(same..).rev().map(|(_, id)| Step::End(id)));
        for directory in &directories[same..] {
            let (id, step) = offer(&open, directory, Kind::Directory, 0, Vec::new());
            steps.push_back(step);
            open.push((directory.clone(), id));
        }
        let size = bytes.len() as u64;
        steps.push_back(offer(&open, name, Kind::File { size }, *modified_ns, path.clone()).1);
    }
    steps.extend(open.drain(..).rev().map(|(_, id)| Step::End(id)));
    steps
}
