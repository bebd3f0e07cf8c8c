//! Values by growing numbers. Its memory is that of the values that are alive, however old the oldest is.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct Table<T> {
    next: u64,
    values: BTreeMap<u64, T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            next: 0,
            values: BTreeMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// The number of the next value.
    pub(super) fn next_id(&self) -> u64 {
        self.next
    }

    /// No value has a lower number than this.
    pub(super) fn first_id(&self) -> u64 {
        self.values.first_key_value().map_or(self.next, |(id, _)| *id)
    }

    pub(super) fn push(&mut self, value: T) -> u64 {
        let id = self.next;
        self.next += 1;
        self.values.insert(id, value);
        id
    }

    pub(super) fn get(&self, id: u64) -> Option<&T> {
        self.values.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.values.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<T> {
        self.values.remove(&id)
    }

    /// Removes the value with the lowest number from `start` to before `end`; at the cost of one value, however long
    /// the range is.
    pub(super) fn remove_first_in(&mut self, start: u64, end: u64) -> Option<T> {
        let (id, _) = self.values.range(start..end.max(start)).next()?;
        let id = *id;
        self.values.remove(&id)
    }

    /// The numbers of all values.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.values.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_old_value_keeps_no_room_for_those_behind_it() {
        let mut table = Table::default();
        let old = table.push("old");
        for _ in 0..100_000 {
            let id = table.push("young");
            assert_eq!(table.remove(id), Some("young"));
        }
        assert_eq!(
            (table.values.len(), table.first_id(), table.next_id()),
            (1, old, 100_001)
        );
        assert_eq!(table.remove_first_in(1, 100_001), None);
        assert_eq!(table.remove_first_in(5, 2), None);
        assert_eq!(table.remove_first_in(0, 100_001), Some("old"));
        assert_eq!(table.first_id(), 100_001);
    }
}
