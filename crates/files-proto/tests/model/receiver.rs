//! The receiver of the model, and its disk: what was written is lost by a power cut unless it was synced, also of small
//! files that have their names, and what was synced is damaged now and then, which a user knows who wants checksums
//! then.

use std::collections::{BTreeMap, BTreeSet};

use files_proto::compress::Decompression;
use files_proto::content::{Address, Root, RootBuilder, chunk_address, chunk_count, chunk_length};
use files_proto::doubt::{Marker, Span};
use files_proto::journal::{BootId, Header, Journal, Reader, Record};
use files_proto::limits::{CHUNK_BYTES, PACKED_FILE_BYTES_MAX};
use files_proto::manifest::Manifest;
use files_proto::message::{Hello, Message, VERSION};
use files_proto::name::Rules;
use files_proto::plan::{Decision, Existing, OnConflict, Resume, compare, decide, decide_in_doubt, resume};
use files_proto::record::{Body, Chunk, RecordHead};
use files_proto::{Entry, EntryId, Kind, Ranges, pack};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use crate::Source;

type Path = Vec<Vec<u8>>;

/// Chunks between two syncs.
const SYNC_CHUNKS: u32 = 3;

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<Path, (Vec<u8>, i64)>,
    pub(crate) partials: BTreeMap<Path, Partial>,
    pub(crate) boot: BootId,
    /// Bytes of chunks and small files that were ever written.
    pub(crate) written: u64,
    /// That of the destination; the disk has it.
    marker: Marker,
    /// When each file was changed.
    changed: BTreeMap<Path, i64>,
    /// Files whose bytes the disk may not have.
    unsynced: BTreeSet<Path>,
    /// Steps on with each file.
    clock_ns: i64,
}

#[derive(Default)]
pub(crate) struct Partial {
    bytes: Vec<u8>,
    journal: Vec<u8>,
    /// As they are after a power cut.
    synced_bytes: Vec<u8>,
    synced_journal: usize,
    unsynced: u32,
    /// Chunks that the disk has damaged, of which the journal does not say that they are lost.
    damaged: BTreeSet<u64>,
}

impl Partial {
    pub(crate) fn journal(&self, boot: BootId) -> Journal {
        let mut reader = Reader::new(boot);
        reader.push(&self.journal);
        reader.finish().expect("a journal begins with its header")
    }

    /// How many chunks are known to be there.
    pub(crate) fn chunks(&self) -> u64 {
        self.journal(BootId::default()).chunks.len() as u64
    }

    fn append(&mut self, record: Record) {
        record.encode(&mut self.journal);
    }

    fn write(&mut self, index: u64, bytes: &[u8], address: [u8; 32]) {
        let start = (index * CHUNK_BYTES) as usize;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.append(Record::Chunk { index, address });
        self.unsynced += 1;
        if self.unsynced == SYNC_CHUNKS {
            self.sync();
        }
    }

    /// The disk damages a chunk that it had.
    fn damage(&mut self, random: &mut SmallRng) {
        // What counts after any boot.
        let journal = self.journal(BootId::from([u8::MAX; 16]));
        let chunks: Vec<u64> = journal.chunks.into_keys().collect();
        let Some(index) = chunks.choose(random) else {
            return;
        };
        let start = (index * CHUNK_BYTES) as usize;
        for bytes in [&mut self.bytes, &mut self.synced_bytes] {
            bytes[start] = bytes[start].wrapping_add(1);
        }
        self.damaged.insert(*index);
    }

    /// Those of these chunks that are not in it, as their addresses tell, are lost; the disk knows (FILE-27).
    fn lose(&mut self, chunks: &mut Ranges, addresses: &[Address]) {
        let size = self.bytes.len() as u64;
        for index in chunks.clone().iter().flatten() {
            let start = (index * CHUNK_BYTES) as usize;
            let bytes = &self.bytes[start..start + chunk_length(size, index) as usize];
            if chunk_address(index, addresses.len() == 1, bytes) != addresses[index as usize] {
                chunks.remove(index..index + 1);
                self.append(Record::Lost { index });
                self.damaged.remove(&index);
            }
        }
        self.synced_journal = self.journal.len();
    }

    fn sync(&mut self) {
        self.unsynced = 0;
        self.synced_bytes.clone_from(&self.bytes);
        self.append(Record::Synced);
        self.synced_journal = self.journal.len();
    }
}

impl Disk {
    /// More than the heads of all packs of a source of the model.
    pub(crate) const PACK_HEADS: u64 = 1_000;

    /// Of each partial file, chunks that were not synced are old or new; of its journal, any part that was not synced
    /// is gone, also where the bytes of its chunks are.
    pub(crate) fn power_cut(&mut self, random: &mut SmallRng) {
        self.boot[0] += 1;
        for partial in self.partials.values_mut() {
            let mut bytes = partial.bytes.clone();
            for (index, chunk) in bytes.chunks_mut(CHUNK_BYTES as usize).enumerate() {
                if random.random_bool(0.5) {
                    let start = index * CHUNK_BYTES as usize;
                    let old = partial.synced_bytes.get(start..).unwrap_or_default();
                    let length = old.len().min(chunk.len());
                    chunk[..length].copy_from_slice(&old[..length]);
                    chunk[length..].fill(0);
                }
            }
            partial.bytes = bytes;
            partial.synced_bytes.clone_from(&partial.bytes);
            let length = random.random_range(partial.synced_journal..=partial.journal.len());
            partial.journal.truncate(length);
            partial.unsynced = 0;
        }
        for path in std::mem::take(&mut self.unsynced) {
            let (bytes, _) = self.files.get_mut(&path).expect("it was stored");
            match random.random_range(0..4) {
                // Names and sizes may be on the disk before bytes are.
                0 => bytes.clear(),
                1 => bytes.fill(0),
                2 => drop(self.files.remove(&path)),
                _ => {}
            }
        }
        // A journal whose first record never reached the disk is none.
        let boot = self.boot;
        self.partials.retain(|_, partial| {
            let mut reader = Reader::new(boot);
            reader.push(&partial.journal);
            reader.finish().is_ok()
        });
    }

    /// The disk damages some of what it had.
    pub(crate) fn damage(&mut self, random: &mut SmallRng) {
        for partial in self.partials.values_mut() {
            if random.random_bool(0.5) {
                partial.damage(random);
            }
        }
    }

    /// Whether a journal claims what is damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.partials.values().any(|partial| !partial.damaged.is_empty())
    }

    /// The end of a transfer: the disk takes everything before DONE.
    pub(crate) fn sync(&mut self) {
        self.unsynced.clear();
        let changed = &self.changed;
        let is_left = |span: Span| changed.values().any(|changed| span.has(*changed));
        self.marker = self
            .marker
            .end(self.boot, self.clock_ns, is_left)
            .unwrap_or_default();
    }

    /// Whether nothing in it is in doubt.
    pub(crate) fn is_settled(&self) -> bool {
        self.marker == Marker::default()
    }

    /// A file gets its name, or is what was compared.
    fn change(&mut self, path: &Path) -> i64 {
        self.clock_ns += 1;
        self.changed.insert(path.clone(), self.clock_ns);
        self.clock_ns
    }

    /// Bytes of the source that neither a file nor a journal has.
    pub(crate) fn missing(&self, source: &Source) -> u64 {
        let mut missing = 0;
        for (path, (bytes, modified_ns)) in source {
            let size = bytes.len() as u64;
            let is_there = self
                .files
                .get(path)
                .is_some_and(|(there, time)| (there.len(), time) == (bytes.len(), modified_ns));
            let kept: u64 = self.partials.get(path).map_or(0, |partial| {
                let journal = partial.journal(self.boot);
                assert_eq!(
                    (journal.header.size, journal.header.modified_ns),
                    (size, *modified_ns)
                );
                journal
                    .chunks
                    .keys()
                    .map(|index| chunk_length(size, *index))
                    .sum()
            });
            missing += if is_there { 0 } else { size - kept };
        }
        missing
    }
}

pub(crate) struct Receiver {
    manifest: Manifest,
    files: BTreeMap<EntryId, File>,
    messages: Vec<Message>,
    decompression: Decompression,
    /// Whether its user wants checksums.
    checks: bool,
    began_ns: i64,
    /// What may be there without its bytes.
    doubted: Option<Span>,
}

struct File {
    path: Path,
    size: u64,
    modified_ns: i64,
    have: Ranges,
    builder: RootBuilder,
    root: Option<Root>,
}

impl Receiver {
    pub(crate) fn new(disk: &Disk) -> Self {
        let hello = Message::Hello(Hello {
            version: VERSION + 1,
            sender: false,
            extensions: Vec::new(),
        });
        Self {
            manifest: Manifest::new(Rules::default()),
            files: BTreeMap::new(),
            messages: vec![hello],
            decompression: Decompression::new(),
            checks: disk.is_damaged(),
            began_ns: disk.clock_ns + 1,
            doubted: disk.marker.doubted(disk.boot, disk.clock_ns + 1),
        }
    }

    pub(crate) fn poll_messages(&mut self, _disk: &mut Disk) -> Vec<Message> {
        while let Some(directory) = self.manifest.poll_finished_directory() {
            self.done(directory);
        }
        std::mem::take(&mut self.messages)
    }

    pub(crate) fn handle_message(&mut self, message: Message, disk: &mut Disk) {
        match message {
            Message::Hello(hello) => assert!(hello.sender),
            Message::Entry(entry) => {
                let offered = self
                    .manifest
                    .handle_entry(entry)
                    .expect("an honest manifest")
                    .expect("safe names");
                assert!(!offered.renamed);
                if let Kind::File { .. } = offered.entry.kind {
                    self.begin(&offered.entry, offered.path, disk);
                }
            }
            Message::DirectoryEnd { entry } => {
                self.manifest
                    .handle_directory_end(entry)
                    .expect("an honest manifest");
            }
            Message::OfferEnd { entries, bytes } => {
                self.manifest
                    .handle_offer_end(entries, bytes)
                    .expect("an honest manifest");
            }
            Message::Hashes { entry, addresses, .. } => {
                let Some(file) = self.files.get_mut(&entry) else {
                    return;
                };
                let partial = disk
                    .partials
                    .get_mut(&file.path)
                    .expect("it was there when it was asked for");
                let journal = partial.journal(disk.boot);
                let is_same =
                    (journal.header.size, journal.header.modified_ns) == (file.size, file.modified_ns);
                let mut there = compare(&addresses, journal.chunks).there;
                partial.bytes.resize(file.size as usize, 0);
                if self.checks {
                    partial.lose(&mut there, &addresses);
                }
                if !is_same {
                    partial.append(Record::Header(file.header(disk.boot)));
                    partial.damaged.clear();
                    for index in there.iter().flatten() {
                        let address = addresses[index as usize];
                        partial.append(Record::Chunk { index, address });
                    }
                    // Before a chunk is overwritten (FILE-27).
                    partial.sync();
                }
                for index in there.iter().flatten() {
                    file.builder.insert(index, addresses[index as usize]);
                }
                let chunks = there.missing_below(addresses.len() as u64);
                file.have = there;
                self.messages.push(Message::Want { entry, chunks });
            }
            Message::FileEnd { entry, root, size } => {
                if let Some(file) = self.files.get_mut(&entry) {
                    assert_eq!(size, file.size);
                    file.root = Some(root);
                    self.finish(entry, disk);
                }
            }
            Message::Failed { entry, .. } => {
                assert!(self.manifest.is_open(entry).expect("it was offered"));
                self.files.remove(&entry);
                self.manifest.finish(entry);
            }
            other => panic!("a sender does not say {other:?}"),
        }
    }

    fn begin(&mut self, entry: &Entry, path: Path, disk: &mut Disk) {
        let existing = disk.files.get(&path).map(|(bytes, modified_ns)| Existing::File {
            size: bytes.len() as u64,
            modified_ns: *modified_ns,
        });
        let is_doubted = self
            .doubted
            .zip(disk.changed.get(&path))
            .is_some_and(|(span, changed)| span.has(*changed));
        let in_doubt = existing.as_ref().filter(|_| is_doubted);
        let decision = in_doubt.and_then(|existing| decide_in_doubt(entry, existing, false));
        let decide = || decide(entry, existing.as_ref(), OnConflict::Newer, false);
        match decision.unwrap_or_else(decide) {
            // It may want what it could compare.
            Decision::Create | Decision::Overwrite | Decision::Compare => {}
            Decision::Skip(reason) => {
                assert_eq!(reason, files_proto::SkipReason::Same);
                if let Some((_, modified_ns)) = disk.files.get_mut(&path) {
                    *modified_ns = entry.modified_ns;
                    disk.change(&path);
                }
                self.messages.push(Message::Skip {
                    entry: entry.id,
                    reason,
                });
                self.manifest.finish(entry.id);
                return;
            }
            other => panic!("{other:?} of a file by a file"),
        }
        let file = File {
            path,
            size: entry.size(),
            modified_ns: entry.modified_ns,
            have: Ranges::new(),
            builder: RootBuilder::default(),
            root: None,
        };
        self.files.insert(entry.id, file);
        if entry.size() <= PACKED_FILE_BYTES_MAX {
            let path = &self.files[&entry.id].path;
            disk.partials.remove(path);
            if entry.size() == 0 {
                self.store(entry.id, Vec::new(), disk);
            } else {
                self.want(entry.id, Ranges::from_range(0..1));
            }
            return;
        }
        self.resume(entry.id, disk);
    }

    fn resume(&mut self, entry: EntryId, disk: &mut Disk) {
        let file = self.files.get_mut(&entry).expect("it was begun");
        let boot = disk.boot;
        let partial = disk.partials.entry(file.path.clone()).or_default();
        let journal = (!partial.journal.is_empty()).then(|| partial.journal(boot));
        let worth = journal.as_ref().map_or(Resume::Nothing, |journal| {
            resume(file.size, file.modified_ns, journal)
        });
        match (worth, journal) {
            (Resume::Missing(wanted), Some(journal)) => {
                partial.journal.truncate(journal.valid_bytes as usize);
                partial.append(Record::Boot(boot));
                if self.checks {
                    self.messages.push(Message::Ask { entry });
                    return;
                }
                for (index, address) in journal.chunks {
                    file.have.insert(index..index + 1);
                    file.builder.insert(index, address);
                }
                self.want(entry, wanted);
            }
            (Resume::Compare, Some(journal)) => {
                partial.journal.truncate(journal.valid_bytes as usize);
                partial.append(Record::Boot(boot));
                self.messages.push(Message::Ask { entry });
            }
            _ => {
                *partial = Partial::default();
                partial.append(Record::Header(file.header(boot)));
                partial.bytes.resize(file.size as usize, 0);
                let wanted = Ranges::from_range(0..chunk_count(file.size));
                self.want(entry, wanted);
            }
        }
    }

    pub(crate) fn handle_record(&mut self, head: &RecordHead, body: &[u8], disk: &mut Disk) {
        let mut raw = vec![0; head.raw_bytes as usize];
        let is_hole = matches!(head.body, Body::Chunk(chunk) if chunk.hole);
        let is_whole = if head.compressed {
            self.decompression.decompress(body, &mut raw).is_ok()
        } else {
            if !is_hole {
                raw.copy_from_slice(body);
            }
            true
        };
        match head.body {
            Body::Chunk(chunk) => self.handle_chunk(chunk, is_whole.then_some(&raw[..]), disk),
            Body::Pack => match pack::read(&raw).ok().filter(|_| is_whole) {
                Some(files) => {
                    for packed in files {
                        if !self.files.contains_key(&packed.entry) {
                            continue;
                        }
                        if packed.verify() {
                            disk.written += packed.bytes.len() as u64;
                            self.store(packed.entry, packed.bytes.to_vec(), disk);
                        } else {
                            self.want(packed.entry, Ranges::from_range(0..1));
                        }
                    }
                }
                // A pack that cannot be read: every small file that has not come is wanted again.
                None => {
                    let small = self
                        .files
                        .iter()
                        .filter(|(_, file)| file.size <= PACKED_FILE_BYTES_MAX);
                    for entry in small.map(|(entry, _)| *entry).collect::<Vec<_>>() {
                        self.want(entry, Ranges::from_range(0..1));
                    }
                }
            },
            Body::Piece(_) => panic!("it asked for none"),
            Body::Unknown => panic!("a record of this version"),
        }
    }

    fn handle_chunk(&mut self, chunk: Chunk, raw: Option<&[u8]>, disk: &mut Disk) {
        let Some(file) = self.files.get_mut(&chunk.entry) else {
            return;
        };
        let index = chunk.index;
        if !file.have.contains(index) {
            let Some(raw) = raw.filter(|raw| chunk.verify(raw).is_ok()) else {
                return self.want(chunk.entry, Ranges::from_range(index..index + 1));
            };
            let partial = disk
                .partials
                .get_mut(&file.path)
                .expect("chunks come of partial files");
            partial.write(index, raw, chunk.address);
            disk.written += raw.len() as u64;
            file.have.insert(index..index + 1);
            file.builder.insert(index, chunk.address);
        }
        self.messages.push(Message::Ack {
            entry: chunk.entry,
            chunks: Ranges::from_range(index..index + 1),
        });
        self.finish(chunk.entry, disk);
    }

    /// Stores a file that has all its chunks and its root.
    fn finish(&mut self, entry: EntryId, disk: &mut Disk) {
        let file = &self.files[&entry];
        let (Some(root), true) = (file.root, file.have.len() == chunk_count(file.size)) else {
            return;
        };
        assert_eq!(file.builder.root(chunk_count(file.size)), Some(root));
        let partial = disk.partials.remove(&file.path).expect("all chunks are in it");
        self.store(entry, partial.bytes, disk);
    }

    fn store(&mut self, entry: EntryId, bytes: Vec<u8>, disk: &mut Disk) {
        let file = self.files.remove(&entry).expect("it is open");
        let changed_ns = disk.change(&file.path);
        if file.size <= CHUNK_BYTES {
            disk.unsynced.insert(file.path.clone());
            // The disk has it before the file has its name.
            disk.marker = disk.marker.begin(disk.boot, self.began_ns, changed_ns);
        } else {
            disk.unsynced.remove(&file.path);
        }
        disk.files.insert(file.path, (bytes, file.modified_ns));
        self.done(entry);
    }

    fn done(&mut self, entry: EntryId) {
        self.manifest.finish(entry);
        self.messages.push(Message::Stored {
            entries: Ranges::from_range(entry..entry + 1),
        });
    }

    fn want(&mut self, entry: EntryId, chunks: Ranges) {
        self.messages.push(Message::Want { entry, chunks });
    }

    pub(crate) fn is_done(&self) -> bool {
        self.manifest.is_done()
    }

    pub(crate) fn state(&self) -> String {
        format!("receiver: {} open", self.manifest.open_entries())
    }
}

impl File {
    fn header(&self, boot: BootId) -> Header {
        Header {
            size: self.size,
            modified_ns: self.modified_ns,
            boot,
        }
    }
}
