//! Values by growing numbers: the oldest go first, more or less.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Table<T> {
    first: u64,
    slots: VecDeque<Option<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            first: 0,
            slots: VecDeque::new(),
        }
    }
}

impl<T> Table<T> {
    /// The number of the next value.
    pub(super) fn next_id(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// No value has a lower number than this.
    pub(super) fn first_id(&self) -> u64 {
        self.first
    }

    pub(super) fn push(&mut self, value: T) -> u64 {
        let id = self.next_id();
        self.slots.push_back(Some(value));
        id
    }

    fn index(&self, id: u64) -> Option<usize> {
        usize::try_from(id.checked_sub(self.first)?).ok()
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.slots.get(self.index(id)?)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let index = self.index(id)?;
        self.slots.get_mut(index)?.as_mut()
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        let index = self.index(id)?;
        let value = self.slots.get_mut(index)?.take();
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
        }
        value
    }

    /// The numbers of all values.
    pub(super) fn ids(&self) -> Vec<u64> {
        let slots = self.slots.iter().zip(self.first..);
        slots.filter_map(|(slot, id)| slot.as_ref().map(|_| id)).collect()
    }
}
