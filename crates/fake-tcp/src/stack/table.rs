//! Connections by their addresses and by their IDs.

use std::collections::HashMap;
use std::ops::{Index, IndexMut};
use std::time::Instant;

use slab::Slab;

use super::ConnectionId;
use crate::connection::Connection;
use crate::limits::CONNECTIONS_MAX;
use crate::tuple::{Tuple, TupleState};

/// A connection and what the stack knows about it.
pub(super) struct Entry {
    connection: Connection,
    generation: u32,
    /// Its entry among the timers.
    pub(super) scheduled: Option<Instant>,
}

impl Entry {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// See the module's text. Nothing depends on the order of the map.
pub(super) struct Table {
    entries: Slab<Entry>,
    by_tuple: HashMap<Tuple, usize, TupleState>,
    /// The last one found: a batch mostly has one flow.
    last: Option<(Tuple, usize)>,
    generation: u32,
}

impl Table {
    /// Bytes that one entry takes at most: vectors and maps double when they are full, and maps are full when an eighth
    /// of their places is free.
    pub(super) const ENTRY_BYTES_MAX: usize =
        2 * size_of::<Entry>() + 16 * (size_of::<(Tuple, usize)>() + 1) / 7;

    pub(super) fn new(state: TupleState) -> Self {
        Self {
            entries: Slab::new(),
            by_tuple: HashMap::with_hasher(state),
            last: None,
            generation: 0,
        }
    }

    pub(super) fn find(&mut self, tuple: &Tuple) -> Option<usize> {
        if let Some((last, index)) = &self.last
            && last == tuple
        {
            return Some(*index);
        }
        let index = *self.by_tuple.get(tuple)?;
        self.last = Some((*tuple, index));
        Some(index)
    }

    pub(super) fn insert(&mut self, connection: Connection) -> usize {
        let tuple = connection.tuple;
        self.generation = self.generation.wrapping_add(1);
        let index = self.entries.insert(Entry {
            connection,
            generation: self.generation,
            scheduled: None,
        });
        self.by_tuple.insert(tuple, index);
        index
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, index: usize) -> Entry {
        let entry = self.entries.remove(index);
        self.by_tuple.remove(&entry.connection.tuple);
        self.last = None;
        entry
    }

    pub(super) fn id(&self, index: usize) -> ConnectionId {
        ConnectionId {
            index: index as u32,
            generation: self.entries[index].generation,
        }
    }

    pub(super) fn index(&self, id: ConnectionId) -> Option<usize> {
        let entry = self.entries.get(id.index as usize)?;
        (entry.generation == id.generation).then_some(id.index as usize)
    }

    pub(super) fn entry(&mut self, index: usize) -> &mut Entry {
        &mut self.entries[index]
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= CONNECTIONS_MAX
    }
}

impl Index<usize> for Table {
    type Output = Connection;

    fn index(&self, index: usize) -> &Connection {
        &self.entries[index].connection
    }
}

impl IndexMut<usize> for Table {
    fn index_mut(&mut self, index: usize) -> &mut Connection {
        &mut self.entries[index].connection
    }
}
