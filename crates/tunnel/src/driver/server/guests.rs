//! How many of a thing each client or network has, and all together: both are bounded.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Places for clients.
#[derive(Debug)]
pub(super) struct Guests {
    max: usize,
    max_per_client: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A place that is taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Guest<'a> {
    guests: &'a Guests,
    client: IpAddr,
}

impl Guests {
    pub(super) fn new(max: usize, max_per_client: usize) -> Self {
        Self {
            max,
            max_per_client,
            counts: Mutex::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Each use leaves it whole.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for this client; `None` where it has as many as one may have, or all are taken.
    pub(super) fn admit(&self, client: IpAddr) -> Option<Guest<'_>> {
        let mut counts = self.counts();
        let own = counts.by_client.get(&client).copied().unwrap_or(0);
        if own >= self.max_per_client || counts.all >= self.max {
            return None;
        }
        counts.by_client.insert(client, own + 1);
        counts.all += 1;
        Some(Guest { guests: self, client })
    }

    /// Places that are taken.
    pub(super) fn count(&self) -> usize {
        self.counts().all
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        let mut counts = self.guests.counts();
        counts.all -= 1;
        if let Some(own) = counts.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                counts.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_its_part_and_all_have_no_more_than_there_is() {
        let [first, second]: [IpAddr; 2] = ["10.9.0.2", "fd09::2"].map(|text| text.parse().unwrap());
        let guests = Guests::new(3, 2);
        let mut of_first: Vec<_> = (0..3).map(|_| guests.admit(first)).collect();
        assert_eq!(of_first.iter().flatten().count(), 2);
        let of_second = guests.admit(second);
        assert!(of_second.is_some() && guests.admit(second).is_none());
        assert_eq!(guests.count(), 3);
        of_first.remove(0);
        assert!(guests.admit(second).is_some());
        drop((of_first, of_second));
        assert_eq!(guests.count(), 0);
        assert!(guests.counts().by_client.is_empty());
    }
}
