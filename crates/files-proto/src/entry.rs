//! What a sender offers: one file, directory, link or pipe, and its encoding in an ENTRY message.

use crate::limits::{ATTRIBUTES_BYTES_MAX, ATTRIBUTES_MAX, FILE_BYTES_MAX, NAME_BYTES_MAX, TARGET_BYTES_MAX};
use crate::wire::{Input, Malformed, put, put_bytes, put_signed};

/// Number of an entry in its transfer, from 0, ascending by one (FILE-6).
pub type EntryId = u64;

/// One file, directory, link or pipe as it is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number.
    pub id: EntryId,
    /// The directory that it is in, offered before and not ended; `None` at the top.
    pub parent: Option<EntryId>,
    /// One component of a path, as the sender's system has it; not yet safe (see [`crate::name`]).
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Permissions: the low twelve bits of Unix.
    pub mode: u32,
    /// When its content was modified last, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Extended attributes, where the sender was asked for them.
    pub attributes: Vec<Attribute>,
    /// Bytes that a file takes on a disk at least: fewer than its size where it may have holes.
    pub disk_bytes_min: u64,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file of so many bytes.
    File {
        /// Bytes.
        size: u64,
    },
    /// A directory; what it holds follows.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Where it leads, as the sender's system has it.
        target: Vec<u8>,
    },
    /// Bytes of a program's output, which have no size until they end.
    Pipe,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// Its name, `user.comment`.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

const FILE: u64 = 0;
const DIRECTORY: u64 = 1;
const SYMLINK: u64 = 2;
const PIPE: u64 = 3;

impl Entry {
    /// Bytes of the file; 0 of everything else.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self.kind {
            Kind::File { size } => size,
            Kind::Directory | Kind::Symlink { .. } | Kind::Pipe => 0,
        }
    }

    pub(crate) fn read(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let id = input.number()?;
        // 0 is the top, so that a parent is one above its number.
        let parent = input.number()?.checked_sub(1);
        let name = input.bytes(NAME_BYTES_MAX)?.to_vec();
        let kind = match input.number()? {
            FILE => Kind::File {
                size: input.bounded(FILE_BYTES_MAX)?,
            },
            DIRECTORY => Kind::Directory,
            SYMLINK => Kind::Symlink {
                target: input.bytes(TARGET_BYTES_MAX)?.to_vec(),
            },
            PIPE => Kind::Pipe,
            _ => return Err(Malformed),
        };
        let mode = input.bounded(0o7777)? as u32;
        let modified_ns = input.signed()?;
        let count = input.count(ATTRIBUTES_MAX)?;
        let mut attributes = Vec::with_capacity(count);
        let mut room = ATTRIBUTES_BYTES_MAX;
        for _ in 0..count {
            let name = input.bytes(NAME_BYTES_MAX.min(room))?.to_vec();
            room -= name.len();
            let value = input.bytes(room)?.to_vec();
            room -= value.len();
            attributes.push(Attribute { name, value });
        }
        let disk_bytes_min = input.bounded(FILE_BYTES_MAX)?;
        Ok(Self {
            id,
            parent,
            name,
            kind,
            mode,
            modified_ns,
            attributes,
            disk_bytes_min,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        put(self.id, out);
        put(self.parent.map_or(0, |parent| parent + 1), out);
        put_bytes(&self.name, out);
        match &self.kind {
            Kind::File { size } => {
                put(FILE, out);
                put(*size, out);
            }
            Kind::Directory => put(DIRECTORY, out),
            Kind::Symlink { target } => {
                put(SYMLINK, out);
                put_bytes(target, out);
            }
            Kind::Pipe => put(PIPE, out),
        }
        put(u64::from(self.mode & 0o7777), out);
        put_signed(self.modified_ns, out);
        put(self.attributes.len() as u64, out);
        for attribute in &self.attributes {
            put_bytes(&attribute.name, out);
            put_bytes(&attribute.value, out);
        }
        put(self.disk_bytes_min, out);
    }
}
